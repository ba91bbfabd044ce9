/* SPDX-License-Identifier: Apache-2.0
 *
 * y = 2^x over an array, for kernels/attention/merge.c and tests: what the softmax and decode tiles
 * have inside.
 */
#include "kernels/avx2/avx2.h"

void attnkit_avx2_exp2(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += VECTOR) {
        const int64_t left = (int64_t)(n - i);
        store_first(y + i, left, exp2_v(load_first(x + i, left)));
    }
}
