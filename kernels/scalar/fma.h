/* SPDX-License-Identifier: Apache-2.0
 *
 * a * b + c with one rounding. fmaf of the C library rounds once, except with mingw-w64: there fmaf
 * adds in long double, and so rounds twice. With mingw-w64 a function in plain C takes the place of
 * fmaf.
 */
#ifndef ATTNKIT_SCALAR_FMA_H
#define ATTNKIT_SCALAR_FMA_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Returns x + y if a double holds the sum. Otherwise the sum lies between two neighbouring doubles,
 * and the result is the neighbour whose last bit is 1. Rounding the result to binary32 gives the
 * same number as rounding the exact sum, because 53 bits are at least 24 + 2. */
static inline double sum_to_odd(double x, double y)
{
    const double sum = x + y, part = sum - x;
    const double error = (x - (sum - part)) + (y - part);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (error != 0.0 && isfinite(sum) && !(bits & 1)) {
        bits += (error > 0.0) == (sum > 0.0) ? 1 : UINT64_MAX;
        double odd;
        memcpy(&odd, &bits, sizeof odd);
        return odd;
    }
    return sum;
}

static inline float fma_in_c(float a, float b, float c)
{
    return (float)sum_to_odd((double)a * (double)b, c); /* the product has 48 bits: it is exact */
}

static inline float fma_once(float a, float b, float c)
{
#if defined(__MINGW32__)
    return fma_in_c(a, b, c);
#else
    return fmaf(a, b, c);
#endif
}

/* fma of binary64. b is a power of two or 0. So the product a * b is exact or subnormal. A
 * subnormal product changes the sum only if c is 0, because any other c is far larger. Therefore a
 * product and a sum give the same result as one fused operation. */
static inline double fma_by_power(double a, double b, double c)
{
#if defined(__MINGW32__)
    return a * b + c;
#else
    return fma(a, b, c);
#endif
}

#endif
