/* SPDX-License-Identifier: Apache-2.0
 *
 * Judges measurements. This file measures nothing itself.
 */
#ifndef ATTNKIT_COMPARE_VERDICT_H
#define ATTNKIT_COMPARE_VERDICT_H

#include "bench/compare/measure/point.h"

enum verdict { GREEN, RED, INCONCLUSIVE };

/* The measurements of a point by the first process and by the second process. */
struct judged {
    const struct point *first, *second; /* `second` counts only if second->wanted is true */
};

extern const double slower_from; /* 1.01 */

/* Return whether the p-value of the sign test is below 0.001, and the estimated ratio is above 1.01
 * (slower) or below 0.99 (faster). */
bool estimate_is_slower(const struct estimate *estimate);
bool estimate_is_faster(const struct estimate *estimate);

/* Returns whether a second process must measure the point: the point is slower, or its interval
 * reaches above 1.03. */
bool point_is_suspect(const struct point *first);

/* Returns the verdict as text: "same", "faster", "slower", "unclear", "different", "only in BASE"
 * and so on. */
const char *point_verdict(const struct judged *point);

/* Returns whether the point is slower in both processes; p < 0.01 is enough in the second
 * process. */
bool point_is_confirmed(const struct judged *point);

/* Returns whether the point makes the job red: it is confirmed to be slower, or its result is wrong
 * or missing. */
bool point_is_red(const struct judged *point);

/* Returns whether the point is suspect but not slower in the first process. If the second process
 * had to measure the point, true also needs that the point is suspect in the second process. A
 * point with a wrong or missing result is not unclear. */
bool point_is_unclear(const struct judged *point);

/* The result of BASE against itself. */
struct control {
    struct estimate pooled; /* over the ratios of all points whose with_aa is true */
    int points;             /* number of these points */
};

/* Returns whether the machine's timings can be trusted now: BASE was measured against itself, the
 * ratio is within 0.995 .. 1.005, and its interval within 0.99 .. 1.01. */
bool control_is_good(const struct control *control);

/* Judges a job by the first rule that applies: red if a result is wrong or missing; inconclusive
 * without a good control; red if a point is confirmed to be slower; inconclusive if a point is
 * unclear; else green. */
enum verdict job_verdict(const struct judged *points, int count, const struct control *control);

#endif
