/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the rounds of a row.
 */
#include "bench/measure/measure.h"

#include <math.h>

#include "bench/measure/clock.h"
#include "bench/measure/statistics.h"

enum { MIN_ROUNDS = 5, MIN_ROUNDS_LATE = 3, MAX_ROUNDS = 1000, MAX_CALLS = 1 << 20 };

static const double least_seconds = 300e-6; /* shortest time of the calls of a round */

struct round {
    double seconds, cpu_seconds; /* sums over all calls of the round */
};

static struct round time_calls(const struct subject *subject, int calls)
{
    const double cpu_start = pool_cpu_seconds(subject->pool),
                 start = clock_seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < calls; i++)
        subject->call(subject->arg);
    const double seconds = clock_seconds(CLOCK_MONOTONIC) - start;
    return (struct round){seconds, pool_cpu_seconds(subject->pool) - cpu_start};
}

/* Runs a burst of the roof and returns its speed. Returns NAN without a roof. */
static double speed_of_burst(struct roof *roof)
{
    return roof ? roof_speed(roof, roof_burst(roof)) : NAN;
}

/* Finds the number of calls in a round. The tries also warm up caches, page tables and clock rates.
 */
static int calls_of_round(const struct subject *subject)
{
    int calls = 1;
    while (time_calls(subject, calls).seconds < least_seconds && calls < MAX_CALLS)
        calls *= 2;
    return calls;
}

static bool is_enough(int rounds, double elapsed, struct patience patience)
{
    if (elapsed >= patience.limit)
        return rounds >= MIN_ROUNDS_LATE;
    return rounds >= MIN_ROUNDS && elapsed >= patience.seconds;
}

void measure(const struct subject *subject, struct roof *roof, struct patience patience,
             struct figures *figures)
{
    double seconds[MAX_ROUNDS], cpu[MAX_ROUNDS], share[MAX_ROUNDS], speed[MAX_ROUNDS];
    const int calls = calls_of_round(subject);
    const double start = clock_seconds(CLOCK_MONOTONIC);
    double before = speed_of_burst(roof);
    int n = 0;
    while (n < MAX_ROUNDS && !is_enough(n, clock_seconds(CLOCK_MONOTONIC) - start, patience)) {
        const struct round round = time_calls(subject, calls);
        const double after = speed_of_burst(roof);
        seconds[n] = round.seconds / calls;
        cpu[n] = round.cpu_seconds / calls;
        speed[n] = (before + after) / 2.0;
        share[n] = subject->work * pool_threads(subject->pool) / cpu[n] / speed[n];
        before = after;
        n++;
    }
    *figures = (struct figures){
        .seconds = median(seconds, n),
        .cpu_seconds = median(cpu, n),
        .roof_pct = roof ? 100.0 * median(share, n) : NAN,
        .roof_speed = roof ? median(speed, n) : NAN,
        .rounds = n,
    };
}
