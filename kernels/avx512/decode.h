/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the decode tile hand to each other: a panel of query rows, its scores and its
 * weights. decode.c has the order of things.
 */
#ifndef ATTNKIT_AVX512_DECODE_H
#define ATTNKIT_AVX512_DECODE_H

#include "avx512.h"

enum {
    PANEL_ROWS = 4,
    PIECE = 256,           /* bytes that are asked for at a time */
    NEAR_BYTES = 20 << 10, /* of a block that the first cache holds besides what is worked on */
    MAX_COLUMNS = 4,       /* vectors of value columns in a tile of weighted V */
};

/* Some query rows of a block. Filled in place, and only pointed to: copies of what has just been
 * stored in pieces would wait for it. */
struct panel {
    const struct decode_block *block;
    const float *q[PANEL_ROWS]; /* past `rows` the last one again */
    int32_t visible[PANEL_ROWS];
    int first;        /* row of the block */
    int rows;         /* <= PANEL_ROWS */
    int fewest, most; /* of visible */
    bool far;         /* K and V, for all panels but the first no more */
};

/* The scores s[r][key], not yet scaled, for whole vectors of keys up to panel->most. */
struct scores {
    _Alignas(64) float s[PANEL_ROWS][KEY_BLOCK];
};

/* Weights of a panel, those of its rows for a key next to each other, 0 from visible[r] on, and
 * what o is multiplied by. */
struct weights {
    _Alignas(64) float p[KEY_BLOCK][PANEL_ROWS];
    float rescale[PANEL_ROWS];
};

/* 3 rows are worked on as 4. */
static inline int computed_rows(const struct panel *panel)
{
    return panel->rows <= 2 ? panel->rows : PANEL_ROWS;
}

/* Rows to be asked for in the course of other work, of which each costs the same share. */
struct ahead {
    const struct key_row *row, *end;
    int64_t bytes; /* of each */
    int64_t cost, done;
    int64_t at; /* what of the next row has been asked for, of TYPE_F32 */
};

/* Asks for `bytes` at `from`, of a row of row_bytes, which need not exist: a prefetch never faults.
 * A block of bytes fits into the first cache, larger elements go into the second. Inlined always,
 * because gcc drops calls of a function that does nothing but prefetch. */
static inline __attribute__((always_inline)) void ask_for(const char *from, int64_t bytes,
                                                          int64_t row_bytes)
{
    const int64_t line = LINE * (int64_t)sizeof(float);
    if (row_bytes * KEY_BLOCK <= NEAR_BYTES)
        for (int64_t at = 0; at < bytes; at += line)
            _mm_prefetch(from + at, _MM_HINT_T0);
    else
        for (int64_t at = 0; at < bytes; at += line)
            _mm_prefetch(from + at, _MM_HINT_T1);
}

static inline __attribute__((always_inline)) void ask_for_piece(struct ahead *ahead)
{
    const int64_t left = ahead->bytes - ahead->at;
    ask_for(ahead->row->data + ahead->at, left < PIECE ? left : PIECE, ahead->bytes);
    ahead->at = left <= PIECE ? 0 : ahead->at + PIECE;
    ahead->row += left <= PIECE;
}

/* Work on K or V of this type. Rows of TYPE_F32 are asked for in pieces: more lines at a time keep
 * the loads waiting. */
static inline __attribute__((always_inline)) void work_on(const enum type type, struct ahead *ahead,
                                                          int64_t work)
{
    const int64_t pieces = (ahead->bytes + PIECE - 1) / PIECE;
    for (ahead->done += type == TYPE_F32 ? work * pieces : work; ahead->done >= ahead->cost;
         ahead->done -= ahead->cost)
        if (ahead->row < ahead->end) {
            if (type == TYPE_F32)
                ask_for_piece(ahead);
            else
                ask_for(ahead->row++->data, ahead->bytes, ahead->bytes);
        }
}

/* Where the VECTOR elements from `at` on have their scale: TYPE_I8 the index of it, TYPE_Q8_0 the
 * bytes to their block. */
static inline int64_t scale_place(const enum type type, int64_t group, int64_t at)
{
    if (type == TYPE_I8)
        return at / group;
    return type == TYPE_Q8_0 ? bytes_of(type, at / Q8_BLOCK * Q8_BLOCK) : 0;
}

static inline __attribute__((always_inline)) __m512
load_scale(const enum type type, const struct key_row *row, int64_t place)
{
    if (type == TYPE_I8)
        return _mm512_set1_ps(row->scales[place]);
    if (type != TYPE_Q8_0)
        return _mm512_set1_ps(1.0f);
    short bits;
    memcpy(&bits, row->data + place, sizeof bits);
    return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
}

/* VECTOR elements `at` on of a row, the first n of them as binary32, times their scale. */
static inline __attribute__((always_inline)) __m512 load_scaled(const enum type type,
                                                                const struct key_row *row,
                                                                int64_t at, int64_t n,
                                                                int64_t place, __m512 scale)
{
    if (type == TYPE_I8)
        return _mm512_mul_ps(load_as_f32(TYPE_I8, row->data, at, n), scale);
    if (type == TYPE_Q8_0)
        return _mm512_mul_ps(load_as_f32(TYPE_I8, row->data + place + 2, at % Q8_BLOCK, n), scale);
    return load_as_f32(type, row->data, at, n);
}

/* The rows of V that the scores ask for while they go through K. */
static inline struct ahead v_ahead(const struct panel *panel)
{
    const struct key_rows *const v = &panel->block->v;
    return (struct ahead){.row = v->row,
                          .end = v->row + panel->most,
                          .bytes = bytes_of(v->type, v->dim),
                          .cost = panel->block->k.dim};
}

void attnkit_avx512_decode_tiled_k(const struct panel *panel, struct scores *scores);
void attnkit_avx512_decode_k(const struct panel *panel, struct scores *scores);
void attnkit_avx512_decode_v(const struct panel *panel, const struct weights *weights);

#endif
