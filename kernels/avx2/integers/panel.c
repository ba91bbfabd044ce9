/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers, by VPMADDWD and an addition of AVX2. The loops are in
 * kernels/vectors/integers/panel.h.
 *
 * A register tile of scores has 3 keys x 3 vectors: 9 sums, 3 vectors of q, a broadcast and a
 * product take 14 of 16 ymm. The scores are on the stack. A step multiplies one word (two 16-bit
 * integers) for each of the 9 sums. The step takes 9 VPMADDWD, 9 additions and 6 loads. A register
 * tile of columns has 4 columns x 3 vectors: 12 sums, 2 vectors of weights, a broadcast and a
 * product take all 16. VPMADDWD reads the third vector of weights from memory.
 */
#include "kernels/avx2/integers/panel.h"

static inline __m256i dot(__m256i sum, __m256i x, __m256i w, const int part)
{
    (void)part; /* every word is multiplied in the same way */
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
    __asm__("" : "+x"(sum)); /* otherwise gcc adds products first, and spills them */
    return sum;
}

/* A tile of scores is never higher than a tile of columns of the same width, because a tile of
 * scores has a score beside each sum. The scores lie on the stack, and the sums are added to them
 * after each Q8_BLOCK elements of q and K. A tile of columns has only sums. */
static inline int score_height(int vectors)
{
    return vectors == 3 ? 3 : 4;
}

static inline int column_height(int vectors)
{
    return vectors == 1 ? 8 : 4;
}

#include "kernels/vectors/integers/panel_pairs.h"

extern const struct integer_panel_kernels attnkit_avx2_integer_panel;
const struct integer_panel_kernels attnkit_avx2_integer_panel = {
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .scores = scores,
    .weighted_v = weighted_v,
};
