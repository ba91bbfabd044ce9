/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of decode that multiply integers, by SDOT of the unit DotProd: one instruction adds
 * four products of bytes to each of 4 sums. No sum overflows. An integer of q or of the weights has
 * two limbs, which are bytes (kernels/neon/integers/limbs.h).
 *
 * Scores: for each query row, 32 elements of 4 keys take 16 SDOT, 4 shifts and 3 instructions that
 * add lanes. K is not widened. Registers: 8 vectors of K, 4 of q and 4 sums. Weighted V: the bytes
 * of 4 keys are interleaved. 4 keys and 8 columns take 4 loads and 4 permutations for all rows, and
 * 4 SDOT for each row. Registers of a tile of 4 rows and 8 columns: 16 sums, 8 vectors of weights,
 * 2 of V and 4 temporary ones. A tile of 2 rows has 16 columns: 16 sums, 4 vectors of weights and 4
 * of V.
 */
enum { LIMBS = 16 };

#include "kernels/neon/integers/limbs.h"

/* Loads a block of each of FOUR keys. bytes[2 i] and bytes[2 i + 1] have the block of key i. */
static inline __attribute__((always_inline)) void load_block(const char *const *row, int64_t at,
                                                             int8x16_t bytes[BLOCK_VECTORS])
{
    for (int key = 0; key < FOUR; key++)
        for (int i = 0; i < 2; i++)
            bytes[2 * key + i] = vld1q_s8((const int8_t *)row[key] + at + 16 * i);
}

/* Returns the sum of the products of q and a block of K, for each of FOUR keys. The sum of the low
 * limbs starts at 256 times the sum of the high limbs. */
static inline __attribute__((always_inline)) int32x4_t
block_sums(const int8x16_t bytes[BLOCK_VECTORS], const int8_t *q)
{
    int32x4_t sum[FOUR];
    for (int key = 0; key < FOUR; key++) {
        sum[key] = vdotq_s32(vdupq_n_s32(0), bytes[2 * key], vld1q_s8(q));
        sum[key] = vdotq_s32(sum[key], bytes[2 * key + 1], vld1q_s8(q + 32));
        sum[key] = vdotq_s32(vshlq_n_s32(sum[key], 8), bytes[2 * key], vld1q_s8(q + 16));
        sum[key] = vdotq_s32(sum[key], bytes[2 * key + 1], vld1q_s8(q + 48));
    }
    return vpaddq_s32(vpaddq_s32(sum[0], sum[1]), vpaddq_s32(sum[2], sum[3]));
}

static inline __attribute__((always_inline)) int32x4_t dot_lane(int32x4_t sum, int8x16_t v,
                                                                int8x16_t n, const int lane)
{
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(sum, v, n, 0);
    case 1:
        return vdotq_laneq_s32(sum, v, n, 1);
    case 2:
        return vdotq_laneq_s32(sum, v, n, 2);
    default:
        return vdotq_laneq_s32(sum, v, n, 3);
    }
}

/* Adds the products of MANY keys. sum[r][2 i] has the sums of the high limbs of row r for columns 4
 * i to 4 i + 3, and sum[r][2 i + 1] has the sums of the low limbs. */
static inline __attribute__((always_inline)) void add_keys(const char *const *row, int64_t at,
                                                           const struct rounded_weights *w, int key,
                                                           int32x4_t sum[][MOST_SUMS],
                                                           const int columns, const int rows)
{
    int8x16_t high[PANEL_ROWS], low[PANEL_ROWS];
    for (int r = 0; r < rows; r++) {
        high[r] = vld1q_s8(w->limbs[r] + 2 * key);
        low[r] = vld1q_s8(w->limbs[r] + 2 * key + LIMBS);
    }
#pragma GCC unroll 4
    for (int i = 0; i < MANY / 4; i++) {
        int8x16_t v[MOST_COLUMNS / 4];
        interleave_keys(row + 4 * i, at, v, columns);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < columns / 4; j++) {
                sum[r][2 * j] = dot_lane(sum[r][2 * j], v[j], high[r], i);
                sum[r][2 * j + 1] = dot_lane(sum[r][2 * j + 1], v[j], low[r], i);
            }
        end_keys();
    }
}

static inline int32x4_t column_sums(const int32x4_t sum[2])
{
    return join_limbs(sum[0], sum[1]);
}

#include "kernels/neon/integers/limb_decode.h"

extern const struct integer_panel_kernels attnkit_neon_dotprod_integer_panel;
const struct integer_kernels attnkit_neon_dotprod_integers = {
    .round_row = round_row,
    .decode = decode,
    .panel = &attnkit_neon_dotprod_integer_panel,
};
