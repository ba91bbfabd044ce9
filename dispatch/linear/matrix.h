/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices whose rows are one stride apart, and the element types of weights. Linear maps, packing,
 * embeddings and layers share these functions.
 */
#ifndef ATTNKIT_MATRIX_H
#define ATTNKIT_MATRIX_H

#include "dispatch/common/tensor.h"

enum { MATRIX_ALIGNMENT = 64 /* bytes; alignment of packed matrices */ };

/* Sets everything but the strides of a tensor [rows][dim]. `name` is the name of the public field.
 * Fills the struct in place. If the function returned a struct, the copy would load with vectors
 * what scalar stores have just written, and store forwarding fails for such loads. */
void attnkit_begin_matrix(struct tensor *t, const char *name, enum type type, int64_t rows,
                          int64_t dim);

/* Sets the strides: the caller's strides if the layout has ATTNKIT_STRIDED, else dense strides. */
attnkit_status attnkit_plan_matrix(struct tensor *t, const attnkit_tensor *theirs, char *message);

/* Binds a tensor to an address, with the planned number of rows or fewer. */
attnkit_status attnkit_bind_rows(struct memory *m, const struct tensor *t, int64_t rows,
                                 const void *data, char *message);

/* Checks that matrices can have a type, and that `dim` elements are a whole number of blocks of
 * this type. */
attnkit_status attnkit_check_matrix_type(const char *name, attnkit_type type, const char *dim_name,
                                         int64_t dim, char *message);

/* Checks that the bytes of (rows + TILE_KEYS) x dim elements of binary32 fit 63 bits. A matrix of
 * any type then fits, also in tiles. */
attnkit_status attnkit_check_matrix_size(const char *rows_name, int64_t rows, const char *dim_name,
                                         int64_t dim, char *message);

#endif
