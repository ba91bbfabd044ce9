/* SPDX-License-Identifier: Apache-2.0
 *
 * Types, scales, pages and tiles of a cache: a step for each page of a batch entry, constant
 * otherwise.
 */
#include "dispatch/cache/cache.h"

#include <stdbool.h>

#include "dispatch/common/versioned.h"

_Static_assert((int)TILE_KEYS == ATTNKIT_TILE_KEYS, "the same tiles");

int64_t attnkit_alignment(enum type type)
{
    return type == TYPE_F32 ? (int64_t)sizeof(float) : type == TYPE_I8 ? 1 : 2;
}

attnkit_status attnkit_check_rounded(const char *name, attnkit_type type, char *message)
{
    if ((int)type >= ATTNKIT_F32 && (int)type <= ATTNKIT_BF16)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_UNSUPPORTED,
                  "%s is %d: must be ATTNKIT_F32 (0), ATTNKIT_F16 (1) or ATTNKIT_BF16 (2)", name,
                  (int)type);
}

attnkit_status attnkit_check_stored_row(const struct stored_row *row, char *message)
{
    if ((int)row->type < ATTNKIT_F32 || (int)row->type > ATTNKIT_Q8_0)
        return refuse(message, ATTNKIT_UNSUPPORTED, "%s is %d: not known", row->type_name,
                      (int)row->type);
    if (row->group < 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least 0",
                      row->group_name, (long long)row->group);
    if (row->type == ATTNKIT_Q8_0 && row->dim % Q8_BLOCK != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is %lld: must be a multiple of %d for ATTNKIT_Q8_0", row->dim_name,
                      (long long)row->dim, Q8_BLOCK);
    const bool has_scales = row->type == ATTNKIT_I8;
    if (has_scales && row->group > 0 && row->dim % row->group != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must divide %s (%lld)",
                      row->group_name, (long long)row->group, row->dim_name, (long long)row->dim);
    if (!has_scales && row->group != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is %lld, but %s is %d and not ATTNKIT_I8 (3)", row->group_name,
                      (long long)row->group, row->type_name, (int)row->type);
    if (!has_scales && row->scales)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is given, but %s is %d and not ATTNKIT_I8 (3)", row->scales_name,
                      row->type_name, (int)row->type);
    return ATTNKIT_OK;
}

static const struct version pages_version = VERSION_OF(attnkit_pages, pages);

attnkit_status attnkit_read_pages(const attnkit_pages *theirs, attnkit_pages *copy,
                                  const attnkit_pages **pages, char *message)
{
    static const attnkit_pages none;
    const void *read = &none;
    const attnkit_status status =
        theirs ? read_struct(&pages_version, theirs, copy, &read, message) : ATTNKIT_OK;
    *pages = read;
    return status;
}

static attnkit_status check_page_fields(const struct pages *pages, char *message)
{
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {
        {"page_size", pages->size}, {"block_table_stride", pages->stride}, {"pages", pages->count}};
    for (int i = 0; i < 3; i++) {
        if (fields[i].value < 0)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least 0",
                          fields[i].name, (long long)fields[i].value);
        if (!pages->table && fields[i].value != 0)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld, but block_table is NULL",
                          fields[i].name, (long long)fields[i].value);
    }
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_pages(const struct pages *pages, int64_t batch, int64_t capacity,
                                   const char *capacity_name, char *message)
{
    const attnkit_status status = check_page_fields(pages, message);
    if (status != ATTNKIT_OK || !pages->table)
        return status;
    if (pages->size == 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "page_size is 0: must be at least 1 with block_table");
    const int64_t needed = capacity / pages->size + (capacity % pages->size > 0);
    if (batch > 1 && pages->stride < needed)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "block_table_stride is %lld: must be at least %lld, the pages of %s (%lld)",
                      (long long)pages->stride, (long long)needed, capacity_name,
                      (long long)capacity);
    int64_t bytes;
    if (__builtin_mul_overflow(needed, (int64_t)sizeof(int32_t), &bytes))
        return refuse(message, ATTNKIT_OVERFLOW, "%s is %lld: too large for pages of %lld",
                      capacity_name, (long long)capacity, (long long)pages->size);
    if (__builtin_mul_overflow(pages->stride, (int64_t)sizeof(int32_t), &bytes) ||
        __builtin_mul_overflow(batch, bytes, &bytes))
        return refuse(message, ATTNKIT_OVERFLOW, "block_table_stride is %lld: too large",
                      (long long)pages->stride);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_tiled_pages(const struct pages *pages, char *message)
{
    if (!pages->table || pages->size % TILE_KEYS == 0)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "page_size is %lld: must be a multiple of ATTNKIT_TILE_KEYS (%d) with "
                  "ATTNKIT_TILED",
                  (long long)pages->size, TILE_KEYS);
}

attnkit_status attnkit_check_page_table(const struct pages *pages, int64_t b, int64_t first,
                                        int64_t end, char *message)
{
    if (!pages->table || first >= end)
        return ATTNKIT_OK;
    const int64_t last = b * pages->stride + (end - 1) / pages->size;
    for (int64_t i = b * pages->stride + first / pages->size; i <= last; i++)
        if (pages->table[i] < 0 || pages->table[i] >= pages->count)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "block_table[%lld] is %d: must be between 0 and pages - 1 (%lld)",
                          (long long)i, (int)pages->table[i], (long long)pages->count - 1);
    return ATTNKIT_OK;
}
