/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of decode that multiply integers (step 16 of ../../README.md), for NEON.
 *
 * n[r] are 16-bit integers. In scores, n[r] are the rounded elements of row r of q. In weighted V,
 * each block of columns has its own n[r]: the rounded products of the weights of row r and the
 * scales of V.
 * Scores: s[r][key] = chain over the blocks of Q8_BLOCK elements d of fma(sum of n[r][d] *
 * k[key][d], scale of the block of q * scale of the block of K, s[r][key]). The 32 products of a
 * block of a key are added up along the lanes. A block of a key takes 2 permutations and 4
 * widenings, and 8 smlal for each row.
 * Weighted V: o[r][c] = fma(o[r][c], rescale[r], scale of n[r] * sum over keys of n[r][key] *
 * v[key][c]). Lanes are columns. A tile has 16 columns. A key takes 2 widenings, and 4 smlal for
 * each row.
 *
 * Registers: scores of K in rows take 4 vectors of K, 4 of q and a sum for each of 4 keys and 4
 * rows, 24 of 32. Scores of K in tiles take 16 sums, 2 vectors of K and 4 of q.
 * Weighted V takes 16 sums, 2 vectors of V and one of weights.
 */
#include "kernels/neon/integers/tiled_scores.h"

enum {
    FOUR = 4,     /* keys of a tile of scores */
    COLUMNS = 16, /* columns of a tile of weighted V */
    SUMS = COLUMNS / 4,
};

/* ------------------------------------------------------------------------------------ scores */

/* Loads a block of K as 16-bit integers. Elements 1 and 2 of each four are swapped, as round_row
 * swaps them in the rows of q. */
static inline __attribute__((always_inline)) void load_block(const int8_t *bytes, int16x8_t k[4])
{
    const uint8x16_t order = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};
    widen_bytes(vqtbl1q_s8(vld1q_s8(bytes), order), k);
    widen_bytes(vqtbl1q_s8(vld1q_s8(bytes + 16), order), k + 2);
}

/* Adds up the 32 products of a block of K and a block of q in four sums, 8 products in each, and
 * returns the sums. */
static inline __attribute__((always_inline)) int32x4_t block_products(const int16x8_t k[4],
                                                                      const int16_t *q)
{
    int32x4_t sum = vdupq_n_s32(0);
    for (int i = 0; i < 4; i++) {
        const int16x8_t n = vld1q_s16(q + 8 * i);
        sum = vmlal_s16(sum, vget_low_s16(k[i]), vget_low_s16(n));
        sum = vmlal_high_s16(sum, k[i], n);
    }
    return sum;
}

/* Adds the products of the block at element d to the scores of FOUR keys from `first` on. */
static inline __attribute__((always_inline)) void add_block(const struct panel *panel, int first,
                                                            int64_t d, float32x4_t s[PANEL_ROWS],
                                                            const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const int64_t at = integers_in_row(k->type, d);
    int32x4_t sum[PANEL_ROWS][FOUR];
    float scales[FOUR];
    for (int key = 0; key < FOUR; key++) {
        int16x8_t wide[4];
        scales[key] = scale_at(k, first + key, d);
        load_block((const int8_t *)k->row[first + key] + at, wide);
        for (int r = 0; r < rows; r++)
            sum[r][key] = block_products(wide, integers_of(panel->q[r], k->dim) + d);
    }
    for (int r = 0; r < rows; r++) {
        const int32x4_t all =
            vpaddq_s32(vpaddq_s32(sum[r][0], sum[r][1]), vpaddq_s32(sum[r][2], sum[r][3]));
        const float32x4_t scale = vmulq_n_f32(vld1q_f32(scales), panel->q[r][d / Q8_BLOCK]);
        s[r] = vfmaq_f32(s[r], vcvtq_f32_s32(all), scale);
    }
}

static inline __attribute__((always_inline)) void score_rows(const struct panel *panel,
                                                             struct scores *scores, const int rows)
{
    const float scale_log2 = scores->scale_log2;
    for (int key = 0; key < panel->most; key += FOUR) {
        float32x4_t s[PANEL_ROWS];
        for (int r = 0; r < rows; r++)
            s[r] = vdupq_n_f32(0.0f);
        for (int64_t d = 0; d < panel->block->k.dim; d += Q8_BLOCK)
            add_block(panel, key, d, s, rows);
        for (int r = 0; r < rows; r++)
            store_scores(panel, r, key, s[r], scale_log2, scores);
    }
}

/* ---------------------------------------------------------------------------------- rounding */

/* Rounded weights for a block of columns. */
struct rounded_weights {
    int16_t n[KEY_BLOCK][PANEL_ROWS];
    float scale[PANEL_ROWS];
};

/* Returns the weights of a key times the key's scale of V. A row that does not see the key gets 0.
 */
static inline float32x4_t scaled_weights(const struct panel *panel, const struct weights *weights,
                                         const float *scales, int key)
{
    const uint32x4_t seen = vcltq_s32(vdupq_n_s32(key), vld1q_s32(panel->visible));
    const float32x4_t product = vmulq_n_f32(vld1q_f32(weights->p[key]), scales[key]);
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(product), seen));
}

static void round_weights(const struct panel *panel, const struct weights *weights, int64_t c,
                          struct rounded_weights *w)
{
    float scales[KEY_BLOCK], inverse[PANEL_ROWS];
    uint32_t bits[PANEL_ROWS];
    uint32x4_t largest = vdupq_n_u32(0);
    for (int key = 0; key < panel->most; key++) {
        scales[key] = scale_at(&panel->block->v, key, c);
        const float32x4_t x = scaled_weights(panel, weights, scales, key);
        largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(x)));
    }
    vst1q_u32(bits, largest);
    for (int r = 0; r < PANEL_ROWS; r++) {
        const struct integer_scale s = integer_scale_of(bits[r]);
        w->scale[r] = s.scale;
        inverse[r] = s.inverse;
    }
    for (int key = 0; key < panel->most; key++) {
        const float32x4_t x = scaled_weights(panel, weights, scales, key);
        vst1_s16(w->n[key], vqmovn_s32(vcvtnq_s32_f32(vmulq_f32(x, vld1q_f32(inverse)))));
    }
}

/* -------------------------------------------------------------------------------------- sums */

/* Computes COLUMNS columns of weighted V, from column c on. */
static inline __attribute__((always_inline)) void v_tile(const struct panel *panel,
                                                         const struct weights *weights,
                                                         const struct rounded_weights *w, int64_t c,
                                                         const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    const int64_t in_block = c % Q8_BLOCK, at = integers_in_row(v->type, c - in_block) + in_block;
    int32x4_t sum[PANEL_ROWS][SUMS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < SUMS; i++)
            sum[r][i] = vdupq_n_s32(0);
    for (int key = 0; key < panel->most; key++) {
        const int16x4_t n = vld1_s16(w->n[key]);
        int16x8_t x[2];
        widen_bytes(vld1q_s8((const int8_t *)v->row[key] + at), x);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < SUMS; i++)
                sum[r][i] = multiply_add_lane(
                    sum[r][i], i % 2 ? vget_high_s16(x[i / 2]) : vget_low_s16(x[i / 2]), n, r);
    }
    for (int r = 0; r < rows && r < panel->rows; r++) {
        float *const o = panel->block->st->out + (panel->first + r) * v->dim + c;
        for (int i = 0; i < SUMS; i++) {
            const float32x4_t x = vmulq_n_f32(vcvtq_f32_s32(sum[r][i]), w->scale[r]);
            vst1q_f32(o + 4 * i, vfmaq_n_f32(x, vld1q_f32(o + 4 * i), weights->rescale[r]));
        }
    }
}

static inline __attribute__((always_inline)) void
weigh_rows(const struct panel *panel, const struct weights *weights, const int rows)
{
    struct rounded_weights w;
    for (int64_t c = 0; c < panel->block->v.dim; c += COLUMNS) {
        if (c % Q8_BLOCK == 0)
            round_weights(panel, weights, c, &w);
        v_tile(panel, weights, &w, c, rows);
    }
}

#include "kernels/neon/integers/by_rows.h"

extern const struct integer_panel_kernels attnkit_neon_integer_panel;
const struct integer_kernels attnkit_neon_integers = {
    .round_row = round_row,
    .decode = decode,
    .panel = &attnkit_neon_integer_panel,
};
