/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the scores of a block into weights for AVX2 and AVX-512. A score s becomes 2^(t - M'), with
 * t = s * scale_log2, or -inf where the lane does not see the key. M' is max(M, ceil(max t)), where
 * M is row_max of the state. `softmax` sets row_max to M', updates row_sum, and sets rescale to
 * 2^(M - M'). A first pass multiplies the scores by scale_log2, masks them and takes the maximum,
 * for all vectors of lanes at once. A second pass, for one vector of lanes at a time, computes the
 * weights.
 */
#ifndef ATTNKIT_VECTORS_SOFTMAX_PANEL_H
#define ATTNKIT_VECTORS_SOFTMAX_PANEL_H

#include "kernels/vectors/softmax/scale.h"
#include "kernels/vectors/softmax/lanes.h"

static inline __attribute__((always_inline)) void softmax(float *s, int keys,
                                                          const int32_t *visible, float scale_log2,
                                                          const struct state *st, float *rescale,
                                                          const int vectors)
{
    floats block_max[VECTORS];
    if (visible)
        scale_panel(s, keys, visible, scale_log2, block_max, vectors, true);
    else
        scale_panel(s, keys, NULL, scale_log2, block_max, vectors, false);
    for (int j = 0; j < vectors; j++)
        softmax_lanes(s + j * VECTOR, vectors * VECTOR, keys, block_max[j], st, j * VECTOR,
                      rescale + j * VECTOR);
}

void KERNEL(softmax)(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                     const struct state *st, float *rescale)
{
    const int vectors = lanes / VECTOR;
    if (vectors == VECTORS)
        softmax(s, keys, visible, scale_log2, st, rescale, VECTORS);
    else if (VECTORS > 3 && vectors == 3)
        softmax(s, keys, visible, scale_log2, st, rescale, 3);
    else if (vectors == 2)
        softmax(s, keys, visible, scale_log2, st, rescale, 2);
    else
        softmax(s, keys, visible, scale_log2, st, rescale, 1);
}

#endif
