/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers for AVX2 with and without the unit AVX-VNNI: operations on words and sums.
 * panel.h and panel_pairs.h of kernels/vectors/integers have the loops, and say what the functions
 * do.
 */
#ifndef ATTNKIT_AVX2_INTEGER_PANEL_H
#define ATTNKIT_AVX2_INTEGER_PANEL_H

#include "kernels/avx2/avx2.h"

enum { MOST_HEIGHT = 8 };

typedef __m256i sums_v;
typedef __m256i lane_words;
typedef __m256i word;

static inline __m256i no_sums(void)
{
    return _mm256_setzero_si256();
}

static inline __m256 sums_as_floats(__m256i sum)
{
    return _mm256_cvtepi32_ps(sum);
}

static inline __m256i load_words(const float *from)
{
    return _mm256_load_si256((const __m256i *)(const void *)from);
}

static inline __m256i load_word(const float *from)
{
    return _mm256_castps_si256(_mm256_broadcast_ss(from));
}

static inline float half_as_float(uint16_t bits)
{
    return _cvtsh_ss(bits);
}

/* Elements 1 and 2 of each four swap places, as in round_row. */
static inline void widen_block(const char *bytes, float *words)
{
    const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    for (int i = 0; i < Q8_BLOCK; i += 2 * VECTOR) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(bytes + i));
        _mm256_storeu_si256((__m256i *)(void *)(words + i / 2),
                            _mm256_cvtepi8_epi16(_mm_shuffle_epi8(x, order)));
    }
}

static inline void pair_block(const char *one, const char *two, float *words)
{
    for (int i = 0; i < Q8_BLOCK; i += 2 * VECTOR) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(one + i));
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(two + i));
        _mm256_storeu_si256((__m256i *)(void *)(words + i),
                            _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)));
        _mm256_storeu_si256((__m256i *)(void *)(words + i + VECTOR),
                            _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b)));
    }
}

static inline __m256 larger_bits(__m256 a, __m256 b)
{
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

static inline void store_pair(float *to, __m256 low, __m256 high)
{
    const __m256i upper = _mm256_slli_epi32(_mm256_cvtps_epi32(high), 16);
    _mm256_store_si256((__m256i *)(void *)to,
                       _mm256_blend_epi16(_mm256_cvtps_epi32(low), upper, 0xaa));
}

#endif
