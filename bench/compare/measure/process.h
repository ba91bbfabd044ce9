/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that measure. Each loads the libraries for itself, so that a library that crashes or
 * hangs takes no more with it than the process and the point it was at.
 */
#ifndef ATTNKIT_COMPARE_PROCESS_H
#define ATTNKIT_COMPARE_PROCESS_H

#include "bench/compare/exit_codes.h"
#include "bench/compare/measure/pairs.h"
#include "bench/compare/measure/points.h"
#include "bench/compare/measure/sides.h"

enum { MAX_POINTS = 256, FIRST = 0, SECOND = 1, PROCESSES = 2 };

/* What is measured, and how. */
struct plan {
    const char *folder; /* of the copies of both sides */
    struct choice choice;
    struct effort effort;      /* but for limit and enough */
    double budgets[PROCESSES]; /* seconds for all points of a process */
    int core;                  /* to be pinned to; -1: one of those this process may use */
    uint64_t seed;
    double patience; /* seconds after which a side that does not come back hangs */
};

/* What the processes share. */
struct shared {
    struct point points[PROCESSES][MAX_POINTS];
    int count;
    volatile int at;   /* the point that is being measured, or -1 */
    volatile int busy; /* the side that is being called or loaded, or -1 */
    int core;
    double deadline; /* when the budget is used up */
    char isa[32];    /* the best one that both sides have */
    char version[2][64];
    enum exit_code code; /* why a process has ended, with the problem */
    char problem[SIDES_PROBLEM];
};

/* NULL: complained. */
struct shared *shared_make(void);

/* Loads the libraries and names the points. Returns EXIT_GREEN, or complains. */
enum exit_code process_list(const struct plan *plan, struct shared *shared);

/* Measures the points that are wanted of FIRST or SECOND, which loads the libraries in the other
 * order; tells of each when it is done. Returns EXIT_GREEN, or complains; a signal ends it. */
enum exit_code process_measure(const struct plan *plan, struct shared *shared, int process,
                               void (*tell)(const struct shared *shared, int process, int point));

#endif
