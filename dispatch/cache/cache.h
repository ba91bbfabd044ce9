/* SPDX-License-Identifier: Apache-2.0
 *
 * How a KV cache is stored: element types with their scales, pages, and tiles. What attention reads
 * and what append writes is checked here in the same words.
 */
#ifndef ATTNKIT_DISPATCH_CACHE_H
#define ATTNKIT_DISPATCH_CACHE_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "kernels/cache/pages.h"
#include "attnkit.h"

/* What a row of this type is aligned to, in bytes. */
int64_t attnkit_alignment(enum type type);

/* As attnkit.h has it; of a type of K and V. */
const char *attnkit_type_name(attnkit_type type);

/* That a type has elements to which binary32 is rounded one by one. */
attnkit_status attnkit_check_rounded(const char *name, attnkit_type type, char *message);

/* A row of `dim` elements and its scales, with the names of the public fields. */
struct stored_row {
    attnkit_type type;
    bool tiled;
    int64_t dim, group; /* group: as given, 0 for the whole row */
    const void *scales;
    const char *dim_name, *type_name, *group_name, *scales_name;
};

attnkit_status attnkit_check_stored_row(const struct stored_row *row, char *message);

/* The caller's pages as this version of the library knows them, maybe in `copy`. NULL: there are
 * none, and all fields are 0. */
attnkit_status attnkit_read_pages(const attnkit_pages *theirs, attnkit_pages *copy,
                                  const attnkit_pages **pages, char *message);

/* The fields of the pages, for `capacity` rows of each of `batch` entries. */
attnkit_status attnkit_check_pages(const struct pages *pages, int64_t batch, int64_t capacity,
                                   const char *capacity_name, char *message);

/* That a page is a whole number of tiles. */
attnkit_status attnkit_check_tiled_pages(const struct pages *pages, char *message);

/* That rows first .. end - 1 of entry b lie in pages that there are. */
attnkit_status attnkit_check_page_table(const struct pages *pages, int64_t b, int64_t first,
                                        int64_t end, char *message);

#endif
