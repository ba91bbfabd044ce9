/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotates the pairs of elements of a row, one pair at a time. The rope.c of every other instruction
 * set must give the same bits.
 */
#include "kernels/scalar/scalar.h"

void attnkit_scalar_rotate(float *x, const float *cos, const float *sin, int64_t pairs,
                           bool interleaved)
{
    const int64_t step = interleaved ? 2 : 1, other = interleaved ? 1 : pairs;
    for (int64_t i = 0; i < pairs; i++) {
        float *const pair = x + i * step;
        const float x0 = pair[0], x1 = pair[other];
        pair[0] = plain_nan(fma_once(x0, cos[i], -(x1 * sin[i])));
        pair[other] = plain_nan(fma_once(x1, cos[i], x0 * sin[i]));
    }
}
