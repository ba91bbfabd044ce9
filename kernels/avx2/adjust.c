/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns scores into t, with or without a softcap, and with or without a bias. struct adjust of
 * kernels.h defines t. careful.c and weights.c of kernels/attention call the entry `adjust` for all
 * scores, prefill.c only if a block needs the entry. If the field `adjust` of struct decode_block
 * is not NULL, the decode tile calls the entry for each of its rows.
 *
 * A capped score takes a division and some 25 other operations, 12 of them multiplications or
 * multiply-adds. These operations depend on each other and take some 70 cycles. Four vectors side
 * by side hide this latency. Each vector needs four registers. Four vectors and the constants need
 * more than 16 registers, so some values are on the stack.
 */
#include "kernels/avx2/avx2.h"

static inline floats magnitude(floats x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* Returns y with the sign of x. y is at least 0, or NaN. */
static inline floats with_sign_of(floats y, floats x)
{
    return _mm256_or_ps(y, _mm256_and_ps(_mm256_set1_ps(-0.0f), x));
}

/* Returns the minimum of x and y, or NaN where x is NaN. y is not NaN. */
static inline floats min_with_nan(floats x, floats y)
{
    return _mm256_min_ps(y, x);
}

/* Returns 2^n for the n in the low bits of `rounded`. */
static inline floats power_of_two(floats rounded)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(rounded), 23),
                                                _mm256_set1_epi32(127 << 23)));
}

/* Returns t, or -inf where the bias is -inf. */
static inline floats unless_masked(floats t, floats bias)
{
    return select_v(equal_v(bias, minus_infinity()), minus_infinity(), t);
}

/* Defines attnkit_avx2_adjust. */
#include "kernels/vectors/adjust.h"
