/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps in integers. SMULL and SMLAL make sums of two products of bytes, in 16 bits. SADALP
 * adds two neighbouring sums of 16 bits to a sum of 32 bits. The loops are in
 * kernels/vectors/integers/product.h.
 *
 * A register tile has 2 rows x 4 vectors. 16 registers of integer sums, 8 sums of binary32, 2 of
 * words, 2 of x and 2 products take 30 of 32. A step of 8 inputs of 4 outputs takes 6 instructions
 * for a row, where fmla would take 8.
 */
enum { ROWS_OF_SUMS = 1 };

#include "kernels/neon/integers/bytes.h"

enum { ROWS = 2, WIDTH = 4, FEW_ROWS = 2, FEW_WIDTH = 4, ONE_WIDTH = 4, FEW_MOST = 2 };

/* Sums of 4 outputs, two parts for each output. `low` has outputs 0 and 1, `high` outputs 2 and
 * 3. */
typedef struct {
    int32x4_t low, high;
} sums_v;

static inline sums_v begin_sums(int32_t beginning)
{
    (void)beginning; /* always 0 */
    return (sums_v){vdupq_n_s32(0), vdupq_n_s32(0)};
}

static inline void store_words(char *to, words_v w)
{
    vst1q_s8((int8_t *)to, w.val[0]);
    vst1q_s8((int8_t *)to + 16, w.val[1]);
}

static inline int8x16_t broadcast_four(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

/* A sum of two products is at most 2 * 128 * 127 in magnitude, which fits 16 bits. */
static inline __attribute__((always_inline)) sums_v add_products(sums_v sum, words_v w,
                                                                 const int8_t *x)
{
    const int8x16_t first = broadcast_four(x), second = broadcast_four(x + 4);
    const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(w.val[0]), vget_low_s8(first)),
                                   vget_low_s8(w.val[1]), vget_low_s8(second));
    const int16x8_t high = vmlal_high_s8(vmull_high_s8(w.val[0], first), w.val[1], second);
    return (sums_v){vpadalq_s16(sum.low, low), vpadalq_s16(sum.high, high)};
}

static inline __attribute__((always_inline)) sums_v add_stored(sums_v sum, const char *w,
                                                               const int8_t *x)
{
    const int8_t *const bytes = (const int8_t *)w;
    return add_products(sum, (words_v){{vld1q_s8(bytes), vld1q_s8(bytes + 16)}}, x);
}

static inline float32x4_t sums_as_floats(sums_v sum, int row, bool packed)
{
    (void)row; /* always 0 */
    (void)packed;
    return vcvtq_f32_s32(vpaddq_s32(sum.low, sum.high));
}

#include "kernels/vectors/integers/product.h"

const struct matrix_integer_kernels attnkit_neon_matrix_integers = {
    .rows = FEW_MOST,
    .x_bytes = X_BLOCK,
    .words_bytes = WORDS_BLOCK,
    .round_rows = round_rows,
    .make_words = make_words,
    .product = product,
    .few_product = few_product,
};
