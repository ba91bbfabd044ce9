/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps. The packed matrix has the bytes that include/attnkit/linear.h describes. y has the
 * bits of the scalar reference, which does not pack. The tests cover all types, shapes around every
 * block size, layouts with unmapped pages next to rows, and threads in any order. A row of y has
 * the same bits if a call computes only some of the rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/call.h"
#include "tests/support/linear_call.h"

enum {
    ROUNDED_TYPES = 3, /* number of types that x and y can have */
    REPORTED = 5,      /* differences after which a test stops */
    CASE_COST = 100000 /* the most multiply-adds of a drawn shape */
};

static const int64_t row_counts[] = {1, 2, 3, 5, 6, 8, 9, 15, 16, 17, 63, 64, 65, 130, 257, 513};
static const int64_t in_dims[] = {1,   2,   31,  32,  63,  65,   97,  255,
                                  256, 257, 511, 512, 513, 1056, 4097};
static const int64_t out_dims[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 130, 257, 513};

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

static const struct linear_kind plain = {.bias = true};

static bool has_blocks(const struct linear_kind *k)
{
    return k->w_type == ATTNKIT_Q8_0 || k->packed_type == ATTNKIT_Q8_0;
}

static void print(const struct linear_kind *k, struct linear_shape s, const char *isa,
                  const char *wrong)
{
    printf("# %s: %s: rows %lld in_dim %lld out_dim %lld; types x %d w %d packed %d y %d bias %d "
           "layout %d numbers %d\n",
           isa, wrong, (long long)s.rows, (long long)s.in_dim, (long long)s.out_dim, (int)k->x_type,
           (int)k->w_type, (int)k->packed_type, (int)k->y_type, k->bias, (int)k->layout,
           (int)k->numbers);
}

/* Returns 1 if the case has a wrong result, else 0. */
static int check(const struct linear_kind *k, struct linear_shape shape, uint64_t seed,
                 const char *isa)
{
    struct linear_call *const c = linear_call_new(k, shape, seed);
    const char *const wrong =
        linear_call_check(c, (struct runner){.isa = isa, .threads = 1 + (int)(seed % 5)});
    if (wrong)
        print(k, shape, isa, wrong);
    linear_call_free(c);
    return wrong != NULL;
}

static double cost(struct linear_shape s)
{
    return (double)s.rows * (double)s.in_dim * (double)s.out_dim;
}

/* Draws a shape from the lists of sizes. The shape costs at most CASE_COST multiply-adds. If the
 * matrix has blocks, in_dim is rounded up to whole blocks. */
static struct linear_shape draw_shape(const struct linear_kind *k, uint64_t *random)
{
    struct linear_shape s;
    do {
        s = (struct linear_shape){row_counts[random_below(random, COUNT(row_counts))],
                                  in_dims[random_below(random, COUNT(in_dims))],
                                  out_dims[random_below(random, COUNT(out_dims))]};
        if (has_blocks(k))
            s.in_dim = (s.in_dim + Q8_BLOCK - 1) / Q8_BLOCK * Q8_BLOCK;
    } while (cost(s) > CASE_COST);
    return s;
}

static int check_layouts(struct linear_kind k, uint64_t *random, const char *isa)
{
    int differ = 0;
    for (int layout = 0; layout < TENSOR_LAYOUTS; layout++) {
        k.layout = tensor_layouts[layout];
        k.bias = random_below(random, 3) > 0;
        k.numbers = (enum numbers)random_below(random, NUMBERS);
        const struct linear_shape shape = draw_shape(&k, random);
        differ += check(&k, shape, random_bits(random), isa);
    }
    return differ;
}

static void types_and_layouts_have_the_bits_of_the_reference(void **state)
{
    uint64_t random = 1;
    int differ = 0;
    for (int x = 0; x < ROUNDED_TYPES; x++)
        for (int w = 0; w < MATRIX_CONVERSIONS; w++)
            for (int y = 0; y < ROUNDED_TYPES && differ < REPORTED; y++)
                differ +=
                    check_layouts((struct linear_kind){.x_type = (attnkit_type)x,
                                                       .w_type = matrix_conversions[w][0],
                                                       .packed_type = matrix_conversions[w][1],
                                                       .y_type = (attnkit_type)y},
                                  &random, *state);
    assert_int_equal(differ, 0);
}

/* Kinds of maps for which the library takes different branches. */
static const struct linear_kind ways[] = {
    {.bias = true},
    {.y_type = ATTNKIT_BF16},
    {.x_type = ATTNKIT_F16, .packed_type = ATTNKIT_F16, .w_type = ATTNKIT_F16, .bias = true},
};

static void shapes_have_the_bits_of_the_reference(void **state)
{
    int differ = 0;
    uint64_t seed = 1;
    for (int64_t r = 0; r < COUNT(row_counts); r++)
        for (int64_t i = 0; i < COUNT(in_dims); i++)
            for (int64_t o = 0; o < COUNT(out_dims) && differ < REPORTED; o++) {
                const struct linear_shape s = {row_counts[r], in_dims[i], out_dims[o]};
                const struct linear_kind *const way = &ways[seed++ % (uint64_t)COUNT(ways)];
                if (cost(s) <= CASE_COST)
                    differ += check(way, s, seed, *state);
            }
    assert_int_equal(differ, 0);
}

/* All shapes have several cuts of inputs. Some also have several panels, or several blocks of
 * rows. */
static void large_shapes_have_the_bits_of_the_reference(void **state)
{
    static const struct linear_shape shapes[] = {
        {513, 520, 70}, {17, 4097, 130}, {70, 4097, 17}, {300, 530, 200}};
    static const struct linear_kind kinds[] = {
        {.bias = true},
        {.w_type = ATTNKIT_BF16, .packed_type = ATTNKIT_BF16, .y_type = ATTNKIT_F16},
        {.x_type = ATTNKIT_BF16, .bias = true, .layout = PADDED},
        {.w_type = ATTNKIT_F16, .y_type = ATTNKIT_BF16, .layout = REVERSED},
    };
    for (int64_t i = 0; i < COUNT(shapes); i++)
        assert_int_equal(check(&kinds[i], shapes[i], (uint64_t)i, *state), 0);
}

/* --- One result, however a call is made ------------------------------------------------------- */

static void threads_in_any_order_and_twice_change_no_bit(void **state)
{
    static const struct linear_shape shapes[] = {{300, 40, 200}, {2, 64, 500}, {1, 5, 3}};
    for (int64_t s = 0; s < COUNT(shapes); s++) {
        struct linear_call *const c = linear_call_new(&plain, shapes[s], 1);
        for (int threads = 1; threads <= 20; threads++)
            assert_null(linear_call_check(c, (struct runner){.isa = *state, .threads = threads}));
        linear_call_free(c);
    }
}

/* Runs a call of rows `first` to first + count - 1 only. The caller frees the returned y. */
static char *rows_alone(const struct linear_call *c, int64_t first, int64_t count, const char *isa)
{
    struct linear_call part = *c;
    part.args.rows = part.x.count[2] = part.y.count[2] = count;
    part.args.x.data = part.x.first = tensor_row(&c->x, 0, 0, first);
    part.args.y.data = part.y.first = tensor_row(&c->y, 0, 0, first);
    linear_call_run(&part, (struct runner){.isa = isa, .threads = 1});
    return linear_call_take(&part);
}

/* Cuts the rows into parts of 1, 2, 3, ... rows, and compares each part with the whole call. */
static void check_parts(const struct linear_kind *k, struct linear_shape shape, const char *isa)
{
    struct linear_call *const c = linear_call_new(k, shape, 5);
    linear_call_pack(c, (struct runner){.isa = isa, .threads = 1});
    linear_call_run(c, (struct runner){.isa = isa, .threads = 1});
    char *const whole = linear_call_take(c);
    assert_non_null(whole);
    int64_t first = 0;
    for (int64_t count = 1; first < shape.rows; first += count, count++) {
        count = count < shape.rows - first ? count : shape.rows - first;
        char *const part = rows_alone(c, first, count, isa);
        assert_non_null(part);
        assert_true(linear_call_same(c, part, whole + first * c->y.row_bytes, count));
        free(part);
    }
    free(whole);
    linear_call_free(c);
}

static void rows_have_the_bits_that_they_have_alone(void **state)
{
    for (int w = 0; w < MATRIX_CONVERSIONS; w++) {
        const struct linear_kind k = {.w_type = matrix_conversions[w][0],
                                      .packed_type = matrix_conversions[w][1],
                                      .y_type = (attnkit_type)(w % ROUNDED_TYPES),
                                      .bias = w % 2,
                                      .numbers = w % 3 ? NORMAL : SPECIAL,
                                      .layout = PADDED};
        check_parts(&k, (struct linear_shape){78, 288, 81}, *state);
    }
    check_parts(&plain, (struct linear_shape){300, 20, 17}, *state);
}

/* With a stride of 0, every row of x is the same row of memory. */
static void rows_of_x_may_be_one_row(void **state)
{
    struct linear_call *const c = linear_call_new(&plain, (struct linear_shape){67, 33, 50}, 1);
    struct linear_call repeated = *c;
    repeated.args.x.layout = ATTNKIT_STRIDED;
    repeated.args.x.strides[2] = repeated.x.strides[2] = 0;
    assert_null(linear_call_check(&repeated, (struct runner){.isa = *state, .threads = 2}));
    linear_call_free(c);
}

static void packing_is_the_same_for_any_threads(void **state)
{
    for (int w = 0; w < MATRIX_CONVERSIONS; w++)
        for (int threads = 1; threads <= 8; threads++) {
            const struct linear_kind k = {.w_type = matrix_conversions[w][0],
                                          .packed_type = matrix_conversions[w][1],
                                          .numbers = SPECIAL,
                                          .layout = tensor_layouts[threads % TENSOR_LAYOUTS]};
            struct linear_call *const c =
                linear_call_new(&k, (struct linear_shape){1, 32 * threads, 70}, (uint64_t)threads);
            linear_call_pack(c, (struct runner){.isa = *state, .threads = threads});
            assert_true(linear_call_is_packed(c));
            linear_call_free(c);
        }
}

/* --- Values ----------------------------------------------------------------------------------- */

/* Computes y for one row and one output. If `many` is true, the call has many other rows and
 * outputs. */
static float value(const float *x, const float *w, int64_t in_dim, const float *bias, bool many,
                   const char *isa)
{
    const struct linear_kind k = {.bias = bias};
    const int64_t beside = many ? 40 : 1;
    struct linear_call *const c =
        linear_call_new(&k, (struct linear_shape){beside, in_dim, beside}, 1);
    for (int64_t i = 0; i < beside; i++) {
        memcpy(tensor_row(&c->x, 0, 0, i), x, (size_t)c->x.row_bytes);
        memcpy(tensor_row(&c->w, 0, 0, i), w, (size_t)c->w.row_bytes);
        if (bias)
            memcpy(c->bias.data + 4 * i, bias, sizeof *bias);
    }
    linear_call_pack(c, (struct runner){.isa = isa, .threads = 1});
    linear_call_run(c, (struct runner){.isa = isa, .threads = 1});
    float y;
    memcpy(&y, tensor_row(&c->y, 0, 0, beside - 1) + 4 * (beside - 1), sizeof y);
    linear_call_free(c);
    return y;
}

static void sums_are_taken_in_order(void **state)
{
    static const float ones[] = {1, 1, 1}, falling[] = {1, 0x1p-24f, 0x1p-24f},
                       rising[] = {0x1p-24f, 0x1p-24f, 1};
    for (int many = 0; many < 2; many++) {
        assert_true(value(falling, ones, 3, NULL, many, *state) == 1.0f);
        assert_true(value(rising, ones, 3, NULL, many, *state) == 1.0f + 0x1p-23f);
    }
}

static void products_are_not_rounded(void **state)
{
    static const float x[] = {-1, 1 + 0x1p-12f}, w[] = {1 + 0x1p-11f, 1 + 0x1p-12f};
    for (int many = 0; many < 2; many++)
        assert_true(value(x, w, 2, NULL, many, *state) == 0x1p-24f);
}

static void bias_is_added_to_the_sum(void **state)
{
    static const float x[] = {0x1p-24f, 0x1p-24f}, w[] = {1, 1}, one = 1;
    for (int many = 0; many < 2; many++)
        assert_true(value(x, w, 2, &one, many, *state) == 1.0f + 0x1p-23f);
}

static void zeros_have_the_signs_of_the_order(void **state)
{
    static const float x[] = {-0.0f, 0.0f}, w[] = {1, -1}, minus_zero = -0.0f;
    for (int many = 0; many < 2; many++) {
        assert_false(signbit(value(x, w, 2, NULL, many, *state)));
        assert_false(signbit(value(x, w, 2, &minus_zero, many, *state)));
    }
}

static void nan_and_infinity_are_not_lost(void **state)
{
    static const float zero[] = {0, 0, 1}, w[] = {1, NAN, 1}, far[] = {1, 1, INFINITY}, one = 1;
    for (int many = 0; many < 2; many++) {
        assert_true(isnan(value(zero, w, 3, NULL, many, *state)));
        assert_true(value(far, w, 1, NULL, many, *state) == 1.0f);
        assert_true(value(far, far, 3, &one, many, *state) == INFINITY);
        assert_true(isnan(value(zero, far, 3, &w[1], many, *state)));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest promises[] = {
        cmocka_unit_test(types_and_layouts_have_the_bits_of_the_reference),
        cmocka_unit_test(shapes_have_the_bits_of_the_reference),
        cmocka_unit_test(large_shapes_have_the_bits_of_the_reference),
        cmocka_unit_test(threads_in_any_order_and_twice_change_no_bit),
        cmocka_unit_test(rows_have_the_bits_that_they_have_alone),
        cmocka_unit_test(rows_of_x_may_be_one_row),
        cmocka_unit_test(packing_is_the_same_for_any_threads),
        cmocka_unit_test(sums_are_taken_in_order),
        cmocka_unit_test(products_are_not_rounded),
        cmocka_unit_test(bias_is_added_to_the_sum),
        cmocka_unit_test(zeros_have_the_signs_of_the_order),
        cmocka_unit_test(nan_and_infinity_are_not_lost),
    };
    const int failed = promises_main("linear", promises, (int)COUNT(promises), argc, argv);
    memory_end();
    return failed;
}
