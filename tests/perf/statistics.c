/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of medians, sign tests and confidence intervals. The expected values are exact, or were
 * computed by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/measure/statistics.h"
#include "tests/support/random.h"

static void median_is_the_middle(void **state)
{
    double one[] = {7.0}, odd[] = {5.0, -1.0, 3.0}, even[] = {4.0, 1.0, 3.0, 2.0};
    double equal[] = {2.0, 2.0, 2.0, 9.0, 9.0};
    (void)state;
    assert_true(median(one, 1) == 7.0);
    assert_true(median(odd, 3) == 3.0);
    assert_true(median(even, 4) == 2.0);
    assert_true(median(equal, 5) == 2.0);
}

static void is_about(double value, double expected)
{
    assert_true(fabs(value - expected) <= 1e-9 * expected);
}

/* The exact values are sums of binomial coefficients divided by powers of two. */
static void sign_test_is_exact(void **state)
{
    (void)state;
    is_about(sign_test(0, 1), 1.0);
    is_about(sign_test(0, 5), 2.0 / 32.0);
    is_about(sign_test(0, 11), 2.0 / 2048.0);
    is_about(sign_test(1, 10), 2.0 * 11.0 / 1024.0);
    is_about(sign_test(2, 8), 2.0 * 37.0 / 256.0);
    is_about(sign_test(4, 8), 1.0);
    is_about(sign_test(0, 1000), ldexp(1.0, -999));
    assert_true(sign_test(0, 0) == 1.0);
}

static void equal_ratios_of_1_have_a_p_of_1(void **state)
{
    double ratios[] = {1.0, 1.0, 1.0, 1.0};
    uint64_t random = 1;
    const struct estimate estimate = estimate_ratio(ratios, 4, &random);
    (void)state;
    assert_true(estimate.ratio == 1.0 && estimate.low == 1.0 && estimate.high == 1.0);
    assert_true(estimate.p == 1.0);
    assert_int_equal(estimate.pairs, 4);
}

static void few_ratios_are_counted(void **state)
{
    double ratios[] = {1.02, 1.01, 1.03, 0.99, 1.04, 1.05, 1.06, 1.07, 1.08, 1.0};
    uint64_t random = 1;
    const struct estimate estimate = estimate_ratio(ratios, 10, &random);
    (void)state;
    assert_true(estimate.ratio == 1.03);
    is_about(estimate.p, 2.0 * 10.0 / 512.0); /* nine ratios are not 1, one of them is below 1 */
    assert_true(estimate.low <= 1.01 && estimate.low >= 0.99);
    assert_true(estimate.high >= 1.05 && estimate.high <= 1.08);
}

/* 95 % of the intervals should contain the true median. For 2000 intervals, five standard
 * deviations are 2.5 % of the intervals. One ratio in twenty is far off, as if another program had
 * run at the same time. */
static void intervals_hold_the_median(void **state)
{
    enum { TRIALS = 2000, COUNT = 101 };
    uint64_t random = 7;
    int held = 0;
    (void)state;
    for (int t = 0; t < TRIALS; t++) {
        double ratios[COUNT];
        for (int i = 0; i < COUNT; i++)
            ratios[i] = 1.02 * exp((double)random_uniform(&random) *
                                   (random_below(&random, 20) ? 0.01 : 3.0));
        const struct estimate estimate = estimate_ratio(ratios, COUNT, &random);
        held += estimate.low <= 1.02 && 1.02 <= estimate.high;
    }
    assert_in_range(held, (int)(0.925 * TRIALS), (int)(0.975 * TRIALS));
}

static void differences_are_found(void **state)
{
    enum { COUNT = 300 };
    double ratios[COUNT];
    uint64_t random = 9;
    (void)state;
    for (int i = 0; i < COUNT; i++)
        ratios[i] = 1.02 + 0.02 * (double)random_uniform(&random);
    const struct estimate estimate = estimate_ratio(ratios, COUNT, &random);
    assert_true(estimate.low > 1.015 && estimate.high < 1.025);
    assert_true(estimate.p < 1e-20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(median_is_the_middle),
        cmocka_unit_test(sign_test_is_exact),
        cmocka_unit_test(equal_ratios_of_1_have_a_p_of_1),
        cmocka_unit_test(few_ratios_are_counted),
        cmocka_unit_test(intervals_hold_the_median),
        cmocka_unit_test(differences_are_found),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
