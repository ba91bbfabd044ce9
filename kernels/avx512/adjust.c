/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores to t where it takes more than a factor: a softcap, a bias, or both; see struct adjust.
 * Called by prefill.c between scores and softmax, and by the decode tile for each of its rows.
 */
#include <sleef.h>

#include "kernels/avx512/avx512.h"

/* tanh is within 1.0000001 ulp, with the bits of scalar_tanh. */
static inline __attribute__((always_inline)) __m512 adjust_v(const struct adjust *how, __m512 s,
                                                             __m512 bias, const bool capped)
{
    const __m512 x =
        capped ? Sleef_finz_tanhf16_u10avx512f(_mm512_mul_ps(s, _mm512_set1_ps(how->to_cap))) : s;
    const __mmask16 seen = _mm512_cmp_ps_mask(bias, minus_infinity(), _CMP_NEQ_UQ);
    const __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(how->factor), bias);
    return _mm512_mask_mov_ps(minus_infinity(), seen, t);
}

static inline __attribute__((always_inline)) void
adjust(const struct adjust *how, const float *bias, int64_t n, float *s, const bool capped)
{
    const __m512 nothing = _mm512_set1_ps(-0.0f); /* of which the sum with -0 is -0 */
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR) {
        const __m512 b = bias ? _mm512_loadu_ps(bias + i) : nothing;
        _mm512_storeu_ps(s + i, adjust_v(how, _mm512_loadu_ps(s + i), b, capped));
    }
    if (i < n) {
        const __m512 b = bias ? load_first(bias + i, n - i) : nothing;
        store_first(s + i, n - i, adjust_v(how, load_first(s + i, n - i), b, capped));
    }
}

void attnkit_avx512_adjust(const struct adjust *how, const float *bias, size_t n, float *s)
{
    if (how->capped)
        adjust(how, bias, (int64_t)n, s, true);
    else
        adjust(how, bias, (int64_t)n, s, false);
}
