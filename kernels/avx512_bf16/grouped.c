/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of 32 products of bf16, by VDPBF16PS. The loops are in kernels/vectors/grouped/tiles.h.
 * The instruction multiplies the high halves of two words, then the low halves. So an accumulator
 * takes elements 0, 2, 4, ... of a group, or 1, 3, 5, ..., in their order. No product and no sum is
 * subnormal, because small elements are 0.
 *
 * A register tile has 3 keys or columns x 4 vectors. 24 accumulators, 4 vectors of lanes and 1
 * broadcast take 29 of 32 zmm. Each word takes 12 VDPBF16PS, which are the bound, and 7 loads.
 */
#include "kernels/avx512_bf16/avx512_bf16.h"

enum {
    ELEMENTS = 2,
    SUMS = 12,
    AT_ONCE = 2 * VECTOR,             /* elements in a zmm */
    LEAST_MAGNITUDE = (127 - 56) << 7 /* the bits of LEAST_FACTOR as bf16 */
};

static inline __attribute__((always_inline)) floats grouped_step(floats x, floats w, floats sum)
{
    return multiply_step(x, w, sum, true);
}

static inline floats to_bf16(floats x)
{
    const __m256i halves = (__m256i)_mm512_cvtneps_pbh(x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* Replaces small elements by 0. */
static inline __m512i without_small(__m512i x)
{
    const __m512i magnitudes = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
    const __mmask32 large = _mm512_cmpge_epu16_mask(magnitudes, _mm512_set1_epi16(LEAST_MAGNITUDE));
    return _mm512_maskz_mov_epi16(large, x);
}

/* Makes words of quads: elements a, b, c, d become c, a, d, b, with c in the lowest bits. */
static inline __m512i words_of_quads(__m512i x)
{
    const __m512i order = _mm512_set4_epi32(0x0b0a0f0e, 0x09080d0c, 0x03020706, 0x01000504);
    return _mm512_shuffle_epi8(without_small(x), order);
}

static void pack_row(const void *row, int64_t n, float *words)
{
    require_built(TYPE_BF16);
    const uint16_t *const from = row;
    int64_t d = 0;
    for (; d + AT_ONCE <= n; d += AT_ONCE)
        _mm512_storeu_si512(words + d / ELEMENTS, words_of_quads(_mm512_loadu_si512(from + d)));
    if (d == n)
        return;
    const __m512i x = _mm512_maskz_loadu_epi16((UINT32_C(1) << (n - d)) - 1, from + d);
    _mm512_mask_storeu_epi32(words + d / ELEMENTS, first_mask(whole_quads(n - d) / ELEMENTS),
                             words_of_quads(x));
}

/* Returns up to VECTOR elements of a row, each in the low half of 32 bits. */
static inline __m512i load_halves(const uint16_t *row, __mmask16 mask)
{
    if (!row)
        return _mm512_setzero_si512();
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row));
}

/* Makes the words of two rows. A row may be NULL. */
static void pack_two(const uint16_t *high, const uint16_t *low, int64_t n, float *words)
{
    for (int64_t c = 0; c < n; c += VECTOR) {
        const __mmask16 mask = first_mask(n - c);
        const __m512i highs = load_halves(high ? high + c : NULL, mask);
        const __m512i lows = load_halves(low ? low + c : NULL, mask);
        const __m512i both = _mm512_or_si512(_mm512_slli_epi32(highs, 16), lows);
        _mm512_mask_storeu_epi32(words + c, mask, without_small(both));
    }
}

static void pack_quad(const void *const row[QUAD_ELEMENTS], int64_t n, float *words)
{
    require_built(TYPE_BF16);
    pack_two(row[0], row[2], n, words);
    pack_two(row[1], row[3], n, words + n);
}

/* Stores parts of weights. They are bf16, so the low halves of x are 0. */
static inline void store_quad(float *words, int lanes, const floats x[QUAD_ELEMENTS])
{
    for (int i = 0; i < 2; i++) {
        const __m512i high = _mm512_castps_si512(x[i]);
        const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(x[i + 2]), 16);
        store_aligned(words + i * lanes, _mm512_castsi512_ps(_mm512_or_si512(high, low)));
    }
}

/* Defines attnkit_avx512_bf16_grouped. */
#include "kernels/vectors/grouped/tiles.h"
