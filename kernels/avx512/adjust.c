/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns scores into t, which struct adjust of kernels.h defines. careful.c and weights.c of
 * kernels/attention call `adjust` for all scores that they compute. prefill.c and the decode tile
 * call `adjust` only if there is a softcap, if something is added to scores, or if a bias of -inf
 * hides keys from some rows. The decode tile calls `adjust` once for each of its rows.
 *
 * A capped score takes a division and some 25 other operations, 12 of them multiplications or
 * multiply-adds. These operations depend on each other and take some 70 cycles. Four vectors of
 * scores side by side hide this latency. Each of the four vectors needs four registers at a time,
 * so the four vectors take 16 of 32 registers. The constants take other registers.
 */
#include "kernels/avx512/avx512.h"

static inline floats magnitude(floats x)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x);
}

/* Returns y with the sign of x. y is at least 0, or NaN. */
static inline floats with_sign_of(floats y, floats x)
{
    return _mm512_or_ps(y, _mm512_and_ps(_mm512_set1_ps(-0.0f), x));
}

/* Returns the minimum of x and y, or NaN where x is NaN. y is not NaN. */
static inline floats min_with_nan(floats x, floats y)
{
    return _mm512_min_ps(y, x);
}

/* Returns 2^n for the n in the low bits of `rounded`. */
static inline floats power_of_two(floats rounded)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(rounded), 23),
                                                _mm512_set1_epi32(127 << 23)));
}

/* Returns t, or -inf where the bias is -inf. */
static inline floats unless_masked(floats t, floats bias)
{
    const __mmask16 seen = _mm512_cmp_ps_mask(bias, minus_infinity(), _CMP_NEQ_UQ);
    return _mm512_mask_mov_ps(minus_infinity(), seen, t);
}

/* Defines attnkit_avx512_adjust. */
#include "kernels/vectors/adjust.h"
