/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of decode that multiply integers, by VPDPWSSD of AVX512_VNNI: one instruction adds two
 * products to each sum of 32 bits. No sum of these tiles overflows.
 */
#include "kernels/avx512/integers/pairs.h"

static inline __m512i dot(__m512i sum, __m512i a, __m512i b)
{
    return _mm512_dpwssd_epi32(sum, a, b);
}

#include "kernels/avx512/integers/decode.h"

static void add(int32_t *sum, const int16_t *a, const int16_t *b)
{
    const __m512i sums = _mm512_loadu_si512(sum);
    _mm512_storeu_si512(sum, dot(sums, _mm512_loadu_si512(a), _mm512_loadu_si512(b)));
}

extern const struct integer_panel_kernels attnkit_avx512_vnni_integer_panel;
const struct integer_kernels attnkit_avx512_vnni_integers = {
    .round_row = round_row,
    .decode = decode_integers,
    .panel = &attnkit_avx512_vnni_integer_panel,
    .add = add,
};
