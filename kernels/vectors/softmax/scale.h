/* SPDX-License-Identifier: Apache-2.0
 *
 * The first pass of softmax over the scores of a panel: it multiplies the scores by scale_log2,
 * masks them, and takes the maximum of each lane, for all vectors of lanes at once.
 */
#ifndef ATTNKIT_VECTORS_SOFTMAX_SCALE_H
#define ATTNKIT_VECTORS_SOFTMAX_SCALE_H

#include "kernels/kernels.h"

/* Replaces each score s by t = s * scale_log2, or by -inf where the lane does not see the key.
 * block_max[j] becomes the maximum of t over the visible keys, for vector j of the lanes. NaN does
 * not count. */
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
            floats t = load_aligned(at) * factor;
            if (masked)
                t = select_v(seen_v(visible + j * VECTOR, key), t, minus_infinity());
            store_aligned(at, t);
            block_max[j] = max_without_nan(t, block_max[j]);
        }
}

#endif
