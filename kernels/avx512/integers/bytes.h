/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds inputs of linear maps to integers of 8 bits, and has operations on vectors of words and of
 * sums, for AVX-512 with and without the unit VNNI.
 */
#ifndef ATTNKIT_AVX512_BYTES_H
#define ATTNKIT_AVX512_BYTES_H

#include "kernels/avx512/avx512.h"
#include "kernels/integers.h"

typedef __m512i sums_v;
typedef __m512i words_v;

/* Rounds Q8_BLOCK inputs to integers, in n[0] and n[1]. Returns the scale of the integers. */
static inline float round_inputs(const float *x, __m512i n[2])
{
    const __m512i all_but_sign = _mm512_set1_epi32(0x7fffffff);
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + VECTOR);
    const __m512i most = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), all_but_sign),
                                          _mm512_and_si512(_mm512_castps_si512(b), all_but_sign));
    const struct integer_scale s = byte_scale_of(_mm512_reduce_max_epu32(most));
    const __mmask16 mask = isnan(s.scale) ? 0 : 0xffff;
    const __m512 inverse = _mm512_set1_ps(s.inverse);
    n[0] = _mm512_maskz_cvtps_epi32(mask, _mm512_mul_ps(a, inverse));
    n[1] = _mm512_maskz_cvtps_epi32(mask, _mm512_mul_ps(b, inverse));
    return s.scale;
}

static inline void store_words(char *to, __m512i w)
{
    _mm512_store_si512(to, w);
}

static inline __m512 sums_as_floats(__m512i sum, int row, bool packed)
{
    (void)row; /* always 0 */
    (void)packed;
    return _mm512_cvtepi32_ps(sum);
}

#endif
