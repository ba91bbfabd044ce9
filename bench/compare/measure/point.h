/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of a point: a call of one shape, type and instruction set, and how fast both sides
 * make it. Points lie in memory that the measuring process shares with the one that judges.
 */
#ifndef ATTNKIT_COMPARE_POINT_H
#define ATTNKIT_COMPARE_POINT_H

#include <stdbool.h>

#include "bench/measure/statistics.h"

enum { POINT_NAME = 192, POINT_NOTE = 576, MAX_PAIRS = 5000 };

/* What came of measuring a point. */
enum outcome {
    UNMEASURED,
    MEASURED,
    DIFFERENT,    /* the results have other bits, or with leave to, are far apart */
    ONLY_IN_BASE, /* BASE can, HEAD has no such row or refuses */
    ONLY_IN_HEAD,
    IN_NEITHER, /* or the machine has no memory for it */
    CRASHED,    /* in HEAD */
};

struct point {
    char name[POINT_NAME];
    bool wanted;  /* by the process that measures now */
    bool with_aa; /* BASE is also measured against itself */
    enum outcome outcome;
    char note[POINT_NOTE]; /* why there are no figures, or what is special about them */
    struct estimate head;  /* time of HEAD by that of BASE */
    struct estimate aa;    /* time of BASE again by that of BASE; no pairs without with_aa */
    double base_seconds, head_seconds; /* medians, of a call */
    double *again; /* room for MAX_PAIRS ratios, of which aa is, where with_aa may be */
};

#endif
