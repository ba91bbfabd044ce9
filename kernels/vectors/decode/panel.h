/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the decode tile hand to each other: a panel of query rows, and its weights. The
 * decode.h of an instruction set includes this file and has struct scores, with the scores
 * s[r][key] and scale_log2, what they are multiplied by; decode.c has the order of things.
 */
#ifndef ATTNKIT_DECODE_PANEL_H
#define ATTNKIT_DECODE_PANEL_H

#include "kernels/kernels.h"

enum { PANEL_ROWS = 4 };

/* Some query rows of a block. Filled in place, and only pointed to: copies of what has just been
 * stored in pieces would wait for it. */
struct panel {
    const struct decode_block *block;
    const float *q[PANEL_ROWS]; /* past `rows` the last one again */
    int32_t visible[PANEL_ROWS];
    int first;        /* row of the block */
    int rows;         /* <= PANEL_ROWS */
    int fewest, most; /* of visible */
    bool far;         /* K and V, for all panels but the first no more */
};

/* Weights of a panel, those of its rows for a key next to each other, 0 from visible[r] on, and
 * what o is multiplied by. */
struct weights {
    _Alignas(sizeof(floats)) float p[KEY_BLOCK][PANEL_ROWS];
    float rescale[PANEL_ROWS];
};

/* 3 rows are worked on as 4. */
static inline int computed_rows(const struct panel *panel)
{
    return panel->rows <= 2 ? panel->rows : PANEL_ROWS;
}

#endif
