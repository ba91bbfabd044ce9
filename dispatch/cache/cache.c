/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks types, scales, pages and tiles of a cache. Checking a block table takes some time for each
 * page in which checked rows lie. The other checks take constant time.
 */
#include "dispatch/cache/cache.h"

#include "dispatch/common/versioned.h"

_Static_assert((int)TILE_KEYS == ATTNKIT_TILE_KEYS, "the same tiles");

int64_t attnkit_alignment(enum type type)
{
    return type == TYPE_F32 ? (int64_t)sizeof(float) : has_scales(type) ? 1 : 2;
}

const char *attnkit_type_name(attnkit_type type)
{
    static const char *const names[] = {
        [ATTNKIT_F32] = "ATTNKIT_F32",         [ATTNKIT_F16] = "ATTNKIT_F16",
        [ATTNKIT_BF16] = "ATTNKIT_BF16",       [ATTNKIT_I8] = "ATTNKIT_I8",
        [ATTNKIT_Q8_0] = "ATTNKIT_Q8_0",       [ATTNKIT_Q4_0] = "ATTNKIT_Q4_0",
        [ATTNKIT_Q4_1] = "ATTNKIT_Q4_1",       [ATTNKIT_Q5_0] = "ATTNKIT_Q5_0",
        [ATTNKIT_Q5_1] = "ATTNKIT_Q5_1",       [ATTNKIT_IQ4_NL] = "ATTNKIT_IQ4_NL",
        [ATTNKIT_Q1_0] = "ATTNKIT_Q1_0",       [ATTNKIT_Q2_0] = "ATTNKIT_Q2_0",
        [ATTNKIT_F8_E4M3] = "ATTNKIT_F8_E4M3",
    };
    _Static_assert(sizeof names / sizeof names[0] == TYPE_COUNT, "a name for each type");
    return names[type];
}

attnkit_status attnkit_check_rounded(const char *name, attnkit_type type, char *message)
{
    if ((int)type >= ATTNKIT_F32 && (int)type <= ATTNKIT_BF16)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_UNSUPPORTED,
                  "%s is %d: must be ATTNKIT_F32 (0), ATTNKIT_F16 (1) or ATTNKIT_BF16 (2)", name,
                  (int)type);
}

static attnkit_status check_scale_fields(const struct stored_row *row, char *message)
{
    static const char *const scaled = "ATTNKIT_I8 (3) or ATTNKIT_F8_E4M3 (12)";
    const bool has_them = has_scales((enum type)row->type);
    if (has_them && row->group > 0 && row->dim % row->group != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must divide %s (%lld)",
                      row->group_name, (long long)row->group, row->dim_name, (long long)row->dim);
    if (!has_them && row->group != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld, but %s is %d and not %s",
                      row->group_name, (long long)row->group, row->type_name, (int)row->type,
                      scaled);
    if (!has_them && row->scales)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is given, but %s is %d and not %s",
                      row->scales_name, row->type_name, (int)row->type, scaled);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_stored_row(const struct stored_row *row, char *message)
{
    if ((int)row->type < ATTNKIT_F32 || (int)row->type >= TYPE_COUNT)
        return refuse(message, ATTNKIT_UNSUPPORTED, "%s is %d: not known", row->type_name,
                      (int)row->type);
    if (!is_built((enum type)row->type))
        return refuse(message, ATTNKIT_UNSUPPORTED, "%s is %d: this build has no rows of %s",
                      row->type_name, (int)row->type, attnkit_type_name(row->type));
    if (row->tiled && is_only_widened((enum type)row->type))
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "%s is %d: there are no tiles (ATTNKIT_TILED) of %s", row->type_name,
                      (int)row->type, attnkit_type_name(row->type));
    if (row->group < 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least 0",
                      row->group_name, (long long)row->group);
    const int64_t block = block_elements((enum type)row->type);
    if (row->dim % block != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is %lld: must be a multiple of %lld for %s", row->dim_name,
                      (long long)row->dim, (long long)block, attnkit_type_name(row->type));
    return check_scale_fields(row, message);
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
