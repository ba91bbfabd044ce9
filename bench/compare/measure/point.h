/* SPDX-License-Identifier: Apache-2.0
 *
 * A point is a call of one shape, type and instruction set, and the speed of both sides. Points lie
 * in memory that the measuring processes share with the main process. For each point, this memory
 * has a struct for process FIRST and a struct for process SECOND (process.h). The main process
 * judges the points.
 */
#ifndef ATTNKIT_COMPARE_POINT_H
#define ATTNKIT_COMPARE_POINT_H

#include <stdbool.h>

#include "bench/measure/statistics.h"

enum { POINT_NAME = 192, POINT_NOTE = 576, MAX_PAIRS = 5000 };

/* The outcome of measuring a point. */
enum outcome {
    UNMEASURED,
    MEASURED,
    DIFFERENT,    /* the results have different bits (if different bits are allowed: the results are
                   * not close), or a side does not give the same result each time */
    ONLY_IN_BASE, /* only BASE can make the call, for example because HEAD refuses the call or its
                   * benches have no such row */
    ONLY_IN_HEAD,
    IN_NEITHER, /* neither side can make the call, for example because there is no memory for it */
    CRASHED,    /* a call of HEAD crashed, ended the process or did not come back */
};

struct point {
    char name[POINT_NAME];
    bool wanted;  /* the process that fills this struct must measure the point */
    bool with_aa; /* BASE is also measured against itself */
    enum outcome outcome;
    char note[POINT_NOTE]; /* the reason why figures are missing, or a remark about them */
    struct estimate head;  /* time of HEAD / time of BASE */
    struct estimate aa;    /* time of BASE_AGAIN / time of BASE; aa.pairs is 0 without with_aa */
    double base_seconds, head_seconds; /* medians of the time of a call */
    double *again; /* with_aa: memory for up to MAX_PAIRS ratios, from which aa is computed */
};

#endif
