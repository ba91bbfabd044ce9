/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers, by VPDPWSSD of AVX-VNNI: in each of 8 lanes, one instruction multiplies
 * two pairs of 16-bit integers and adds both products to the 32-bit sum of the lane. No sum
 * overflows. The loops are in kernels/vectors/integers/panel.h.
 *
 * A register tile has 4 keys or columns x 3 vectors: 12 integer sums, 3 vectors of words and a
 * broadcast take all 16 ymm. So the binary32 numbers to which the integer sums are added are in L1.
 * A step multiplies one word (two 16-bit integers) for each of the 12 sums. The step takes 12
 * VPDPWSSD and 7 loads. VPDPWSSD limits the speed.
 */
#include "kernels/avx2/integers/panel.h"

/* The assembly makes the compiler keep each sum in one register. */
static inline __attribute__((always_inline)) __m256i dot(__m256i sum, __m256i x, __m256i w,
                                                         const int part)
{
    (void)part; /* every word is multiplied in the same way */
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
    return sum;
}

static inline int score_height(int vectors)
{
    (void)vectors;
    return 4;
}

static inline int column_height(int vectors)
{
    return vectors == 1 ? 8 : 4;
}

#include "kernels/vectors/integers/panel_pairs.h"

extern const struct integer_panel_kernels attnkit_avx2_vnni_integer_panel;
const struct integer_panel_kernels attnkit_avx2_vnni_integer_panel = {
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .scores = scores,
    .weighted_v = weighted_v,
};
