/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns scores into t, which struct adjust of kernels.h defines. careful.c and weights.c of
 * kernels/attention call `adjust` for all scores that they compute. prefill.c and the decode tile
 * call `adjust` only in three cases: the call has a softcap, the call adds a bias or a slope to
 * scores, or keys that some rows do not see are given as a bias of -inf. The decode tile calls
 * `adjust` once for each of its rows. The adjust.c of an instruction set defines magnitude,
 * with_sign_of, min_with_nan, power_of_two and unless_masked, and then includes this file.
 */
#ifndef ATTNKIT_VECTORS_ADJUST_H
#define ATTNKIT_VECTORS_ADJUST_H

#include "kernels/kernels.h"

/* Sets x[i] to tanh x[i], for n vectors, at most SIDE_BY_SIDE. The bits are the same as in
 * scalar_tanh, whose comment explains the method. As in exp2_vectors, each stage of the computation
 * runs on all n vectors before the next stage begins. */
static inline __attribute__((always_inline)) void tanh_vectors(floats *x, const int n)
{
    static const float coefficients[] = {0.133888692f, 0.333329290f, 0.666661263f, 1.0f};
    const floats magic = broadcast(0x1.8p23f), half = broadcast(0.5f);
    floats power[SIDE_BY_SIDE], f[SIDE_BY_SIDE], q[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++) {
        const floats a = min_with_nan(magnitude(x[i]), broadcast(10.0f));
        const floats rounded = fma_v(a, broadcast(0x1.715476p+1f), magic);
        power[i] = power_of_two(rounded);
        f[i] = fnma_v(rounded - magic, broadcast(0x1.62e43p-2f), a);
        q[i] = broadcast(0.0447224975f);
    }
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < n; i++)
            q[i] = fma_v(q[i], f[i], broadcast(coefficients[k]));
    for (int i = 0; i < n; i++) {
        const floats h = fma_v(q[i] * f[i], f[i], f[i]);
        const floats grown = fma_v(power[i], h, fms_v(power[i], half, half));
        const floats y = grown / (grown + broadcast(1.0f));
        x[i] = with_sign_of(y, x[i]);
    }
}

/* Turns the scores in x into t. x has n vectors, at most SIDE_BY_SIDE. bias is NULL or has n
 * vectors. */
static inline __attribute__((always_inline)) void adjust_vectors(const struct adjust *how,
                                                                 floats *x, const floats *bias,
                                                                 const int n, const bool capped)
{
    const floats factor = broadcast(how->factor);
    if (capped) {
        for (int i = 0; i < n; i++)
            x[i] = x[i] * broadcast(how->to_cap);
        tanh_vectors(x, n);
    }
    for (int i = 0; i < n; i++) {
        if (!bias) {
            x[i] = x[i] * factor;
            continue;
        }
        x[i] = unless_masked(fma_v(x[i], factor, bias[i]), bias[i]);
    }
}

static inline __attribute__((always_inline)) void
adjust(const struct adjust *how, const float *bias, int64_t n, float *s, const bool capped)
{
    floats x[SIDE_BY_SIDE], b[SIDE_BY_SIDE];
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE * VECTOR <= n; i += SIDE_BY_SIDE * VECTOR) {
        for (int j = 0; j < SIDE_BY_SIDE; j++) {
            x[j] = load_floats(s + i + j * VECTOR);
            if (bias)
                b[j] = load_floats(bias + i + j * VECTOR);
        }
        adjust_vectors(how, x, bias ? b : NULL, SIDE_BY_SIDE, capped);
        for (int j = 0; j < SIDE_BY_SIDE; j++)
            store_floats(s + i + j * VECTOR, x[j]);
    }
    for (; i < n; i += VECTOR) {
        x[0] = load_first(s + i, n - i);
        if (bias)
            b[0] = load_first(bias + i, n - i);
        adjust_vectors(how, x, bias ? b : NULL, 1, capped);
        store_first(s + i, n - i, x[0]);
    }
}

void KERNEL(adjust)(const struct adjust *how, const float *bias, size_t n, float *s)
{
    if (how->capped && bias)
        adjust(how, bias, (int64_t)n, s, true);
    else if (how->capped)
        adjust(how, NULL, (int64_t)n, s, true);
    else if (bias)
        adjust(how, bias, (int64_t)n, s, false);
    else
        adjust(how, NULL, (int64_t)n, s, false);
}

#endif
