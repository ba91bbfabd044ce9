/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps in integers, by SMMLA of the unit I8MM: one instruction adds eight products to each
 * of the 4 sums of 2 outputs and 2 rows. Few rows are multiplied by SDOT, because words for SMMLA
 * take more instructions to make. No sum overflows. The loops are in
 * kernels/vectors/integers/product.h.
 *
 * A register tile has 2 rows x 4 vectors. 8 integer sums, 8 sums of binary32, 8 vectors of words
 * and one of x take 25 of 32 registers. A step of 8 inputs takes 8 SMMLA and 9 loads. The number of
 * instructions limits the speed.
 */
#include "kernels/neon/integers/dot.h"

enum { ROWS = 2, WIDTH = 4, FEW_ROWS = 2, FEW_WIDTH = 4, ONE_WIDTH = 4, FEW_MOST = 2 };

/* Stores two vectors. Each of them has inputs 0 to 7 of two outputs. */
static inline void store_words(char *to, words_v w)
{
    const int32x4_t low = vreinterpretq_s32_s8(w.val[0]), high = vreinterpretq_s32_s8(w.val[1]);
    vst1q_s8((int8_t *)to, vreinterpretq_s8_s32(vzip1q_s32(low, high)));
    vst1q_s8((int8_t *)to + 16, vreinterpretq_s8_s32(vzip2q_s32(low, high)));
}

/* Adds the products of stored words. Part i of the sums has outputs 2 i and 2 i + 1, and for each
 * of them both rows. */
static inline __attribute__((always_inline)) sums_v add_stored(sums_v sum, const char *w,
                                                               const int8_t *x)
{
    const int8x16_t n = vld1q_s8(x);
    const words_v words = load_words(w);
    for (int i = 0; i < 2; i++)
        sum.part[i] = vmmlaq_s32(sum.part[i], words.val[i], n);
    return sum;
}

static inline __attribute__((always_inline)) float32x4_t sums_as_floats(sums_v sum, int row,
                                                                        bool packed)
{
    if (packed)
        return vcvtq_f32_s32(sum.part[row]);
    return vcvtq_f32_s32(row == 0 ? vuzp1q_s32(sum.part[0], sum.part[1])
                                  : vuzp2q_s32(sum.part[0], sum.part[1]));
}

#include "kernels/vectors/integers/product.h"

const struct matrix_integer_kernels attnkit_neon_i8mm_matrix_integers = {
    .rows = FEW_MOST,
    .x_bytes = X_BLOCK,
    .words_bytes = WORDS_BLOCK,
    .round_rows = round_rows,
    .make_words = make_words,
    .product = product,
    .few_product = few_product,
};
