/* SPDX-License-Identifier: Apache-2.0
 *
 * Transposes rows: q_t[d][lane] = rows[lane][d]. The loops call pack_q for the query rows of a
 * panel, for groups of rows of x (kernels/linear/linear.c), and for other rows and lines of numbers
 * whose elements have to lie in lanes. 4 rows x 4 d at a time are transposed in registers. Each of
 * these transposes takes 4 loads, 8 trn and 4 stores. The 8 trn limit the speed.
 */
#include "kernels/neon/neon.h"

/* Packs elements d .. d + n - 1, 1 <= n <= 4, of 4 rows. q_t points at the first of the 4 lanes. */
static void pack_4_rows(const float *const *rows, int lanes, int64_t d, int n, float *q_t)
{
    float32x4_t x[4];
    for (int lane = 0; lane < 4; lane++)
        x[lane] = load_first(rows[lane] + d, n);
    transpose(x);
    for (int i = 0; i < 4; i++)
        if (i < n)
            vst1q_f32(q_t + (d + i) * lanes, x[i]);
}

void attnkit_neon_pack_q(const float *const *rows, int lanes, int64_t head_dim, float *q_t)
{
    for (int64_t d = 0; d < head_dim; d += 4)
        for (int lane = 0; lane < lanes; lane += 4)
            pack_4_rows(rows + lane, lanes, d, lanes_at(d, head_dim), q_t + lane);
}
