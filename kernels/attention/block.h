/* SPDX-License-Identifier: Apache-2.0
 *
 * K and V of a block of keys as the tiles take them. Prefill takes rows of binary32 at one stride:
 * they are used where they lie if they are like that; rows of another type, such that are spread
 * over pages or cells, tiled K, and rows that others lie between which nobody sees are brought into
 * scratch, once for all query rows of an item. Decode takes rows of any type, each by its address,
 * and tiled K; only rows of TYPE_I8 with odd groups of scales go through scratch.
 */
#ifndef ATTNKIT_BLOCK_H
#define ATTNKIT_BLOCK_H

#include "kernels/attention/attention.h"
#include "kernels/attention/key_set.h"

/* Room for a block of K and one of V; NULL where nothing needs it. */
struct wide {
    float *k, *v;
};

/* Whether a call needs the room: for K and V, or, while there are none, for query and output rows
 * of another type than binary32. */
bool attnkit_needs_wide(const struct attention *a);

/* Whether masks or empty cells may hide keys in the midst of others. */
bool attnkit_may_have_gaps(const struct attention *a);

/* Floats of the room, for these and for gaps, and its parts at `scratch`. */
int64_t attnkit_wide_floats(const struct attention *a);
struct wide attnkit_take_wide(const struct attention *a, float *scratch);

struct block {
    struct rows k, v;
    bool in_place; /* both lie where the caller has them */
};

/* These keys, not none, of the block that starts at key `first`, one after the other; no other is
 * touched. Of both, or of one, with room for a block at `wide`. */
struct block attnkit_block(const struct attention *a, const struct kernels *kernels, int64_t batch,
                           int64_t kv_head, int64_t first, struct key_set keys, struct wide wide);
struct rows attnkit_rows(const struct attention *a, const struct kernels *kernels,
                         const struct cache *c, int64_t batch, int64_t kv_head, int64_t first,
                         struct key_set keys, float *wide);

/* Keys of a head, of which a block has the first ones; none where first is end. */
struct key_range {
    int64_t batch, kv_head, first, end;
};

/* The addresses of rows, and of their scales where they are of TYPE_I8. */
struct row_list {
    const char *row[KEY_BLOCK];
    const float *scales[KEY_BLOCK];
};

/* Room for the addresses of the rows of a block and of K of the next one, which swap places, for
 * those that are left where some are not seen, and for the rows that a decode tile cannot read.
 * With turns > 1, so many heads lie side by side, and each prefetches its part of the next block of
 * all of them. */
struct row_room {
    struct row_list k[2], v;
    struct row_list seen_k, seen_v;
    const char *part_v[KEY_BLOCK]; /* of a turn */
    int next;                      /* of the two, that of the next block */
    int turn, turns;               /* this head's number, and how many share; else 0 of 1 */
    struct key_range known;        /* whose rows are there, or none */
    struct wide wide;
    const float *zeros; /* a row of V */
};

/* Floats of scratch for it, which may be none, and the beginning of a walk. */
int64_t attnkit_row_floats(const struct attention *a);
void attnkit_begin_rows(const struct attention *a, float *scratch, struct row_room *room);

/* Points `block` to the rows of those of `keys`, keys of one block, that are in `seen`, counted
 * from keys.first, and where block->far to what is prefetched: V of the block and K of `next`. With
 * turns `next` is the first head's, and if it is as long as the block, this turn's part of its K
 * and V is prefetched. No other row is touched. Tiled K has its tiles as they are from keys.first
 * on, which begins one, and a row of zeros for V where a key is not seen. */
void attnkit_point_to_rows(const struct attention *a, const struct kernels *kernels,
                           struct key_range keys, struct key_set seen, struct key_range next,
                           struct row_room *room, struct decode_block *block);

#endif
