/* SPDX-License-Identifier: Apache-2.0
 *
 * s[key][lane] = chain over d of k[key][d] * q_t[d][lane]: lanes are query rows, K is broadcast
 * from where it lies. prefill.c calls it for every panel and block of keys.
 *
 * Tile of 6 keys x 4 vectors: 24 accumulators, 4 of q and 1 broadcast are 29 of 32 zmm. Per d it
 * has 24 FMA, bound by the FMA ports at 12 cycles, or 24 where a zmm takes two passes, and 10
 * loads, fewer than half a load per FMA: Ice Lake was seen to sustain 1.1 loads of a zmm per cycle.
 * Rounds of 4 d have one instruction more: 3 a cycle are what a core gives that another thread
 * shares. A tile of 7 x 4 or 12 x 2 with broadcasts in the FMA has fewer, and was 10 % slower.
 * Narrower panels, the last ones of an item, have tiles of 8.
 */
#include "kernels/avx512/avx512.h"

enum {
    UNROLL = 4,      /* dimensions of a round, so that pointers and the end cost little */
    AHEAD_DIMS = 64, /* of K, after which more of `ahead` is asked for */
};

/* Dimension d from `key` on, which is in the first row of the tile. */
static inline __attribute__((always_inline)) void multiply(const float *q_t, const float *key,
                                                           ptrdiff_t stride, const int d,
                                                           __m512 acc[MAX_HEIGHT][VECTORS],
                                                           const int height, const int vectors)
{
    __m512 q[VECTORS];
    for (int j = 0; j < vectors; j++)
        q[j] = _mm512_load_ps(q_t + (d * vectors + j) * VECTOR);
    for (int i = 0; i < height; i++) {
        const float *const row = (const float *)((const char *)key + i * stride);
        const __m512 k_d = _mm512_set1_ps(row[d]);
        for (int j = 0; j < vectors; j++)
            acc[i][j] = multiply_add(k_d, q[j], acc[i][j], height * vectors >= LARGE_TILE);
    }
}

/* So many dimensions from q_t and `key` on. */
static inline __attribute__((always_inline)) void multiply_part(const float *q_t, const float *key,
                                                                ptrdiff_t stride, int64_t dims,
                                                                __m512 acc[MAX_HEIGHT][VECTORS],
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
    __m512 acc[MAX_HEIGHT][VECTORS];
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            acc[i][j] = _mm512_setzero_ps();
    for (int64_t d = 0, end; d < dim; d = end) {
        end = ahead && dim - d > AHEAD_DIMS ? d + AHEAD_DIMS : dim;
        for (; ahead && asked * dim < end * ahead->dim; asked += LINE)
            prefetch(*ahead, first, asked, height);
        multiply_part(q_t + d * lanes, key + d, k->stride, end - d, acc, height, vectors);
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
