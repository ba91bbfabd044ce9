/* SPDX-License-Identifier: Apache-2.0
 *
 * Transposes rows: q_t[d][lane] = rows[lane][d], by 8x8 transposes in registers. The loops call
 * pack_q for the query rows of a panel, for groups of rows of x (kernels/linear/linear.c), and for
 * other rows and lines of numbers, each of which needs a lane of its own. A transpose takes 8
 * loads, 24 shuffles and 8 stores. The shuffles limit the speed.
 */
#include "kernels/avx2/avx2.h"

/* Packs eight lanes from dimension d on. `left` is the number of dimensions to pack, at most
 * VECTOR. For whole vectors `left` is a constant. */
static inline __attribute__((always_inline)) void
pack_tile(const float *const *rows, int lanes, int64_t d, const int64_t left, float *q_t)
{
    __m256 r[VECTOR];
    for (int i = 0; i < VECTOR; i++)
        r[i] = load_first(rows[i] + d, left);
    transpose(r);
    for (int i = 0; i < VECTOR; i++)
        if (i < left)
            _mm256_store_ps(q_t + i * lanes, r[i]);
}

void attnkit_avx2_pack_q(const float *const *rows, int lanes, int64_t head_dim, float *q_t)
{
    int64_t d = 0;
    for (; d + VECTOR <= head_dim; d += VECTOR)
        for (int lane = 0; lane < lanes; lane += VECTOR)
            pack_tile(rows + lane, lanes, d, VECTOR, q_t + d * lanes + lane);
    for (int lane = 0; lane < lanes && d < head_dim; lane += VECTOR)
        pack_tile(rows + lane, lanes, d, head_dim - d, q_t + d * lanes + lane);
}
