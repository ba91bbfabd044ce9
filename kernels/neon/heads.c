/* SPDX-License-Identifier: Apache-2.0
 *
 * Many heads with few rows and keys: scores with heads in the lanes, and the result of one head,
 * out = (chain over keys of fma(p, v, .)) / l + 0, with value columns in the lanes. Called by
 * heads.c of the parent folder.
 *
 * Scores: 1 to 3 keys by 1 to 3 rows, at most 9 sums, 3 of q and 1 of k in 13 of 32 registers;
 * bound by fmla. Result: 1 to 3 rows by up to 4 vectors of columns: at most 12 sums, V as it comes;
 * bound by the division.
 */
#include "kernels/neon/neon.h"

enum {
    MAX_SIDE = LANES / VECTOR, /* rows or keys of a tile */
    MAX_COLUMNS = 4,           /* vectors of value columns in a tile */
};

static inline __attribute__((always_inline)) void score_tile(const float *q_t, const float *k_t,
                                                             int64_t head_dim, float *s,
                                                             const int rows, const int keys)
{
    float32x4_t sum[MAX_SIDE][MAX_SIDE];
    for (int key = 0; key < keys; key++)
        for (int r = 0; r < rows; r++)
            sum[key][r] = vdupq_n_f32(0.0f);
    for (int64_t d = 0; d < head_dim; d++, q_t += rows * VECTOR, k_t += keys * VECTOR)
        for (int key = 0; key < keys; key++)
            for (int r = 0; r < rows; r++)
                sum[key][r] = vfmaq_f32(sum[key][r], vld1q_f32(k_t + key * VECTOR),
                                        vld1q_f32(q_t + r * VECTOR));
    for (int key = 0; key < keys; key++)
        for (int r = 0; r < rows; r++)
            vst1q_f32(s + (key * rows + r) * VECTOR, sum[key][r]);
}

static inline __attribute__((always_inline)) void
score_rows(const float *q_t, const float *k_t, int keys, int64_t head_dim, float *s, const int rows)
{
    switch (keys) {
    case 1:
        score_tile(q_t, k_t, head_dim, s, rows, 1);
        break;
    case 2:
        score_tile(q_t, k_t, head_dim, s, rows, 2);
        break;
    default:
        score_tile(q_t, k_t, head_dim, s, rows, 3);
    }
}

void attnkit_neon_head_scores(const float *q_t, const float *k_t, int rows, int keys,
                              int64_t head_dim, float *s)
{
    switch (rows) {
    case 1:
        score_rows(q_t, k_t, keys, head_dim, s, 1);
        break;
    case 2:
        score_rows(q_t, k_t, keys, head_dim, s, 2);
        break;
    default:
        score_rows(q_t, k_t, keys, head_dim, s, 3);
    }
}

/* `vectors` vectors of value columns from column c on, the last of n floats. A row leaves alone the
 * keys that only others see: 0 times their V might be NaN. Spoils an element of `spoilt`
 * where a value of out may not be finite. */
static inline __attribute__((always_inline)) void out_tile(const struct head_weights *weights,
                                                           struct rows v, int64_t c, int n,
                                                           float *const *out, const int vectors,
                                                           const int rows, float32x4_t spoilt[2])
{
    float32x4_t sum[MAX_SIDE][MAX_COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = vdupq_n_f32(0.0f);
    const float *p = weights->p;
    const int fewest = weights->visible[0];
    for (int key = 0; key < fewest; key++, p += weights->lanes)
        for (int j = 0; j < vectors; j++) {
            const float32x4_t x = load_first(row_at(v, key) + c + j * VECTOR, n);
            for (int r = 0; r < rows; r++)
                sum[r][j] = vfmaq_n_f32(sum[r][j], x, p[r * VECTOR]);
        }
    for (int key = fewest; key < weights->visible[(rows - 1) * VECTOR]; key++, p += weights->lanes)
        for (int r = 1; r < rows; r++)
            if (key < weights->visible[r * VECTOR])
                for (int j = 0; j < vectors; j++)
                    sum[r][j] = vfmaq_n_f32(
                        sum[r][j], load_first(row_at(v, key) + c + j * VECTOR, n), p[r * VECTOR]);
    for (int r = 0; r < rows; r++) {
        const float32x4_t l = vld1q_dup_f32(weights->divisor + r * VECTOR);
        float *const to = out[r] + c;
        for (int j = 0; j < vectors; j++) {
            sum[r][j] = result(sum[r][j], l);
            store_first(to + j * VECTOR, n, sum[r][j]);
        }
        for (int j = 0; j < vectors; j += 2)
            spoilt[j / 2 % 2] =
                spoil(spoilt[j / 2 % 2], sum[r][j], sum[r][j + 1 < vectors ? j + 1 : j]);
    }
}

static inline __attribute__((always_inline)) uint64_t
out_rows(const struct head_weights *weights, struct rows v, float *const *out, const int rows)
{
    float32x4_t spoilt[2] = {unspoilt(), unspoilt()};
    int64_t c = 0;
    for (; c + MAX_COLUMNS * VECTOR <= v.dim; c += MAX_COLUMNS * VECTOR)
        out_tile(weights, v, c, VECTOR, out, MAX_COLUMNS, rows, spoilt);
    for (; c < v.dim; c += VECTOR)
        out_tile(weights, v, c, lanes_at(c, v.dim), out, 1, rows, spoilt);
    const bool found = is_spoilt(vaddq_f32(spoilt[0], spoilt[1]));
    return found ? attnkit_neon_settle(rows, v.dim, out) : 0;
}

uint64_t attnkit_neon_head_out(const struct head_weights *weights, const struct rows *v, int rows,
                               float *const *out)
{
    switch (rows) {
    case 1:
        return out_rows(weights, *v, out, 1);
    case 2:
        return out_rows(weights, *v, out, 2);
    default:
        return out_rows(weights, *v, out, 3);
    }
}
