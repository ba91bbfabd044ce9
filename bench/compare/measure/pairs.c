/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of calls. All sides are called with the same arguments, which point to the same memory,
 * one right after the other, in random order. A timing is of as many calls as take a good tenth of
 * a millisecond: what disturbs the machine for longer than that is in both timings of a pair. It is
 * of the thread's processor time, in which being put aside for others does not count; or where a
 * side gives the processor away by itself, of the clock on the wall.
 */
#include "bench/compare/measure/pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/support/random.h"
#include "bench/rows/calls.h"
#include "bench/measure/clock.h"
#include "bench/compare/append.h"
#include "bench/compare/measure/sides.h"

enum { MAX_CALLS = 1 << 20, LEAST_PAIRS = 20, CHECK_EVERY = 50 /* pairs */, UNWRITTEN = 0xa5 };

static const double least_seconds = 150e-6; /* of a timing */
static const double narrow = 0.01;          /* an interval, from end to end */
static const double close_enough = 1e-4;    /* of the largest element, where bits may differ */

/* What pairs_measure is at; measure_calls is called in the depth of its row. */
static struct {
    const struct effort *effort;
    uint64_t *random;
    struct point *point;
    int alone;       /* the side that makes everything by itself, or SIDES: none */
    void *result[2]; /* of BASE and of HEAD alone, to be freed; NULL: it could not */
    size_t result_bytes;
} now;

static void set_outcome(enum outcome outcome, const char *note)
{
    now.point->outcome = outcome;
    snprintf(now.point->note, sizeof now.point->note, "%s", note);
}

/* ------------------------------------------------------------------------------- the results */

/* The largest |a - b| by the largest |a|; NAN where only one of them is a number. */
static double distance(const float *a, const float *b, size_t count)
{
    double most = 0.0, largest = 0.0;
    for (size_t i = 0; i < count; i++) {
        const bool same = a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
        const double off = same ? 0.0 : fabs((double)a[i] - (double)b[i]);
        if (isnan(off))
            return NAN;
        most = fmax(most, off);
        largest = fmax(largest, isfinite(a[i]) ? fabs((double)a[i]) : 0.0);
    }
    return most > 0.0 ? most / largest : 0.0;
}

/* Only floats can be close. */
static bool accept_results(const void *base, const void *head, size_t bytes, bool floats)
{
    char note[POINT_NOTE];
    if (!memcmp(base, head, bytes))
        return true;
    const double off = floats ? distance(base, head, bytes / sizeof(float)) : NAN;
    snprintf(note, sizeof note, "results differ, by up to %.2g of the largest element", off);
    if (isnan(off))
        snprintf(note, sizeof note, "results differ");
    const bool ok = now.effort->any_bits && off <= close_enough;
    set_outcome(ok ? MEASURED : DIFFERENT, note);
    return ok;
}

/* One call of a side, whose result is then in call->out, and nothing else is. */
static bool try_side(int side, const struct row_call *call)
{
    memset(call->out, UNWRITTEN, call->out_bytes);
    sides_use(side, 0);
    call->make(call->arg);
    return !sides_failure(side);
}

/* The first call of a side that has also packed its matrices and filled its cache by itself. */
static void keep_result(const struct row_call *call, struct result *result)
{
    const int side = now.alone;
    void *const copy = malloc(call->out_bytes);
    if (!copy)
        row_fails(result, "no memory for two results");
    if (copy && try_side(side, call)) {
        now.result[side] = memcpy(copy, call->out, call->out_bytes);
        now.result_bytes = call->out_bytes;
    } else {
        free(copy);
    }
}

/* Whether both sides come to the same result, each from the beginning. What the timed calls read
 * is in memory that both have filled, HEAD last: they would not show that it is filled wrongly. */
static bool compare_alone(const struct row *row, struct result *result)
{
    static const struct patience none;
    struct row one_copy = *row;
    one_copy.warm = true;
    for (now.alone = BASE; now.alone <= HEAD; now.alone++) {
        sides_use(now.alone, 0);
        row->run(&one_copy, none, result);
    }
    now.alone = SIDES;
    const bool ok = now.result[BASE] && now.result[HEAD] &&
                    accept_results(now.result[BASE], now.result[HEAD], now.result_bytes,
                                   row->run != run_append);
    for (int side = BASE; side <= HEAD; side++) {
        free(now.result[side]);
        now.result[side] = NULL;
    }
    return ok;
}

/* Whether both sides make the call, and alike. */
static bool compare_results(const struct row *row, const struct row_call *call,
                            struct result *result)
{
    void *const base = malloc(call->out_bytes);
    if (!base) {
        row_fails(result, "no memory for two results");
        return false;
    }
    const bool base_can = try_side(BASE, call);
    memcpy(base, call->out, call->out_bytes);
    const bool head_can = try_side(HEAD, call);
    const bool ok = base_can && head_can &&
                    accept_results(base, call->out, call->out_bytes, row->run != run_append);
    free(base);
    return ok;
}

/* ------------------------------------------------------------------------------------ the time */

struct timing {
    const struct row_call *call;
    int calls; /* of a timing */
    clockid_t clock;
};

/* Seconds of one timing. */
static double time_side(const struct timing *timing, int side)
{
    sides_use(side, (int)random_below(now.random, COPIES));
    const double start = clock_seconds(timing->clock);
    for (int i = 0; i < timing->calls; i++)
        timing->call->make(timing->call->arg);
    return clock_seconds(timing->clock) - start;
}

/* Times that this thread has given the processor away by itself. */
static long waits(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

/* Seconds of the shorter one of two timings: one alone may have been disturbed. */
static double try_timing(const struct timing *timing, int side)
{
    return fmin(time_side(timing, side), time_side(timing, side));
}

/* Finds how many calls make a timing of one side, and whether it waits; warms up what there is to
 * warm. */
static void adjust_to(int side, struct timing *timing)
{
    const long before = waits();
    timing->calls = 1;
    while (try_timing(timing, side) < least_seconds && timing->calls < MAX_CALLS)
        if (waits() > before && timing->clock != CLOCK_MONOTONIC)
            timing->clock = CLOCK_MONOTONIC;
        else
            timing->calls *= 2;
}

/* The clock is the same for both sides, and so is the number of calls: BASE's. */
static struct timing adjust(const struct row_call *call)
{
    struct timing timing = {.call = call, .clock = CLOCK_THREAD_CPUTIME_ID};
    adjust_to(HEAD, &timing);
    adjust_to(BASE, &timing);
    return timing;
}

/* One timing of each side, in random order. */
static void time_round(const struct timing *timing, int sides, double seconds[SIDES])
{
    int order[SIDES] = {BASE, HEAD, BASE_AGAIN};
    for (int left = sides; left > 1; left--) {
        const int64_t drawn = random_below(now.random, left);
        const int side = order[drawn];
        order[drawn] = order[left - 1];
        order[left - 1] = side;
    }
    for (int i = 0; i < sides; i++)
        seconds[order[i]] = time_side(timing, order[i]);
}

/* The ratios of all pairs, and the times of the two sides. */
struct series {
    double head[MAX_PAIRS], again[MAX_PAIRS];
    double base_seconds[MAX_PAIRS], head_seconds[MAX_PAIRS];
    int count;
};

static void add_round(struct series *series, const struct timing *timing, bool with_aa)
{
    double seconds[SIDES] = {0};
    const int i = series->count++;
    time_round(timing, with_aa ? SIDES : BASE_AGAIN, seconds);
    series->head[i] = seconds[HEAD] / seconds[BASE];
    series->again[i] = seconds[BASE_AGAIN] / seconds[BASE];
    series->base_seconds[i] = seconds[BASE] / timing->calls;
    series->head_seconds[i] = seconds[HEAD] / timing->calls;
}

static struct estimate estimate(const double *ratios, int count)
{
    static double copy[MAX_PAIRS]; /* sorted by what follows */
    memcpy(copy, ratios, (size_t)count * sizeof *copy);
    return estimate_ratio(copy, count, now.random);
}

static bool is_narrow(const double *ratios, int count)
{
    const double enough = now.effort->enough;
    const struct estimate so_far = estimate(ratios, count);
    return so_far.high - so_far.low <= narrow || (enough > 0.0 && so_far.low > enough);
}

static bool is_enough(const struct series *series, double elapsed)
{
    const struct effort *const effort = now.effort;
    if (series->count >= effort->max_pairs)
        return true;
    if (elapsed > effort->limit)
        return series->count >= LEAST_PAIRS;
    return series->count >= effort->min_pairs && series->count % CHECK_EVERY == 0 &&
           is_narrow(series->head, series->count) &&
           (!now.point->with_aa || is_narrow(series->again, series->count));
}

static void time_pairs(const struct row_call *call)
{
    static struct series series;
    struct point *const point = now.point;
    const struct timing timing = adjust(call);
    const double start = clock_seconds(CLOCK_MONOTONIC);
    series.count = 0;
    while (!is_enough(&series, clock_seconds(CLOCK_MONOTONIC) - start))
        add_round(&series, &timing, point->with_aa);
    point->outcome = MEASURED;
    if (timing.clock == CLOCK_MONOTONIC && !point->note[0])
        snprintf(point->note, sizeof point->note, "waits, timed by the clock on the wall");
    point->head = estimate(series.head, series.count);
    if (point->with_aa) {
        memcpy(point->again, series.again, (size_t)series.count * sizeof *point->again);
        point->aa = estimate(series.again, series.count);
    }
    point->base_seconds = median(series.base_seconds, series.count);
    point->head_seconds = median(series.head_seconds, series.count);
}

/* ----------------------------------------------------------------------------------- the point */

/* What a row calls once it is ready. */
void measure_calls(const struct row *row, struct pool *pool, struct patience patience,
                   const struct row_call *call, struct result *result)
{
    (void)pool, (void)patience;
    if (now.alone != SIDES)
        keep_result(call, result);
    else if (compare_results(row, call, result))
        time_pairs(call);
}

/* Why there are no figures: who cannot make the calls. */
static void blame(const char *problem)
{
    const char *const base = sides_failure(BASE), *const head = sides_failure(HEAD);
    if (base && !head)
        set_outcome(ONLY_IN_HEAD, base);
    else if (head && !base)
        set_outcome(ONLY_IN_BASE, head);
    else
        set_outcome(IN_NEITHER, base ? base : problem);
}

void pairs_measure(const struct row *row, const struct effort *effort, uint64_t *random,
                   struct point *point)
{
    static const struct patience none;
    struct result result = {0};
    now.effort = effort;
    now.random = random;
    now.point = point;
    set_outcome(UNMEASURED, "");
    sides_forgive();
    if (compare_alone(row, &result)) {
        point->outcome = UNMEASURED; /* so far; a note stays */
        sides_use_all();
        row->run(row, none, &result);
    }
    if (point->outcome != DIFFERENT &&
        (point->outcome != MEASURED || sides_failure(BASE) || sides_failure(HEAD)))
        blame(result.problem);
}
