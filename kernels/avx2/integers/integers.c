/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of decode that multiply integers, by VPMADDWD and an addition of AVX2.
 */
#include "kernels/avx2/avx2.h"

enum { MANY_SUMS = 8 };

static inline __attribute__((always_inline)) __m256i dot(__m256i sum, __m256i a, __m256i b,
                                                         const int sums)
{
    (void)sums;
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    __asm__ volatile("" : "+x"(sum)); /* otherwise gcc reorders instructions, and spills products */
    return sum;
}

#include "kernels/avx2/integers/decode.h"

extern const struct integer_panel_kernels attnkit_avx2_integer_panel;
const struct integer_kernels attnkit_avx2_integers = {
    .round_row = round_row,
    .decode = decode,
    .panel = &attnkit_avx2_integer_panel,
};
