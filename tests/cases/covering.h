/* SPDX-License-Identifier: Apache-2.0
 *
 * A covering array: cases drawn from a seed so that every value of each axis, and every pair of
 * values of any two axes, occurs in at least one case (Cohen, Dalal, Fredman, Patton 1997).
 */
#ifndef ATTNKIT_TEST_COVERING_H
#define ATTNKIT_TEST_COVERING_H

#include "tests/cases/case.h"

struct cases {
    struct test_case *list;
    int count;
};

/* The axes that cases are drawn from, and their values. An axis that is not in the list is 0. */
struct axes {
    int count; /* the axes 0 .. count - 1 of enum axis */
    int counts[AXES];
    const int *values[AXES];
};

/* Returns all axes with all their values. */
struct axes all_axes(void);

/* Draws at least `least` cases that cover every pair. If possible, the other axes of a case get
 * cheap values, so that a case seldom costs more than `cost_limit` (case_cost). */
struct cases covering_cases(uint64_t seed, int least, double cost_limit);

/* Draws `count` cases that walk through the values of every axis in turn (1,742 cases contain all
 * values of head_dim). The golden hashes of f32 belong to these cases: another way to draw them
 * would change the hashes. Hardly any case costs more than `cost_limit`, a bound for emulators.
 * Only every sixteenth case, which has 65 rows over 1,000 keys, may cost 16 times as much. */
struct cases sampled_cases(const struct axes *axes, uint64_t seed, int count, double cost_limit);

/* Counts the pairs of values that occur in no case. */
int64_t uncovered_pairs(const struct cases *cases);

#endif
