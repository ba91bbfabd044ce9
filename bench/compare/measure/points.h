/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that are compared: some seventy, of every kind, each a few tenths of a
 * millisecond or less.
 */
#ifndef ATTNKIT_COMPARE_POINTS_H
#define ATTNKIT_COMPARE_POINTS_H

#include "bench/rows/rows.h"
#include "bench/compare/measure/sides.h"

/* Which of them. */
struct choice {
    const char *isa; /* its points alone; NULL: the best one's, some on AVX2 and in plain C */
    bool quick;      /* only the main ones */
};

/* In the order in which they are measured; the sides are loaded. */
void points_add(struct row_list *rows, const struct choice *choice);

/* A function that the row needs and the side lacks; NULL: it has all. */
const char *points_missing(const struct row *row, const struct functions *functions);

#endif
