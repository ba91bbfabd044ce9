/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile of decode that multiplies integers as two limbs (limbs.h), for the units of NEON that
 * multiply bytes. A file defines the functions in the list below, includes this header, and puts
 * `decode` into its table.
 *   load_block     loads Q8_BLOCK elements of K of FOUR keys, as block_sums needs them
 *   block_sums     returns a sum for each of FOUR keys: the products of Q8_BLOCK elements of K with
 *                  the same elements of q
 *   add_keys       adds to a tile's sums: the products of MANY rows of V with the weights of the
 *                  query rows
 *   column_sums    returns the sums of 4 columns of a tile
 *
 * n[r] are 16-bit integers. In scores, n[r] are the rounded elements of row r of q. In weighted V,
 * each block of columns has its own n[r]: the rounded products of the weights of row r and the
 * scales of V.
 * Scores: s[r][key] = chain over the blocks of Q8_BLOCK elements d of fma(sum of n[r][d] *
 * k[key][d], scale of the block of q * scale of the block of K, s[r][key]).
 * Weighted V: o[r][c] = fma(o[r][c], rescale[r], scale of n[r] * sum over keys of n[r][key] *
 * v[key][c]). A tile has 8 columns for 4 rows, or 16 columns for one or two rows.
 */
#ifndef ATTNKIT_NEON_LIMB_DECODE_H
#define ATTNKIT_NEON_LIMB_DECODE_H

#include "kernels/neon/integers/limbs.h"

/* ------------------------------------------------------------------------------- scores */

/* Adds the products of the block at element d to the scores of FOUR keys from `first` on.
 * q->block[r][b] has the limbs of this block of row r of q. */
static inline __attribute__((always_inline)) void add_block(const struct panel *panel, int first,
                                                            int64_t d, const struct limb_rows *q,
                                                            int b, float32x4_t s[PANEL_ROWS],
                                                            const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const float32x4_t scales = scales_of_four(k, first, d);
    int8x16_t bytes[BLOCK_VECTORS];
    load_block(k->row + first, integers_in_row(k->type, d), bytes);
    for (int r = 0; r < rows; r++) {
        const int32x4_t sum = block_sums(bytes, q->block[r][b]);
        const float32x4_t scale = vmulq_n_f32(scales, panel->q[r][d / Q8_BLOCK]);
        s[r] = vfmaq_f32(s[r], vcvtq_f32_s32(sum), scale);
    }
}

/* Continues the scores of FOUR keys, from key `key` on, by elements d to end - 1. The scores are
 * multiplied by scale_log2 only after the last element of a row. */
static inline __attribute__((always_inline)) void
add_elements(const struct panel *panel, const struct limb_rows *limbs, int key, int64_t d,
             int64_t end, struct scores *scores, const int rows)
{
    const float scale_log2 = scores->scale_log2;
    float32x4_t s[PANEL_ROWS];
    for (int r = 0; r < rows; r++)
        s[r] = d == 0 ? vdupq_n_f32(0.0f) : vld1q_f32(scores->s[r] + key);
    for (int64_t i = d; i < end; i += Q8_BLOCK)
        add_block(panel, key, i, limbs, (int)((i - d) / Q8_BLOCK), s, rows);
    for (int r = 0; r < rows; r++)
        if (end < panel->block->k.dim)
            vst1q_f32(scores->s[r] + key, s[r]);
        else
            store_scores(panel, r, key, s[r], scale_log2, scores);
}

static inline __attribute__((always_inline)) void score_rows(const struct panel *panel,
                                                             struct scores *scores, const int rows)
{
    const int64_t dim = panel->block->k.dim;
    struct limb_rows limbs;
    for (int64_t d = 0; d < dim; d += LIMB_ELEMENTS) {
        const int64_t end = dim - d < LIMB_ELEMENTS ? dim : d + LIMB_ELEMENTS;
        make_limbs(panel, d, end, &limbs, rows);
        for (int key = 0; key < panel->most; key += FOUR)
            add_elements(panel, &limbs, key, d, end, scores, rows);
    }
}

/* --------------------------------------------------------------------------- weighted V */

/* Multiplies o of row r by the rescale of the row, and adds the integer sums times `scale`, from
 * column c on. */
static inline void add_to_out(const struct panel *panel, const struct weights *weights, float scale,
                              int r, int64_t c, const int32x4_t *sum, const int columns)
{
    float *const o = panel->block->st->out + (panel->first + r) * panel->block->v.dim + c;
    for (int i = 0; i < columns / 4; i++) {
        const float32x4_t x = vmulq_n_f32(vcvtq_f32_s32(sum[i]), scale);
        vst1q_f32(o + 4 * i, vfmaq_n_f32(x, vld1q_f32(o + 4 * i), weights->rescale[r]));
    }
}

/* Computes `columns` columns of weighted V, from column c on. */
static inline __attribute__((always_inline)) void v_tile(const struct panel *panel,
                                                         const struct weights *weights,
                                                         const struct rounded_weights *w, int64_t c,
                                                         const int columns, const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    const int64_t in_block = c % Q8_BLOCK, at = integers_in_row(v->type, c - in_block) + in_block;
    int32x4_t sum[PANEL_ROWS][MOST_SUMS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < columns / 2; i++)
            sum[r][i] = vdupq_n_s32(0);
    for (int key = 0; key < whole_keys(panel); key += MANY)
        add_keys(v->row + key, at, w, key, sum, columns, rows);
    int32x4_t total[PANEL_ROWS][MOST_COLUMNS / 4];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < columns / 4; i++)
            total[r][i] = column_sums(sum[r] + 2 * i);
    for (int r = 0; r < panel->rows; r++)
        add_to_out(panel, weights, w->scale[r], r, c, total[r], columns);
}

static inline __attribute__((always_inline)) void
weigh_rows(const struct panel *panel, const struct weights *weights, const int rows)
{
    const int columns = rows <= 2 ? MOST_COLUMNS : MOST_COLUMNS / 2;
    struct weight_lines lines;
    struct rounded_weights w;
    take_weights(panel, weights, &lines);
    for (int64_t c = 0; c < panel->block->v.dim; c += columns) {
        if (c % Q8_BLOCK == 0)
            round_weights(panel, &lines, c, &w, rows);
        v_tile(panel, weights, &w, c, columns, rows);
    }
}

#include "kernels/neon/integers/by_rows.h"

#endif
