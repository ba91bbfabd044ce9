/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the sides in pairs. Both sides set up the same call in the same memory, except for blocks
 * that differ (arena.h). A pair is a timing of BASE and a timing of HEAD, in random order. At some
 * points, each pair also has a timing of BASE_AGAIN. The timings of a pair follow each other
 * directly. A disturbance that lasts for a whole pair affects all timings of the pair. All timings
 * of a point have the same number of calls, for which BASE takes at least 150 us. A timing measures
 * the thread's processor time, which does not grow while other programs have the processor. If the
 * calls of a side often wait, all timings of the point measure wall clock time.
 */
#include "bench/compare/measure/pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/support/random.h"
#include "bench/measure/clock.h"
#include "bench/compare/measure/arena.h"
#include "bench/compare/measure/differ.h"
#include "bench/compare/measure/sides.h"

enum { MAX_CALLS = 1 << 20, LEAST_PAIRS = 20, CHECK_EVERY = 50 /* pairs */, UNWRITTEN = 0xa5 };

static const double least_seconds = 150e-6; /* least time of a timing of BASE */
static const double narrow = 0.01;          /* an interval is narrow up to this width */
static const double close_enough = 1e-4;    /* largest distance if bits may differ */

/* The state of pairs_measure. Each set-up whose call is timed begins inside the previous set-up.
 * The calls are timed inside the last of these set-ups. */
static struct {
    const struct effort *effort;
    uint64_t *random;
    struct point *point;
    struct copied alone[2];       /* results of BASE and HEAD alone */
    char problems[2][POINT_NOTE]; /* why BASE or HEAD cannot make the call; "" if it can */
    int sides;                    /* SIDES, or SIDES - 1 without BASE_AGAIN */
    struct worker_call calls[SIDES * COPIES]; /* [copy][side] */
    int count;                                /* calls that are set up */
} now;

static void set_outcome(enum outcome outcome, const char *note)
{
    now.point->outcome = outcome;
    snprintf(now.point->note, sizeof now.point->note, "%s", note);
}

/* ------------------------------------------------------------------------------ the set-up */

/* Records the first problem of a side. A problem of BASE_AGAIN counts as a problem of BASE. */
static void blame_side(int side, const char *problem)
{
    char *const text = now.problems[side == HEAD];
    if (!text[0])
        snprintf(text, POINT_NOTE, "%s: %s", side_name(side), problem);
}

/* A set-up in progress. The function `ready` given to set_up gets this struct as `self`. */
struct set_up {
    int side, copy;
    bool is_ready;
};

/* Tells the worker of one copy of a side's library to set up the call of a point in `memory`. When
 * the call is set up, the worker calls `ready`. The side gets a problem if the worker reports a
 * problem or does not call `ready`. (Each library is loaded COPIES times.) */
static void set_up(int side, int copy, const char *point, const struct worker_memory *memory,
                   void (*ready)(void *self, const struct worker_call *call))
{
    char problem[WORKER_PROBLEM] = "";
    struct set_up self = {side, copy, false};
    const struct worker_user user = {ready, &self};
    const int before = sides_switch(side);
    side_worker(side, copy)->run(point, memory, &user, problem);
    sides_switch(before);
    if (problem[0] || !self.is_ready)
        blame_side(side, problem[0] ? problem : "its worker sets up no call");
}

/* Overwrites call->out, so that no earlier result remains there, and makes one call of a side. */
static void try_call(int side, const struct worker_call *call)
{
    memset(call->out, UNWRITTEN, call->out_bytes);
    const int before = sides_switch(side);
    call->make(call->arg);
    arena_turn++;
    sides_switch(before);
}

/* ------------------------------------------------------------------------------- the results */

/* Returns whether the results have the same bits or, if effort->any_bits is true, are close. Only
 * results of floats can be close. If the bits differ, sets the outcome and the note. */
static bool accept_results(const struct copied *base, const struct copied *head)
{
    char note[POINT_NOTE];
    if (same_bits(base, head))
        return true;
    const double off = distance(base, head);
    snprintf(note, sizeof note, "results differ, by up to %.2g of the largest element of BASE",
             off);
    if (isnan(off))
        snprintf(note, sizeof note, "results differ");
    const bool ok = now.effort->any_bits && off <= close_enough;
    set_outcome(ok ? MEASURED : DIFFERENT, note);
    return ok;
}

/* The function `ready` of compare_alone. Seals the arena's record of this set-up (arena.h), because
 * the blocks of the set-up now hold the packed matrices and the filled cache. Copy 0 then makes its
 * first call, and the result is kept. */
static void keep_result(void *self, const struct worker_call *call)
{
    struct set_up *const its = self;
    struct copied *const alone = &now.alone[its->side];
    const int before = sides_switch(-1);
    its->is_ready = true;
    arena_seal();
    if (its->copy == 0) {
        if (call->note)
            snprintf(now.point->note, POINT_NOTE, "%s %s", side_name(its->side), call->note);
        try_call(its->side, call);
        *alone = (struct copied){malloc(call->out_bytes), call->out_bytes, call->out_is_floats};
        if (alone->bytes)
            memcpy(alone->bytes, call->out, call->out_bytes);
        else
            blame_side(its->side, "no memory for two results");
    }
    sides_switch(before);
}

/* Returns whether both sides can make the call alone, and accept_results accepts their results.
 * Each set-up begins in memory of zeros. The name of the call ends with /warm here, so there is one
 * copy of each operand. */
static bool compare_alone(void)
{
    char point[POINT_NAME + 8];
    const bool is_warm = strstr(now.point->name, "/warm") != NULL;
    snprintf(point, sizeof point, "%s%s", now.point->name, is_warm ? "" : "/warm");
    for (int side = BASE; side <= HEAD; side++)
        for (int copy = 0; copy < ARENA_RECORDS; copy++)
            set_up(side, copy, point, arena_record(side, copy), keep_result);
    arena_match();
    return !now.problems[BASE][0] && !now.problems[HEAD][0] &&
           accept_results(&now.alone[BASE], &now.alone[HEAD]);
}

static void forget_alone(void)
{
    for (int side = BASE; side <= HEAD; side++)
        free(now.alone[side].bytes);
    memset(now.alone, 0, sizeof now.alone);
}

/* Returns whether each copy gives, in the memory that it shares with other copies, the result that
 * its side gave alone.
 */
static bool compare_results(void)
{
    for (int i = 0; i < now.count; i++) {
        const int side = i % now.sides;
        const struct worker_call *const call = &now.calls[i];
        char note[POINT_NOTE];
        try_call(side, call);
        if (same_bits(&now.alone[side == HEAD],
                      &(struct copied){call->out, call->out_bytes, call->out_is_floats}))
            continue;
        snprintf(note, sizeof note, "%s does not come to the same result each time",
                 side_name(side));
        set_outcome(DIFFERENT, note);
        return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------- the time */

struct timing {
    int calls; /* calls of one timing */
    clockid_t clock;
};

/* Draws a copy of a side at random, and times the calls of this copy. Returns the seconds. */
static double time_side(const struct timing *timing, int side)
{
    const int copy = (int)random_below(now.random, COPIES);
    const struct worker_call call = now.calls[copy * now.sides + side];
    const int before = sides_switch(side);
    const double start = clock_seconds(timing->clock);
    for (int i = 0; i < timing->calls; i++, arena_turn++)
        call.make(call.arg);
    const double seconds = clock_seconds(timing->clock) - start;
    sides_switch(before);
    return seconds;
}

/* Returns the number of voluntary context switches of this thread. */
static long waits(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

/* Returns the seconds of the shorter of two timings, because the longer timing may have been
 * disturbed. */
static double try_timing(const struct timing *timing, int side)
{
    return fmin(time_side(timing, side), time_side(timing, side));
}

/* Makes two timings, and returns the seconds of the shorter timing. Sets *often to whether there
 * were at least half as many waits as calls. Fewer waits do not count, because they may be page
 * faults. If one of only two calls waited, two more calls show whether the wait was a page fault.
 * The seconds are then the seconds of the shortest of four timings. */
static double try_and_count(const struct timing *timing, int side, bool *often)
{
    const long before = waits();
    double seconds = try_timing(timing, side);
    long half = timing->calls;
    if (half == 1 && waits() - before == 1) {
        seconds = fmin(seconds, try_timing(timing, side));
        half = 2;
    }
    *often = waits() - before >= half;
    return seconds;
}

/* Finds the number of calls that a timing of one side needs. Chooses the wall clock if the calls
 * wait often. The tries also warm up caches and clock rates. */
static void adjust_to(int side, struct timing *timing)
{
    timing->calls = 1;
    for (;;) {
        bool often;
        const double seconds = try_and_count(timing, side, &often);
        if (timing->clock != CLOCK_MONOTONIC && often)
            timing->clock = CLOCK_MONOTONIC;
        else if (seconds >= least_seconds || timing->calls >= MAX_CALLS)
            return;
        else
            timing->calls *= 2;
    }
}

/* Returns the clock and the number of calls for all sides. The number of calls is the number that
 * BASE needs. */
static struct timing adjust(void)
{
    struct timing timing = {.clock = CLOCK_THREAD_CPUTIME_ID};
    adjust_to(HEAD, &timing);
    adjust_to(BASE, &timing);
    return timing;
}

/* Times each side once, in random order. */
static void time_round(const struct timing *timing, double seconds[SIDES])
{
    int order[SIDES] = {BASE, HEAD, BASE_AGAIN};
    for (int left = now.sides; left > 1; left--) {
        const int64_t drawn = random_below(now.random, left);
        const int side = order[drawn];
        order[drawn] = order[left - 1];
        order[left - 1] = side;
    }
    for (int i = 0; i < now.sides; i++)
        seconds[order[i]] = time_side(timing, order[i]);
}

/* The ratios of all pairs, and the times of a call of BASE and of HEAD. */
struct series {
    double head[MAX_PAIRS], again[MAX_PAIRS];
    double base_seconds[MAX_PAIRS], head_seconds[MAX_PAIRS];
    int count;
};

static void add_round(struct series *series, const struct timing *timing)
{
    double seconds[SIDES] = {0};
    const int i = series->count++;
    time_round(timing, seconds);
    series->head[i] = seconds[HEAD] / seconds[BASE];
    series->again[i] = seconds[BASE_AGAIN] / seconds[BASE];
    series->base_seconds[i] = seconds[BASE] / timing->calls;
    series->head_seconds[i] = seconds[HEAD] / timing->calls;
}

static struct estimate estimate(const double *ratios, int count)
{
    static double copy[MAX_PAIRS]; /* estimate_ratio sorts its argument */
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

static void time_pairs(void)
{
    static struct series series;
    struct point *const point = now.point;
    const struct timing timing = adjust();
    const double start = clock_seconds(CLOCK_MONOTONIC);
    series.count = 0;
    while (!is_enough(&series, clock_seconds(CLOCK_MONOTONIC) - start))
        add_round(&series, &timing);
    point->outcome = MEASURED;
    if (timing.clock == CLOCK_MONOTONIC && !point->note[0])
        snprintf(point->note, sizeof point->note, "waits: timed by wall clock time");
    point->head = estimate(series.head, series.count);
    if (point->with_aa) {
        memcpy(point->again, series.again, (size_t)series.count * sizeof *point->again);
        point->aa = estimate(series.again, series.count);
    }
    point->base_seconds = median(series.base_seconds, series.count);
    point->head_seconds = median(series.head_seconds, series.count);
}

/* ----------------------------------------------------------------------------------- the point */

/* The function `ready` of the set-ups whose calls are timed. Sets up the next call inside the
 * previous set-up, until every copy of every side has a call. Then checks the results and times the
 * calls. `call` is NULL before the first set-up. */
static void set_up_next(void *self, const struct worker_call *call)
{
    const int before = sides_switch(-1);
    if (call) {
        ((struct set_up *)self)->is_ready = true;
        now.calls[now.count++] = *call;
    }
    const int side = now.count % now.sides, copy = now.count / now.sides;
    if (copy < COPIES)
        set_up(side, copy, now.point->name, arena_place(side == HEAD), set_up_next);
    else if (compare_results())
        time_pairs();
    sides_switch(before);
}

/* Sets the outcome of a point whose call at least one side cannot make. */
static void blame(void)
{
    const char *const base = now.problems[BASE], *const head = now.problems[HEAD];
    set_outcome(base[0] && head[0] ? IN_NEITHER
                : base[0]          ? ONLY_IN_HEAD
                                   : ONLY_IN_BASE,
                base[0] ? base : head);
}

void pairs_measure(const struct effort *effort, uint64_t *random, struct point *point)
{
    now.effort = effort;
    now.random = random;
    now.point = point;
    now.sides = point->with_aa ? SIDES : BASE_AGAIN;
    now.count = 0;
    memset(now.problems, 0, sizeof now.problems);
    set_outcome(UNMEASURED, "");
    if (compare_alone()) {
        point->outcome = UNMEASURED; /* for now; the note of compare_alone stays */
        set_up_next(NULL, NULL);
    }
    forget_alone();
    if (point->outcome != DIFFERENT && (now.problems[BASE][0] || now.problems[HEAD][0]))
        blame();
}
