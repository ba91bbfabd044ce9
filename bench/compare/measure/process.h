/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that measure. Each process loads the libraries itself. If HEAD crashes or hangs at a
 * point, another process goes on with the next point. If BASE crashes or hangs, the job ends. The
 * job also ends if a library crashes or hangs while it is loaded.
 */
#ifndef ATTNKIT_COMPARE_PROCESS_H
#define ATTNKIT_COMPARE_PROCESS_H

#include "bench/compare/exit_codes.h"
#include "bench/compare/measure/pairs.h"
#include "bench/compare/measure/points.h"
#include "bench/compare/measure/sides.h"

enum { MAX_POINTS = 256, FIRST = 0, SECOND = 1, PROCESSES = 2 };

/* The plan of a job: what to measure, and how. */
struct plan {
    const char *folder; /* folder of the copies of both sides */
    struct choice choice;
    struct effort effort;      /* `limit` and `enough` do not count: a measuring process sets them
                                * in its own copy of `effort` */
    double budgets[PROCESSES]; /* seconds for all points of a pass */
    int core;                  /* processor to pin to; -1: the last processor that this process may
                                * use */
    uint64_t seed;
    double patience; /* seconds after which an unfinished point counts as hung */
};

/* The memory that the processes share. */
struct shared {
    struct point points[PROCESSES][MAX_POINTS];
    int count;         /* number of points */
    volatile int at;   /* the point that is being measured, or -1 */
    volatile int busy; /* the side that is being called or loaded, or -1 */
    int core;          /* the processor on which the points are measured */
    double deadline;   /* end of the budget, in seconds of the monotonic clock */
    char isa[32];      /* the best instruction set that both sides have */
    char version[2][64];
    enum exit_code code;         /* the error for which a process has given up, or EXIT_GREEN */
    char problem[SIDES_PROBLEM]; /* describes the error; "" if the process has printed it or cannot
                                  * describe it */
};

/* Allocates the shared memory. On an error, prints it and returns NULL. */
struct shared *shared_make(void);

/* Sets shared->count and the names of the chosen points, in a child process that loads the
 * libraries. Returns EXIT_GREEN, or prints an error and returns its exit code. After a signal,
 * returns EXIT_GREEN, too. */
enum exit_code process_list(const struct plan *plan, struct shared *shared);

/* Measures the wanted points in pass FIRST or SECOND (`process`). If HEAD crashes or hangs, a pass
 * takes several processes. SECOND loads the libraries in another order than FIRST. Calls `tell`
 * after each point. Returns EXIT_GREEN, or prints an error and returns its exit code. A signal ends
 * the measurement, with EXIT_GREEN. */
enum exit_code process_measure(const struct plan *plan, struct shared *shared, int process,
                               void (*tell)(const struct shared *shared, int process, int point));

#endif
