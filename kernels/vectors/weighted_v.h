/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of a panel: o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of
 * p[key][lane] * v[key][c]). If rescale is NULL, o becomes the chain. `ahead` has rows that are
 * prefetched, or is NULL. This file chooses the heights of the register tiles and their order.
 * prefill.c calls weighted_v after softmax, with one panel and keys of one block. The weighted_v.c
 * of an instruction set defines weighted_tile and prefetch_rows, or takes both from
 * weighted_tile.h, and then includes this file.
 */
#ifndef ATTNKIT_VECTORS_WEIGHTED_V_H
#define ATTNKIT_VECTORS_WEIGHTED_V_H

#include "kernels/kernels.h"

static inline __attribute__((always_inline)) void weighted_v(const float *p, const float *rescale,
                                                             const struct rows *v, int keys,
                                                             float *o, const struct rows *ahead,
                                                             const int vectors)
{
    int height;
    for (int64_t column = 0; column < v->dim; column += height) {
        height = panel_height(v->dim - column, vectors);
        if (ahead)
            prefetch_rows(ahead, column * KEY_BLOCK / v->dim,
                          (column + height) * KEY_BLOCK / v->dim);
        if (MAX_HEIGHT > 8 && vectors == 1 && height == MAX_HEIGHT) {
            weighted_tile(p, rescale, v, column, keys, o, MAX_HEIGHT, 1);
            continue;
        }
        switch (height) {
        case 8:
            weighted_tile(p, rescale, v, column, keys, o, 8, vectors);
            break;
        case 7:
            weighted_tile(p, rescale, v, column, keys, o, 7, vectors);
            break;
        case 6:
            weighted_tile(p, rescale, v, column, keys, o, 6, vectors);
            break;
        case 5:
            weighted_tile(p, rescale, v, column, keys, o, 5, vectors);
            break;
        case 4:
            weighted_tile(p, rescale, v, column, keys, o, 4, vectors);
            break;
        case 3:
            weighted_tile(p, rescale, v, column, keys, o, 3, vectors);
            break;
        case 2:
            weighted_tile(p, rescale, v, column, keys, o, 2, vectors);
            break;
        default:
            weighted_tile(p, rescale, v, column, keys, o, 1, vectors);
        }
    }
}

void KERNEL(weighted_v)(const float *p, int lanes, const float *rescale, const struct rows *v,
                        int keys, float *o, const struct rows *ahead)
{
    switch (lanes / VECTOR) {
    case 4:
        if (VECTORS == 4)
            weighted_v(p, rescale, v, keys, o, ahead, VECTORS);
        break;
    case 3:
        weighted_v(p, rescale, v, keys, o, ahead, 3);
        break;
    case 2:
        weighted_v(p, rescale, v, keys, o, ahead, 2);
        break;
    default:
        weighted_v(p, rescale, v, keys, o, ahead, 1);
    }
}

#endif
