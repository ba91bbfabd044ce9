/* SPDX-License-Identifier: Apache-2.0
 *
 * Transposes rows: q_t[d][lane] = rows[lane][d], by 16x16 transposes in registers. The loops call
 * pack_q for the query rows of a panel, for groups of rows of x (kernels/linear/linear.c), and for
 * other rows and lines of numbers, each of which needs a lane of its own. A 16x16 transpose takes
 * 16 loads, 64 shuffles and 16 stores, and the shuffles limit the speed. A group of rows of x fills
 * half a vector. 16 elements of each row of a group take 40 loads, 16 shuffles and 40 stores, and
 * the stores limit the speed.
 */
#include "kernels/avx512/avx512.h"

/* Packs sixteen lanes from dimension d on. `left` is the number of dimensions to pack, at most
 * VECTOR. For whole vectors `left` is a constant. */
static inline __attribute__((always_inline)) void
pack_tile(const float *const *rows, int lanes, int64_t d, const int64_t left, float *q_t)
{
    __m512 r[VECTOR];
    for (int i = 0; i < VECTOR; i++)
        r[i] = load_first(rows[i] + d, left);
    transpose(r);
    for (int i = 0; i < VECTOR; i++)
        if (i < left)
            _mm512_store_ps(q_t + i * lanes, r[i]);
}

/* Packs VECTOR dimensions, or `left` if these are fewer, of a group of rows from dimension d on. In
 * each quarter of a vector, 4 elements of 4 rows are transposed. */
static void pack_group(const float *const *rows, int64_t left, int64_t d, float *q_t)
{
    _Alignas(64) float t[4][VECTOR];
    for (int first = 0; first < ROW_GROUP; first += 4) {
        __m512d pair[4];
        for (int i = 0; i < 4; i += 2) {
            const __m512 even = load_first(rows[first + i] + d, left);
            const __m512 odd = load_first(rows[first + i + 1] + d, left);
            pair[i] = _mm512_castps_pd(_mm512_unpacklo_ps(even, odd));
            pair[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(even, odd));
        }
        _mm512_store_pd(t[0], _mm512_unpacklo_pd(pair[0], pair[2]));
        _mm512_store_pd(t[1], _mm512_unpackhi_pd(pair[0], pair[2]));
        _mm512_store_pd(t[2], _mm512_unpacklo_pd(pair[1], pair[3]));
        _mm512_store_pd(t[3], _mm512_unpackhi_pd(pair[1], pair[3]));
        for (int i = 0; i < VECTOR && i < left; i++)
            _mm_store_ps(q_t + i * ROW_GROUP + first, _mm_load_ps(&t[i % 4][i / 4 * 4]));
    }
}

void attnkit_avx512_pack_q(const float *const *rows, int lanes, int64_t head_dim, float *q_t)
{
    if (lanes == ROW_GROUP) {
        for (int64_t d = 0; d < head_dim; d += VECTOR)
            pack_group(rows, head_dim - d, d, q_t + d * ROW_GROUP);
        return;
    }
    int64_t d = 0;
    for (; d + VECTOR <= head_dim; d += VECTOR)
        for (int lane = 0; lane < lanes; lane += VECTOR)
            pack_tile(rows + lane, lanes, d, VECTOR, q_t + d * lanes + lane);
    for (int lane = 0; lane < lanes && d < head_dim; lane += VECTOR)
        pack_tile(rows + lane, lanes, d, head_dim - d, q_t + d * lanes + lane);
}
