/* SPDX-License-Identifier: Apache-2.0
 *
 * s[key][lane] = chain over d of k[key][d] * q_t[d][lane]: lanes are query rows, K is broadcast
 * from where it lies. prefill.c calls it for every panel and block of keys.
 *
 * Tile of 6 keys x 4 vectors: 24 accumulators, 4 of q and 1 broadcast are 29 of 32 zmm. Per d it
 * has 24 FMA, bound by the FMA ports at 12 cycles, or 24 where a zmm takes two passes, and 10
 * loads, fewer than half a load per FMA: Ice Lake was seen to sustain 1.1 loads of a zmm per cycle.
 * Narrower panels, the last ones of an item, have tiles of 8.
 */
#include "avx512.h"

enum {
    AHEAD_DIMS = 64, /* of K, after which more of `ahead` is asked for */
};

/* While dimensions d .. end - 1 of K are worked on, the same part of the lines of `ahead`. */
static inline __attribute__((always_inline)) void prefetch_part(const struct rows *ahead, int first,
                                                                int64_t d, int64_t end, int64_t dim,
                                                                const int height)
{
    for (int64_t c = d * ahead->dim / dim / LINE * LINE; c * dim < end * ahead->dim; c += LINE)
        prefetch(*ahead, first, c, height);
}

static inline __attribute__((always_inline)) void scores_tile(const float *q_t,
                                                              const struct rows *k, int first,
                                                              float *s, const struct rows *ahead,
                                                              const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    const float *key[MAX_HEIGHT];
    __m512 acc[MAX_HEIGHT][VECTORS];
    for (int i = 0; i < height; i++) {
        key[i] = row_at(*k, first + i);
        for (int j = 0; j < vectors; j++)
            acc[i][j] = _mm512_setzero_ps();
    }
    const int64_t dim = k->dim;
    for (int64_t first_d = 0, end; first_d < dim; first_d = end) {
        end = ahead && first_d + AHEAD_DIMS < dim ? first_d + AHEAD_DIMS : dim;
        if (ahead)
            prefetch_part(ahead, first, first_d, end, dim, height);
        for (int64_t d = first_d; d < end; d++) {
            __m512 q[VECTORS];
            for (int j = 0; j < vectors; j++)
                q[j] = _mm512_load_ps(q_t + d * lanes + j * VECTOR);
            for (int i = 0; i < height; i++) {
                const __m512 k_d = _mm512_set1_ps(key[i][d]);
                for (int j = 0; j < vectors; j++)
                    acc[i][j] = _mm512_fmadd_ps(k_d, q[j], acc[i][j]);
            }
        }
    }
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            _mm512_store_ps(s + (first + i) * lanes + j * VECTOR, acc[i][j]);
}

static inline __attribute__((always_inline)) void scores(const float *q_t, const struct rows *k,
                                                         int keys, float *s,
                                                         const struct rows *ahead,
                                                         const int vectors)
{
    const int most = full_height(vectors);
    int height;
    for (int key = 0; key < keys; key += height) {
        height = tile_height(keys - key, most);
        switch (height) {
        case 8:
            scores_tile(q_t, k, key, s, ahead, 8, vectors);
            break;
        case 7:
            scores_tile(q_t, k, key, s, ahead, 7, vectors);
            break;
        case 6:
            scores_tile(q_t, k, key, s, ahead, 6, vectors);
            break;
        case 5:
            scores_tile(q_t, k, key, s, ahead, 5, vectors);
            break;
        case 4:
            scores_tile(q_t, k, key, s, ahead, 4, vectors);
            break;
        case 3:
            scores_tile(q_t, k, key, s, ahead, 3, vectors);
            break;
        case 2:
            scores_tile(q_t, k, key, s, ahead, 2, vectors);
            break;
        default:
            scores_tile(q_t, k, key, s, ahead, 1, vectors);
        }
    }
}

void attnkit_avx512_scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                           const struct rows *ahead)
{
    switch (lanes / VECTOR) {
    case 4:
        scores(q_t, k, keys, s, ahead, 4);
        break;
    case 3:
        scores(q_t, k, keys, s, ahead, 3);
        break;
    case 2:
        scores(q_t, k, keys, s, ahead, 2);
        break;
    default:
        scores(q_t, k, keys, s, ahead, 1);
    }
}
