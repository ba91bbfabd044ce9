/* SPDX-License-Identifier: Apache-2.0
 *
 * s[key][lane] = chain over d of k[key][d] * q_t[d][lane]: lanes are query rows, K is broadcast
 * from where it lies. prefill.c calls it for every panel and block of keys.
 *
 * Tile of 4 keys x 3 vectors: 12 accumulators, 3 of q and 1 broadcast are 16 ymm. Per d it has 12
 * FMA, bound by the two FMA ports at 6 cycles, and 7 loads; a tile of 6 x 2 has 8, and was 1 to 3 %
 * slower. Rounds of 4 d have little more: 3 instructions a cycle are what a core gives that another
 * thread shares. Narrower panels, the last ones of an item, have 6 x 2 and 8 x 1.
 */
#include "kernels/avx2/avx2.h"

enum {
    UNROLL = 4,      /* dimensions of a round, so that pointers and the end cost little */
    AHEAD_DIMS = 64, /* of K, after which more of `ahead` is asked for */
};

/* Dimension d from `key` on, which is in the first row of the tile. */
static inline __attribute__((always_inline)) void multiply(const float *q_t, const float *key,
                                                           ptrdiff_t stride, const int d,
                                                           __m256 acc[MAX_HEIGHT][VECTORS],
                                                           const int height, const int vectors)
{
    __m256 q[VECTORS];
    for (int j = 0; j < vectors; j++)
        q[j] = _mm256_load_ps(q_t + (d * vectors + j) * VECTOR);
    for (int i = 0; i < height; i++) {
        const float *const row = (const float *)((const char *)key + i * stride);
        const __m256 k_d = _mm256_set1_ps(row[d]);
        for (int j = 0; j < vectors; j++)
            acc[i][j] = multiply_add(k_d, q[j], acc[i][j], height * vectors >= LARGE_TILE);
    }
}

/* So many dimensions from q_t and `key` on. */
static inline __attribute__((always_inline)) void multiply_part(const float *q_t, const float *key,
                                                                ptrdiff_t stride, int64_t dims,
                                                                __m256 acc[MAX_HEIGHT][VECTORS],
                                                                const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    const float *const end = key + dims, *const rounds_end = key + dims / UNROLL * UNROLL;
    for (; key != rounds_end; key += UNROLL, q_t += UNROLL * lanes) {
        multiply(q_t, key, stride, 0, acc, height, vectors);
        multiply(q_t, key, stride, 1, acc, height, vectors);
        multiply(q_t, key, stride, 2, acc, height, vectors);
        multiply(q_t, key, stride, 3, acc, height, vectors);
    }
    for (; key != end; key++, q_t += lanes)
        multiply(q_t, key, stride, 0, acc, height, vectors);
}

static inline __attribute__((always_inline)) void scores_tile(const float *q_t,
                                                              const struct rows *k, int first,
                                                              float *s, const struct rows *ahead,
                                                              const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    const float *const key = row_at(*k, first);
    const int64_t dim = k->dim;
    int64_t asked = 0; /* of the columns of `ahead` */
    __m256 acc[MAX_HEIGHT][VECTORS];
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            acc[i][j] = _mm256_setzero_ps();
    for (int64_t d = 0, end; d < dim; d = end) {
        end = ahead && dim - d > AHEAD_DIMS ? d + AHEAD_DIMS : dim;
        for (; ahead && asked * dim < end * ahead->dim; asked += LINE)
            prefetch(*ahead, first, asked, height);
        multiply_part(q_t + d * lanes, key + d, k->stride, end - d, acc, height, vectors);
    }
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            _mm256_store_ps(s + (first + i) * lanes + j * VECTOR, acc[i][j]);
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

void attnkit_avx2_scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                         const struct rows *ahead)
{
    switch (lanes / VECTOR) {
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
