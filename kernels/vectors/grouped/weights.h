/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry pack_weights of struct grouped_kernels: divides the weights of each row by the largest
 * weight of the row in the block, and splits the quotients into bf16. The grouped.c of an
 * instruction set includes this file after it has defined ELEMENTS, to_bf16 and store_quad.
 */
#ifndef ATTNKIT_VECTORS_GROUPED_WEIGHTS_H
#define ATTNKIT_VECTORS_GROUPED_WEIGHTS_H

#include "kernels/kernels.h"

/* Returns the largest weight of each lane of a vector, at least LEAST_PEAK and at most 1. A NaN
 * does not count. */
static inline __attribute__((always_inline)) floats largest_of(const float *p, int lanes, int keys)
{
    const floats one = broadcast(1.0f);
    floats largest = broadcast(LEAST_PEAK);
    for (int key = 0; key < keys; key++)
        largest = max_without_nan(load_aligned(p + key * lanes), largest);
    return select_v(less_v(largest, one), largest, one);
}

/* Splits the quotients of one key into parts. Returns the sum of the parts. */
static inline __attribute__((always_inline)) floats split_weight(floats p, bool is_short,
                                                                 floats *high, floats *low)
{
    p = select_v(less_v(p, broadcast(LEAST_WEIGHT)), broadcast(0.0f), p);
    *high = to_bf16(p);
    *low = broadcast(0.0f);
    if (is_short)
        return *high;
    *low = to_bf16(p - *high);
    return *high + *low;
}

/* Makes the parts of a quad of keys for a vector of lanes. Returns `sum` plus the parts of the
 * first `keys` keys. */
static inline __attribute__((always_inline)) floats pack_lanes(const float *p, int lanes, int keys,
                                                               floats factor, bool is_short,
                                                               float *high_words, floats sum)
{
    floats high[QUAD_ELEMENTS], low[QUAD_ELEMENTS];
    for (int i = 0; i < QUAD_ELEMENTS; i++) {
        if (i >= keys) {
            high[i] = low[i] = broadcast(0.0f);
            continue;
        }
        sum = sum + split_weight(load_aligned(p + i * lanes) * factor, is_short, &high[i], &low[i]);
    }
    store_quad(high_words, lanes, high);
    if (!is_short)
        store_quad(high_words + KEY_BLOCK / ELEMENTS * lanes, lanes, low);
    return sum;
}

static inline __attribute__((always_inline)) void pack_panel(const float *p, int keys,
                                                             bool is_short, const float *rescale,
                                                             float *row_sum, float *largest,
                                                             float *parts, const int vectors)
{
    const int lanes = vectors * VECTOR;
    floats sum[VECTORS], factor[VECTORS];
    for (int j = 0; j < vectors; j++) {
        const floats most = largest_of(p + j * VECTOR, lanes, keys);
        store_aligned(largest + j * VECTOR, most);
        factor[j] = broadcast(1.0f) / most;
        sum[j] = broadcast(0.0f);
    }
    int key = 0;
    for (; key + QUAD_ELEMENTS <= keys; key += QUAD_ELEMENTS)
        for (int j = 0; j < vectors; j++)
            sum[j] = pack_lanes(p + key * lanes + j * VECTOR, lanes, QUAD_ELEMENTS, factor[j],
                                is_short, parts + key / ELEMENTS * lanes + j * VECTOR, sum[j]);
    for (int j = 0; j < vectors && key < keys; j++)
        sum[j] = pack_lanes(p + key * lanes + j * VECTOR, lanes, keys - key, factor[j], is_short,
                            parts + key / ELEMENTS * lanes + j * VECTOR, sum[j]);
    for (int j = 0; j < vectors; j++) {
        float *const to = row_sum + j * VECTOR;
        store_aligned(to, fma_v(sum[j], load_aligned(largest + j * VECTOR),
                                load_aligned(to) * load_aligned(rescale + j * VECTOR)));
    }
}

static void pack_weights(const float *p, int lanes, int keys, bool is_short, const float *rescale,
                         float *row_sum, float *largest, float *parts)
{
    require_built(TYPE_BF16);
    switch (lanes / VECTOR) {
    case 4:
        if (VECTORS == 4)
            pack_panel(p, keys, is_short, rescale, row_sum, largest, parts, VECTORS);
        break;
    case 3:
        pack_panel(p, keys, is_short, rescale, row_sum, largest, parts, 3);
        break;
    case 2:
        pack_panel(p, keys, is_short, rescale, row_sum, largest, parts, 2);
        break;
    default:
        pack_panel(p, keys, is_short, rescale, row_sum, largest, parts, 1);
    }
}

#endif
