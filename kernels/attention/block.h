/* SPDX-License-Identifier: Apache-2.0
 *
 * K and V of a block of keys in the form that the tiles take. Prefill takes words (see kernels.h),
 * or rows of binary32 at one stride. Rows of binary32 at one stride are used in place. Other rows
 * are brought into scratch, once for all query rows of an item: rows that are not binary32, rows in
 * several pages or in cells out of order, tiled K, and rows with unseen rows between them. Decode
 * takes tiled K, and rows at any addresses. For decode, rows go through scratch only if no decode
 * tile reads their type, or if their type is TYPE_I8 and their groups of scales are neither whole
 * rows nor multiples of MAX_VECTOR.
 */
#ifndef ATTNKIT_BLOCK_H
#define ATTNKIT_BLOCK_H

#include "kernels/attention/attention.h"
#include "kernels/attention/key_set.h"

/* Scratch for a block of K and a block of V. attnkit_take_wide sets both pointers to NULL if the
 * call needs no such scratch. */
struct wide {
    float *k, *v;
};

/* Returns whether a call needs struct wide even without gaps between seen keys: because Q, K, V or
 * the output is not binary32, or because K is tiled, or because K and V lie in pages. Query and
 * output rows use struct wide only while K and V do not. */
bool attnkit_needs_wide(const struct attention *a);

/* Returns whether several panels should read copies of K and V in struct wide, although K and V are
 * binary32 and in place: because rows of K or of V share sets of L1 and L2. */
bool attnkit_gains_by_copies(const struct attention *a, const struct kernels *kernels);

/* Returns whether a row may see keys on both sides of a key that it does not see: because of masks,
 * a bias, segment ids, a window with keep_first, or cells. */
bool attnkit_may_have_gaps(const struct attention *a);

/* attnkit_wide_floats returns how many floats of scratch struct wide needs. The number is enough
 * for calls with gaps between seen keys, too. attnkit_take_wide returns a struct wide that points
 * into `scratch`. */
int64_t attnkit_wide_floats(const struct attention *a, const struct kernels *kernels);
struct wide attnkit_take_wide(const struct attention *a, const struct kernels *kernels,
                              float *scratch);

struct block {
    struct rows k, v;
    bool in_place; /* K and V lie where the caller has them */
};

/* Return the rows of `keys`, a set that is not empty, one row after the other. `keys` is a part of
 * the block that begins at key `first`. No other row is read, except that a tile of K is read as a
 * whole. attnkit_block returns K and V, and attnkit_block_copy returns copies of K and V.
 * attnkit_rows returns K if `c` is K, else V. All three functions may write copies of the rows to
 * `wide`. */
struct block attnkit_block(const struct attention *a, const struct kernels *kernels, int64_t batch,
                           int64_t kv_head, int64_t first, struct key_set keys, struct wide wide);
struct block attnkit_block_copy(const struct attention *a, const struct kernels *kernels,
                                int64_t batch, int64_t kv_head, int64_t first, struct key_set keys,
                                struct wide wide);
struct rows attnkit_rows(const struct attention *a, const struct kernels *kernels,
                         const struct cache *c, int64_t batch, int64_t kv_head, int64_t first,
                         struct key_set keys, float *wide);

/* Returns whether q and K can be multiplied in pairs: the call has no groups of products, q and K
 * are bf16, K lies in rows, and the kernels have a unit for pairs. */
static inline bool has_pairs(const struct attention *a, const struct kernels *kernels)
{
    return kernels->pairs && !is_grouped(a) && a->q_type == TYPE_BF16 && a->k.type == TYPE_BF16 &&
           !a->k.tiled;
}

/* Returns rows of K as attnkit_rows does, but as words of pairs in `wide`. Sets *least to the least
 * magnitude (see kernels.h) of the elements of these rows. */
struct rows attnkit_pairs_of_k(const struct attention *a, const struct kernels *kernels,
                               int64_t batch, int64_t kv_head, int64_t first, struct key_set keys,
                               float *wide, uint32_t *least);

/* Returns the number of floats of struct wide for a row of K. Words of K may take fewer floats.
 * Without integers, a panel of q also has this number of floats for each lane. */
static inline int64_t wide_dim(const struct attention *a)
{
    return is_grouped(a) ? whole_quads(a->head_dim) : a->head_dim;
}

/* Returns K and V of `keys`, which are a part of the block at key `first`, as words of struct
 * grouped_kernels in `wide`. Row i of K has the words of key i. The words of group i of V begin at
 * row i * (GROUP_PRODUCTS / kernels->grouped->elements). Keys, rows and groups are counted from the
 * beginning of the block. For K and for V, words are written only from the beginning of the group
 * with the first of `keys` to the end of the quad (QUAD_ELEMENTS keys) with the last of `keys`. In
 * this range, keys that are not in `keys` have words of 0. */
struct block attnkit_grouped_block(const struct attention *a, const struct kernels *kernels,
                                   int64_t batch, int64_t kv_head, int64_t first,
                                   struct key_set keys, struct wide wide);

/* Returns K and V of `keys`, which are a part of the block at key `first`, as words in `wide`, in
 * the order of the keys. struct integer_panel_kernels describes these words. The words of K lie at
 * one stride. Words of V have no stride, because a word has several keys. */
struct block attnkit_integer_block(const struct attention *a, const struct kernels *kernels,
                                   int64_t batch, int64_t kv_head, int64_t first,
                                   struct key_set keys, struct wide wide);

/* The keys first .. end - 1 of a head. A function that takes a range as a block ignores the keys
 * after the first KEY_BLOCK keys of the range. The range is empty if end <= first. */
struct key_range {
    int64_t batch, kv_head, first, end;
};

/* The addresses of rows, and for TYPE_I8 the addresses of their scales. */
struct row_list {
    const char *row[KEY_BLOCK];
    const float *scales[KEY_BLOCK];
};

/* The rows whose pages of memory have been prefetched most recently. `first` is their first key.
 * `row` is the address of this key's row, or NULL if no pages have been prefetched. */
struct touched {
    int64_t first;
    const char *row;
};

/* The addresses of the rows of a block. One list of K is for this block, the other list of K for
 * the next block. Each call of attnkit_point_to_rows swaps the two lists. If some keys are not
 * seen, the tile takes seen_k and seen_v in place of the lists of all keys. `wide` has converted
 * copies of the rows that a decode tile cannot read. If turns > 1, `turns` heads lie side by side.
 * If possible, each head then prefetches its part of the next block of all these heads
 * (attnkit_point_to_rows).
 */
struct row_room {
    struct row_list k[2], v;
    struct row_list seen_k, seen_v;
    const char *part_v[KEY_BLOCK]; /* the part of V that this head prefetches */
    int next;                      /* which of the two lists in k is for the next block */
    int turn, turns; /* this head's number among the heads that prefetch together, and the number of
                      * these heads; 0 and 1 if each head prefetches by itself */
    struct key_range known; /* the keys whose rows are in k[next], or none */
    struct touched touched_k, touched_v;
    struct wide wide;
    const float *zeros; /* a row of V with zeros */
};

/* attnkit_row_floats returns how many floats of scratch a struct row_room needs. The number may be
 * 0. attnkit_begin_rows sets up the struct, which the walks of a call share. */
int64_t attnkit_row_floats(const struct attention *a);
void attnkit_begin_rows(const struct attention *a, float *scratch, struct row_room *room);

/* Points `block` to the rows of the keys that are in `keys` and in `seen`. `keys` is within one
 * block, and `seen` counts keys from keys.first. No row of another key is read, except in tiles of
 * K, which are read as a whole.
 *
 * If block->far, also points to the rows to prefetch: V of the block and K of `next`. Rows of
 * `next` that a tile cannot read in place are prefetched here instead. If several heads prefetch
 * together (room->turns > 1), `next` is a range of keys of the first of these heads. If this range
 * is as long as `keys` and its keys lie in order, the heads share K and V of `next`, and the rows
 * to prefetch are only this head's part.
 *
 * If K is tiled, keys.first must begin a tile, and block->k gets a tile for each TILE_KEYS keys
 * from keys.first on. A tile without a seen key is replaced by a tile with a seen key. With tiled
 * K, block->v has a row of zeros for each key that is not seen. */
void attnkit_point_to_rows(const struct attention *a, const struct kernels *kernels,
                           struct key_range keys, struct key_set seen, struct key_range next,
                           struct row_room *room, struct decode_block *block);

#endif
