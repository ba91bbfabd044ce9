/* SPDX-License-Identifier: Apache-2.0
 *
 * y = 2^x over an array, for kernels/attention/merge.c and tests: what the softmax and decode tiles
 * have inside.
 */
#include "kernels/neon/neon.h"

void attnkit_neon_exp2(const float *x, float *y, size_t n)
{
    for (int64_t i = 0; i < (int64_t)n; i += 4) {
        const int lanes = lanes_at(i, (int64_t)n);
        store_first(y + i, lanes, exp2_v(load_first(x + i, lanes)));
    }
}
