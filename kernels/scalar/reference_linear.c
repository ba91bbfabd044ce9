/* SPDX-License-Identifier: Apache-2.0
 *
 * A linear map in the canonical order of ../README.md as one straight program. The program takes
 * the caller's matrix and computes an element of y at a time, without tiles and packing. The
 * program is not part of the library.
 */
#include <stdlib.h>

#include "kernels/integers.h"
#include "kernels/scalar/reference.h"
#include "kernels/scalar/scalar.h"

/* Converts row `out` of the matrix to its packed type, and from there to binary32. */
static void widen_row(const struct packing *p, int64_t out, float *w)
{
    const char *const row = p->w + out * p->stride;
    attnkit_scalar_widen(p->type, row, NULL, 0, p->in_dim, w);
    if (p->type == p->packed_type)
        return;
    char *const packed = malloc((size_t)bytes_of(p->packed_type, p->in_dim));
    attnkit_scalar_narrow(p->packed_type, w, p->in_dim, 0, packed, NULL);
    attnkit_scalar_widen(p->packed_type, packed, NULL, 0, p->in_dim, w);
    free(packed);
}

static void write_element(const struct linear *l, int64_t i, int64_t out, const float *x,
                          const float *w)
{
    char *const y = l->y + i * l->y_stride + bytes_of(l->y_type, out);
    float sum = 0.0f;
    for (int64_t d = 0; d < l->in_dim; d++)
        sum = fmaf(x[d], w[d], sum);
    if (l->bias)
        sum += l->bias[out];
    sum = plain_nan(sum);
    attnkit_scalar_narrow(l->y_type, &sum, 1, 0, y, NULL);
}

/* Rows of x, rounded by step 18: integers, and a scale for each Q8_BLOCK of them. */
struct rounded {
    int8_t *n;
    float *scale;
};

static struct rounded round_rows(const float *x, int64_t count)
{
    const struct rounded r = {malloc((size_t)count + 1),
                              malloc((size_t)(count / Q8_BLOCK + 1) * sizeof *r.scale)};
    for (int64_t d = 0; d < count; d += Q8_BLOCK)
        r.scale[d / Q8_BLOCK] = round_bytes(x + d, r.n + d);
    return r;
}

/* Writes element `out` of row i of y. `row` is row `out` of w, of TYPE_Q8_0. */
static void write_integer_element(const struct linear *l, int64_t i, int64_t out,
                                  const struct rounded *x, const char *row)
{
    char *const y = l->y + i * l->y_stride + bytes_of(l->y_type, out);
    float sum = 0.0f;
    for (int64_t d = i * l->in_dim; d < (i + 1) * l->in_dim; d += Q8_BLOCK, row += Q8_BLOCK_BYTES) {
        const int8_t *const w = (const int8_t *)row + sizeof(uint16_t);
        uint16_t scale;
        int32_t integers = 0;
        memcpy(&scale, row, sizeof scale);
        for (int e = 0; e < Q8_BLOCK; e++)
            integers += x->n[d + e] * w[e];
        sum = fmaf((float)integers, x->scale[d / Q8_BLOCK] * float_from_f16(scale), sum);
    }
    if (l->bias)
        sum += l->bias[out];
    sum = plain_nan(sum);
    attnkit_scalar_narrow(l->y_type, &sum, 1, 0, y, NULL);
}

/* Computes y by step 18. x has the rows as binary32. */
static void write_integers(const struct linear *l, const struct packing *matrix, const float *x)
{
    const struct rounded rounded = round_rows(x, l->rows * l->in_dim);
    char *const packed = malloc((size_t)bytes_of(TYPE_Q8_0, l->in_dim));
    float *const w = malloc((size_t)l->in_dim * sizeof *w);
    for (int64_t out = 0; out < l->out_dim; out++) {
        const char *row = matrix->w + out * matrix->stride;
        if (matrix->type != TYPE_Q8_0) {
            attnkit_scalar_widen(matrix->type, row, NULL, 0, l->in_dim, w);
            attnkit_scalar_narrow(TYPE_Q8_0, w, l->in_dim, 0, packed, NULL);
            row = packed;
        }
        for (int64_t i = 0; i < l->rows; i++)
            write_integer_element(l, i, out, &rounded, row);
    }
    free(rounded.n);
    free(rounded.scale);
    free(packed);
    free(w);
}

void attnkit_reference_linear(const struct linear *l, const struct packing *matrix)
{
    float *const w = malloc((size_t)l->in_dim * sizeof *w);
    float *const x = malloc((size_t)(l->rows * l->in_dim + 1) * sizeof *x);
    for (int64_t i = 0; i < l->rows; i++)
        attnkit_scalar_widen(l->x_type, l->x + i * l->x_stride, NULL, 0, l->in_dim,
                             x + i * l->in_dim);
    if (l->integers)
        write_integers(l, matrix, x);
    for (int64_t out = 0; out < l->out_dim && !l->integers; out++) {
        widen_row(matrix, out, w);
        for (int64_t i = 0; i < l->rows; i++)
            write_element(l, i, out, x + i * l->in_dim, w);
    }
    free(w);
    free(x);
}
