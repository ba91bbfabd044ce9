/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the results of two calls.
 */
#ifndef ATTNKIT_COMPARE_DIFFER_H
#define ATTNKIT_COMPARE_DIFFER_H

#include <stdbool.h>
#include <stddef.h>

/* A copy of the result of a call. */
struct copied {
    void *bytes; /* owned memory, to be freed; NULL if there is no result */
    size_t count;
    bool is_floats;
};

bool same_bits(const struct copied *base, const struct copied *head);

/* Returns the largest difference of two elements at the same place, divided by the largest finite
 * magnitude in base. Equal infinities, and two NaN, have no difference. Returns NAN if the elements
 * are not floats, if the sizes differ, or if only one of two elements at the same place is NaN. */
double distance(const struct copied *base, const struct copied *head);

#endif
