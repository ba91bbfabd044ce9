/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers, by VPDPWSSD of AVX512_VNNI: in each of 16 lanes, one instruction
 * multiplies two pairs of 16-bit integers and adds both products to the 32-bit sum of the lane. No
 * sum overflows. The loops are in kernels/vectors/integers/panel.h.
 *
 * A register tile of scores has 3 keys x 4 vectors: 12 sums, 12 scores, 4 vectors of q and a
 * broadcast take 29 of 32 zmm. A tile of columns has 4 columns x 4 vectors: 16 sums. A step of two
 * keys, whose integers share words, takes 16 VPDPWSSD and 8 loads. VPDPWSSD limits the speed.
 */
#include "kernels/avx512/integers/panel.h"

/* The assembly makes the compiler keep each sum in one register. */
static inline __attribute__((always_inline)) __m512i dot(__m512i sum, __m512i x, __m512i w,
                                                         const int part)
{
    (void)part; /* every word is multiplied in the same way */
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
}

#include "kernels/vectors/integers/panel_pairs.h"

extern const struct integer_panel_kernels attnkit_avx512_vnni_integer_panel;
const struct integer_panel_kernels attnkit_avx512_vnni_integer_panel = {
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .scores = scores,
    .weighted_v = weighted_v,
};
