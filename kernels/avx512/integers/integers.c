/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of decode that multiply integers, by VPMADDWD of AVX-512 BW and an addition.
 */
#include "kernels/avx512/integers/pairs.h"

static inline __m512i dot(__m512i sum, __m512i a, __m512i b)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}

#include "kernels/avx512/integers/decode.h"

extern const struct integer_panel_kernels attnkit_avx512_integer_panel;
const struct integer_kernels attnkit_avx512_integers = {
    .round_row = round_row,
    .decode = decode_integers,
    .panel = &attnkit_avx512_integer_panel,
};
