/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of 32 products of bf16, by VDPBF16PS. The loops are in tiles.h and, for few rows, few.h of
 * kernels/vectors/grouped. VPDPBF16PS multiplies the high halves of two words, then the low halves.
 * A word holds two elements of even index or two of odd index, and the first of the two is in the
 * high half. So an accumulator takes elements 0, 2, 4, ... of a group, or 1, 3, 5, ..., in their
 * order. No product and no sum is subnormal, because elements below 2^-56 in magnitude and small
 * weights are 0.
 *
 * A register tile of tiles.h has 12 sums: 3 keys or columns x 4 vectors. Each sum has two
 * accumulators, one for even and one for odd words of a group. 24 accumulators, 4 vectors of lanes
 * and 1 broadcast take 29 of 32 zmm. Each word takes 12 VDPBF16PS, which limit the speed, and 7
 * loads.
 */
#include "kernels/avx512_bf16/avx512_bf16.h"

#include "kernels/avx512/grouped/words.h"

enum { SUMS = 12 };

static inline __attribute__((always_inline)) floats grouped_step(floats x, floats w, floats sum)
{
    return multiply_step(x, w, sum, true);
}

/* Makes words of quads: elements a, b, c, d become c, a, d, b, with c in the lowest bits. So words
 * of even index hold elements of even index. */
static inline __m512i order_words(__m512i x)
{
    const __m512i order = _mm512_set4_epi32(0x0b0a0f0e, 0x09080d0c, 0x03020706, 0x01000504);
    return _mm512_shuffle_epi8(x, order);
}

/* Defines pack_row. */
#include "kernels/avx512/grouped/row.h"

/* Makes the words of two rows. A row that is NULL counts as zeros. */
static void pack_two(const uint16_t *high, const uint16_t *low, int64_t n, float *words)
{
    for (int64_t c = 0; c < n; c += VECTOR) {
        const __mmask16 mask = first_mask(n - c);
        _mm512_mask_storeu_epi32(words + c, mask, words_of_rows(high, low, c, mask));
    }
}

static void pack_group(const void *const row[GROUP_PRODUCTS], int keys, int64_t n, float *words)
{
    require_built(TYPE_BF16);
    for (int i = 0; i < keys; i += QUAD_ELEMENTS, words += 2 * n) {
        pack_two(row[i], row[i + 2], n, words);
        pack_two(row[i + 1], row[i + 3], n, words + n);
    }
}

/* Rounds the elements of a quad to bf16, in VECTOR lanes. Stores the rounded elements in `rounded`
 * as binary32, and their words at `words` and at words + lanes. x and `rounded` may be the same
 * array. */
static inline void round_quad(const floats x[QUAD_ELEMENTS], floats rounded[QUAD_ELEMENTS],
                              float *words, int lanes)
{
    for (int i = 0; i < QUAD_ELEMENTS; i++)
        rounded[i] = x[i];
    round_pair(&rounded[0], &rounded[2], words);
    round_pair(&rounded[1], &rounded[3], words + lanes);
}

/* Defines attnkit_avx512_bf16_grouped. */
#include "kernels/vectors/grouped/tiles.h"
