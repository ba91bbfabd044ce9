/* SPDX-License-Identifier: Apache-2.0
 *
 * How a KV cache is stored: element types with their scales, pages, and tiles. Attention reads
 * caches, and an append writes them. Attention and appends share the checks of this file and their
 * messages.
 */
#ifndef ATTNKIT_DISPATCH_CACHE_H
#define ATTNKIT_DISPATCH_CACHE_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "kernels/cache/pages.h"
#include "attnkit.h"

/* Returns the alignment of a row of this type, in bytes. */
int64_t attnkit_alignment(enum type type);

/* Returns the name that attnkit.h gives to a type of K and V. */
const char *attnkit_type_name(attnkit_type type);

/* Checks that a type is ATTNKIT_F32, F16 or BF16. In these types each element is rounded by
 * itself. */
attnkit_status attnkit_check_rounded(const char *name, attnkit_type type, char *message);

/* A row of `dim` elements and its scales, with the names of the public fields. */
struct stored_row {
    attnkit_type type;
    bool tiled;
    int64_t dim, group; /* elements; group is the caller's number: 0 means the whole row */
    const void *scales;
    const char *dim_name, *type_name, *group_name, *scales_name;
};

attnkit_status attnkit_check_stored_row(const struct stored_row *row, char *message);

/* Sets *pages to the caller's pages as this version of the library knows them: to `theirs`, or to
 * `copy` if theirs->size differs from the size in this version. If `theirs` is NULL, *pages points
 * to a struct whose fields are all 0. */
attnkit_status attnkit_read_pages(const attnkit_pages *theirs, attnkit_pages *copy,
                                  const attnkit_pages **pages, char *message);

/* Checks the fields of the pages, for `capacity` rows of each of `batch` entries. */
attnkit_status attnkit_check_pages(const struct pages *pages, int64_t batch, int64_t capacity,
                                   const char *capacity_name, char *message);

/* Checks that a page is a whole number of tiles. */
attnkit_status attnkit_check_tiled_pages(const struct pages *pages, char *message);

/* Checks that rows first .. end - 1 of entry b lie in existing pages. */
attnkit_status attnkit_check_page_table(const struct pages *pages, int64_t b, int64_t first,
                                        int64_t end, char *message);

#endif
