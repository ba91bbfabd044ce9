/* SPDX-License-Identifier: Apache-2.0
 *
 * The second pass of softmax over the scores of a panel. The first pass (scale.h, or the softmax.c
 * of NEON) has replaced each score s by t = s * scale_log2, or by -inf where the lane does not see
 * the key. The first pass has also taken the maximum of each lane. The second pass computes the
 * weights of one vector of lanes, some keys at a time, and updates the state. exp2 limits the speed
 * of the second pass.
 */
#ifndef ATTNKIT_VECTORS_SOFTMAX_LANES_H
#define ATTNKIT_VECTORS_SOFTMAX_LANES_H

#include "kernels/kernels.h"

/* Replaces the scores t in s by the weights, for one vector of lanes and `n` keys. Returns `sum`
 * plus the weights. */
static inline __attribute__((always_inline)) floats
weights_step(float *s, int lanes, floats subtrahend, floats sum, const int n)
{
    floats p[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++)
        p[i] = load_aligned(s + i * lanes) - subtrahend;
    exp2_vectors(p, n);
    for (int i = 0; i < n; i++) {
        store_aligned(s + i * lanes, p[i]);
        sum = sum + p[i];
    }
    return sum;
}

static floats weights(float *s, int lanes, int keys, floats subtrahend)
{
    floats sum = broadcast(0.0f);
    int key = 0;
    for (; key + SIDE_BY_SIDE <= keys; key += SIDE_BY_SIDE)
        sum = weights_step(s + key * lanes, lanes, subtrahend, sum, SIDE_BY_SIDE);
    for (; key < keys; key++)
        sum = weights_step(s + key * lanes, lanes, subtrahend, sum, 1);
    return sum;
}

/* Turns the scores t in s into weights, for the vector of lanes that begins at `lane`. Updates
 * row_max and row_sum of these lanes, and sets rescale to the factors of the old sums. s and
 * rescale point at this vector. The arrays of st begin at lane 0. */
static inline __attribute__((always_inline)) void softmax_lanes(float *s, int lanes, int keys,
                                                                floats block_max,
                                                                const struct state *st, int lane,
                                                                float *rescale)
{
    const floats old_max = load_aligned(st->row_max + lane);
    const floats new_max = max_without_nan(ceil_v(block_max), old_max);
    const floats subtrahend = finite_max(new_max);
    const floats factor = exp2_v(old_max - subtrahend);
    const floats sum = weights(s, lanes, keys, subtrahend);
    const floats old_sum = load_aligned(st->row_sum + lane);
    store_aligned(st->row_max + lane, new_max);
    store_aligned(st->row_sum + lane, fma_v(old_sum, factor, sum));
    store_aligned(rescale, factor);
}

#endif
