/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules.
 */
#include "verdict.h"

#include <stddef.h>

static const double slower_from = 1.01, faster_to = 0.99, unlikely = 0.001;
static const double control_low = 0.995, control_high = 1.005;

bool estimate_is_slower(const struct estimate *estimate)
{
    return estimate->ratio > slower_from && estimate->p < unlikely;
}

bool estimate_is_faster(const struct estimate *estimate)
{
    return estimate->ratio < faster_to && estimate->p < unlikely;
}

bool point_is_suspect(const struct point *first)
{
    return first->outcome == MEASURED && estimate_is_slower(&first->head);
}

bool point_is_confirmed(const struct judged *point)
{
    return point_is_suspect(point->first) && point->second->wanted &&
           point_is_suspect(point->second);
}

/* What a process saw that timing has no part in: no second one is needed. */
static bool is_wrong(const struct point *point)
{
    return point->outcome == DIFFERENT || point->outcome == CRASHED ||
           point->outcome == ONLY_IN_BASE;
}

bool point_is_red(const struct judged *point)
{
    return is_wrong(point->first) || (point->second->wanted && is_wrong(point->second)) ||
           point_is_confirmed(point);
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
    if (estimate_is_slower(&first->head))
        return "slower";
    return estimate_is_faster(&first->head) ? "faster" : "same";
}

bool control_is_good(const struct control *control)
{
    const struct estimate *const pooled = &control->pooled;
    return pooled->pairs > 0 && pooled->low >= control_low && pooled->high <= control_high;
}

enum verdict job_verdict(const struct judged *points, int count, const struct control *control)
{
    bool wrong = false, red = false;
    for (int i = 0; i < count; i++) {
        red |= point_is_red(&points[i]);
        wrong |= point_is_red(&points[i]) && !point_is_confirmed(&points[i]);
    }
    if (wrong)
        return RED;
    if (!control_is_good(control))
        return INCONCLUSIVE;
    return red ? RED : GREEN;
}
