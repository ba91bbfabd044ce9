/* SPDX-License-Identifier: Apache-2.0
 *
 * The error of a row does not grow with the number of its keys. The tests take up to about 2^20
 * keys, or 2^22 with ATTNKIT_TEST_LONG in the environment. On the twelve distributions of
 * settings.h, with few dimensions and K and V of F32, E is at most 4 (errors.h). With K and V of
 * F16, BF16, I8 and Q8_0, the error is at most 4 in units of oracle_element.unit. If all scores are
 * equal and V is constant, all roundings have the same sign. The error is then at most 1.25 times
 * the error at 512 keys. The error would be larger if chunk states were added in binary32.
 *
 * The scalar reference computes the rows whose K and V are binary32. The public call computes the
 * rows whose K and V have other types, on the instruction set that the library chooses. accuracy.c
 * and tests/promises test that all instruction sets have the bits of the reference.
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

#include "kernels/kernels.h"
#include "kernels/scalar/reference.h"
#include "tests/accuracy/errors.h"
#include "tests/accuracy/settings.h"
#include "tests/support/random.h"

static const uint64_t SEED = 20261123;

static const int64_t lengths[] = {512, 16384, 131072, 1 << 20, 1 << 22};

enum {
    LENGTHS = sizeof lengths / sizeof lengths[0],
    DIM = 8,
    OTHERS = 3, /* number of tests that do not use one of the distributions */
};

static int64_t most_keys(void)
{
    return getenv("ATTNKIT_TEST_LONG") ? 1 << 22 : 1 << 20;
}

/* --- The distributions ----------------------------------------------------------------------- */

static void assert_is_accurate(const struct distribution *d, const char *type,
                               const attnkit_attention_args *args, const struct worst *w)
{
    printf("# %-15s %-5s %7lld keys  own E %.3f, error / bound %.4f, of LSE %.4f\n", d->name, type,
           (long long)args->kv_len, w->own_e, w->bound, w->lse_bound);
    assert_true(w->own_e <= MOST_E);
    assert_true(w->bound <= 1.0);
    assert_true(w->lse_bound <= 1.0);
}

static int64_t dim_of(const struct storage *as)
{
    return as->type == ATTNKIT_Q8_0 ? Q8_BLOCK : DIM;
}

/* The random numbers of all distributions and lengths. Rows of `draw` have DIM elements, and rows
 * of `draw_of_blocks` have Q8_BLOCK elements. */
static struct draw draw, draw_of_blocks;

static int draw_rows(void **state)
{
    (void)state;
    draw = draw_new(&(struct shape){DIM, DIM, most_keys()}, 1, SEED);
    draw_of_blocks = draw_new(&(struct shape){Q8_BLOCK, Q8_BLOCK, most_keys()}, 1, SEED);
    return 0;
}

static int free_rows(void **state)
{
    (void)state;
    draw_free(&draw);
    draw_free(&draw_of_blocks);
    return 0;
}

static void distribution_is_accurate_at_any_length(void **state)
{
    const struct distribution *const d = *state;
    for (size_t i = 0; i < LENGTHS && lengths[i] <= most_keys(); i++) {
        const struct shape shape = {DIM, DIM, lengths[i]};
        struct setting s = setting_of(d, &shape, 1, &draw);
        const struct worst w = judge_reference(&s.args);
        assert_is_accurate(d, "f32", &s.args, &w);
        assert_true(w.e <= MOST_E);
        setting_free(&s);
    }
}

/* Checks the error with K and V of each type for which dim_of returns `dim`. Types that the library
 * only widens are left out, because their arithmetic is the arithmetic of binary32. */
static void judge_types(const struct distribution *d, int64_t dim, int64_t keys,
                        const struct draw *from)
{
    const struct shape shape = {dim, dim, keys};
    struct setting s = setting_of(d, &shape, 1, from);
    for (int i = 0; i < STORAGES; i++)
        if (dim_of(&storages[i]) == dim && !is_only_widened((enum type)storages[i].type)) {
            struct stored *const stored = stored_new(&storages[i], &s);
            const struct worst w = judge_call(&stored->args);
            assert_is_accurate(d, storages[i].name, &stored->args, &w);
            stored_free(stored);
        }
    setting_free(&s);
}

/* accuracy.c tests the same types with up to 16384 keys. */
static void storage_is_accurate_at_any_length(void **state)
{
    for (int64_t keys = 1 << 20; keys <= most_keys(); keys *= 4) {
        judge_types(*state, DIM, keys, &draw);
        judge_types(*state, Q8_BLOCK, keys, &draw_of_blocks);
    }
}

/* --- A constant V ----------------------------------------------------------------------------- */

/* The value of V in each column. */
static const float constants[] = {0.1f,      1.0f / 3.0f, 1.0f,    -0.7f,      1000.1f,   1e-4f,
                                  -123.456f, 1e30f,       -1e-30f, 1.9999999f, 3.1415927f};

enum {
    CONSTANTS = sizeof constants / sizeof constants[0],
    CONSTANT_ROWS = 4,
};

static const double MOST_GROWTH = 1.25;

/* The errors of each row and constant, in units of u |V|, which equals u A (tests/oracle/oracle.h).
 */
struct errors {
    double of[CONSTANT_ROWS][CONSTANTS];
};

static double error_of(float out, int constant)
{
    return ratio((double)out - (double)constants[constant],
                 0x1p-24 * fabs((double)constants[constant]));
}

/* Makes a setting in which all keys are equal. The scores of row 0 are 0. In every other row, all
 * scores are the same number. Column c of V is constants[c] for every key. */
static struct setting equal_scores(int64_t keys)
{
    static const struct distribution equal = {.equal_keys = true};
    const struct shape shape = {DIM, CONSTANTS, keys};
    struct setting s = setting_new(&equal, &shape, CONSTANT_ROWS, SEED);
    memset(s.q, 0, DIM * sizeof *s.q);
    for (int64_t j = 0; j < keys; j++)
        memcpy(s.v + j * CONSTANTS, constants, sizeof constants);
    return s;
}

static struct errors errors_of_constants(int64_t keys)
{
    struct setting s = equal_scores(keys);
    const struct attention a = problem_of(&s.args);
    struct errors errors;
    for (int row = 0; row < CONSTANT_ROWS; row++) {
        float out[CONSTANTS], lse;
        attnkit_reference_row(&a, 0, 0, row, out, &lse);
        for (int c = 0; c < CONSTANTS; c++)
            errors.of[row][c] = error_of(out[c], c);
    }
    setting_free(&s);
    return errors;
}

static double worst_error(const struct errors *errors)
{
    double worst = 0.0;
    for (int row = 0; row < CONSTANT_ROWS; row++)
        for (int c = 0; c < CONSTANTS; c++)
            worst = fmax(worst, errors->of[row][c]);
    return worst;
}

/* Returns the largest ratio of an error in `longer` to the error of the same row and constant in
 * `shorter`. */
static double growth_from(const struct errors *shorter, const struct errors *longer)
{
    double growth = 0.0;
    for (int row = 0; row < CONSTANT_ROWS; row++)
        for (int c = 0; c < CONSTANTS; c++)
            growth = fmax(growth, ratio(longer->of[row][c], shorter->of[row][c]));
    return growth;
}

/* From 2^14 keys on, the error of each row and constant is compared with the error of the same row
 * and constant at 512 keys. For fewer keys than 2^14, only the largest error is compared with the
 * largest error at 512 keys. The reason is that some constants have nearly no error at 512 keys,
 * but have an error in a last chunk of fewer keys. In a short row, this chunk can hold a large part
 * of all keys. */
static void error_of_a_constant_v_does_not_grow(void **state)
{
    (void)state;
    static const int64_t keys[] = {
        100, 512, 513, 1000, 16384, 131072 + 1, 1 << 20, (1 << 20) + 77, 1 << 22};
    const struct errors at_512 = errors_of_constants(512);
    bool has_grown = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && keys[i] <= most_keys() + 77; i++) {
        const struct errors errors = errors_of_constants(keys[i]);
        const double worst = worst_error(&errors);
        const double growth =
            keys[i] < 16384 ? worst / worst_error(&at_512) : growth_from(&at_512, &errors);
        printf(
            "# constant V, %7lld keys: scores of 0 and V = 0.1 %.1f u A, worst %.1f u A; at most "
            "%.2f times the error at 512 keys\n",
            (long long)keys[i], errors.of[0][0], worst, growth);
        has_grown |= growth > MOST_GROWTH;
    }
    assert_false(has_grown);
}

/* Computes out of a row whose scores are 0 and whose elements of V are all v, in the order of
 * kernels/README.md. The row has `chunks` full chunks. If folds_in_binary32 is true, the states of
 * chunks are added in binary32, against this order. */
static float attend_zeros(float v, int64_t chunks, bool folds_in_binary32)
{
    float chunk_l = 0.0f, chunk_o = 0.0f;
    for (int block = 0; block < CHUNK_KEYS / KEY_BLOCK; block++) {
        float sum = 0.0f;
        for (int key = 0; key < KEY_BLOCK; key++)
            sum = fmaf(1.0f, v, sum);
        chunk_l += (float)KEY_BLOCK;
        chunk_o += sum;
    }
    double l = 0.0, o = 0.0;
    for (int64_t i = 0; i < chunks; i++) {
        l += (double)chunk_l;
        o += (double)chunk_o;
        if (folds_in_binary32) {
            l = (double)(float)l;
            o = (double)(float)o;
        }
    }
    return (float)(o / l);
}

/* Returns the largest derived bound of all constants for scores of 0, in units of u |V|. */
static double bound_of_zeros(int64_t keys)
{
    struct oracle_element truth[CONSTANTS];
    struct setting s = equal_scores(keys);
    double most = 0.0;
    oracle_row(&s.args, 0, 0, 0, truth, NULL);
    for (int c = 0; c < CONSTANTS; c++)
        most = fmax(most, truth[c].bound / (0x1p-24 * truth[c].magnitude));
    setting_free(&s);
    return most;
}

/* From 512 keys to most_keys(), the bound grows by at most 2^-16 of itself. The reason is that
 * nearly all of the bound covers the roundings in a chunk of 512 keys. With chunk states added in
 * binary32, the error of some constant exceeds the bound. */
static void bound_does_not_grow(void **state)
{
    (void)state;
    const double at_512 = bound_of_zeros(512), at_most = bound_of_zeros(most_keys());
    double error = 0.0;
    for (int c = 0; c < CONSTANTS; c++)
        error =
            fmax(error, error_of(attend_zeros(constants[c], most_keys() / CHUNK_KEYS, true), c));
    printf("# bound of scores of 0: %.1f u A at 512 keys, %.1f u A at %lld; with chunks added in "
           "binary32 %.1f u A\n",
           at_512, at_most, (long long)most_keys(), error);
    assert_true(at_most <= at_512 * (1.0 + 0x1p-16));
    assert_true(error > at_most);
}

/* Returns the largest ratio, over the constants, of the error at 2^20 keys to the error at 512
 * keys. The scores are 0. */
static double growth_of_zeros(const struct errors *at_512, bool folds_in_binary32)
{
    double error[CONSTANTS], growth = 0.0;
    for (int c = 0; c < CONSTANTS; c++) {
        error[c] =
            error_of(attend_zeros(constants[c], (1 << 20) / CHUNK_KEYS, folds_in_binary32), c);
        growth = fmax(growth, ratio(error[c], at_512->of[0][c]));
    }
    printf(
        "# chunks added in binary%d: V = 0.1 %.1f u A; at most %.2f times the error at 512 keys\n",
        folds_in_binary32 ? 32 : 64, error[0], growth);
    return growth;
}

/* Adding two binary32 numbers in binary64 and rounding the sum to binary32 gives their binary32
 * sum, so attend_zeros may add in binary64. */
static void chunks_added_in_binary32_are_outside_the_promise(void **state)
{
    (void)state;
    const struct errors at_512 = errors_of_constants(512);
    assert_true(growth_of_zeros(&at_512, false) <= MOST_GROWTH);
    assert_true(growth_of_zeros(&at_512, true) > MOST_GROWTH);
}

static struct CMUnitTest test(const struct distribution *d, CMUnitTestFunction function)
{
    return (struct CMUnitTest){d->name, function, NULL, NULL, (void *)(uintptr_t)d};
}

int main(void)
{
    struct CMUnitTest tests[2 * DISTRIBUTIONS + OTHERS] = {
        cmocka_unit_test(error_of_a_constant_v_does_not_grow),
        cmocka_unit_test(bound_does_not_grow),
        cmocka_unit_test(chunks_added_in_binary32_are_outside_the_promise),
    };
    for (int i = 0; i < DISTRIBUTIONS; i++) {
        tests[OTHERS + i] = test(&distributions[i], distribution_is_accurate_at_any_length);
        tests[OTHERS + DISTRIBUTIONS + i] =
            test(&distributions[i], storage_is_accurate_at_any_length);
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, draw_rows, free_rows);
}
