/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores to weights in place, p = 2^(t - M'), with the state's maximum and sum moved on; a panel's
 * rows lie across the lanes, so that nothing goes from lane to lane. Called by prefill.c between
 * scores and weighted_v.
 *
 * A vector of lanes at a time, over the keys twice: for the maximum, then for the weights. The
 * second walk is bound by exp2, some keys at a time.
 */
#include "kernels/neon/neon.h"

/* s becomes t = s * scale_log2, or -inf where a lane does not see the key. Returns max t, in which
 * NaN does not take part. */
static float32x4_t scale_and_mask(float *s, int lanes, int keys, int32x4_t visible,
                                  float scale_log2)
{
    const float32x4_t unseen = vdupq_n_f32(-INFINITY);
    float32x4_t block_max = unseen;
    for (int key = 0; key < keys; key++) {
        const uint32x4_t seen = vcgtq_s32(visible, vdupq_n_s32(key));
        const float32x4_t scaled = vmulq_n_f32(vld1q_f32(s + key * lanes), scale_log2);
        const float32x4_t t = vbslq_f32(seen, scaled, unseen);
        vst1q_f32(s + key * lanes, t);
        block_max = vmaxnmq_f32(block_max, t);
    }
    return block_max;
}

/* t of `n` keys becomes p = 2^(t - subtrahend), which is added to the sum, a chain over the keys.
 */
static inline __attribute__((always_inline)) float32x4_t
exponentiate_step(float *t, int lanes, float32x4_t subtrahend, float32x4_t sum, const int n)
{
    float32x4_t p[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++)
        p[i] = vsubq_f32(vld1q_f32(t + i * lanes), subtrahend);
    exp2_vectors(p, n);
    for (int i = 0; i < n; i++) {
        vst1q_f32(t + i * lanes, p[i]);
        sum = vaddq_f32(sum, p[i]);
    }
    return sum;
}

static float32x4_t exponentiate(float *t, int lanes, int keys, float32x4_t subtrahend)
{
    float32x4_t sum = vdupq_n_f32(0.0f);
    int key = 0;
    for (; key + SIDE_BY_SIDE <= keys; key += SIDE_BY_SIDE)
        sum = exponentiate_step(t + key * lanes, lanes, subtrahend, sum, SIDE_BY_SIDE);
    for (; key < keys; key++)
        sum = exponentiate_step(t + key * lanes, lanes, subtrahend, sum, 1);
    return sum;
}

/* The 4 lanes from `lane` on; s and rescale are those of the first of them. */
static void softmax_lanes(float *s, int lanes, int keys, int32x4_t visible, float scale_log2,
                          const struct state *st, int lane, float *rescale)
{
    const float32x4_t old_max = vld1q_f32(st->row_max + lane);
    const float32x4_t block_max = scale_and_mask(s, lanes, keys, visible, scale_log2);
    const float32x4_t new_max = vmaxnmq_f32(old_max, vrndpq_f32(block_max));
    const float32x4_t subtrahend = finite_max(new_max);
    const float32x4_t sum = exponentiate(s, lanes, keys, subtrahend);
    const float32x4_t factor = exp2_v(vsubq_f32(old_max, subtrahend));
    const float32x4_t row_sum = vfmaq_f32(sum, vld1q_f32(st->row_sum + lane), factor);
    vst1q_f32(st->row_sum + lane, row_sum);
    vst1q_f32(st->row_max + lane, new_max);
    vst1q_f32(rescale, factor);
}

void attnkit_neon_softmax(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                          const struct state *st, float *rescale)
{
    for (int lane = 0; lane < lanes; lane += 4) {
        const int32x4_t seen = visible ? vld1q_s32(visible + lane) : vdupq_n_s32(keys);
        softmax_lanes(s + lane, lanes, keys, seen, scale_log2, st, lane, rescale + lane);
    }
}
