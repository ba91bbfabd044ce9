/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that compute the angles of a rotation (kernels/cache/angles.h). The error of each
 * function, compared with the same function in long double, is within its bound. The bits of each
 * function are the same on every machine. sin and cos are also checked at the angles whose range
 * reduction is hardest. If long double is no wider than double, the comparisons with long double
 * are left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "kernels/cache/angles.h"
#include "kernels/cache/rope.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"

static const long double U = 0x1p-53L;

static int samples(void)
{
    return sampled(1000000, 50);
}

/* Returns a random number in [low, high), with all exponents equally likely. low and high are
 * positive. */
static double random_double(uint64_t *state, double low, double high)
{
    const uint64_t first = bits_from_double(low);
    return double_from_bits(first + random_bits(state) % (bits_from_double(high) - first));
}

static void skip_without_long_double(void)
{
    if (LDBL_MANT_DIG < 64)
        skip();
}

/* Returns the relative error of a result, in units of u (U in the code). */
static long double error_of(double got, long double truth)
{
    return truth == 0 ? (got == 0 ? 0 : INFINITY) : fabsl((got - truth) / truth) / U;
}

static void expect_within(const char *name, long double worst, long double bound)
{
    printf("# %s: %.2Lf u\n", name, worst);
    assert_true(worst <= bound);
}

static void log2_is_within_6_u(void **state)
{
    (void)state;
    uint64_t random = 1;
    long double worst = 0;
    skip_without_long_double();
    for (int i = 0; i < samples(); i++) {
        const double x = random_double(&random, 1.0, i % 2 ? 4.0 : INFINITY);
        worst = fmaxl(worst, error_of(log2_of(x), log2l(x)));
    }
    expect_within("log2", worst, 6);
}

static void log2_of_a_power_of_two_is_exact(void **state)
{
    (void)state;
    for (int k = 0; k < 1024; k++)
        assert_true(log2_of(ldexp(1.0, k)) == k);
}

static void exp2_is_within_3_u(void **state)
{
    (void)state;
    uint64_t random = 2;
    long double worst = 0;
    skip_without_long_double();
    for (int i = 0; i < samples(); i++) {
        const double x = -random_double(&random, 0x1p-60, i % 2 ? 2.0 : 1022.0);
        worst = fmaxl(worst, error_of(exp2_of(x), exp2l(x)));
    }
    expect_within("exp2", worst, 3);
}

static void exp2_of_an_integer_is_exact(void **state)
{
    (void)state;
    for (int n = 0; n >= -1024; n--)
        assert_true(exp2_of(n) == ldexp(1.0, n));
}

static void expect_sin_and_cos(double x, long double *worst)
{
    const struct sin_cos got = sin_cos_of(x);
    *worst = fmaxl(*worst, error_of(got.sin, sinl(x)));
    *worst = fmaxl(*worst, error_of(got.cos, cosl(x)));
}

/* The angles reach up to 2^64, beyond the largest position. Some are near multiples of pi / 4,
 * where sin or cos is nearly 0, or both have nearly the same magnitude. */
static void sin_and_cos_are_within_5_u(void **state)
{
    (void)state;
    const long double eighth_turn = 0.785398163397448309615660845819875721L;
    uint64_t random = 3;
    long double worst = 0;
    skip_without_long_double();
    for (int i = 0; i < samples(); i++) {
        expect_sin_and_cos(random_double(&random, 0x1p-30, 0x1p64), &worst);
        expect_sin_and_cos(random_double(&random, 0x1p-3, 0x1p20), &worst);
        const uint64_t eighths = random_bits(&random) >> (random_bits(&random) % 63 + 1);
        expect_sin_and_cos((double)((long double)eighths * eighth_turn), &worst);
    }
    expect_within("sin and cos", worst, 5);
    const struct sin_cos none = sin_cos_of(0.0);
    assert_true(none.sin == 0.0 && none.cos == 1.0);
}

/* For n = 1 to 63, x is the binary64 number between 2^n and 2^(n + 1) that is nearest to a multiple
 * of pi / 2. Each x was found by continued fractions. sin and cos of x are from mpmath with 600
 * bits, rounded to nearest, so each of them is off by up to 1 u. The check allows 6 u: 5 u for the
 * tested function, and 1 u for the number from mpmath. */
static const struct {
    double x, sin, cos;
} hardest[] = {
    {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53, -0x1p+0},
    {0x1.2d97c7f3321d2p+2, -0x1p+0, -0x1.a79394c9e8a0ap-53},
    {0x1.2d97c7f3321d2p+3, 0x1.a79394c9e8a0ap-52, -0x1p+0},
    {0x1.dd85a7410f58dp+4, -0x1p+0, 0x1.6156546afa57p-51},
    {0x1.6c6cbc45dc8dep+5, 0x1p+0, -0x1.6d61b58c99c43p-61},
    {0x1.6c6cbc45dc8dep+6, -0x1.6d61b58c99c43p-60, -0x1p+0},
    {0x1.6c6cbc45dc8dep+7, 0x1.6d61b58c99c43p-59, 0x1p+0},
    {0x1.6c6cbc45dc8dep+8, 0x1.6d61b58c99c43p-58, 0x1p+0},
    {0x1.6c6cbc45dc8dep+9, 0x1.6d61b58c99c43p-57, 0x1p+0},
    {0x1.6c6cbc45dc8dep+10, 0x1.6d61b58c99c43p-56, 0x1p+0},
    {0x1.6c6cbc45dc8dep+11, 0x1.6d61b58c99c43p-55, 0x1p+0},
    {0x1.6c6cbc45dc8dep+12, 0x1.6d61b58c99c43p-54, 0x1p+0},
    {0x1.6c6cbc45dc8dep+13, 0x1.6d61b58c99c43p-53, 0x1p+0},
    {0x1.635e3d74befcap+14, -0x1p+0, -0x1.a15417e407485p-53},
    {0x1.67e57cdd4dc54p+15, -0x1p+0, 0x1.396f53352c401p-53},
    {0x1.65a1dd290660fp+16, 0x1p+0, 0x1.049c6e4971285p-52},
    {0x1.bf9b3c6059d24p+17, 0x1p+0, 0x1.6c8132f84c309p-52},
    {0x1.39c6fd67805a7p+18, -0x1p+0, -0x1.988efe18ff83fp-55},
    {0x1.39c6fd67805a7p+19, 0x1.988efe18ff83fp-54, -0x1p+0},
    {0x1.9eb7148f354d6p+20, 0x1p+0, -0x1.d0afa32c646cap-55},
    {0x1.9eb7148f354d6p+21, -0x1.d0afa32c646cap-54, -0x1p+0},
    {0x1.9eb7148f354d6p+22, 0x1.d0afa32c646cap-53, 0x1p+0},
    {0x1.b951f1572eba5p+23, -0x1p+0, -0x1.f54f5227a4e84p-60},
    {0x1.b951f1572eba5p+24, 0x1.f54f5227a4e84p-59, -0x1p+0},
    {0x1.b951f1572eba5p+25, -0x1.f54f5227a4e84p-58, 0x1p+0},
    {0x1.b951f1572eba5p+26, -0x1.f54f5227a4e84p-57, 0x1p+0},
    {0x1.b951f1572eba5p+27, -0x1.f54f5227a4e84p-56, 0x1p+0},
    {0x1.b951f1572eba5p+28, -0x1.f54f5227a4e84p-55, 0x1p+0},
    {0x1.b951f1572eba5p+29, -0x1.f54f5227a4e84p-54, 0x1p+0},
    {0x1.b951f1572eba5p+30, -0x1.f54f5227a4e84p-53, 0x1p+0},
    {0x1.b951f1572eba5p+31, -0x1.f54f5227a4e84p-52, 0x1p+0},
    {0x1.5c9508c58aafap+32, 0x1p+0, 0x1.7091a64747dabp-54},
    {0x1.5c9508c58aafap+33, 0x1.7091a64747dabp-53, -0x1p+0},
    {0x1.de5e5054e921bp+34, 0x1p+0, -0x1.5361ee6553188p-54},
    {0x1.46546a5bd73ccp+35, -0x1p+0, -0x1.8dc15e293c9cdp-54},
    {0x1.46546a5bd73ccp+36, 0x1.8dc15e293c9cdp-53, -0x1p+0},
    {0x1.46546a5bd73ccp+37, -0x1.8dc15e293c9cdp-52, 0x1p+0},
    {0x1.bb23eaa3db16dp+38, -0x1p+0, 0x1.6b244e2e34dap-53},
    {0x1.065c829d6873p+39, 0x1p+0, 0x1.14e87fd83e16cp-56},
    {0x1.065c829d6873p+40, 0x1.14e87fd83e16cp-55, -0x1p+0},
    {0x1.065c829d6873p+41, -0x1.14e87fd83e16cp-54, 0x1p+0},
    {0x1.065c829d6873p+42, -0x1.14e87fd83e16cp-53, 0x1p+0},
    {0x1.065c829d6873p+43, -0x1.14e87fd83e16cp-52, 0x1p+0},
    {0x1.065c829d6873p+44, -0x1.14e87fd83e16cp-51, 0x1p+0},
    {0x1.065c829d6873p+45, -0x1.14e87fd83e16cp-50, 0x1p+0},
    {0x1.f42d52c35675dp+46, 0x1p+0, -0x1.00d6739fd0716p-49},
    {0x1.7512069b7430dp+47, 0x1p+0, 0x1.61c21d74e1f63p-56},
    {0x1.7512069b7430dp+48, 0x1.61c21d74e1f63p-55, -0x1p+0},
    {0x1.7512069b7430dp+49, -0x1.61c21d74e1f63p-54, 0x1p+0},
    {0x1.44630cc2cad9dp+50, -0x1p+0, 0x1.e88e4bd46cec1p-54},
    {0x1.5cba89af1f855p+51, -0x1p+0, -0x1.b5ebde2aae00bp-55},
    {0x1.5cba89af1f855p+52, 0x1.b5ebde2aae00bp-54, -0x1p+0},
    {0x1.56a4aa740a5a7p+53, -0x1p+0, 0x1.403aca68d4d73p-54},
    {0x1.59af9a1194efep+54, -0x1p+0, -0x1.15ce78f643951p-53},
    {0x1.59af9a1194efep+55, 0x1.15ce78f643951p-52, -0x1p+0},
    {0x1.ae9608c734e12p+56, 0x1p+0, 0x1.81ebac224221dp-54},
    {0x1.ae9608c734e12p+57, 0x1.81ebac224221dp-53, -0x1p+0},
    {0x1.c3cfa4749cdd7p+58, 0x1p+0, -0x1.24d96b06d1ff9p-54},
    {0x1.4d8d546c1ba7p+59, -0x1p+0, -0x1.defded3db2442p-54},
    {0x1.4d8d546c1ba7p+60, 0x1.defded3db2442p-53, -0x1p+0},
    {0x1.4d8d546c1ba7p+61, -0x1.defded3db2442p-52, 0x1p+0},
    {0x1.23dba9de98322p+62, 0x1p+0, 0x1.a31e2f95fbfb9p-51},
    {0x1.0f02d497d677bp+63, -0x1p+0, -0x1.852e50c220d75p-50},
};

static void sin_and_cos_near_multiples_are_within_5_u(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hardest / sizeof hardest[0]; i++) {
        const struct sin_cos got = sin_cos_of(hardest[i].x);
        assert_true(fabs(got.sin - hardest[i].sin) <= 6 * 0x1p-53 * fabs(hardest[i].sin));
        assert_true(fabs(got.cos - hardest[i].cos) <= 6 * 0x1p-53 * fabs(hardest[i].cos));
    }
}

/* The results are rounded to binary32, which adds a relative error of 2^-24 to the 5 u of
 * sin_cos_of. The check allows 2^-24 + 6 u, so that the product of both errors also fits. The true
 * values are cos and sin of the rounded product of position and frequency. */
static void cos_and_sin_of_any_position_are_right(void **state)
{
    (void)state;
    uint64_t random = 4;
    skip_without_long_double();
    for (int i = 0; i < samples() / 10; i++) {
        const int64_t position =
            i == 0 ? INT64_MAX : (int64_t)(random_bits(&random) >> (i % 63 + 1));
        const double frequency = i % 3 ? random_double(&random, 0x1p-40, 1.0) : 1.0;
        const double angle = (double)position * frequency;
        const long double sin_truth = sinl(angle), cos_truth = cosl(angle);
        float sin, cos;
        attnkit_rope_cos_sin(position, &frequency, 1, &cos, &sin);
        assert_true(fabsl(sin - sin_truth) <= (0x1p-24L + 6 * U) * fabsl(sin_truth));
        assert_true(fabsl(cos - cos_truth) <= (0x1p-24L + 6 * U) * fabsl(cos_truth));
    }
}

static void add_to(uint64_t *hash, double x)
{
    *hash = (*hash ^ bits_from_double(x)) * UINT64_C(0x100000001b3);
}

static void all_have_the_same_bits_on_every_machine(void **state)
{
    (void)state;
    uint64_t random = 5, hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < 10000; i++) {
        add_to(&hash, log2_of(random_double(&random, 1.0, INFINITY)));
        add_to(&hash, exp2_of(-random_double(&random, 0x1p-60, 1024.0)));
        const struct sin_cos of = sin_cos_of(random_double(&random, 0x1p-30, 0x1p64));
        add_to(&hash, of.sin);
        add_to(&hash, of.cos);
    }
    printf("# hash %016llx\n", (unsigned long long)hash);
    assert_true(hash == UINT64_C(0x1c4864cd12e2ec9a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log2_is_within_6_u),
        cmocka_unit_test(log2_of_a_power_of_two_is_exact),
        cmocka_unit_test(exp2_is_within_3_u),
        cmocka_unit_test(exp2_of_an_integer_is_exact),
        cmocka_unit_test(sin_and_cos_are_within_5_u),
        cmocka_unit_test(sin_and_cos_near_multiples_are_within_5_u),
        cmocka_unit_test(cos_and_sin_of_any_position_are_right),
        cmocka_unit_test(all_have_the_same_bits_on_every_machine),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
