/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds inputs of linear maps to integers of 8 bits, and has operations on vectors of words and of
 * sums, for AVX2 with and without the unit AVX-VNNI.
 */
#ifndef ATTNKIT_AVX2_BYTES_H
#define ATTNKIT_AVX2_BYTES_H

#include "kernels/avx2/avx2.h"
#include "kernels/integers.h"

enum { PARTS = Q8_BLOCK / VECTOR };

typedef __m256i sums_v;
typedef __m256i words_v;

static inline __m256i magnitudes(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

/* Returns the largest of 8 unsigned integers. */
static inline uint32_t largest_of(__m256i x)
{
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(most);
}

/* Rounds Q8_BLOCK inputs to integers, in n[0] to n[3]. Returns the scale of the integers. */
static inline float round_inputs(const float *x, __m256i n[PARTS])
{
    __m256 part[PARTS];
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < PARTS; i++) {
        part[i] = _mm256_loadu_ps(x + i * VECTOR);
        most = _mm256_max_epu32(most, magnitudes(part[i]));
    }
    const struct integer_scale s = byte_scale_of(largest_of(most));
    for (int i = 0; i < PARTS; i++)
        n[i] = isnan(s.scale)
                   ? _mm256_setzero_si256()
                   : _mm256_cvtps_epi32(_mm256_mul_ps(part[i], _mm256_set1_ps(s.inverse)));
    return s.scale;
}

static inline void store_words(char *to, __m256i w)
{
    _mm256_store_si256((__m256i *)(void *)to, w);
}

static inline __m256 sums_as_floats(__m256i sum, int row, bool packed)
{
    (void)row; /* always 0 */
    (void)packed;
    return _mm256_cvtepi32_ps(sum);
}

#endif
