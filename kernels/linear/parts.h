/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a linear map, for the loops in binary32 (linear.c) and in integers (integers.c). A
 * part is a panel of outputs for a block of rows. A part of many rows is computed cut after cut of
 * the inputs. A part of few rows is computed with all inputs at once.
 */
#ifndef ATTNKIT_LINEAR_PARTS_H
#define ATTNKIT_LINEAR_PARTS_H

#include "kernels/linear/linear.h"

enum {
    BLOCK_ROWS = 256,          /* rows that share one pass over the matrix */
    PANEL = 3 * TILE_KEYS,     /* outputs, as wide as the widest register tile of many rows */
    FEW_PANEL = 4 * TILE_KEYS, /* outputs, as wide as the widest register tile of few rows */
    SUMS = FEW_PANEL,          /* floats of a row of outputs in scratch */
    CUT = 512,                 /* inputs of a cut. As binary32 they take 16 KiB in a group of rows
                                * of x, 96 KiB in PANEL outputs of the matrix, and 512 KiB in a
                                * block of rows of x */
    INPUTS_AT_ONCE = 64,       /* inputs converted at once, a multiple of Q8_BLOCK */
};

/* A block of rows and the outputs of a panel. */
struct part {
    int64_t row, out;
    int rows, outs;
};

static inline char *y_at(const struct linear *l, int64_t row, int64_t out)
{
    return l->y + row * l->y_stride + bytes_of(l->y_type, out);
}

/* Converts the outputs of a part from binary32 at `y` to the type of l->y, and writes them to l->y.
 * Does nothing if l->y is binary32. */
static inline void narrow_part(const struct linear *l, const struct kernels *kernels,
                               const struct part *part, const float *y)
{
    for (int i = 0; i < part->rows && l->y_type != TYPE_F32; i++)
        kernels->narrow(l->y_type, y + i * SUMS, part->outs, 0, y_at(l, part->row + i, part->out),
                        NULL);
}

/* Returns inputs d .. d + n - 1 of a row of x as binary32, in place or in `wide`. */
static inline const float *find_x(const struct linear *l, const struct kernels *kernels,
                                  int64_t row, int64_t d, int64_t n, float *wide)
{
    const char *const from = l->x + row * l->x_stride + bytes_of(l->x_type, d);
    if (l->x_type == TYPE_F32)
        return (const float *)from;
    kernels->widen(l->x_type, from, NULL, 0, n, wide);
    return wide;
}

static inline int64_t cut_inputs(const struct linear *l, int64_t d)
{
    return l->in_dim - d < CUT ? l->in_dim - d : CUT;
}

/* Returns the cut that is needed after the cut that begins at input d of the panel of `part`. The
 * next cut is in the same panel or in the next panel. After the last cut of the last panel, the
 * result has no tiles. */
static inline struct next_tiles next_cut(const struct linear *l, const struct part *part, int64_t d)
{
    const int64_t next = d + CUT < l->in_dim ? d + CUT : 0;
    const int64_t out = part->out + (next > 0 ? 0 : part->outs), outs = l->out_dim - out;
    const int64_t step = matrix_tile_bytes(l->w_type, l->in_dim);
    if (outs <= 0)
        return (struct next_tiles){0};
    return (struct next_tiles){
        .first = l->w + out / TILE_KEYS * step + matrix_tile_bytes(l->w_type, next),
        .tile_step = step,
        .tiles = matrix_tiles(outs < part->outs ? outs : part->outs),
        .tile_bytes = matrix_tile_bytes(l->w_type, cut_inputs(l, next)),
    };
}

/* Rounds the inputs of rows row .. row + rows - 1 to integers of 8 bits. Writes the
 * integers and their scales to `x`, in groups of up to ROW_GROUP rows. */
void attnkit_round_x(const struct linear *l, const struct kernels *kernels, int64_t row, int rows,
                     char *x);

/* Computes a part by step 18 of ../README.md, with few_product if `few`, else with `product`. `x`
 * has the rounded rows of the part's block. `w` has room for the words of a cut of a panel, and y
 * for [rows][SUMS] floats. */
void attnkit_run_integers(const struct linear *l, const struct kernels *kernels,
                          const struct part *part, bool few, const char *x, char *w, float *y);

#endif
