/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the results of two calls.
 */
#ifndef ATTNKIT_COMPARE_DIFFER_H
#define ATTNKIT_COMPARE_DIFFER_H

#include <stdbool.h>
#include <stddef.h>

/* The result of a call, or a copy of the result. */
struct copied {
    void *bytes;    /* NULL if there is no result; whoever makes a copy frees it */
    size_t count;   /* number of bytes */
    bool is_floats; /* the elements are binary32 */
};

bool same_bits(const struct copied *base, const struct copied *head);

/* Returns the largest magnitude of a difference of two elements at the same place, divided by the
 * largest finite magnitude in base. Equal infinities, and two NaN, have no difference. Returns NAN
 * if the elements are not floats, if the sizes differ, or if only one of two elements at the same
 * place is NaN. */
double distance(const struct copied *base, const struct copied *head);

#endif
