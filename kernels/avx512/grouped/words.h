/* SPDX-License-Identifier: Apache-2.0
 *
 * Words of two bf16, for the tiles of struct grouped_kernels in units of AVX-512. The grouped.c of
 * a unit includes this file, and chooses which elements go into a word. The unit's CPU has
 * AVX512_BF16.
 */
#ifndef ATTNKIT_AVX512_GROUPED_WORDS_H
#define ATTNKIT_AVX512_GROUPED_WORDS_H

#include "kernels/avx512/avx512.h"

enum {
    ELEMENTS = 2,
    LEAST_MAGNITUDE = (127 - 56) << 7 /* the bits of LEAST_FACTOR as bf16 */
};

static inline floats to_bf16(floats x)
{
    const __m256i halves = (__m256i)_mm512_cvtneps_pbh(x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* Replaces elements whose magnitude is less than LEAST_FACTOR by 0. */
static inline __m512i without_small(__m512i x)
{
    const __m512i magnitudes = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
    const __mmask32 large = _mm512_cmpge_epu16_mask(magnitudes, _mm512_set1_epi16(LEAST_MAGNITUDE));
    return _mm512_maskz_mov_epi16(large, x);
}

/* Returns up to VECTOR elements of a row, each in the low half of 32 bits. */
static inline __m512i load_halves(const uint16_t *row, __mmask16 mask)
{
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row));
}

/* Returns the words of elements c, c + 1, ... of two rows. A row that is NULL counts as zeros. */
static inline __m512i words_of_rows(const uint16_t *high, const uint16_t *low, int64_t c,
                                    __mmask16 mask)
{
    const __m512i zero = _mm512_setzero_si512();
    const __m512i highs = high ? load_halves(high + c, mask) : zero;
    const __m512i lows = low ? load_halves(low + c, mask) : zero;
    return without_small(_mm512_or_si512(_mm512_slli_epi32(highs, 16), lows));
}

/* Returns the words of parts of weights. The parts are bf16 as binary32, so their low halves are
 * 0. */
static inline floats words_of_parts(floats high, floats low)
{
    const __m512i lows = _mm512_srli_epi32(_mm512_castps_si512(low), 16);
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(high), lows));
}

#endif
