/* SPDX-License-Identifier: Apache-2.0
 *
 * With these functions, a tile that computes a product prefetches into L2 the matrix elements that
 * are needed after the product. The prefetches are spread evenly over the work of the product. If
 * all prefetches came at once, they would wait for each other, and the work would wait for them.
 */
#ifndef ATTNKIT_AHEAD_H
#define ATTNKIT_AHEAD_H

#include "kernels/kernels.h"

enum {
    PACE = 16, /* inputs, or pairs of inputs, that a register tile multiplies between two calls of
                * prefetch_matrix; a multiple of 4 */
    CACHE_LINE = 64,
    LINE_IS_DUE = 1 << 16,
};

/* Returns how many inputs of a matrix tile one cache line holds. The scales of TYPE_Q8_0 do not
 * count. */
static inline int line_inputs(const enum type type)
{
    return type == TYPE_F32 ? 1 : type == TYPE_Q8_0 ? 4 : 2;
}

/* The progress of prefetching: the tile and its next cache line. `due` is the amount to prefetch
 * now, in 1/65536 of a cache line. Each call of prefetch_matrix adds due_each_time to `due`. */
struct requests {
    const char *tile, *line;
    ptrdiff_t tile_step;
    int64_t tile_bytes;
    int64_t due, due_each_time;
};

/* Returns requests that spread the cache lines of the tiles evenly over `times` calls of
 * prefetch_matrix. The last line may be left out, because due_each_time is rounded down. No line
 * after the tiles is prefetched. */
static inline struct requests requests_of(const struct next_tiles *ahead, int64_t times)
{
    const int64_t lines = ahead->tiles * ((ahead->tile_bytes + CACHE_LINE - 1) / CACHE_LINE);
    return (struct requests){.tile = ahead->first,
                             .line = ahead->first,
                             .tile_step = ahead->tile_step,
                             .tile_bytes = ahead->tile_bytes,
                             .due_each_time = times > 0 ? lines * LINE_IS_DUE / times : 0};
}

/* Returns the requests for a product that calls prefetch_matrix every PACE inputs of each register
 * tile. A register tile has tile_rows rows and tile_outs outputs. */
static inline struct requests product_requests(const struct product *p, int tile_rows,
                                               int64_t tile_outs)
{
    int64_t row_tiles = 0;
    for (int i = 0, rows; i < p->rows; i += rows) {
        rows = tile_height(p->rows - i, ROW_GROUP);
        row_tiles += (rows - 1) / tile_rows + 1;
    }
    return requests_of(&p->ahead, row_tiles * ((p->outs - 1) / tile_outs + 1) * (p->dim / PACE));
}

static inline __attribute__((always_inline)) void prefetch_matrix(struct requests *r)
{
    r->due += r->due_each_time;
    for (; r->due >= LINE_IS_DUE; r->due -= LINE_IS_DUE) {
        if (r->line - r->tile >= r->tile_bytes)
            r->line = r->tile += r->tile_step;
        __builtin_prefetch(r->line, 0, 2);
        r->line += CACHE_LINE;
    }
}

#endif
