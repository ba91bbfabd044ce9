/* SPDX-License-Identifier: Apache-2.0
 *
 * Same bits everywhere: the result of each instruction set is compared with the scalar reference by
 * memcmp, over a covering array of shapes, masks, layouts, threads and data. Each case runs as it
 * is, and again with every row of every tensor next to an unmapped page. Some rows of a case also
 * run as calls of their own: one row, as in a decoding step, and several rows, as in a part of a
 * prefill. Some cases also run with a V whose sums overflow.
 *
 * The reference takes most of the time. Therefore it computes each case only once for all
 * instruction sets.
 *
 *   same_bits [--isa NAME] [--case INDEX] [--from INDEX] [--every N]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"
#include "tests/cases/covering.h"
#include "tests/support/tally.h"

static const uint64_t SEED = 20261121;
static const double CASE_COST = 2e6; /* multiply-adds, approximately */

enum {
    CASES = 20000,
    HUGE_EVERY = 8,
    REPORTED = 5, /* the most differences that are printed for each instruction set */
};

static struct {
    const char *isa; /* NULL: all instruction sets */
    int only;        /* the only case, or -1 for all */
    int from, every; /* the first case, and the step from case to case; for slow builds, and for
                        parallel runs */
} options = {.only = -1, .every = 1};

static struct cases cases;

static struct tallies tallies;

/* Returns a tensor of one batch entry. */
static attnkit_tensor strided(const void *data, int64_t head, int64_t row)
{
    return (attnkit_tensor){.data = data, .strides = {0, head, row}, .layout = ATTNKIT_STRIDED};
}

/* Runs the rows [first, first + count) of batch entry b as a call of their own, into `result`. */
static void run_part(const struct attention *a, const attnkit_attention_args *whole, int64_t b,
                     int64_t first, int64_t count, const char *isa, struct result *result)
{
    const int64_t row = 4 * whole->value_dim;
    const int64_t offset = q_offset(a, b) + first;
    attnkit_attention_args part = *whole;
    struct groups groups = groups_of(whole);
    groups_hang(&part, &groups);
    part.batch = 1;
    part.q_len = count;
    part.q = strided(a->q + b * a->q_stride.batch + first * a->q_stride.row, a->q_stride.head,
                     a->q_stride.row);
    part.k = strided(a->k.first + b * a->k.stride.batch, a->k.stride.head, a->k.stride.row);
    part.v = strided(a->v.first + b * a->v.stride.batch, a->v.stride.head, a->v.stride.row);
    part.out = strided(result->out, count * row, row);
    part.lse = strided(result->lse, count * 4, 4);
    int64_t length;
    if (groups.visibility.kv_lens.data) {
        length = ints_at(groups.visibility.kv_lens, b);
        groups.visibility.kv_lens = (attnkit_ints){.data = &length};
    }
    if (a->causal) {
        part.align = ATTNKIT_ALIGN_OFFSETS;
        part.q_offsets = (attnkit_ints){.data = &offset};
    }
    run_attention(&part, (struct runner){.isa = isa, .threads = 1});
}

/* Returns whether the rows [first, first + count) of batch entry b have the same bits in a call of
 * their own as in the whole call. */
static bool part_agrees(const struct setting *s, const struct result *whole, int64_t b,
                        int64_t first, int64_t count, const char *isa)
{
    struct attention a;
    assert_int_equal(attnkit_attention_problem(&s->args, &a, NULL), ATTNKIT_OK);
    attnkit_attention_args shape = s->args;
    shape.batch = 1;
    shape.q_len = count;
    struct result part = result_new(&shape);
    run_part(&a, &s->args, b, first, count, isa, &part);
    bool agrees = true;
    const int64_t dv = shape.value_dim, lq = s->args.q_len;
    for (int64_t h = 0; h < shape.q_heads; h++) {
        const int64_t from = (b * shape.q_heads + h) * lq + first, to = h * count;
        agrees &= same_bits(whole->out + from * dv, part.out + to * dv, (size_t)(count * dv)) &&
                  same_bits(whole->lse + from, part.lse + to, (size_t)count);
    }
    result_free(&part);
    return agrees;
}

static const char *check_parts(const struct setting *s, const struct result *whole,
                               const struct test_case *c, struct runner runner)
{
    uint64_t random = c->seed;
    const int64_t lq = s->args.q_len;
    if (lq < 2)
        return NULL;
    const int64_t b = random_below(&random, s->args.batch), row = random_below(&random, lq);
    const int64_t first = random_below(&random, lq), count = 1 + random_below(&random, lq - first);
    if (!part_agrees(s, whole, b, row, 1, runner.isa))
        return "a row by itself differs";
    if (!part_agrees(s, whole, b, first, count, runner.isa))
        return "several rows by themselves differ";
    return NULL;
}

static const char *check_isa(const struct test_case *c, int index, const char *isa,
                             const struct result *reference)
{
    const enum layout_kind own = (enum layout_kind)c->value[AXIS_LAYOUT];
    const char *wrong =
        check_layout(c, own, (struct runner){.isa = isa, .threads = c->value[AXIS_THREADS]},
                     reference, 0, check_parts);
    if (!wrong)
        wrong = check_layout(c, index % 2 ? BEFORE_GUARD : AFTER_GUARD,
                             (struct runner){.isa = isa, .threads = 1}, reference, 0, NULL);
    return wrong;
}

static void check_case(const struct test_case *c, int index)
{
    struct setting s;
    setting_make(&s, c, (enum layout_kind)c->value[AXIS_LAYOUT]);
    struct result reference = result_new(&s.args);
    result_from_reference(&reference, &s.args);
    for (int i = 0; i < tallies.count; i++) {
        struct tally *const t = &tallies.of[i];
        const char *const wrong = check_isa(c, index, t->isa, &reference);
        t->checked++;
        if (wrong && t->differ++ < REPORTED) {
            case_print(c);
            printf("# %s: %s; again: same_bits --isa %s --case %d\n", t->isa, wrong, t->isa, index);
        }
    }
    result_free(&reference);
}

static void every_case_runs(void **state)
{
    (void)state;
    const int first = options.only >= 0 ? options.only : options.from;
    const int end = options.only >= 0 ? options.only + 1 : cases.count;
    assert_true(first < end && end <= cases.count);
    int listed = 0, huge = 0;
    for (int i = first; i < end; i += options.every, listed++) {
        struct test_case c = cases.list[i];
        check_case(&c, i);
        if (listed % HUGE_EVERY != 0)
            continue;
        c.value[AXIS_DATA] = DATA_HUGE;
        check_case(&c, i);
        huge++;
    }
    for (int i = 0; i < tallies.count; i++)
        assert_int_equal(tallies.of[i].checked, listed + huge);
}

static void isa_has_the_bits_of_the_reference(void **state)
{
    assert_none_differs(*state);
}

static void cases_cover_every_pair_of_values(void **state)
{
    (void)state;
    printf("# %d cases, %lld pairs not covered\n", cases.count, (long long)uncovered_pairs(&cases));
    assert_int_equal(uncovered_pairs(&cases), 0);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--isa") == 0)
            options.isa = argv[i + 1];
        else if (strcmp(argv[i], "--case") == 0)
            options.only = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--from") == 0)
            options.from = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--every") == 0)
            options.every = atoi(argv[i + 1]);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    cases = covering_cases(SEED, CASES, CASE_COST);

    struct CMUnitTest tests[MAX_ISAS + 2] = {
        cmocka_unit_test(cases_cover_every_pair_of_values),
        cmocka_unit_test(every_case_runs),
    };
    size_t count = 2;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    for (int i = 0; i < isa_count; i++) {
        const bool wanted = !options.isa || strcmp(options.isa, isas[i].name) == 0;
        if (wanted && attnkit_isa_can_run(&isas[i]))
            tests[count++] = tally_test(&tallies, isas[i].name, isa_has_the_bits_of_the_reference);
        else if (wanted)
            printf("# %s: cannot run here\n", isas[i].name);
    }
    if (tallies.count == 0) {
        printf("Bail out! %s is unknown or cannot run here\n", options.isa);
        return 2;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("same bits", tests, count, NULL, NULL);
    setting_end();
    free(cases.list);
    return failed;
}
