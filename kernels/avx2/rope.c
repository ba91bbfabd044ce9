/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotation of pairs of elements: 4 pairs in a vector if the pairs are interleaved, else 8 pairs in
 * two vectors. kernels/cache/append.c calls `rotate` for each row of a head, if the call has a
 * rotation. All loads come from L1.
 */
#include "kernels/avx2/avx2.h"

/* Returns p0 p0 p1 p1 p2 p2 p3 p3 for the first n numbers at p. No byte after the n numbers is
 * read. */
static inline __m256 load_twice(const float *p, int64_t n)
{
    const __m256 once = n >= 4 ? _mm256_castps128_ps256(_mm_loadu_ps(p)) : load_first(p, n);
    return _mm256_permutevar8x32_ps(once, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

/* Rotates `n` pairs, at most VECTOR / 2, from pair i on. */
static inline __attribute__((always_inline)) void
rotate_neighbours(float *x, const float *cos, const float *sin, int64_t i, int64_t n)
{
    const __m256 c = load_twice(cos + i, n), s = load_twice(sin + i, n);
    const __m256 pair = load_first(x + 2 * i, 2 * n);
    const __m256 swapped = _mm256_permute_ps(pair, 0xb1);
    /* Even lanes subtract, odd lanes add. */
    const __m256 y = _mm256_fmaddsub_ps(pair, c, _mm256_mul_ps(swapped, s));
    store_first(x + 2 * i, 2 * n, plain_nan(y));
}

static void rotate_interleaved(float *x, const float *cos, const float *sin, int64_t pairs)
{
    int64_t i = 0;
    for (; i + VECTOR / 2 <= pairs; i += VECTOR / 2)
        rotate_neighbours(x, cos, sin, i, VECTOR / 2);
    if (i < pairs)
        rotate_neighbours(x, cos, sin, i, pairs - i);
}

/* Defines attnkit_avx2_rotate. */
#include "kernels/vectors/rope.h"
