/* SPDX-License-Identifier: Apache-2.0
 *
 * o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of p[key][lane] * v[key][c]): lanes
 * are query rows, V is broadcast from where it lies. prefill.c calls it for every panel and block
 * of keys, after softmax.
 *
 * Tile of 6 columns x 4 vectors: 24 accumulators, 4 of p and 1 broadcast are 29 of 32 zmm. Per key
 * it has 24 FMA, bound by the FMA ports at 12 cycles, or 24 where a zmm takes two passes, and 10
 * loads, fewer than half a load per FMA: Ice Lake was seen to sustain 1.1 loads of a zmm per cycle.
 * Rounds of 4 keys have little more: 3 instructions a cycle are what a core gives that another
 * thread shares.
 * Narrower panels, the last ones of an item, have tiles of 8.
 */
#include "kernels/avx512/avx512.h"

enum {
    UNROLL = 4, /* keys of a round, so that pointers and the end cost little */
};

/* One key, whose part of V is at `line`. */
static inline __attribute__((always_inline)) void multiply(const float *p, const char *line,
                                                           __m512 acc[MAX_HEIGHT][VECTORS],
                                                           const int height, const int vectors)
{
    const float *const values = (const float *)line;
    __m512 weight[VECTORS];
    for (int j = 0; j < vectors; j++)
        weight[j] = _mm512_load_ps(p + j * VECTOR);
    for (int i = 0; i < height; i++) {
        const __m512 value = _mm512_set1_ps(values[i]);
        for (int j = 0; j < vectors; j++)
            acc[i][j] = multiply_add(weight[j], value, acc[i][j], height * vectors >= LARGE_TILE);
    }
}

/* So many keys from p and `line` on. */
static inline __attribute__((always_inline)) void multiply_keys(const float *p, const char *line,
                                                                ptrdiff_t stride, int keys,
                                                                __m512 acc[MAX_HEIGHT][VECTORS],
                                                                const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    const float *const end = p + keys * lanes;
    const float *const rounds_end = p + keys / UNROLL * UNROLL * lanes;
    for (; p != rounds_end; p += UNROLL * lanes, line += UNROLL * stride) {
        multiply(p, line, acc, height, vectors);
        multiply(p + lanes, line + stride, acc, height, vectors);
        multiply(p + 2 * lanes, line + 2 * stride, acc, height, vectors);
        multiply(p + 3 * lanes, line + 3 * stride, acc, height, vectors);
    }
    for (; p != end; p += lanes, line += stride)
        multiply(p, line, acc, height, vectors);
}

static inline __attribute__((always_inline)) void
weighted_tile(const float *p, const float *rescale, const struct rows *v, int64_t column, int keys,
              float *o, const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    __m512 acc[MAX_HEIGHT][VECTORS];
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            acc[i][j] = _mm512_setzero_ps();
    const char *const line = v->first + column * (int64_t)sizeof(float);
    multiply_keys(p, line, v->stride, keys, acc, height, vectors);
    float *const first = o + column * lanes;
    if (rescale)
        for (int i = 0; i < height; i++)
            for (int j = 0; j < vectors; j++)
                acc[i][j] = _mm512_fmadd_ps(_mm512_load_ps(first + i * lanes + j * VECTOR),
                                            _mm512_load_ps(rescale + j * VECTOR), acc[i][j]);
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            _mm512_store_ps(first + i * lanes + j * VECTOR, acc[i][j]);
}

/* Whole rows, in the order of memory, which the hardware then goes on with. */
static inline __attribute__((always_inline)) void prefetch_rows(const struct rows *rows,
                                                                int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++)
        for (int64_t d = 0; d < rows->dim; d += LINE)
            prefetch(*rows, (int)i, d, 1);
}

static inline __attribute__((always_inline)) void weighted_v(const float *p, const float *rescale,
                                                             const struct rows *v, int keys,
                                                             float *o, const struct rows *ahead,
                                                             const int vectors)
{
    const int most = full_height(vectors);
    int height;
    for (int64_t column = 0; column < v->dim; column += height) {
        height = tile_height(v->dim - column, most);
        if (ahead)
            prefetch_rows(ahead, column * KEY_BLOCK / v->dim,
                          (column + height) * KEY_BLOCK / v->dim);
        switch (height) {
        case 8:
            weighted_tile(p, rescale, v, column, keys, o, 8, vectors);
            break;
        case 7:
            weighted_tile(p, rescale, v, column, keys, o, 7, vectors);
            break;
        case 6:
            weighted_tile(p, rescale, v, column, keys, o, 6, vectors);
            break;
        case 5:
            weighted_tile(p, rescale, v, column, keys, o, 5, vectors);
            break;
        case 4:
            weighted_tile(p, rescale, v, column, keys, o, 4, vectors);
            break;
        case 3:
            weighted_tile(p, rescale, v, column, keys, o, 3, vectors);
            break;
        case 2:
            weighted_tile(p, rescale, v, column, keys, o, 2, vectors);
            break;
        default:
            weighted_tile(p, rescale, v, column, keys, o, 1, vectors);
        }
    }
}

void attnkit_avx512_weighted_v(const float *p, int lanes, const float *rescale,
                               const struct rows *v, int keys, float *o, const struct rows *ahead)
{
    switch (lanes / VECTOR) {
    case 4:
        weighted_v(p, rescale, v, keys, o, ahead, 4);
        break;
    case 3:
        weighted_v(p, rescale, v, keys, o, ahead, 3);
        break;
    case 2:
        weighted_v(p, rescale, v, keys, o, ahead, 2);
        break;
    default:
        weighted_v(p, rescale, v, keys, o, ahead, 1);
    }
}
