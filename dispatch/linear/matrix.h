/* SPDX-License-Identifier: Apache-2.0
 *
 * What the calls around attention have in common: matrices of rows with one stride, element types
 * of weights, and work that is shared out in equal parts.
 */
#ifndef ATTNKIT_MATRIX_H
#define ATTNKIT_MATRIX_H

#include "dispatch/common/tensor.h"

enum { MATRIX_ALIGNMENT = 64 /* bytes, of what is packed */ };

/* A tensor [rows][dim] whose rows are `stride` bytes apart if the call is strided. */
struct matrix {
    struct tensor tensor;
    struct layout layout;
    struct strides stride;
    int64_t strides[3];
};

/* Fills in m, which must stay where it is; name and stride_name are those of the public struct. */
void attnkit_set_matrix(struct matrix *m, const char *name, const char *stride_name,
                        const void *data, enum type type, int64_t rows, int64_t dim,
                        int64_t stride);

/* That a type is one of matrices, and `dim` a whole number of its blocks. */
attnkit_status attnkit_check_matrix_type(const char *name, attnkit_type type, const char *dim_name,
                                         int64_t dim, char *message);

/* That so many rows of so many elements are within 63 bits, also as binary32. */
attnkit_status attnkit_check_matrix_size(const char *rows_name, int64_t rows, const char *dim_name,
                                         int64_t dim, char *message);

/* The first of n parts that belongs to share i of `shares`: they differ by one part at most. */
static inline int64_t first_of_share(int64_t n, int64_t shares, int64_t i)
{
    const int64_t longer = n % shares;
    return n / shares * i + (i < longer ? i : longer);
}

#endif
