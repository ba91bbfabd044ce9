/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of K for the scores of decode: 16 bytes of each of 8 keys, transposed in registers. The
 * comment of decode_k.c says what a step costs. decode_k.c multiplies the steps as binary32. For
 * TYPE_F16 it uses only STEP of this header. The tiles in integers/ use only transpose_4 and STEP.
 */
#ifndef ATTNKIT_AVX2_STEPS_H
#define ATTNKIT_AVX2_STEPS_H

#include "kernels/avx2/decode.h"

enum {
    STEP = 16,    /* bytes of each key */
    UNITS = 4,    /* units of 32 bits in STEP bytes */
    MAX_TILE = 2, /* most vectors of keys in a tile */
};

/* Transposes: in each 128 bits, lane i of x[j] becomes lane j of x[i]. */
static inline __attribute__((always_inline)) void transpose_4(__m256 x[4])
{
    const __m256 low_01 = _mm256_unpacklo_ps(x[0], x[1]), high_01 = _mm256_unpackhi_ps(x[0], x[1]);
    const __m256 low_23 = _mm256_unpacklo_ps(x[2], x[3]), high_23 = _mm256_unpackhi_ps(x[2], x[3]);
    x[0] = _mm256_shuffle_ps(low_01, low_23, 0x44);
    x[1] = _mm256_shuffle_ps(low_01, low_23, 0xee);
    x[2] = _mm256_shuffle_ps(high_01, high_23, 0x44);
    x[3] = _mm256_shuffle_ps(high_01, high_23, 0xee);
}

/* Returns STEP bytes of `first` in the lower 128 bits, and STEP bytes of `second` in the upper 128
 * bits. */
static inline __attribute__((always_inline)) __m256 load_two(const char *first, const char *second)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)first)),
                                _mm_loadu_ps((const float *)second), 1);
}

/* Loads STEP bytes of VECTOR keys, `at` bytes from the beginnings of their rows. unit[i] becomes
 * unit i of all keys. */
static inline __attribute__((always_inline)) void load_units(const char *const *key, int64_t at,
                                                             __m256 unit[UNITS])
{
    for (int i = 0; i < UNITS; i++)
        unit[i] = load_two(key[i] + at, key[i + 4] + at);
    transpose_4(unit);
}

/* The units of STEP bytes of each key, kept in memory because there are too few registers. */
struct units {
    __m256i unit[UNITS][MAX_TILE];
};

#endif
