/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs that the parts of the decode tile hand to each other: a panel of query rows, and its
 * weights. The decode.h of an instruction set includes this file and defines struct scores, with
 * the scores s[r][key] and their factor scale_log2. The decode.c calls the parts in order.
 */
#ifndef ATTNKIT_DECODE_PANEL_H
#define ATTNKIT_DECODE_PANEL_H

#include "kernels/kernels.h"

enum { PANEL_ROWS = 4 };

/* The keys of a block that a panel computes in one turn, if several heads take turns. Such a panel
 * prefetches only the pieces of memory at `ahead`. */
struct turn {
    int begin, end; /* the keys begin .. end - 1 */
    float *sums; /* the weighted sums of V over the keys before `begin`, [rows][columns]; the tile
                  * chooses the order of the columns */
    const char *const *ahead; /* the addresses of `pieces` pieces of memory */
    int pieces;
    int64_t piece_bytes;
};

/* Some query rows of a struct decode_block. A panel is filled in place and passed by address: a
 * copy of a struct that was just stored in pieces would wait for the stores. */
struct panel {
    const struct decode_block *block;
    const float *q[PANEL_ROWS]; /* from index `rows` on, the last row is repeated */
    int32_t visible[PANEL_ROWS];
    int first;        /* the row of the block that is row 0 of the panel */
    int rows;         /* <= PANEL_ROWS */
    int fewest, most; /* the fewest and the most keys that a row sees */
    bool far; /* K and V most likely are neither in L1 nor in L2; set only for the first panel of a
                 block, because later panels find K and V in L1 or L2 */
    const struct turn *turn; /* NULL if the panel computes the whole block at once */
};

/* The weights of a panel. `rescale` has the factor by which each row's weighted sum of V is
 * multiplied. The weights of all rows for a key lie next to each other. Weights are written for
 * whole vectors of keys, up to the vector of the last key that a row of the panel sees. Among these
 * keys, row r has weights of 0 from key visible[r] on. */
struct weights {
    _Alignas(sizeof(floats)) float p[KEY_BLOCK][PANEL_ROWS];
    float rescale[PANEL_ROWS];
};

/* Returns the number of rows that a tile computes: 3 rows are computed as 4. */
static inline int computed_rows(const struct panel *panel)
{
    return panel->rows <= 2 ? panel->rows : PANEL_ROWS;
}

/* Returns the first key that the panel computes. */
static inline int first_key(const struct panel *panel)
{
    return panel->turn ? panel->turn->begin : 0;
}

enum { MOST_TURN_BYTES = 512 }; /* most bytes of a row of a head that takes turns */

struct scores;

/* The two parts of a decode tile that read K and V. */
struct decode_parts {
    void (*scores)(const struct panel *panel, struct scores *scores);
    void (*weighted_v)(const struct panel *panel, const struct weights *weights);
};

/* Does the work of `decode` of struct kernels, but `parts` read q, K and V. Therefore rows of q
 * need not be binary32: they may be scales and integers. */
void KERNEL(decode_by)(const struct decode_parts *parts, const struct decode_block *block, int rows,
                       float scale_log2);

#endif
