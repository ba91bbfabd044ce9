/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores to t where it takes more than a factor: a softcap, a bias, or both; see struct adjust.
 * Called by prefill.c between scores and softmax, and by the decode tile for each of its rows.
 *
 * A capped score takes some 25 operations, 12 of them multiply-adds, and a division, in a chain of
 * some 70 cycles: four vectors side by side hide it, in 16 of 32 registers beside the constants.
 */
#include "kernels/avx512/avx512.h"

/* x[i] = tanh x[i], with the bits of scalar_tanh, which says how. Stage by stage, like
 * exp2_vectors. */
static inline __attribute__((always_inline)) void tanh_vectors(__m512 *x, const int n)
{
    static const float coefficients[] = {0.133888692f, 0.333329290f, 0.666661263f, 1.0f};
    const __m512 magic = _mm512_set1_ps(0x1.8p23f), half = _mm512_set1_ps(0.5f);
    const __m512 sign = _mm512_set1_ps(-0.0f);
    __m512 power[SIDE_BY_SIDE], f[SIDE_BY_SIDE], q[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++) {
        /* This order of operands keeps a NaN. */
        const __m512 a = _mm512_min_ps(_mm512_set1_ps(10.0f), _mm512_andnot_ps(sign, x[i]));
        const __m512 rounded = _mm512_fmadd_ps(a, _mm512_set1_ps(0x1.715476p+1f), magic);
        power[i] = _mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_slli_epi32(_mm512_castps_si512(rounded), 23), _mm512_set1_epi32(127 << 23)));
        f[i] = _mm512_fnmadd_ps(_mm512_sub_ps(rounded, magic), _mm512_set1_ps(0x1.62e43p-2f), a);
        q[i] = _mm512_set1_ps(0.0447224975f);
    }
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < n; i++)
            q[i] = _mm512_fmadd_ps(q[i], f[i], _mm512_set1_ps(coefficients[k]));
    for (int i = 0; i < n; i++) {
        const __m512 h = _mm512_fmadd_ps(_mm512_mul_ps(q[i], f[i]), f[i], f[i]);
        const __m512 grown = _mm512_fmadd_ps(power[i], h, _mm512_fmsub_ps(power[i], half, half));
        const __m512 y = _mm512_div_ps(grown, _mm512_add_ps(grown, _mm512_set1_ps(1.0f)));
        x[i] = _mm512_or_ps(y, _mm512_and_ps(sign, x[i]));
    }
}

/* t of n vectors; bias: NULL, or as many. */
static inline __attribute__((always_inline)) void adjust_vectors(const struct adjust *how,
                                                                 __m512 *x, const __m512 *bias,
                                                                 const int n, const bool capped)
{
    const __m512 factor = _mm512_set1_ps(how->factor);
    if (capped) {
        for (int i = 0; i < n; i++)
            x[i] = _mm512_mul_ps(x[i], _mm512_set1_ps(how->to_cap));
        tanh_vectors(x, n);
    }
    for (int i = 0; i < n; i++) {
        if (!bias) {
            x[i] = _mm512_mul_ps(x[i], factor);
            continue;
        }
        const __mmask16 seen = _mm512_cmp_ps_mask(bias[i], minus_infinity(), _CMP_NEQ_UQ);
        x[i] = _mm512_mask_mov_ps(minus_infinity(), seen, _mm512_fmadd_ps(x[i], factor, bias[i]));
    }
}

static inline __attribute__((always_inline)) void
adjust(const struct adjust *how, const float *bias, int64_t n, float *s, const bool capped)
{
    __m512 x[SIDE_BY_SIDE], b[SIDE_BY_SIDE];
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE * VECTOR <= n; i += SIDE_BY_SIDE * VECTOR) {
        for (int j = 0; j < SIDE_BY_SIDE; j++) {
            x[j] = _mm512_loadu_ps(s + i + j * VECTOR);
            if (bias)
                b[j] = _mm512_loadu_ps(bias + i + j * VECTOR);
        }
        adjust_vectors(how, x, bias ? b : NULL, SIDE_BY_SIDE, capped);
        for (int j = 0; j < SIDE_BY_SIDE; j++)
            _mm512_storeu_ps(s + i + j * VECTOR, x[j]);
    }
    for (; i < n; i += VECTOR) {
        x[0] = load_first(s + i, n - i);
        if (bias)
            b[0] = load_first(bias + i, n - i);
        adjust_vectors(how, x, bias ? b : NULL, 1, capped);
        store_first(s + i, n - i, x[0]);
    }
}

void attnkit_avx512_adjust(const struct adjust *how, const float *bias, size_t n, float *s)
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
