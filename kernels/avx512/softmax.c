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

#include "kernels/avx512/avx512.h"

/* t in place of s; block_max[j] its maximum over the visible keys, in vector j of the lanes. */
static inline __attribute__((always_inline)) void scale(float *s, int keys, const int32_t *visible,
                                                        float scale_log2, __m512 block_max[VECTORS],
                                                        const int vectors, const bool masked)
{
    const __m512 factor = _mm512_set1_ps(scale_log2);
    for (int j = 0; j < vectors; j++)
        block_max[j] = minus_infinity();
    for (int key = 0; key < keys; key++)
        for (int j = 0; j < vectors; j++) {
            float *at = s + (key * vectors + j) * VECTOR;
            __mmask16 seen = 0xffff;
            if (masked)
                seen = _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(visible + j * VECTOR),
                                               _mm512_set1_epi32(key));
            const __m512 t = _mm512_mask_mul_ps(minus_infinity(), seen, _mm512_load_ps(at), factor);
            _mm512_store_ps(at, t);
            /* This order of operands drops a NaN in t. */
            block_max[j] = _mm512_max_ps(t, block_max[j]);
        }
}

/* The weights of one vector of lanes and `n` keys in place of t, added to their sum. */
static inline __attribute__((always_inline)) __m512
weights_step(float *s, int lanes, __m512 subtrahend, __m512 sum, const int n)
{
    __m512 p[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++)
        p[i] = _mm512_sub_ps(_mm512_load_ps(s + i * lanes), subtrahend);
    exp2_vectors(p, n);
    for (int i = 0; i < n; i++) {
        _mm512_store_ps(s + i * lanes, p[i]);
        sum = _mm512_add_ps(sum, p[i]);
    }
    return sum;
}

static __m512 weights(float *s, int lanes, int keys, __m512 subtrahend)
{
    __m512 sum = _mm512_setzero_ps();
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
    __m512 block_max[VECTORS];
    if (visible)
        scale(s, keys, visible, scale_log2, block_max, vectors, true);
    else
        scale(s, keys, NULL, scale_log2, block_max, vectors, false);
    for (int j = 0; j < vectors; j++) {
        const int lane = j * VECTOR;
        const __m512 old_max = _mm512_load_ps(st->row_max + lane);
        const __m512 new_max = _mm512_max_ps(ceil_v(block_max[j]), old_max);
        const __m512 subtrahend = finite_max(new_max);
        const __m512 factor = exp2_v(_mm512_sub_ps(old_max, subtrahend));
        const __m512 sum = weights(s + lane, vectors * VECTOR, keys, subtrahend);
        const __m512 old_sum = _mm512_load_ps(st->row_sum + lane);
        _mm512_store_ps(st->row_max + lane, new_max);
        _mm512_store_ps(st->row_sum + lane, _mm512_fmadd_ps(old_sum, factor, sum));
        _mm512_store_ps(rescale + lane, factor);
    }
}

void attnkit_avx512_softmax(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                            const struct state *st, float *rescale)
{
    switch (lanes / VECTOR) {
    case 4:
        softmax(s, keys, visible, scale_log2, st, rescale, 4);
        break;
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
