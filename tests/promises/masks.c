/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks and score mods in any combination. On each instruction set, out, lse and weights must have
 * the bits of the scalar reference. The reference takes most of the time, so it computes a case
 * only once for all instruction sets. A case is drawn from its number (drawn.h).
 *
 * With --bound, the scalar reference's results of every fifth case are compared with the oracle.
 * Each element of out, lse and weights must be inside the bound that tests/oracle/oracle.c derives,
 * and must be NaN or infinite where the oracle's element is. The reference alone is enough, because
 * all instruction sets have the bits of the reference.
 *
 * Without --bound, every tenth case also runs with integers of 32 instead of 64 bits, if the case
 * has an array of integers that fit 32 bits. No bit may change. Every fifth case also runs with its
 * keys in cells, if the case can have cells. The reference computes a case with cells once for each
 * instruction set.
 *
 *   masks [--isa NAME | --bound] [--case NUMBER] [--cases N] [--from NUMBER] [--every N]
 *
 * The test runs the cases from number --from (0 by default) up to, but not including, number
 * --cases (1,000 by default), or every Nth of these cases. With --case, it runs this case alone.
 * --bound ignores --from and --every. With ATTNKIT_TEST_LONG in the environment, the number of
 * --cases is multiplied by 10.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "kernels/scalar/reference.h"
#include "kernels/scalar/scalar.h"
#include "tests/oracle/oracle.h"
#include "tests/cases/case.h"
#include "tests/cases/drawn.h"
#include "tests/support/memory.h"
#include "tests/support/sample.h"
#include "tests/support/tally.h"

enum {
    CASES = 1000,
    LONGER = 10,
    BOUND_EVERY = 5,
    NARROW_EVERY = 10,
    CELLS_EVERY = 5,
    REPORTED = 5,
};

static struct {
    const char *isa; /* NULL: all instruction sets */
    bool bound;      /* compare with the oracle instead of instruction sets */
    int only;        /* the only case, or -1 for all */
    int cases, from, every;
} options = {.only = -1, .cases = CASES, .every = 1};

static struct tallies tallies;

/* --- Running and comparing -------------------------------------------------------------------- */

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

static void attend(const attnkit_attention_args *args, const char *isa, int threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .threads = threads, .parallel_for = backwards};
    if (attnkit_attention_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    struct guarded workspace = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = workspace.data;
    if (attnkit_attention(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    memory_unguard(&workspace);
}

struct outputs {
    char *out;
    float *lse, *weights;
};

static struct outputs expected_outputs(const struct drawn *c)
{
    struct attention a;
    struct outputs o = {malloc(c->out_bytes + 1), malloc(c->lse_bytes + 1),
                        malloc(c->weights_bytes + 1)};
    assert_int_equal(attnkit_attention_problem(&c->args, &a, NULL), ATTNKIT_OK);
    a.out = o.out;
    a.lse = (char *)o.lse;
    if (a.extras.weights)
        a.extras.weights = (char *)o.weights;
    if (c->lse_bytes > 0)
        attnkit_reference(&a);
    return o;
}

static void free_outputs(const struct outputs *o)
{
    free(o->out);
    free(o->lse);
    free(o->weights);
}

static const char *compare(const struct drawn *c, const struct outputs *expected)
{
    if (!same_bits(expected->lse, c->lse, c->lse_bytes / sizeof(float)))
        return "lse differs";
    if (memcmp(expected->out, c->out, c->out_bytes) != 0)
        return "out differs";
    if (c->weights && !same_bits(expected->weights, c->weights, c->weights_bytes / sizeof(float)))
        return "weights differ";
    return NULL;
}

static const char *check_isa(const struct drawn *c, const char *isa, const struct outputs *expected)
{
    drawn_clear(c);
    attend(&c->args, isa, 1);
    const char *wrong = compare(c, expected);
    if (!wrong && c->threads > 1) {
        drawn_clear(c);
        attend(&c->args, isa, c->threads);
        wrong = compare(c, expected);
    }
    return wrong;
}

static void check_case(int number)
{
    struct drawn *const c = drawn_new(number);
    const struct outputs expected = expected_outputs(c);
    for (int i = 0; i < tallies.count; i++) {
        struct tally *const t = &tallies.of[i];
        const char *const wrong = check_isa(c, t->isa, &expected);
        t->checked++;
        if (wrong && t->differ++ < REPORTED) {
            drawn_print(number);
            printf("# %s: case %d: %s; again: masks --isa %s --case %d\n", t->isa, number, wrong,
                   t->isa, number);
        }
    }
    free_outputs(&expected);
    drawn_free(c);
}

static void every_case_runs(void **state)
{
    (void)state;
    const int first = options.only >= 0 ? options.only : options.from;
    const int end = options.only >= 0 ? options.only + 1 : options.cases;
    int checked = 0;
    for (int i = first; i < end; i += options.every, checked++) {
        if (options.only >= 0)
            drawn_print(i);
        check_case(i);
    }
    for (int i = 0; i < tallies.count; i++)
        assert_int_equal(tallies.of[i].checked, checked);
}

static void isa_has_the_bits_of_the_reference(void **state)
{
    assert_none_differs(*state);
}

/* Copies the outputs of a call that has run. */
static struct outputs outputs_of(const struct drawn *c)
{
    const struct outputs o = {malloc(c->out_bytes + 1), malloc(c->lse_bytes + 1),
                              malloc(c->weights_bytes + 1)};
    memcpy(o.out, c->out, c->out_bytes);
    memcpy(o.lse, c->lse, c->lse_bytes);
    if (c->weights)
        memcpy(o.weights, c->weights, c->weights_bytes);
    return o;
}

/* Runs the case with 64-bit integers, such as lengths, and again with 32-bit integers in their
 * place. Returns whether the case has an array of integers that fit 32 bits. Without such an array,
 * the second run is left out. */
static bool check_narrow(int number, const char *isa)
{
    struct drawn *const c = drawn_new(number);
    attend(&c->args, isa, 1);
    const struct outputs expected = outputs_of(c);
    const bool any = drawn_narrow(c);
    const char *const wrong = any ? check_isa(c, isa, &expected) : NULL;
    if (wrong) {
        drawn_print(number);
        fail_msg("%s: case %d: %s with integers of 32 bits", isa, number, wrong);
    }
    free_outputs(&expected);
    drawn_free(c);
    return any;
}

static void integers_of_32_bits_have_the_bits_of_64(void **state)
{
    const struct tally *const t = *state;
    const int first = options.only >= 0 ? options.only : options.from;
    const int end = options.only >= 0 ? options.only + 1 : options.cases;
    int checked = 0;
    for (int i = first; i < end; i += options.every * NARROW_EVERY)
        checked += check_narrow(i, t->isa);
    printf("# %s: %d cases with narrow arrays of integers\n", t->isa, checked);
    assert_true(checked > 0 || options.only >= 0);
}

/* Runs the case with its keys in cells. A case with an even number runs again with 32-bit integers.
 * Returns whether the case can have cells. */
static bool check_cells(int number, const char *isa)
{
    struct drawn *const c = drawn_in_cells(number);
    if (!c)
        return false;
    const struct outputs expected = expected_outputs(c);
    const char *wrong = check_isa(c, isa, &expected);
    if (!wrong && number % 2 == 0 && drawn_narrow(c))
        wrong = check_isa(c, isa, &expected);
    if (wrong) {
        drawn_print_call(c);
        fail_msg("%s: case %d: %s with cells", isa, number, wrong);
    }
    free_outputs(&expected);
    drawn_free(c);
    return true;
}

static void cells_have_the_bits_of_the_reference(void **state)
{
    const struct tally *const t = *state;
    const int first = options.only >= 0 ? options.only : options.from;
    const int end = options.only >= 0 ? options.only + 1 : options.cases;
    int checked = 0;
    for (int i = first; i < end; i += options.every * CELLS_EVERY)
        checked += check_cells(i, t->isa);
    printf("# %s: %d cases in cells\n", t->isa, checked);
    assert_true(checked > 0 || options.only >= 0);
}

/* --- The bound -------------------------------------------------------------------------------- */

/* The kinds of results that have a bound. The error of a result of 16 bits may come close to its
 * bound, because the rounding to 16 bits is by far the largest. */
enum bounded { OUT, OUT_OF_16_BITS, LSE, WEIGHTS, BOUNDED };

/* The results that have been compared with the oracle so far. `worst` has the largest error / bound
 * of each kind of result. `elements` counts all results. `unbounded` counts results with a finite
 * true value and no finite bound. `not_finite` counts results whose true value is NaN or
 * infinite. */
struct judged {
    double worst[BOUNDED];
    long long elements, unbounded, not_finite;
};

static void judge(struct judged *j, enum bounded what, const struct oracle_element *truth,
                  attnkit_type type, float result)
{
    j->elements++;
    j->not_finite += !isfinite(truth->value);
    j->unbounded += isfinite(truth->value) && isinf(truth->bound);
    j->worst[what] = fmax(j->worst[what], oracle_judge(truth, type, (double)result));
}

static void add_judged(struct judged *all, const struct judged *j)
{
    for (int i = 0; i < BOUNDED; i++)
        all->worst[i] = fmax(all->worst[i], j->worst[i]);
    all->elements += j->elements;
    all->unbounded += j->unbounded;
    all->not_finite += j->not_finite;
}

static double worst_of(const struct judged *j)
{
    double worst = 0.0;
    for (int i = 0; i < BOUNDED; i++)
        worst = fmax(worst, j->worst[i]);
    return worst;
}

static void judge_row(const struct drawn *c, const struct outputs *expected, int64_t batch,
                      int64_t head, int64_t row, struct judged *j)
{
    const attnkit_attention_args *const a = &c->args;
    struct oracle_element *const out = malloc((size_t)a->value_dim * sizeof *out);
    struct oracle_element *const weights = malloc((size_t)(a->kv_len + 1) * sizeof *weights);
    const struct oracle_row truth =
        oracle_row(a, batch, head, row, out, c->weights ? weights : NULL);
    const bool packed = c->groups.storage.cu_seqlens_q.data;
    const int64_t outer = packed ? 0 : batch, first = packed ? c->cu_seqlens_q[batch] : 0;
    const int64_t line = (outer * a->q_heads + head) * a->q_len + first + row;
    const struct oracle_element lse = {.value = truth.lse, .bound = truth.lse_bound};
    const enum type type = (enum type)a->out.type;
    float *const got = malloc((size_t)a->value_dim * sizeof *got);
    attnkit_scalar_widen(type, expected->out + bytes_of(type, line * a->value_dim), NULL, 0,
                         a->value_dim, got);
    for (int64_t i = 0; i < a->value_dim; i++)
        judge(j, type == TYPE_F32 ? OUT : OUT_OF_16_BITS, &out[i], a->out.type, got[i]);
    judge(j, LSE, &lse, ATTNKIT_F32, expected->lse[line]);
    for (int64_t key = 0; key < a->kv_len && c->weights; key++)
        judge(j, WEIGHTS, &weights[key], ATTNKIT_F32, expected->weights[line * a->kv_len + key]);
    free(got);
    free(out);
    free(weights);
}

static void print_judged(const struct judged *j)
{
    printf("# worst error / bound: %.2f of out, %.2f of out in 16 bits, %.2f of lse, %.2f of "
           "weights; %lld elements, %lld of them NaN or infinite, %lld others without a bound\n",
           j->worst[OUT], j->worst[OUT_OF_16_BITS], j->worst[LSE], j->worst[WEIGHTS], j->elements,
           j->not_finite, j->unbounded);
}

static struct judged judge_case(int number)
{
    struct drawn *const c = drawn_new(number);
    const attnkit_attention_args *const a = &c->args;
    const struct outputs expected = expected_outputs(c);
    struct judged j = {0};
    for (int64_t b = 0; b < a->batch; b++) {
        const bool packed = c->groups.storage.cu_seqlens_q.data;
        const int64_t rows = packed ? c->cu_seqlens_q[b + 1] - c->cu_seqlens_q[b] : a->q_len;
        for (int64_t h = 0; h < a->q_heads; h++)
            for (int64_t i = 0; i < rows; i++)
                judge_row(c, &expected, b, h, i, &j);
    }
    free_outputs(&expected);
    drawn_free(c);
    return j;
}

static void reference_is_inside_the_bound(void **state)
{
    (void)state;
    const int first = options.only >= 0 ? options.only : 0;
    const int end = options.only >= 0 ? options.only + 1 : options.cases;
    struct judged all = {0};
    int outside = 0;
    for (int i = first; i < end; i += BOUND_EVERY) {
        const struct judged j = judge_case(i);
        const bool is_outside = worst_of(&j) > 1.0;
        if (options.only >= 0 || (is_outside && outside < REPORTED)) {
            drawn_print(i);
            print_judged(&j);
            printf("# again: masks --bound --case %d\n", i);
        }
        outside += is_outside;
        add_judged(&all, &j);
    }
    print_judged(&all);
    assert_int_equal(outside, 0);
    if (options.only < 0) /* in a single case, many results may have no finite bound */
        assert_true(all.elements > 0 && all.unbounded <= all.elements / 100);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *const value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--bound") == 0)
            options.bound = true;
        else if (strcmp(argv[i], "--isa") == 0)
            options.isa = value;
        else if (strcmp(argv[i], "--case") == 0)
            options.only = atoi(value);
        else if (strcmp(argv[i], "--cases") == 0)
            options.cases = atoi(value);
        else if (strcmp(argv[i], "--from") == 0)
            options.from = atoi(value);
        else if (strcmp(argv[i], "--every") == 0)
            options.every = atoi(value);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    if (is_long_run())
        options.cases *= LONGER;
    struct CMUnitTest tests[3 * MAX_ISAS + 1];
    size_t count = 0;
    tests[count++] = options.bound
                         ? (struct CMUnitTest)cmocka_unit_test(reference_is_inside_the_bound)
                         : (struct CMUnitTest)cmocka_unit_test(every_case_runs);
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    bool known = options.bound;
    for (int i = 0; i < isa_count && !options.bound; i++) {
        if (options.isa && strcmp(options.isa, isas[i].name) != 0)
            continue;
        known = true;
        if (!attnkit_isa_can_run(&isas[i]))
            continue;
        tests[count++] = tally_test(&tallies, isas[i].name, isa_has_the_bits_of_the_reference);
        tests[count] = tests[count - 1];
        tests[count].name = "integers_of_32_bits_have_the_bits_of_64";
        tests[count++].test_func = integers_of_32_bits_have_the_bits_of_64;
        tests[count] = tests[count - 1];
        tests[count].name = "cells_have_the_bits_of_the_reference";
        tests[count++].test_func = cells_have_the_bits_of_the_reference;
    }
    if (!options.bound && tallies.count == 0) {
        printf(known ? "1..0 # SKIP %s cannot run here\n" : "Bail out! There is no %s\n",
               options.isa);
        return known ? 0 : 2;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("masks", tests, count, NULL, NULL);
    memory_end();
    return failed;
}
