/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode where K lies in rows: t[r][key] = scale_log2 * (chain over d of q[r][d] *
 * k[key][d]). K may have any type of struct key_rows, and is widened as it is loaded. decode.c
 * calls decode_k. The type and the number of rows are constants of the inlined functions.
 *
 * Lanes are keys. K is transposed in registers, 4 keys x 4 d at a time, so that a score stays one
 * chain over d. A tile has 16 keys for 1 or 2 rows, and 8 keys for more rows. Registers: at most 8
 * sums, 4 vectors of q and 8 of K take 20 of 32. 4 elements of each of 4 keys take 4 loads, 8 trn,
 * and 4 fmla for each row.
 */
#include "kernels/neon/decode.h"

enum {
    MAX_GROUPS = 4, /* most groups of 4 keys in a tile */
};

/* Adds the products of elements d .. d + n - 1 of q and K to the sums s, for 4 * groups keys from
 * key `first` on. n is 4 or 1. */
static inline __attribute__((always_inline)) void
add_d(const enum type type, float32x4_t s[][MAX_GROUPS], const struct panel *panel, int first,
      int64_t d, const int n, const int groups, const int rows)
{
    const int64_t place = scale_place(type, panel->block->k.scale_group, d);
    float32x4_t q_4[PANEL_ROWS];
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

/* Computes the scores of 4 * groups keys from key `first` on. */
static inline __attribute__((always_inline)) void score_tile(const enum type type,
                                                             const struct panel *panel, int first,
                                                             struct scores *scores,
                                                             const int groups, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    float32x4_t s[PANEL_ROWS][MAX_GROUPS];
    for (int r = 0; r < rows; r++)
        for (int group = 0; group < groups; group++)
            s[r][group] = vdupq_n_f32(0.0f);
    int64_t d = 0;
    for (; d + 4 <= k->dim; d += 4)
        add_d(type, s, panel, first, d, 4, groups, rows);
    for (; d < k->dim; d++)
        add_d(type, s, panel, first, d, 1, groups, rows);

    const float scale_log2 = scores->scale_log2;
    for (int r = 0; r < rows; r++)
        for (int group = 0; group < groups; group++)
            store_scores(panel, r, first + 4 * group, s[r][group], scale_log2, scores);
}

static inline __attribute__((always_inline)) void
score_keys(const enum type type, const struct panel *panel, struct scores *scores, const int rows)
{
    const int groups = rows <= 2 ? MAX_GROUPS : MAX_GROUPS / 2;
    for (int key = 0; key < panel->most; key += 4 * groups)
        score_tile(type, panel, key, scores, groups, rows);
}

#include "kernels/vectors/decode/score_by_type.h"

void attnkit_neon_decode_k(const struct panel *panel, struct scores *scores)
{
    score_keys_of_any_type(panel, scores);
}
