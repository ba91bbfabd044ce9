/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotation of pairs of elements: 8 pairs in a vector if they are interleaved, else 16 pairs in two
 * vectors. kernels/cache/append.c calls `rotate` with one row of a head at a time. The row and,
 * after the first head of a position, also cos and sin are in L1.
 */
#include "kernels/avx512/avx512.h"

/* Returns p0 p0 p1 p1 .. p7 p7 of the numbers at p. If n is less than 8, the numbers from p[n] on
 * are not read and count as 0. */
static inline __m512 load_twice(const float *p, int64_t n)
{
    const __m512 once = load_first(p, n < VECTOR / 2 ? n : VECTOR / 2);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, once);
}

/* Rotates `n` pairs, at most VECTOR / 2, from pair i on. */
static inline __attribute__((always_inline)) void
rotate_neighbours(float *x, const float *cos, const float *sin, int64_t i, int64_t n)
{
    const __m512 c = load_twice(cos + i, n), s = load_twice(sin + i, n);
    const __m512 pair = load_first(x + 2 * i, 2 * n);
    const __m512 swapped = _mm512_permute_ps(pair, 0xb1);
    /* Even lanes subtract, odd lanes add. */
    const __m512 y = _mm512_fmaddsub_ps(pair, c, _mm512_mul_ps(swapped, s));
    store_first(x + 2 * i, 2 * n, plain_nan(y));
}

/* Rotates all pairs of a row. Whole vectors are stored without a mask, because the row is loaded
 * next, and masked stores are not forwarded to loads. */
static void rotate_interleaved(float *x, const float *cos, const float *sin, int64_t pairs)
{
    int64_t i = 0;
    for (; i + VECTOR / 2 <= pairs; i += VECTOR / 2)
        rotate_neighbours(x, cos, sin, i, VECTOR / 2);
    if (i < pairs)
        rotate_neighbours(x, cos, sin, i, pairs - i);
}

/* Defines attnkit_avx512_rotate. */
#include "kernels/vectors/rope.h"
