/* SPDX-License-Identifier: Apache-2.0
 *
 * The accuracy of ATTNKIT_INTEGERS on the distributions of settings.h, with K and V in Q8_0, in I8
 * with a scale for each 32 elements, and in I8 with a scale for each row. Every element must be
 * inside its derived bound, and attentions with coarser integers must be outside this bound. The
 * root mean square error of out must be at most a fiftieth of the error that rounding K and V to
 * bytes makes. attnkit.h says so for normally distributed numbers. The only exception is I8 with an
 * out that is small enough to become 0 (MOST_LOST). On normally distributed numbers, the error of
 * scores must be at most a fiftieth of the error that rounding K makes, and the error of weighted
 * sums at most a fiftieth of the error that rounding V makes. An error of the arithmetic is the
 * difference between a result and the oracle. An error of rounding to bytes is the difference
 * between two results of the oracle: one for the stored K and V, and one for which K, V or both are
 * taken before the rounding.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/accuracy/errors.h"
#include "tests/accuracy/settings.h"
#include "tests/support/formats.h"

static const uint64_t SEED = 20261125;
static const struct storage q8_0 = {.name = "q8_0", .type = ATTNKIT_Q8_0};
static const struct storage bytes[] = {
    {.name = "q8_0", .type = ATTNKIT_Q8_0},
    {.name = "i8 by 32", .type = ATTNKIT_I8, .group = 32},
    {.name = "i8 by row", .type = ATTNKIT_I8, .group = INT64_MAX},
};
enum { BYTES = sizeof bytes / sizeof bytes[0] };
static const double MOST_OF_STORAGE = 1.0 / 50.0;

/* The weight of each key is multiplied by the scale of V for this key. If all these products of a
 * block of keys are below 2^-100, they become 0. An integer of V is at most 128 in magnitude, so an
 * element of out below MOST_LOST may become 0. A scale of Q8_0 is 0 or at least 2^-24, far above
 * 2^-100. */
static const double MOST_LOST = 128.0 * 0x1p-100;

/* --- The bound -------------------------------------------------------------------------------- */

static void check_bound(const struct storage *as, const struct distribution *d)
{
    static const int64_t lengths[] = {1, 2, 17, 100, 129, 513, 1000, 4096};
    struct worst w = {0};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int64_t dim = 32; dim <= 128; dim *= 2) {
            const struct shape shape = {dim, dim, lengths[i]};
            struct setting s = setting_new(d, &shape, lengths[i] <= 1000 ? 3 : 1, SEED + i);
            struct stored *const stored = stored_new(as, &s);
            stored->args.flags |= ATTNKIT_INTEGERS;
            w = worst_of(w, judge_call(&stored->args));
            stored_free(stored);
            setting_free(&s);
        }
    printf("# %-15s %-9s error / bound %.4f, of LSE %.4f, %lld elements\n", d->name, as->name,
           w.bound, w.lse_bound, (long long)w.elements);
    assert_true(w.bound <= 1.0);
    assert_true(w.lse_bound <= 1.0);
}

static void distribution_is_inside_the_bound(void **state)
{
    for (int i = 0; i < BYTES; i++)
        check_bound(&bytes[i], *state);
}

/* --- The error of storage --------------------------------------------------------------------- */

/* The sum of the squares of errors, and the number of errors. */
struct errors {
    double squares;
    int64_t count;
};

static void add(struct errors *e, double error)
{
    e->squares += error * error;
    e->count++;
}

static double rms(const struct errors *e)
{
    return sqrt(e->squares / (double)e->count);
}

/* Makes each of the `pairs` query rows a batch entry with one key, and sets the scale to 1. The lse
 * of a row is then its score. */
static void take_single_keys(attnkit_attention_args *args, int64_t pairs)
{
    args->flags |= ATTNKIT_SCALE_GIVEN;
    args->scale = 1.0;
    args->batch = pairs;
    args->q_len = args->kv_len = 1;
}

static void check_scores(const struct storage *as)
{
    enum { DIM = 128, PAIRS = 4000 };
    const struct shape shape = {DIM, DIM, PAIRS};
    struct setting s = setting_new(&distributions[0], &shape, PAIRS, SEED);
    struct stored *const stored = stored_new(as, &s);
    struct oracle_element out[DIM];
    struct errors integers = {0}, storage = {0};
    take_single_keys(&s.args, PAIRS);
    take_single_keys(&stored->args, PAIRS);
    stored->args.flags |= ATTNKIT_INTEGERS;
    run(&stored->args, NULL);
    for (int64_t i = 0; i < PAIRS; i++) {
        const double truth = oracle_row(&stored->args, i, 0, 0, out, NULL).lse;
        add(&integers, (double)s.lse[i] - truth);
        add(&storage, truth - oracle_row(&s.args, i, 0, 0, out, NULL).lse);
    }
    printf("# %-9s scores, RMS error: of integers %.3g, of storage %.3g, quotient 1/%.0f\n",
           as->name, rms(&integers), rms(&storage), rms(&storage) / rms(&integers));
    assert_true(rms(&integers) <= MOST_OF_STORAGE * rms(&storage));
    stored_free(stored);
    setting_free(&s);
}

static void scores_have_a_fiftieth_of_the_error_of_storage(void **state)
{
    (void)state;
    for (int i = 0; i < BYTES; i++)
        check_scores(&bytes[i]);
}

/* Takes the place of fmax in loops, because gcc 12 for aarch64 stops with an internal error when it
 * vectorises fmax. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Errors of the elements of out. `f32` and `integers` are errors of calls without and with
 * ATTNKIT_INTEGERS, against the true result of the stored K and V. */
struct out_errors {
    struct errors f32, integers;
    struct errors v, both; /* errors of rounding only V to bytes, and of rounding K and V */
    double largest;        /* the largest true |out| */
};

/* Returns the true out of all rows, [q_len][value_dim]. The caller frees the array. */
static struct oracle_element *truth_of(const attnkit_attention_args *args)
{
    const int64_t dim = args->value_dim;
    struct oracle_element *const truth = malloc((size_t)(args->q_len * dim) * sizeof *truth);
    assert_non_null(truth);
    for (int64_t i = 0; i < args->q_len; i++)
        oracle_row(args, 0, 0, i, truth + i * dim, NULL);
    return truth;
}

/* Runs the call of args, and adds to e how far each element of out is from `truth`. */
static void add_run(const attnkit_attention_args *args, const struct oracle_element *truth,
                    struct errors *e)
{
    const float *const out = args->out.data;
    run(args, NULL);
    for (int64_t i = 0; i < args->q_len * args->value_dim; i++)
        add(e, (double)out[i] - truth[i].value);
}

/* Adds to e how far each element of `truth` is from the true result of args. */
static void add_difference(const attnkit_attention_args *args, const struct oracle_element *truth,
                           struct errors *e)
{
    struct oracle_element *const other = truth_of(args);
    for (int64_t i = 0; i < args->q_len * args->value_dim; i++)
        add(e, truth[i].value - other[i].value);
    free(other);
}

static void set_to_signs(float *q, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        q[i] = copysignf(1.0f, q[i]);
}

static struct out_errors measure_out(const struct storage *as, const struct distribution *d,
                                     bool signs)
{
    enum { DIM = 128, KEYS = 4096, ROWS = 16 };
    const struct shape shape = {DIM, DIM, KEYS};
    struct setting s = setting_new(d, &shape, ROWS, SEED);
    if (signs)
        set_to_signs(s.q, ROWS * DIM);
    struct stored *const stored = stored_new(as, &s);
    struct oracle_element *const truth = truth_of(&stored->args);
    struct out_errors e = {0};
    attnkit_attention_args args = stored->args;
    add_run(&args, truth, &e.f32);
    args.flags |= ATTNKIT_INTEGERS;
    add_run(&args, truth, &e.integers);
    args = stored->args;
    args.v = s.args.v;
    add_difference(&args, truth, &e.v);
    add_difference(&s.args, truth, &e.both);
    for (int64_t i = 0; i < ROWS * DIM; i++)
        e.largest = larger(fabs(truth[i].value), e.largest);
    free(truth);
    stored_free(stored);
    setting_free(&s);
    return e;
}

/* If all numbers of q are 1 or -1, their integers are exact. The scores then have only a few
 * roundings, and the errors of out come from the rounding of the weights. */
static void weighted_sums_have_a_fiftieth_of_the_error_of_storage(void **state)
{
    (void)state;
    for (int i = 0; i < BYTES; i++) {
        const struct out_errors e = measure_out(&bytes[i], &distributions[0], true);
        printf("# %-9s weighted sums, RMS error: of integers %.3g, of storing V %.3g, "
               "quotient 1/%.0f\n",
               bytes[i].name, rms(&e.integers), rms(&e.v), rms(&e.v) / rms(&e.integers));
        assert_true(rms(&e.integers) <= MOST_OF_STORAGE * rms(&e.v));
    }
}

static void out_has_a_fiftieth_of_the_error_of_storage(void **state)
{
    const struct distribution *const d = *state;
    for (int i = 0; i < BYTES; i++) {
        const struct out_errors e = measure_out(&bytes[i], d, false);
        printf("# %-15s %-9s RMS error of out: in f32 %.3g, of integers %.3g, of storing K and V "
               "%.3g, quotient of both 1/%.0f\n",
               d->name, bytes[i].name, rms(&e.f32), rms(&e.integers), rms(&e.both),
               rms(&e.both) / rms(&e.integers));
        if (bytes[i].type == ATTNKIT_I8 && e.largest < MOST_LOST)
            assert_true(rms(&e.integers) <= e.largest); /* V is subnormal, and out is 0 */
        else
            assert_true(rms(&e.integers) <= MOST_OF_STORAGE * rms(&e.both));
    }
}

/* --- Attentions with coarser integers, which must be outside the bound ------------------------ */

struct mutant {
    const char *name;
    double most_of_q, most_of_weights; /* the largest integers of q and of the weights */
};

static double rounded(double x, double largest, double most)
{
    return largest > 0.0 ? rint(x * most / largest) * largest / most : 0.0;
}

/* Rounds a query row, each group of 32 elements by its own largest magnitude. */
static void round_q(float *q, int64_t dim, double most)
{
    for (int64_t d = 0; d < dim; d += Q8_BLOCK) {
        double largest = 0.0;
        for (int i = 0; i < Q8_BLOCK; i++)
            largest = larger(largest, fabs((double)q[d + i]));
        for (int i = 0; i < Q8_BLOCK; i++)
            q[d + i] = (float)rounded((double)q[d + i], largest, most);
    }
}

/* Sets w to exp(score - largest score) of row 0 for each key. Returns the LSE. */
static double weigh(const attnkit_attention_args *args, const float *q, double *w)
{
    float *const k = floats(args->head_dim);
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < args->kv_len; j++) {
        const char *const row =
            (const char *)args->k.data + j * bytes_of(TYPE_Q8_0, args->head_dim);
        widen_row(TYPE_Q8_0, row, NULL, 0, args->head_dim, k);
        w[j] = 0.0;
        for (int64_t d = 0; d < args->head_dim; d++)
            w[j] += (double)q[d] * (double)k[d] / sqrt((double)args->head_dim);
        max = larger(max, w[j]);
    }
    for (int64_t j = 0; j < args->kv_len; j++)
        sum += w[j] = exp(w[j] - max);
    free(k);
    return max + log(sum);
}

/* Rounds the products of weights and scales of V to integers, at most `most` in magnitude, for the
 * block of keys from `first` on and the 32 columns from `column` on. Adds the weighted sums of V to
 * the sums `o` of these columns. */
static void add_block(const attnkit_attention_args *args, int64_t first, int64_t column,
                      const double *w, double most, double *o)
{
    float one[Q8_BLOCK], v[KEY_BLOCK][Q8_BLOCK], scale[KEY_BLOCK];
    double largest = 0.0;
    const int64_t keys = args->kv_len - first < KEY_BLOCK ? args->kv_len - first : KEY_BLOCK;
    for (int64_t j = 0; j < keys; j++) {
        const char *const row =
            (const char *)args->v.data + (first + j) * bytes_of(TYPE_Q8_0, args->value_dim);
        const char *const block = row + column / Q8_BLOCK * Q8_BLOCK_BYTES;
        widen_row(TYPE_F16, block, NULL, 0, 1, &scale[j]);
        widen_row(TYPE_Q8_0, block, NULL, 0, Q8_BLOCK, one);
        for (int c = 0; c < Q8_BLOCK; c++)
            v[j][c] = scale[j] != 0.0f ? one[c] / scale[j] : 0.0f;
        largest = larger(largest, fabs(w[first + j] * (double)scale[j]));
    }
    for (int64_t j = 0; j < keys; j++) {
        const double weight = rounded(w[first + j] * (double)scale[j], largest, most);
        for (int c = 0; c < Q8_BLOCK; c++)
            o[column + c] += weight * (double)v[j][c];
    }
}

/* Computes out of row 0. Returns the LSE of the row. */
static float mutant_row(const struct mutant *m, const attnkit_attention_args *args, float *out)
{
    enum { MOST_DIM = 128 };
    float q[MOST_DIM];
    double o[MOST_DIM] = {0.0}, sum = 0.0;
    double *const w = malloc((size_t)args->kv_len * sizeof *w);
    assert_non_null(w);
    widen_row(TYPE_F32, args->q.data, NULL, 0, args->head_dim, q);
    round_q(q, args->head_dim, m->most_of_q);
    const double lse = weigh(args, q, w);
    for (int64_t j = 0; j < args->kv_len; j++)
        sum += w[j];
    for (int64_t first = 0; first < args->kv_len; first += KEY_BLOCK)
        for (int64_t c = 0; c < args->value_dim; c += Q8_BLOCK)
            add_block(args, first, c, w, m->most_of_weights, o);
    for (int64_t c = 0; c < args->value_dim; c++)
        out[c] = (float)(o[c] / sum);
    free(w);
    return (float)lse;
}

/* Returns the worst |error| / bound of a mutant's first row, in out or in the LSE, over the
 * distributions. */
static double judge_mutant(const struct mutant *m)
{
    enum { VALUES = 64 };
    const struct shape shape = {64, VALUES, 1000};
    struct worst w = {0};
    for (int i = 0; i < DISTRIBUTIONS; i++) {
        struct setting s = setting_new(&distributions[i], &shape, 1, SEED);
        struct stored *const stored = stored_new(&q8_0, &s);
        struct oracle_element truth[VALUES];
        stored->args.flags |= ATTNKIT_INTEGERS;
        const struct oracle_row row = oracle_row(&stored->args, 0, 0, 0, truth, NULL);
        const float lse = mutant_row(m, &stored->args, s.out);
        w = worst_of(w, judge(&row, truth, VALUES, s.out, lse));
        stored_free(stored);
        setting_free(&s);
    }
    printf("# %-15s error / bound %.4g, of LSE %.4g\n", m->name, w.bound, w.lse_bound);
    return fmax(w.bound, w.lse_bound);
}

static void mutants_are_outside_the_bound(void **state)
{
    (void)state;
    static const struct mutant sound = {"no mutant", 32512.0, 32512.0};
    static const struct mutant mutants[] = {
        {"q of 9 bits", 255.0, 32512.0},
        {"weights of 9 bits", 32512.0, 255.0},
    };
    assert_true(judge_mutant(&sound) <= 1.0);
    for (size_t i = 0; i < sizeof mutants / sizeof mutants[0]; i++)
        assert_true(judge_mutant(&mutants[i]) > 1.0);
}

static struct CMUnitTest test(const char *name, CMUnitTestFunction function, const void *state)
{
    return (struct CMUnitTest){name, function, NULL, NULL, (void *)(uintptr_t)state};
}

int main(void)
{
    struct CMUnitTest tests[2 * DISTRIBUTIONS + 3];
    size_t count = 0;
    for (int i = 0; i < DISTRIBUTIONS; i++)
        tests[count++] =
            test(distributions[i].name, distribution_is_inside_the_bound, &distributions[i]);
    tests[count++] =
        (struct CMUnitTest)cmocka_unit_test(scores_have_a_fiftieth_of_the_error_of_storage);
    tests[count++] =
        (struct CMUnitTest)cmocka_unit_test(weighted_sums_have_a_fiftieth_of_the_error_of_storage);
    for (int i = 0; i < DISTRIBUTIONS; i++)
        tests[count++] = test(distributions[i].name, out_has_a_fiftieth_of_the_error_of_storage,
                              &distributions[i]);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(mutants_are_outside_the_bound);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("integers_accuracy", tests, count, NULL, NULL);
}
