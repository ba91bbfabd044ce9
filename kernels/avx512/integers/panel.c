/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers, by VPMADDWD of AVX-512 BW and an addition. The loops are in
 * kernels/vectors/integers/panel.h.
 *
 * A register tile of scores has 3 keys x 4 vectors: 12 sums, 12 scores, 4 vectors of q, a broadcast
 * and a product take 30 of 32 zmm. A tile of columns has 4 columns x 4 vectors, so 16 sums. A step
 * of this tile multiplies one word (two 16-bit integers) for each sum. The step takes 16 VPMADDWD,
 * 16 additions and 8 loads. VPMADDWD and additions limit the speed.
 */
#include "kernels/avx512/integers/panel.h"

static inline __m512i dot(__m512i sum, __m512i x, __m512i w, const int part)
{
    (void)part; /* every word is multiplied in the same way */
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(x, w));
    __asm__("" : "+v"(sum)); /* otherwise gcc adds products first, and spills them */
    return sum;
}

#include "kernels/vectors/integers/panel_pairs.h"

extern const struct integer_panel_kernels attnkit_avx512_integer_panel;
const struct integer_panel_kernels attnkit_avx512_integer_panel = {
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .scores = scores,
    .weighted_v = weighted_v,
};
