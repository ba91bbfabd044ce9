/* SPDX-License-Identifier: Apache-2.0
 *
 * If neither a score nor a sink makes a row NaN, finite elements of V give a finite result, however
 * large these elements are. Only calls with dropout, integers or products of bf16 are exceptions.
 * If sums of a row overflow binary32, the row is computed again, with these sums in binary64.
 * Results whose sums do not overflow keep their bits. The tests cover prefill (many rows), decode
 * (few rows) and calls of few keys. The tests run on every instruction set, or on the instruction
 * set that the first argument names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/call.h"
#include "tests/support/random.h"

enum {
    HEADS = 17, /* more than the lanes of a vector of any instruction set */
    DIM = 12,
    VALUES = 6,
};

static const int64_t row_counts[] = {1, 3, 35}, key_counts[] = {1, 2, 9, 128, 513, 2000};

enum {
    ROW_COUNTS = sizeof row_counts / sizeof row_counts[0],
    KEY_COUNTS = sizeof key_counts / sizeof key_counts[0],
    SHAPES = ROW_COUNTS * KEY_COUNTS,
};

static struct call *new_call(int shape)
{
    const int64_t keys = key_counts[shape / ROW_COUNTS];
    return call_new((struct shape){.kv_heads = keys > 128 ? 1 : HEADS,
                                   .q_len = row_counts[shape % ROW_COUNTS],
                                   .kv_len = keys,
                                   .head_dim = DIM,
                                   .value_dim = VALUES});
}

/* Sets column `column` of V for all keys. */
static void set_column(const struct call *c, int column, float x)
{
    const int64_t rows = c->args.kv_heads * c->args.kv_len;
    for (int64_t i = 0; i < rows; i++)
        c->v[i * VALUES + column] = x;
}

static void set_scores_to_0(const struct call *c)
{
    memset(c->q, 0, (size_t)(c->args.q_heads * c->args.q_len * DIM) * sizeof(float));
}

static const float large[VALUES] = {FLT_MAX, -FLT_MAX, 3e38f, -3e38f, 1.0f, 0x1p127f};

static void equal_keys_give_their_value(void **state)
{
    for (int shape = 0; shape < SHAPES; shape++) {
        struct call *const c = new_call(shape);
        set_scores_to_0(c);
        for (int column = 0; column < VALUES; column++)
            set_column(c, column, large[column]);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            assert_memory_equal(call_out(c, at), large, sizeof large);
        call_free(c);
    }
}

/* The weights are arbitrary, so roundings could lift the mean above FLT_MAX, to infinity. */
static void a_mean_of_the_largest_number_is_finite(void **state)
{
    for (int shape = 0; shape < SHAPES; shape++) {
        struct call *const c = new_call(shape);
        for (int column = 0; column < VALUES; column++)
            set_column(c, column, column % 2 ? FLT_MAX : -FLT_MAX);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (int column = 0; column < VALUES; column++) {
                const float x = call_out(c, at)[column];
                assert_true(column % 2 ? x > 0.0f : x < 0.0f);
                assert_true(fabsf(x) <= FLT_MAX && fabsf(x) > FLT_MAX * (1 - 0x1p-18f));
            }
        call_free(c);
    }
}

/* With many keys, the sums of columns 1 and 4 overflow. With vectors of 8 floats, both columns
 * lie in one vector. With vectors of 4 floats, they lie in two vectors. */
static void other_columns_keep_their_bits(void **state)
{
    for (int shape = 0; shape < SHAPES; shape++) {
        struct call *const c = new_call(shape), *const d = call_like(c);
        call_run(c, *state);
        set_column(c, 1, 3e38f);
        set_column(c, 4, -3e38f);
        call_run(d, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (int column = 0; column < VALUES; column++) {
                const float before = call_out(c, at)[column], now = call_out(d, at)[column];
                if (column == 1 || column == 4)
                    assert_true(fabsf(fabsf(now) / 3e38f - 1.0f) < 1e-5f);
                else
                    assert_memory_equal(&before, &now, sizeof now);
            }
        assert_memory_equal(c->lse, d->lse,
                            (size_t)(c->args.q_heads * c->args.q_len) * sizeof(float));
        call_free(d);
        call_free(c);
    }
}

/* Every column has 3e38 for all keys, but the first key has an infinity or a NaN in columns 0 to 2.
 * The sums of the other columns overflow. */
static void visible_nan_and_infinity_stay(void **state)
{
    const float specials[] = {INFINITY, -INFINITY, NAN};
    for (int shape = ROW_COUNTS; shape < SHAPES; shape++) {
        struct call *const c = new_call(shape);
        set_scores_to_0(c);
        for (int column = 0; column < VALUES; column++)
            set_column(c, column, 3e38f);
        for (struct at at = {0}; at.h < c->args.kv_heads; at.h++)
            for (int i = 0; i < 3; i++)
                call_v(c, at)[i] = specials[i];
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            const float *const out = call_out(c, at);
            assert_true(out[0] == INFINITY && out[1] == -INFINITY && isnan(out[2]));
            assert_true(out[3] == 3e38f && out[VALUES - 1] == 3e38f);
        }
        call_free(c);
    }
}

/* The masked key is the last key. No row sees this key, because the call is causal and the last row
 * is at the position before this key. */
static void what_a_masked_key_holds_is_absent(void **state)
{
    const float garbage[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, NAN};
    for (int shape = 2 * ROW_COUNTS; shape < SHAPES; shape++) {
        struct call *const c = new_call(shape), *const d = call_like(c);
        int64_t offset = c->args.kv_len - c->args.q_len - 1;
        c->args.flags = d->args.flags = ATTNKIT_CAUSAL;
        c->args.align = d->args.align = ATTNKIT_ALIGN_OFFSETS;
        c->args.q_offsets.data = d->args.q_offsets.data = &offset;
        for (int column = 0; column < VALUES; column++)
            set_column(c, column, large[column]);
        call_run(c, *state);
        for (struct at at = {.j = c->args.kv_len - 1}; at.h < c->args.kv_heads; at.h++)
            memcpy(call_v(c, at), garbage, sizeof garbage);
        call_run(d, *state);
        assert_true(call_same(c, d));
        call_free(d);
        call_free(c);
    }
}

/* Dropout makes the weights of the kept keys larger, so the result may exceed the range of
 * binary32. */
static void dropout_may_leave_the_range(void **state)
{
    uint64_t seed = 1;
    int infinite = 0;
    for (int shape = 0; shape < SHAPES; shape++) {
        struct call *const c = new_call(shape);
        c->args.align = ATTNKIT_ALIGN_UPPER_LEFT;
        c->groups.scores.dropout = 0.5;
        c->groups.scores.dropout_seeds = &seed;
        for (int column = 0; column < VALUES; column++)
            set_column(c, column, column % 2 ? 3e38f : 1e38f);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (int column = 0; column < VALUES; column++) {
                const float x = call_out(c, at)[column];
                assert_true(x >= 0.0f && (column % 2 || x <= 2.0001e38f));
                infinite += isinf(x) != 0;
            }
        call_free(c);
    }
    assert_true(infinite > 0);
}

/* Sums of V over the first 1024 keys overflow binary32, but the state over these keys is finite.
 * The result of the call that continues from this state has the bits of one call over all keys. */
static void states_are_finite(void **state)
{
    enum { ROWS = 35 };
    float max[ROWS];
    double sum[ROWS], out[ROWS][VALUES];
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_call(SHAPES - ROW_COUNTS + n), *const head = call_like(c),
                           *const tail = call_like(c);
        const attnkit_state between = {max, sum, out[0]};
        for (int column = 0; column < VALUES; column++)
            set_column(c, column, large[column]);
        call_run(c, *state);
        head->args.kv_len = 1024;
        head->args.out.data = head->args.lse.data = NULL;
        head->groups.states.state_out = between;
        call_run(head, *state);
        for (int r = 0; r < row_counts[n]; r++)
            for (int column = 0; column < VALUES; column++)
                assert_true(fabs(out[r][column] / sum[r] / (double)large[column] - 1) < 1e-5);
        tail->args.kv_len -= 1024;
        tail->args.k.data = c->k + 1024 * DIM;
        tail->args.v.data = c->v + 1024 * VALUES;
        tail->groups.states.first_key = 1024;
        tail->groups.states.state_in = between;
        call_run(tail, *state);
        assert_true(call_same(c, tail));
        call_free(tail);
        call_free(head);
        call_free(c);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest promises[] = {
        cmocka_unit_test(equal_keys_give_their_value),
        cmocka_unit_test(a_mean_of_the_largest_number_is_finite),
        cmocka_unit_test(other_columns_keep_their_bits),
        cmocka_unit_test(visible_nan_and_infinity_stay),
        cmocka_unit_test(what_a_masked_key_holds_is_absent),
        cmocka_unit_test(dropout_may_leave_the_range),
        cmocka_unit_test(states_are_finite),
    };
    return promises_main("finite", promises, sizeof promises / sizeof promises[0], argc, argv);
}
