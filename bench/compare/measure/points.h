/* SPDX-License-Identifier: Apache-2.0
 *
 * The points: about sixty calls of attention, linear maps, layers and appends, some of them for
 * several instruction sets. Each call takes a few tenths of a millisecond or less.
 */
#ifndef ATTNKIT_COMPARE_POINTS_H
#define ATTNKIT_COMPARE_POINTS_H

#include <stdbool.h>

#include "bench/compare/measure/point.h"

/* The user's choice of points. */
struct choice {
    const char *isa;    /* points of this instruction set; NULL: of the best set, and some points of
                         * other sets */
    bool quick;         /* only the main points */
    const char *filter; /* a regular expression for names, or NULL */
};

/* Lists the names of the chosen points in the order of measurement. The sides must be loaded.
 * Returns the number of points. No point, and more than `max` points, are errors. On an error,
 * prints it and returns 0. */
int points_choose(const struct choice *choice, char (*list)[POINT_NAME], int max);

#endif
