/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrices of a public call as tensors, and the checks that all calls with matrices make.
 */
#include "dispatch/linear/matrix.h"

#include "dispatch/cache/cache.h"
#include "dispatch/common/message.h"

void attnkit_begin_matrix(struct tensor *t, const char *name, enum type type, int64_t rows,
                          int64_t dim)
{
    *t = (struct tensor){
        .name = name,
        .count = {1, 1, rows},
        .row_bytes = bytes_of(type, dim),
        .alignment = (int32_t)attnkit_alignment(type),
    };
}

attnkit_status attnkit_plan_matrix(struct tensor *t, const attnkit_tensor *theirs, char *message)
{
    const attnkit_status status =
        attnkit_check_layout(t->name, theirs->layout, ATTNKIT_STRIDED, message);
    return status == ATTNKIT_OK ? attnkit_plan_tensor(t, theirs, message) : status;
}

attnkit_status attnkit_bind_rows(struct memory *m, const struct tensor *t, int64_t rows,
                                 const void *data, char *message)
{
    const int64_t count[3] = {1, 1, rows};
    if (rows == t->count[2])
        return attnkit_bind(m, t, data, message);
    return attnkit_bind_part(m, t, count, data, message);
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
    /* `whole` is at least the number of rows of all tiles. `bytes` is the number of bytes of one
     * row, then of `whole` rows. */
    int64_t whole, bytes;
    if (__builtin_add_overflow(rows, (int64_t)TILE_KEYS, &whole) ||
        __builtin_mul_overflow(dim, (int64_t)sizeof(float), &bytes) ||
        __builtin_mul_overflow(bytes, whole, &bytes))
        return refuse(message, ATTNKIT_OVERFLOW, "%s x %s is %lld x %lld: beyond 63 bits",
                      rows_name, dim_name, (long long)rows, (long long)dim);
    return ATTNKIT_OK;
}
