/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs that the parts of the decode tile share, and functions that prefetch in the course of
 * other work. decode.c calls the parts in order.
 */
#ifndef ATTNKIT_AVX512_DECODE_H
#define ATTNKIT_AVX512_DECODE_H

#include "kernels/avx512/avx512.h"
#include "kernels/vectors/decode/panel.h"

enum {
    MAX_COLUMNS = 4, /* vectors of value columns in a tile of weighted V */
};

/* Returns whether the tiles of a type can compute a block in turns. */
static inline bool takes_turns(enum type type)
{
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
}

/* Rows to prefetch in the course of other work. The struct is used every few dozen cycles and has
 * to stay in registers. Therefore the struct is a local variable. A struct without rows needs no
 * special case. */
struct ahead {
    const char *const *row, *const *end; /* rows not yet begun */
    const char *at, *row_end;            /* the rest of the current row */
    bool apart;        /* the rows are of a 16-bit type and do not follow each other directly, and K
                        * and V of a head are larger than L2 */
    int64_t bytes;     /* bytes of each row */
    int64_t due, pace; /* in 256ths of a cache line; due: to prefetch now; pace: added to `due` by
                        * each call */
};

/* Spreads the prefetches of the first `count` rows of `row` over `times` calls of prefetch_ahead.
 * `times` is not 0. `rows` has the type and the size of the rows. If there are no gaps between the
 * rows, they count as one row. */
static inline struct ahead ask_for(const struct panel *panel, const struct key_rows *rows,
                                   const char *const *row, int count, int64_t times)
{
    const int64_t line = LINE * (int64_t)sizeof(float), bytes = bytes_of(rows->type, rows->dim);
    const bool half = rows->type == TYPE_F16 || rows->type == TYPE_BF16;
    struct ahead ahead = {.row = row, .end = row + count, .bytes = bytes};
    if (count == 0)
        return ahead;
    ahead.apart = panel->block->large && half && count > 1 && row[1] != row[0] + bytes;
    if (row[count - 1] == row[0] + (count - 1) * bytes) {
        ahead.end = row + 1;
        ahead.bytes = count * bytes;
    }
    const int64_t lines = (ahead.end - row) * ((ahead.bytes + line - 1) / line);
    ahead.pace = (256 * lines + times - 1) / times;
    return ahead;
}

/* Spreads the prefetches of a turn over `times` calls of prefetch_ahead. */
static inline struct ahead ask_in_turn(const struct turn *turn, int64_t times)
{
    const int64_t line = LINE * (int64_t)sizeof(float);
    const int64_t lines = turn->pieces * ((turn->piece_bytes + line - 1) / line);
    return (struct ahead){.row = turn->ahead,
                          .end = turn->ahead + turn->pieces,
                          .bytes = turn->piece_bytes,
                          .pace = (256 * lines + times - 1) / times};
}

/* Prefetches the next cache lines into L2, or into L1 if `to_first`. The lines need not exist,
 * because a prefetch never faults. Prefetches are spread evenly, because prefetches under way delay
 * loads from L2. The function is always inlined, because gcc drops calls of a function that does
 * nothing but prefetch. */
static inline __attribute__((always_inline)) void prefetch_ahead(struct ahead *ahead,
                                                                 const bool to_first)
{
    for (ahead->due += ahead->pace; ahead->due > 0; ahead->due -= 256) {
        if (__builtin_expect(ahead->at >= ahead->row_end, false)) {
            if (ahead->row == ahead->end) {
                ahead->due = ahead->pace = 0;
                return;
            }
            ahead->at = *ahead->row++;
            ahead->row_end = ahead->at + ahead->bytes;
        }
        /* The hint is part of the instruction, so clang wants a literal. */
        if (to_first)
            _mm_prefetch(ahead->at, _MM_HINT_T0);
        else
            _mm_prefetch(ahead->at, _MM_HINT_T1);
        ahead->at += LINE * sizeof(float);
    }
}

/* Returns whether to prefetch the rows of V in `ahead` into L1. `type` is the type of K. With
 * prefetches into L1, rows that are `apart` take 0.9 of the time that they take with prefetches
 * into L2. All other rows take longer with prefetches into L1. */
static inline bool gains_by_first(const enum type type, const struct ahead *ahead)
{
    return (type == TYPE_F16 || type == TYPE_BF16) && ahead->apart;
}

/* The scores s[r][key], not yet multiplied by scale_log2, and the memory that the softmax
 * prefetches: in a turn a part of V, else the rows of V that are still to be prefetched. The number
 * of keys is panel->most, rounded up to whole vectors. */
struct scores {
    _Alignas(64) float s[PANEL_ROWS][KEY_BLOCK];
    struct ahead v;
    float scale_log2;
};

/* Returns the rows of V to prefetch. The code of the scores calls prefetch_ahead `times` times.
 * Then softmax calls prefetch_ahead once for each vector of keys. */
static inline struct ahead v_ahead(const struct panel *panel, int64_t times)
{
    const struct key_rows *const v = &panel->block->v;
    return ask_for(panel, v, panel->block->with_k, panel->far ? panel->most : 0,
                   times + (panel->most + VECTOR - 1) / VECTOR);
}

/* Returns x with its 16-bit number i replaced by `half`. With clang, the index of _mm_insert_epi16
 * must be a literal. With gcc and sanitizers it must be one, too, because i becomes a constant too
 * late. */
static inline __attribute__((always_inline)) __m128i with_half(__m128i x, short half, const int i)
{
    switch (i) {
    case 0:
        return _mm_insert_epi16(x, half, 0);
    case 1:
        return _mm_insert_epi16(x, half, 1);
    case 2:
        return _mm_insert_epi16(x, half, 2);
    case 3:
        return _mm_insert_epi16(x, half, 3);
    case 4:
        return _mm_insert_epi16(x, half, 4);
    case 5:
        return _mm_insert_epi16(x, half, 5);
    case 6:
        return _mm_insert_epi16(x, half, 6);
    default:
        return _mm_insert_epi16(x, half, 7);
    }
}

/* Returns scale `at` of VECTOR rows of TYPE_I8. */
static inline __m512 scales_at(const float *const *scales, int64_t at)
{
    return _mm512_setr_ps(scales[0][at], scales[1][at], scales[2][at], scales[3][at], scales[4][at],
                          scales[5][at], scales[6][at], scales[7][at], scales[8][at], scales[9][at],
                          scales[10][at], scales[11][at], scales[12][at], scales[13][at],
                          scales[14][at], scales[15][at]);
}

void attnkit_avx512_decode_tiled_k(const struct panel *panel, struct scores *scores);
void attnkit_avx512_decode_k(const struct panel *panel, struct scores *scores);
void attnkit_avx512_decode_v(const struct panel *panel, const struct weights *weights);

#endif
