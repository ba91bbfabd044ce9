/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotation of pairs, 8 of them in a vector where they are interleaved, else 16 in two.
 * kernels/cache/append.c calls it for each row of a head; all its loads come from L1.
 */
#include "kernels/avx512/avx512.h"

/* p0 p0 p1 p1 .. p7 p7 of the first n, and no byte behind them. */
static inline __m512 load_twice(const float *p, int64_t n)
{
    const __m512 once = load_first(p, n < VECTOR / 2 ? n : VECTOR / 2);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, once);
}

static void rotate_interleaved(float *x, const float *cos, const float *sin, int64_t pairs)
{
    for (int64_t i = 0; i < pairs; i += VECTOR / 2) {
        const int64_t left = pairs - i;
        const __m512 c = load_twice(cos + i, left), s = load_twice(sin + i, left);
        const __m512 pair = load_first(x + 2 * i, 2 * left);
        const __m512 swapped = _mm512_permute_ps(pair, 0xb1);
        /* Even lanes subtract, odd lanes add. */
        const __m512 y = _mm512_fmaddsub_ps(pair, c, _mm512_mul_ps(swapped, s));
        store_first(x + 2 * i, 2 * left, plain_nan(y));
    }
}

static void rotate_halves(float *x, const float *cos, const float *sin, int64_t pairs)
{
    for (int64_t i = 0; i < pairs; i += VECTOR) {
        const int64_t left = pairs - i;
        const __m512 c = load_first(cos + i, left), s = load_first(sin + i, left);
        const __m512 x0 = load_first(x + i, left), x1 = load_first(x + pairs + i, left);
        const __m512 y0 = _mm512_fmsub_ps(x0, c, _mm512_mul_ps(x1, s));
        const __m512 y1 = _mm512_fmadd_ps(x1, c, _mm512_mul_ps(x0, s));
        store_first(x + i, left, plain_nan(y0));
        store_first(x + pairs + i, left, plain_nan(y1));
    }
}

void attnkit_avx512_rotate(float *x, const float *cos, const float *sin, int64_t pairs,
                           bool interleaved)
{
    if (interleaved)
        rotate_interleaved(x, cos, sin, pairs);
    else
        rotate_halves(x, cos, sin, pairs);
}
