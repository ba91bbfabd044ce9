/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures a point: first whether both sides give the same result, then their times in pairs.
 */
#ifndef ATTNKIT_COMPARE_PAIRS_H
#define ATTNKIT_COMPARE_PAIRS_H

#include "bench/compare/measure/point.h"

/* How much is measured: pairs until the interval of the ratio is narrow, but at least min_pairs,
 * at most max_pairs, and none after `limit` seconds but for the first few. */
struct effort {
    int min_pairs, max_pairs;
    double limit;  /* of a point */
    double enough; /* an interval that begins beyond it is narrow enough; 0: none is */
    bool any_bits; /* results need not have the same bits, only be close */
};

/* Fills all of the point but its name and what is wanted of it. random is the state of the
 * generator of orders. */
void pairs_measure(const struct effort *effort, uint64_t *random, struct point *point);

#endif
