/* SPDX-License-Identifier: Apache-2.0
 *
 * The error of y of a linear map. For some combinations of types, with every kind of numbers in
 * enum data, each element differs from the sum in binary64 by at most a bound. The bound is derived
 * from the order of the roundings. check_bound defines the unit of an error, a rounding. With x, w
 * and y of binary32, the error of sums that stay around 0 is at most 4 roundings, and the error of
 * sums that only grow is at most sqrt(in_dim) roundings.
 *
 * Usage: linear_accuracy [ISA]
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

#include "kernels/scalar/scalar.h"
#include "attnkit.h"
#include "tests/support/call.h"
#include "tests/support/formats.h"
#include "tests/support/random.h"

static const double U = 0x1p-24; /* half the distance from 1 to the next float */

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

enum data {
    CENTRED,    /* normally distributed numbers */
    POSITIVE,   /* all terms are positive, so sums only grow */
    WIDE,       /* exponents are far apart */
    CANCELLING, /* the signs of the terms alternate */
    TINY,       /* products are subnormal in binary32, or 0 */
    DATA,
};

struct types {
    attnkit_type x, w, y;
};

/* A dense linear map, and its operands and y widened to binary32. */
struct map {
    struct types types;
    int64_t rows, in_dim, out_dim;
    float *x, *w, *bias, *y;
};

/* --- The map ---------------------------------------------------------------------------------- */

static float *new_floats(int64_t count)
{
    return malloc((size_t)count * sizeof(float));
}

static float draw(enum data data, int64_t d, uint64_t *random)
{
    switch (data) {
    case POSITIVE:
        return 1.0f + random_uniform(random);
    case WIDE:
        return ldexpf(random_normal(random), (int)random_below(random, 24) - 22);
    case CANCELLING:
        return (d % 2 ? -1.0f : 1.0f) + random_uniform(random) * 0x1p-10f;
    case TINY:
        return random_normal(random) * 0x1p-68f;
    default:
        return random_normal(random);
    }
}

/* Draws rows and returns them in their stored type. Sets x to the numbers that the stored rows
 * stand for. */
static char *draw_rows(float *x, attnkit_type type, int64_t rows, int64_t dim, enum data data,
                       uint64_t *random)
{
    const int64_t row = bytes_of((enum type)type, dim);
    char *const stored = malloc((size_t)(rows * row));
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t d = 0; d < dim; d++)
            x[i * dim + d] = draw(data, d, random);
        attnkit_scalar_narrow((enum type)type, x + i * dim, dim, 0, stored + i * row, NULL);
        widen_row((enum type)type, stored + i * row, NULL, 0, dim, x + i * dim);
    }
    return stored;
}

static void expect_ok(attnkit_status status, const char *message)
{
    if (status != ATTNKIT_OK)
        fail_msg("%s: %s", attnkit_status_string(status), message);
}

static void *new_packed(const struct map *m, const char *w)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_pack_args args = {.size = sizeof args,
                              .out_dim = m->out_dim,
                              .in_dim = m->in_dim,
                              .w = {.data = w, .type = m->types.w},
                              .packed_type = m->types.w};
    expect_ok(attnkit_packed_size(&args, &args.packed_size, message), message);
    args.packed = aligned_alloc(64, (args.packed_size + 63) / 64 * 64);
    expect_ok(attnkit_pack(&args, NULL, message), message);
    return args.packed;
}

/* Runs the map and widens y to binary32. */
static void run(struct map *m, const char *x, const void *packed, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    char *const y = malloc((size_t)(m->rows * bytes_of((enum type)m->types.y, m->out_dim)));
    const attnkit_linear_args args = {.size = sizeof args,
                                      .rows = m->rows,
                                      .in_dim = m->in_dim,
                                      .out_dim = m->out_dim,
                                      .x = {.data = x, .type = m->types.x},
                                      .w = {.data = packed, .type = m->types.w},
                                      .y = {.data = y, .type = m->types.y},
                                      .bias = m->bias};
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    expect_ok(attnkit_linear_workspace(&args, &exec, &exec.workspace_size, message), message);
    exec.workspace = malloc(exec.workspace_size);
    expect_ok(attnkit_linear(&args, &exec, message), message);
    widen_row((enum type)m->types.y, y, NULL, 0, m->rows * m->out_dim, m->y);
    free(exec.workspace);
    free(y);
}

/* Draws the numbers of a map, packs w and runs the map. The caller frees the map by free_map. */
static struct map done_map(struct types types, int64_t rows, int64_t in_dim, int64_t out_dim,
                           enum data data, const char *isa)
{
    struct map m = {types,
                    rows,
                    in_dim,
                    out_dim,
                    new_floats(rows * in_dim),
                    new_floats(out_dim * in_dim),
                    new_floats(out_dim),
                    new_floats(rows * out_dim)};
    uint64_t random = (uint64_t)in_dim;
    char *const x = draw_rows(m.x, types.x, rows, in_dim, data, &random);
    /* With CANCELLING, w is positive, so that the terms of a sum have the signs of x. */
    char *const w =
        draw_rows(m.w, types.w, out_dim, in_dim, data == CANCELLING ? POSITIVE : data, &random);
    for (int64_t o = 0; o < out_dim; o++)
        m.bias[o] = draw(data, o, &random) * (data == TINY ? 0x1p-68f : 1.0f);
    void *const packed = new_packed(&m, w);
    run(&m, x, packed, isa);
    free(x);
    free(w);
    free(packed);
    return m;
}

static void free_map(struct map *m)
{
    free(m->x);
    free(m->w);
    free(m->bias);
    free(m->y);
}

/* --- The error -------------------------------------------------------------------------------- */

/* The true value of an element, and the sum of the magnitudes of its terms without the bias.
 * Products of two floats are exact in binary64. The sum of the terms is off by at most
 * in_dim * 2^-53 times `magnitude`. */
struct truth {
    double y, magnitude;
};

static struct truth truth_of(const struct map *m, int64_t row, int64_t out)
{
    struct truth t = {0, 0};
    for (int64_t d = 0; d < m->in_dim; d++) {
        const double term = (double)m->x[row * m->in_dim + d] * (double)m->w[out * m->in_dim + d];
        t.y += term;
        t.magnitude += fabs(term);
    }
    t.y += (double)m->bias[out];
    return t;
}

/* Returns the bound of an element. A sum by n fused multiply-adds is off by at most n U / (1 - n U)
 * times the sum of the magnitudes, and by the underflow of each multiply-add. An underflow loses at
 * most 2^-150, half the smallest subnormal number. Later roundings can enlarge this loss, but the
 * loss stays below 2^-149. The addition of the bias cannot underflow, and is off by at most U times
 * the sum. The rounding to a 16-bit result adds at most half a unit in the last place. */
static double bound(const struct map *m, struct truth t)
{
    const double n = (double)m->in_dim;
    const double chain = n * U / (1 - n * U) * t.magnitude + n * 0x1p-149;
    const double binary64 = (n + 1) * 0x1p-53 * (t.magnitude + fabs(t.y));
    const double summed = chain * (1 + U) + U * fabs(t.y) + binary64;
    switch (m->types.y) {
    case ATTNKIT_F16:
        return summed * (1 + 0x1p-11) + 0x1p-11 * fabs(t.y) + 0x1p-25;
    case ATTNKIT_BF16:
        return summed * (1 + 0x1p-8) + 0x1p-8 * fabs(t.y) + 0x1p-134;
    default:
        return summed;
    }
}

/* Fails the test if an element is outside the bound. Returns the largest error in roundings. A
 * rounding is U (magnitude + |y|) + 2^-149. */
static double check_bound(const struct map *m)
{
    double most = 0;
    for (int64_t row = 0; row < m->rows; row++)
        for (int64_t out = 0; out < m->out_dim; out++) {
            const struct truth t = truth_of(m, row, out);
            const double y = (double)m->y[row * m->out_dim + out], error = fabs(y - t.y);
            const double roundings = error / (U * (t.magnitude + fabs(t.y)) + 0x1p-149);
            if (!(error <= bound(m, t)))
                fail_msg("y[%d][%d] is %a, not %a: off by %g, bound %g", (int)row, (int)out, y, t.y,
                         error, bound(m, t));
            most = roundings > most ? roundings : most;
        }
    return most;
}

static const int64_t in_dims[] = {1, 2, 32, 257, 1024, 4097}, row_counts[] = {1, 20};

static void every_element_is_inside_the_bound(void **state)
{
    static const struct types all[] = {
        {ATTNKIT_F32, ATTNKIT_F32, ATTNKIT_F32},   {ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_F16},
        {ATTNKIT_BF16, ATTNKIT_BF16, ATTNKIT_F32}, {ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_BF16},
        {ATTNKIT_F32, ATTNKIT_Q8_0, ATTNKIT_F32},
    };
    for (int64_t types = 0; types < COUNT(all); types++)
        for (int data = 0; data < DATA; data++)
            for (int64_t i = 0; i < COUNT(in_dims); i++) {
                const bool has_blocks = all[types].w == ATTNKIT_Q8_0;
                const int64_t in_dim = has_blocks ? (in_dims[i] + 31) / 32 * 32 : in_dims[i];
                struct map m =
                    done_map(all[types], row_counts[i % 2], in_dim, 37, (enum data)data, *state);
                check_bound(&m);
                free_map(&m);
            }
}

/* The roundings of a sum behave like random numbers. If a sum stays around 0, its error is a few
 * roundings. If a sum only grows, its error in roundings grows as the square root of in_dim. */
static void errors_are_few_roundings(void **state)
{
    static const struct types floats = {ATTNKIT_F32, ATTNKIT_F32, ATTNKIT_F32};
    for (int64_t i = 0; i < COUNT(in_dims); i++) {
        struct map centred = done_map(floats, 20, in_dims[i], 60, CENTRED, *state);
        struct map positive = done_map(floats, 20, in_dims[i], 60, POSITIVE, *state);
        const double root = sqrt((double)in_dims[i]);
        const double e = check_bound(&centred), e_positive = check_bound(&positive);
        printf(
            "# %s: in_dim %d: largest error %.2f roundings, for positive terms %.2f sqrt(in_dim)\n",
            (const char *)*state, (int)in_dims[i], e, e_positive / root);
        assert_true(e <= 4.0);
        assert_true(e_positive <= root);
        free_map(&centred);
        free_map(&positive);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest promises[] = {
        cmocka_unit_test(every_element_is_inside_the_bound),
        cmocka_unit_test(errors_are_few_roundings),
    };
    return promises_main("linear_accuracy", promises, (int)COUNT(promises), argc, argv);
}
