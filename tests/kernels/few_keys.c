/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls with few keys and few rows. In many of these calls, several heads share a vector. The
 * results have the bits of the reference in every layout, with rows that see different numbers of
 * keys, or no key. A case is drawn from its number.
 *
 * `few_keys [ISA]`
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/attention/attention.h"
#include "dispatch/attention/schedule.h"
#include "dispatch/cpu/isa.h"
#include "tests/cases/case.h"
#include "tests/support/units.h"

enum {
    CASES = 600,
    MAX_ISAS = 8,
};

static int draw_value(uint64_t *random, enum axis axis)
{
    const int *values;
    const int count = axis_values(axis, &values);
    return values[random_below(random, count)];
}

static struct test_case draw_case(int number)
{
    uint64_t random = (uint64_t)number + 1;
    struct test_case c = {.seed = random};
    for (int axis = 0; axis < AXES; axis++)
        c.value[axis] = draw_value(&random, (enum axis)axis);
    if (number % 5 == 0)
        c.value[AXIS_DATA] = DATA_HUGE;
    c.value[AXIS_Q_LEN] = 1 + (int)random_below(&random, 4);
    c.value[AXIS_GROUP] = 1 + (int)random_below(&random, 2);
    c.value[AXIS_KV_HEADS] = 1 + (int)random_below(&random, 12);
    c.value[AXIS_KV_LEN] = (int)random_below(&random, FEW_KEYS + 3);
    if (number % 4) { /* three of four cases have small dims */
        c.value[AXIS_HEAD_DIM] = 1 + (int)random_below(&random, 40);
        c.value[AXIS_VALUE_DIM] = 1 + (int)random_below(&random, 80);
    }
    return c;
}

static const char *check_case(const struct test_case *c, const char *isa)
{
    const struct runner runner = {.isa = isa, .threads = c->value[AXIS_THREADS]};
    const enum layout_kind own = (enum layout_kind)c->value[AXIS_LAYOUT];
    struct setting s;
    setting_make(&s, c, own);
    struct result reference = result_new(&s.args);
    result_from_reference(&reference, &s.args);
    const char *wrong = check_layout(c, own, runner, &reference, 0, NULL);
    const enum layout_kind guarded = c->seed % 2 ? BEFORE_GUARD : AFTER_GUARD;
    if (!wrong && own != BROADCAST && case_fits_guards(c))
        wrong = check_layout(c, guarded, runner, &reference, 0, NULL);
    result_free(&reference);
    return wrong;
}

static bool heads_go_together(const struct test_case *c, const struct kernels *kernels)
{
    struct setting s;
    struct attention a;
    setting_make(&s, c, DENSE);
    return attnkit_attention_problem(&s.args, &a, NULL) == ATTNKIT_OK && a.batch > 0 &&
           attnkit_schedule(&a, kernels, 1).heads_per_item > 1;
}

static void few_keys_have_the_bits_of_the_reference(void **state)
{
    const struct isa *isa = *state;
    int differ = 0, together = 0;
    for (int i = 0; i < CASES; i++) {
        const struct test_case c = draw_case(i);
        together += heads_go_together(&c, isa->kernels);
        const char *wrong = check_case(&c, isa->name);
        if (wrong && differ++ < 5) {
            case_print(&c);
            printf("# %s: case %d: %s\n", isa->name, i, wrong);
        }
    }
    printf("# %s: %d cases, %d of them with heads that share a vector; %d cases differ\n",
           isa->name, CASES, together, differ);
    assert_in_range(together, CASES / 8, CASES - CASES / 8);
    assert_int_equal(differ, 0);
}

/* Without keys, K and V may be NULL. The library must then compute no addresses from the strides of
 * K and V. A sanitizer would report such an address. */
static void without_keys_no_tensors_are_needed(void **state)
{
    (void)state;
    enum { HEADS = 40, DIM = 5 };
    float q[HEADS][DIM] = {{1.0f}}, out[HEADS][DIM], lse[HEADS];
    attnkit_attention_args args = {
        .size = sizeof args,
        .batch = 2,
        .q_heads = HEADS / 2,
        .kv_heads = HEADS / 2,
        .q_len = 1,
        .head_dim = DIM,
        .q = {q, {sizeof q / 2, sizeof q[0]}, ATTNKIT_F32, ATTNKIT_STRIDED},
        .k = {NULL, {-400, 20}, ATTNKIT_F32, ATTNKIT_STRIDED},
        .v = {NULL, {400, 20}, ATTNKIT_F32, ATTNKIT_STRIDED},
        .out = {out, {sizeof out / 2, sizeof out[0]}, ATTNKIT_F32, ATTNKIT_STRIDED},
        .lse = {lse, {sizeof lse / 2, sizeof lse[0]}, ATTNKIT_F32, ATTNKIT_STRIDED},
    };
    static char workspace[1 << 17];
    const attnkit_exec exec = {
        .size = sizeof exec, .workspace = workspace, .workspace_size = sizeof workspace};
    memset(out, 0xff, sizeof out);
    assert_int_equal(attnkit_attention(&args, &exec, NULL), ATTNKIT_OK);
    for (int h = 0; h < HEADS; h++) {
        assert_true(out[h][0] == 0.0f && out[h][DIM - 1] == 0.0f);
        assert_true(lse[h] == -INFINITY);
    }
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[MAX_ISAS + 1] = {cmocka_unit_test(without_keys_no_tensors_are_needed)};
    size_t count = 1;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++)
        if ((argc < 2 || strcmp(argv[1], isas[i].name) == 0) && attnkit_isa_can_run(&isas[i]))
            tests[count++] =
                (struct CMUnitTest){isas[i].name, few_keys_have_the_bits_of_the_reference, NULL,
                                    NULL, (void *)(uintptr_t)&isas[i]};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("few keys", tests, count, NULL, NULL);
    setting_end();
    return failed;
}
