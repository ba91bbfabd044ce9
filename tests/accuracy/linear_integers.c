/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps with ATTNKIT_INTEGERS. On each instruction set and with each unit, y must have the
 * bits of the scalar reference. The shapes, types and layouts are drawn at random. No bit may
 * depend on the threads, on how the rows are cut into calls, or on the rounding mode of the caller.
 * If x, the row of w and the bias are below 10^6 in magnitude, an element of the reference must be
 * inside a bound that is derived from the roundings. Elements that may overflow binary16 need not
 * be inside the bound. Blocks with strange scales and bytes, and groups of inputs that are small,
 * huge or not finite, must have the bits of the reference, too. Some special numbers must have the
 * results that include/attnkit/linear.h defines.
 *
 *   linear_integers [--isa NAME]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "kernels/scalar/scalar.h"
#include "tests/support/formats.h"
#include "tests/support/linear_call.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"
#include "tests/support/units.h"

/* x and y have one of the first TYPES types. A long run compares LONGER times as many drawn calls
 * with the reference. A drawn shape takes at most CASE_COST multiply-adds. */
enum { TYPES = 3, CASES = 400, LONGER = 10, MOST_NAMES = 12, CASE_COST = 200000 };

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

static const double U = 0x1p-24; /* half the distance from 1 to the next float */

/* The names of the instruction sets and units that are tested. All of them run here. */
static const char *names[MOST_NAMES];
static int name_count;

/* The types of w that can be packed to ATTNKIT_Q8_0. */
static const attnkit_type w_types[] = {ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_Q8_0};

/* --- Bits ------------------------------------------------------------------------------------- */

static struct linear_shape draw_shape(uint64_t *random)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 65, 257, 300};
    static const int64_t blocks[] = {1, 2, 3, 5, 15, 16, 17, 33, 129};
    static const int64_t outs[] = {1, 2, 15, 16, 17, 31, 33, 48, 49, 63, 64, 65, 130, 257};
    struct linear_shape s;
    do
        s = (struct linear_shape){rows[random_below(random, COUNT(rows))],
                                  Q8_BLOCK * blocks[random_below(random, COUNT(blocks))],
                                  outs[random_below(random, COUNT(outs))]};
    while (s.rows * s.in_dim * s.out_dim > CASE_COST);
    return s;
}

static struct linear_call *draw_call(int number)
{
    uint64_t random = (uint64_t)number * 7919 + 1;
    const struct linear_kind kind = {
        .x_type = (attnkit_type)random_below(&random, TYPES),
        .w_type = w_types[random_below(&random, COUNT(w_types))],
        .packed_type = ATTNKIT_Q8_0,
        .y_type = (attnkit_type)random_below(&random, TYPES),
        .bias = random_below(&random, 2),
        .layout = tensor_layouts[random_below(&random, TENSOR_LAYOUTS)],
        .numbers = (enum numbers)random_below(&random, NUMBERS),
        .integers = true,
    };
    return linear_call_new(&kind, draw_shape(&random), random_bits(&random));
}

static void check(int number, const struct linear_call *c, const char *name, int threads)
{
    const char *const wrong =
        linear_call_check(c, (struct runner){.isa = name, .threads = threads});
    if (wrong)
        fail_msg("case %d: %s with %d threads: %s; %d x %d to %d, types x %d w %d y %d", number,
                 name, threads, wrong, (int)c->args.rows, (int)c->args.in_dim, (int)c->args.out_dim,
                 c->args.x.type, c->pack.w.type, c->args.y.type);
}

static void calls_have_the_bits_of_the_reference(void **state)
{
    (void)state;
    for (int number = 0; number < CASES * (is_long_run() ? LONGER : 1); number++) {
        struct linear_call *const c = draw_call(number);
        for (int i = 0; i < name_count; i++)
            check(number, c, names[i], 1 + (number + i) % 4);
        linear_call_free(c);
    }
}

/* Some shapes have several blocks of rows, and most shapes have several panels. */
static void large_shapes_have_the_bits_of_the_reference(void **state)
{
    static const struct linear_shape shapes[] = {
        {513, 544, 70}, {17, 4096, 130}, {70, 4128, 17}, {300, 1056, 200}, {1, 4096, 517}};
    (void)state;
    for (int64_t s = 0; s < COUNT(shapes); s++) {
        const struct linear_kind kind = {.x_type = (attnkit_type)(s % TYPES),
                                         .packed_type = ATTNKIT_Q8_0,
                                         .y_type = (attnkit_type)((s + 1) % TYPES),
                                         .bias = s % 2,
                                         .integers = true};
        struct linear_call *const c = linear_call_new(&kind, shapes[s], (uint64_t)s);
        for (int i = 0; i < name_count; i++)
            for (int threads = 1; threads <= 3; threads++)
                check((int)s, c, names[i], threads);
        linear_call_free(c);
    }
}

/* Runs rows `first` to first + count - 1 alone. The caller frees the returned y. */
static char *rows_alone(const struct linear_call *c, int64_t first, int64_t count, const char *name)
{
    struct linear_call part = *c;
    part.args.rows = part.x.count[2] = part.y.count[2] = count;
    part.args.x.data = part.x.first = tensor_row(&c->x, 0, 0, first);
    part.args.y.data = part.y.first = tensor_row(&c->y, 0, 0, first);
    linear_call_run(&part, (struct runner){.isa = name, .threads = 1});
    return linear_call_take(&part);
}

/* The rows are cut into calls. Each call has one row more than the call before it. */
static void rows_have_the_bits_that_they_have_in_any_batch(void **state)
{
    enum { ROWS = 120 };
    const struct linear_kind kind = {.packed_type = ATTNKIT_Q8_0, .bias = true, .integers = true};
    (void)state;
    for (int i = 0; i < name_count; i++) {
        struct linear_call *const c =
            linear_call_new(&kind, (struct linear_shape){ROWS, 608, 70}, 5);
        linear_call_pack(c, (struct runner){.isa = names[i], .threads = 1});
        linear_call_run(c, (struct runner){.isa = names[i], .threads = 1});
        char *const whole = linear_call_take(c);
        for (int64_t first = 0, count = 1; first < ROWS; first += count, count++) {
            count = count < ROWS - first ? count : ROWS - first;
            char *const part = rows_alone(c, first, count, names[i]);
            assert_true(linear_call_same(c, part, whole + first * c->y.row_bytes, count));
            free(part);
        }
        free(whole);
        linear_call_free(c);
    }
}

static void rounding_modes_of_the_caller_change_no_bit(void **state)
{
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    (void)state;
    for (int number = 0; number < CASES / 4; number++) {
        struct linear_call *const c = draw_call(number);
        char *const expected = linear_call_reference(c);
        for (int i = 0; i < name_count; i++) {
            linear_call_pack(c, (struct runner){.isa = names[i], .threads = 1});
            assert_int_equal(fesetround(modes[number % 3]), 0);
            linear_call_run(c, (struct runner){.isa = names[i], .threads = 1});
            assert_int_equal(fegetround(), modes[number % 3]);
            assert_int_equal(fesetround(FE_TONEAREST), 0);
            char *const y = linear_call_take(c);
            assert_true(linear_call_same(c, y, expected, c->args.rows));
            free(y);
        }
        free(expected);
        linear_call_free(c);
    }
}

/* --- The bound -------------------------------------------------------------------------------- */

/* An element y, its bias, and the row of x and the row of w that make it, both as binary32. */
struct row {
    int64_t in_dim;
    const float *x, *w;
    double bias, y;
    attnkit_type y_type;
};

/* The true value of an element, and two terms of its bound: the largest error by rounding x to
 * integers, and the largest sum of magnitudes of the rounded terms. */
struct truth {
    double y, of_rounding, magnitude;
};

/* Returns the largest error by rounding x to an integer n. Let L be the largest |x| of the group,
 * `largest`. The factor 127 / L is rounded to binary32, and the product of x and this factor is
 * rounded to binary32. Then the product is rounded to n, which moves it by at most 1/2. The scale
 * is L / 127 with two roundings. So n times the scale differs from x by at most L / 254 with two
 * roundings, plus four roundings of x. The factors 1 + 4 U and 5 U also cover products of
 * roundings. If L is below 2^-100, all n are 0. */
static double rounding_of(double largest, double x)
{
    if (largest < 0x1p-100)
        return fabs(x);
    return largest / 254 * (1 + 4 * U) + 5 * U * fabs(x);
}

/* Returns the largest magnitude of a group. */
static float largest_of(const float *x)
{
    float largest = 0.0f;
    for (int i = 0; i < Q8_BLOCK; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    return largest;
}

static struct truth truth_of(const struct row *r)
{
    struct truth t = {0, 0, 0};
    for (int64_t g = 0; g < r->in_dim; g += Q8_BLOCK) {
        const double largest = (double)largest_of(r->x + g);
        for (int64_t d = g; d < g + Q8_BLOCK; d++) {
            const double x = (double)r->x[d], w = (double)r->w[d];
            t.y += x * w;
            t.of_rounding += rounding_of(largest, x) * fabs(w);
            t.magnitude += (fabs(x) + rounding_of(largest, x)) * fabs(w);
        }
    }
    t.y += r->bias;
    return t;
}

/* Returns the bound of the error of an element. The sum takes n = in_dim / 32 multiply-adds. In a
 * multiply-add, an integer is multiplied by the product of both scales of a group. The integer is
 * at most 2^19 in magnitude. The product of the scales is off by at most U times itself, or by
 * 2^-150 if the product is subnormal. The truth is a sum of in_dim terms, rounded in binary64. A
 * result of 16 bits is off by at most half a unit in its last place. */
static double bound_of(const struct row *r, struct truth t)
{
    const double n = (double)(r->in_dim / Q8_BLOCK);
    const double chain = (n + 1) * U / (1 - (n + 1) * U) * t.magnitude + n * (0x1p-131 + 0x1p-149);
    const double binary64 = ((double)r->in_dim + 1) * 0x1p-52 * (t.magnitude + fabs(t.y));
    const double summed = t.of_rounding + chain;
    const double all = summed + U * (fabs(t.y) + summed) + binary64;
    switch (r->y_type) {
    case ATTNKIT_F16:
        return all * (1 + 0x1p-11) + 0x1p-11 * fabs(t.y) + 0x1p-25;
    case ATTNKIT_BF16:
        return all * (1 + 0x1p-8) + 0x1p-8 * fabs(t.y) + 0x1p-134;
    default:
        return all;
    }
}

/* Widens the integers and scales that packing makes of row `out` of w. */
static void widen_w(const struct linear_call *c, int64_t out, float *w)
{
    const int64_t n = c->args.in_dim;
    char *const blocks = malloc((size_t)bytes_of(TYPE_Q8_0, n));
    const char *const row = tensor_row(&c->w, 0, 0, out);
    if (c->pack.w.type == ATTNKIT_Q8_0) {
        memcpy(blocks, row, (size_t)bytes_of(TYPE_Q8_0, n));
    } else {
        widen_row((enum type)c->pack.w.type, row, NULL, 0, n, w);
        attnkit_scalar_narrow(TYPE_Q8_0, w, n, 0, blocks, NULL);
    }
    widen_row(TYPE_Q8_0, blocks, NULL, 0, n, w);
    free(blocks);
}

/* Checks the elements of column `out` of y, but not elements that may overflow binary16. Returns
 * the largest error / bound. `w` has room for a row of w. */
static double check_column(const struct linear_call *c, int64_t out, const float *x, const char *y,
                           float *w)
{
    double worst = 0;
    widen_w(c, out, w);
    for (int64_t i = 0; i < c->args.rows; i++) {
        float value;
        const enum type type = (enum type)c->args.y.type;
        widen_row(type, y + i * c->y.row_bytes + bytes_of(type, out), NULL, 0, 1, &value);
        const struct row r = {.in_dim = c->args.in_dim,
                              .x = x + i * c->args.in_dim,
                              .w = w,
                              .bias = c->args.bias ? (double)c->args.bias[out] : 0.0,
                              .y = (double)value,
                              .y_type = c->args.y.type};
        const struct truth t = truth_of(&r);
        const double bound = bound_of(&r, t), error = fabs(r.y - t.y);
        const bool overflows = type == TYPE_F16 && fabs(t.y) + bound >= 65504.0;
        if (!(error <= bound) && !overflows)
            fail_msg("y[%d][%d] is %a, not %a: off by %g, bound %g", (int)i, (int)out, r.y, t.y,
                     error, bound);
        worst = overflows ? worst : fmax(worst, error / bound);
    }
    return worst;
}

/* Returns whether every number is finite and below 10^6 in magnitude, so that no sum in binary32
 * overflows. */
static bool are_ordinary(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) < 1e6f))
            return false;
    return true;
}

static void every_element_is_inside_the_bound(void **state)
{
    double worst = 0;
    (void)state;
    for (int number = 0; number < CASES; number++) {
        struct linear_call *const c = draw_call(number);
        const int64_t n = c->args.in_dim;
        char *const y = linear_call_reference(c);
        float *const w = malloc((size_t)n * sizeof *w);
        float *const x = malloc((size_t)(c->args.rows * n) * sizeof *x);
        for (int64_t i = 0; i < c->args.rows; i++)
            widen_row((enum type)c->args.x.type, tensor_row(&c->x, 0, 0, i), NULL, 0, n, x + i * n);
        const bool is_ordinary = are_ordinary(x, c->args.rows * n);
        for (int64_t out = 0; out < c->args.out_dim && is_ordinary; out++) {
            widen_w(c, out, w);
            if (are_ordinary(w, n) && (!c->args.bias || are_ordinary(c->args.bias + out, 1)))
                worst = fmax(worst, check_column(c, out, x, y, w));
        }
        free(w);
        free(x);
        free(y);
        linear_call_free(c);
    }
    printf("# worst error / bound: %.3f\n", worst);
    assert_true(worst > 0.2 && worst <= 1.0);
}

/* The root mean square error of y from rounding x is at most 1.1 times the error from rounding w to
 * Q8_0. Both roundings make integers of 8 bits with a scale for each 32 elements. */
static void error_of_rounding_x_is_about_the_error_of_rounding_w(void **state)
{
    enum { ROWS = 20, DIM = 1024, OUTS = 100 };
    const struct linear_kind kind = {.packed_type = ATTNKIT_Q8_0, .integers = true};
    double of_x = 0, of_w = 0;
    (void)state;
    struct linear_call *const c = linear_call_new(&kind, (struct linear_shape){ROWS, DIM, OUTS}, 3);
    char *const y = linear_call_reference(c);
    float w[DIM];
    for (int64_t out = 0; out < OUTS; out++) {
        const float *const true_w = (const float *)(const void *)tensor_row(&c->w, 0, 0, out);
        widen_w(c, out, w);
        for (int64_t i = 0; i < ROWS; i++) {
            const float *const x = (const float *)(const void *)tensor_row(&c->x, 0, 0, i);
            double with = 0, without = 0;
            for (int64_t d = 0; d < DIM; d++) {
                with += (double)x[d] * (double)w[d];
                without += (double)x[d] * (double)true_w[d];
            }
            const double rounded = (double)((const float *)(const void *)y)[i * OUTS + out];
            of_x += (rounded - with) * (rounded - with);
            of_w += (with - without) * (with - without);
        }
    }
    printf("# error by rounding x / error by rounding w: %.3f\n", sqrt(of_x / of_w));
    assert_true(of_x < 1.1 * 1.1 * of_w);
    free(y);
    linear_call_free(c);
}

/* --- Strange numbers -------------------------------------------------------------------------- */

enum { STRANGE = 200, STRANGE_ROWS = 6, STRANGE_DIM = 96, STRANGE_OUTS = 20 };

/* Replaces the blocks of w by random bytes, with scales of any size and sign. In half of the calls,
 * one or two scales are not finite. */
static void put_blocks(const struct linear_call *c, uint64_t *random)
{
    static const uint16_t scales[] = {0x0000, 0x0001, 0x8001, 0x03ff,
                                      0x2000, 0xa000, 0x7bff, 0x2400};
    static const uint16_t not_finite[] = {0x7c00, 0xfc00, 0x7e00, 0x7c01};
    const int64_t blocks = c->args.in_dim / Q8_BLOCK;
    for (int64_t out = 0; out < c->args.out_dim; out++) {
        char *block = tensor_row(&c->w, 0, 0, out);
        for (int64_t b = 0; b < blocks; b++, block += Q8_BLOCK_BYTES) {
            memcpy(block, &scales[random_below(random, 8)], sizeof scales[0]);
            for (int i = 0; i < Q8_BLOCK; i++)
                block[2 + i] = random_below(random, 4) ? (char)random_below(random, 256) : -128;
        }
    }
    for (int64_t i = random_below(random, 4); i < 2; i++)
        memcpy(tensor_row(&c->w, 0, 0, random_below(random, c->args.out_dim)) +
                   random_below(random, blocks) * Q8_BLOCK_BYTES,
               &not_finite[random_below(random, 4)], sizeof not_finite[0]);
}

/* Replaces x by random numbers, with a size drawn for each group. About one call in three has a
 * number that is not finite. */
static void put_x(const struct linear_call *c, uint64_t *random)
{
    static const float sizes[] = {1.0f,      1e-3f,     0x1p100f, 0x1p-99f,
                                  0x1p-101f, 0x1p-130f, 0x1p126f, 0.0f};
    static const float not_finite[] = {NAN, INFINITY, -INFINITY};
    for (int64_t i = 0; i < c->args.rows; i++) {
        float *const x = (float *)(void *)tensor_row(&c->x, 0, 0, i);
        for (int64_t d = 0; d < c->args.in_dim; d += Q8_BLOCK) {
            const float size = sizes[random_below(random, 8)];
            for (int e = 0; e < Q8_BLOCK; e++)
                x[d + e] = size * (2 * random_uniform(random) - 1);
        }
        if (random_below(random, 3 * c->args.rows) == 0)
            x[random_below(random, c->args.in_dim)] = not_finite[random_below(random, 3)];
    }
}

static void strange_numbers_have_the_bits_of_the_reference(void **state)
{
    const struct linear_kind kind = {
        .w_type = ATTNKIT_Q8_0, .packed_type = ATTNKIT_Q8_0, .bias = true, .integers = true};
    (void)state;
    for (int number = 0; number < STRANGE * (is_long_run() ? LONGER : 1); number++) {
        uint64_t random = (uint64_t)number + 1;
        const struct linear_shape shape = {1 + random_below(&random, STRANGE_ROWS), STRANGE_DIM,
                                           STRANGE_OUTS};
        struct linear_call *const c = linear_call_new(&kind, shape, random_bits(&random));
        put_blocks(c, &random);
        put_x(c, &random);
        for (int i = 0; i < name_count; i++)
            check(number, c, names[i], 1);
        linear_call_free(c);
    }
}

/* Computes y of a call with `beside` rows of x, all equal to `x`, and `beside` rows of w, all with
 * the blocks `w`. Returns the last element of y. */
static float value(const float *x, const char *w, int64_t in_dim, int64_t beside, const char *name)
{
    const struct linear_kind kind = {
        .w_type = ATTNKIT_Q8_0, .packed_type = ATTNKIT_Q8_0, .integers = true};
    struct linear_call *const c =
        linear_call_new(&kind, (struct linear_shape){beside, in_dim, beside}, 1);
    for (int64_t i = 0; i < beside; i++) {
        memcpy(tensor_row(&c->x, 0, 0, i), x, (size_t)c->x.row_bytes);
        memcpy(tensor_row(&c->w, 0, 0, i), w, (size_t)c->w.row_bytes);
    }
    linear_call_pack(c, (struct runner){.isa = name, .threads = 1});
    linear_call_run(c, (struct runner){.isa = name, .threads = 1});
    float y;
    memcpy(&y, tensor_row(&c->y, 0, 0, beside - 1) + 4 * (beside - 1), sizeof y);
    linear_call_free(c);
    return y;
}

static void put_block(char *block, uint16_t scale, int byte)
{
    memcpy(block, &scale, sizeof scale);
    memset(block + sizeof scale, byte, Q8_BLOCK);
}

/* Checks the value of y in a call of one row and one output, and in a call of 40 rows and 40
 * outputs. */
static void expect_sum(const float *x, const char *w, int64_t in_dim, float expected)
{
    for (int i = 0; i < name_count; i++)
        for (int64_t beside = 1; beside <= 40; beside += 39) {
            const float y = value(x, w, in_dim, beside, names[i]);
            if (isnan(expected) ? !isnan(y) : y != expected)
                fail_msg("%s, %d rows: %a instead of %a", names[i], (int)beside, y, expected);
        }
}

static void results_are_those_of_the_header(void **state)
{
    enum { ONE = 0x3c00, HALF_INFINITY = 0x7c00 };
    float x[2 * Q8_BLOCK];
    char w[2 * Q8_BLOCK_BYTES];
    (void)state;
    put_block(w, ONE, -128);
    put_block(w + Q8_BLOCK_BYTES, ONE, 127);
    for (int d = 0; d < 2 * Q8_BLOCK; d++)
        x[d] = 127.0f;
    /* Each integer of x is 127, and the scale of x is 1. The sum of the 32 products of the first
     * group has the largest possible magnitude. The first check has only the first group, the
     * second check has both groups. */
    expect_sum(x, w, Q8_BLOCK, -127.0f * 128.0f * 32.0f);
    expect_sum(x, w, 2 * Q8_BLOCK, -127.0f * 32.0f);
    /* Ties go to the even integer: 126.5 becomes 126, and 0.5 becomes 0. */
    x[0] = 126.5f;
    x[1] = 0.5f;
    expect_sum(x, w, Q8_BLOCK, -(126.0f + 30 * 127.0f) * 128.0f);
    /* A group of x whose magnitudes are all below 2^-100 becomes 0, whatever is in other groups. */
    for (int d = 0; d < Q8_BLOCK; d++)
        x[d] = 0x1.fp-101f;
    expect_sum(x, w, Q8_BLOCK, 0.0f);
    expect_sum(x, w, 2 * Q8_BLOCK, 127.0f * 127.0f * 32.0f);
    /* 0 times an infinite scale of w is NaN. */
    put_block(w, HALF_INFINITY, 1);
    expect_sum(x, w, Q8_BLOCK, NAN);
    x[0] = 1.0f;
    expect_sum(x, w, Q8_BLOCK, INFINITY);
    /* A NaN or an infinity in x makes its row of y NaN, also where w is 0. */
    put_block(w, ONE, 0);
    x[0] = INFINITY;
    expect_sum(x, w, Q8_BLOCK, NAN);
    x[0] = NAN;
    expect_sum(x, w, 2 * Q8_BLOCK, NAN);
}

/* --- The program ------------------------------------------------------------------------------ */

/* Adds the name of an instruction set or a unit that can run here (`runs`), if the user asked for
 * this name or for all names. */
static void add_name(const char *name, bool runs, const char *wanted)
{
    if (runs && (!wanted || strcmp(wanted, name) == 0))
        names[name_count++] = name;
}

static void find_names(const char *wanted)
{
    const struct isa *isas;
    const struct unit *units;
    const int isa_count = attnkit_isas(&isas), unit_count = attnkit_units(&units);
    for (int i = 0; i < isa_count; i++)
        add_name(name_without_units(i), attnkit_isa_can_run(&isas[i]), wanted);
    for (int i = 0; i < unit_count; i++)
        add_name(units[i].name, attnkit_unit_can_run(&units[i]), wanted);
}

int main(int argc, char **argv)
{
    find_names(argc == 3 && strcmp(argv[1], "--isa") == 0 ? argv[2] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_have_the_bits_of_the_reference),
        cmocka_unit_test(large_shapes_have_the_bits_of_the_reference),
        cmocka_unit_test(rows_have_the_bits_that_they_have_in_any_batch),
        cmocka_unit_test(rounding_modes_of_the_caller_change_no_bit),
        cmocka_unit_test(every_element_is_inside_the_bound),
        cmocka_unit_test(error_of_rounding_x_is_about_the_error_of_rounding_w),
        cmocka_unit_test(strange_numbers_have_the_bits_of_the_reference),
        cmocka_unit_test(results_are_those_of_the_header),
    };
    if (name_count == 0) {
        printf("1..0 # SKIP %s cannot run here\n", argv[2]);
        return 0;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    memory_end();
    return failed;
}
