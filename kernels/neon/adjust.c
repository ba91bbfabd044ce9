/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns scores into t, which struct adjust of kernels.h defines. careful.c and weights.c of
 * kernels/attention call `adjust` for all scores that they compute. prefill.c and the decode tile
 * call `adjust` only if there is a softcap, if something is added to scores, or if a bias of -inf
 * hides keys from some rows. The decode tile calls `adjust` once for each of its rows.
 *
 * A capped score takes a division and some 25 other operations, 12 of them multiplications or
 * multiply-adds. These operations depend on each other and take some 70 cycles. Four vectors side
 * by side hide this latency. For each of them, x, power, f and q of tanh_vectors are in registers,
 * so the four vectors take 16 of 32 registers. The constants take other registers.
 */
#include "kernels/neon/neon.h"

static inline floats magnitude(floats x)
{
    return vabsq_f32(x);
}

/* Returns y with the sign of x. y is at least 0, or NaN. */
static inline floats with_sign_of(floats y, floats x)
{
    return vbslq_f32(vdupq_n_u32(0x80000000), x, y);
}

/* Returns the minimum of x and y, or NaN where x is NaN. y is not NaN. */
static inline floats min_with_nan(floats x, floats y)
{
    return vminq_f32(x, y);
}

/* Returns 2^n for the n in the low bits of `rounded`. */
static inline floats power_of_two(floats rounded)
{
    return vreinterpretq_f32_s32(
        vaddq_s32(vshlq_n_s32(vreinterpretq_s32_f32(rounded), 23), vdupq_n_s32(127 << 23)));
}

/* Returns t, or -inf where the bias is -inf. */
static inline floats unless_masked(floats t, floats bias)
{
    return select_v(equal_v(bias, minus_infinity()), minus_infinity(), t);
}

/* Defines attnkit_neon_adjust. */
#include "kernels/vectors/adjust.h"
