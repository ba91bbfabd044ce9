/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the scores of a block into weights for AVX2 and AVX-512: s becomes 2^(t - M'), with t = s *
 * scale_log2 and M' = max(M, ceil(max t)). It also updates row_max and row_sum of the state. The
 * first pass over the scores scales and masks them and takes the maximum, for all vectors of lanes
 * at once.
 */
#ifndef ATTNKIT_VECTORS_SOFTMAX_PANEL_H
#define ATTNKIT_VECTORS_SOFTMAX_PANEL_H

#include "kernels/vectors/softmax.h"

/* Replaces s by t. block_max[j] becomes the maximum of t over the visible keys, for vector j of the
 * lanes. */
static inline __attribute__((always_inline)) void
scale_panel(float *s, int keys, const int32_t *visible, float scale_log2, floats block_max[VECTORS],
            const int vectors, const bool masked)
{
    const floats factor = broadcast(scale_log2);
    for (int j = 0; j < vectors; j++)
        block_max[j] = minus_infinity();
    for (int key = 0; key < keys; key++)
        for (int j = 0; j < vectors; j++) {
            float *at = s + (key * vectors + j) * VECTOR;
            const floats t = scale_seen(at, factor, visible + j * VECTOR, key, masked);
            store_aligned(at, t);
            block_max[j] = max_without_nan(t, block_max[j]);
        }
}

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
