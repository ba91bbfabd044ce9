/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotation of pairs of elements. `pairs` is the number of rotated pairs of a row. The rope.c of an
 * instruction set defines rotate_interleaved, which rotates pairs of neighbours, and then includes
 * this file. In rotate_halves, the two elements of a pair are `pairs` elements apart. A step of
 * rotate_halves rotates up to VECTOR pairs, with the first elements in one vector and the second
 * elements in another.
 */
#ifndef ATTNKIT_VECTORS_ROPE_H
#define ATTNKIT_VECTORS_ROPE_H

#include "kernels/kernels.h"

/* Rotates `n` pairs, at most VECTOR, from pair i on. */
static inline __attribute__((always_inline)) void
rotate_vectors(float *x, const float *cos, const float *sin, int64_t pairs, int64_t i, int64_t n)
{
    const floats c = load_first(cos + i, n), s = load_first(sin + i, n);
    const floats x0 = load_first(x + i, n), x1 = load_first(x + pairs + i, n);
    const floats y0 = fms_v(x0, c, x1 * s);
    const floats y1 = fma_v(x1, c, x0 * s);
    store_first(x + i, n, plain_nan(y0));
    store_first(x + pairs + i, n, plain_nan(y1));
}

/* Rotates all pairs of a row. Whole vectors are stored without a mask, because the row is loaded
 * next, and masked stores are not forwarded to loads. */
static void rotate_halves(float *x, const float *cos, const float *sin, int64_t pairs)
{
    int64_t i = 0;
    for (; i + VECTOR <= pairs; i += VECTOR)
        rotate_vectors(x, cos, sin, pairs, i, VECTOR);
    if (i < pairs)
        rotate_vectors(x, cos, sin, pairs, i, pairs - i);
}

void KERNEL(rotate)(float *x, const float *cos, const float *sin, int64_t pairs, bool interleaved)
{
    if (interleaved)
        rotate_interleaved(x, cos, sin, pairs);
    else
        rotate_halves(x, cos, sin, pairs);
}

#endif
