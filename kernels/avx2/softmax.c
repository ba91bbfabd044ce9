/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the scores of a block into weights: s becomes 2^(t - M'), with t = s * scale_log2 and M' =
 * max(M, ceil(max t)). It also updates row_max and row_sum of the state. Lanes are query rows, so
 * that no operation is horizontal. prefill.c calls `softmax` between scores and weighted V.
 *
 * The first pass over the keys scales and masks the scores and takes the maximum of each lane, for
 * all vectors of lanes at once. The second pass computes the powers, some keys of one vector of
 * lanes at a time. exp2 limits the speed of the second pass.
 */
#include "kernels/avx2/avx2.h"

/* Returns the scores at `at` times the factor. If `masked`, lanes that do not see the key are
 * -inf. */
static inline floats scale_seen(const float *at, floats factor, const int32_t *visible, int key,
                                const bool masked)
{
    const floats t = load_aligned(at) * factor;
    if (!masked)
        return t;
    const __m256i end = _mm256_loadu_si256((const __m256i_u *)visible);
    const __m256i seen = _mm256_cmpgt_epi32(end, _mm256_set1_epi32(key));
    return select_v(_mm256_castsi256_ps(seen), t, minus_infinity());
}

#include "kernels/vectors/softmax.h"
/* Defines attnkit_avx2_softmax. */
#include "kernels/vectors/softmax_panel.h"
