/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of calls. Both sides set up the same call in the same memory, and make it one right after
 * the other, in random order. A timing is of as many calls as take a good tenth of a millisecond:
 * what disturbs the machine for longer than that is in both timings of a pair. It is of the
 * thread's processor time, in which being put aside for others does not count; or where a side
 * gives the processor away by itself, of the clock on the wall.
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

static const double least_seconds = 150e-6; /* of a timing */
static const double narrow = 0.01;          /* an interval, from end to end */
static const double close_enough = 1e-4;    /* of the largest element, where bits may differ */

/* What pairs_measure is at; the calls are made where the last of them is set up. */
static struct {
    const struct effort *effort;
    uint64_t *random;
    struct point *point;
    struct copied alone[2];       /* what BASE and HEAD come to alone */
    char problems[2][POINT_NOTE]; /* why they cannot make the call, with the name; "": they can */
    int sides;                    /* SIDES, or without BASE_AGAIN */
    struct worker_call calls[SIDES * COPIES]; /* copy by copy, in each copy side by side */
    int count;                                /* that are set up */
} now;

static void set_outcome(enum outcome outcome, const char *note)
{
    now.point->outcome = outcome;
    snprintf(now.point->note, sizeof now.point->note, "%s", note);
}

/* ------------------------------------------------------------------------------ the set-up */

/* The side that is to blame for what BASE_AGAIN does is BASE. */
static void blame_side(int side, const char *problem)
{
    char *const text = now.problems[side == HEAD];
    if (!text[0])
        snprintf(text, POINT_NOTE, "%s: %s", side_name(side), problem);
}

/* A set-up: what `ready` gets as self. */
struct set_up {
    int side, copy;
    bool is_ready;
};

/* Has a copy of a side set up the call, and tell `ready`. */
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

/* One call of a side, whose result is then in call->out, and nothing else is. */
static void try_call(int side, const struct worker_call *call)
{
    memset(call->out, UNWRITTEN, call->out_bytes);
    const int before = sides_switch(side);
    call->make(call->arg);
    arena_turn++;
    sides_switch(before);
}

/* ------------------------------------------------------------------------------- the results */

/* Only results of floats can be close. */
static bool accept_results(const struct copied *base, const struct copied *head)
{
    char note[POINT_NOTE];
    if (same_bits(base, head))
        return true;
    const double off = distance(base, head);
    snprintf(note, sizeof note, "results differ, by up to %.2g of the largest element", off);
    if (isnan(off))
        snprintf(note, sizeof note, "results differ");
    const bool ok = now.effort->any_bits && off <= close_enough;
    set_outcome(ok ? MEASURED : DIFFERENT, note);
    return ok;
}

/* The first call of a side that has also packed its matrices and filled its cache by itself. */
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

/* Whether both sides come to the same result, each from the beginning, in memory that nothing else
 * has written to. There a row has what it reads once. */
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

/* Whether each copy also comes to the result of its side in the memory that it has beside the
 * others. */
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
    int calls; /* that are made one after the other */
    clockid_t clock;
};

/* Seconds of one timing. */
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
static struct timing adjust(void)
{
    struct timing timing = {.clock = CLOCK_THREAD_CPUTIME_ID};
    adjust_to(HEAD, &timing);
    adjust_to(BASE, &timing);
    return timing;
}

/* One timing of each side, in random order. */
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

/* The ratios of all pairs, and the times of the two sides. */
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

/* Sets up the next call inside of the one before, until all copies of all sides have one, and times
 * them. */
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

/* Why there are no figures: who cannot make the calls. */
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
        point->outcome = UNMEASURED; /* so far; a note stays */
        set_up_next(NULL, NULL);
    }
    forget_alone();
    if (point->outcome != DIFFERENT && (now.problems[BASE][0] || now.problems[HEAD][0]))
        blame();
}
