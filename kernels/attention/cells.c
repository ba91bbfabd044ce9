/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the cell of each key from the key indices of all cells. One pass over the indices of a
 * batch entry finds the smallest and the largest index. A second pass writes the number of each
 * cell to the table, at the place of the cell's key. In the second pass an empty cell costs only a
 * comparison. If several sequences share a cache, most cells are empty for each sequence.
 */
#include "kernels/attention/cells.h"

#include <string.h>

enum { CACHE_LINE = 64 };

int64_t attnkit_most_keys(const struct attention *a)
{
    const int64_t keys = has_cells(a) ? MOST_SPREAD * a->kv_len + CHUNK_KEYS : a->kv_len;
    const int64_t chunks = keys / CHUNK_KEYS + (keys % CHUNK_KEYS > 0);
    return chunks * CHUNK_KEYS;
}

/* The number of bytes of each part of a table. The parts lie in this order. */
struct parts {
    int64_t spans, blocks, cells;
};

/* Sets the sizes of the parts. Returns whether the size of the spans overflows. The sizes of the
 * blocks and cells cannot overflow, because kv_len is below 2^31. */
static bool measure(const struct attention *a, struct parts *parts)
{
    const int64_t keys = attnkit_most_keys(a);
    parts->blocks = keys / KEY_BLOCK * (int64_t)sizeof(struct cell_block);
    parts->cells = keys * (int64_t)sizeof(int32_t);
    return __builtin_mul_overflow(a->batch, (int64_t)sizeof(struct key_span), &parts->spans);
}

size_t attnkit_cell_bytes(const struct attention *a)
{
    struct parts parts;
    int64_t bytes;
    if (!has_cells(a))
        return 0;
    if (measure(a, &parts) ||
        __builtin_add_overflow(parts.spans, parts.blocks + parts.cells, &bytes) ||
        __builtin_add_overflow(bytes, (int64_t)sizeof(struct cell_table) + CACHE_LINE, &bytes))
        return SIZE_MAX;
    return (size_t)bytes / CACHE_LINE * CACHE_LINE;
}

struct cell_table *attnkit_begin_cells(const struct attention *a, char *memory)
{
    struct cell_table *const table = (struct cell_table *)(void *)memory;
    struct parts parts;
    (void)measure(a, &parts); /* attnkit_cell_bytes has checked that no number overflows */
    memory += sizeof *table;
    table->spans = (struct key_span *)(void *)memory;
    table->blocks = (struct cell_block *)(void *)(memory + parts.spans);
    table->cell = (int32_t *)(void *)(memory + parts.spans + parts.blocks);
    table->batch = -1;
    return table;
}

/* Returns the number of cells of a batch entry that may have a key. */
static int64_t used_cells(const struct attention *a, int64_t batch)
{
    return a->kv_lens.data ? int_at(a->kv_lens, batch) : a->kv_len;
}

/* Returns the key indices of a batch entry. */
static struct ints indices_of(const struct attention *a, int64_t batch)
{
    const struct ints all = a->cells.index;
    const int64_t first = batch * a->cells.stride * int_bytes(all);
    return (struct ints){(const char *)all.data + first, all.narrow};
}

/* Returns the range of indices. The caller passes a constant as `indices.narrow`. Compared as
 * unsigned numbers, the -1 of an empty cell is larger than every index, so r.smallest is -1 only if
 * all cells are empty. */
static inline struct index_range range_of(struct ints indices, int64_t cells)
{
    struct index_range r = {INT64_MAX, 0, -1};
    uint64_t smallest = UINT64_MAX;
    for (int64_t cell = 0; cell < cells; cell++) {
        const int64_t index = int_at(indices, cell);
        r.least = index < r.least ? index : r.least;
        r.largest = index > r.largest ? index : r.largest;
        smallest = (uint64_t)index < smallest ? (uint64_t)index : smallest;
    }
    r.smallest = (int64_t)smallest;
    return r;
}

/* Returns the range of indices of 32 bits. The loop compares integers of 32 bits, because a vector
 * holds twice as many of them as of integers of 64 bits. */
static struct index_range narrow_range_of(const int32_t *indices, int64_t cells)
{
    int32_t least = INT32_MAX, largest = -1;
    uint32_t smallest = UINT32_MAX;
    for (int64_t cell = 0; cell < cells; cell++) {
        const int32_t index = indices[cell];
        least = index < least ? index : least;
        largest = index > largest ? index : largest;
        smallest = (uint32_t)index < smallest ? (uint32_t)index : smallest;
    }
    return (struct index_range){least, smallest, largest};
}

struct index_range attnkit_index_range(const struct attention *a, int64_t batch)
{
    const struct ints indices = indices_of(a, batch);
    const int64_t cells = used_cells(a, batch);
    if (indices.narrow)
        return narrow_range_of(indices.data, cells);
    return range_of((struct ints){indices.data, false}, cells);
}

struct key_span attnkit_key_span(struct index_range range)
{
    if (range.largest < 0)
        return (struct key_span){0, 0};
    const int64_t first_key = range.smallest / CHUNK_KEYS * CHUNK_KEYS;
    return (struct key_span){first_key, range.largest + 1 - first_key};
}

/* Writes the number of each of the first `cells` cells to the table, at the place of the cell's
 * key. Leaves out empty cells. Returns the first cell whose key has a cell already, or -1. */
static inline int64_t place(struct ints indices, int64_t cells, int64_t first_key, int32_t *of_key)
{
    for (int64_t cell = 0; cell < cells; cell++) {
        const int64_t index = int_at(indices, cell);
        if (index < 0)
            continue;
        int32_t *const taken = of_key + (index - first_key);
        if (*taken >= 0)
            return cell;
        *taken = (int32_t)cell;
    }
    return -1;
}

static int cells_in_order(const int32_t *cell)
{
    int count = 0;
    while (count < KEY_BLOCK && cell[0] >= 0 && cell[count] == cell[0] + count)
        count++;
    return count;
}

static void describe(const struct kernels *kernels, const int32_t *cell, struct cell_block *block)
{
    uint64_t empty[KEY_BLOCK / 64];
    kernels->same_ids(cell, -1, empty);
    block->there = (struct key_set){{~empty[0], ~empty[1]}};
    block->in_order = cells_in_order(cell);
}

int64_t attnkit_list_cells(const struct attention *a, const struct kernels *kernels, int64_t batch)
{
    struct cell_table *const t = a->cells.table;
    const struct ints indices = indices_of(a, batch);
    const struct key_span span = t->spans[batch];
    const int64_t cells = used_cells(a, batch),
                  blocks = span.keys / KEY_BLOCK + (span.keys % KEY_BLOCK > 0);
    memset(t->cell, 0xff, (size_t)(blocks * KEY_BLOCK) * sizeof *t->cell);
    const int64_t twice =
        indices.narrow ? place((struct ints){indices.data, true}, cells, span.first_key, t->cell)
                       : place((struct ints){indices.data, false}, cells, span.first_key, t->cell);
    for (int64_t i = 0; twice < 0 && i < blocks; i++)
        describe(kernels, t->cell + i * KEY_BLOCK, t->blocks + i);
    t->batch = twice < 0 ? batch : -1;
    return twice;
}

void attnkit_take_cells(const struct attention *a, const struct kernels *kernels, int64_t batch)
{
    if (has_cells(a) && a->cells.table->batch != batch)
        (void)attnkit_list_cells(a, kernels,
                                 batch); /* bind_cells.c has checked that no index occurs twice */
}
