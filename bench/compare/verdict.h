/* SPDX-License-Identifier: Apache-2.0
 *
 * From measurements to a verdict. Nothing is measured here.
 */
#ifndef ATTNKIT_COMPARE_VERDICT_H
#define ATTNKIT_COMPARE_VERDICT_H

#include "point.h"

enum verdict { GREEN, RED, INCONCLUSIVE };

/* HEAD is slower if its ratio is beyond 1.01 and a sign test finds that unlikely of equal sides;
 * faster the other way round. */
bool estimate_is_slower(const struct estimate *estimate);
bool estimate_is_faster(const struct estimate *estimate);

/* A point as the first process and, where it was slower there, the second one has measured it. */
struct judged {
    const struct point *first, *second; /* second->wanted says whether there is a second one */
};

/* "same", "faster", "slower", "different" and so on. */
const char *point_verdict(const struct judged *point);

/* Whether a second process is to measure it. */
bool point_is_suspect(const struct point *first);

/* Whether the point makes the job red: slower in both processes, or a wrong or missing result. */
bool point_is_red(const struct judged *point);

/* Whether the second process saw the same. */
bool point_is_confirmed(const struct judged *point);

/* What BASE against itself came to. */
struct control {
    struct estimate pooled; /* of the ratios of all points that have been measured so */
    int points;
};

/* Whether it shows that the machine can be trusted now. */
bool control_is_good(const struct control *control);

enum verdict job_verdict(const struct judged *points, int count, const struct control *control);

#endif
