/* SPDX-License-Identifier: Apache-2.0
 *
 * From measurements to a verdict. Nothing is measured here.
 */
#ifndef ATTNKIT_COMPARE_VERDICT_H
#define ATTNKIT_COMPARE_VERDICT_H

#include "bench/compare/measure/point.h"

enum verdict { GREEN, RED, INCONCLUSIVE };

/* A point as the first process has measured it, and where that asks for it the second one. */
struct judged {
    const struct point *first, *second; /* second->wanted says whether there is a second one */
};

extern const double slower_from; /* 1.01 */

/* The ratio is beyond 1.01, or below 0.99, and a sign test finds that unlikely of equal sides. */
bool estimate_is_slower(const struct estimate *estimate);
bool estimate_is_faster(const struct estimate *estimate);

/* Whether a second process is to measure it: it is slower, or so little is known of it that it
 * could be 3 % slower. */
bool point_is_suspect(const struct point *first);

/* "same", "faster", "slower", "unclear", "different" and so on. */
const char *point_verdict(const struct judged *point);

/* Slower in both processes; p < 0.01 is enough in the second one. */
bool point_is_confirmed(const struct judged *point);

/* Whether the point makes the job red: it is confirmed, or its result is wrong or missing. */
bool point_is_red(const struct judged *point);

/* Neither process could tell that it is not slower. */
bool point_is_unclear(const struct judged *point);

/* What BASE against itself came to. */
struct control {
    struct estimate pooled; /* of the ratios of all points that have been measured so */
    int points;
};

/* Whether it shows that the machine can be trusted now: the ratio is inside 0.995 .. 1.005, and its
 * interval inside 0.99 .. 1.01. */
bool control_is_good(const struct control *control);

/* Red if a result is wrong. Else inconclusive without a good control; red if a point is confirmed;
 * inconclusive if a point is unclear. */
enum verdict job_verdict(const struct judged *points, int count, const struct control *control);

#endif
