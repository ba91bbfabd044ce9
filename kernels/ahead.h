/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking the second cache for the tiles of a matrix that a product needs next, line by line and
 * evenly over its work: requests that come at once wait for each other, and the work for them.
 */
#ifndef ATTNKIT_AHEAD_H
#define ATTNKIT_AHEAD_H

#include "kernels.h"

enum { CACHE_LINE = 64, LINE_IS_DUE = 1 << 16 };

/* Where the next line is, and where those of its tile end; what is due, in 1/65536 of a line. */
struct requests {
    const char *line, *end;
    ptrdiff_t gap; /* bytes from there to the next tile */
    int64_t tile_bytes;
    int64_t due, due_each_time;
};

/* So that after `times` calls of ask_ahead all lines have been asked for, and none beyond. */
static inline struct requests requests_of(const struct product *p, int64_t times)
{
    const struct rows *const ahead = &p->ahead;
    const int64_t tiles = (p->outs - 1) / TILE_KEYS + 1;
    return (struct requests){.line = ahead->first,
                             .end = ahead->first + ahead->dim,
                             .gap = ahead->stride - ahead->dim,
                             .tile_bytes = ahead->dim,
                             .due_each_time =
                                 tiles * (ahead->dim / CACHE_LINE) * LINE_IS_DUE / times};
}

static inline __attribute__((always_inline)) void ask_ahead(struct requests *r)
{
    r->due += r->due_each_time;
    for (; r->due >= LINE_IS_DUE; r->due -= LINE_IS_DUE) {
        __builtin_prefetch(r->line, 0, 2);
        r->line += CACHE_LINE;
        if (r->line < r->end)
            continue;
        r->line += r->gap;
        r->end = r->line + r->tile_bytes;
    }
}

#endif
