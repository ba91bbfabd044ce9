/* SPDX-License-Identifier: Apache-2.0
 *
 * s[key][lane] = chain over d of k[key][d] * q_t[d][lane]: lanes are query rows, K is broadcast
 * from where it lies. prefill.c calls it for every panel and block of keys.
 *
 * Tile of 6 keys x 4 vectors: 24 accumulators, 4 of q and 1 broadcast are 29 of 32 zmm. Per d it
 * has 24 FMA, bound by the FMA ports at 12 cycles, or 24 where a zmm takes two passes, and 10
 * loads, fewer than half a load per FMA: Ice Lake was seen to sustain 1.1 loads of a zmm per cycle.
 */
#include "avx512.h"

enum {
    TILE_KEYS = 6,
};

static inline __attribute__((always_inline)) void scores_tile(const float *q_t, struct rows k,
                                                              int first, float *s, const int height)
{
    const float *key[TILE_KEYS];
    __m512 acc[TILE_KEYS][VECTORS];
    for (int i = 0; i < height; i++) {
        key[i] = row_at(k, first + i);
        for (int j = 0; j < VECTORS; j++)
            acc[i][j] = _mm512_setzero_ps();
    }
    for (int64_t d = 0; d < k.dim; d++) {
        __m512 q[VECTORS];
        for (int j = 0; j < VECTORS; j++)
            q[j] = _mm512_load_ps(q_t + d * LANES + j * VECTOR);
        for (int i = 0; i < height; i++) {
            const __m512 k_d = _mm512_set1_ps(key[i][d]);
            for (int j = 0; j < VECTORS; j++)
                acc[i][j] = _mm512_fmadd_ps(k_d, q[j], acc[i][j]);
        }
    }
    for (int i = 0; i < height; i++)
        for (int j = 0; j < VECTORS; j++)
            _mm512_store_ps(s + (first + i) * LANES + j * VECTOR, acc[i][j]);
}

void attnkit_avx512_scores(const float *q_t, struct rows k, int keys, float *s)
{
    int height;
    for (int key = 0; key < keys; key += height) {
        height = tile_height(keys - key, TILE_KEYS);
        switch (height) {
        case 6:
            scores_tile(q_t, k, key, s, 6);
            break;
        case 5:
            scores_tile(q_t, k, key, s, 5);
            break;
        case 4:
            scores_tile(q_t, k, key, s, 4);
            break;
        case 3:
            scores_tile(q_t, k, key, s, 3);
            break;
        case 2:
            scores_tile(q_t, k, key, s, 2);
            break;
        default:
            scores_tile(q_t, k, key, s, 1);
        }
    }
}
