/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of a block to weights: t = s * scale_log2, s = 2^(t - M') with M' = max(M, ceil(max t)),
 * and the row_max and row_sum of the state moved on. Lanes are query rows, so that nothing is
 * horizontal. prefill.c calls it between scores and weighted V.
 *
 * The first walk scales, masks and takes the maximum, with a chain per vector of lanes; the second
 * takes the powers, some keys of one vector of lanes at a time, and is bound by exp2.
 */
#include <stdbool.h>

#include "kernels/avx2/avx2.h"

/* t in place of s; block_max[j] its maximum over the visible keys, in vector j of the lanes. */
static inline __attribute__((always_inline)) void scale(float *s, int keys, const int32_t *visible,
                                                        float scale_log2, __m256 block_max[VECTORS],
                                                        const int vectors, const bool masked)
{
    const __m256 factor = _mm256_set1_ps(scale_log2);
    for (int j = 0; j < vectors; j++)
        block_max[j] = minus_infinity();
    for (int key = 0; key < keys; key++)
        for (int j = 0; j < vectors; j++) {
            float *at = s + (key * vectors + j) * VECTOR;
            __m256 t = _mm256_mul_ps(_mm256_load_ps(at), factor);
            if (masked) {
                const __m256i end = _mm256_loadu_si256((const __m256i_u *)(visible + j * VECTOR));
                const __m256i seen = _mm256_cmpgt_epi32(end, _mm256_set1_epi32(key));
                t = _mm256_blendv_ps(minus_infinity(), t, _mm256_castsi256_ps(seen));
            }
            _mm256_store_ps(at, t);
            /* This order of operands drops a NaN in t. */
            block_max[j] = _mm256_max_ps(t, block_max[j]);
        }
}

/* The weights of one vector of lanes and `n` keys in place of t, added to their sum. */
static inline __attribute__((always_inline)) __m256
weights_step(float *s, int lanes, __m256 subtrahend, __m256 sum, const int n)
{
    __m256 p[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++)
        p[i] = _mm256_sub_ps(_mm256_load_ps(s + i * lanes), subtrahend);
    exp2_vectors(p, n);
    for (int i = 0; i < n; i++) {
        _mm256_store_ps(s + i * lanes, p[i]);
        sum = _mm256_add_ps(sum, p[i]);
    }
    return sum;
}

static __m256 weights(float *s, int lanes, int keys, __m256 subtrahend)
{
    __m256 sum = _mm256_setzero_ps();
    int key = 0;
    for (; key + SIDE_BY_SIDE <= keys; key += SIDE_BY_SIDE)
        sum = weights_step(s + key * lanes, lanes, subtrahend, sum, SIDE_BY_SIDE);
    for (; key < keys; key++)
        sum = weights_step(s + key * lanes, lanes, subtrahend, sum, 1);
    return sum;
}

static inline __attribute__((always_inline)) void softmax(float *s, int keys,
                                                          const int32_t *visible, float scale_log2,
                                                          const struct state *st, float *rescale,
                                                          const int vectors)
{
    __m256 block_max[VECTORS];
    if (visible)
        scale(s, keys, visible, scale_log2, block_max, vectors, true);
    else
        scale(s, keys, NULL, scale_log2, block_max, vectors, false);
    for (int j = 0; j < vectors; j++) {
        const int lane = j * VECTOR;
        const __m256 old_max = _mm256_load_ps(st->row_max + lane);
        const __m256 new_max = _mm256_max_ps(_mm256_ceil_ps(block_max[j]), old_max);
        const __m256 subtrahend = finite_max(new_max);
        const __m256 factor = exp2_v(_mm256_sub_ps(old_max, subtrahend));
        const __m256 sum = weights(s + lane, vectors * VECTOR, keys, subtrahend);
        const __m256 old_sum = _mm256_load_ps(st->row_sum + lane);
        _mm256_store_ps(st->row_max + lane, new_max);
        _mm256_store_ps(st->row_sum + lane, _mm256_fmadd_ps(old_sum, factor, sum));
        _mm256_store_ps(rescale + lane, factor);
    }
}

void attnkit_avx2_softmax(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                          const struct state *st, float *rescale)
{
    switch (lanes / VECTOR) {
    case 3:
        softmax(s, keys, visible, scale_log2, st, rescale, 3);
        break;
    case 2:
        softmax(s, keys, visible, scale_log2, st, rescale, 2);
        break;
    default:
        softmax(s, keys, visible, scale_log2, st, rescale, 1);
    }
}
