/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores to t where it takes more than a factor: a softcap, a bias, or both; see struct adjust.
 * Called by prefill.c between scores and softmax, and by the decode tile for each of its rows.
 */
#include <sleef.h>

#include "kernels/avx2/avx2.h"

/* tanh is within 1.0000001 ulp, with the bits of scalar_tanh. */
static inline __attribute__((always_inline)) __m256 adjust_v(const struct adjust *how, __m256 s,
                                                             __m256 bias, const bool capped)
{
    const __m256 x =
        capped ? Sleef_finz_tanhf8_u10avx2(_mm256_mul_ps(s, _mm256_set1_ps(how->to_cap))) : s;
    const __m256 masked = _mm256_cmp_ps(bias, minus_infinity(), _CMP_EQ_OQ);
    const __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(how->factor), bias);
    return _mm256_blendv_ps(t, minus_infinity(), masked);
}

static inline __attribute__((always_inline)) void
adjust(const struct adjust *how, const float *bias, int64_t n, float *s, const bool capped)
{
    const __m256 nothing = _mm256_set1_ps(-0.0f); /* of which the sum with -0 is -0 */
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR) {
        const __m256 b = bias ? _mm256_loadu_ps(bias + i) : nothing;
        _mm256_storeu_ps(s + i, adjust_v(how, _mm256_loadu_ps(s + i), b, capped));
    }
    if (i < n) {
        const __m256 b = bias ? load_first(bias + i, n - i) : nothing;
        store_first(s + i, n - i, adjust_v(how, load_first(s + i, n - i), b, capped));
    }
}

void attnkit_avx2_adjust(const struct adjust *how, const float *bias, size_t n, float *s)
{
    if (how->capped)
        adjust(how, bias, (int64_t)n, s, true);
    else
        adjust(how, bias, (int64_t)n, s, false);
}
