/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores to t where it takes more than a factor: a softcap, a bias, or both; see struct adjust.
 * Called by prefill.c between scores and softmax, and by the decode tile for each of its rows.
 */
#include <sleef.h>

#include "kernels/neon/neon.h"

/* tanh is within 1.0000001 ulp, with the bits of scalar_tanh. */
static inline __attribute__((always_inline)) float32x4_t
adjust_v(const struct adjust *how, float32x4_t s, float32x4_t bias, const bool capped)
{
    const float32x4_t x = capped ? Sleef_finz_tanhf4_u10advsimd(vmulq_n_f32(s, how->to_cap)) : s;
    const float32x4_t minus_infinity = vdupq_n_f32(-INFINITY);
    const float32x4_t t = vfmaq_f32(bias, x, vdupq_n_f32(how->factor));
    return vbslq_f32(vceqq_f32(bias, minus_infinity), minus_infinity, t);
}

static inline __attribute__((always_inline)) void
adjust(const struct adjust *how, const float *bias, int64_t n, float *s, const bool capped)
{
    const float32x4_t nothing = vdupq_n_f32(-0.0f); /* of which the sum with -0 is -0 */
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR) {
        const float32x4_t b = bias ? vld1q_f32(bias + i) : nothing;
        vst1q_f32(s + i, adjust_v(how, vld1q_f32(s + i), b, capped));
    }
    if (i < n) {
        const int left = lanes_at(i, n);
        const float32x4_t b = bias ? load_n(bias + i, left) : nothing;
        store_n(s + i, adjust_v(how, load_n(s + i, left), b, capped), left);
    }
}

void attnkit_neon_adjust(const struct adjust *how, const float *bias, size_t n, float *s)
{
    if (how->capped)
        adjust(how, bias, (int64_t)n, s, true);
    else
        adjust(how, bias, (int64_t)n, s, false);
}
