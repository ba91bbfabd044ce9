/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of K for the scores of decode: 16 bytes of each of 8 keys, transposed in registers. The
 * comment of decode_k.c says what a step costs. decode_k.c multiplies the steps as binary32. The
 * tiles in integers/ use only transpose_4 and STEP of this header.
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

/* Transposes pairs of 16-bit elements. In each 128 bits, x[i] gets pair i of 4 keys: the first
 * elements of the 4 pairs, then the second elements. */
static inline __attribute__((always_inline)) void transpose_pairs(__m256 x[4])
{
    __m256i bits[4];
    for (int i = 0; i < 4; i++)
        bits[i] = _mm256_castps_si256(x[i]);
    const __m256i low_01 = _mm256_unpacklo_epi16(bits[0], bits[1]);
    const __m256i high_01 = _mm256_unpackhi_epi16(bits[0], bits[1]);
    const __m256i low_23 = _mm256_unpacklo_epi16(bits[2], bits[3]);
    const __m256i high_23 = _mm256_unpackhi_epi16(bits[2], bits[3]);
    x[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi32(low_01, low_23));
    x[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi32(low_01, low_23));
    x[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi32(high_01, high_23));
    x[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi32(high_01, high_23));
}

/* Loads STEP bytes of VECTOR keys, `at` bytes from the beginnings of their rows. unit[i] becomes
 * unit i of all keys. For TYPE_F16 each 128 bits hold the first elements of 4 keys, then the second
 * elements of these keys. */
static inline __attribute__((always_inline)) void
load_units(const enum type type, const char *const *key, int64_t at, __m256 unit[UNITS])
{
    for (int i = 0; i < UNITS; i++)
        unit[i] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)(key[i] + at))),
                                 _mm_loadu_ps((const float *)(key[i + 4] + at)), 1);
    if (type == TYPE_F16)
        transpose_pairs(unit);
    else
        transpose_4(unit);
}

/* The units of STEP bytes of each key, kept in memory because there are too few registers. */
struct units {
    __m256i unit[UNITS][MAX_TILE];
};

#endif
