/* SPDX-License-Identifier: Apache-2.0
 *
 * The register tile of weighted V for AVX2 and AVX-512: `height` value columns x `vectors` vectors
 * of query rows, with V broadcast from memory. The weighted_v.c of each of the two instruction sets
 * says which instructions limit the speed of the tile.
 */
#ifndef ATTNKIT_VECTORS_WEIGHTED_TILE_H
#define ATTNKIT_VECTORS_WEIGHTED_TILE_H

#include "kernels/kernels.h"

enum {
    UNROLL = 4, /* keys in a loop body, so that pointers and the loop test cost little */
};

/* Adds the products of one key to the sums acc. p points to the weights of the key, and `line` to
 * the tile's columns in the key's row of V. */
static inline __attribute__((always_inline)) void multiply_key(const float *p, const char *line,
                                                               floats acc[MAX_HEIGHT][VECTORS],
                                                               const int height, const int vectors)
{
    const float *const values = (const float *)line;
    floats weight[VECTORS];
    for (int j = 0; j < vectors; j++)
        weight[j] = load_aligned(p + j * VECTOR);
    for (int i = 0; i < height; i++) {
        const floats value = broadcast(values[i]);
        for (int j = 0; j < vectors; j++)
            acc[i][j] = multiply_add(weight[j], value, acc[i][j], height * vectors >= LARGE_TILE);
    }
}

/* Adds the products of `keys` keys to acc. p points to the weights of the first key, and `line` to
 * the tile's columns in the first key's row of V. */
static inline __attribute__((always_inline)) void multiply_keys(const float *p, const char *line,
                                                                ptrdiff_t stride, int keys,
                                                                floats acc[MAX_HEIGHT][VECTORS],
                                                                const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    const float *const end = p + keys * lanes;
    const float *const rounds_end = p + keys / UNROLL * UNROLL * lanes;
    for (; p != rounds_end; p += UNROLL * lanes, line += UNROLL * stride) {
        multiply_key(p, line, acc, height, vectors);
        multiply_key(p + lanes, line + stride, acc, height, vectors);
        multiply_key(p + 2 * lanes, line + 2 * stride, acc, height, vectors);
        multiply_key(p + 3 * lanes, line + 3 * stride, acc, height, vectors);
    }
    for (; p != end; p += lanes, line += stride)
        multiply_key(p, line, acc, height, vectors);
}

static inline __attribute__((always_inline)) void
weighted_tile(const float *p, const float *rescale, const struct rows *v, int64_t column, int keys,
              float *o, const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    floats acc[MAX_HEIGHT][VECTORS];
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            acc[i][j] = broadcast(0.0f);
    const char *const line = v->first + column * (int64_t)sizeof(float);
    multiply_keys(p, line, v->stride, keys, acc, height, vectors);
    float *const first = o + column * lanes;
    if (rescale)
        for (int i = 0; i < height; i++)
            for (int j = 0; j < vectors; j++)
                acc[i][j] = fma_v(load_aligned(first + i * lanes + j * VECTOR),
                                  load_aligned(rescale + j * VECTOR), acc[i][j]);
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            store_aligned(first + i * lanes + j * VECTOR, acc[i][j]);
}

/* Prefetches rows `first` .. end - 1, whole and in the order of memory, so that the hardware
 * prefetcher takes over. */
static inline __attribute__((always_inline)) void prefetch_rows(const struct rows *rows,
                                                                int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        for (int64_t d = 0; d < rows->dim; d += LINE)
            prefetch(*rows, (int)i, d, 1);
}

#endif
