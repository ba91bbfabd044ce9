/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of a public call as tensors, and the checks that all such calls make.
 */
#include "dispatch/linear/matrix.h"

#include "dispatch/cache/cache.h"
#include "dispatch/common/message.h"

void attnkit_set_matrix(struct matrix *m, const char *name, const char *stride_name,
                        const void *data, enum type type, int64_t rows, int64_t dim, int64_t stride)
{
    *m = (struct matrix){.strides = {0, 0, stride}};
    m->tensor = (struct tensor){
        .name = name,
        .strides_name = stride_name,
        .data = data,
        .count = {1, 1, rows},
        .row_bytes = bytes_of(type, dim),
        .alignment = attnkit_alignment(type),
        .strides = m->strides,
        .stride = &m->stride,
        .layout = &m->layout,
        .is_matrix = true,
    };
}

attnkit_status attnkit_check_matrix_type(const char *name, attnkit_type type, const char *dim_name,
                                         int64_t dim, char *message)
{
    if ((int)type < ATTNKIT_F32 || (int)type > ATTNKIT_Q8_0 || type == ATTNKIT_I8)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "%s is %d: must be ATTNKIT_F32 (0), ATTNKIT_F16 (1), ATTNKIT_BF16 (2) or "
                      "ATTNKIT_Q8_0 (4)",
                      name, (int)type);
    if (type == ATTNKIT_Q8_0 && dim % Q8_BLOCK != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is %lld: must be a multiple of %d for ATTNKIT_Q8_0", dim_name,
                      (long long)dim, Q8_BLOCK);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_matrix_size(const char *rows_name, int64_t rows, const char *dim_name,
                                         int64_t dim, char *message)
{
    int64_t whole, bytes; /* in whole tiles */
    if (__builtin_add_overflow(rows, (int64_t)TILE_KEYS, &whole) ||
        __builtin_mul_overflow(dim, (int64_t)sizeof(float), &bytes) ||
        __builtin_mul_overflow(bytes, whole, &bytes))
        return refuse(message, ATTNKIT_OVERFLOW, "%s x %s is %lld x %lld: beyond 63 bits",
                      rows_name, dim_name, (long long)rows, (long long)dim);
    return ATTNKIT_OK;
}
