/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of decode with integers where K lies in tiles, for NEON with and without units. integers.c
 * of this folder has the formula. A tile has 16 keys. One element of these keys takes a load, 2
 * widenings, and 4 smlal for each row. Registers: 16 sums, 2 vectors of K and 4 of q.
 */
#ifndef ATTNKIT_NEON_INTEGER_TILED_SCORES_H
#define ATTNKIT_NEON_INTEGER_TILED_SCORES_H

#include "kernels/integers.h"
#include "kernels/neon/decode.h"

/* Widens 16 bytes to two vectors of 16-bit integers. */
static inline void widen_bytes(int8x16_t bytes, int16x8_t wide[2])
{
    wide[0] = vmovl_s8(vget_low_s8(bytes));
    wide[1] = vmovl_high_s8(bytes);
}

/* Returns the scale of the block at element d of a key's row. */
static inline float scale_at(const struct key_rows *rows, int key, int64_t d)
{
    uint16_t bits;
    if (is_i8(rows->type))
        return rows->scales[key][d / rows->scale_group];
    memcpy(&bits, rows->row[key] + bytes_of(TYPE_Q8_0, d), sizeof bits);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}

static inline __attribute__((always_inline)) int32x4_t multiply_add_lane(int32x4_t sum, int16x4_t v,
                                                                         int16x4_t n, const int r)
{
    switch (r) {
    case 0:
        return vmlal_lane_s16(sum, v, n, 0);
    case 1:
        return vmlal_lane_s16(sum, v, n, 1);
    case 2:
        return vmlal_lane_s16(sum, v, n, 2);
    default:
        return vmlal_lane_s16(sum, v, n, 3);
    }
}

/* Returns the scales that the keys of vector i of a tile have for the block at element d. `key` is
 * the first key of the tile. */
static inline float32x4_t scales_of_tile(const struct key_rows *k, int key, int64_t d, int i)
{
    if (is_i8(k->type))
        return vld1q_f32(k->scales[key] + d / k->scale_group * TILE_KEYS + 4 * i);
    return load_as_f32(TYPE_F16, k->row[key] + bytes_of(TYPE_Q8_0, d) * TILE_KEYS, 4 * i, 4);
}

/* Adds products to the sums of each row r: one element of each key of a tile, times lane `lane` of
 * n[r]. */
static inline __attribute__((always_inline)) void add_element(const char *keys,
                                                              const int16x4_t n[PANEL_ROWS],
                                                              int32x4_t sum[][TILE_VECTORS],
                                                              const int lane, const int rows)
{
    int16x8_t k[2];
    widen_bytes(vld1q_s8((const int8_t *)keys), k);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < TILE_VECTORS; i++)
            sum[r][i] = multiply_add_lane(
                sum[r][i], i % 2 ? vget_high_s16(k[i / 2]) : vget_low_s16(k[i / 2]), n[r], lane);
}

/* Adds the products of the block at element d to the scores of a tile. */
static inline __attribute__((always_inline)) void add_block_of_tile(const struct panel *panel,
                                                                    int key, int64_t d,
                                                                    float32x4_t s[][TILE_VECTORS],
                                                                    const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const char *at = k->row[key] + TILE_KEYS * integers_in_row(k->type, d);
    int32x4_t sum[PANEL_ROWS][TILE_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < TILE_VECTORS; i++)
            sum[r][i] = vdupq_n_s32(0);
    for (int64_t e = d; e < d + Q8_BLOCK; e += 4, at += 4 * TILE_KEYS) {
        int16x4_t n[PANEL_ROWS];
        for (int r = 0; r < rows; r++)
            n[r] = vld1_s16(integers_of(panel->q[r], k->dim) + e);
        add_element(at, n, sum, 0, rows); /* every 4 elements of q lie in the order 0, 2, 1, 3 */
        add_element(at + 2 * TILE_KEYS, n, sum, 1, rows);
        add_element(at + TILE_KEYS, n, sum, 2, rows);
        add_element(at + 3 * TILE_KEYS, n, sum, 3, rows);
    }
    for (int i = 0; i < TILE_VECTORS; i++) {
        const float32x4_t scales = scales_of_tile(k, key, d, i);
        for (int r = 0; r < rows; r++)
            s[r][i] = vfmaq_f32(s[r][i], vcvtq_f32_s32(sum[r][i]),
                                vmulq_n_f32(scales, panel->q[r][d / Q8_BLOCK]));
    }
}

static inline __attribute__((always_inline)) void score_tiles(const struct panel *panel,
                                                              struct scores *scores, const int rows)
{
    const float scale_log2 = scores->scale_log2;
    for (int key = 0; key < panel->most; key += TILE_KEYS) {
        float32x4_t s[PANEL_ROWS][TILE_VECTORS];
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < TILE_VECTORS; i++)
                s[r][i] = vdupq_n_f32(0.0f);
        for (int64_t d = 0; d < panel->block->k.dim; d += Q8_BLOCK)
            add_block_of_tile(panel, key, d, s, rows);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < TILE_VECTORS; i++)
                store_scores(panel, r, key + 4 * i, s[r][i], scale_log2, scores);
    }
}

#endif
