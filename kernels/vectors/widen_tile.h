/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of tiles of K to binary32, for AVX2 and AVX-512. A step loads one element of all keys.
 * After VECTOR steps, or at the end of the tile, the elements are transposed into rows, VECTOR keys
 * at a time. The convert.c of each of the two instruction sets includes this file.
 */
#ifndef ATTNKIT_VECTORS_WIDEN_TILE_H
#define ATTNKIT_VECTORS_WIDEN_TILE_H

#include "kernels/vectors/tile_reader.h"

/* Widens a tile. Each iteration transposes up to VECTOR elements of each key. */
static inline __attribute__((always_inline)) void widen_tile(const enum type type, const void *k,
                                                             const float *scales, int64_t group,
                                                             int64_t n, float *out)
{
    require_built(type);
    struct tile_reader tile = {.data = k, .scales = scales};
    int64_t left = 0; /* elements until the next scales */
    for (int64_t d = 0; d < n; d += VECTOR) {
        const int count = n - d < VECTOR ? (int)(n - d) : VECTOR;
        floats x[VECTOR][TILE_VECTORS];
        for (int i = 0; i < VECTOR; i++) {
            for (int j = 0; j < TILE_VECTORS; j++)
                x[i][j] = broadcast(0.0f);
            if (i < count && is_scaled(type) && left-- == 0) {
                next_scales(type, &tile);
                left = elements_of_scale(type, group, n) - 1;
            }
            if (i < count)
                next_line(type, &tile, x[i]);
        }
        for (int j = 0; j < TILE_VECTORS; j++) {
            floats row[VECTOR];
            for (int i = 0; i < VECTOR; i++)
                row[i] = x[i][j];
            transpose(row);
            for (int i = 0; i < VECTOR; i++)
                store_first(out + (j * VECTOR + i) * n + d, count, row[i]);
        }
    }
}

#endif
