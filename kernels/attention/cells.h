/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache whose cells hold keys in any order, as one that goes round: the caller says of each cell
 * the absolute index of its key, or that it is empty. The loops walk over the keys in the order of
 * their index, from the edge of a chunk on, and find cells in a table, which each thread has for
 * the batch entry that it is at work on. Listing an entry takes some cycles for each cell.
 */
#ifndef ATTNKIT_CELLS_H
#define ATTNKIT_CELLS_H

#include "kernels/attention/attention.h"
#include "kernels/attention/key_set.h"

enum { MOST_SPREAD = 4 }; /* indices of an entry are at most so many times kv_len apart */

/* The keys of a batch entry: those from first_key on, of which some may have no cell. */
struct key_span {
    int64_t first_key; /* absolute, at the edge of the chunk of the first key that has a cell */
    int64_t keys;      /* up to the last one that has; 0: there is none */
};

/* A block of an entry's keys. */
struct cell_block {
    struct key_set there; /* keys that have a cell */
    int in_order;         /* keys from the first one on whose cells follow one another */
};

struct cell_table {
    struct key_span *spans;    /* of each batch entry */
    int64_t batch;             /* whose keys are listed; -1: nobody's yet */
    struct cell_block *blocks; /* from first_key of the entry on */
    int32_t *cell;             /* of each key of these blocks; -1: it has none */
};

static inline bool has_cells(const struct attention *a)
{
    return a->cells.index.data;
}

/* The absolute index of key 0 of a batch entry. */
static inline int64_t first_key_of(const struct attention *a, int64_t batch)
{
    return has_cells(a) ? a->cells.table->spans[batch].first_key : a->first_key;
}

/* The cells of the keys of the listed entry, from key `first` on, counted from key 0. */
static inline const int32_t *cells_from(const struct attention *a, int64_t first)
{
    return a->cells.table->cell + first;
}

static inline const struct cell_block *cell_block_of(const struct attention *a, int64_t first)
{
    return a->cells.table->blocks + first / KEY_BLOCK;
}

/* Whether each of `count` keys of the block that begins at key `block` has a cell. */
static inline bool all_have_cells(const struct attention *a, int64_t block, int count)
{
    const struct key_set all = key_set_of(0, count);
    return !has_cells(a) || is_equal(intersection_of(cell_block_of(a, block)->there, all), all);
}

/* Whether no key of a block has a cell, of a call with cells. */
static inline bool has_no_cells(const struct attention *a, int64_t block)
{
    return has_cells(a) && is_empty(cell_block_of(a, block)->there);
}

/* Whether the cells of `count` keys from key `first` on, all of one block, follow one another. */
static inline bool are_in_order(const struct attention *a, int64_t first, int count)
{
    return !has_cells(a) || first % KEY_BLOCK + count <= cell_block_of(a, first)->in_order;
}

/* The most keys that an entry may have between first_key and its last one, whole chunks. */
int64_t attnkit_most_keys(const struct attention *a);

/* Bytes of a table, a multiple of a cache line, or SIZE_MAX where they are beyond 63 bits; 0 where
 * there are no cells. And a table in so much memory, aligned to a cache line, with nobody's keys
 * and room for spans. */
size_t attnkit_cell_bytes(const struct attention *a);
struct cell_table *attnkit_begin_cells(const struct attention *a, char *memory);

/* The least number of an entry's cells, the smallest and the largest index; the largest is -1
 * where all cells are empty. */
struct index_range {
    int64_t least, smallest, largest;
};

struct index_range attnkit_index_range(const struct attention *a, int64_t batch);

/* The keys of an entry whose indices are in this range. */
struct key_span attnkit_key_span(struct index_range range);

/* Lists the keys of an entry, whose span is there. Returns the first cell with the index of an
 * earlier one, or -1: then the table has meaning. */
int64_t attnkit_list_cells(const struct attention *a, const struct kernels *kernels, int64_t batch);

/* The same for a thread that goes on with an entry, unless its keys are listed already. */
void attnkit_take_cells(const struct attention *a, const struct kernels *kernels, int64_t batch);

#endif
