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

#include "kernels/vectors/softmax.h"

void attnkit_neon_softmax(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                          const struct state *st, float *rescale)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        const int32x4_t seen = visible ? vld1q_s32(visible + lane) : vdupq_n_s32(keys);
        const floats block_max = scale_and_mask(s + lane, lanes, keys, seen, scale_log2);
        softmax_lanes(s + lane, lanes, keys, block_max, st, lane, rescale + lane);
    }
}
