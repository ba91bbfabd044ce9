/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of a panel: s[key][lane] = chain over d of k[key][d] * q_t[d][lane]. Lanes are query rows,
 * and K is read from memory, an element at a time. prefill.c calls `scores` with one panel and one
 * block of keys at a time. weights.c and careful.c call `scores`, too. In careful.c the lanes are
 * keys.
 *
 * A register tile has 8 keys x 3 vectors. 24 sums, 3 vectors of q and an element of K take 28 of 32
 * registers. Each d takes 24 fmla, which limit the speed, and 11 loads. Loading 4 elements of a key
 * at once would save 6 of these loads, but a tile of 8 keys would then need 35 registers. In
 * smaller tiles gcc would copy sums from register to register. The last panel of an item may have
 * only 2 vectors, with tiles of 8 x 2, or 1 vector, with tiles of 16 x 1. For a tile of 16 x 1, the
 * 17 loads limit the speed on a core that executes fewer loads than fmla in a cycle.
 *
 * This file has its own switch over heights: with the shared switch of kernels/vectors/scores.h,
 * gcc 12 spills sums of the 8 x 3 tile.
 */
#include "kernels/neon/neon.h"

static inline __attribute__((always_inline)) void scores_tile(const float *q_t,
                                                              const struct rows *k, int first,
                                                              float *s, const int height,
                                                              const int vectors)
{
    const int lanes = vectors * VECTOR;
    const float *key[MAX_HEIGHT];
    float32x4_t sum[MAX_HEIGHT][VECTORS];
    for (int i = 0; i < height; i++) {
        key[i] = row_at(*k, first + i);
        for (int j = 0; j < vectors; j++)
            sum[i][j] = vdupq_n_f32(0.0f);
    }
    for (int64_t d = 0; d < k->dim; d++) {
        float32x4_t q[VECTORS];
        for (int j = 0; j < vectors; j++)
            q[j] = vld1q_f32(q_t + d * lanes + j * VECTOR);
        for (int i = 0; i < height; i++) {
            const float k_d = load_scalar(key[i] + d);
            for (int j = 0; j < vectors; j++)
                sum[i][j] = vfmaq_n_f32(sum[i][j], q[j], k_d);
        }
    }
    s += first * lanes;
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            vst1q_f32(s + i * lanes + j * VECTOR, sum[i][j]);
}

static inline __attribute__((always_inline)) void scores(const float *q_t, const struct rows *k,
                                                         int keys, float *s, const int vectors)
{
    int height;
    for (int key = 0; key < keys; key += height) {
        height = panel_height(keys - key, vectors);
        switch (height) {
        case MAX_HEIGHT:
            if (vectors == 1)
                scores_tile(q_t, k, key, s, MAX_HEIGHT, 1);
            break;
        case 8:
            scores_tile(q_t, k, key, s, 8, vectors);
            break;
        case 7:
            scores_tile(q_t, k, key, s, 7, vectors);
            break;
        case 6:
            scores_tile(q_t, k, key, s, 6, vectors);
            break;
        case 5:
            scores_tile(q_t, k, key, s, 5, vectors);
            break;
        case 4:
            scores_tile(q_t, k, key, s, 4, vectors);
            break;
        case 3:
            scores_tile(q_t, k, key, s, 3, vectors);
            break;
        case 2:
            scores_tile(q_t, k, key, s, 2, vectors);
            break;
        default:
            scores_tile(q_t, k, key, s, 1, vectors);
        }
    }
}

void attnkit_neon_scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                         const struct rows *ahead)
{
    (void)ahead; /* no prefetch: no ARM machine was at hand to measure its effect */
    switch (lanes / VECTOR) {
    case 3:
        scores(q_t, k, keys, s, 3);
        break;
    case 2:
        scores(q_t, k, keys, s, 2);
        break;
    default:
        scores(q_t, k, keys, s, 1);
    }
}
