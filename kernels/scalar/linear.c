/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of linear maps in plain C, an element of y at a time. They run on a CPU for which no
 * other folder has kernels, or if exec.isa or ATTNKIT_ISA names scalar.
 */
#include "kernels/integers.h"
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

/* ------------------------------------------------------------------------------- integers */

/* The words of a block are the bytes of the packed block, unchanged. */
enum { TILE_BLOCK = TILE_KEYS * Q8_BLOCK_BYTES };

/* A block of x, as struct integer_product describes it. */
struct rounded_block {
    float scale[ROW_GROUP];
    int32_t beginning[ROW_GROUP]; /* 0 */
    int8_t n[ROW_GROUP][Q8_BLOCK];
};

static void round_rows(const float *const *x, int rows, int64_t n, void *blocks)
{
    struct rounded_block *const block = blocks;
    for (int i = 0; i < rows; i++)
        for (int64_t d = 0; d < n; d += Q8_BLOCK) {
            struct rounded_block *const b = &block[d / Q8_BLOCK];
            b->scale[i] = round_bytes(x[i] + d, b->n[i]);
            b->beginning[i] = 0;
        }
}

static void make_words(const void *tile, int64_t n, void *words)
{
    memcpy(words, tile, (size_t)(n / Q8_BLOCK * TILE_BLOCK));
}

/* Continues the chain `sum` by one block, for a row of x and an output. */
static float add_integers(const struct rounded_block *x, int row, const char *tile, int64_t out,
                          float sum)
{
    const int8_t *const bytes = (const int8_t *)tile + TILE_KEYS * sizeof(uint16_t);
    uint16_t half;
    int32_t integers = 0;
    memcpy(&half, tile + out * (int64_t)sizeof half, sizeof half);
    for (int d = 0; d < Q8_BLOCK; d++)
        integers += x->n[row][d] * bytes[d * TILE_KEYS + out];
    return fma_once((float)integers, x->scale[row] * float_from_f16(half), sum);
}

/* Computes row i of y. Row i of the input is row `lane` of the group at x. */
static void integer_row(const struct integer_product *p, int i, const struct rounded_block *x,
                        int lane)
{
    const float *const sums =
        p->sums ? (const float *)((const char *)p->sums + i * p->sums_stride) : NULL;
    float *const y = (float *)((char *)p->y + i * p->y_stride);
    for (int64_t o = 0; o < p->outs; o++) {
        const char *tile = p->w + o / TILE_KEYS * p->tile_step;
        float sum = sums ? sums[o] : 0.0f;
        for (int64_t b = 0; b < p->dim / Q8_BLOCK; b++, tile += TILE_BLOCK)
            sum = add_integers(&x[b], lane, tile, o % TILE_KEYS, sum);
        y[o] = plain_nan(p->bias ? sum + p->bias[o] : sum);
    }
}

static void integer_product(const struct integer_product *p)
{
    const char *group = p->x;
    for (int first = 0, rows; first < p->rows; first += rows, group += p->x_step) {
        rows = tile_height(p->rows - first, ROW_GROUP);
        for (int i = 0; i < rows; i++)
            integer_row(p, first + i, (const struct rounded_block *)(const void *)group, i);
    }
}

const struct matrix_integer_kernels attnkit_scalar_matrix_integers = {
    .rows = 1,
    .x_bytes = sizeof(struct rounded_block),
    .words_bytes = TILE_BLOCK,
    .round_rows = round_rows,
    .make_words = make_words,
    .product = integer_product,
    .few_product = integer_product,
};
