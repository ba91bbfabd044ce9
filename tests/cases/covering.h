/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases drawn from a seed. covering_cases makes a covering array: every pair of values of any two
 * axes occurs in at least one case (Cohen, Dalal, Fredman, Patton 1997). sampled_cases makes a
 * given number of cases, which need not have every pair.
 */
#ifndef ATTNKIT_TEST_COVERING_H
#define ATTNKIT_TEST_COVERING_H

#include "tests/cases/case.h"

struct cases {
    struct test_case *list;
    int count;
};

/* The axes of drawn cases, and the values of each axis. The axes from `count` on have the value
 * 0. */
struct axes {
    int count; /* the axes 0 .. count - 1 of enum axis */
    int counts[AXES];
    const int *values[AXES];
};

/* Returns all axes with all their values. */
struct axes all_axes(void);

/* Draws at least `least` cases that cover every pair. Each of the first cases is drawn to cover a
 * pair of values of two axes. If its case_cost is above `cost_limit`, or its rows do not fit
 * into the slots, the other axes are drawn again, towards smaller values. So these first cases
 * seldom cost more than `cost_limit`. Cases that are added to reach `least` may cost 4 times as
 * much. */
struct cases covering_cases(uint64_t seed, int least, double cost_limit);

/* Draws `count` cases that take the values of every axis in turn (1,742 cases contain all values of
 * head_dim). The golden hashes of f32 belong to cases of this function: any change to the drawing
 * would change the hashes. Hardly any case costs more than its limit, which keeps runs in emulators
 * short. The limit of every sixteenth case, which has a q_len of 65 and a kv_len of 1,000, is 16
 * times `cost_limit`. The limit of the other cases is `cost_limit`. */
struct cases sampled_cases(const struct axes *axes, uint64_t seed, int count, double cost_limit);

/* Returns the number of pairs of values that occur in no case. */
int64_t uncovered_pairs(const struct cases *cases);

#endif
