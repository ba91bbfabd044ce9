/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for some query rows: scores, softmax, and weighted V. Row r sees the first
 * visible[r] keys of the block. Rows are split into panels of at most 4 rows. The rows of a panel
 * share the loads of K and V. decode.c of kernels/attention calls `decode`. The decode.c of an
 * instruction set defines softmax_rows, and then includes this file.
 */
#ifndef ATTNKIT_DECODE_ROWS_H
#define ATTNKIT_DECODE_ROWS_H

#include "kernels/vectors/decode/panel.h"

/* Turns scores into weights, with the number of rows as a constant. */
static __attribute__((noinline)) void softmax(const struct panel *panel, struct scores *scores,
                                              struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        softmax_rows(panel, scores, weights, 1);
        break;
    case 2:
        softmax_rows(panel, scores, weights, 2);
        break;
    default:
        softmax_rows(panel, scores, weights, PANEL_ROWS);
    }
}

/* Fills the panel with `rows` rows of the block from `first` on. */
static void begin_panel(struct panel *panel, const struct decode_block *block, int first, int rows)
{
    panel->block = block;
    panel->first = first;
    panel->rows = rows;
    panel->far = first == 0 && block->far;
    panel->turn = NULL;
    panel->fewest = panel->most = block->visible[first];
    for (int r = 0; r < PANEL_ROWS; r++) {
        const int row = first + (r < rows ? r : rows - 1), seen = block->visible[row];
        panel->q[r] = block->q[row];
        panel->visible[r] = seen;
        panel->fewest = seen < panel->fewest ? seen : panel->fewest;
        panel->most = seen > panel->most ? seen : panel->most;
    }
}

/* Replaces each score of a key that a row sees by the t of struct adjust. */
static void adjust_scores(const struct panel *panel, struct scores *scores)
{
    const struct decode_block *const block = panel->block;
    for (int r = 0; r < panel->rows; r++)
        KERNEL(adjust)
    (block->adjust, block->bias ? block->bias[panel->first + r] : NULL, (size_t)panel->visible[r],
     scores->s[r]);
}

/* Multiplies the weights of the keys that a row sees by their factors. All other weights are 0
 * already. */
static void keep_weights(const struct panel *panel, struct weights *weights)
{
    for (int r = 0; r < panel->rows; r++) {
        const float *const keep = panel->block->keep[panel->first + r];
        for (int key = 0; key < panel->visible[r]; key++)
            weights->p[key][r] *= keep[key];
    }
}

/* Computes all panels of a block. KERNEL(decode) passes constants as `parts`. So the copy of this
 * function that is inlined into KERNEL(decode) calls the parts directly. */
static inline __attribute__((always_inline)) void decode_panels(const struct decode_parts parts,
                                                                const struct decode_block *block,
                                                                int rows, float scale_log2)
{
    for (int first = 0; first < rows; first += PANEL_ROWS) {
        struct panel panel;
        struct scores scores;
        struct weights weights;
        begin_panel(&panel, block, first, rows - first < PANEL_ROWS ? rows - first : PANEL_ROWS);
        if (panel.most == 0)
            continue;
        scores.scale_log2 = block->adjust ? 1.0f : scale_log2;
        parts.scores(&panel, &scores);
        if (block->adjust)
            adjust_scores(&panel, &scores);
        softmax(&panel, &scores, &weights);
        if (block->keep)
            keep_weights(&panel, &weights);
        parts.weighted_v(&panel, &weights);
    }
}

#ifndef ATTNKIT_WITHOUT_INTEGERS
void KERNEL(decode_by)(const struct decode_parts *parts, const struct decode_block *block, int rows,
                       float scale_log2)
{
    decode_panels(*parts, block, rows, scale_log2);
}
#endif

static inline void score_rows_or_tiles(const struct panel *panel, struct scores *scores)
{
    if (panel->block->k.tiled)
        KERNEL(decode_tiled_k)(panel, scores);
    else
        KERNEL(decode_k)(panel, scores);
}

void KERNEL(decode)(const struct decode_block *block, int rows, float scale_log2)
{
    decode_panels((struct decode_parts){score_rows_or_tiles, KERNEL(decode_v)}, block, rows,
                  scale_log2);
}

#endif
