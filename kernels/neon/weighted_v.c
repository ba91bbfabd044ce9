/* SPDX-License-Identifier: Apache-2.0
 *
 * o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of fma(p[key][lane], v[key][c])): V
 * is read in place, and an element of it multiplies 12 query rows. Called by prefill.c after
 * softmax.
 *
 * A tile is 8 value columns x 3 vectors of lanes. Registers: 24 sums, 2 of V and 3 of p, 29 of 32.
 * A key takes 24 fmla by element, which bound it, and 5 loads.
 */
#include "neon.h"

enum {
    TILE_COLUMNS = 8,
};

/* `columns` columns, 1 .. TILE_COLUMNS, of which v has the first. */
static inline __attribute__((always_inline)) void v_tile(const float *p, const float *rescale,
                                                         struct rows v, int keys, float *o,
                                                         const int columns, const int vectors)
{
    const int lanes = vectors * VECTOR;
    float32x4_t sum[TILE_COLUMNS][VECTORS];
    for (int c = 0; c < columns; c++)
        for (int i = 0; i < vectors; i++)
            sum[c][i] = vdupq_n_f32(0.0f);
    for (int key = 0; key < keys; key++) {
        const float *row = row_at(v, key);
        float32x4_t v_4[TILE_COLUMNS / 4], p_4[VECTORS];
        for (int c = 0; c < columns; c += 4)
            v_4[c / 4] = load_n(row + c, lanes_at(c, columns));
        for (int i = 0; i < vectors; i++)
            p_4[i] = vld1q_f32(p + key * lanes + 4 * i);
        for (int c = 0; c < columns; c++)
            for (int i = 0; i < vectors; i++)
                sum[c][i] = fma_lane(sum[c][i], p_4[i], v_4[c / 4], c % 4);
    }
    for (int c = 0; c < columns; c++)
        for (int i = 0; i < vectors; i++) {
            float *at = o + c * lanes + 4 * i;
            if (rescale)
                sum[c][i] = vfmaq_f32(sum[c][i], vld1q_f32(at), vld1q_f32(rescale + 4 * i));
            vst1q_f32(at, sum[c][i]);
        }
}

/* The last columns of a row, 0 <= columns < TILE_COLUMNS. */
static inline __attribute__((always_inline)) void v_tail(const float *p, const float *rescale,
                                                         struct rows v, int keys, float *o,
                                                         int64_t columns, const int vectors)
{
    switch (columns) {
    case 1:
        v_tile(p, rescale, v, keys, o, 1, vectors);
        break;
    case 2:
        v_tile(p, rescale, v, keys, o, 2, vectors);
        break;
    case 3:
        v_tile(p, rescale, v, keys, o, 3, vectors);
        break;
    case 4:
        v_tile(p, rescale, v, keys, o, 4, vectors);
        break;
    case 5:
        v_tile(p, rescale, v, keys, o, 5, vectors);
        break;
    case 6:
        v_tile(p, rescale, v, keys, o, 6, vectors);
        break;
    case 7:
        v_tile(p, rescale, v, keys, o, 7, vectors);
        break;
    default:
        break;
    }
}

static inline __attribute__((always_inline)) void weighted_v(const float *p, const float *rescale,
                                                             struct rows v, int keys, float *o,
                                                             const int vectors)
{
    int64_t columns = v.dim;
    for (; columns >= TILE_COLUMNS; columns -= TILE_COLUMNS) {
        v_tile(p, rescale, v, keys, o, TILE_COLUMNS, vectors);
        v.first += TILE_COLUMNS * sizeof(float);
        o += TILE_COLUMNS * vectors * VECTOR;
    }
    v_tail(p, rescale, v, keys, o, columns, vectors);
}

void attnkit_neon_weighted_v(const float *p, int lanes, const float *rescale, const struct rows *v,
                             int keys, float *o)
{
    switch (lanes / VECTOR) {
    case 3:
        weighted_v(p, rescale, *v, keys, o, 3);
        break;
    case 2:
        weighted_v(p, rescale, *v, keys, o, 2);
        break;
    default:
        weighted_v(p, rescale, *v, keys, o, 1);
    }
}
