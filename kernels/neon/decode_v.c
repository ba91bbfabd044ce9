/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of decode: o[r][c] = fma(o[r][c], rescale[r], chain over keys of p[key][r] *
 * v[key][c]). V may have any type of struct key_rows, and is widened as it is loaded. decode.c of
 * this folder calls decode_v. The type and the number of rows are constants of the inlined
 * functions.
 *
 * Lanes are value columns. A tile has 8 vectors of columns for 1 or 2 rows, and 4 vectors for more
 * rows. Registers: at most 16 sums, 1 vector of weights and 1 vector of V. A key takes a load of
 * weights, a load for each vector of columns, and an fmla for each vector of columns and each row.
 */
#include "kernels/neon/decode.h"

enum {
    MAX_VECTORS = 8, /* most vectors of value columns in a tile */
};

/* Computes `vectors` vectors of value columns from column c on. Each vector has n elements. n is
 * less than 4 only if `vectors` is 1. A query row skips the keys that only other query rows see,
 * because 0 times V of these keys might be NaN. */
static inline __attribute__((always_inline)) void
v_tile(const enum type type, const struct panel *panel, const struct weights *weights, int64_t c,
       const int vectors, const int n, const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    int64_t place[MAX_VECTORS];
    float32x4_t sum[PANEL_ROWS][MAX_VECTORS];
    for (int i = 0; i < vectors; i++) {
        place[i] = scale_place(type, v->scale_group, c + 4 * i);
        for (int r = 0; r < rows; r++)
            sum[r][i] = vdupq_n_f32(0.0f);
    }
    for (int key = 0; key < panel->fewest; key++) {
        const float32x4_t p = vld1q_f32(weights->p[key]);
        for (int i = 0; i < vectors; i++) {
            const float32x4_t x = load_scaled(type, v, key, c + 4 * i, n, place[i]);
            for (int r = 0; r < rows; r++)
                sum[r][i] = fma_lane(sum[r][i], x, p, r);
        }
    }
    for (int key = panel->fewest; key < panel->most; key++) {
        const float32x4_t p = vld1q_f32(weights->p[key]);
        for (int r = 0; r < rows; r++)
            if (key < panel->visible[r])
                for (int i = 0; i < vectors; i++)
                    sum[r][i] = fma_lane(sum[r][i],
                                         load_scaled(type, v, key, c + 4 * i, n, place[i]), p, r);
    }
    const float32x4_t rescale = vld1q_f32(weights->rescale);
    float *const out = panel->block->st->out + panel->first * v->dim + c;
    for (int r = 0; r < rows && r < panel->rows; r++)
        for (int i = 0; i < vectors; i++) {
            float *o = out + r * v->dim + 4 * i;
            store_first(o, n, fma_lane(sum[r][i], load_first(o, n), rescale, r));
        }
}

static inline __attribute__((always_inline)) void weigh_rows(const enum type type,
                                                             const struct panel *panel,
                                                             const struct weights *weights,
                                                             const int rows)
{
    const int vectors = rows <= 2 ? MAX_VECTORS : MAX_VECTORS / 2;
    const int64_t dim = panel->block->v.dim;
    int64_t c = 0;
    for (; c + 4 * vectors <= dim; c += 4 * vectors)
        v_tile(type, panel, weights, c, vectors, 4, rows);
    for (; c < dim; c += 4)
        v_tile(type, panel, weights, c, 1, lanes_at(c, dim), rows);
}

#include "kernels/vectors/decode/weigh_by_type.h"

void attnkit_neon_decode_v(const struct panel *panel, const struct weights *weights)
{
    weigh_by_type(panel, weights);
}
