/* SPDX-License-Identifier: Apache-2.0
 *
 * Two functions on whole arrays. exp2 computes y = 2^x for merge.c, careful.c and mask.c of
 * kernels/attention, for tests and for a bench. The softmax and decode tiles contain the same
 * operation. The function `multiply` applies the factors of dropout to weights, for prefill.c and
 * careful.c.
 */
#ifndef ATTNKIT_VECTORS_ARRAYS_H
#define ATTNKIT_VECTORS_ARRAYS_H

#include "kernels/kernels.h"

void KERNEL(exp2)(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += VECTOR) {
        const int64_t left = (int64_t)(n - i);
        store_first(y + i, left, exp2_v(load_first(x + i, left)));
    }
}

void KERNEL(multiply)(const float *factors, size_t n, float *s)
{
    const int64_t count = (int64_t)n;
    int64_t i = 0;
    for (; i + VECTOR <= count; i += VECTOR)
        store_floats(s + i, load_floats(s + i) * load_floats(factors + i));
    if (i < count)
        store_first(s + i, count - i,
                    load_first(s + i, count - i) * load_first(factors + i, count - i));
}

#endif
