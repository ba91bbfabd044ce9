/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes words of pairs from rows and from tiles of a matrix. The loops call the entries `pair` and
 * `pair_matrix` when they put q, K, x or a matrix into scratch. Each 64 bytes take a load, a
 * rotation or a permutation, a store, and three instructions for the least magnitude. Memory limits
 * the speed.
 */
#include "kernels/avx512_bf16/avx512_bf16.h"

enum {
    PAIRS_AT_ONCE = VECTOR, /* words in a zmm */
    AT_ONCE = 2 * VECTOR,   /* elements in a zmm */
};

/* Returns, lane by lane, the unsigned minimum of `least` and m - 1, where m is the magnitude of the
 * number. If m is 0, m - 1 wraps to the largest 16-bit number, so zeros do not count. */
static inline __m512i least_of(__m512i least, __m512i numbers)
{
    const __m512i magnitudes = _mm512_and_si512(numbers, _mm512_set1_epi16(0x7fff));
    return _mm512_min_epu16(least, _mm512_sub_epi16(magnitudes, _mm512_set1_epi16(1)));
}

/* Returns the least magnitude from the minima of least_of: NO_MAGNITUDE if all numbers are 0. */
static inline uint32_t magnitude_of(__m512i least)
{
    const __m256i half =
        _mm256_min_epu16(_mm512_castsi512_si256(least), _mm512_extracti64x4_epi64(least, 1));
    const __m128i quarter =
        _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const uint32_t magnitude = (uint32_t)_mm_cvtsi128_si32(_mm_minpos_epu16(quarter)) & 0xffff;
    return magnitude >= NO_MAGNITUDE ? NO_MAGNITUDE : magnitude + 1;
}

static inline __m512i load_elements(const char *row, int64_t n)
{
    const __mmask32 mask = n >= AT_ONCE ? UINT32_MAX : (UINT32_C(1) << n) - 1;
    return _mm512_maskz_loadu_epi16(mask, row);
}

uint32_t attnkit_avx512_bf16_pair(const void *row, int64_t n, uint32_t *words)
{
    const char *const from = row;
    __m512i least = _mm512_set1_epi16(-1);
    int64_t d = 0;
    for (; d + AT_ONCE <= n; d += AT_ONCE, words += PAIRS_AT_ONCE) {
        const __m512i x = _mm512_loadu_si512(from + bytes_of(TYPE_BF16, d));
        least = least_of(least, x);
        _mm512_storeu_si512(words, _mm512_rol_epi32(x, 16));
    }
    if (d < n) {
        const __m512i x = load_elements(from + bytes_of(TYPE_BF16, d), n - d);
        least = least_of(least, x);
        _mm512_mask_storeu_epi32(words, first_mask(words_of_pairs(n - d)), _mm512_rol_epi32(x, 16));
    }
    return magnitude_of(least);
}

/* Returns the words of two lines of a tile. A line has the elements of one input, one element for
 * each of the TILE_KEYS outputs. */
static inline __m512i pair_lines(__m512i lines)
{
    static const uint16_t order[2 * TILE_KEYS] = {16, 0,  17, 1,  18, 2,  19, 3,  20, 4,  21,
                                                  5,  22, 6,  23, 7,  24, 8,  25, 9,  26, 10,
                                                  27, 11, 28, 12, 29, 13, 30, 14, 31, 15};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), lines);
}

uint32_t attnkit_avx512_bf16_pair_matrix(const void *tile, int64_t n, uint32_t *words)
{
    const char *from = tile;
    __m512i least = _mm512_set1_epi16(-1);
    for (int64_t d = 0; d < n; d += 2, words += TILE_KEYS, from += AT_ONCE * sizeof(uint16_t)) {
        const __m512i lines = load_elements(from, (n - d) * TILE_KEYS);
        least = least_of(least, lines);
        _mm512_storeu_si512(words, pair_lines(lines));
    }
    return magnitude_of(least);
}
