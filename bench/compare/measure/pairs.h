/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures a point. First checks whether both sides give the same result. Then times the sides in
 * pairs.
 */
#ifndef ATTNKIT_COMPARE_PAIRS_H
#define ATTNKIT_COMPARE_PAIRS_H

#include "bench/compare/measure/point.h"

/* The effort of a measurement. A measurement ends when it has at least min_pairs pairs and the
 * intervals of its ratios are narrow, or when it has max_pairs pairs. After `limit` seconds, 20
 * pairs are enough. */
struct effort {
    int min_pairs, max_pairs;
    double limit;  /* time for a point, in seconds */
    double enough; /* a wide interval counts as narrow if its lower end is above this ratio; 0:
                    * no wide interval counts as narrow */
    bool any_bits; /* results may have different bits, but must be close */
};

/* Measures a point, and sets its outcome, its note and its figures. `random` is the state of the
 * random generator. The generator decides the order of the sides, and which copies of the libraries
 * are timed. The estimates use the generator, too. */
void pairs_measure(const struct effort *effort, uint64_t *random, struct point *point);

#endif
