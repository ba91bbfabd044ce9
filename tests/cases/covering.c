/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cases/covering.h"

#include <stdlib.h>

enum {
    MAX_VALUES = 160, /* no axis has more values */
    CANDIDATES =
        12, /* number of draws in best_draw, which returns the draw with the most new pairs */
};

/* The pairs of values that have occurred: seen[axis a][axis b > a] is an array [value of a][value
 * of b]. */
struct pairs {
    struct axes axes;
    bool *seen[AXES][AXES];
    int64_t missing;
};

struct axes all_axes(void)
{
    struct axes all = {.count = AXES};
    for (int a = 0; a < AXES; a++)
        all.counts[a] = axis_values((enum axis)a, &all.values[a]);
    return all;
}

static struct pairs *pairs_new(const struct axes *axes)
{
    struct pairs *p = calloc(1, sizeof *p);
    p->axes = *axes;
    for (int a = 0; a < axes->count; a++)
        for (int b = a + 1; b < axes->count; b++) {
            p->seen[a][b] = calloc((size_t)(axes->counts[a] * axes->counts[b]), sizeof(bool));
            p->missing += axes->counts[a] * axes->counts[b];
        }
    return p;
}

static void pairs_free(struct pairs *p)
{
    for (int a = 0; a < p->axes.count; a++)
        for (int b = a + 1; b < p->axes.count; b++)
            free(p->seen[a][b]);
    free(p);
}

/* Indices into the values of each axis. */
struct draw {
    int index[AXES];
};

static bool *pair_of(const struct pairs *p, const struct draw *d, int a, int b)
{
    return &p->seen[a][b][d->index[a] * p->axes.counts[b] + d->index[b]];
}

static int new_pairs(const struct pairs *p, const struct draw *d)
{
    int count = 0;
    for (int a = 0; a < p->axes.count; a++)
        for (int b = a + 1; b < p->axes.count; b++)
            count += !*pair_of(p, d, a, b);
    return count;
}

static void mark(struct pairs *p, const struct draw *d)
{
    for (int a = 0; a < p->axes.count; a++)
        for (int b = a + 1; b < p->axes.count; b++) {
            bool *seen = pair_of(p, d, a, b);
            p->missing -= !*seen;
            *seen = true;
        }
}

static struct test_case to_case(const struct pairs *p, const struct draw *d, uint64_t seed)
{
    struct test_case c = {.seed = seed};
    for (int i = 0; i < p->axes.count; i++)
        c.value[i] = p->axes.values[i][d->index[i]];
    return c;
}

/* Draws an index for every axis whose index in `fixed` is negative. The other axes have the indices
 * in `fixed`. If the cost is above the limit, or the rows do not fit into the slots, the function
 * draws again, with smaller sizes. If the sizes cannot become smaller, the function returns the
 * last draw. */
static struct draw draw_within(const struct pairs *p, const struct draw *fixed, double cost_limit,
                               uint64_t *random)
{
    struct draw d;
    int shrink = 1;
    do {
        for (int i = 0; i < p->axes.count; i++) {
            const bool size = i <= AXIS_GROUP || i == AXIS_BATCH || i == AXIS_KV_HEADS;
            const int most = size ? 1 + (p->axes.counts[i] - 1) / shrink : p->axes.counts[i];
            d.index[i] = fixed->index[i] >= 0 ? fixed->index[i] : (int)random_below(random, most);
        }
        shrink += shrink < MAX_VALUES;
        const struct test_case c = to_case(p, &d, 0);
        if (case_cost(&c) <= cost_limit && case_fits_guards(&c))
            break;
    } while (shrink < MAX_VALUES);
    return d;
}

static struct draw best_draw(const struct pairs *p, const struct draw *fixed, double cost_limit,
                             uint64_t *random)
{
    struct draw best = draw_within(p, fixed, cost_limit, random);
    int most = new_pairs(p, &best);
    for (int i = 1; i < CANDIDATES; i++) {
        const struct draw d = draw_within(p, fixed, cost_limit, random);
        const int covered = new_pairs(p, &d);
        if (covered > most) {
            most = covered;
            best = d;
        }
    }
    return best;
}

static void append(struct cases *cases, struct test_case c)
{
    if ((cases->count & (cases->count - 1)) == 0)
        cases->list =
            realloc(cases->list, (size_t)(cases->count ? 2 * cases->count : 1) * sizeof c);
    cases->list[cases->count++] = c;
}

static void take(struct cases *cases, struct pairs *p, const struct draw *d, uint64_t *random)
{
    mark(p, d);
    append(cases, to_case(p, d, random_bits(random)));
}

static const struct draw NOTHING_FIXED = {{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};

static void cover_pairs_of(struct cases *cases, struct pairs *p, int a, int b, double cost_limit,
                           uint64_t *random)
{
    for (int i = 0; i < p->axes.counts[a]; i++)
        for (int j = 0; j < p->axes.counts[b]; j++) {
            if (p->seen[a][b][i * p->axes.counts[b] + j])
                continue;
            struct draw fixed = NOTHING_FIXED;
            fixed.index[a] = i;
            fixed.index[b] = j;
            const struct draw d = best_draw(p, &fixed, cost_limit, random);
            take(cases, p, &d, random);
        }
}

struct cases covering_cases(uint64_t seed, int least, double cost_limit)
{
    struct cases cases = {NULL, 0};
    const struct axes axes = all_axes();
    struct pairs *p = pairs_new(&axes);
    /* The two axes with the most values come first. Their pairs need most of the cases, and these
     * cases also cover most of the other pairs. */
    for (int a = 0; a < p->axes.count; a++)
        for (int b = a + 1; b < p->axes.count; b++)
            cover_pairs_of(&cases, p, a, b, cost_limit, &seed);
    while (cases.count < least) {
        const struct draw d = draw_within(p, &NOTHING_FIXED, 4 * cost_limit, &seed);
        take(&cases, p, &d, &seed);
    }
    pairs_free(p);
    return cases;
}

static int index_of(const struct pairs *p, enum axis axis, int value)
{
    int index = 0;
    while (p->axes.values[axis][index] != value)
        index++;
    return index;
}

struct cases sampled_cases(const struct axes *axes, uint64_t seed, int count, double cost_limit)
{
    struct cases cases = {NULL, 0};
    struct pairs *p = pairs_new(axes);
    for (int i = 0; i < count; i++) {
        /* Case i takes the next value of axis i % axes->count, so that every value of every axis
         * occurs. */
        struct draw fixed = NOTHING_FIXED;
        const int axis = i % axes->count;
        fixed.index[axis] = i / axes->count % p->axes.counts[axis];
        /* Every sixteenth case has a large q_len, and a kv_len of two chunks. */
        const bool large = i % 16 == 0;
        const double limit = large ? 16 * cost_limit : cost_limit;
        if (large) {
            fixed.index[AXIS_Q_LEN] = index_of(p, AXIS_Q_LEN, 65);
            fixed.index[AXIS_KV_LEN] = index_of(p, AXIS_KV_LEN, 1000);
        }
        const struct draw d = best_draw(p, &fixed, limit, &seed);
        take(&cases, p, &d, &seed);
    }
    pairs_free(p);
    return cases;
}

int64_t uncovered_pairs(const struct cases *cases)
{
    const struct axes axes = all_axes();
    struct pairs *p = pairs_new(&axes);
    for (int i = 0; i < cases->count; i++) {
        struct draw d = NOTHING_FIXED;
        for (int a = 0; a < p->axes.count; a++)
            d.index[a] = index_of(p, (enum axis)a, cases->list[i].value[a]);
        mark(p, &d);
    }
    const int64_t missing = p->missing;
    pairs_free(p);
    return missing;
}
