/* SPDX-License-Identifier: Apache-2.0
 *
 * s[key][lane] = chain over d of fma(k[key][d], q_t[d][lane]): K is read in place, row by row, and
 * an element of it multiplies 12 query rows. Called by prefill.c for a block of keys and a panel.
 *
 * A tile is 6 keys x 3 vectors of lanes. Registers: 18 sums, 6 of K (6 keys x 4 d) and 3 of q_t, 27
 * of 32; 8 keys would leave none to hold their 4 d. 4 d take 72 fmla by element, which bound it
 * (18 sums hide a latency of 4 at 4 a cycle), and 6 + 12 loads.
 */
#include "neon.h"

enum {
    TILE_KEYS = 6,
};

/* One d more for some keys, whose elements are lane `lane` of k. */
static inline __attribute__((always_inline)) void add_d(float32x4_t sum[][VECTORS],
                                                        const float *q_t, const float32x4_t *k,
                                                        const int lane, const int keys,
                                                        const int vectors)
{
    float32x4_t q[VECTORS];
    for (int v = 0; v < vectors; v++)
        q[v] = vld1q_f32(q_t + 4 * v);
    for (int key = 0; key < keys; key++)
        for (int v = 0; v < vectors; v++)
            sum[key][v] = fma_lane(sum[key][v], q[v], k[key], lane);
}

/* n more, 4 or 1, from d on, where q_t is already. */
static inline __attribute__((always_inline)) void add_n_d(float32x4_t sum[][VECTORS],
                                                          const float *q_t, const float *const *row,
                                                          int64_t d, const int n, const int keys,
                                                          const int vectors)
{
    const int lanes = vectors * VECTOR;
    float32x4_t k[TILE_KEYS];
    for (int key = 0; key < keys; key++)
        k[key] = load_n(row[key] + d, n);
    add_d(sum, q_t, k, 0, keys, vectors);
    if (n == 1)
        return;
    add_d(sum, q_t + lanes, k, 1, keys, vectors);
    add_d(sum, q_t + 2 * lanes, k, 2, keys, vectors);
    add_d(sum, q_t + 3 * lanes, k, 3, keys, vectors);
}

/* `keys` keys, 1 .. TILE_KEYS, of which k has the first. */
static inline __attribute__((always_inline)) void
score_tile(const float *q_t, struct rows k, float *s, const int keys, const int vectors)
{
    const int lanes = vectors * VECTOR;
    const float *row[TILE_KEYS];
    float32x4_t sum[TILE_KEYS][VECTORS];
    for (int key = 0; key < keys; key++) {
        row[key] = row_at(k, key);
        for (int v = 0; v < vectors; v++)
            sum[key][v] = vdupq_n_f32(0.0f);
    }
    int64_t d = 0;
    for (; d + 4 <= k.dim; d += 4)
        add_n_d(sum, q_t + d * lanes, row, d, 4, keys, vectors);
    for (; d < k.dim; d++)
        add_n_d(sum, q_t + d * lanes, row, d, 1, keys, vectors);
    for (int key = 0; key < keys; key++)
        for (int v = 0; v < vectors; v++)
            vst1q_f32(s + key * lanes + 4 * v, sum[key][v]);
}

/* The last keys of a block, 0 <= keys < TILE_KEYS. */
static inline __attribute__((always_inline)) void score_tail(const float *q_t, struct rows k,
                                                             float *s, int keys, const int vectors)
{
    switch (keys) {
    case 1:
        score_tile(q_t, k, s, 1, vectors);
        break;
    case 2:
        score_tile(q_t, k, s, 2, vectors);
        break;
    case 3:
        score_tile(q_t, k, s, 3, vectors);
        break;
    case 4:
        score_tile(q_t, k, s, 4, vectors);
        break;
    case 5:
        score_tile(q_t, k, s, 5, vectors);
        break;
    default:
        break;
    }
}

static inline __attribute__((always_inline)) void scores(const float *q_t, struct rows k, int keys,
                                                         float *s, const int vectors)
{
    for (; keys >= TILE_KEYS; keys -= TILE_KEYS) {
        score_tile(q_t, k, s, TILE_KEYS, vectors);
        k.first += TILE_KEYS * k.stride;
        s += TILE_KEYS * vectors * VECTOR;
    }
    score_tail(q_t, k, s, keys, vectors);
}

void attnkit_neon_scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s)
{
    switch (lanes / VECTOR) {
    case 3:
        scores(q_t, *k, keys, s, 3);
        break;
    case 2:
        scores(q_t, *k, keys, s, 2);
        break;
    default:
        scores(q_t, *k, keys, s, 1);
    }
}
