/* SPDX-License-Identifier: Apache-2.0
 *
 * A measurement consists of rounds. A round is a number of calls between two bursts of the roof.
 * The time of a call does not include the bursts. The percent of the roof is the speed of the calls
 * divided by the mean speed of the two bursts around them. A change of the clock rate affects both
 * speeds alike. Both speeds use processor time. Otherwise other programs would affect the calls
 * more than the bursts, because a long call is interrupted more often than a short burst. The
 * result is the median over the rounds.
 */
#ifndef ATTNKIT_MEASURE_H
#define ATTNKIT_MEASURE_H

#include "bench/roofs/roof.h"

/* The call to measure. */
struct subject {
    void (*call)(void *arg);
    void *arg;
    double work;       /* work of a call in the unit of the roof: FLOPs or bytes */
    struct pool *pool; /* threads of a call; NULL: only the caller's */
};

/* The length of a measurement: at least `seconds` and 5 rounds, but at most 1,000 rounds. After
 * `limit` seconds, 3 rounds are enough. */
struct patience {
    double seconds, limit;
};

struct figures {
    double seconds;     /* time of a call */
    double cpu_seconds; /* processor time of a call, summed over all threads */
    double roof_pct;
    double roof_speed; /* FLOP/s or byte/s of all threads together, by processor time */
    int rounds;
};

/* Measures a call. roof may be NULL. If a call takes under 0.3 ms, a round has several calls. */
void measure(const struct subject *subject, struct roof *roof, struct patience patience,
             struct figures *figures);

#endif
