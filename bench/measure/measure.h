/* SPDX-License-Identifier: Apache-2.0
 *
 * One measurement: rounds of burst, calls, burst, in which only the calls are timed. A round's
 * percent of the roof compares their speed with that of the two bursts beside them, so that a clock
 * that changes is in both; speeds are there by processor time, so that work of others, which a long
 * call meets more often than a short burst, is in neither. What is reported are the medians over
 * the rounds.
 */
#ifndef ATTNKIT_MEASURE_H
#define ATTNKIT_MEASURE_H

#include "bench/roofs/roof.h"

/* What is measured. */
struct subject {
    void (*call)(void *arg);
    void *arg;
    double work;       /* of a call, in the unit of the roof's */
    struct pool *pool; /* whose threads a call runs on; NULL: the caller's */
};

/* How long: at least 5 rounds, and until `seconds` have gone by; only 3 from `limit` seconds on. */
struct patience {
    double seconds, limit;
};

struct figures {
    double seconds;     /* of a call */
    double cpu_seconds; /* of a call, all threads together */
    double roof_pct;
    double roof_speed; /* FLOP/s or byte/s, by processor time */
    int rounds;
};

/* roof may be NULL. Calls too short to be timed are made many at a time. */
void measure(const struct subject *subject, struct roof *roof, struct patience patience,
             struct figures *figures);

#endif
