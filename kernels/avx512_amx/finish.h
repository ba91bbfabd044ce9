/* SPDX-License-Identifier: Apache-2.0
 *
 * Finishes sums. TILESTORED has written the sums from the tile registers to memory. Scores are
 * multiplied by a factor. Weighted V is added to o. A line of sums takes 4 to 6 vector
 * instructions. grouped.c includes this file. It finishes the lines of one rectangle while the tile
 * registers compute the next rectangle.
 */
#ifndef ATTNKIT_AVX512_AMX_FINISH_H
#define ATTNKIT_AVX512_AMX_FINISH_H

#include "kernels/avx512/avx512.h"
#include "kernels/avx512_amx/tile_registers.h"

/* The purpose of sums. SCORES: the sums are scores. FIRST_V: the sums are weighted V, and the old o
 * counts as 0. MORE_V: the sums are weighted V, and the old o is kept, times rescale. */
enum purpose { SCORES, FIRST_V, MORE_V };

enum {
    SUMS_BY_LINE = 2 * TILE_FLOATS, /* floats between two lines of sums */
    RECTANGLE = 2 * TILE_LINES * SUMS_BY_LINE,
    LINES_BESIDE = 2, /* lines that are finished beside a TDPBF16PS */
};

/* A rectangle of sums: `lines` lines from `line` on, and `width` lanes from `lane` on. */
struct rectangle {
    int64_t line;
    int lines; /* 2 * TILE_LINES, or at most TILE_LINES */
    int lane, width;
    float *sums; /* [lines][SUMS_BY_LINE] */
};

/* Where finished sums go, and the factors. `factor`, `rescale` and `most` have a number for each
 * lane. */
struct results {
    enum purpose purpose;
    float *to;                     /* s or o: [lines][lanes] */
    const float *factor, *rescale; /* factor: the scale of SCORES, or the largest weights; rescale:
                                      only for MORE_V */
    float *most;                   /* SCORES: the maxima so far */
    int lanes;
};

/* The unfinished lines of a rectangle, and their factors. The compiler keeps the struct in
 * registers. */
struct finish {
    const float *sums;
    float *to;
    int lanes, lines;
    floats factor[2], rescale[2], most[2];
};

static inline __attribute__((always_inline)) struct finish begin_finish(const struct rectangle *r,
                                                                        const struct results *to,
                                                                        const enum purpose purpose,
                                                                        const int vectors)
{
    struct finish f;
    f.sums = r->sums;
    f.to = to->to + r->line * to->lanes + r->lane;
    f.lanes = to->lanes;
    f.lines = r->lines;
    for (int j = 0; j < vectors; j++) {
        const int lane = r->lane + j * VECTOR;
        f.factor[j] = load_aligned(to->factor + lane);
        if (purpose == MORE_V)
            f.rescale[j] = load_aligned(to->rescale + lane);
        if (purpose == SCORES)
            f.most[j] = load_aligned(to->most + lane);
    }
    return f;
}

static inline __attribute__((always_inline)) void
finish_line(struct finish *f, const enum purpose purpose, const int vectors)
{
    for (int j = 0; j < vectors; j++) {
        const floats sum = load_aligned(f->sums + j * VECTOR);
        float *const to = f->to + j * VECTOR;
        if (purpose == SCORES) {
            const floats t = sum * f->factor[j];
            f->most[j] = max_without_nan(t, f->most[j]);
            store_aligned(to, t);
        } else {
            floats moved = broadcast(0.0f);
            if (purpose == MORE_V)
                moved = load_aligned(to) * f->rescale[j];
            store_aligned(to, fma_v(sum, f->factor[j], moved));
        }
    }
    f->sums += SUMS_BY_LINE;
    f->to += f->lanes;
    f->lines--;
}

/* Finishes LINES_BESIDE lines, if any are left. The rectangle has 2 vectors of lanes, and 2 *
 * TILE_LINES lines. */
static inline __attribute__((always_inline)) void finish_some(struct finish *f,
                                                              const enum purpose purpose)
{
    if (f->lines == 0)
        return;
    for (int i = 0; i < LINES_BESIDE; i++)
        finish_line(f, purpose, 2);
}

static inline __attribute__((always_inline)) void
end_finish(struct finish *f, const struct rectangle *r, const struct results *to,
           const enum purpose purpose, const int vectors)
{
    while (f->lines > 0)
        finish_line(f, purpose, vectors);
    for (int j = 0; purpose == SCORES && j < vectors; j++)
        store_aligned(to->most + r->lane + j * VECTOR, f->most[j]);
}

static inline __attribute__((always_inline)) void
finish_for_purpose(const struct rectangle *r, const struct results *to, const enum purpose purpose)
{
    if (r->width > VECTOR) {
        struct finish f = begin_finish(r, to, purpose, 2);
        end_finish(&f, r, to, purpose, 2);
    } else {
        struct finish f = begin_finish(r, to, purpose, 1);
        end_finish(&f, r, to, purpose, 1);
    }
}

/* Finishes the sums of a rectangle. */
static __attribute__((noinline)) void finish_rectangle(const struct rectangle *r,
                                                       const struct results *to)
{
    switch (to->purpose) {
    case SCORES:
        finish_for_purpose(r, to, SCORES);
        break;
    case FIRST_V:
        finish_for_purpose(r, to, FIRST_V);
        break;
    default:
        finish_for_purpose(r, to, MORE_V);
    }
}

#endif
