/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache whose cells hold keys in any order, such as a ring buffer. For each cell the caller gives
 * the absolute index of its key, or says that the cell is empty. The loops walk over the keys in
 * the order of their index. A walk begins where the chunk of the first key begins. A table says
 * which cell each key has. Each thread has its own table, with the keys of the batch entry that the
 * thread works on. Filling the table takes some cycles for each cell.
 */
#ifndef ATTNKIT_CELLS_H
#define ATTNKIT_CELLS_H

#include "kernels/attention/attention.h"
#include "kernels/attention/key_set.h"

enum { MOST_SPREAD = 4 }; /* indices of a batch entry are at most MOST_SPREAD * kv_len apart */

/* The keys of a batch entry, from first_key to the last key with a cell. Some of these keys may
 * have no cell. */
struct key_span {
    int64_t first_key; /* absolute: where the chunk of the first key with a cell begins */
    int64_t keys;      /* number of these keys; 0: no key has a cell */
};

/* A block of the keys of a batch entry. */
struct cell_block {
    struct key_set there; /* keys that have a cell */
    int in_order;         /* how many keys, from the first key of the block on, have cells that
                           * follow one another */
};

struct cell_table {
    struct key_span *spans;    /* the keys of each batch entry */
    int64_t batch;             /* the batch entry whose keys are in the table; -1: none yet */
    struct cell_block *blocks; /* the blocks of this batch entry, from first_key on */
    int32_t *cell;             /* the cell of each key of these blocks; -1: no cell */
};

static inline bool has_cells(const struct attention *a)
{
    return a->cells.index.data;
}

/* Returns the absolute index of key 0 of a batch entry. */
static inline int64_t first_key_of(const struct attention *a, int64_t batch)
{
    return has_cells(a) ? a->cells.table->spans[batch].first_key : a->first_key;
}

/* Returns the cells of the keys in the table, from key `first` on. Key 0 is the key with the index
 * first_key. */
static inline const int32_t *cells_from(const struct attention *a, int64_t first)
{
    return a->cells.table->cell + first;
}

static inline const struct cell_block *cell_block_of(const struct attention *a, int64_t first)
{
    return a->cells.table->blocks + first / KEY_BLOCK;
}

/* Returns whether the call has no cells, or each of the first `count` keys of the block at key
 * `block` has a cell. */
static inline bool all_have_cells(const struct attention *a, int64_t block, int count)
{
    const struct key_set all = key_set_of(0, count);
    return !has_cells(a) || is_equal(intersection_of(cell_block_of(a, block)->there, all), all);
}

/* Returns whether the call has cells and no key of the block has a cell. */
static inline bool has_no_cells(const struct attention *a, int64_t block)
{
    return has_cells(a) && is_empty(cell_block_of(a, block)->there);
}

/* Keys `first` to first + count - 1 must be in one block. Returns whether the call has no cells, or
 * the cells of all keys from the beginning of this block to key first + count - 1 follow one
 * another. */
static inline bool are_in_order(const struct attention *a, int64_t first, int count)
{
    return !has_cells(a) || first % KEY_BLOCK + count <= cell_block_of(a, first)->in_order;
}

/* Returns the largest possible number of keys from first_key to the last key of a batch entry,
 * rounded up to whole chunks. */
int64_t attnkit_most_keys(const struct attention *a);

/* attnkit_cell_bytes returns the number of bytes of a table, rounded to whole cache lines. The
 * function returns 0 for a call without cells, and SIZE_MAX if the number exceeds 63 bits.
 * attnkit_begin_cells makes a table in memory of this size, which is aligned to a cache line. The
 * table has the keys of no batch entry yet, and its spans are not set. */
size_t attnkit_cell_bytes(const struct attention *a);
struct cell_table *attnkit_begin_cells(const struct attention *a, char *memory);

/* `least` is the smallest number in the key_index of a batch entry, where the -1 of an empty cell
 * counts, too. `smallest` and `largest` are the indices of the entry's first and last key. If all
 * cells are empty, `largest` is -1 and `smallest` has no meaning. */
struct index_range {
    int64_t least, smallest, largest;
};

struct index_range attnkit_index_range(const struct attention *a, int64_t batch);

/* Returns the span of the keys of a batch entry, from the range of their indices. */
struct key_span attnkit_key_span(struct index_range range);

/* Fills the table with the keys of a batch entry, whose span must be set. Returns -1, or the first
 * cell that has the index of an earlier cell. The table is valid only if the result is -1. */
int64_t attnkit_list_cells(const struct attention *a, const struct kernels *kernels, int64_t batch);

/* Fills the table with the keys of a batch entry whose key indices have been checked. Does nothing
 * if the table has these keys already, or if the call has no cells. */
void attnkit_take_cells(const struct attention *a, const struct kernels *kernels, int64_t batch);

#endif
