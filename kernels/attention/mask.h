/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys that a row sees, and the numbers that are added to the scores of these keys. The
 * position of a row, the lengths and the window select two ranges of keys (struct visible). Masks,
 * a bias of -inf, segment ids and empty cells hide some of these keys. The hidden keys are found
 * for one block of keys at a time. Keys count from key 0, whose absolute index is first_key_of.
 */
#ifndef ATTNKIT_MASK_H
#define ATTNKIT_MASK_H

#include "kernels/attention/block.h"
#include "kernels/attention/keys.h"

static inline int64_t sequence_rows(const struct attention *a, int64_t batch)
{
    if (!a->q_starts.data)
        return a->q_len;
    return int_at(a->q_starts, batch + 1) - int_at(a->q_starts, batch);
}

/* Returns the number of keys of a batch entry. With cells, the keys end at the last key that has a
 * cell. */
static inline int64_t sequence_keys(const struct attention *a, int64_t batch)
{
    if (has_cells(a))
        return a->cells.table->spans[batch].keys;
    if (a->kv_starts.data)
        return int_at(a->kv_starts, batch + 1) - int_at(a->kv_starts, batch);
    return a->kv_lens.data ? int_at(a->kv_lens, batch) : a->kv_len;
}

/* Returns the position of query row 0, counted from key 0. */
static inline int64_t q_offset(const struct attention *a, int64_t batch)
{
    if (a->bottom_right)
        return sequence_keys(a, batch) - sequence_rows(a, batch);
    return (a->q_offsets.data ? int_at(a->q_offsets, batch) : 0) - first_key_of(a, batch);
}

static inline int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Returns x + y. If the sum overflows, returns the nearer of INT64_MIN and INT64_MAX. */
static inline int64_t saturated_sum(int64_t x, int64_t y)
{
    int64_t sum;
    if (__builtin_add_overflow(x, y, &sum))
        return y < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

/* The keys [0, keep) and [first, end). Each of the two ranges may be empty. None of the three
 * numbers falls as the position rises. */
struct visible {
    int64_t keep, first, end;
};

/* Returns the end of the keys that a row may see by causality and lengths alone. Here and below,
 * the parameter `position` is the number of the row in its head, as in struct place. q_offset plus
 * this number is the position of the row, counted from key 0. q_offset + q_len does not overflow:
 * dispatch/attention/ has checked this sum. */
static inline int64_t causal_end(const struct attention *a, int64_t batch, int64_t position)
{
    const int64_t keys = sequence_keys(a, batch);
    return a->causal ? clamp(q_offset(a, batch) + position + 1, 0, keys) : keys;
}

/* Returns the keys that a row may see according to causality, lengths, the window and the number of
 * columns of masks. */
static inline struct visible visible_keys(const struct attention *a, int64_t batch,
                                          int64_t position)
{
    const struct extras *const x = &a->extras;
    int64_t keys = causal_end(a, batch, position);
    if (x->any && !has_cells(a) && x->columns < keys)
        keys = x->columns;
    if (!x->window)
        return (struct visible){0, 0, keys};
    const int64_t at = q_offset(a, batch) + position;
    const int64_t end = saturated_sum(saturated_sum(at, x->right), 1);
    return (struct visible){
        .keep = clamp(x->keep_first - first_key_of(a, batch), 0, keys),
        .first = clamp(saturated_sum(at, -x->left), 0, keys),
        .end = x->has_right ? clamp(end, 0, keys) : keys,
    };
}

/* Returns the end of the keys that visible_keys returns. */
static inline int64_t visible_end(const struct attention *a, int64_t batch, int64_t position)
{
    if (!a->extras.any)
        return causal_end(a, batch, position);
    const struct visible v = visible_keys(a, batch, position);
    return v.end > v.keep ? v.end : v.keep;
}

/* Returns the number of keys before `end` in the block that begins at key `block`. */
static inline int32_t visible_in_block(int64_t end, int64_t block)
{
    const int64_t keys = end - block;
    return keys < 0 ? 0 : keys < KEY_BLOCK ? (int32_t)keys : KEY_BLOCK;
}

/* Returns ranges with all keys that at least one of several consecutive rows may see. `first` and
 * `last` are the keys that the first and the last of these rows may see. */
static inline struct visible all_visible(struct visible first, struct visible last)
{
    return (struct visible){last.keep, first.first, last.end};
}

/* Returns one range that has all visible keys among `count` keys from `key` on. The range may also
 * have keys that are not visible. */
static inline struct key_range visible_part(struct visible v, int64_t key, int64_t count)
{
    const int64_t last = v.end > v.keep ? v.end : v.keep;
    const int64_t end = key + count < last ? key + count : last;
    if (key < v.keep || key >= v.first)
        return (struct key_range){.first = key, .end = end};
    return (struct key_range){.first = v.first, .end = end};
}

/* The keys of a block that a row sees. `biased` says whether anything but 0 may be added to their
 * scores.
 */
struct seen {
    struct key_set keys;
    bool biased;
};

/* Finds the keys of the block at key `block` that the row at `place` sees. */
void attnkit_see(const struct attention *a, const struct kernels *kernels,
                 const struct place *place, int64_t block, struct seen *seen);

/* attnkit_heads_differ returns whether two query heads may have different values of struct seen at
 * one position. attnkit_rows_differ returns whether any two query rows of a KV head may have
 * different values of struct seen. */
bool attnkit_heads_differ(const struct attention *a);
bool attnkit_rows_differ(const struct attention *a);

/* Returns whether two query heads may have different bias lines at one position. */
bool attnkit_bias_lines_differ(const struct attention *a);

/* Makes the line that is added to the scores of a block, or, if in_log2, to the scores times log2
 * e. The line is -inf for keys that the row does not see. */
void attnkit_bias_line(const struct attention *a, const struct kernels *kernels, struct place place,
                       int64_t block, struct key_set seen, bool in_log2, float line[KEY_BLOCK]);

/* Makes the factors of the weights of a block: 0 if dropout drops the weight, else 1 / (1 - rate).
 */
void attnkit_keep_line(const struct attention *a, const struct kernels *kernels, struct place place,
                       int64_t block, float line[KEY_BLOCK]);

/* Moves the line's numbers for the keys in `keys` to the beginning of the line, in the order of the
 * keys. `keys` must not be empty. */
void attnkit_compact_line(const struct kernels *kernels, struct key_set keys,
                          float line[KEY_BLOCK]);

/* Computes maximum and sum of the state of a sink. The sink has no row of V, so the weighted sum of
 * V in the state is 0. */
void attnkit_sink(const struct attention *a, const struct kernels *kernels, int64_t head,
                  float *row_max, float *row_sum);

#endif
