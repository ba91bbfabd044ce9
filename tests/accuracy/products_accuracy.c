/* SPDX-License-Identifier: Apache-2.0
 *
 * The accuracy of ATTNKIT_BF16_PRODUCTS, on the distributions of settings.h with q, K and V in
 * bf16. A weight is the sum of two bf16, or one bf16 (a short weight). Every element must be inside
 * its derived bound. On normally distributed numbers, short weights must make an error outside the
 * bound for weights of two bf16. On the same numbers, the root mean square of the errors with short
 * weights must be at least 100 times as large as with two bf16. Also on normally distributed
 * numbers, this root mean square must not be larger than with weights that are rounded to bf16 in
 * PyTorch's way. Errors are differences from the oracle. In the comparison with PyTorch's rounding,
 * errors are differences from sums in binary64.
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

#include "tests/accuracy/errors.h"
#include "tests/accuracy/settings.h"

static const uint64_t SEED = 20261126;
static const struct storage bf16 = {.name = "bf16", .type = ATTNKIT_BF16};
static const uint32_t LONG = ATTNKIT_BF16_PRODUCTS,
                      SHORT = ATTNKIT_BF16_PRODUCTS | ATTNKIT_SHORT_WEIGHTS;

/* A setting with q, K and V in bf16. */
struct products {
    struct setting setting;
    struct stored *stored;
    uint16_t *q;
    attnkit_attention_args args;
};

/* Rounds x to the nearest bf16. x must be finite and far below the largest bf16, as all numbers of
 * the settings are. */
static uint16_t nearest_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static struct products products_new(const struct distribution *d, const struct shape *shape,
                                    int64_t rows, uint64_t seed)
{
    struct products p = {.setting = setting_new(d, shape, rows, seed)};
    const int64_t count = rows * shape->head_dim;
    p.stored = stored_new(&bf16, &p.setting);
    p.q = malloc((size_t)count * sizeof *p.q);
    assert_non_null(p.q);
    for (int64_t i = 0; i < count; i++)
        p.q[i] = nearest_bf16(p.setting.q[i]);
    p.args = p.stored->args;
    p.args.q = (attnkit_tensor){.data = p.q, .type = ATTNKIT_BF16};
    return p;
}

static void products_free(struct products *p)
{
    free(p->q);
    stored_free(p->stored);
    setting_free(&p->setting);
}

static void distribution_is_inside_the_bound(void **state)
{
    static const int64_t lengths[] = {1, 2, 17, 100, 129, 513, 1000, 4096};
    static const int64_t dims[] = {30, 64, 128};
    const struct distribution *const d = *state;
    struct worst w[2];
    memset(w, 0, sizeof w);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int j = 0; j < 3; j++) {
            const struct shape shape = {dims[j], dims[j], lengths[i]};
            struct products p = products_new(d, &shape, lengths[i] <= 1000 ? 3 : 1, SEED + i);
            const uint32_t flags = p.args.flags;
            p.args.flags = flags | LONG;
            w[0] = worst_of(w[0], judge_call(&p.args));
            p.args.flags = flags | SHORT;
            w[1] = worst_of(w[1], judge_call(&p.args));
            products_free(&p);
        }
    for (int i = 0; i < 2; i++) {
        printf("# %-15s %s weights: error / bound %.4f, of LSE %.4f, %lld elements\n", d->name,
               i ? "short" : "long", w[i].bound, w[i].lse_bound, (long long)w[i].elements);
        assert_true(w[i].bound <= 1.0);
        assert_true(w[i].lse_bound <= 1.0);
    }
}

/* Returns the root mean square of the errors of out in a call with these flags. Sets *bound to the
 * largest |error| / bound, with the bound for weights of two bf16. */
static double error_of(uint32_t flags, double *bound)
{
    enum { DIM = 128, KEYS = 2048, ROWS = 16 };
    const struct shape shape = {DIM, DIM, KEYS};
    struct products p = products_new(&distributions[0], &shape, ROWS, SEED);
    struct oracle_element truth[DIM];
    double squares = 0.0;
    *bound = 0.0;
    p.args.flags |= flags;
    run(&p.args, NULL);
    p.args.flags &= ~(uint32_t)ATTNKIT_SHORT_WEIGHTS;
    p.args.flags |= ATTNKIT_BF16_PRODUCTS;
    for (int64_t i = 0; i < ROWS; i++) {
        oracle_row(&p.args, 0, 0, i, truth, NULL);
        for (int c = 0; c < DIM; c++) {
            const double error = fabs((double)p.setting.out[i * DIM + c] - truth[c].value);
            squares += error * error;
            *bound = fmax(*bound, error / truth[c].bound);
        }
    }
    products_free(&p);
    return sqrt(squares / (ROWS * DIM));
}

static void two_parts_of_weights_keep_a_hundredth_of_the_error_of_one(void **state)
{
    (void)state;
    double bound, bound_long, bound_short;
    const double f32 = error_of(0, &bound), two = error_of(LONG, &bound_long),
                 one = error_of(SHORT, &bound_short);
    printf("# RMS error of out: in f32 %.3g, with two bf16 %.3g, with one bf16 %.3g\n", f32, two,
           one);
    printf("# error / bound of two bf16: %.3f with two bf16, %.3f with one bf16\n", bound_long,
           bound_short);
    assert_true(two <= one / 100.0);
    assert_true(bound_long <= 1.0 && bound_short > 1.0);
}

static double from_bf16(const void *data, int64_t i)
{
    const uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Computes row i in binary64, twice. The second time, each weight exp(x - max x), for scores x, is
 * rounded to the nearest bf16. The sum of the weights takes the weights before this rounding.
 * PyTorch rounds its weights in this way. The first result is the truth. Adds the squared errors of
 * the second result to *rounded, and the squared errors of out to *own. */
static void add_squares(const struct products *p, int64_t i, double *rounded, double *own)
{
    const int64_t dim = p->args.head_dim, keys = p->args.kv_len;
    double *const x = malloc((size_t)keys * sizeof *x), max = -INFINITY, sum = 0.0;
    assert_non_null(x);
    for (int64_t j = 0; j < keys; j++) {
        x[j] = 0.0;
        for (int64_t d = 0; d < dim; d++)
            x[j] += from_bf16(p->q, i * dim + d) * from_bf16(p->args.k.data, j * dim + d);
        x[j] /= sqrt((double)dim);
        max = fmax(max, x[j]);
    }
    for (int64_t j = 0; j < keys; j++)
        sum += exp(x[j] - max);
    for (int64_t c = 0; c < dim; c++) {
        double exact = 0.0, other = 0.0;
        for (int64_t j = 0; j < keys; j++) {
            const double v = from_bf16(p->args.v.data, j * dim + c), weight = exp(x[j] - max);
            const uint16_t bits = nearest_bf16((float)weight);
            exact += weight * v / sum;
            other += from_bf16(&bits, 0) * v / sum;
        }
        *rounded += (other - exact) * (other - exact);
        *own += pow((double)p->setting.out[i * dim + c] - exact, 2.0);
    }
    free(x);
}

static void short_weights_are_no_worse_than_weights_by_the_exact_maximum(void **state)
{
    enum { ROWS = 64, DIM = 64 };
    static const int64_t lengths[] = {2, 17, 100, 513};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const struct shape shape = {DIM, DIM, lengths[i]};
        struct products p = products_new(&distributions[0], &shape, ROWS, SEED + i);
        double rounded = 0.0, own = 0.0;
        p.args.flags |= SHORT;
        run(&p.args, NULL);
        for (int64_t row = 0; row < ROWS; row++)
            add_squares(&p, row, &rounded, &own);
        printf("# %lld keys: RMS error of out %.3g, with weights rounded as in PyTorch %.3g\n",
               (long long)lengths[i], sqrt(own / (ROWS * DIM)), sqrt(rounded / (ROWS * DIM)));
        assert_true(own <= rounded);
        products_free(&p);
    }
}

static struct CMUnitTest test(const char *name, CMUnitTestFunction function, const void *state)
{
    return (struct CMUnitTest){name, function, NULL, NULL, (void *)(uintptr_t)state};
}

int main(void)
{
    struct CMUnitTest tests[DISTRIBUTIONS + 2];
    size_t count = 0;
    for (int i = 0; i < DISTRIBUTIONS; i++)
        tests[count++] =
            test(distributions[i].name, distribution_is_inside_the_bound, &distributions[i]);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(
        two_parts_of_weights_keep_a_hundredth_of_the_error_of_one);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(
        short_weights_are_no_worse_than_weights_by_the_exact_maximum);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("products_accuracy", tests, count, NULL, NULL);
}
