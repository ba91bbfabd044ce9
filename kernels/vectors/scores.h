/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of a panel: s[key][lane] = chain over d of k[key][d] * q_t[d][lane]. This file calls the
 * register tiles one after the other, with the height that panel_height returns as a constant.
 * prefill.c calls `scores` with one panel and one block of keys at a time. weights.c and careful.c
 * call the `scores` of AVX2 and of AVX-512, too. The scores.c of AVX2, of AVX-512 and of the unit
 * avx512+bf16 includes scores_tile.h, which defines scores_tile, and then this file. NEON's
 * scores.c has a loop of its own.
 */
#ifndef ATTNKIT_VECTORS_SCORES_H
#define ATTNKIT_VECTORS_SCORES_H

#include "kernels/kernels.h"

static inline __attribute__((always_inline)) void scores(const float *q_t, const struct rows *k,
                                                         int keys, float *s,
                                                         const struct rows *ahead,
                                                         const int vectors)
{
    int height;
    for (int key = 0; key < keys; key += height) {
        height = panel_height(keys - key, vectors);
        if (MAX_HEIGHT > 8 && vectors == 1 && height == MAX_HEIGHT) {
            scores_tile(q_t, k, key, s, ahead, MAX_HEIGHT, 1);
            continue;
        }
        switch (height) {
        case 8:
            scores_tile(q_t, k, key, s, ahead, 8, vectors);
            break;
        case 7:
            scores_tile(q_t, k, key, s, ahead, 7, vectors);
            break;
        case 6:
            scores_tile(q_t, k, key, s, ahead, 6, vectors);
            break;
        case 5:
            scores_tile(q_t, k, key, s, ahead, 5, vectors);
            break;
        case 4:
            scores_tile(q_t, k, key, s, ahead, 4, vectors);
            break;
        case 3:
            scores_tile(q_t, k, key, s, ahead, 3, vectors);
            break;
        case 2:
            scores_tile(q_t, k, key, s, ahead, 2, vectors);
            break;
        default:
            scores_tile(q_t, k, key, s, ahead, 1, vectors);
        }
    }
}

void KERNEL(scores)(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                    const struct rows *ahead)
{
    switch (lanes / VECTOR) {
    case 4:
        if (VECTORS == 4)
            scores(q_t, k, keys, s, ahead, VECTORS);
        break;
    case 3:
        scores(q_t, k, keys, s, ahead, 3);
        break;
    case 2:
        scores(q_t, k, keys, s, ahead, 2);
        break;
    default:
        scores(q_t, k, keys, s, ahead, 1);
    }
}

#endif
