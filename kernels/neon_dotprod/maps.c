/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps in integers, by SDOT of the unit DotProd: one instruction adds four products to the
 * sum of each of 4 outputs. No sum overflows. The loops are in kernels/vectors/integers/product.h.
 *
 * A register tile has 2 rows x 4 vectors. 8 integer sums, 8 sums of binary32, 8 vectors of words
 * and one of x take 25 of 32 registers. A step of 8 inputs takes 16 SDOT and 9 loads. SDOT limits
 * the speed.
 */
#include "kernels/neon/integers/dot.h"

enum { ROWS = 2, WIDTH = 4, FEW_ROWS = 2, FEW_WIDTH = 4, ONE_WIDTH = 4, FEW_MOST = 2 };

static inline void store_words(char *to, words_v w)
{
    vst1q_s8((int8_t *)to, w.val[0]);
    vst1q_s8((int8_t *)to + 16, w.val[1]);
}

static inline __attribute__((always_inline)) sums_v add_stored(sums_v sum, const char *w,
                                                               const int8_t *x)
{
    return add_products(sum, load_words(w), x);
}

static inline float32x4_t sums_as_floats(sums_v sum, int row, bool packed)
{
    (void)packed;
    return vcvtq_f32_s32(sum.part[row]);
}

#include "kernels/vectors/integers/product.h"

const struct matrix_integer_kernels attnkit_neon_dotprod_matrix_integers = {
    .rows = FEW_MOST,
    .x_bytes = X_BLOCK,
    .words_bytes = WORDS_BLOCK,
    .round_rows = round_rows,
    .make_words = make_words,
    .product = product,
    .few_product = few_product,
};
