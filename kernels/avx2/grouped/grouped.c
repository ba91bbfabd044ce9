/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of 32 products of bf16. A word is one element, as binary32. The loops are in tiles.h and,
 * for few rows, in few.h of kernels/vectors/grouped.
 *
 * A register tile of tiles.h has 2 keys or columns x 3 vectors. Each of these 6 sums has two
 * accumulators, one for even and one for odd words of a group. 12 accumulators, 3 vectors of lanes
 * and 1 broadcast take all 16 ymm. Each word takes 6 FMA and 5 loads. The FMA ports limit the
 * speed: they take 3 cycles for a word.
 */
#include "kernels/avx2/avx2.h"

enum { SUMS = 6 };

static inline floats grouped_step(floats x, floats w, floats sum)
{
    return fma_v(x, w, sum);
}

/* Rounds to the nearest bf16, ties to even. A NaN stays NaN. */
static inline floats to_bf16(floats x)
{
    const __m256i bits = _mm256_castps_si256(x), one = _mm256_set1_epi32(1);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff)));
    const __m256i high = _mm256_and_si256(sum, _mm256_set1_epi32(-0x10000));
    return _mm256_or_ps(_mm256_castsi256_ps(high), _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* Defines attnkit_avx2_grouped. */
#include "kernels/vectors/grouped/floats.h"
#include "kernels/vectors/grouped/tiles.h"
