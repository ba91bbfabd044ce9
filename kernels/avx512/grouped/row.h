/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry pack_row of struct grouped_kernels, for words of two bf16. The grouped.c of a unit
 * defines order_words, and then includes this file. order_words puts the elements of each quad in
 * the order that the tiles of the unit need.
 */
#ifndef ATTNKIT_AVX512_GROUPED_ROW_H
#define ATTNKIT_AVX512_GROUPED_ROW_H

#include "kernels/avx512/grouped/words.h"

static void pack_row(const void *row, int64_t n, float *words)
{
    enum { AT_ONCE = ELEMENTS * VECTOR };
    require_built(TYPE_BF16);
    const uint16_t *const from = row;
    int64_t d = 0;
    for (; d + AT_ONCE <= n; d += AT_ONCE) {
        const __m512i x = without_small(_mm512_loadu_si512(from + d));
        _mm512_storeu_si512(words + d / ELEMENTS, order_words(x));
    }
    if (d == n)
        return;
    const __m512i x = _mm512_maskz_loadu_epi16((UINT32_C(1) << (n - d)) - 1, from + d);
    _mm512_mask_storeu_epi32(words + d / ELEMENTS, first_mask(whole_quads(n - d) / ELEMENTS),
                             order_words(without_small(x)));
}

#endif
