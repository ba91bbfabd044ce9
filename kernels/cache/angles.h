/* SPDX-License-Identifier: Apache-2.0
 *
 * log2, 2^x, and sin and cos of an angle below 2^64 in binary64, for the angles of rope.c. These
 * functions use only operations on integers, conversions between integers and binary64, and sums,
 * products and quotients of binary64. IEEE 754 says how each operation on binary64 rounds, and no
 * operation is fused. So the bits are the same on every machine.
 *
 * attnkit_append_rows uses these functions only if pairs of elements are rotated, and the caller
 * gives no cos and sin. A call of attnkit_append_rows calls log2_of once, and exp2_of once for each
 * pair. In each batch entry, sin_cos_of is called once for each position and pair. All heads share
 * the result.
 *
 * The bounds of errors are relative, in units of u = 2^-53, the largest relative error of one
 * rounding. Products of errors are left out. Each series is a Taylor series and ends where its
 * remainder is below u / 16. The errors of the terms after the first are multiplied by the share of
 * these terms in the result.
 */
#ifndef ATTNKIT_ANGLES_H
#define ATTNKIT_ANGLES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline double double_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t bits_from_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns log2 x of a finite x >= 1, with an error of at most 6 u. x is split into 2^k m with m in
 * [sqrt 1/2, sqrt 2]. The result is
 *   k + 2 / ln 2 (s + s^3 / 3 + s^5 / 5 + ...),   s = (m - 1) / (m + 1), |s| < 0.1716.
 * s has an error of 2 u, or of 1.6 u if m < 1: m + 1 is then at least 1.7, so its rounding is at
 * most 0.6 u. The sum of the series has an error of 1.1 u. Its product with s and the product with
 * 2 / ln 2 add 1 u each. The constant 2 / ln 2 adds 0.2 u. Together these errors of the second term
 * are 5.3 u, or 4.9 u if m < 1. If k is 0, there are no other errors. If k is not 0, the sum with k
 * adds 1 u. If m < 1, the second term is then at least -1/2 and the result at least 1/2, so the 4.9
 * u count at most in full. If m >= 1, the second term is at most a third of the result. */
static inline double log2_of(double x)
{
    enum { TERMS = 11 };
    const uint64_t bits = bits_from_double(x);
    const uint64_t one = UINT64_C(0x3ff0000000000000), sqrt_2 = UINT64_C(0x3ff6a09e667f3bcd);
    const int k = (int)((bits + (one - sqrt_2)) >> 52) - 1022;
    const double m = double_from_bits(bits - ((uint64_t)k << 52));
    const double s = (m - 1.0) / (m + 1.0);
    double sum = 1.0 / (2 * TERMS - 1);
    for (int i = TERMS - 2; i >= 0; i--)
        sum = sum * (s * s) + 1.0 / (2 * i + 1);
    return k + 0x1.71547652b82fep+1 * (s * sum);
}

/* Returns 1 / first! + x / (first + step)! + x^2 / (first + 2 step)! + ..., with the factorials of
 * numbers up to 17. */
static inline double factorial_series(int first, int step, double x)
{
    static const double inverse[] = {1.0,
                                     1.0,
                                     1.0 / 2,
                                     1.0 / 6,
                                     1.0 / 24,
                                     1.0 / 120,
                                     1.0 / 720,
                                     1.0 / 5040,
                                     1.0 / 40320,
                                     1.0 / 362880,
                                     1.0 / 3628800,
                                     1.0 / 39916800,
                                     1.0 / 479001600,
                                     1.0 / 6227020800,
                                     1.0 / 87178291200,
                                     1.0 / 1307674368000,
                                     1.0 / 20922789888000,
                                     1.0 / 355687428096000};
    int i = first + (17 - first) / step * step;
    double sum = inverse[i];
    for (i -= step; i >= first; i -= step)
        sum = sum * x + inverse[i];
    return sum;
}

/* Returns 2^x for -1024 <= x <= 0, with an error of at most 3 u unless the result is subnormal. The
 * result is 2^n e^t with n the integer nearest to x and t = (x - n) ln 2, |t| < 0.3466. t has an
 * error of 1.4 u: 1 u from its product, and 0.4 u from the constant ln 2. The series adds 1.5 u,
 * and its product with t adds 1 u. |e^t - 1| is at most 0.42 of e^t, so at most 0.42 of these
 * errors counts. The sum with 1 adds 1 u. */
static inline double exp2_of(double x)
{
    const int n = (int)(x - 0.5);
    const double t = (x - n) * 0x1.62e42fefa39efp-1;
    const double power = 1.0 + t * factorial_series(1, 1, t);
    const int half = n / 2; /* 2^n alone may be too small for a normal number */
    return power * double_from_bits((uint64_t)(1023 + half) << 52) *
           double_from_bits((uint64_t)(1023 + n - half) << 52);
}

/* Returns the upper 64 bits of the product of a and b. */
static inline uint64_t high_product(uint64_t a, uint64_t b)
{
    const uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
    const uint64_t across = a_high * b_low, back = a_low * b_high + (a_low * b_low >> 32);
    return a_high * b_high + (across >> 32) + ((back + (uint32_t)across) >> 32);
}

/* Converts an angle x in [1/2, 2^64) to quarter turns. Returns the nearest whole number of quarter
 * turns, modulo 4. Sets *more to the rest, which is between -1/2 and 1/2 and has an error of at
 * most 2 u.
 *
 * x = m 2^e with an integer m < 2^53. The result is m 2^e 2/pi modulo 4. Bits of 2/pi that 2^e
 * turns into multiples of 4 do not count. The 192 bits after them are enough: the parts cut off
 * after these bits and in the product are less than 2^-125. No binary64 number in this range is
 * nearer than 2^-62 to a whole number of quarter turns. 0x1.6c6cbc45dc8dep+5 is the nearest. */
static inline unsigned quarter_turns(double x, double *more)
{
    static const uint64_t two_over_pi[] = {
        0, UINT64_C(0xa2f9836e4e441529), UINT64_C(0xfc2757d1f534ddc0), UINT64_C(0xdb6295993c439041),
        UINT64_C(0xfe5163abdebbc561)}; /* the bits of 2/pi, from the bit of 2^63 on */
    const uint64_t bits = bits_from_double(x);
    const uint64_t m = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(1) << 52;
    const int first = (int)(bits >> 52) - 1075 + 62; /* e + 62, in 9 .. 73 */
    uint64_t window[3];
    for (int i = 0; i < 3; i++) {
        const uint64_t *const word = two_over_pi + first / 64 + i;
        window[i] = word[0] << first % 64 | word[1] >> 1 >> (63 - first % 64);
    }
    const uint64_t carried = high_product(m, window[2]);
    uint64_t low = m * window[1] + carried;
    uint64_t high = m * window[0] + high_product(m, window[1]) + (low < carried);

    const uint64_t whole = (high + (UINT64_C(1) << 61)) >> 62;
    high -= whole << 62;
    const bool is_less = high >> 63;
    if (is_less) { /* the complement is the negative number, up to 2^-126 */
        high = ~high;
        low = ~low;
    }
    const double size = (double)high * 0x1p-62 + (double)low * 0x1p-126;
    *more = is_less ? -size : size;
    return whole & 3;
}

struct sin_cos {
    double sin, cos;
};

/* Returns sin and cos of an angle x, 0 <= x < 2^64, each with an error of at most 5 u. r is x minus
 * the nearest multiple of pi / 2, so |r| <= pi / 4. r has an error of 3.4 u: 2 u from
 * quarter_turns, 1 u from the product with pi / 2, and 0.4 u from the constant pi / 2. The relative
 * error of r changes sin r by at most the same relative amount, and cos r by at most r tan r <=
 * 0.79 of this amount. In sin = r + r^3 (...) the second term is at most 0.12 of the result, and
 * its operations have an error of 5 u. In cos = 1 + r^2 (...) the second term is at most 0.42 of
 * the result, and its operations have an error of 3 u. Each sum adds 1 u. */
static inline struct sin_cos sin_cos_of(double x)
{
    unsigned turns = 0;
    double r = x;
    if (x > 0x1.921fb54442d18p-1) {
        turns = quarter_turns(x, &r);
        r *= 0x1.921fb54442d18p+0;
    }
    const double z = -(r * r);
    const double sin = r + r * z * factorial_series(3, 2, z);
    const double cos = 1.0 + z * factorial_series(2, 2, z);
    switch (turns) {
    case 0:
        return (struct sin_cos){sin, cos};
    case 1:
        return (struct sin_cos){cos, -sin};
    case 2:
        return (struct sin_cos){-sin, -cos};
    default:
        return (struct sin_cos){-cos, sin};
    }
}

#endif
