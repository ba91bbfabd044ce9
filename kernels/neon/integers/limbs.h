/* SPDX-License-Identifier: Apache-2.0
 *
 * Integers of 16 bits as two bytes, for the units of NEON that multiply bytes (step 16 of
 * ../../README.md). An integer of at most 127 * 256 in magnitude is 256 * high + low. `high` and
 * `low` are its limbs: signed bytes. The limbs of LIMBS integers lie together: first the high, then
 * the low limbs. A file defines LIMBS, which is 8 or 16, and then includes this header.
 */
#ifndef ATTNKIT_NEON_LIMBS_H
#define ATTNKIT_NEON_LIMBS_H

#include "kernels/neon/integers/tiled_scores.h"

/* Stores 16 integers as 32 limbs. */
static inline void store_limbs(int8_t *to, int16x8_t first, int16x8_t second)
{
    const int8x16_t low = vuzp1q_s8(vreinterpretq_s8_s16(first), vreinterpretq_s8_s16(second));
    const int8x16_t high = vrshrn_high_n_s16(vrshrn_n_s16(first, 8), second, 8);
    if (LIMBS == 16) {
        vst1q_s8(to, high);
        vst1q_s8(to + 16, low);
        return;
    }
    const int64x2_t halves[2] = {vreinterpretq_s64_s8(high), vreinterpretq_s64_s8(low)};
    vst1q_s8(to, vreinterpretq_s8_s64(vzip1q_s64(halves[0], halves[1])));
    vst1q_s8(to + 16, vreinterpretq_s8_s64(vzip2q_s64(halves[0], halves[1])));
}

/* Returns sums of products of 16-bit integers and bytes of K or V: 256 * high + low. `high` has the
 * sums of the products of the high limbs and the bytes. `low` has the sums of the products of the
 * low limbs and the same bytes. */
static inline int32x4_t join_limbs(int32x4_t high, int32x4_t low)
{
    return vaddq_s32(vshlq_n_s32(high, 8), low);
}

/* ------------------------------------------------------------------------------------ q */

enum {
    LIMB_ELEMENTS = 512, /* elements of q whose limbs are made at a time */
    LIMB_BLOCKS = LIMB_ELEMENTS / Q8_BLOCK,
    BLOCK_LIMBS = 2 * Q8_BLOCK,
};

/* Some elements of the rows of a panel, as limbs. */
struct limb_rows {
    int8_t block[PANEL_ROWS][LIMB_BLOCKS][BLOCK_LIMBS];
};

/* Returns integers of a rounded row in the order of K. The rounded row has the elements of each
 * four in the order 0, 2, 1 and 3. */
static inline int16x8_t in_order(int16x8_t n)
{
    const uint8x16_t order = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    return vreinterpretq_s16_s8(vqtbl1q_s8(vreinterpretq_s8_s16(n), order));
}

/* Makes the limbs of elements d to end - 1 of each row. */
static inline __attribute__((always_inline)) void make_limbs(const struct panel *panel, int64_t d,
                                                             int64_t end, struct limb_rows *limbs,
                                                             const int rows)
{
    for (int r = 0; r < rows; r++) {
        const int16_t *const n = integers_of(panel->q[r], panel->block->k.dim);
        for (int64_t i = d; i < end; i += 16)
            store_limbs(limbs->block[r][0] + 2 * (i - d), in_order(vld1q_s16(n + i)),
                        in_order(vld1q_s16(n + i + 8)));
    }
}

/* ------------------------------------------------------------------------------ weights */

enum {
    FOUR = 4,                     /* keys of a tile of scores */
    BLOCK_VECTORS = 8,            /* vectors that hold Q8_BLOCK elements of K of all FOUR keys */
    MANY = 16,                    /* keys whose weights become limbs in one step */
    MOST_COLUMNS = 16,            /* most columns of a tile of weighted V */
    MOST_SUMS = MOST_COLUMNS / 2, /* most vectors of sums of a row: each column has a sum of high
                                   * limbs and a sum of low limbs */
};

/* The weights of a panel, a line for each row. In the line of row r, the numbers from key
 * visible[r] on have no meaning. */
struct weight_lines {
    float p[PANEL_ROWS][KEY_BLOCK];
};

/* The rounded weights of each row, for a block of columns. */
struct rounded_weights {
    int8_t limbs[PANEL_ROWS][2 * KEY_BLOCK];
    float scale[PANEL_ROWS];
};

/* Returns panel->most rounded up to whole groups of MANY keys. The list of rows of V has an entry
 * for each of these keys, because its last entry is repeated. */
static inline int whole_keys(const struct panel *panel)
{
    return (panel->most + MANY - 1) / MANY * MANY;
}

static inline __attribute__((always_inline)) void
take_weights(const struct panel *panel, const struct weights *weights, struct weight_lines *lines)
{
    for (int key = 0; key < whole_keys(panel); key += VECTOR) {
        float32x4_t p[PANEL_ROWS];
        for (int i = 0; i < VECTOR; i++)
            p[i] = vld1q_f32(weights->p[key + i]);
        transpose(p);
        for (int r = 0; r < PANEL_ROWS; r++)
            vst1q_f32(lines->p[r] + key, p[r]);
    }
}

/* Returns the scales of element d of rows `first` to first + 3. */
static inline float32x4_t scales_of_four(const struct key_rows *rows, int first, int64_t d)
{
    const char *const *const row = rows->row + first;
    const int64_t at = bytes_of(TYPE_Q8_0, d);
    uint16x4_t bits = vdup_n_u16(0);
    if (is_i8(rows->type))
        return (float32x4_t){scale_at(rows, first, d), scale_at(rows, first + 1, d),
                             scale_at(rows, first + 2, d), scale_at(rows, first + 3, d)};
    bits = vld1_lane_u16((const uint16_t *)(const void *)(row[0] + at), bits, 0);
    bits = vld1_lane_u16((const uint16_t *)(const void *)(row[1] + at), bits, 1);
    bits = vld1_lane_u16((const uint16_t *)(const void *)(row[2] + at), bits, 2);
    bits = vld1_lane_u16((const uint16_t *)(const void *)(row[3] + at), bits, 3);
    return vcvt_f32_f16(vreinterpret_f16_u16(bits));
}

/* x has a number for each of VECTOR keys, from `key` on. Returns x with 0 as the number of every
 * key from key `visible` on. */
static inline float32x4_t seen_only(float32x4_t x, int key, int visible)
{
    const int32x4_t count = {0, 1, 2, 3};
    const uint32x4_t seen = vcltq_s32(vaddq_s32(vdupq_n_s32(key), count), vdupq_n_s32(visible));
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), seen));
}

/* Sets `product` to the weights of VECTOR keys times the scales of V, or to 0 where a row does not
 * see a key: the scale of this key may be NaN. All rows see the keys before panel->fewest. Updates
 * the largest magnitudes. */
static inline __attribute__((always_inline)) void
scale_weights(const struct panel *panel, const struct weight_lines *lines, float32x4_t scale,
              int key, float product[][KEY_BLOCK], uint32x4_t largest[PANEL_ROWS], const int rows)
{
    for (int r = 0; r < rows; r++) {
        float32x4_t x = vmulq_f32(vld1q_f32(lines->p[r] + key), scale);
        if (key + VECTOR > panel->fewest)
            x = seen_only(x, key, panel->visible[r]);
        largest[r] = vmaxq_u32(largest[r], vreinterpretq_u32_f32(vabsq_f32(x)));
        vst1q_f32(product[r] + key, x);
    }
}

static inline __attribute__((always_inline)) void round_line(const float *x, int keys,
                                                             float inverse, int8_t *limbs)
{
    for (int key = 0; key < keys; key += MANY) {
        int32x4_t n[MANY / VECTOR];
        for (int i = 0; i < MANY / VECTOR; i++)
            n[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + key + i * VECTOR), inverse));
        store_limbs(limbs + 2 * key,
                    vuzp1q_s16(vreinterpretq_s16_s32(n[0]), vreinterpretq_s16_s32(n[1])),
                    vuzp1q_s16(vreinterpretq_s16_s32(n[2]), vreinterpretq_s16_s32(n[3])));
    }
}

/* Multiplies the weights of all rows by the scales of V at column c, and rounds these products to
 * integers. */
static inline __attribute__((always_inline)) void
round_weights(const struct panel *panel, const struct weight_lines *lines, int64_t c,
              struct rounded_weights *w, const int rows)
{
    float product[PANEL_ROWS][KEY_BLOCK];
    uint32x4_t largest[PANEL_ROWS];
    for (int r = 0; r < rows; r++)
        largest[r] = vdupq_n_u32(0);
    for (int key = 0; key < whole_keys(panel); key += VECTOR) {
        const float32x4_t scale = scales_of_four(&panel->block->v, key, c);
        scale_weights(panel, lines, scale, key, product, largest, rows);
    }
    for (int r = 0; r < rows; r++) {
        const struct integer_scale s = integer_scale_of(vmaxvq_u32(largest[r]));
        w->scale[r] = s.scale;
        round_line(product[r], whole_keys(panel), s.inverse, w->limbs[r]);
    }
}

/* Keeps compilers from moving loads of later keys to earlier places. There are too few registers
 * for such early loads. */
static inline void end_keys(void)
{
    __asm__ volatile("" : : : "memory");
}

/* Returns 8 bytes and 8 zeros. */
static inline int8x16_t load_eight(const int8_t *from)
{
    int64_t bytes;
    memcpy(&bytes, from, sizeof bytes);
    return vreinterpretq_s8_s64((int64x2_t){bytes, 0});
}

/* Interleaves the bytes of 8 or 16 columns of four keys: each 32 bits of u hold one column of the
 * four keys. u[i] has columns 4 i to 4 i + 3. */
static inline __attribute__((always_inline)) void
interleave_keys(const char *const *row, int64_t at, int8x16_t *u, const int columns)
{
    int8x16_t x[4];
    for (int i = 0; i < 4; i++) {
        const int8_t *const from = (const int8_t *)row[i] + at;
        x[i] = columns == 16 ? vld1q_s8(from) : load_eight(from);
    }
    for (int half = 0; half < columns / 8; half++) {
        const int16x8_t keys_01 =
            vreinterpretq_s16_s8(half == 0 ? vzip1q_s8(x[0], x[1]) : vzip2q_s8(x[0], x[1]));
        const int16x8_t keys_23 =
            vreinterpretq_s16_s8(half == 0 ? vzip1q_s8(x[2], x[3]) : vzip2q_s8(x[2], x[3]));
        u[2 * half] = vreinterpretq_s8_s16(vzip1q_s16(keys_01, keys_23));
        u[2 * half + 1] = vreinterpretq_s8_s16(vzip2q_s16(keys_01, keys_23));
    }
}

#endif
