/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the angles of a rotation in binary64, and their cos and sin, rounded once to binary32.
 * The results have the same bits on every CPU. If an append rotates rows and the caller gives no
 * cos and sin, the loop of the append computes cos and sin once for each position of a batch entry,
 * for all heads together.
 */
#include "kernels/cache/rope.h"

#include "kernels/cache/angles.h"

void attnkit_rope_frequencies(double base, int64_t pairs, double *frequency)
{
    const double log2_base = log2_of(base);
    for (int64_t i = 0; i < pairs; i++)
        frequency[i] = exp2_of(-(double)i / (double)pairs * log2_base);
}

void attnkit_rope_cos_sin(int64_t position, const double *frequency, int64_t pairs, float *cos,
                          float *sin)
{
    for (int64_t i = 0; i < pairs; i++) {
        const struct sin_cos turn = sin_cos_of((double)position * frequency[i]);
        sin[i] = (float)turn.sin;
        cos[i] = (float)turn.cos;
    }
}
