/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules by which measurements of two builds become a verdict. Nothing is timed: the
 * measurements are made up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "bench/compare/report/verdict.h"

static const struct control good = {.pooled = {1.001, 0.998, 1.004, 0.3, 1000}, .points = 10};

static struct estimate estimate(double ratio, double p)
{
    return (struct estimate){ratio, ratio - 0.005, ratio + 0.005, p, 300};
}

static struct point measured(double ratio, double p)
{
    return (struct point){
        .wanted = true, .outcome = MEASURED, .head = estimate(ratio, p), .aa = estimate(1.0, 0.5)};
}

static struct point outcome(enum outcome outcome)
{
    return (struct point){.wanted = true, .outcome = outcome};
}

static const struct point none; /* a point that the second process did not measure */

/* Returns the verdict on a job with two points. One point did not change. `first` and `second` are
 * the measurements of the other point by the two processes of the job. */
static enum verdict verdict_of(struct point first, struct point second,
                               const struct control *control)
{
    const struct point same = measured(1.002, 0.4);
    const struct judged points[] = {{&same, &none}, {&first, &second}};
    return job_verdict(points, 2, control);
}

static const char *word_for(struct point first, struct point second)
{
    const struct judged point = {&first, &second};
    return point_verdict(&point);
}

static void slower_needs_ratio_and_test(void **state)
{
    (void)state;
    assert_true(point_is_suspect(&(struct point){.outcome = MEASURED, .head = {1.011, .p = 9e-4}}));
    assert_false(
        point_is_suspect(&(struct point){.outcome = MEASURED, .head = {1.011, .p = 2e-3}}));
    assert_false(
        point_is_suspect(&(struct point){.outcome = MEASURED, .head = {1.009, .p = 1e-9}}));
    assert_string_equal(word_for(measured(1.02, 1e-9), none), "slower");
    assert_string_equal(word_for(measured(0.98, 1e-9), none), "faster");
    assert_string_equal(word_for(measured(0.98, 0.01), none), "same");
    assert_string_equal(word_for(measured(1.005, 1e-9), none), "same");
}

static void red_needs_a_second_process(void **state)
{
    const struct point slow = measured(1.03, 1e-9), same = measured(1.002, 0.4);
    (void)state;
    assert_int_equal(verdict_of(slow, none, &good), GREEN);
    assert_int_equal(verdict_of(slow, same, &good), GREEN);
    assert_int_equal(verdict_of(slow, measured(1.03, 0.02), &good), GREEN);
    assert_int_equal(verdict_of(slow, measured(1.009, 1e-9), &good), GREEN);
    assert_int_equal(verdict_of(slow, measured(1.03, 0.009), &good), RED);
    assert_int_equal(verdict_of(measured(1.02, 0.009), slow, &good), GREEN);
    assert_int_equal(verdict_of(slow, slow, &good), RED);
    assert_int_equal(verdict_of(same, slow, &good), GREEN);
    assert_int_equal(verdict_of(measured(0.9, 1e-9), none, &good), GREEN);
}

static void without_a_good_control_the_verdict_is_inconclusive(void **state)
{
    const struct control bad[] = {
        {.points = 0},
        {.pooled = {1.006, 1.003, 1.009, 0.3, 1000}, .points = 10},
        {.pooled = {0.994, 0.991, 0.997, 0.3, 1000}, .points = 10},
        {.pooled = {1.001, 0.989, 1.009, 0.3, 1000}, .points = 10},
        {.pooled = {1.001, 0.991, 1.011, 0.3, 1000}, .points = 10},
    };
    const struct point slow = measured(1.03, 1e-9), same = measured(1.002, 0.4);
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(verdict_of(slow, slow, &bad[i]), INCONCLUSIVE);
        assert_int_equal(verdict_of(same, none, &bad[i]), INCONCLUSIVE);
        assert_int_equal(verdict_of(outcome(DIFFERENT), none, &bad[i]), RED);
    }
}

/* A wrong result is red, whatever the times are. A crash, or a call that only BASE can make, is
 * red, too. */
static void wrong_is_red(void **state)
{
    static const enum outcome wrong[] = {DIFFERENT, CRASHED, ONLY_IN_BASE};
    static const char *const words[] = {"different", "crashed", "only in BASE"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(verdict_of(outcome(wrong[i]), none, &good), RED);
        assert_int_equal(verdict_of(measured(1.03, 1e-9), outcome(wrong[i]), &good), RED);
        assert_string_equal(word_for(outcome(wrong[i]), none), words[i]);
        assert_string_equal(word_for(measured(1.03, 1e-9), outcome(wrong[i])), words[i]);
    }
}

static void calls_that_base_cannot_make_do_not_count(void **state)
{
    (void)state;
    assert_int_equal(verdict_of(outcome(ONLY_IN_HEAD), none, &good), GREEN);
    assert_int_equal(verdict_of(outcome(IN_NEITHER), none, &good), GREEN);
    assert_string_equal(word_for(outcome(ONLY_IN_HEAD), none), "only in HEAD");
}

static void wide_intervals_are_unclear(void **state)
{
    struct point wide = measured(1.0, 0.5);
    const struct point slow = measured(1.03, 1e-9), same = measured(1.002, 0.4);
    (void)state;
    wide.head.high = 1.031;
    assert_true(point_is_suspect(&wide));
    assert_int_equal(verdict_of(wide, none, &good), INCONCLUSIVE);
    assert_int_equal(verdict_of(wide, wide, &good), INCONCLUSIVE);
    assert_int_equal(verdict_of(wide, slow, &good), INCONCLUSIVE);
    assert_int_equal(verdict_of(wide, same, &good), GREEN);
    assert_string_equal(word_for(wide, wide), "unclear");
    assert_string_equal(word_for(wide, same), "same");
}

static void red_beats_unclear(void **state)
{
    struct point wide = measured(1.0, 0.5);
    const struct point slow = measured(1.03, 1e-9);
    wide.head.high = 1.1;
    const struct judged points[] = {{&wide, &wide}, {&slow, &slow}};
    (void)state;
    assert_int_equal(job_verdict(points, 2, &good), RED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slower_needs_ratio_and_test),
        cmocka_unit_test(red_needs_a_second_process),
        cmocka_unit_test(without_a_good_control_the_verdict_is_inconclusive),
        cmocka_unit_test(wrong_is_red),
        cmocka_unit_test(calls_that_base_cannot_make_do_not_count),
        cmocka_unit_test(wide_intervals_are_unclear),
        cmocka_unit_test(red_beats_unclear),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
