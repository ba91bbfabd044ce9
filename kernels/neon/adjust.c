/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores to t where it takes more than a factor: a softcap, a bias, or both; see struct adjust.
 * Called by prefill.c between scores and softmax, and by the decode tile for each of its rows.
 *
 * A capped score takes some 25 operations, 12 of them multiply-adds, and a division, in a chain of
 * some 70 cycles: four vectors side by side hide it, in 16 of 32 registers beside the constants.
 */
#include "kernels/neon/neon.h"

/* x[i] = tanh x[i], with the bits of scalar_tanh, which says how. Stage by stage, like
 * exp2_vectors. */
static inline __attribute__((always_inline)) void tanh_vectors(float32x4_t *x, const int n)
{
    static const float coefficients[] = {0.133888692f, 0.333329290f, 0.666661263f, 1.0f};
    const float32x4_t magic = vdupq_n_f32(0x1.8p23f);
    float32x4_t power[SIDE_BY_SIDE], f[SIDE_BY_SIDE], q[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++) {
        /* This minimum keeps a NaN. */
        const float32x4_t a = vminq_f32(vabsq_f32(x[i]), vdupq_n_f32(10.0f));
        const float32x4_t rounded = vfmaq_f32(magic, a, vdupq_n_f32(0x1.715476p+1f));
        power[i] = vreinterpretq_f32_s32(
            vaddq_s32(vshlq_n_s32(vreinterpretq_s32_f32(rounded), 23), vdupq_n_s32(127 << 23)));
        f[i] = vfmsq_f32(a, vsubq_f32(rounded, magic), vdupq_n_f32(0x1.62e43p-2f));
        q[i] = vdupq_n_f32(0.0447224975f);
    }
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < n; i++)
            q[i] = vfmaq_f32(vdupq_n_f32(coefficients[k]), q[i], f[i]);
    for (int i = 0; i < n; i++) {
        const float32x4_t h = vfmaq_f32(f[i], vmulq_f32(q[i], f[i]), f[i]);
        const float32x4_t whole = vfmaq_f32(vdupq_n_f32(-0.5f), power[i], vdupq_n_f32(0.5f));
        const float32x4_t grown = vfmaq_f32(whole, power[i], h);
        const float32x4_t y = vdivq_f32(grown, vaddq_f32(grown, vdupq_n_f32(1.0f)));
        x[i] = vbslq_f32(vdupq_n_u32(0x80000000), x[i], y);
    }
}

/* t of n vectors; bias: NULL, or as many. */
static inline __attribute__((always_inline)) void adjust_vectors(const struct adjust *how,
                                                                 float32x4_t *x,
                                                                 const float32x4_t *bias,
                                                                 const int n, const bool capped)
{
    const float32x4_t minus_infinity = vdupq_n_f32(-INFINITY);
    if (capped) {
        for (int i = 0; i < n; i++)
            x[i] = vmulq_n_f32(x[i], how->to_cap);
        tanh_vectors(x, n);
    }
    for (int i = 0; i < n; i++) {
        if (!bias) {
            x[i] = vmulq_n_f32(x[i], how->factor);
            continue;
        }
        const float32x4_t t = vfmaq_f32(bias[i], x[i], vdupq_n_f32(how->factor));
        x[i] = vbslq_f32(vceqq_f32(bias[i], minus_infinity), minus_infinity, t);
    }
}

static inline __attribute__((always_inline)) void
adjust(const struct adjust *how, const float *bias, int64_t n, float *s, const bool capped)
{
    float32x4_t x[SIDE_BY_SIDE], b[SIDE_BY_SIDE];
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE * VECTOR <= n; i += SIDE_BY_SIDE * VECTOR) {
        for (int j = 0; j < SIDE_BY_SIDE; j++) {
            x[j] = vld1q_f32(s + i + j * VECTOR);
            if (bias)
                b[j] = vld1q_f32(bias + i + j * VECTOR);
        }
        adjust_vectors(how, x, bias ? b : NULL, SIDE_BY_SIDE, capped);
        for (int j = 0; j < SIDE_BY_SIDE; j++)
            vst1q_f32(s + i + j * VECTOR, x[j]);
    }
    for (; i < n; i += VECTOR) {
        const int left = lanes_at(i, n);
        x[0] = load_first(s + i, left);
        if (bias)
            b[0] = load_first(bias + i, left);
        adjust_vectors(how, x, bias ? b : NULL, 1, capped);
        store_first(s + i, left, x[0]);
    }
}

void attnkit_neon_adjust(const struct adjust *how, const float *bias, size_t n, float *s)
{
    if (how->capped && bias)
        adjust(how, bias, (int64_t)n, s, true);
    else if (how->capped)
        adjust(how, NULL, (int64_t)n, s, true);
    else if (bias)
        adjust(how, bias, (int64_t)n, s, false);
    else
        adjust(how, NULL, (int64_t)n, s, false);
}
