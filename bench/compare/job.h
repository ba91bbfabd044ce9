/* SPDX-License-Identifier: Apache-2.0
 *
 * A finished job: the two sides and the results of all points.
 */
#ifndef ATTNKIT_COMPARE_JOB_H
#define ATTNKIT_COMPARE_JOB_H

#include "bench/compare/build/builds.h"
#include "bench/compare/measure/process.h"
#include "bench/compare/report/verdict.h"

struct job {
    const struct plan *plan;
    const struct shared *shared;
    char labels[2][LABEL]; /* names of BASE and HEAD in results */
    struct judged points[MAX_POINTS];
    struct control control;
    enum verdict verdict;
    double seconds; /* time that the measurements took */
};

const char *verdict_text(enum verdict verdict);

#endif
