/* SPDX-License-Identifier: Apache-2.0
 *
 * Small inline functions on vectors of floats, with the same code for all instruction sets. The
 * header of each instruction set defines the types floats and lane_mask and the operations fma_v,
 * select_v and so on, and then includes this file. Sums, differences, products and quotients of
 * vectors are written with the operators of C, each of which rounds once.
 */
#ifndef ATTNKIT_FLOATS_H
#define ATTNKIT_FLOATS_H

#include "kernels/kernels.h"

static inline floats exp2_v(floats x)
{
    exp2_vectors(&x, 1);
    return x;
}

static inline floats minus_infinity(void)
{
    return broadcast(-INFINITY);
}

/* Returns log x for x = 0, NaN, +inf or a normal x > 0. The bits are the same as in scalar_log,
 * whose comment explains the method. They are also the bits of SLEEF's Sleef_finz_logf*_u10 with
 * FMA. */
static inline floats log_v(floats x)
{
    const floats one = broadcast(1.0f);
    floats e;
    const floats m = split_exponent(x, &e);

    const floats n = m - one, d = m + one;
    const floats d_low = m - (d - one);
    const floats t = one / d;
    const floats y = n * t;
    const floats off = fnma_v(d_low, t, fnma_v(d, t, one));
    const floats y_low = fma_v(y, off, fms_v(t, n, y));
    const floats y2 = y * y;
    floats p = broadcast(0.3027294874e+0f);
    p = fma_v(p, y2, broadcast(0.3996108174e+0f));
    p = fma_v(p, y2, broadcast(0.6666694880e+0f));

    const floats ln2_hi = broadcast(0.69314718246459960938f);
    const floats ln2_lo = broadcast(-1.904654323148236017e-09f);
    const floats whole = ln2_hi * e;
    const floats whole_low = fma_v(ln2_lo, e, fms_v(ln2_hi, e, whole));
    const floats twice = y + y, hi = whole + twice;
    const floats lo = whole - hi + twice + whole_low + (y_low + y_low);
    const floats cube = y2 * y * p;
    const floats sum = hi + cube;
    const floats log = sum + (hi - sum + cube + lo);
    /* NaN is neither less nor equal. */
    const lane_mask finite = less_v(x, broadcast(INFINITY));
    const lane_mask zero = equal_v(x, broadcast(0.0f));
    return select_v(zero, minus_infinity(), select_v(finite, log, x));
}

/* Returns n, and hides from the compiler which values n can have. If gcc knows that a loop has few
 * iterations, gcc writes out the body for each iteration. In addition, gcc copies the whole loop
 * for each outcome of a comparison inside the loop. For the last keys or elements of a tile, these
 * copies are too much code. */
static inline int64_t unbounded(int64_t n)
{
    __asm__("" : "+r"(n));
    return n;
}

static inline const float *row_at(struct rows rows, int i)
{
    return (const float *)(rows.first + i * rows.stride);
}

/* Prefetches element i of `n` rows, from row `first` on, into L2, if the rows have an element i.
 * The rows need not exist, because a prefetch never faults. The function is always inlined, because
 * gcc drops calls of a function that does nothing but prefetch. */
static inline __attribute__((always_inline)) void prefetch(struct rows rows, int first, int64_t i,
                                                           const int n)
{
    if (i < rows.dim)
        for (int j = 0; j < n; j++)
            __builtin_prefetch(rows.first + (first + j) * rows.stride + i * (int64_t)sizeof(float),
                               0, 2);
}

/* Returns row_sum, or 1 in lanes where row_sum is 0, so that a row that saw no key gets the result
 * 0 and not NaN. */
static inline floats divisor(floats row_sum)
{
    return select_v(equal_v(row_sum, broadcast(0.0f)), broadcast(1.0f), row_sum);
}

/* Returns o / divisor + 0. Adding +0 turns -0 into +0. */
static inline floats result(floats o, floats divisor)
{
    return o / divisor + broadcast(0.0f);
}

/* Returns the initial value of `spoilt`, a vector of sums that detects values that are not finite.
 * Each lane starts at 1, and spoil adds x * y. A lane stops being finite if x or y is not finite. A
 * lane may also overflow with finite x and y, so a caller that finds a lane spoilt has to look at
 * the values. The 1 keeps the sum from being subnormal. */
static inline floats unspoilt(void)
{
    return broadcast(1.0f);
}

static inline floats spoil(floats spoilt, floats x, floats y)
{
    return fma_v(x, y, spoilt);
}

#endif
