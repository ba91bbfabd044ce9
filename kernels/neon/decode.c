/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for some query rows: scores (decode_k.c, decode_tiled_k.c), softmax, and
 * weighted V (decode_v.c). Row r sees the first visible[r] keys of the block. decode.c of
 * kernels/attention calls `decode`. Rows are split into panels of at most 4 rows. The rows of a
 * panel share the loads of K and V.
 */
#include "kernels/neon/decode.h"

/* Returns ceil(max t), where max ignores NaN. */
static inline float ceil_max(const float *t, int keys)
{
    float32x4_t block_max = vdupq_n_f32(-INFINITY);
    for (int key = 0; key < keys; key += 4)
        block_max = vmaxnmq_f32(block_max, vld1q_f32(t + key));
    return ceilf(vmaxnmvq_f32(block_max));
}

/* Turns the scaled scores into weights. Returns the sum of each row's weights in the lane of the
 * row. A row's sum is a chain over the keys. A weight of 0 does not change the sum. */
static inline __attribute__((always_inline)) float32x4_t
exponentiate(const struct scores *scores, int keys, float32x4_t subtrahend, struct weights *weights,
             const int rows)
{
    float subtract[PANEL_ROWS];
    vst1q_f32(subtract, subtrahend);
    float32x4_t sum = vdupq_n_f32(0.0f);
    for (int key = 0; key < keys; key += 4) {
        float32x4_t p[4];
        for (int r = 0; r < 4; r++)
            p[r] = r < rows
                       ? exp2_v(vsubq_f32(vld1q_f32(scores->s[r] + key), vdupq_n_f32(subtract[r])))
                       : vdupq_n_f32(0.0f);
        transpose(p);
        for (int i = 0; i < 4; i++) {
            vst1q_f32(weights->p[key + i], p[i]);
            sum = vaddq_f32(sum, p[i]);
        }
    }
    return sum;
}

/* Turns the scaled scores into weights, and updates row_max and row_sum of the state. */
static inline __attribute__((always_inline)) void softmax_rows(const struct panel *panel,
                                                               struct scores *scores,
                                                               struct weights *weights,
                                                               const int rows)
{
    float block_max[PANEL_ROWS] = {0};
    for (int r = 0; r < rows; r++)
        block_max[r] = ceil_max(scores->s[r], panel->most);
    float *const row_max = panel->block->st->row_max + panel->first;
    float *const row_sum = panel->block->st->row_sum + panel->first;
    const float32x4_t old_max = load_first(row_max, rows);
    const float32x4_t new_max = vmaxnmq_f32(old_max, vld1q_f32(block_max));
    const float32x4_t subtrahend = finite_max(new_max);
    const float32x4_t sum = exponentiate(scores, panel->most, subtrahend, weights, rows);
    const float32x4_t rescale = exp2_v(vsubq_f32(old_max, subtrahend));
    const float32x4_t new_sum = vfmaq_f32(sum, load_first(row_sum, rows), rescale);
    store_first(row_sum, rows, new_sum);
    store_first(row_max, rows, new_max);
    vst1q_f32(weights->rescale, rescale);
}

/* Defines attnkit_neon_decode. */
#include "kernels/vectors/decode/rows.h"
