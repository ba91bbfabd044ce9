/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics that hold whatever the distribution is.
 */
#ifndef ATTNKIT_STATISTICS_H
#define ATTNKIT_STATISTICS_H

/* The middle one; of an even number the lower one. Sorts the values. */
double median(double *values, int count);

#endif
