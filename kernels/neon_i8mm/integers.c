/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of decode that multiply integers, by SMMLA of the unit I8MM: one instruction adds eight
 * products of bytes to each of 2 x 2 sums. An integer of q or of the weights has two limbs, which
 * are bytes (kernels/neon/integers/limbs.h). The two rows of one factor of SMMLA are the high and
 * the low limbs of a row of q or of weights. The rows of the other factor are two keys of K, or two
 * columns of V. No sum overflows.
 *
 * Scores: 32 elements of a key take 2 permutations, and for each row 2 SMMLA and an instruction
 * that joins limbs. Registers: 8 vectors of K, one of q and 2 sums.
 * Weighted V: the bytes of 8 keys are interleaved. 8 keys and 8 columns take 8 loads and 12
 * permutations, and 4 SMMLA for each row. Registers of a tile of 4 rows and 8 columns: 16 sums, 4
 * vectors of V and one of weights. A tile of 1 or 2 rows has 16 columns: at most 16 sums, 8 vectors
 * of V and one of weights.
 */
enum { LIMBS = 8 };

#include "kernels/neon/integers/limbs.h"

/* Sets *first to the lower halves of x and y, and *second to their upper halves. */
static inline void zip_halves(int8x16_t x, int8x16_t y, int8x16_t *first, int8x16_t *second)
{
    const int64x2_t a = vreinterpretq_s64_s8(x), b = vreinterpretq_s64_s8(y);
    *first = vreinterpretq_s8_s64(vzip1q_s64(a, b));
    *second = vreinterpretq_s8_s64(vzip2q_s64(a, b));
}

/* Loads a block of each of FOUR keys, in pairs of keys. bytes[4 pair + i] has elements 8 i to 8 i +
 * 7 of the block of both keys of the pair. */
static inline __attribute__((always_inline)) void load_block(const char *const *row, int64_t at,
                                                             int8x16_t bytes[BLOCK_VECTORS])
{
    for (int pair = 0; pair < FOUR / 2; pair++)
        for (int i = 0; i < 2; i++)
            zip_halves(vld1q_s8((const int8_t *)row[2 * pair] + at + 16 * i),
                       vld1q_s8((const int8_t *)row[2 * pair + 1] + at + 16 * i),
                       &bytes[4 * pair + 2 * i], &bytes[4 * pair + 2 * i + 1]);
}

/* Returns the sums of four keys or columns. sum[i] has the sums of the high and of the low limbs
 * for keys or columns 2 i and 2 i + 1. */
static inline int32x4_t column_sums(const int32x4_t sum[2])
{
    return join_limbs(vuzp1q_s32(sum[0], sum[1]), vuzp2q_s32(sum[0], sum[1]));
}

/* Returns the sum of the products of q and a block of K, for each of FOUR keys. */
static inline __attribute__((always_inline)) int32x4_t
block_sums(const int8x16_t bytes[BLOCK_VECTORS], const int8_t *q)
{
    int32x4_t sum[FOUR / 2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    for (int i = 0; i < Q8_BLOCK / LIMBS; i++)
        for (int pair = 0; pair < FOUR / 2; pair++)
            sum[pair] = vmmlaq_s32(sum[pair], bytes[4 * pair + i], vld1q_s8(q + 16 * i));
    return column_sums(sum);
}

/* Interleaves the bytes of 8 keys: v[i] has 8 bytes of column 2 i, and then 8 of column 2 i + 1. */
static inline __attribute__((always_inline)) void
interleave_eight(const char *const *row, int64_t at, int8x16_t v[MOST_SUMS], const int columns)
{
    int8x16_t first[MOST_COLUMNS / 4], second[MOST_COLUMNS / 4];
    interleave_keys(row, at, first, columns);
    interleave_keys(row + 4, at, second, columns);
    for (int i = 0; i < columns / 4; i++) {
        const int32x4_t a = vreinterpretq_s32_s8(first[i]), b = vreinterpretq_s32_s8(second[i]);
        v[2 * i] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
        v[2 * i + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
    }
}

/* Adds the products of LIMBS keys. sum[r][i] has the sums of the high and of the low limbs of row r
 * for columns 2 i and 2 i + 1. */
static inline __attribute__((always_inline)) void add_eight(const char *const *row, int64_t at,
                                                            const struct rounded_weights *w,
                                                            int key, int32x4_t sum[][MOST_SUMS],
                                                            const int columns, const int rows)
{
    int8x16_t v[MOST_SUMS];
    interleave_eight(row, at, v, columns);
    for (int r = 0; r < rows; r++) {
        const int8x16_t n = vld1q_s8(w->limbs[r] + 2 * key);
        for (int j = 0; j < columns / 2; j++)
            sum[r][j] = vmmlaq_s32(sum[r][j], v[j], n);
    }
    end_keys();
}

static inline __attribute__((always_inline)) void add_keys(const char *const *row, int64_t at,
                                                           const struct rounded_weights *w, int key,
                                                           int32x4_t sum[][MOST_SUMS],
                                                           const int columns, const int rows)
{
    add_eight(row, at, w, key, sum, columns, rows);
    add_eight(row + LIMBS, at, w, key + LIMBS, sum, columns, rows);
}

#include "kernels/neon/integers/limb_decode.h"

extern const struct integer_panel_kernels attnkit_neon_dotprod_integer_panel;
const struct integer_kernels attnkit_neon_i8mm_integers = {
    .round_row = round_row,
    .decode = decode,
    .panel = &attnkit_neon_dotprod_integer_panel,
};
