/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls that are compared: some seventy, of every kind, each a few tenths of a
 * millisecond or less.
 */
#ifndef ATTNKIT_COMPARE_POINTS_H
#define ATTNKIT_COMPARE_POINTS_H

#include <stdbool.h>

#include "bench/compare/measure/point.h"

/* Which of them. */
struct choice {
    const char *isa;    /* its points alone; NULL: the best one's, some on AVX2 and in plain C */
    bool quick;         /* only the main ones */
    const char *filter; /* a regular expression for names, or NULL */
};

/* Their names, in the order in which they are measured; the sides are loaded. Returns how many; 0:
 * complained. */
int points_choose(const struct choice *choice, char (*list)[POINT_NAME], int max);

#endif
