/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of a panel: o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of
 * p[key][lane] * v[key][c]). Lanes are query rows, and V is read from memory. prefill.c calls
 * weighted_v with one panel and one block of keys at a time, after softmax.
 *
 * A register tile has 8 columns x 3 vectors. 24 sums, 3 vectors of p and 2 of V take 29 of 32
 * registers. Each key takes 24 fmla, which limit the speed, and 5 loads. The last panel of an item
 * may have only 2 vectors, with tiles of 8 x 2, or 1 vector, with tiles of 16 x 1.
 */
#include "kernels/neon/neon.h"

/* Adds the products of one key to the sums of `height` columns of V. row[0] is the first of these
 * columns. 4 columns share a load. */
static inline __attribute__((always_inline)) void add_key(float32x4_t sum[][VECTORS],
                                                          const float *row, const float *p,
                                                          const int height, const int vectors)
{
    const int whole = height / 4 * 4;
    float32x4_t weight[VECTORS];
    for (int j = 0; j < vectors; j++)
        weight[j] = vld1q_f32(p + j * VECTOR);
    for (int i = 0; i < whole; i += 4) {
        const float32x4_t values = vld1q_f32(row + i);
        for (int lane = 0; lane < 4; lane++)
            for (int j = 0; j < vectors; j++)
                sum[i + lane][j] = fma_lane(sum[i + lane][j], weight[j], values, lane);
    }
    for (int i = whole; i < height; i++) {
        const float value = load_scalar(row + i);
        for (int j = 0; j < vectors; j++)
            sum[i][j] = vfmaq_n_f32(sum[i][j], weight[j], value);
    }
}

static inline __attribute__((always_inline)) void
weighted_tile(const float *p, const float *rescale, const struct rows *v, int64_t column, int keys,
              float *o, const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    float32x4_t sum[MAX_HEIGHT][VECTORS];
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = vdupq_n_f32(0.0f);
    for (int key = 0; key < keys; key++)
        add_key(sum, row_at(*v, key) + column, p + key * lanes, height, vectors);
    o += column * lanes;
    if (rescale)
        for (int i = 0; i < height; i++)
            for (int j = 0; j < vectors; j++)
                sum[i][j] = vfmaq_f32(sum[i][j], vld1q_f32(o + i * lanes + j * VECTOR),
                                      vld1q_f32(rescale + j * VECTOR));
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            vst1q_f32(o + i * lanes + j * VECTOR, sum[i][j]);
}

/* Does nothing: no ARM machine was at hand on which prefetching could be measured. */
static inline void prefetch_rows(const struct rows *rows, int64_t first, int64_t end)
{
    (void)rows, (void)first, (void)end;
}

/* Defines attnkit_neon_weighted_v. */
#include "kernels/vectors/weighted_v.h"
