/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that has been done: what was compared, and what came of it.
 */
#ifndef ATTNKIT_COMPARE_JOB_H
#define ATTNKIT_COMPARE_JOB_H

#include "bench/compare/build/builds.h"
#include "bench/compare/measure/process.h"
#include "bench/compare/report/verdict.h"

struct job {
    const struct plan *plan;
    const struct shared *shared;
    char labels[2][LABEL]; /* what BASE and HEAD are */
    struct judged points[MAX_POINTS];
    struct control control;
    enum verdict verdict;
    double seconds; /* that measuring took */
};

const char *verdict_text(enum verdict verdict);

#endif
