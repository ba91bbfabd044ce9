/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics that assume nothing about the distribution of values.
 */
#ifndef ATTNKIT_STATISTICS_H
#define ATTNKIT_STATISTICS_H

#include <stdint.h>

/* Returns the median, of an even number of values the lower of the two middle ones. Sorts the
 * values. */
double median(double *values, int count);

/* The estimate of a ratio from repeated measurements. */
struct estimate {
    double ratio;     /* median */
    double low, high; /* 95 % confidence interval, by bootstrap */
    double p;         /* of a sign test against a median of 1 */
    int pairs;        /* number of measured ratios */
};

enum { MAX_RATIOS = 1 << 17 };

/* Estimates a ratio from `count` ratios, 1 .. MAX_RATIOS. Sorts them. random is the state of a
 * generator. */
struct estimate estimate_ratio(double *ratios, int count, uint64_t *random);

/* Returns the p of a two-sided sign test: the probability that of `count` fair coins at most `few`
 * or at least count - few show heads. few is at most count / 2. */
double sign_test(int few, int count);

#endif
