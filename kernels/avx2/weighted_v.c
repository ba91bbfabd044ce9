/* SPDX-License-Identifier: Apache-2.0
 *
 * o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of p[key][lane] * v[key][c]): lanes
 * are query rows, V is broadcast from where it lies. prefill.c calls it for every panel and block
 * of keys, after softmax.
 *
 * Tile of 6 columns x 2 vectors: 12 accumulators, 2 of p and 1 broadcast are 15 of 16 ymm. Per key
 * it has 12 FMA, bound by the two FMA ports at 6 cycles, and 8 loads. A tile of 4 x 3 is as fast,
 * but panels of 24 rows fit the usual lengths worse than those of 16.
 */
#include "avx2.h"

enum {
    TILE_COLUMNS = 6,
};

static inline __attribute__((always_inline)) void weighted_tile(const float *p,
                                                                const float *rescale, struct rows v,
                                                                int64_t column, int keys, float *o,
                                                                const int height)
{
    __m256 acc[TILE_COLUMNS][VECTORS];
    for (int i = 0; i < height; i++)
        for (int j = 0; j < VECTORS; j++)
            acc[i][j] = _mm256_setzero_ps();
    for (int key = 0; key < keys; key++) {
        const float *values = row_at(v, key) + column;
        __m256 weight[VECTORS];
        for (int j = 0; j < VECTORS; j++)
            weight[j] = _mm256_load_ps(p + key * LANES + j * VECTOR);
        for (int i = 0; i < height; i++) {
            const __m256 value = _mm256_broadcast_ss(values + i);
            for (int j = 0; j < VECTORS; j++)
                acc[i][j] = _mm256_fmadd_ps(weight[j], value, acc[i][j]);
        }
    }
    for (int i = 0; i < height; i++)
        for (int j = 0; j < VECTORS; j++) {
            float *at = o + (column + i) * LANES + j * VECTOR;
            const __m256 factor = _mm256_load_ps(rescale + j * VECTOR);
            _mm256_store_ps(at, _mm256_fmadd_ps(_mm256_load_ps(at), factor, acc[i][j]));
        }
}

void attnkit_avx2_weighted_v(const float *p, const float *rescale, struct rows v, int keys,
                             float *o)
{
    int height;
    for (int64_t column = 0; column < v.dim; column += height) {
        height = tile_height(v.dim - column, TILE_COLUMNS);
        switch (height) {
        case 6:
            weighted_tile(p, rescale, v, column, keys, o, 6);
            break;
        case 5:
            weighted_tile(p, rescale, v, column, keys, o, 5);
            break;
        case 4:
            weighted_tile(p, rescale, v, column, keys, o, 4);
            break;
        case 3:
            weighted_tile(p, rescale, v, column, keys, o, 3);
            break;
        case 2:
            weighted_tile(p, rescale, v, column, keys, o, 2);
            break;
        default:
            weighted_tile(p, rescale, v, column, keys, o, 1);
        }
    }
}
