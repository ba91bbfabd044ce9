/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules for verdicts.
 */
#include "bench/compare/report/verdict.h"

#include <stddef.h>

const double slower_from = 1.01;
static const double faster_to = 0.99, unlikely = 0.001;
static const double unlikely_again = 0.01;
static const double unclear_from =
    1.03; /* a point that is not slower is unclear if its interval reaches above this ratio */

bool estimate_is_slower(const struct estimate *estimate)
{
    return estimate->ratio > slower_from && estimate->p < unlikely;
}

bool estimate_is_faster(const struct estimate *estimate)
{
    return estimate->ratio < faster_to && estimate->p < unlikely;
}

static bool is_slower(const struct point *point)
{
    return point->outcome == MEASURED && estimate_is_slower(&point->head);
}

static bool is_unclear(const struct point *point)
{
    return point->outcome == MEASURED && !is_slower(point) && point->head.high > unclear_from;
}

/* Returns whether the results of a point differ, or HEAD gives no result. Times do not matter. */
static bool is_wrong(const struct point *point)
{
    return point->outcome == DIFFERENT || point->outcome == CRASHED ||
           point->outcome == ONLY_IN_BASE;
}

bool point_is_suspect(const struct point *first)
{
    return is_slower(first) || is_unclear(first);
}

/* p < 0.01 is enough in the second process, which measures so few points that chance rarely makes a
 * point look slower. */
bool point_is_confirmed(const struct judged *point)
{
    const struct point *const second = point->second;
    return is_slower(point->first) && second->wanted && second->outcome == MEASURED &&
           second->head.ratio > slower_from && second->head.p < unlikely_again;
}

static bool has_wrong(const struct judged *point)
{
    return is_wrong(point->first) || (point->second->wanted && is_wrong(point->second));
}

bool point_is_red(const struct judged *point)
{
    return has_wrong(point) || point_is_confirmed(point);
}

bool point_is_unclear(const struct judged *point)
{
    const struct point *const second = point->second;
    return !has_wrong(point) && is_unclear(point->first) &&
           (!second->wanted || point_is_suspect(second));
}

const char *point_verdict(const struct judged *point)
{
    static const char *const words[] = {
        [UNMEASURED] = "not measured",   [DIFFERENT] = "different",
        [ONLY_IN_BASE] = "only in BASE", [ONLY_IN_HEAD] = "only in HEAD",
        [IN_NEITHER] = "in neither",     [CRASHED] = "crashed",
    };
    const struct point *const first = point->first, *const second = point->second;
    if (first->outcome != MEASURED)
        return words[first->outcome];
    if (second->wanted && is_wrong(second))
        return words[second->outcome];
    if (is_slower(first))
        return "slower";
    if (point_is_unclear(point))
        return "unclear";
    return estimate_is_faster(&first->head) ? "faster" : "same";
}

bool control_is_good(const struct control *control)
{
    const struct estimate *const pooled = &control->pooled;
    return pooled->pairs > 0 && pooled->ratio >= 0.995 && pooled->ratio <= 1.005 &&
           pooled->low >= 0.99 && pooled->high <= 1.01;
}

enum verdict job_verdict(const struct judged *points, int count, const struct control *control)
{
    bool wrong = false, slower = false, unclear = false;
    for (int i = 0; i < count; i++) {
        wrong |= has_wrong(&points[i]);
        slower |= point_is_confirmed(&points[i]);
        unclear |= point_is_unclear(&points[i]);
    }
    if (wrong)
        return RED;
    if (!control_is_good(control))
        return INCONCLUSIVE;
    return slower ? RED : unclear ? INCONCLUSIVE : GREEN;
}
