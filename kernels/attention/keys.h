/* SPDX-License-Identifier: Apache-2.0
 *
 * The addresses of rows. A struct place says where a row of Q, of the output and of the log-sum-exp
 * lies. A place is computed from the number of the row in its KV head (see attention.h). Rows of K
 * and V, and tiles of K, are found by the index of the key.
 */
#ifndef ATTNKIT_KEYS_H
#define ATTNKIT_KEYS_H

#include "kernels/attention/cells.h"

/* The coordinates of a query row. The first row of some consecutive rows gets its coordinates by
 * divisions, the other rows by next_place without divisions. */
struct place {
    int64_t batch, group_head, head, position; /* group_head: the first head of the group;
                                                * position: number of the row in its head, from 0 */
    int64_t outer, row; /* indices in the tensors: batch entry and position; if rows are packed, 0
                         * and the index among all packed rows */
};

static inline struct place place_of_row(const struct attention *a, int64_t batch, int64_t kv_head,
                                        int64_t row)
{
    const int64_t group_head = kv_head * a->group, position = row / a->group;
    return (struct place){
        .batch = batch,
        .group_head = group_head,
        .head = group_head + row % a->group,
        .position = position,
        .outer = a->q_starts.data ? 0 : batch,
        .row = a->q_starts.data ? int_at(a->q_starts, batch) + position : position,
    };
}

static inline struct place next_place(const struct attention *a, struct place p)
{
    p.head++;
    if (p.head == p.group_head + a->group) {
        p.head = p.group_head;
        p.position++;
        p.row++;
    }
    return p;
}

static inline ptrdiff_t place_offset(struct strides s, struct place p)
{
    return p.outer * s.batch + p.head * s.head + p.row * s.row;
}

static inline const void *q_row(const struct attention *a, struct place p)
{
    return a->q + place_offset(a->q_stride, p);
}

static inline void *out_row(const struct attention *a, struct place p)
{
    return a->out + place_offset(a->out_stride, p);
}

static inline float *lse_row(const struct attention *a, struct place p)
{
    return (float *)(a->lse + place_offset(a->lse_stride, p));
}

/* Returns where the maximum, the sum of weights and the weighted sum of V of a query row lie in the
 * caller's totals. */
static inline struct total total_row(const struct attention *a, struct total all, struct place p)
{
    const int64_t line = (p.outer * a->kv_heads * a->group + p.head) * a->q_room + p.row;
    return (struct total){all.row_max + line, all.row_sum + line, all.out + line * a->value_dim};
}

/* Returns a row of K or V and the scales of the row. If K is tiled, at.row is the number of a tile,
 * and the result is a tile and the scales of the tile. */
static inline struct key_row key_row_at(const struct cache *c, struct index at, int64_t kv_head)
{
    const struct strides s = c->stride, scale = c->scale_stride;
    const char *scales = c->scales;
    if (scales)
        scales += at.outer * scale.batch + kv_head * scale.head + at.row * scale.row;
    return (struct key_row){c->first + at.outer * s.batch + kv_head * s.head + at.row * s.row,
                            (const float *)scales};
}

/* Returns the row of a key, or the tile that has the row. With cells, the key must be in the table
 * of cells and have a cell. */
static inline struct key_row key_row(const struct attention *a, const struct cache *c,
                                     int64_t batch, int64_t kv_head, int64_t key)
{
    struct index at = row_index(&a->pages, batch, key);
    if (a->kv_starts.data)
        at = (struct index){0, int_at(a->kv_starts, batch) + key};
    if (has_cells(a))
        at.row = *cells_from(a, key);
    if (c->tiled)
        at.row /= TILE_KEYS;
    return key_row_at(c, at, kv_head);
}

#endif
