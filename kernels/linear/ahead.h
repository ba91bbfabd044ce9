/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking the second cache for the tiles of a matrix that a product needs next, line by line and
 * evenly over its work: requests that come at once wait for each other, and the work for them.
 */
#ifndef ATTNKIT_AHEAD_H
#define ATTNKIT_AHEAD_H

#include "kernels/kernels.h"

enum {
    PACE = 16, /* inputs of a register tile after which more is asked for, a multiple of 4 */
    CACHE_LINE = 64,
    LINE_IS_DUE = 1 << 16,
};

/* Inputs of a tile of the matrix in a line of the cache. */
static inline int line_inputs(const enum type type)
{
    return type == TYPE_F32 ? 1 : type == TYPE_Q8_0 ? 4 : 2;
}

/* The tile that is being asked for, and its next line; what is due, in 1/65536 of a line. */
struct requests {
    const char *tile, *line;
    ptrdiff_t tile_step;
    int64_t tile_bytes;
    int64_t due, due_each_time;
};

/* So that `times` calls of prefetch_matrix ask for all lines, but for the last one where that does
 * not come out even, and for none beyond. */
static inline struct requests requests_of(const struct next_tiles *ahead, int64_t times)
{
    const int64_t lines = ahead->tiles * ((ahead->tile_bytes + CACHE_LINE - 1) / CACHE_LINE);
    return (struct requests){.tile = ahead->first,
                             .line = ahead->first,
                             .tile_step = ahead->tile_step,
                             .tile_bytes = ahead->tile_bytes,
                             .due_each_time = times > 0 ? lines * LINE_IS_DUE / times : 0};
}

/* Every PACE inputs of register tiles of so many rows and outputs. */
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
