/* SPDX-License-Identifier: Apache-2.0
 *
 * The three elementary functions of the canonical order: exp2, log and tanh. The bits of exp2 and
 * log are defined by functions of SLEEF. If SLEEF is installed, exp2 and log in plain C are
 * compared with these functions. The functions of every instruction set are compared with plain C,
 * and plain C with binary64. The fma in plain C is compared with fmaf. exp2 gets the arguments that
 * attention can reach, 0 and below. tanh gets arguments of any magnitude.
 *
 * By default the test takes every 61st argument of its main ranges (exponents, denominators and
 * positive_numbers), and runs for 8 seconds natively. In emulators and with sanitizers it takes
 * every 613th of these arguments. With ATTNKIT_TEST_LONG in the environment it takes all of them:
 * 1.1e9 for exp2, 3.5e8 for log and 2.1e9 for tanh. It then runs for 8 minutes on one core with
 * FMA.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "dispatch/cpu/isa.h"
#include "kernels/scalar/scalar.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"

typedef float function(float x);

#if HAS_SLEEF
/* These declarations are copies from sleef.h, which hides the functions from code that is compiled
 * for CPUs without FMA, such as this file. */
float Sleef_finz_exp2f1_u10purecfma(float x);
float Sleef_finz_logf1_u10purecfma(float x);
static function *const sleef_exp2 = Sleef_finz_exp2f1_u10purecfma;
static function *const sleef_log = Sleef_finz_logf1_u10purecfma;
#else
static function *const sleef_exp2 = NULL, *const sleef_log = NULL;
#endif

enum {
    BATCH = 4099, /* arguments at a time; no multiple of a vector, so that the tails of loops are
                     tested, too */
    MAX_ISAS = 8,
};

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Returns whether two numbers have the same bits. Any NaN equals any NaN. */
static bool same(float a, float b)
{
    return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

/* --- Arguments: floats by their bits, which rise with the distance from 0 --------------------- */

struct walk {
    uint32_t next, end; /* bits of the arguments */
    uint32_t stride;
};

static uint32_t default_stride(void)
{
    if (getenv("ATTNKIT_TEST_LONG"))
        return 1;
    return IS_SLOW ? 613 : 61;
}

/* The smallest x for which exp2 returns more than 0. This x is halfway between two integers, and
 * rounds to LEAST_POWER, which is even. */
static const float least_exponent = (float)LEAST_POWER - 0.5f;

/* Returns the arguments from -0 to least_exponent. */
static struct walk exponents(void)
{
    return (struct walk){bits_of(-0.0f), bits_of(least_exponent) + 1, default_stride()};
}

/* Returns the arguments x below least_exponent, down to -infinity. exp2 returns 0 for each of
 * them. */
static struct walk far_exponents(void)
{
    return (struct walk){bits_of(least_exponent) + 1, bits_of(-INFINITY) + 1, 997};
}

/* Returns the arguments around least_exponent. */
static struct walk around_the_least_exponent(void)
{
    return (struct walk){bits_of(least_exponent) - 9999, bits_of(least_exponent) + 10000, 1};
}

/* Returns a range with all usual denominators of a softmax. A denominator is at least 1/2, because
 * its largest term is at least 1/2. */
static struct walk denominators(void)
{
    return (struct walk){bits_of(0.25f), bits_of(0x1p40f), default_stride()};
}

static struct walk normal_numbers(void)
{
    return (struct walk){bits_of(0x1p-126f), bits_of(INFINITY), 997};
}

/* Returns the arguments from +0 to infinity. */
static struct walk positive_numbers(void)
{
    return (struct walk){0, bits_of(INFINITY) + 1, default_stride()};
}

static struct walk negative_numbers(void)
{
    return (struct walk){bits_of(-0.0f), bits_of(-INFINITY) + 1, default_stride()};
}

/* Returns a walk over the range of w with fewer arguments, for two checks of tanh. */
static struct walk sparse(struct walk w)
{
    w.stride = w.stride == 1 ? 13 : 997;
    return w;
}

/* Stores the next arguments in x. Returns the number of arguments, which is 0 at the end. */
static size_t take(struct walk *w, float x[BATCH])
{
    size_t n = 0;
    for (; n < BATCH && w->next < w->end; n++) {
        x[n] = float_from_bits(w->next);
        w->next += w->stride;
    }
    return n;
}

/* --- Bits ------------------------------------------------------------------------------------ */

/* our_exp2, our_log and our_tanh are wrappers, so that the inline functions of scalar.h have an
 * address. */
static float our_exp2(float x)
{
    return scalar_exp2(x);
}

static float zero(float x)
{
    (void)x;
    return 0.0f;
}

static float our_log(float x)
{
    return scalar_log(x);
}

static float our_tanh(float x)
{
    return scalar_tanh(x);
}

/* Returns the number of arguments whose results differ. Prints the first difference. */
static size_t count_different(const char *name, size_t n, const float *x, const float *expected,
                              const float *got)
{
    size_t different = 0;
    for (size_t i = 0; i < n; i++)
        if (!same(expected[i], got[i]) && different++ == 0)
            printf("# %s(%a) is %a, not %a\n", name, (double)x[i], (double)got[i],
                   (double)expected[i]);
    return different;
}

static void apply(function *f, size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = f(x[i]);
}

static void assert_same_function(const char *name, struct walk w, function *expected, function *got)
{
    float x[BATCH], y[BATCH], z[BATCH];
    size_t n, different = 0;
    while ((n = take(&w, x)) > 0 && different == 0) {
        apply(expected, n, x, y);
        apply(got, n, x, z);
        different = count_different(name, n, x, y, z);
    }
    assert_int_equal(different, 0);
}

/* SLEEF's functions are compiled for FMA, and would end the process on a CPU without FMA. */
static void skip_without_fma(void)
{
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        if (isas[i].needs_mask != 0 && attnkit_isa_can_run(&isas[i]))
            return;
    skip();
}

static void scalar_exp2_has_the_bits_of_sleef(void **state)
{
    (void)state;
    skip_without_fma();
    assert_same_function("exp2", exponents(), sleef_exp2, our_exp2);
    assert_int_equal(bits_of(our_exp2(least_exponent)), bits_of(sleef_exp2(least_exponent)));
}

static void exp2_of_less_than_the_least_exponent_is_0(void **state)
{
    (void)state;
    assert_same_function("exp2", far_exponents(), zero, our_exp2);
}

static void scalar_log_has_the_bits_of_sleef(void **state)
{
    (void)state;
    skip_without_fma();
    assert_same_function("log", denominators(), sleef_log, our_log);
    assert_same_function("log", normal_numbers(), sleef_log, our_log);
}

static void assert_table_has_the_bits_of_scalar(const struct kernels *kernels, struct walk w)
{
    float x[BATCH], y[BATCH], z[BATCH];
    size_t n, different = 0;
    while ((n = take(&w, x)) > 0 && different == 0) {
        apply(our_exp2, n, x, y);
        kernels->exp2(x, z, n);
        different = count_different(kernels->name, n, x, y, z);
    }
    assert_int_equal(different, 0);
}

/* Compares the kernel entry `adjust` with scalar_tanh. With factors of 1 and no bias, adjust
 * computes tanh(x). */
static void assert_table_has_the_tanh_of_scalar(const struct kernels *kernels, struct walk w)
{
    const struct adjust how = {.capped = true, .to_cap = 1.0f, .factor = 1.0f};
    float x[BATCH], y[BATCH], z[BATCH];
    size_t n, different = 0;
    while ((n = take(&w, x)) > 0 && different == 0) {
        apply(our_tanh, n, x, y);
        memcpy(z, x, n * sizeof *x);
        kernels->adjust(&how, NULL, n, z);
        different = count_different(kernels->name, n, x, y, z);
    }
    assert_int_equal(different, 0);
}

/* Computes logarithms by the kernel entry `finish`: the lse of a state with maximum 0 and sum l is
 * log l. */
static void logs(const struct kernels *kernels, size_t n, const float *x, float *y)
{
    _Alignas(64) float row_max[MAX_LANES] = {0}, row_sum[MAX_LANES] = {0}, o[MAX_LANES] = {0};
    const struct state st = {row_max, row_sum, o};
    float out[MAX_LANES], *out_of[MAX_LANES], *lse[MAX_LANES];
    for (size_t i = 0; i < n; i += (size_t)kernels->lanes) {
        const int rows = n - i < (size_t)kernels->lanes ? (int)(n - i) : kernels->lanes;
        memcpy(row_sum, x + i, (size_t)rows * sizeof *x);
        for (int r = 0; r < rows; r++) {
            out_of[r] = out + r;
            lse[r] = y + i + r;
        }
        kernels->finish(&st, kernels->lanes, 1, rows, out_of, lse);
    }
}

static void assert_table_has_the_log_of_scalar(const struct kernels *kernels, struct walk w)
{
    float x[BATCH], y[BATCH], z[BATCH];
    size_t n, different = 0;
    while ((n = take(&w, x)) > 0 && different == 0) {
        apply(our_log, n, x, y);
        logs(kernels, n, x, z);
        different = count_different(kernels->name, n, x, y, z);
    }
    assert_int_equal(different, 0);
}

static void assert_special_values(const struct kernels *kernels)
{
    const float x[] = {0.0f, -0.0f, -INFINITY, NAN, -NAN, -FLT_MAX, -101.0f, -100.0f};
    const float expected[] = {1.0f, 1.0f, 0.0f, NAN, NAN, 0.0f, 0.0f, 0x1p-100f};
    enum { VALUES = sizeof x / sizeof x[0] };
    float y[VALUES];
    kernels->exp2(x, y, VALUES);
    assert_int_equal(count_different(kernels->name, VALUES, x, expected, y), 0);
    const float sums[] = {0.0f, 1.0f, INFINITY, NAN, FLT_MAX, FLT_MIN};
    const float lse[] = {-INFINITY, 0.0f, INFINITY, NAN, our_log(FLT_MAX), our_log(FLT_MIN)};
    enum { SUMS = sizeof sums / sizeof sums[0] };
    logs(kernels, SUMS, sums, y);
    assert_int_equal(count_different(kernels->name, SUMS, sums, lse, y), 0);
}

static void isa_has_the_bits_of_scalar(void **state)
{
    const struct kernels *kernels = ((const struct isa *)*state)->kernels;
    assert_table_has_the_bits_of_scalar(kernels, exponents());
    assert_table_has_the_bits_of_scalar(kernels, far_exponents());
    assert_table_has_the_bits_of_scalar(kernels, around_the_least_exponent());
    assert_special_values(kernels);
    assert_table_has_the_log_of_scalar(kernels, denominators());
    assert_table_has_the_log_of_scalar(kernels, normal_numbers());
    assert_table_has_the_tanh_of_scalar(kernels, positive_numbers());
    assert_table_has_the_tanh_of_scalar(kernels, sparse(negative_numbers()));
}

/* --- Accuracy -------------------------------------------------------------------------------- */

/* Returns the error of a result in ulp of the true value. */
static double ulp_error(float got, double truth)
{
    return fabs(got - truth) / ldexp(1.0, ilogb(truth) - 23);
}

static void exp2_is_within_an_ulp(void **state)
{
    (void)state;
    double worst = 0.0;
    float x[BATCH];
    size_t n;
    for (struct walk w = exponents(); (n = take(&w, x)) > 0;)
        for (size_t i = 0; i < n; i++)
            worst = fmax(worst, ulp_error(scalar_exp2(x[i]), exp2(x[i])));
    printf("# exp2: %.4f ulp\n", worst);
    assert_true(worst <= 1.0);
}

/* The factor of a rescale is exp2 of an integer: exactly a power of two, or 0. */
static void exp2_of_an_integer_is_exact(void **state)
{
    (void)state;
    for (int n = 0; n < 200; n++)
        assert_true(scalar_exp2((float)-n) == (-n < LEAST_POWER ? 0.0 : ldexp(1.0, -n)));
}

static void log_is_within_an_ulp(void **state)
{
    (void)state;
    double worst = 0.0;
    float x[BATCH];
    size_t n;
    for (struct walk w = denominators(); (n = take(&w, x)) > 0;)
        for (size_t i = 0; i < n; i++)
            if (x[i] != 1.0f)
                worst = fmax(worst, ulp_error(scalar_log(x[i]), log(x[i])));
    printf("# log: %.4f ulp\n", worst);
    assert_true(worst <= 1.0);
    assert_true(scalar_log(1.0f) == 0.0f);
    assert_true(scalar_log(0.0f) == -INFINITY);
    assert_true(isnan(scalar_log(NAN)));
}

/* Arguments go from 0 to infinity. Below 2^-25, tanh x is x. From 9.011 on, tanh x is 1. Apart from
 * roundings, tanh is increasing: no result is more than 2 ulp below an earlier result. */
static void tanh_is_within_three_ulp(void **state)
{
    (void)state;
    double worst = 0.0;
    float x[BATCH];
    uint32_t most = 0;
    size_t n, wrong = 0;
    for (struct walk w = positive_numbers(); (n = take(&w, x)) > 0;)
        for (size_t i = 0; i < n; i++) {
            const float y = scalar_tanh(x[i]);
            if (x[i] < 0x1p-25f || x[i] >= 9.011f)
                wrong += y != fminf(x[i], 1.0f);
            else
                worst = fmax(worst, ulp_error(y, tanh(x[i])));
            wrong += y > 1.0f || bits_of(y) + 2 < most;
            most = bits_of(y) > most ? bits_of(y) : most;
        }
    printf("# tanh: %.4f ulp\n", worst);
    assert_true(worst <= 3.0);
    assert_int_equal(wrong, 0);
}

static void tanh_of_the_opposite_is_the_opposite(void **state)
{
    (void)state;
    float x[BATCH];
    size_t n, wrong = 0;
    for (struct walk w = sparse(positive_numbers()); (n = take(&w, x)) > 0;)
        for (size_t i = 0; i < n; i++)
            wrong += bits_of(scalar_tanh(-x[i])) != bits_of(-scalar_tanh(x[i]));
    assert_int_equal(wrong, 0);
    assert_true(isnan(scalar_tanh(NAN)) && isnan(scalar_tanh(-NAN)));
}

/* Draws three numbers with random bits, among them subnormal numbers, infinities and NaN. In a
 * quarter of the cases the third number is minus the rounded product of the other two, so that
 * nearly all digits cancel. In a second quarter the third number is 2^24 times this rounded
 * product. Without overflow or underflow, the rounded product is then between half a unit and one
 * unit of the third number's last place. */
static void draw_operands(uint64_t *random, float x[3])
{
    uint32_t bits[3];
    for (int i = 0; i < 3; i++)
        bits[i] = (uint32_t)(random_bits(random) >> 32);
    memcpy(x, bits, sizeof bits);
    const uint64_t kind = random_below(random, 4);
    if (kind == 0)
        x[2] = -(x[0] * x[1]);
    if (kind == 1)
        x[2] = x[0] * x[1] * 0x1p24f;
}

static void fma_in_plain_c_rounds_once(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int i = 0; i < sampled(10000000, 20); i++) {
        float x[3];
        draw_operands(&random, x);
        const float ours = fma_in_c(x[0], x[1], x[2]), exact = fmaf(x[0], x[1], x[2]);
        if (memcmp(&ours, &exact, sizeof ours) != 0 && !(isnan(ours) && isnan(exact)))
            fail_msg("fma(%a, %a, %a) is %a, not %a", (double)x[0], (double)x[1], (double)x[2],
                     (double)ours, (double)exact);
    }
}

int main(void)
{
    const struct CMUnitTest against_sleef[] = {
        cmocka_unit_test(scalar_exp2_has_the_bits_of_sleef),
        cmocka_unit_test(scalar_log_has_the_bits_of_sleef),
    };
    struct CMUnitTest tests[8 + MAX_ISAS] = {
        cmocka_unit_test(fma_in_plain_c_rounds_once),
        cmocka_unit_test(exp2_is_within_an_ulp),
        cmocka_unit_test(exp2_of_less_than_the_least_exponent_is_0),
        cmocka_unit_test(exp2_of_an_integer_is_exact),
        cmocka_unit_test(log_is_within_an_ulp),
        cmocka_unit_test(tanh_is_within_three_ulp),
        cmocka_unit_test(tanh_of_the_opposite_is_the_opposite),
    };
    size_t count = 7;
    if (sleef_exp2)
        for (int i = 0; i < 2; i++)
            tests[count++] = against_sleef[i];
    else
        printf("# skipped: built without SLEEF, exp2 and log are not compared with SLEEF's\n");
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    for (int i = 0; i < isa_count; i++)
        if (attnkit_isa_can_run(&isas[i]))
            tests[count++] = (struct CMUnitTest){isas[i].name, isa_has_the_bits_of_scalar, NULL,
                                                 NULL, (void *)(uintptr_t)&isas[i]};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("elementary", tests, count, NULL, NULL);
}
