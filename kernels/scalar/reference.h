/* SPDX-License-Identifier: Apache-2.0
 *
 * The scalar reference, which is not part of the library. The results of every kernel must equal
 * the results of the reference by memcmp.
 */
#ifndef ATTNKIT_REFERENCE_H
#define ATTNKIT_REFERENCE_H

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"

/* Computes all rows of the call, one by one, in the canonical order of kernels/README.md. */
void attnkit_reference(const struct attention *a);

/* Computes one row of the call. out has value_dim floats. lse may be NULL. Also writes the weights
 * of the row to a->extras.weights, unless a->extras.weights is NULL. */
void attnkit_reference_row(const struct attention *a, int64_t batch, int64_t kv_head, int64_t row,
                           float *out, float *lse);

/* Computes y of a linear map from x, bias and the matrix before packing. l->w is not used. */
void attnkit_reference_linear(const struct linear *l, const struct packing *matrix);

#endif
