/* SPDX-License-Identifier: Apache-2.0
 *
 * What the calls around attention have in common: matrices of rows with one stride, and element
 * types of weights.
 */
#ifndef ATTNKIT_MATRIX_H
#define ATTNKIT_MATRIX_H

#include "dispatch/common/tensor.h"

enum { MATRIX_ALIGNMENT = 64 /* bytes, of what is packed */ };

/* Begins a tensor [rows][dim], which has no strides yet; `name` is the one of the public field. In
 * place, because a struct that is returned is read by vectors before its numbers have left the
 * store queue, which keeps the processor waiting. */
void attnkit_begin_matrix(struct tensor *t, const char *name, enum type type, int64_t rows,
                          int64_t dim);

/* Sets the strides, which are the caller's if the layout says so. */
attnkit_status attnkit_plan_matrix(struct tensor *t, const attnkit_tensor *theirs, char *message);

/* The same tensor at an address, with as many rows or fewer. */
attnkit_status attnkit_bind_rows(struct memory *m, const struct tensor *t, int64_t rows,
                                 const void *data, char *message);

/* That a type is one of matrices, and `dim` a whole number of its blocks. */
attnkit_status attnkit_check_matrix_type(const char *name, attnkit_type type, const char *dim_name,
                                         int64_t dim, char *message);

/* That so many rows of so many elements are within 63 bits, also as binary32. */
attnkit_status attnkit_check_matrix_size(const char *rows_name, int64_t rows, const char *dim_name,
                                         int64_t dim, char *message);

#endif
