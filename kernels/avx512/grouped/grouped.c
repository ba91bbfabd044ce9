/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of 32 products of bf16. A word is one element, as binary32. The loops are in tiles.h and,
 * for few rows, few.h of kernels/vectors/grouped.
 *
 * A register tile of tiles.h has 3 keys or columns x 4 vectors. Each of these 12 sums has two
 * accumulators, one for even and one for odd words of a group. 24 accumulators, 4 vectors of lanes
 * and 1 broadcast take 29 of 32 zmm. Each word takes 12 FMA and 7 loads. The FMA ports limit the
 * speed.
 */
#include "kernels/avx512/avx512.h"

enum { SUMS = 12 };

static inline __attribute__((always_inline)) floats grouped_step(floats x, floats w, floats sum)
{
    return multiply_add(x, w, sum, true);
}

/* Rounds to the nearest bf16, ties to even. A NaN stays NaN. */
static inline floats to_bf16(floats x)
{
    const __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff)));
    const __m512i high = _mm512_and_si512(sum, _mm512_set1_epi32(-0x10000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(high, is_nan, _mm512_set1_epi32(0x7fc00000)));
}

/* Defines attnkit_avx512_grouped. */
#include "kernels/vectors/grouped/floats.h"
#include "kernels/vectors/grouped/tiles.h"
