/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures a point: first whether both sides give the same result, then their times in pairs.
 */
#ifndef ATTNKIT_COMPARE_PAIRS_H
#define ATTNKIT_COMPARE_PAIRS_H

#include "bench/compare/measure/point.h"

/* How long to measure: until the interval of the ratio is narrow, with at least min_pairs and at
 * most max_pairs. After `limit` seconds only the first few pairs are still completed. */
struct effort {
    int min_pairs, max_pairs;
    double limit;  /* seconds for a point */
    double enough; /* an interval above this ratio counts as narrow; 0: no such ratio */
    bool any_bits; /* results may have different bits, but must be close */
};

/* Measures a point: fills all fields but its name, wanted and with_aa. random is the state of the
 * generator for orders. */
void pairs_measure(const struct effort *effort, uint64_t *random, struct point *point);

#endif
