/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for some query rows, of which row r sees the first visible[r] keys: scores
 * (decode_k.c, decode_tiled_k.c), softmax, and weighted V (decode_v.c). Called by decode.c of the
 * parent folder. Rows go in panels of at most 4 that share the loads of K and V.
 */
#include "kernels/neon/decode.h"

/* ceil of the maximum of t, in which NaN does not take part. */
static inline float ceil_max(const float *t, int keys)
{
    float32x4_t block_max = vdupq_n_f32(-INFINITY);
    for (int key = 0; key < keys; key += 4)
        block_max = vmaxnmq_f32(block_max, vld1q_f32(t + key));
    return ceilf(vmaxnmvq_f32(block_max));
}

/* t to weights, and the sum of each row's weights in its lane. A row's sum is a chain over the
 * keys: the lanes of that chain are the rows. A weight of 0 does not change it. */
static inline __attribute__((always_inline)) float32x4_t
exponentiate(const struct scores *scores, int keys, float32x4_t subtrahend, struct weights *weights,
             const int rows)
{
    float subtract[DECODE_PANEL];
    vst1q_f32(subtract, subtrahend);
    float32x4_t sum = vdupq_n_f32(0.0f);
    for (int key = 0; key < keys; key += 4) {
        float32x4_t p[4];
        for (int r = 0; r < 4; r++)
            p[r] = r < rows
                       ? exp2_v(vsubq_f32(vld1q_f32(scores->t[r] + key), vdupq_n_f32(subtract[r])))
                       : vdupq_n_f32(0.0f);
        transpose(p);
        for (int i = 0; i < 4; i++) {
            vst1q_f32(weights->p[key + i], p[i]);
            sum = vaddq_f32(sum, p[i]);
        }
    }
    return sum;
}

/* Weights from t; the state's maximum and sum are moved on. Returns each row's rescaling. */
static inline __attribute__((always_inline)) float32x4_t softmax(const struct panel *panel,
                                                                 const struct scores *scores,
                                                                 struct weights *weights,
                                                                 const int rows)
{
    float block_max[DECODE_PANEL] = {0};
    for (int r = 0; r < rows; r++)
        block_max[r] = ceil_max(scores->t[r], panel->most);
    const float32x4_t old_max = load_first(panel->st.row_max, rows);
    const float32x4_t new_max = vmaxnmq_f32(old_max, vld1q_f32(block_max));
    const float32x4_t subtrahend = finite_max(new_max);
    const float32x4_t sum = exponentiate(scores, panel->most, subtrahend, weights, rows);
    const float32x4_t rescale = exp2_v(vsubq_f32(old_max, subtrahend));
    const float32x4_t row_sum = vfmaq_f32(sum, load_first(panel->st.row_sum, rows), rescale);
    store_first(panel->st.row_sum, rows, row_sum);
    store_first(panel->st.row_max, rows, new_max);
    return rescale;
}

static __attribute__((noinline)) float32x4_t
softmax_rows(const struct panel *panel, const struct scores *scores, struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        return softmax(panel, scores, weights, 1);
    case 2:
        return softmax(panel, scores, weights, 2);
    default:
        return softmax(panel, scores, weights, DECODE_PANEL);
    }
}

/* The rows of a block from `first` on. */
static void begin_panel(struct panel *panel, const struct decode_block *block, int first, int rows)
{
    panel->block = block;
    panel->first = first;
    panel->rows = rows;
    panel->st = (struct state){block->st->row_max + first, block->st->row_sum + first,
                               block->st->out + first * block->v.dim};
    panel->fewest = panel->most = block->visible[first];
    for (int r = 0; r < DECODE_PANEL; r++) {
        const int row = first + (r < rows ? r : rows - 1), seen = block->visible[row];
        panel->q[r] = block->q[row];
        panel->visible[r] = seen;
        panel->fewest = seen < panel->fewest ? seen : panel->fewest;
        panel->most = seen > panel->most ? seen : panel->most;
    }
}

/* t in the place of scores, of the keys that each row sees. */
static void adjust_scores(const struct panel *panel, struct scores *scores)
{
    const struct decode_block *const block = panel->block;
    for (int r = 0; r < panel->rows; r++)
        attnkit_neon_adjust(block->adjust, block->bias ? block->bias[panel->first + r] : NULL,
                            (size_t)panel->visible[r], scores->t[r]);
}

/* Weights times their factors, those that the row sees: the others are 0 as they are. */
static void keep_weights(const struct panel *panel, struct weights *weights)
{
    for (int r = 0; r < panel->rows; r++) {
        const float *const keep = panel->block->keep[panel->first + r];
        for (int key = 0; key < panel->visible[r]; key++)
            weights->p[key][r] *= keep[key];
    }
}

void attnkit_neon_decode(const struct decode_block *block, int rows, float scale_log2)
{
    for (int first = 0; first < rows; first += DECODE_PANEL) {
        struct panel panel;
        struct scores scores;
        struct weights weights;
        begin_panel(&panel, block, first, lanes_at(first, rows));
        if (panel.most == 0)
            continue;
        const float scale = block->adjust ? 1.0f : scale_log2;
        if (block->k.tiled)
            attnkit_neon_decode_tiled_k(&panel, scale, &scores);
        else
            attnkit_neon_decode_k(&panel, scale, &scores);
        if (block->adjust)
            adjust_scores(&panel, &scores);
        const float32x4_t rescale = softmax_rows(&panel, &scores, &weights);
        if (block->keep)
            keep_weights(&panel, &weights);
        attnkit_neon_decode_v(&panel, &weights, rescale);
    }
}
