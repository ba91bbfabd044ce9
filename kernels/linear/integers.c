/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of linear maps that multiply integers, step 18 of ../README.md. The rows of a block are
 * rounded once, to integers of 8 bits. The rounded rows lie in groups: a group has all inputs of up
 * to ROW_GROUP rows. If there are many rows, the words of each cut of a panel are made once for the
 * block and are multiplied by all groups. If there are few rows, few_product reads the packed
 * matrix itself.
 */
#include "kernels/linear/parts.h"

static int64_t group_bytes(const struct linear *l, const struct kernels *kernels)
{
    return l->in_dim / Q8_BLOCK * kernels->matrix_integers->x_bytes;
}

void attnkit_round_x(const struct linear *l, const struct kernels *kernels, int64_t row, int rows,
                     char *x)
{
    const struct matrix_integer_kernels *const integers = kernels->matrix_integers;
    float wide[ROW_GROUP][INPUTS_AT_ONCE];
    const float *inputs[ROW_GROUP];
    for (int first = 0, height; first < rows; first += height, x += group_bytes(l, kernels)) {
        height = tile_height(rows - first, ROW_GROUP);
        for (int64_t d = 0; d < l->in_dim; d += INPUTS_AT_ONCE) {
            const int64_t left = l->in_dim - d, n = left < INPUTS_AT_ONCE ? left : INPUTS_AT_ONCE;
            for (int i = 0; i < height; i++)
                inputs[i] = find_x(l, kernels, row + first + i, d, n, wide[i]);
            integers->round_rows(inputs, height, n, x + d / Q8_BLOCK * integers->x_bytes);
        }
    }
}

/* Makes `words` from a cut of the panel of `part`: the cut that begins at input d. Returns the
 * number of bytes from one tile of `words` to the next. */
static ptrdiff_t make_words(const struct linear *l, const struct kernels *kernels,
                            const struct part *part, int64_t d, char *words)
{
    const struct matrix_integer_kernels *const integers = kernels->matrix_integers;
    const int64_t n = cut_inputs(l, d), step = matrix_tile_bytes(TYPE_Q8_0, l->in_dim);
    const ptrdiff_t tile = n / Q8_BLOCK * integers->words_bytes;
    const char *const w = l->w + part->out / TILE_KEYS * step + matrix_tile_bytes(TYPE_Q8_0, d);
    for (int64_t t = 0; t < matrix_tiles(part->outs); t++)
        integers->make_words(w + t * step, n, words + t * tile);
    return tile;
}

/* Sets up a product that includes the last input: the product adds the bias, and writes to l->y if
 * l->y is binary32. */
static void end_at_y(const struct linear *l, const struct part *part,
                     struct integer_product *product)
{
    product->bias = l->bias ? l->bias + part->out : NULL;
    if (l->y_type != TYPE_F32)
        return;
    product->y = (float *)(void *)y_at(l, part->row, part->out);
    product->y_stride = l->y_stride;
}

void attnkit_run_integers(const struct linear *l, const struct kernels *kernels,
                          const struct part *part, bool few, const char *x, char *w, float *y)
{
    const struct matrix_integer_kernels *const integers = kernels->matrix_integers;
    struct integer_product product = {
        .x_step = group_bytes(l, kernels),
        .rows = part->rows,
        .sums_stride = SUMS * (ptrdiff_t)sizeof(float),
        .y = y,
        .y_stride = SUMS * (ptrdiff_t)sizeof(float),
        .outs = part->outs,
    };
    if (few) {
        product.x = x;
        product.dim = l->in_dim;
        product.tile_step = matrix_tile_bytes(TYPE_Q8_0, l->in_dim);
        product.w = l->w + part->out / TILE_KEYS * product.tile_step;
        end_at_y(l, part, &product);
        integers->few_product(&product);
    }
    for (int64_t d = 0; d < l->in_dim && !few; d += CUT) {
        product.x = x + d / Q8_BLOCK * integers->x_bytes;
        product.dim = cut_inputs(l, d);
        product.w = w;
        product.tile_step = make_words(l, kernels, part, d, w);
        product.sums = d > 0 ? y : NULL;
        product.ahead = next_cut(l, part, d);
        if (d + product.dim == l->in_dim)
            end_at_y(l, part, &product);
        integers->product(&product);
    }
    narrow_part(l, kernels, part, y);
}
