/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of K for the scores of decode: 32 bytes of each key of a tile, transposed in registers, and
 * the scales of TYPE_Q8_0. The comment of decode_k.c says what a step of 16 keys costs. decode_k.c
 * multiplies the steps as binary32. integers/scores.h transposes blocks by itself, and uses struct
 * step_place, struct scales, load_two, interleave and f16_at.
 */
#ifndef ATTNKIT_AVX512_STEPS_H
#define ATTNKIT_AVX512_STEPS_H

#include "kernels/avx512/decode.h"

enum {
    STEP = 32,    /* bytes of each key */
    UNITS = 8,    /* units of 32 bits in STEP bytes */
    PARTS = 4,    /* parts of the work of transposing a step of one vector of keys */
    MAX_TILE = 2, /* most vectors of keys in a tile */
};

/* Returns the number of elements in a unit of 32 bits. */
static inline int elements_of_unit(const enum type type)
{
    return type == TYPE_F32 ? 1 : type == TYPE_F16 || type == TYPE_BF16 ? 2 : 4;
}

/* Returns the number of elements in STEP bytes. */
static inline int elements_of_step(const enum type type)
{
    return UNITS * elements_of_unit(type);
}

/* ----------------------------------------------------------------------------- transposing */

/* The place of a step. */
struct step_place {
    const char *const *key; /* the first key of the tile */
    int64_t at;             /* bytes from the beginnings of rows */
};

/* A step of all keys of a tile, transposed: unit i of vector j of the keys is unit[i][j]. For
 * TYPE_F16, unit[i][j] holds element 2 i of the 16 keys of vector j, then their element 2 i + 1. */
struct step {
    __m512i unit[UNITS][MAX_TILE];
};

static inline __m512i load_two(const char *const *low, const char *const *high, int64_t at)
{
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(*low + at))),
        _mm256_loadu_si256((const __m256i *)(*high + at)), 1);
}

/* Interleaves pieces of a with pieces of b. A piece has `bits` bits. In each 128 bits, a gets the
 * pieces of the low halves of a and b, and b gets the pieces of their high halves. */
static inline __attribute__((always_inline)) void interleave(const int bits, __m512i *a, __m512i *b)
{
    const __m512i x = *a, y = *b;
    *a = bits == 16   ? _mm512_unpacklo_epi16(x, y)
         : bits == 32 ? _mm512_unpacklo_epi32(x, y)
                      : _mm512_unpacklo_epi64(x, y);
    *b = bits == 16   ? _mm512_unpackhi_epi16(x, y)
         : bits == 32 ? _mm512_unpackhi_epi32(x, y)
                      : _mm512_unpackhi_epi64(x, y);
}

/* Interleaves x[i] and x[i + apart], for all pairs. */
static inline __attribute__((always_inline)) void interleave_pairs(const int bits, __m512i x[UNITS],
                                                                   const int apart)
{
    for (int i = 0; i < UNITS; i++)
        if (i / apart % 2 == 0)
            interleave(bits, x + i, x + i + apart);
}

/* For TYPE_F16: returns two elements of all 16 keys. A lane has 64 bits. Each lane of a and of b
 * holds one element of 4 keys. Lanes `at` and at + 4 of a and of b hold the first of the two
 * elements. Lanes at + 1 and at + 5 hold the second. */
static inline __m512i join_keys(__m512i a, const int at, __m512i b)
{
    const __m512i from =
        _mm512_setr_epi64(at, at + 8, at + 4, at + 12, at + 1, at + 9, at + 5, at + 13);
    return _mm512_permutex2var_epi64(a, from, b);
}

/* Does a part of the transposition of vector j of the keys. x passes the vectors of a part to the
 * next part. */
static inline __attribute__((always_inline)) void
transpose_part(const enum type type, const int part, struct step_place place, __m512i x[UNITS],
               struct step *step, const int j)
{
    const bool halves = type == TYPE_F16;
    const char *const *const key = place.key + j * VECTOR;
    switch (part) {
    case 0:
        for (int i = 0; i < UNITS; i++) {
            const char *const *const low = halves ? key + i : key + i % 4 + i / 4 * 8;
            x[i] = load_two(low, low + (halves ? 8 : 4), place.at);
        }
        break;
    case 1:
        interleave_pairs(halves ? 16 : 32, x, 1);
        break;
    case 2:
        interleave_pairs(halves ? 32 : 64, x, 2);
        break;
    default: /* `unit` has the two bits of i in reverse order */
        for (int i = 0; i < 4; i++) {
            const int unit = i / 2 + i % 2 * 2;
            step->unit[unit][j] =
                halves ? join_keys(x[i], 0, x[i + 4]) : _mm512_shuffle_i64x2(x[i], x[i + 4], 0x88);
            step->unit[unit + 4][j] =
                halves ? join_keys(x[i], 2, x[i + 4]) : _mm512_shuffle_i64x2(x[i], x[i + 4], 0xdd);
        }
        break;
    }
}

static inline __attribute__((always_inline)) void
transpose_step(const enum type type, struct step_place place, struct step *step, const int vectors)
{
    __m512i x[UNITS];
    for (int j = 0; j < vectors; j++)
#pragma GCC unroll 4
        for (int part = 0; part < PARTS; part++)
            transpose_part(type, part, place, x, step, j);
}

/* --------------------------------------------------------------------------------- scales */

static inline short f16_at(const char *const *key, int64_t at)
{
    short bits;
    memcpy(&bits, *key + at, sizeof bits);
    return bits;
}

/* The scales of a block of TYPE_Q8_0 of the keys of a tile, as binary16. The scales are collected
 * in memory, because moving a binary16 number into a vector takes an FMA port. */
struct halves {
    _Alignas(64) short of[MAX_TILE * VECTOR];
};

/* Collects the scales of a quarter of the keys of vector j, for the block at `place`. A quarter is
 * collected with each part of a step. A CPU stores about one scale in a cycle. So if all scales
 * were collected at once, the FMA ports would be idle meanwhile. */
static inline __attribute__((always_inline)) void
collect_scales(const int part, struct step_place place, struct halves *scales, const int j)
{
    const int first = j * VECTOR + part * (VECTOR / PARTS);
    for (int i = first; i < first + VECTOR / PARTS; i++)
        scales->of[i] = f16_at(place.key + i, place.at - 2);
}

/* The scales of the keys of a tile, for the elements that are multiplied next. */
struct scales {
    __m512 of[MAX_TILE];
    int64_t next; /* TYPE_I8: the element at which the next group begins */
    bool exact;   /* all scales so far give exact products */
};

/* Sets the scales to the binary16 numbers in `halves`. The numbers should have been stored a step
 * or more before, because the load of all numbers waits until each store has reached the cache. */
static inline __attribute__((always_inline)) void
widen_scales(const struct halves *halves, struct scales *scales, const int vectors)
{
    for (int j = 0; j < vectors; j++) {
        const short *const of_vector = halves->of + j * VECTOR;
        scales->of[j] = _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)of_vector));
        scales->exact &= _mm512_fpclass_ps_mask(scales->of[j], 0x18) == 0; /* infinite */
    }
}

/* Returns the place that is `steps` steps after element d. After the last whole step of a row, the
 * place is in the rows from `next` on. */
static inline __attribute__((always_inline)) struct step_place
place_after(const enum type type, const struct key_rows *k, const char *const *key,
            const char *const *next, int64_t d, const int steps)
{
    const int step = elements_of_step(type), scale = type == TYPE_Q8_0 ? 2 : 0;
    const int64_t end = k->dim / step * step, then = d + steps * step;
    if (then < end)
        return (struct step_place){key, bytes_of(type, then) + scale};
    return (struct step_place){next, bytes_of(type, then - end) + scale};
}

/* Two steps. One is in use while the other is filled. For TYPE_Q8_0, halves[i] has the scales of
 * step[i]. */
struct steps {
    struct step step[2];
    struct halves halves[2];
    int now; /* index of the complete step */
};

/* A tile of keys, and the steps that one tile passes to the next. */
struct scored_tile {
    const struct panel *panel;
    const char *const *key, *const *next; /* the first keys of this tile and of the next tile */
    int first;                            /* index of the tile's first key */
    struct steps *steps;
};

#endif
