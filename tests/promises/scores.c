/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests score mods, sinks and the weights as an output. Each sentence of docs/semantics.md on these
 * options has a test here or in another test program. The tests run on every instruction set, or on
 * the instruction set that the first argument names. Scores are small integers where the result
 * must be exact.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/scalar/scalar.h"
#include "tests/support/call.h"
#include "tests/cases/kinds.h"
#include "tests/support/random.h"

enum { KEYS = 9, ROW_COUNTS = 3 };

/* One row and three rows, for decode, and many rows, for prefill. */
static const int64_t row_counts[ROW_COUNTS] = {1, 3, 70};

/* Makes a call over KEYS keys. Key j has the score `scores[j]` in every row. If `scores` is NULL,
 * all scores are 0. */
static struct call *call_with_scores(int64_t rows, const float *scores)
{
    struct call *const c = call_new((struct shape){
        .kv_heads = 1, .group = 3, .q_len = rows, .kv_len = KEYS, .head_dim = 1, .value_dim = 4});
    c->args.flags |= ATTNKIT_SCALE_GIVEN;
    c->args.scale = 1.0;
    for (int64_t i = 0; i < 3 * rows; i++)
        c->q[i] = 1.0f;
    for (int j = 0; j < KEYS; j++)
        c->k[j] = scores ? scores[j] : 0.0f;
    return c;
}

static bool is_close(double x, double y)
{
    return fabs(x - y) <= 1e-6 * (1.0 + fabs(y));
}

/* Compares a row's out and lse with the softmax of the scores x and a sink. A sink of -infinity
 * means no sink. The tolerance grows with the scores, because weights are less exact for large
 * scores. */
static void check_softmax(const struct call *c, struct at at, const double *x, double sink)
{
    double max = sink, sum, lse;
    for (int j = 0; j < KEYS; j++)
        max = fmax(max, x[j]);
    sum = exp(sink - max);
    for (int j = 0; j < KEYS; j++)
        sum += exp(x[j] - max);
    lse = max + log(sum);
    if (!is_close(*call_lse(c, at), lse))
        fail_msg("head %lld row %lld: lse is %.9g, not %.9g", (long long)at.h, (long long)at.i,
                 (double)*call_lse(c, at), lse);
    for (int column = 0; column < 4; column++) {
        double out = 0;
        for (at.j = 0; at.j < KEYS; at.j++)
            out += exp(x[at.j] - lse) * (double)call_v(c, at)[column];
        if (fabs((double)call_out(c, at)[column] - out) > 1e-6 * (1.0 + fabs(max)))
            fail_msg("head %lld row %lld: out is %.9g, not %.9g", (long long)at.h, (long long)at.i,
                     (double)call_out(c, at)[column], out);
    }
}

/* Returns the element of the weights output for a row and key. */
static float weight(const struct call *c, struct at at)
{
    const int64_t row = (at.b * c->args.q_heads + at.h) * c->args.q_len + at.i;
    return c->weights[row * c->args.kv_len + at.j];
}

static float mean_of_v(const struct call *c, int column)
{
    float sum = 0.0f;
    for (int j = 0; j < KEYS; j++)
        sum += call_v(c, (struct at){.j = j})[column];
    return sum / (float)KEYS;
}

static bool row_is_nan(const struct call *c, struct at at)
{
    bool all = isnan(*call_lse(c, at));
    for (int column = 0; column < 4; column++)
        all &= isnan(call_out(c, at)[column]) != 0;
    return all;
}

/* --- Scale and softcap ------------------------------------------------------------------------ */

static void scale_of_0_that_is_given_makes_the_mean_of_v(void **state)
{
    const float scores[KEYS] = {1, -2, 3, -4, 5, -6, 7, -8, 9};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], scores);
        c->args.scale = 0.0;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (int column = 0; column < 4; column++)
                assert_true(call_out(c, at)[column] == mean_of_v(c, column));
        call_free(c);
    }
}

static void scale_is_1_over_the_root_of_the_head_dim_by_default(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_new((struct shape){
            .group = 2, .q_len = row_counts[n], .kv_len = KEYS, .head_dim = 16, .value_dim = 4});
        struct call *const d = call_like(c);
        d->args.flags |= ATTNKIT_SCALE_GIVEN;
        d->args.scale = 0.25;
        call_run(c, *state);
        call_run(d, *state);
        assert_true(call_same(c, d));
        call_free(d);
        call_free(c);
    }
}

static void softcap_is_cap_times_tanh_of_x_over_cap(void **state)
{
    const float scores[KEYS] = {1, -2, 3, -4, 5, -6, 7, -80, 90};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], scores);
        c->args.scale = 0.5;
        c->groups.scores.softcap = 4.0;
        double x[KEYS];
        for (int j = 0; j < KEYS; j++)
            x[j] = 4.0 * tanh((double)scores[j] * 0.5 / 4.0);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            check_softmax(c, at, x, -INFINITY);
        call_free(c);
    }
}

/* If the bias were also capped, the first eight scores would be equal. */
static void softcap_comes_before_the_bias(void **state)
{
    const float scores[KEYS] = {1e6f, 1e6f, 1e6f, 1e6f, 1e6f, 1e6f, 1e6f, 1e6f, -1e6f};
    static const float bias[KEYS] = {1, 2, 3, 4, 5, 6, 7, 8, 60};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], scores);
        c->groups.scores.softcap = 30.0;
        c->groups.scores.bias.data = bias;
        call_set_weights(c, ATTNKIT_WEIGHTS_BIASED);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            double x[KEYS];
            for (at.j = 0; at.j < KEYS; at.j++) {
                x[at.j] = (scores[at.j] > 0 ? 30.0 : -30.0) + (double)bias[at.j];
                assert_true((double)weight(c, at) == x[at.j]);
            }
            at.j = 0;
            check_softmax(c, at, x, -INFINITY);
        }
        call_free(c);
    }
}

static void infinite_scores_are_capped(void **state)
{
    const float scores[KEYS] = {INFINITY, -INFINITY, INFINITY, 0, 0, 0, 0, 0, 0};
    const double x[KEYS] = {5, -5, 5, 0, 0, 0, 0, 0, 0};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], scores);
        c->groups.scores.softcap = 5.0;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            check_softmax(c, at, x, -INFINITY);
        call_free(c);
    }
}

/* --- Bias and ALiBi --------------------------------------------------------------------------- */

static void bias_is_added_to_the_score_of_its_head_row_and_key(void **state)
{
    const float scores[KEYS] = {1, -2, 3, -4, 5, -6, 7, -8, 9};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], scores);
        const int64_t rows = row_counts[n];
        float *const bias = call_memory(c, (size_t)(3 * rows * KEYS) * sizeof *bias);
        for (int64_t i = 0; i < 3 * rows * KEYS; i++)
            bias[i] = (float)(i * 7 % 23 - 11);
        c->groups.scores.bias.data = bias;
        c->groups.scores.bias.strides[1] = 4 * KEYS * rows;
        c->groups.scores.bias.strides[2] = 4 * KEYS;
        call_set_weights(c, ATTNKIT_WEIGHTS_BIASED);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            double x[KEYS];
            for (at.j = 0; at.j < KEYS; at.j++) {
                x[at.j] = (double)(scores[at.j] + bias[(at.h * rows + at.i) * KEYS + at.j]);
                assert_true((double)weight(c, at) == x[at.j]);
            }
            at.j = 0;
            check_softmax(c, at, x, -INFINITY);
        }
        call_free(c);
    }
}

/* Only one of the rows that a tile computes together has a bias other than 0. */
static void bias_of_one_row_is_added_to_this_row_alone(void **state)
{
    const float scores[KEYS] = {1, -2, 3, -4, 5, -6, 7, -8, 9};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int64_t one = 0; one < 3 * row_counts[n]; one += 1 + one / 2) {
            struct call *const c = call_with_scores(row_counts[n], scores);
            const int64_t rows = row_counts[n];
            float *const bias = call_memory(c, (size_t)(3 * rows * KEYS) * sizeof *bias);
            bias[one * KEYS + 5] = 16.0f;
            c->groups.scores.bias.data = bias;
            c->groups.scores.bias.strides[1] = 4 * KEYS * rows;
            c->groups.scores.bias.strides[2] = 4 * KEYS;
            call_run(c, *state);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
                double x[KEYS];
                for (int j = 0; j < KEYS; j++)
                    x[j] = (double)scores[j];
                x[5] += at.h * rows + at.i == one ? 16.0 : 0.0;
                check_softmax(c, at, x, -INFINITY);
            }
            call_free(c);
        }
}

static void bias_of_16_bits_has_the_bits_of_a_bias_of_32(void **state)
{
    static const uint16_t f16[KEYS] = {0x3c00, 0xbc00, 0x4000, 0xc100, 0,
                                       0xfc00, 0x3800, 0x8001, 0x4900};
    static const uint16_t bf16[KEYS] = {0x3f80, 0xbf80, 0x4000, 0xc020, 0,
                                        0xff80, 0x3f00, 0xb380, 0x4120};
    static const float f32[KEYS] = {1, -1, 2, -2.5f, 0, -INFINITY, 0.5f, -0x1p-24f, 10};
    const void *const biases[] = {f32, f16, bf16};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], NULL);
        c->groups.scores.bias.data = f32;
        call_set_weights(c, ATTNKIT_WEIGHTS_BIASED);
        call_run(c, *state);
        for (int type = ATTNKIT_F16; type <= ATTNKIT_BF16; type++) {
            struct call *const d = call_like(c);
            d->groups.scores.bias.data = biases[type];
            d->groups.scores.bias.type = (attnkit_type)type;
            call_run(d, *state);
            assert_true(call_same(c, d));
            for (struct at at = {0}; call_has(d, at); at = call_next(d, at))
                for (at.j = 0; at.j < KEYS; at.j++)
                    assert_true(weight(d, at) == f32[at.j]);
            call_free(d);
        }
        call_free(c);
    }
}

/* Positions of rows reach from far before the first key to far beyond the last key. */
static void alibi_is_slope_times_key_minus_position(void **state)
{
    static const float slopes[] = {1.0f, -0.25f, 0x1p-7f};
    static const int64_t offsets[] = {-100, -1, 0, 4, 5000, (1 << 24) - 60, INT64_C(1) << 40};
    static const float bias[KEYS] = {8, 1, -1, 2, 0, 0, 0, -16, 4};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int o = 0; o < 7; o++) {
            struct call *const c = call_with_scores(row_counts[n], NULL);
            c->args.align = ATTNKIT_ALIGN_OFFSETS;
            c->args.q_offsets = (attnkit_ints){.data = &offsets[o]};
            c->groups.scores.alibi_slopes = slopes;
            c->groups.scores.bias.data = o % 2 ? bias : NULL;
            call_set_weights(c, ATTNKIT_WEIGHTS_BIASED);
            call_run(c, *state);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
                double x[KEYS];
                for (at.j = 0; at.j < KEYS; at.j++) {
                    const float distance = (float)(at.j - offsets[o] - at.i);
                    const float sum = slopes[at.h] * distance + (o % 2 ? bias[at.j] : 0.0f);
                    assert_true(weight(c, at) == sum);
                    x[at.j] = (double)sum;
                }
                at.j = 0;
                if (offsets[o] < 1 << 20)
                    check_softmax(c, at, x, -INFINITY);
            }
            call_free(c);
        }
}

/* For key 0, slope times distance overflows to -infinity. The rows still see this key, and the NaN
 * in its row of V reaches the results. */
static void slope_times_distance_beyond_binary32_hides_no_key(void **state)
{
    static const float slopes[] = {1e38f, 1e38f, 1e38f};
    /* With this offset no key is after a row. For a key far after the row, ALiBi would add
     * +infinity to the score. */
    static const int64_t offset = KEYS - 1;
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], NULL);
        c->args.align = ATTNKIT_ALIGN_OFFSETS;
        c->args.q_offsets = (attnkit_ints){.data = &offset};
        c->groups.scores.alibi_slopes = slopes;
        call_v(c, (struct at){0})[2] = NAN;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            assert_true(isfinite(*call_lse(c, at)));
            for (int column = 0; column < 4; column++)
                assert_int_equal(isnan(call_out(c, at)[column]) != 0, column == 2);
        }
        call_free(c);
    }
}

static void bias_of_minus_infinity_masks_even_a_nan_score(void **state)
{
    static const float bias[KEYS] = {0, 1, -INFINITY, 2, 3, -INFINITY, 4, 5, 6};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const clean = call_with_scores(row_counts[n], NULL);
        struct call *const c = call_with_scores(row_counts[n], NULL);
        clean->groups.scores.bias.data = c->groups.scores.bias.data = bias;
        c->k[2] = NAN;
        c->k[5] = INFINITY;
        c->v[2 * 4] = NAN;
        c->v[5 * 4 + 1] = -INFINITY;
        call_run(clean, *state);
        call_run(c, *state);
        assert_true(call_same(clean, c));
        assert_true(isfinite(c->out[0]));
        call_free(clean);
        call_free(c);
    }
}

static void score_of_plus_infinity_or_nan_by_its_bias_makes_the_row_nan(void **state)
{
    static const float bad[] = {INFINITY, NAN};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int i = 0; i < 2; i++)
            for (int key = 0; key < KEYS; key++) {
                float bias[KEYS] = {0};
                struct call *const c = call_with_scores(row_counts[n], NULL);
                bias[key] = bad[i];
                c->groups.scores.bias.data = bias;
                c->groups.scores.bias.strides[1] = 0;
                call_run(c, *state);
                for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
                    assert_true(row_is_nan(c, at));
                call_free(c);
            }
}

static void finite_bias_however_negative_is_a_value(void **state)
{
    static const float fills[] = {-FLT_MAX, -1e38f, -0x1p126f, -1e30f, -1e9f, -65504.0f};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int i = 0; i < 6; i++) {
            float bias[KEYS];
            struct call *const c = call_with_scores(row_counts[n], NULL);
            for (int j = 0; j < KEYS; j++)
                bias[j] = fills[i];
            c->groups.scores.bias.data = bias;
            call_run(c, *state);
            const double lse = fmax((double)fills[i], -0x1p126) + log(KEYS);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
                assert_true(is_close(*call_lse(c, at), lse));
                for (int column = 0; column < 4; column++)
                    assert_true(is_close(call_out(c, at)[column], mean_of_v(c, column)));
            }
            call_free(c);
        }
}

static void key_with_a_fill_of_minus_1e9_is_seen_with_weight_0(void **state)
{
    static const float fills[] = {-FLT_MAX, -1e9f, -1e4f};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int i = 0; i < 3; i++) {
            const float bias[KEYS] = {0, 0, 0, 0, 0, 0, 0, 0, fills[i]};
            struct call *const c = call_with_scores(row_counts[n], NULL);
            struct call *const shorter = call_with_scores(row_counts[n], NULL);
            c->groups.scores.bias.data = bias;
            c->v[(KEYS - 1) * 4 + 2] = NAN;
            shorter->args.kv_len = KEYS - 1;
            call_run(c, *state);
            call_run(shorter, *state);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
                assert_true(*call_lse(c, at) == *call_lse(shorter, at));
                for (int column = 0; column < 4; column++)
                    assert_true(column == 2
                                    ? isnan(call_out(c, at)[column])
                                    : call_out(c, at)[column] == call_out(shorter, at)[column]);
            }
            call_free(c);
            call_free(shorter);
        }
}

/* --- Factors of a bias ------------------------------------------------------------------------ */

static void bias_scales_multiply_the_bias_of_their_head(void **state)
{
    const float scores[KEYS] = {1, -2, 3, -4, 5, -6, 7, -8, 9};
    static const float scales[] = {0.5f, -2.0f, 0.0f}, bias[KEYS] = {8, 1, -1, 2, 0, 6, 0, -16, 4};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], scores);
        c->groups.scores.bias.data = bias;
        c->groups.scores.bias_scales = scales;
        call_set_weights(c, ATTNKIT_WEIGHTS_BIASED);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            double x[KEYS];
            for (at.j = 0; at.j < KEYS; at.j++) {
                x[at.j] = (double)(scores[at.j] + scales[at.h] * bias[at.j]);
                assert_true((double)weight(c, at) == x[at.j]);
            }
            at.j = 0;
            check_softmax(c, at, x, -INFINITY);
        }
        call_free(c);
    }
}

enum { MANY_KEYS = 530 }; /* more than a chunk */

/* Makes a call with random scores and a random bias. The call has two KV heads with two query heads
 * each. All heads share the bias, and about half of its numbers are special. */
static struct call *call_with_bias(int64_t rows, attnkit_type type, attnkit_weights_kind kind)
{
    static const float specials[] = {-INFINITY, -INFINITY, 0.0f, -0.0f, -65504.0f, 1e-7f};
    struct call *const c = call_new((struct shape){.kv_heads = 2,
                                                   .group = 2,
                                                   .q_len = rows,
                                                   .kv_len = MANY_KEYS,
                                                   .head_dim = 12,
                                                   .value_dim = 4});
    uint64_t random = 1;
    char *const bias = call_memory(c, MANY_KEYS * sizeof(float));
    for (int64_t j = 0; j < MANY_KEYS; j++) {
        const int64_t special = random_below(&random, 12);
        const float x = special < 6 ? specials[special] : 4.0f * random_uniform(&random);
        attnkit_scalar_narrow((enum type)type, &x, 1, 1, bias + bytes_of((enum type)type, j), NULL);
    }
    c->groups.scores.bias.data = bias;
    c->groups.scores.bias.type = type;
    c->groups.scores.bias.layout = ATTNKIT_STRIDED;
    call_set_weights(c, kind);
    return c;
}

static void expect_same(const struct call *c, const struct call *d)
{
    const size_t weights = (size_t)(c->args.q_heads * c->args.q_len * c->args.kv_len);
    assert_true(call_same(c, d));
    assert_memory_equal(c->weights, d->weights, weights * sizeof *c->weights);
}

static void bias_scales_of_1_change_no_bit(void **state)
{
    static const float ones[] = {1, 1, 1, 1};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int type = ATTNKIT_F32; type <= ATTNKIT_BF16; type++)
            for (int kind = ATTNKIT_WEIGHTS_SOFTMAX; kind <= ATTNKIT_WEIGHTS_BIASED; kind++) {
                struct call *const c =
                    call_with_bias(row_counts[n], (attnkit_type)type, (attnkit_weights_kind)kind);
                struct call *const scaled = call_like(c);
                call_set_weights(scaled, (attnkit_weights_kind)kind);
                scaled->groups.scores.bias_scales = ones;
                call_run(c, *state);
                call_run(scaled, *state);
                expect_same(c, scaled);
                call_free(scaled);
                call_free(c);
            }
}

/* The scales are 0 or powers of 2 of either sign, so that the products are exact. */
static void bias_times_its_scale_has_the_bits_of_a_bias_for_each_head(void **state)
{
    static const float scales[] = {0.25f, -1.0f, 4.0f, 0.0f};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_bias(row_counts[n], ATTNKIT_F32, ATTNKIT_WEIGHTS_SOFTMAX);
        struct call *const d = call_like(c);
        const float *const shared = c->groups.scores.bias.data;
        float *const own = call_memory(d, 4 * MANY_KEYS * sizeof *own);
        for (int64_t i = 0; i < 4 * MANY_KEYS; i++) {
            const float x = shared[i % MANY_KEYS];
            own[i] = x == -INFINITY ? x : scales[i / MANY_KEYS] * x;
        }
        c->groups.scores.bias_scales = scales;
        d->groups.scores.bias.data = own;
        d->groups.scores.bias.strides[1] = MANY_KEYS * sizeof *own;
        call_set_weights(d, ATTNKIT_WEIGHTS_SOFTMAX);
        call_run(c, *state);
        call_run(d, *state);
        expect_same(c, d);
        call_free(d);
        call_free(c);
    }
}

/* In ggml, ALiBi is a mask of type f16, multiplied by the slope of a head. The mask has the
 * distance of each key from the row, and -infinity for keys after the row. */
static void slopes_times_a_mask_of_distances_have_the_bits_of_alibi(void **state)
{
    static const float slopes[] = {0.5f, 0.3f, 0.1f, 0.007f};
    for (int n = 0; n < ROW_COUNTS; n++) {
        const int64_t rows = row_counts[n], first = MANY_KEYS - rows;
        struct call *const c = call_with_bias(rows, ATTNKIT_F16, ATTNKIT_WEIGHTS_SOFTMAX);
        struct call *const alibi = call_like(c);
        uint16_t *const mask = call_memory(c, (size_t)(rows * MANY_KEYS) * sizeof *mask);
        for (int64_t i = 0; i < rows * MANY_KEYS; i++) {
            const int64_t distance = i % MANY_KEYS - first - i / MANY_KEYS;
            const float x = distance > 0 ? -INFINITY : (float)distance;
            attnkit_scalar_narrow(TYPE_F16, &x, 1, 1, (char *)(mask + i), NULL);
        }
        c->groups.scores.bias.data = mask;
        c->groups.scores.bias.strides[2] = MANY_KEYS * sizeof *mask;
        c->groups.scores.bias_scales = slopes;
        alibi->groups.scores.bias = (attnkit_tensor){.data = NULL};
        alibi->groups.scores.alibi_slopes = slopes;
        alibi->args.flags |= ATTNKIT_CAUSAL;
        alibi->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
        call_set_weights(alibi, ATTNKIT_WEIGHTS_SOFTMAX);
        call_run(c, *state);
        call_run(alibi, *state);
        expect_same(c, alibi);
        call_free(alibi);
        call_free(c);
    }
}

/* The scores of the masked keys are NaN, and their rows of V have a NaN. */
static void bias_of_minus_infinity_masks_whatever_its_scale(void **state)
{
    static const float bias[KEYS] = {0, 1, -INFINITY, 2, 3, -INFINITY, 4, 5, 6};
    static const float scales[4][3] = {
        {0, -0.0f, -1}, {1e-45f, -FLT_MAX, 2}, {NAN, INFINITY, -INFINITY}, {-2, NAN, 0}};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int i = 0; i < 4; i++) {
            struct call *const clean = call_with_scores(row_counts[n], NULL);
            struct call *const c = call_with_scores(row_counts[n], NULL);
            clean->groups.scores.bias.data = c->groups.scores.bias.data = bias;
            clean->groups.scores.bias_scales = c->groups.scores.bias_scales = scales[i];
            c->k[2] = c->k[5] = c->v[2 * 4] = c->v[5 * 4 + 1] = NAN;
            call_set_weights(c, ATTNKIT_WEIGHTS_BIASED);
            call_run(clean, *state);
            call_run(c, *state);
            assert_true(call_same(clean, c));
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
                for (at.j = 0; at.j < KEYS; at.j++)
                    assert_int_equal(weight(c, at) == -INFINITY, bias[at.j] == -INFINITY);
            call_free(clean);
            call_free(c);
        }
}

/* A row that sees no key has the result 0, even with a scale of NaN. */
static void bias_of_nothing_but_minus_infinity_hides_all_from_a_scale_of_nan(void **state)
{
    static const float scales[] = {NAN, INFINITY, -1.0f};
    float bias[KEYS];
    for (int j = 0; j < KEYS; j++)
        bias[j] = -INFINITY;
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], NULL);
        c->groups.scores.bias.data = bias;
        c->groups.scores.bias_scales = scales;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            assert_true(*call_lse(c, at) == -INFINITY);
            for (int column = 0; column < 4; column++)
                assert_true(call_out(c, at)[column] == 0.0f);
        }
        call_free(c);
    }
}

/* The whole bias is 0, and 0 times NaN or infinity is NaN. Other heads do not become NaN. */
static void scale_that_is_nan_or_infinite_makes_the_rows_of_its_head_nan(void **state)
{
    static const uint32_t plain_nan = 0x7fc00000;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int i = 0; i < 4; i++)
            for (int64_t head = 0; head < 3; head++) {
                static const float bias[KEYS];
                float scales[] = {1, 1, 1};
                struct call *const c = call_with_scores(row_counts[n], NULL);
                scales[head] = bad[i];
                c->groups.scores.bias.data = bias;
                c->groups.scores.bias_scales = scales;
                call_run(c, *state);
                for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
                    assert_int_equal(row_is_nan(c, at), at.h == head);
                    if (at.h == head)
                        assert_memory_equal(call_out(c, at), &plain_nan, sizeof plain_nan);
                }
                call_free(c);
            }
}

/* Only a bias of -infinity masks its key. If a product of bias and scale is below the least bias,
 * -2^126, the product counts as -2^126. If all products of a row are below -2^126, the result of
 * the row is the mean of V. */
static void product_below_the_least_bias_counts_as_the_least_bias(void **state)
{
    static const float products[][2] = {
        {1e30f, -1e30f}, {-1.0f, INFINITY}, {-INFINITY, 1e-40f}, {2.0f, -0x1p126f}, {-3.0f, 1e38f}};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int i = 0; i < 5; i++) {
            const float scales[] = {products[i][0], products[i][0], products[i][0]};
            float bias[KEYS];
            struct call *const c = call_with_scores(row_counts[n], NULL);
            for (int j = 0; j < KEYS; j++)
                bias[j] = products[i][1];
            c->groups.scores.bias.data = bias;
            c->groups.scores.bias_scales = scales;
            call_run(c, *state);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
                assert_true(is_close(*call_lse(c, at), -0x1p126));
                for (int column = 0; column < 4; column++)
                    assert_true(is_close(call_out(c, at)[column], mean_of_v(c, column)));
            }
            call_free(c);
        }
}

static void product_of_plus_infinity_makes_the_row_nan(void **state)
{
    static const float scales[] = {1e30f, -1e30f, 1.0f}, bias[KEYS] = {0, 0, 0, 1e30f, 0, -1e30f};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], NULL);
        c->groups.scores.bias.data = bias;
        c->groups.scores.bias_scales = scales;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            assert_int_equal(row_is_nan(c, at), at.h < 2);
        call_free(c);
    }
}

/* --- Sinks ------------------------------------------------------------------------------------ */

static void sink_is_one_more_term_of_its_head_without_a_value(void **state)
{
    const float scores[KEYS] = {1, -2, 3, -4, 5, -6, 7, -8, 9};
    static const float sinks[] = {0.5f, -3.0f, 14.0f};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], scores);
        double x[KEYS];
        for (int j = 0; j < KEYS; j++)
            x[j] = (double)scores[j];
        c->groups.scores.sinks = sinks;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            check_softmax(c, at, x, (double)sinks[at.h]);
        call_free(c);
    }
}

/* Every term of the softmax denominator is 1. */
static void sink_of_0_beside_n_scores_of_0_makes_v_over_n_plus_1(void **state)
{
    static const float sinks[] = {0.0f, -0.0f, 0.0f};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], NULL);
        for (int64_t i = 0; i < KEYS * 4; i++)
            c->v[i] = 1.0f;
        c->groups.scores.sinks = sinks;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (int column = 0; column < 4; column++)
                assert_true(call_out(c, at)[column] == (float)KEYS / (float)(KEYS + 1));
        call_free(c);
    }
}

static void sink_of_minus_infinity_counts_as_no_sink(void **state)
{
    static const float sinks[] = {-INFINITY, -INFINITY, -INFINITY};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_new((struct shape){
            .group = 3, .q_len = row_counts[n], .kv_len = 700, .head_dim = 8, .value_dim = 4});
        struct call *const with = call_like(c);
        with->groups.scores.sinks = sinks;
        call_run(c, *state);
        call_run(with, *state);
        assert_true(call_same(c, with));
        call_free(with);
        call_free(c);
    }
}

static void sink_that_is_nan_or_plus_infinity_makes_the_rows_of_its_head_nan(void **state)
{
    static const float sinks[] = {NAN, 1.0f, INFINITY};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], NULL);
        c->groups.scores.sinks = sinks;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            assert_int_equal(row_is_nan(c, at), at.h != 1);
        call_free(c);
    }
}

/* --- Weights ---------------------------------------------------------------------------------- */

static bool is_in_full_call(const struct kind *kind)
{
    static const char *const names[] = {"causal", "lengths", "bits to ignore", "f16 bias"};
    for (int i = 0; i < 4; i++)
        if (strcmp(kind->name, names[i]) == 0)
            return true;
    return false;
}

/* Makes a call with random scores, four kinds of masks, a softcap, slopes and sinks. The call has
 * more keys than a chunk. */
static struct call *new_full_call(int64_t rows, attnkit_weights_kind kind)
{
    static const float slopes[] = {0.01f, -0.02f, 0.05f, 0.001f}, sinks[] = {1, -2, 0.5f, 3};
    struct call *const c = call_new((struct shape){.batch = 2,
                                                   .kv_heads = 2,
                                                   .group = 2,
                                                   .q_len = rows,
                                                   .kv_len = 530,
                                                   .head_dim = 12,
                                                   .value_dim = 4});
    for (int i = 0; i < KINDS; i++)
        if (is_in_full_call(&kinds[i]))
            kinds[i].set(c);
    kinds_vary_bias(c);
    c->groups.scores.softcap = 3.0;
    c->groups.scores.alibi_slopes = slopes;
    c->groups.scores.sinks = sinks;
    call_set_weights(c, kind);
    return c;
}

/* Returns whether a row sees a key by the four kinds of masks that the call has. */
static bool sees(const struct call *c, struct at at)
{
    for (int i = 0; i < KINDS; i++)
        if (is_in_full_call(&kinds[i]) && !kinds[i].sees(c, at))
            return false;
    return true;
}

static double score(const struct call *c, struct at at)
{
    double s = 0;
    for (int64_t d = 0; d < c->args.head_dim; d++)
        s += (double)call_q(c, at)[d] * (double)call_k(c, at)[d];
    return s / sqrt((double)c->args.head_dim);
}

static double capped(const struct call *c, struct at at)
{
    return c->groups.scores.softcap * tanh(score(c, at) / c->groups.scores.softcap);
}

static void weights_scaled_are_scores_of_all_keys_before_softcap(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_full_call(row_counts[n], ATTNKIT_WEIGHTS_SCALED);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (at.j = 0; at.j < c->args.kv_len; at.j++)
                assert_true(at.j < ints_at(c->groups.visibility.kv_lens, at.b)
                                ? is_close(weight(c, at), score(c, at))
                                : weight(c, at) == -INFINITY);
        call_free(c);
    }
}

static void weights_capped_are_scores_of_all_keys_before_bias(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_full_call(row_counts[n], ATTNKIT_WEIGHTS_CAPPED);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (at.j = 0; at.j < c->args.kv_len; at.j++)
                assert_true(at.j < ints_at(c->groups.visibility.kv_lens, at.b)
                                ? is_close(weight(c, at), capped(c, at))
                                : weight(c, at) == -INFINITY);
        call_free(c);
    }
}

static void weights_biased_are_scores_as_the_softmax_takes_them(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_full_call(row_counts[n], ATTNKIT_WEIGHTS_BIASED);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (at.j = 0; at.j < c->args.kv_len; at.j++) {
                if (!sees(c, at)) {
                    assert_true(weight(c, at) == -INFINITY);
                    continue;
                }
                const double x =
                    capped(c, at) + (double)c->groups.scores.alibi_slopes[at.h] *
                                        (double)(at.j - ints_at(c->args.q_offsets, at.b) - at.i);
                assert_true(is_close(weight(c, at), x + kinds_bias(c, at)));
            }
        call_free(c);
    }
}

static void weights_softmax_sum_to_1_with_the_sink_and_make_out_of_v(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_full_call(row_counts[n], ATTNKIT_WEIGHTS_SOFTMAX);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            double sum = exp((double)(c->groups.scores.sinks[at.h] - *call_lse(c, at)));
            double out[4] = {0};
            for (at.j = 0; at.j < c->args.kv_len; at.j++) {
                assert_true(sees(c, at) ? weight(c, at) > 0.0f
                                        : weight(c, at) == 0.0f && !signbit(weight(c, at)));
                sum += (double)weight(c, at);
                for (int column = 0; column < 4; column++)
                    out[column] += (double)weight(c, at) * (double)call_v(c, at)[column];
            }
            at.j = 0;
            assert_true(fabs(sum - 1.0) < 1e-5);
            for (int column = 0; column < 4; column++)
                assert_true(is_close(call_out(c, at)[column], out[column]));
        }
        call_free(c);
    }
}

/* Weights of kind SOFTMAX are exp(x - lse), where the scores x are the weights of kind BIASED. */
static void softmax_weights_follow_from_biased_scores_and_lse(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_full_call(row_counts[n], ATTNKIT_WEIGHTS_SOFTMAX);
        struct call *const biased = call_like(c);
        call_set_weights(biased, ATTNKIT_WEIGHTS_BIASED);
        call_run(c, *state);
        call_run(biased, *state);
        assert_true(call_same(c, biased));
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (at.j = 0; at.j < c->args.kv_len; at.j++)
                assert_true(fabs((double)weight(c, at) -
                                 exp((double)(weight(biased, at) - *call_lse(c, at)))) < 4e-6);
        call_free(biased);
        call_free(c);
    }
}

/* Scores are in units of ln 2, so that weights are powers of two. A row of V whose weight is 0
 * changes nothing, even if its elements are FLT_MAX. */
static void weights_below_2_to_the_minus_100_are_0(void **state)
{
    const float scores[KEYS] = {-101, -1000, -100, 0, -102, -126, -149, -99, -FLT_MAX};
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = call_with_scores(row_counts[n], scores);
        c->args.scale = 0x1.62e42fefa39efp-1; /* ln 2 */
        call_set_weights(c, ATTNKIT_WEIGHTS_SOFTMAX);
        for (struct at at = {0}; at.j < KEYS; at.j++)
            for (int column = 0; column < 4 && scores[at.j] != 0.0f; column++)
                call_v(c, at)[column] = scores[at.j] < -100.0f ? FLT_MAX : 0.0f;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            for (int column = 0; column < 4; column++)
                assert_true(call_out(c, at)[column] ==
                            call_v(c, (struct at){.h = at.h, .j = 3})[column]);
            for (at.j = 0; at.j < KEYS; at.j++)
                assert_true((double)weight(c, at) ==
                            (scores[at.j] < -100.0f ? 0.0 : exp2((double)scores[at.j])));
            at.j = 0;
        }
        call_free(c);
    }
}

static void weights_of_a_row_that_sees_nothing_are_0(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        static const int64_t offset = -1000;
        struct call *const c = call_with_scores(row_counts[n], NULL);
        c->args.flags |= ATTNKIT_CAUSAL;
        c->args.align = ATTNKIT_ALIGN_OFFSETS;
        c->args.q_offsets = (attnkit_ints){.data = &offset};
        call_set_weights(c, ATTNKIT_WEIGHTS_SOFTMAX);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (at.j = 0; at.j < KEYS; at.j++)
                assert_true(weight(c, at) == 0.0f);
        call_free(c);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(scale_of_0_that_is_given_makes_the_mean_of_v),
        cmocka_unit_test(scale_is_1_over_the_root_of_the_head_dim_by_default),
        cmocka_unit_test(softcap_is_cap_times_tanh_of_x_over_cap),
        cmocka_unit_test(softcap_comes_before_the_bias),
        cmocka_unit_test(infinite_scores_are_capped),
        cmocka_unit_test(bias_is_added_to_the_score_of_its_head_row_and_key),
        cmocka_unit_test(bias_of_one_row_is_added_to_this_row_alone),
        cmocka_unit_test(bias_of_16_bits_has_the_bits_of_a_bias_of_32),
        cmocka_unit_test(alibi_is_slope_times_key_minus_position),
        cmocka_unit_test(slope_times_distance_beyond_binary32_hides_no_key),
        cmocka_unit_test(bias_of_minus_infinity_masks_even_a_nan_score),
        cmocka_unit_test(score_of_plus_infinity_or_nan_by_its_bias_makes_the_row_nan),
        cmocka_unit_test(finite_bias_however_negative_is_a_value),
        cmocka_unit_test(key_with_a_fill_of_minus_1e9_is_seen_with_weight_0),
        cmocka_unit_test(bias_scales_multiply_the_bias_of_their_head),
        cmocka_unit_test(bias_scales_of_1_change_no_bit),
        cmocka_unit_test(bias_times_its_scale_has_the_bits_of_a_bias_for_each_head),
        cmocka_unit_test(slopes_times_a_mask_of_distances_have_the_bits_of_alibi),
        cmocka_unit_test(bias_of_minus_infinity_masks_whatever_its_scale),
        cmocka_unit_test(bias_of_nothing_but_minus_infinity_hides_all_from_a_scale_of_nan),
        cmocka_unit_test(scale_that_is_nan_or_infinite_makes_the_rows_of_its_head_nan),
        cmocka_unit_test(product_below_the_least_bias_counts_as_the_least_bias),
        cmocka_unit_test(product_of_plus_infinity_makes_the_row_nan),
        cmocka_unit_test(sink_is_one_more_term_of_its_head_without_a_value),
        cmocka_unit_test(sink_of_0_beside_n_scores_of_0_makes_v_over_n_plus_1),
        cmocka_unit_test(sink_of_minus_infinity_counts_as_no_sink),
        cmocka_unit_test(sink_that_is_nan_or_plus_infinity_makes_the_rows_of_its_head_nan),
        cmocka_unit_test(weights_scaled_are_scores_of_all_keys_before_softcap),
        cmocka_unit_test(weights_capped_are_scores_of_all_keys_before_bias),
        cmocka_unit_test(weights_biased_are_scores_as_the_softmax_takes_them),
        cmocka_unit_test(weights_softmax_sum_to_1_with_the_sink_and_make_out_of_v),
        cmocka_unit_test(softmax_weights_follow_from_biased_scores_and_lse),
        cmocka_unit_test(weights_below_2_to_the_minus_100_are_0),
        cmocka_unit_test(weights_of_a_row_that_sees_nothing_are_0),
    };
    return promises_main("scores", promises, sizeof promises / sizeof promises[0], argc, argv);
}
