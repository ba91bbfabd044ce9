/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers, by VPMADDWD and an addition of AVX2. The loops are in
 * kernels/vectors/integers/panel.h.
 *
 * A register tile has 2 keys or columns x 3 vectors: 6 sums, 6 scores of keys, 3 vectors of words
 * and a product take all 16 ymm. A word of 6 sums takes 6 VPMADDWD, 6 additions and 5 loads.
 */
#include "kernels/avx2/integers/panel.h"

static inline __m256i dot(__m256i sum, __m256i x, __m256i w, const int part)
{
    (void)part; /* all words are alike */
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
    __asm__("" : "+x"(sum)); /* otherwise gcc adds products first, and spills them */
    return sum;
}

/* A tile of scores has its scores in registers beside its sums, a tile of columns does not. */
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
