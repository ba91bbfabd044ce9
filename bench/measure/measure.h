/* SPDX-License-Identifier: Apache-2.0
 *
 * One measurement: rounds of calls, each between two bursts of the roof. The time of a call is the
 * time of the calls alone. The percent of the roof is the speed of the calls over the speed of the
 * two bursts beside them, so a change of the clock rate affects both. These speeds use processor
 * time, so that other programs, which interrupt a long call more often than a short burst, affect
 * neither. The result is the median over the rounds.
 */
#ifndef ATTNKIT_MEASURE_H
#define ATTNKIT_MEASURE_H

#include "bench/roofs/roof.h"

/* The call to measure. */
struct subject {
    void (*call)(void *arg);
    void *arg;
    double work;       /* FLOPs or bytes of a call, as the roof counts */
    struct pool *pool; /* threads of a call; NULL: only the caller's */
};

/* How long to measure: `seconds`, and at least 5 rounds, or after `limit` seconds at least 3. */
struct patience {
    double seconds, limit;
};

struct figures {
    double seconds;     /* time of a call */
    double cpu_seconds; /* processor time of a call, all threads together */
    double roof_pct;
    double roof_speed; /* FLOP/s or byte/s of processor time */
    int rounds;
};

/* Measures a call. roof may be NULL. If a call is too short for the clock, a timing covers many
 * calls. */
void measure(const struct subject *subject, struct roof *roof, struct patience patience,
             struct figures *figures);

#endif
