/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics that hold whatever the distribution is.
 */
#ifndef ATTNKIT_STATISTICS_H
#define ATTNKIT_STATISTICS_H

#include <stdint.h>

/* The middle one; of an even number the lower one. Sorts the values. */
double median(double *values, int count);

/* What is known of a ratio that was measured again and again. */
struct estimate {
    double ratio;     /* the median */
    double low, high; /* its 95 % interval, by bootstrap */
    double p;         /* of a sign test against 1: how likely this is of ratios around 1 */
    int pairs;        /* that it was measured */
};

enum { MAX_RATIOS = 1 << 17 };

/* Of ratios, at least one and at most MAX_RATIOS, which are sorted; random is the state of a
 * generator. */
struct estimate estimate_ratio(double *ratios, int count, uint64_t *random);

/* The probability that of `count` fair coins at most `few` or at least count - few show the same
 * side: the p of a two-sided sign test. few is at most count / 2. */
double sign_test(int few, int count);

#endif
