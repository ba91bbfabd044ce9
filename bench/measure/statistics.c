/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes medians, their confidence intervals, and sign tests.
 */
#include "bench/measure/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/random.h"

enum { RESAMPLES = 1000 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[(count - 1) / 2];
}

double sign_test(int few, int count)
{
    double p = 0.0;
    for (int k = 0; k <= few; k++)
        p +=
            exp(lgamma(count + 1.0) - lgamma(k + 1.0) - lgamma(count - k + 1.0) - count * log(2.0));
    return fmin(1.0, 2.0 * p);
}

/* Draws `count` times from `count` sorted values, with replacement. Returns the index of the value
 * that is the median of the draws. Because the values are sorted, it is enough to count how often
 * each value is drawn. */
static int resampled_median(int count, uint64_t *random)
{
    static uint16_t drawn[MAX_RATIOS];
    memset(drawn, 0, (size_t)count * sizeof *drawn);
    for (int i = 0; i < count; i++)
        drawn[random_below(random, count)]++;
    int index = 0;
    for (int seen = drawn[0]; seen <= (count - 1) / 2; seen += drawn[index])
        index++;
    return index;
}

/* Returns the p-value of a sign test against a median of 1. Ratios of exactly 1 are left out. */
static double p_of(const double *ratios, int count)
{
    int below = 0, above = 0;
    for (int i = 0; i < count; i++) {
        below += ratios[i] < 1.0;
        above += ratios[i] > 1.0;
    }
    return sign_test(below < above ? below : above, below + above);
}

struct estimate estimate_ratio(double *ratios, int count, uint64_t *random)
{
    double medians[RESAMPLES];
    struct estimate estimate = {.ratio = median(ratios, count), .pairs = count};
    for (int i = 0; i < RESAMPLES; i++)
        medians[i] = ratios[resampled_median(count, random)];
    median(medians, RESAMPLES);
    estimate.low = medians[RESAMPLES / 40];
    estimate.high = medians[RESAMPLES - 1 - RESAMPLES / 40];
    estimate.p = p_of(ratios, count);
    return estimate;
}
