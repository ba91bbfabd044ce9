/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of linear maps in plain C, an element of y at a time. They run on a CPU for which no
 * other folder has kernels.
 */
#include "kernels/scalar/scalar.h"

/* Returns element d of output `out` of a matrix whose tiles are `step` bytes apart. */
static float matrix_element(const enum type type, const char *w, ptrdiff_t step, int64_t out,
                            int64_t d)
{
    const struct key_row tile = {w + out / TILE_KEYS * step, NULL};
    return tile_element(type, tile, 0, (int)(out % TILE_KEYS), d);
}

static float dot(const enum type type, const float *x, int64_t dim, const char *w, ptrdiff_t step,
                 int64_t out)
{
    float y = 0.0f;
    for (int64_t d = 0; d < dim; d++)
        y = fma_once(x[d], matrix_element(type, w, step, out, d), y);
    return y;
}

void attnkit_scalar_widen_matrix(enum type type, const void *tile, int64_t n, float *out)
{
    for (int64_t d = 0; d < n; d++)
        for (int64_t o = 0; o < TILE_KEYS; o++)
            out[d * TILE_KEYS + o] = matrix_element(type, tile, 0, o, d);
}

/* Computes row i of y. x has the elements of row i of the input. */
static void product_row(const struct product *p, int i, const float *x)
{
    const float *const sums =
        p->sums ? (const float *)((const char *)p->sums + i * p->sums_stride) : NULL;
    float *const y = (float *)((char *)p->y + i * p->y_stride);
    for (int64_t o = 0; o < p->outs; o++) {
        const float *const w = matrix_at(p, o);
        float sum = sums ? sums[o] : 0.0f;
        for (int64_t d = 0; d < p->dim; d++)
            sum = fma_once(x[d * ROW_GROUP], w[d * TILE_KEYS], sum);
        y[o] = plain_nan(p->bias ? sum + p->bias[o] : sum);
    }
}

void attnkit_scalar_product(const struct product *p)
{
    const float *x = p->x;
    int rows;
    for (int first = 0; first < p->rows; first += rows, x += p->dim * ROW_GROUP) {
        rows = tile_height(p->rows - first, ROW_GROUP);
        for (int i = 0; i < rows; i++)
            product_row(p, first + i, x + i);
    }
}

void attnkit_scalar_few_product(const struct few_product *p)
{
    const ptrdiff_t step = TILE_KEYS * (ptrdiff_t)bytes_of(p->type, p->dim);
    for (int i = 0; i < p->rows; i++)
        for (int64_t o = 0; o < p->outs; o++) {
            const float sum = dot(p->type, p->x[i], p->dim, p->w, step, o);
            p->y[i][o] = plain_nan(p->bias ? sum + p->bias[o] : sum);
        }
}
