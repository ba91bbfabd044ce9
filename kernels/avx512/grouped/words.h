/* SPDX-License-Identifier: Apache-2.0
 *
 * Words of two bf16, for the tiles of struct grouped_kernels in the units avx512+bf16 and
 * avx512+amx. The grouped.c of each of these two units includes this file, and chooses which
 * elements go into a word. Every CPU with one of the two units has AVX512_BF16.
 */
#ifndef ATTNKIT_AVX512_GROUPED_WORDS_H
#define ATTNKIT_AVX512_GROUPED_WORDS_H

#include "kernels/avx512/avx512.h"

enum {
    ELEMENTS = 2,
    LEAST_MAGNITUDE = (127 - 56) << 7 /* the bits of LEAST_FACTOR as bf16 */
};

/* Returns x with 0 in place of each bf16 whose absolute value is less than LEAST_FACTOR. Without
 * the sign, the bits of bf16 have the order of the absolute values, and NaN comes last. */
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

/* Returns the words of elements c, c + 1, ... of two rows. The elements of `high` are in the high
 * halves of the words, the elements of `low` in the low halves. A row that is NULL counts as zeros.
 * An element whose bit in `mask` is 0 counts as 0. */
static inline __m512i words_of_rows(const uint16_t *high, const uint16_t *low, int64_t c,
                                    __mmask16 mask)
{
    const __m512i zero = _mm512_setzero_si512();
    const __m512i highs = high ? load_halves(high + c, mask) : zero;
    const __m512i lows = low ? load_halves(low + c, mask) : zero;
    return without_small(_mm512_or_si512(_mm512_slli_epi32(highs, 16), lows));
}

/* Rounds the elements of two vectors to bf16. Stores the words of the rounded elements, and returns
 * the rounded elements as binary32 in *high and *low. */
static inline void round_pair(floats *high, floats *low, float *words)
{
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(*high, *low);
    const __m512i first = _mm512_set_epi32(
        0x1f000f, 0x1e000e, 0x1d000d, 0x1c000c, 0x1b000b, 0x1a000a, 0x190009, 0x180008, 0x170007,
        0x160006, 0x150005, 0x140004, 0x130003, 0x120002, 0x110001, 0x100000);
    const __m512i pairs = _mm512_permutexvar_epi16(first, halves);
    _mm512_store_si512(words, pairs);
    *high = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
    *low = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

#endif
