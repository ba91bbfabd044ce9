/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode: t[r][key] = scale_log2 * chain over d of fma(q[r][d], k[key][d]), for K of
 * any type, which is widened as it is loaded. Called by decode.c. Types and rows are constants in
 * all that is inlined.
 *
 * Lanes are keys, K transposed in registers 4 keys x 4 d at a time so that a score stays one chain
 * over d. A tile is 16 keys for 1 or 2 rows, 8 for more. Registers: at most 8 sums, 4 of q and 8 of
 * K, 20 of 32. For 4 keys 4 d take 4 loads, 8 trn and 4 fmla per row.
 */
#include "kernels/neon/decode.h"

enum {
    MAX_GROUPS = 4, /* of 4 keys, in a tile */
};

/* n elements, 4 or 1, from d on for 4 * groups keys from `first` on. */
static inline __attribute__((always_inline)) void
add_d(const enum type type, float32x4_t s[][MAX_GROUPS], const struct panel *panel, int first,
      int64_t d, const int n, const int groups, const int rows)
{
    const int64_t place = scale_place(type, panel->block->k.scale_group, d);
    float32x4_t q_4[DECODE_PANEL];
    for (int r = 0; r < rows; r++)
        q_4[r] = load_first(panel->q[r] + d, n);
    for (int group = 0; group < groups; group++) {
        float32x4_t k_t[4];
        for (int i = 0; i < 4; i++)
            k_t[i] = load_scaled(type, &panel->block->k, first + 4 * group + i, d, n, place);
        transpose(k_t);
        for (int i = 0; i < n; i++)
            for (int r = 0; r < rows; r++)
                s[r][group] = fma_lane(s[r][group], k_t[i], q_4[r], i);
    }
}

/* 4 * groups keys from `first` on. */
static inline __attribute__((always_inline)) void
score_tile(const enum type type, const struct panel *panel, int first, float scale_log2,
           struct scores *scores, const int groups, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    float32x4_t s[DECODE_PANEL][MAX_GROUPS];
    for (int r = 0; r < rows; r++)
        for (int group = 0; group < groups; group++)
            s[r][group] = vdupq_n_f32(0.0f);
    int64_t d = 0;
    for (; d + 4 <= k->dim; d += 4)
        add_d(type, s, panel, first, d, 4, groups, rows);
    for (; d < k->dim; d++)
        add_d(type, s, panel, first, d, 1, groups, rows);

    for (int r = 0; r < rows; r++)
        for (int group = 0; group < groups; group++)
            store_scores(panel, r, first + 4 * group, s[r][group], scale_log2, scores);
}

static inline __attribute__((always_inline)) void score_keys(const enum type type,
                                                             const struct panel *panel,
                                                             float scale_log2,
                                                             struct scores *scores, const int rows)
{
    const int groups = rows <= 2 ? MAX_GROUPS : MAX_GROUPS / 2;
    for (int key = 0; key < panel->most; key += 4 * groups)
        score_tile(type, panel, key, scale_log2, scores, groups, rows);
}

static inline __attribute__((always_inline)) void
score_type(const enum type type, const struct panel *panel, float scale_log2, struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_keys(type, panel, scale_log2, scores, 1);
        break;
    case 2:
        score_keys(type, panel, scale_log2, scores, 2);
        break;
    default:
        score_keys(type, panel, scale_log2, scores, DECODE_PANEL);
        break;
    }
}

static __attribute__((noinline)) void score_f32(const struct panel *panel, float scale_log2,
                                                struct scores *scores)
{
    score_type(TYPE_F32, panel, scale_log2, scores);
}

static __attribute__((noinline)) void score_f16(const struct panel *panel, float scale_log2,
                                                struct scores *scores)
{
    score_type(TYPE_F16, panel, scale_log2, scores);
}

static __attribute__((noinline)) void score_bf16(const struct panel *panel, float scale_log2,
                                                 struct scores *scores)
{
    score_type(TYPE_BF16, panel, scale_log2, scores);
}

static __attribute__((noinline)) void score_i8(const struct panel *panel, float scale_log2,
                                               struct scores *scores)
{
    score_type(TYPE_I8, panel, scale_log2, scores);
}

static __attribute__((noinline)) void score_q8_0(const struct panel *panel, float scale_log2,
                                                 struct scores *scores)
{
    score_type(TYPE_Q8_0, panel, scale_log2, scores);
}

void attnkit_neon_decode_k(const struct panel *panel, float scale_log2, struct scores *scores)
{
    switch (panel->block->k.type) {
    case TYPE_F32:
        score_f32(panel, scale_log2, scores);
        break;
    case TYPE_F16:
        score_f16(panel, scale_log2, scores);
        break;
    case TYPE_BF16:
        score_bf16(panel, scale_log2, scores);
        break;
    case TYPE_I8:
        score_i8(panel, scale_log2, scores);
        break;
    case TYPE_Q8_0:
        score_q8_0(panel, scale_log2, scores);
        break;
    default:
        __builtin_trap(); /* attention/block.c widens it */
    }
}
