/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of tiles of K to binary32, for AVX2 and AVX-512. A step loads one element of all keys.
 * VECTOR elements of VECTOR keys are then transposed into rows. The convert.c of each of the two
 * instruction sets includes this file.
 */
#ifndef ATTNKIT_VECTORS_WIDEN_TILE_H
#define ATTNKIT_VECTORS_WIDEN_TILE_H

#include "kernels/kernels.h"

/* A position in a tile of K: the address of the next element of all keys, and the scales of that
 * element. */
struct tile_reader {
    const char *k;
    const float *scales;
    int64_t group, left; /* elements that share a scale, and elements until the next scale */
    floats scale[TILE_VECTORS];
};

static inline __attribute__((always_inline)) void next_scales(const enum type type,
                                                              struct tile_reader *tile)
{
    const bool apart = type == TYPE_I8;
    for (int j = 0; j < TILE_VECTORS; j++)
        tile->scale[j] = apart ? load_as_f32(TYPE_F32, tile->scales, j * VECTOR, VECTOR)
                               : load_as_f32(TYPE_F16, tile->k, j * VECTOR, VECTOR);
    if (apart)
        tile->scales += TILE_KEYS;
    else
        tile->k += bytes_of(TYPE_F16, TILE_KEYS);
    tile->left = tile->group;
}

/* Loads the next element of all keys, VECTOR keys to an x[j], and multiplies it by its scale. */
static inline __attribute__((always_inline)) void
next_element(const enum type type, struct tile_reader *tile, floats x[TILE_VECTORS])
{
    const bool scaled = type == TYPE_I8 || type == TYPE_Q8_0;
    const enum type stored = type == TYPE_Q8_0 ? TYPE_I8 : type;
    if (scaled && tile->left == 0)
        next_scales(type, tile);
    for (int j = 0; j < TILE_VECTORS; j++) {
        x[j] = load_as_f32(stored, tile->k, j * VECTOR, VECTOR);
        if (scaled)
            x[j] = x[j] * tile->scale[j];
    }
    tile->k += bytes_of(stored, TILE_KEYS);
    tile->left--;
}

/* Widens a tile. A round transposes VECTOR elements of each key. */
static inline __attribute__((always_inline)) void widen_tile(const enum type type, const void *k,
                                                             const float *scales, int64_t group,
                                                             int64_t n, float *out)
{
    struct tile_reader tile = {
        .k = k, .scales = scales, .group = type == TYPE_I8 ? group : Q8_BLOCK};
    for (int64_t d = 0; d < n; d += VECTOR) {
        const int count = n - d < VECTOR ? (int)(n - d) : VECTOR;
        floats x[VECTOR][TILE_VECTORS];
        for (int i = 0; i < VECTOR; i++) {
            for (int j = 0; j < TILE_VECTORS; j++)
                x[i][j] = broadcast(0.0f);
            if (i < count)
                next_element(type, &tile, x[i]);
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

void KERNEL(widen_tile)(enum type type, const void *tile, const float *scales, int64_t group,
                        int64_t n, float *out)
{
    switch (type) {
    case TYPE_F32:
        widen_tile(TYPE_F32, tile, scales, group, n, out);
        break;
    case TYPE_F16:
        widen_tile(TYPE_F16, tile, scales, group, n, out);
        break;
    case TYPE_BF16:
        widen_tile(TYPE_BF16, tile, scales, group, n, out);
        break;
    case TYPE_I8:
        widen_tile(TYPE_I8, tile, scales, group, n, out);
        break;
    case TYPE_Q8_0:
        widen_tile(TYPE_Q8_0, tile, scales, group, n, out);
        break;
    default:
        __builtin_trap();
    }
}

#endif
