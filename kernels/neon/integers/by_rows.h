/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry `decode` of struct integer_kernels, for NEON and its units: copies of the tiles for
 * one, two and PANEL_ROWS rows. A file defines score_rows and weigh_rows, and then includes this
 * header.
 */
#ifndef ATTNKIT_NEON_INTEGERS_BY_ROWS_H
#define ATTNKIT_NEON_INTEGERS_BY_ROWS_H

#include "kernels/neon/integers/tiled_scores.h"

static inline __attribute__((always_inline)) void score_keys(const struct panel *panel,
                                                             struct scores *scores, const int rows)
{
    if (panel->block->k.tiled)
        score_tiles(panel, scores, rows);
    else
        score_rows(panel, scores, rows);
}

static void score(const struct panel *panel, struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_keys(panel, scores, 1);
        break;
    case 2:
        score_keys(panel, scores, 2);
        break;
    default:
        score_keys(panel, scores, PANEL_ROWS);
    }
}

static void weigh(const struct panel *panel, const struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        weigh_rows(panel, weights, 1);
        break;
    case 2:
        weigh_rows(panel, weights, 2);
        break;
    default:
        weigh_rows(panel, weights, PANEL_ROWS);
    }
}

static void decode(const struct decode_block *block, int rows, float scale_log2)
{
    static const struct decode_parts parts = {score, weigh};
    require_built_integers();
    attnkit_neon_decode_by(&parts, block, rows, scale_log2);
}

#endif
