/* SPDX-License-Identifier: Apache-2.0
 *
 * A linear map in the canonical order of ../README.md as one straight program. It takes the
 * caller's matrix and computes an element of y at a time, without tiles and packing. It is not part
 * of the library.
 */
#include <stdlib.h>

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

void attnkit_reference_linear(const struct linear *l, const struct packing *matrix)
{
    float *const w = malloc((size_t)l->in_dim * sizeof *w);
    float *const x = malloc((size_t)(l->rows * l->in_dim + 1) * sizeof *x);
    for (int64_t i = 0; i < l->rows; i++)
        attnkit_scalar_widen(l->x_type, l->x + i * l->x_stride, NULL, 0, l->in_dim,
                             x + i * l->in_dim);
    for (int64_t out = 0; out < l->out_dim; out++) {
        widen_row(matrix, out, w);
        for (int64_t i = 0; i < l->rows; i++)
            write_element(l, i, out, x + i * l->in_dim, w);
    }
    free(w);
    free(x);
}
