/* SPDX-License-Identifier: Apache-2.0
 *
 * The register tile of scores for AVX2, AVX-512 and the unit avx512+bf16: `height` keys x `vectors`
 * vectors of query rows, with K broadcast from memory. Each scores.c that includes this file says
 * what limits the speed of the tile. Before the #include, scores.c defines multiply_step(k, q, sum,
 * is_large), or includes a file that defines multiply_step. multiply_step returns sum + k * q. If k
 * and q are words of two elements, multiply_step adds both products to `sum`. `is_large` says that
 * the tile has at least LARGE_TILE accumulators. In this file a dimension is an element, or a word
 * of two elements with avx512+bf16.
 */
#ifndef ATTNKIT_VECTORS_SCORES_TILE_H
#define ATTNKIT_VECTORS_SCORES_TILE_H

#include "kernels/kernels.h"

enum {
    UNROLL = 4,      /* dimensions in a loop body, so that pointers and the loop test cost little */
    AHEAD_DIMS = 64, /* scores_tile prefetches columns of its argument `ahead` before it multiplies
                      * the next AHEAD_DIMS dimensions of K */
};

/* Multiplies dimension d, counted from q_t and from `key`, of all keys of the tile. `key` points
 * into the row of the first key. Rows are `stride` bytes apart. */
static inline __attribute__((always_inline)) void multiply_dim(const float *q_t, const float *key,
                                                               ptrdiff_t stride, const int d,
                                                               floats acc[MAX_HEIGHT][VECTORS],
                                                               const int height, const int vectors)
{
    floats q[VECTORS];
    for (int j = 0; j < vectors; j++)
        q[j] = load_aligned(q_t + (d * vectors + j) * VECTOR);
    for (int i = 0; i < height; i++) {
        const float *const row = (const float *)((const char *)key + i * stride);
        const floats k_d = broadcast(row[d]);
        for (int j = 0; j < vectors; j++)
            acc[i][j] = multiply_step(k_d, q[j], acc[i][j], height * vectors >= LARGE_TILE);
    }
}

/* Multiplies `dims` dimensions. The first dimension is at q_t and at `key`. */
static inline __attribute__((always_inline)) void multiply_dims(const float *q_t, const float *key,
                                                                ptrdiff_t stride, int64_t dims,
                                                                floats acc[MAX_HEIGHT][VECTORS],
                                                                const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    const float *const end = key + dims, *const rounds_end = key + dims / UNROLL * UNROLL;
    for (; key != rounds_end; key += UNROLL, q_t += UNROLL * lanes) {
        multiply_dim(q_t, key, stride, 0, acc, height, vectors);
        multiply_dim(q_t, key, stride, 1, acc, height, vectors);
        multiply_dim(q_t, key, stride, 2, acc, height, vectors);
        multiply_dim(q_t, key, stride, 3, acc, height, vectors);
    }
    for (; key != end; key++, q_t += lanes)
        multiply_dim(q_t, key, stride, 0, acc, height, vectors);
}

static inline __attribute__((always_inline)) void scores_tile(const float *q_t,
                                                              const struct rows *k, int first,
                                                              float *s, const struct rows *ahead,
                                                              const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    const float *const key = row_at(*k, first);
    const int64_t dim = k->dim;
    int64_t asked = 0; /* columns of `ahead` that have been prefetched */
    floats acc[MAX_HEIGHT][VECTORS];
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            acc[i][j] = broadcast(0.0f);
    for (int64_t d = 0, end; d < dim; d = end) {
        end = ahead && dim - d > AHEAD_DIMS ? d + AHEAD_DIMS : dim;
        for (; ahead && asked * dim < end * ahead->dim; asked += LINE)
            prefetch(*ahead, first, asked, height);
        multiply_dims(q_t + d * lanes, key + d, k->stride, end - d, acc, height, vectors);
    }
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            store_aligned(s + (first + i) * lanes + j * VECTOR, acc[i][j]);
}

#endif
