/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a chunk and of an item: the state of the first chunk of a panel becomes the total, and
 * the states of later chunks are folded into the total. M is the maximum of a state or total, l the
 * sum of weights, and o the weighted sum of V. A state or a total becomes the result: out = o / l +
 * 0 and lse = M ln 2 + log l. In panels the lanes are rows. In decode the elements of a row's o lie
 * side by side in memory. There are more registers than needed. Memory limits the speed of folding.
 * The division and the shuffles of 16x16 transposes limit the speed of finishing.
 */
#include "kernels/avx512/avx512.h"

enum { HALF = VECTOR / 2 /* doubles in a zmm */ };

typedef __m512d doubles;

/* Sixteen numbers of binary64. */
struct wide_vector {
    doubles low, high;
};

static inline struct wide_vector widened(__m512 x)
{
    return (struct wide_vector){_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
                                _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
}

static inline __m512 narrowed(struct wide_vector x)
{
    const __m512 low = _mm512_castps256_ps512(_mm512_cvtpd_ps(x.low));
    return _mm512_insertf32x8(low, _mm512_cvtpd_ps(x.high), 1);
}

static inline struct wide_vector load_widened(const float *from)
{
    return (struct wide_vector){_mm512_cvtps_pd(_mm256_loadu_ps(from)),
                                _mm512_cvtps_pd(_mm256_loadu_ps(from + HALF))};
}

static inline struct wide_vector load_wide(const double *from)
{
    return (struct wide_vector){_mm512_loadu_pd(from), _mm512_loadu_pd(from + HALF)};
}

static inline void store_wide(double *to, struct wide_vector x)
{
    _mm512_storeu_pd(to, x.low);
    _mm512_storeu_pd(to + HALF, x.high);
}

/* load_first_wide loads and store_first_wide stores the first n numbers, as load_first and
 * store_first do for floats. */
static inline struct wide_vector load_first_wide(const double *from, int64_t n)
{
    const __mmask16 mask = first_mask(n);
    return (struct wide_vector){_mm512_maskz_loadu_pd((__mmask8)mask, from),
                                _mm512_maskz_loadu_pd((__mmask8)(mask >> HALF), from + HALF)};
}

static inline void store_first_wide(double *to, int64_t n, struct wide_vector x)
{
    const __mmask16 mask = first_mask(n);
    _mm512_mask_storeu_pd(to, (__mmask8)mask, x.low);
    _mm512_mask_storeu_pd(to + HALF, (__mmask8)(mask >> HALF), x.high);
}

static inline doubles broadcast_double(double x)
{
    return _mm512_set1_pd(x);
}

static inline doubles fma_double(doubles a, doubles b, doubles c)
{
    return _mm512_fmadd_pd(a, b, c);
}

/* Returns c - a * b. */
static inline doubles fnma_double(doubles a, doubles b, doubles c)
{
    return _mm512_fnmadd_pd(a, b, c);
}

/* Returns l, or 1 where l is 0. */
static inline doubles one_for_zero(doubles l)
{
    const __mmask8 is_zero = _mm512_cmp_pd_mask(l, _mm512_setzero_pd(), _CMP_EQ_OQ);
    return _mm512_mask_mov_pd(l, is_zero, _mm512_set1_pd(1.0));
}

/* Computes inverse_of for each lane. */
static inline __m512d inverse_of_each(__m512d l)
{
    const __m512d size = _mm512_abs_pd(l);
    const __mmask8 usual = _mm512_cmp_pd_mask(size, _mm512_set1_pd(LEAST_DIVISOR), _CMP_GE_OQ) &
                           _mm512_cmp_pd_mask(size, _mm512_set1_pd(LARGEST_DIVISOR), _CMP_LE_OQ);
    return _mm512_mask_div_pd(_mm512_set1_pd((double)NAN), usual, _mm512_set1_pd(1.0), l);
}

/* Defines attnkit_avx512_begin_total, attnkit_avx512_fold, attnkit_avx512_fold_row,
 * attnkit_avx512_settle, attnkit_avx512_finish, attnkit_avx512_finish_total,
 * attnkit_avx512_decode_finish and attnkit_avx512_quotient_row. */
#include "kernels/vectors/state.h"
