/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the scores of a block into weights. A score s becomes 2^(t - M'), with t = s * scale_log2,
 * or t = -inf where the lane does not see the key. M' is max(M, ceil(max t)), where M is row_max of
 * the state. `softmax` sets row_max to M', updates row_sum, and sets rescale to 2^(M - M'). Lanes
 * are query rows, so that no operation crosses lanes. prefill.c calls `softmax` between scores and
 * weighted_v. heads.c and weights.c call `softmax`, too.
 *
 * Each vector of lanes takes two passes over the keys: the first for the maximum, the second for
 * the weights. The second pass takes some keys at a time, and exp2 limits the speed of this pass.
 */
#include "kernels/neon/neon.h"

/* Replaces each score s by t = s * scale_log2, or by -inf where the lane does not see the key.
 * Returns the maximum of t, which ignores NaN. */
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

#include "kernels/vectors/softmax/lanes.h"

void attnkit_neon_softmax(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                          const struct state *st, float *rescale)
{
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        const int32x4_t seen = visible ? vld1q_s32(visible + lane) : vdupq_n_s32(keys);
        const floats block_max = scale_and_mask(s + lane, lanes, keys, seen, scale_log2);
        softmax_lanes(s + lane, lanes, keys, block_max, st, lane, rescale + lane);
    }
}
