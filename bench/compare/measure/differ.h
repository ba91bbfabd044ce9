/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the results of two calls differ.
 */
#ifndef ATTNKIT_COMPARE_DIFFER_H
#define ATTNKIT_COMPARE_DIFFER_H

#include <stdbool.h>
#include <stddef.h>

/* A copy of the result of a call. */
struct copied {
    void *bytes; /* to be freed; NULL: there is none */
    size_t count;
    bool is_floats;
};

bool same_bits(const struct copied *base, const struct copied *head);

/* The largest difference by the largest element of base; NAN where that says nothing, because the
 * elements are no floats, one of them is no number, or one result has more. */
double distance(const struct copied *base, const struct copied *head);

#endif
