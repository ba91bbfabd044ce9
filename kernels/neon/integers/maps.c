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
#include "kernels/neon/neon.h"

#include "kernels/integers.h"

enum { STEP = 8, ROWS = 2, WIDTH = 4, FEW_ROWS = 2, FEW_WIDTH = 4, ONE_WIDTH = 4, FEW_MOST = 2 };

typedef int8_t input;

/* Sums of 4 outputs, two parts for each output. `low` has outputs 0 and 1, `high` outputs 2 and
 * 3. */
typedef struct {
    int32x4_t low, high;
} sums_v;

/* Words of 4 outputs: a vector with inputs 0 to 3, and a vector with inputs 4 to 7. */
typedef int8x16x2_t words_v;

static inline float round_block(const float *x, int8_t *integers, int32_t *beginning)
{
    enum { PARTS = Q8_BLOCK / VECTOR };
    float32x4_t part[PARTS];
    int16x4_t n[PARTS];
    uint32x4_t most = vdupq_n_u32(0);
    for (int i = 0; i < PARTS; i++) {
        part[i] = vld1q_f32(x + i * VECTOR);
        most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(part[i])));
    }
    const struct integer_scale s = byte_scale_of(vmaxvq_u32(most));
    for (int i = 0; i < PARTS; i++)
        n[i] = isnan(s.scale) ? vdup_n_s16(0)
                              : vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(part[i], s.inverse)));
    for (int i = 0; i < PARTS; i += 2)
        vst1_s8(integers + i * VECTOR, vmovn_s16(vcombine_s16(n[i], n[i + 1])));
    *beginning = 0;
    return s.scale;
}

static inline sums_v begin_sums(int32_t beginning)
{
    (void)beginning; /* always 0 */
    return (sums_v){vdupq_n_s32(0), vdupq_n_s32(0)};
}

/* Makes words of 4 inputs of all outputs: bytes 4 o to 4 o + 3 belong to output o. */
static inline __attribute__((always_inline)) void interleave(const int8_t *bytes,
                                                             int8x16_t w[TILE_VECTORS])
{
    const int8x16_t a = vld1q_s8(bytes), b = vld1q_s8(bytes + TILE_KEYS);
    const int8x16_t c = vld1q_s8(bytes + 2 * TILE_KEYS), d = vld1q_s8(bytes + 3 * TILE_KEYS);
    const int16x8_t ab[2] = {vreinterpretq_s16_s8(vzip1q_s8(a, b)),
                             vreinterpretq_s16_s8(vzip2q_s8(a, b))};
    const int16x8_t cd[2] = {vreinterpretq_s16_s8(vzip1q_s8(c, d)),
                             vreinterpretq_s16_s8(vzip2q_s8(c, d))};
    for (int half = 0; half < 2; half++) {
        w[2 * half] = vreinterpretq_s8_s16(vzip1q_s16(ab[half], cd[half]));
        w[2 * half + 1] = vreinterpretq_s8_s16(vzip2q_s16(ab[half], cd[half]));
    }
}

static inline __attribute__((always_inline)) void make_step(const char *bytes,
                                                            words_v w[TILE_VECTORS])
{
    int8x16_t first[TILE_VECTORS], second[TILE_VECTORS];
    interleave((const int8_t *)bytes, first);
    interleave((const int8_t *)bytes + 4 * TILE_KEYS, second);
    for (int j = 0; j < TILE_VECTORS; j++)
        w[j] = (words_v){{first[j], second[j]}};
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

/* A sum of two products is at most 2 * 128 * 127, which fits 16 bits. */
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

static inline float32x4_t sums_as_floats(sums_v sum)
{
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
