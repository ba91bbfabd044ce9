/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a chunk and of an item: the state of the first chunk of a panel becomes the total, and
 * the states of later chunks are folded into the total. M is the maximum of a state or total, l the
 * sum of weights, and o the weighted sum of V. A state or a total becomes the result: out = o / l +
 * 0 and lse = M ln 2 + log l. In panels the lanes are rows. In decode the elements of a row's o lie
 * side by side in memory. There are more registers than needed. Memory limits the speed of folding.
 * The division and the shuffles of 8x8 transposes limit the speed of finishing.
 */
#include "kernels/avx2/avx2.h"

enum { HALF = VECTOR / 2 /* doubles in a ymm */ };

typedef __m256d doubles;

/* Eight numbers of binary64. */
struct wide_vector {
    doubles low, high;
};

static inline struct wide_vector widened(__m256 x)
{
    return (struct wide_vector){_mm256_cvtps_pd(_mm256_castps256_ps128(x)),
                                _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}

static inline __m256 narrowed(struct wide_vector x)
{
    return _mm256_set_m128(_mm256_cvtpd_ps(x.high), _mm256_cvtpd_ps(x.low));
}

static inline struct wide_vector load_widened(const float *from)
{
    return (struct wide_vector){_mm256_cvtps_pd(_mm_loadu_ps(from)),
                                _mm256_cvtps_pd(_mm_loadu_ps(from + HALF))};
}

static inline struct wide_vector load_wide(const double *from)
{
    return (struct wide_vector){_mm256_loadu_pd(from), _mm256_loadu_pd(from + HALF)};
}

static inline void store_wide(double *to, struct wide_vector x)
{
    _mm256_storeu_pd(to, x.low);
    _mm256_storeu_pd(to + HALF, x.high);
}

/* Returns a mask of the first n of HALF doubles, for any n. */
static inline __m256i half_mask(int64_t n)
{
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}

/* load_first_wide loads and store_first_wide stores the first n numbers, as load_first and
 * store_first do for floats. */
static inline struct wide_vector load_first_wide(const double *from, int64_t n)
{
    return (struct wide_vector){_mm256_maskload_pd(from, half_mask(n)),
                                _mm256_maskload_pd(from + HALF, half_mask(n - HALF))};
}

static inline void store_first_wide(double *to, int64_t n, struct wide_vector x)
{
    _mm256_maskstore_pd(to, half_mask(n), x.low);
    _mm256_maskstore_pd(to + HALF, half_mask(n - HALF), x.high);
}

static inline doubles broadcast_double(double x)
{
    return _mm256_set1_pd(x);
}

static inline doubles fma_double(doubles a, doubles b, doubles c)
{
    return _mm256_fmadd_pd(a, b, c);
}

/* Returns c - a * b. */
static inline doubles fnma_double(doubles a, doubles b, doubles c)
{
    return _mm256_fnmadd_pd(a, b, c);
}

/* Returns l, or 1 where l is 0. */
static inline doubles one_for_zero(doubles l)
{
    return _mm256_blendv_pd(l, _mm256_set1_pd(1.0),
                            _mm256_cmp_pd(l, _mm256_setzero_pd(), _CMP_EQ_OQ));
}

/* Computes inverse_of for each lane. */
static inline __m256d inverse_of_each(__m256d l)
{
    const __m256d size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), l);
    const __m256d usual =
        _mm256_and_pd(_mm256_cmp_pd(size, _mm256_set1_pd(LEAST_DIVISOR), _CMP_GE_OQ),
                      _mm256_cmp_pd(size, _mm256_set1_pd(LARGEST_DIVISOR), _CMP_LE_OQ));
    return _mm256_blendv_pd(_mm256_set1_pd((double)NAN), _mm256_div_pd(_mm256_set1_pd(1.0), l),
                            usual);
}

/* Defines attnkit_avx2_begin_total, attnkit_avx2_fold, attnkit_avx2_fold_row, attnkit_avx2_settle,
 * attnkit_avx2_finish, attnkit_avx2_finish_total, attnkit_avx2_decode_finish and
 * attnkit_avx2_quotient_row. */
#include "kernels/vectors/state.h"
