/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of linear maps. Many rows: for each block of rows, x is put into scratch as binary32,
 * in groups of rows. The inputs are divided into cuts of at most CUT inputs, so that one cut of a
 * panel of the matrix stays in L2. Then, panel by panel and cut by cut, the tile `product`
 * multiplies all groups by the cut. Between two cuts the sums are stored in scratch as binary32, so
 * nothing is rounded. If x and the matrix are bf16 and the kernels have tiles for pairs, scratch
 * has words of pairs in place of binary32. Few rows: `few_product` reads the tiles of the packed
 * matrix, whatever their type. With integers, integers.c does the work of both loops.
 * dispatch/linear/ calls attnkit_linear_run_parts, which chooses the loop.
 */
#include "kernels/linear/linear.h"

#include <string.h>

#include "kernels/cache/spread.h"
#include "kernels/linear/parts.h"

enum {
    GATHER_PARTS = 2,     /* number of parts that take as long as putting a block of rows into
                           * scratch */
    NEAR_BYTES = 1 << 22, /* bytes; a larger matrix is expected outside L1 and L2 */
};

/* -------------------------------------------------------------------------------- packing */

/* Converts inputs d .. d + n - 1 of a row of the matrix to the packed type. */
static void convert(const struct packing *p, const struct kernels *kernels, const char *row,
                    int64_t d, int64_t n, char *converted)
{
    const char *const from = row + bytes_of(p->type, d);
    float x[INPUTS_AT_ONCE];
    if (p->type == p->packed_type) {
        memcpy(converted, from, (size_t)bytes_of(p->type, n));
        return;
    }
    kernels->widen(p->type, from, NULL, 0, n, x);
    kernels->narrow(p->packed_type, x, n, 0, converted, NULL);
}

static void pack_row(const struct packing *p, const struct kernels *kernels, const char *row,
                     int64_t out, char *tile)
{
    char converted[INPUTS_AT_ONCE * sizeof(float)];
    for (int64_t d = 0; d < p->in_dim; d += INPUTS_AT_ONCE) {
        const int64_t n = p->in_dim - d < INPUTS_AT_ONCE ? p->in_dim - d : INPUTS_AT_ONCE;
        convert(p, kernels, row, d, n, converted);
        spread_row(p->packed_type, converted, n, out, tile + matrix_tile_bytes(p->packed_type, d));
    }
}

void attnkit_pack_tiles(const struct packing *p, const struct kernels *kernels, int64_t first,
                        int64_t end)
{
    const int64_t bytes = matrix_tile_bytes(p->packed_type, p->in_dim);
    for (int64_t tile = first; tile < end; tile++) {
        const int64_t out = tile * TILE_KEYS, left = p->out_dim - out;
        if (left < TILE_KEYS)
            memset(p->packed + tile * bytes, 0, (size_t)bytes);
        for (int64_t i = 0; i < TILE_KEYS && i < left; i++)
            pack_row(p, kernels, p->w + (out + i) * p->stride, i, p->packed + tile * bytes);
    }
}

/* ------------------------------------------------------------------------------- work */

static int few_rows(const struct linear *l, const struct kernels *kernels)
{
    if (l->integers)
        return kernels->matrix_integers->rows;
    return l->w_type == TYPE_F32 ? kernels->f32_matrix_rows : kernels->matrix_rows;
}

static bool has_few_rows(const struct linear *l, const struct kernels *kernels)
{
    return l->rows <= few_rows(l, kernels);
}

static int64_t panels(const struct linear *l, int64_t panel)
{
    return (l->out_dim - 1) / panel + 1;
}

/* Returns the number of outputs of a panel for many rows. With integers a panel is larger, because
 * a matrix in words takes fewer bytes than in binary32. */
static int64_t many_panel(const struct linear *l)
{
    return l->integers ? FEW_PANEL : PANEL;
}

int64_t attnkit_linear_parts(const struct linear *l, const struct kernels *kernels)
{
    if (has_few_rows(l, kernels))
        return panels(l, FEW_PANEL);
    return ((l->rows - 1) / BLOCK_ROWS + 1) * panels(l, many_panel(l));
}

int64_t attnkit_linear_parts_of_change(const struct linear *l, const struct kernels *kernels)
{
    return has_few_rows(l, kernels) || l->rows <= BLOCK_ROWS ? 0 : GATHER_PARTS;
}

/* The scratch of a thread. x comes last. So a read beyond x in the scratch of the last thread
 * leaves the workspace, which tests notice. With pairs, w and x have words in place of binary32.
 * With integers, w has words and x has rounded blocks. */
struct scratch {
    float *w;         /* a cut of a panel, as binary32 */
    float *y;         /* [rows][SUMS]: sums, and y if y is not binary32 */
    float *x;         /* rows as binary32; in the loop of many rows, cut after cut in the groups of
                       * struct product */
    bool paired;      /* x of many rows has words of pairs in place of binary32 */
    uint32_t x_least; /* with `paired`: the least magnitude of x */
};

/* Returns whether x of many rows is stored as words of pairs. run_pairs decides for each cut
 * whether products in pairs give the bits of the chain. */
static bool has_pairs(const struct linear *l, const struct kernels *kernels)
{
    return kernels->pairs && l->x_type == TYPE_BF16 && l->w_type == TYPE_BF16;
}

/* Returns the number of lanes of the groups that `rows` rows fill. */
static int64_t group_lanes(int64_t rows)
{
    return (rows + ROW_GROUP - 1) / ROW_GROUP * ROW_GROUP;
}

/* Returns the number of rows that scratch has room for: the rows of the largest block, but at
 * least MAX_MATRIX_ROWS, rounded up to whole groups. */
static int64_t scratch_rows(const struct linear *l)
{
    const int64_t rows = l->rows < MAX_MATRIX_ROWS ? MAX_MATRIX_ROWS : l->rows;
    return group_lanes(rows < BLOCK_ROWS ? rows : BLOCK_ROWS);
}

/* Returns a number of floats, rounded up to whole cache lines. */
static int64_t whole_lines(int64_t floats)
{
    const int64_t line = 16;
    return (floats + line - 1) / line * line;
}

/* Returns the number of bytes of x in scratch, a multiple of 64. */
static int64_t x_bytes(const struct linear *l, const struct kernels *kernels)
{
    const int64_t rows = scratch_rows(l);
    if (l->integers)
        return rows / ROW_GROUP * (l->in_dim / Q8_BLOCK) * kernels->matrix_integers->x_bytes;
    return whole_lines(rows * l->in_dim) * (int64_t)sizeof(float);
}

size_t attnkit_linear_scratch(const struct linear *l, const struct kernels *kernels)
{
    const size_t floats = (size_t)(CUT * PANEL + scratch_rows(l) * SUMS);
    return floats * sizeof(float) + (size_t)x_bytes(l, kernels);
}

static struct scratch cut_scratch(const struct linear *l, char *memory)
{
    struct scratch s = {.w = (float *)memory};
    s.y = s.w + CUT * PANEL;
    s.x = s.y + scratch_rows(l) * SUMS;
    return s;
}

/* -------------------------------------------------------------------------------- few rows */

static void run_few(const struct linear *l, const struct kernels *kernels, const struct scratch *s,
                    const float *const *x, const struct part *part, bool far)
{
    float *y[MAX_MATRIX_ROWS];
    for (int i = 0; i < part->rows; i++)
        y[i] = l->y_type == TYPE_F32 ? (float *)y_at(l, i, part->out) : s->y + i * SUMS;
    const struct few_product product = {
        .type = l->w_type,
        .x = x,
        .rows = part->rows,
        .dim = l->in_dim,
        .w = l->w + part->out / TILE_KEYS * matrix_tile_bytes(l->w_type, l->in_dim),
        .far = far,
        .y = y,
        .outs = part->outs,
        .bias = l->bias ? l->bias + part->out : NULL,
    };
    kernels->few_product(&product);
    narrow_part(l, kernels, part, s->y);
}

static void find_few(const struct linear *l, const struct kernels *kernels, float *wide,
                     const float **x)
{
    for (int64_t i = 0; i < l->rows; i++)
        x[i] = find_x(l, kernels, i, 0, l->in_dim, wide + i * l->in_dim);
}

/* ------------------------------------------------------------------------------- many rows */

/* Returns the number of floats that n inputs of a row take in scratch. */
static int64_t steps_of(const struct linear *l, const struct kernels *kernels, int64_t n)
{
    return has_pairs(l, kernels) ? words_of_pairs(n) : n;
}

/* Returns inputs d .. d + n - 1 of a row of x as words in `words`. Lowers *least to the least
 * magnitude of these inputs, if *least is larger. */
static const float *pair_x(const struct linear *l, const struct kernels *kernels, int64_t row,
                           int64_t d, int64_t n, float *words, uint32_t *least)
{
    const char *const from = l->x + row * l->x_stride + bytes_of(TYPE_BF16, d);
    const uint32_t magnitude = kernels->pairs->pair(from, n, (uint32_t *)(void *)words);
    *least = magnitude < *least ? magnitude : *least;
    return words;
}

/* Writes inputs d .. d + n - 1 of some rows to a group of struct product, as steps_of(n) floats of
 * each row. n is at most INPUTS_AT_ONCE. With pairs, lowers *least as pair_x does. */
static void gather_inputs(const struct linear *l, const struct kernels *kernels, int64_t row,
                          int rows, int64_t d, int64_t n, float *group, uint32_t *least)
{
    const bool pairs = has_pairs(l, kernels);
    float wide[ROW_GROUP][INPUTS_AT_ONCE];
    const float *x[ROW_GROUP];
    for (int i = 0; i < rows; i++)
        x[i] = pairs ? pair_x(l, kernels, row + i, d, n, wide[i], least)
                     : find_x(l, kernels, row + i, d, n, wide[i]);
    for (int i = rows; i < ROW_GROUP; i++)
        x[i] = x[0];
    kernels->pack_q(x, ROW_GROUP, steps_of(l, kernels, n), group);
}

/* Writes the rows of a block to scratch, cut after cut and group after group. */
static void gather_x(const struct linear *l, const struct kernels *kernels, int64_t row, int rows,
                     struct scratch *s)
{
    float *x = s->x;
    s->paired = has_pairs(l, kernels);
    s->x_least = NO_MAGNITUDE;
    for (int64_t d = 0; d < l->in_dim; d += CUT)
        for (int i = 0, height; i < rows; i += height) {
            const int64_t end = d + cut_inputs(l, d);
            height = tile_height(rows - i, ROW_GROUP);
            for (int64_t e = d; e < end; e += INPUTS_AT_ONCE) {
                const int64_t n = end - e < INPUTS_AT_ONCE ? end - e : INPUTS_AT_ONCE;
                gather_inputs(l, kernels, row + i, height, e, n, x, &s->x_least);
                x += steps_of(l, kernels, n) * ROW_GROUP;
            }
        }
}

/* Sets the matrix of a product to the cut at input d of the panel of `part`, as binary32. A matrix
 * of another type is widened into `wide`. */
static void find_w(const struct linear *l, const struct kernels *kernels, const struct part *part,
                   int64_t d, float *wide, struct product *product)
{
    const int64_t n = cut_inputs(l, d), step = matrix_tile_bytes(l->w_type, l->in_dim);
    const char *const w = l->w + part->out / TILE_KEYS * step + matrix_tile_bytes(l->w_type, d);
    product->w = (const float *)w;
    product->tile_step = step;
    if (l->w_type == TYPE_F32)
        return;
    product->w = wide;
    product->tile_step = n * TILE_KEYS * (int64_t)sizeof(float);
    for (int64_t t = 0; t < matrix_tiles(part->outs); t++)
        kernels->widen_matrix(l->w_type, w + t * step, n, wide + t * n * TILE_KEYS);
}

/* Writes a cut of the panel of `part` to `words`, as words of pairs. The cut begins at input d.
 * Makes `words` the matrix of the product. Returns the least magnitude of the cut. */
static uint32_t pair_w(const struct linear *l, const struct kernels *kernels,
                       const struct part *part, int64_t d, float *words, struct product *product)
{
    const int64_t n = cut_inputs(l, d), step = matrix_tile_bytes(TYPE_BF16, l->in_dim);
    const int64_t tile = words_of_pairs(n) * TILE_KEYS;
    const char *const w = l->w + part->out / TILE_KEYS * step + matrix_tile_bytes(TYPE_BF16, d);
    uint32_t least = NO_MAGNITUDE;
    product->w = words;
    product->tile_step = tile * (int64_t)sizeof(float);
    for (int64_t t = 0; t < matrix_tiles(part->outs); t++) {
        const uint32_t magnitude =
            kernels->pairs->pair_matrix(w + t * step, n, (uint32_t *)(void *)(words + t * tile));
        least = magnitude < least ? magnitude : least;
    }
    return least;
}

/* Sets where a product writes: to the sums in scratch or, in the last cut, to l->y if l->y is
 * binary32. In the last cut the product also adds the bias. */
static void set_y(const struct linear *l, const struct scratch *s, const struct part *part,
                  bool last, struct product *product)
{
    product->y = s->y;
    product->y_stride = product->sums_stride;
    if (!last)
        return;
    product->bias = l->bias ? l->bias + part->out : NULL;
    if (l->y_type != TYPE_F32)
        return;
    product->y = (float *)y_at(l, part->row, part->out);
    product->y_stride = l->y_stride;
}

/* Turns x of a block from words into binary32, in place. No group moves to a lower address, so the
 * last group moves first. */
static void split_x(const struct linear *l, struct scratch *s, int rows)
{
    const int64_t lanes = group_lanes(rows);
    for (int64_t d = (l->in_dim - 1) / CUT * CUT; d >= 0; d -= CUT) {
        const int64_t n = cut_inputs(l, d), words = words_of_pairs(n);
        for (int64_t i = lanes - ROW_GROUP; i >= 0; i -= ROW_GROUP) {
            float *const group = s->x + lanes * d + i * n;
            memmove(group, s->x + lanes * words_of_pairs(d) + i * words,
                    (size_t)(words * ROW_GROUP) * sizeof *group);
            split_pairs(group, n, ROW_GROUP);
        }
    }
    s->paired = false;
}

/* Multiplies a cut in pairs and returns true, if this gives the bits of the chain. Otherwise turns
 * x into binary32 for this and all later products of the block, and returns false. */
static bool run_pairs(const struct linear *l, const struct kernels *kernels, struct scratch *s,
                      const struct part *part, int64_t d, struct product product)
{
    if (!keep_bits_as_pairs(s->x_least, pair_w(l, kernels, part, d, s->w, &product))) {
        split_x(l, s, part->rows);
        return false;
    }
    product.x = s->x + group_lanes(part->rows) * words_of_pairs(d);
    product.dim = words_of_pairs(product.dim);
    kernels->pairs->product(&product);
    return true;
}

static void run_many(const struct linear *l, const struct kernels *kernels, struct scratch *s,
                     const struct part *part)
{
    struct product product = {
        .rows = part->rows,
        .sums_stride = SUMS * (ptrdiff_t)sizeof(float),
        .outs = part->outs,
    };
    for (int64_t d = 0; d < l->in_dim; d += CUT) {
        const int64_t n = cut_inputs(l, d);
        product.x = s->x + group_lanes(part->rows) * d;
        product.dim = n;
        product.sums = d > 0 ? s->y : NULL;
        set_y(l, s, part, d + n == l->in_dim, &product);
        product.ahead = next_cut(l, part, d);
        if (s->paired && run_pairs(l, kernels, s, part, d, product))
            continue;
        find_w(l, kernels, part, d, s->w, &product);
        kernels->product(&product);
    }
    narrow_part(l, kernels, part, s->y);
}

static struct part part_at(const struct linear *l, int64_t panel, int64_t i)
{
    const int64_t out = i % panels(l, panel) * panel, outs = l->out_dim - out;
    const int64_t row = i / panels(l, panel) * BLOCK_ROWS, rows = l->rows - row;
    return (struct part){.row = row,
                         .out = out,
                         .rows = rows < BLOCK_ROWS ? (int)rows : BLOCK_ROWS,
                         .outs = outs < panel ? (int)outs : (int)panel};
}

void attnkit_linear_run_parts(const struct linear *l, const struct kernels *kernels,
                              int64_t (*next)(void *arg), void *arg, char *memory)
{
    struct scratch s = cut_scratch(l, memory);
    const bool few = has_few_rows(l, kernels);
    const bool far =
        matrix_tiles(l->out_dim) * matrix_tile_bytes(l->w_type, l->in_dim) > NEAR_BYTES;
    const float *x[MAX_MATRIX_ROWS];
    int64_t gathered = -1; /* the first row of the block whose x is in scratch */
    for (int64_t i = next(arg); i >= 0; i = next(arg)) {
        const struct part part = part_at(l, few ? FEW_PANEL : many_panel(l), i);
        if (part.row != gathered && l->integers)
            attnkit_round_x(l, kernels, part.row, part.rows, (char *)s.x);
        else if (part.row != gathered && few)
            find_few(l, kernels, s.x, x);
        else if (part.row != gathered)
            gather_x(l, kernels, part.row, part.rows, &s);
        gathered = part.row;
        if (l->integers)
            attnkit_run_integers(l, kernels, &part, few, (char *)s.x, (char *)s.w, s.y);
        else if (few)
            run_few(l, kernels, &s, x, &part, far);
        else
            run_many(l, kernels, &s, &part);
    }
}
