/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys a row sees: always a range [0, visible_end), counted from the first key there is.
 */
#ifndef ATTNKIT_MASK_H
#define ATTNKIT_MASK_H

#include "attention.h"

static inline int64_t sequence_rows(const struct attention *a, int64_t batch)
{
    return a->q_starts ? a->q_starts[batch + 1] - a->q_starts[batch] : a->q_len;
}

static inline int64_t sequence_keys(const struct attention *a, int64_t batch)
{
    if (a->kv_starts)
        return a->kv_starts[batch + 1] - a->kv_starts[batch];
    return a->kv_lens ? a->kv_lens[batch] : a->kv_len;
}

/* The position of query row 0, counted likewise. */
static inline int64_t q_offset(const struct attention *a, int64_t batch)
{
    if (a->bottom_right)
        return sequence_keys(a, batch) - sequence_rows(a, batch);
    return (a->q_offsets ? a->q_offsets[batch] : 0) - a->first_key;
}

/* The end of the keys that the rows at a query position of a batch entry see. It does not fall as
 * the position rises. q_offset + q_len does not overflow: dispatch/check.c made sure. */
static inline int64_t visible_end(const struct attention *a, int64_t batch, int64_t position)
{
    const int64_t keys = sequence_keys(a, batch);
    if (!a->causal)
        return keys;
    const int64_t end = q_offset(a, batch) + position + 1;
    return end < 0 ? 0 : end < keys ? end : keys;
}

/* How many keys of the block that starts at key `block` a row with this end sees. */
static inline int32_t visible_in_block(int64_t end, int64_t block)
{
    const int64_t keys = end - block;
    return keys < 0 ? 0 : keys < KEY_BLOCK ? (int32_t)keys : KEY_BLOCK;
}

#endif
