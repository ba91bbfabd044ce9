/* SPDX-License-Identifier: Apache-2.0
 *
 * s[key][lane] = chain over d of k[key][d] * q_t[d][lane]: lanes are query rows, K is broadcast
 * from where it lies. prefill.c calls it for every panel and block of keys.
 *
 * Tile of 6 keys x 2 vectors: 12 accumulators, 2 of q and 1 broadcast are 15 of 16 ymm. Per d it
 * has 12 FMA, bound by the two FMA ports at 6 cycles, and 8 loads. A tile of 4 x 3 is as fast, but
 * panels of 24 rows fit the usual lengths worse than those of 16.
 */
#include "avx2.h"

enum {
    TILE_KEYS = 6,
};

static inline __attribute__((always_inline)) void scores_tile(const float *q_t, struct rows k,
                                                              int first, float *s, const int height)
{
    const float *key[TILE_KEYS];
    __m256 acc[TILE_KEYS][VECTORS];
    for (int i = 0; i < height; i++) {
        key[i] = row_at(k, first + i);
        for (int j = 0; j < VECTORS; j++)
            acc[i][j] = _mm256_setzero_ps();
    }
    for (int64_t d = 0; d < k.dim; d++) {
        __m256 q[VECTORS];
        for (int j = 0; j < VECTORS; j++)
            q[j] = _mm256_load_ps(q_t + d * LANES + j * VECTOR);
        for (int i = 0; i < height; i++) {
            const __m256 k_d = _mm256_broadcast_ss(key[i] + d);
            for (int j = 0; j < VECTORS; j++)
                acc[i][j] = _mm256_fmadd_ps(k_d, q[j], acc[i][j]);
        }
    }
    for (int i = 0; i < height; i++)
        for (int j = 0; j < VECTORS; j++)
            _mm256_store_ps(s + (first + i) * LANES + j * VECTOR, acc[i][j]);
}

void attnkit_avx2_scores(const float *q_t, struct rows k, int keys, float *s)
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
