/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics that assume nothing about the distribution of values.
 */
#ifndef ATTNKIT_STATISTICS_H
#define ATTNKIT_STATISTICS_H

#include <stdint.h>

/* Returns the median. For an even number of values, returns the lower of the two middle values.
 * Sorts the values. */
double median(double *values, int count);

/* The estimate of a ratio from repeated measurements. */
struct estimate {
    double ratio;     /* median */
    double low, high; /* 95 % confidence interval, by bootstrap */
    double p;         /* p-value of a sign test against a median of 1 */
    int pairs;        /* number of measured ratios */
};

enum { MAX_RATIOS = 1 << 17 };

/* Estimates a ratio from `count` measured ratios, where count is 1 .. MAX_RATIOS. Sorts the ratios.
 * `random` is the state of a generator. */
struct estimate estimate_ratio(double *ratios, int count, uint64_t *random);

/* Returns the p-value of a two-sided sign test: the probability that at most `few`, or at least
 * count - few, of `count` fair coins show heads. few is at most count / 2. */
double sign_test(int few, int count);

#endif
