/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked keys are absent, and NaN and infinity in visible keys are not lost. docs/semantics.md
 * states these promises, and names the tests of each promise. Other files have more of these tests.
 * The tests run on every instruction set, or on the instruction set that the first argument names,
 * in prefill (many rows) and decode (three rows, one row).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dispatch/cpu/isa.h"
#include "tests/support/groups.h"
#include "tests/support/random.h"
#include "tests/support/units.h"

enum {
    HEADS = 2,
    ROWS = 70,  /* more than a panel of any instruction set */
    KEYS = 600, /* more than a chunk */
    DIM = 20,
    VALUES = 11,
};

/* HEADS query heads over KEYS keys of one KV head. */
struct problem_data {
    float q[HEADS][ROWS][DIM], k[KEYS][DIM], v[KEYS][VALUES];
    float out[HEADS][ROWS][VALUES], lse[HEADS][ROWS];
    attnkit_attention_args args;
    struct groups groups;
    int64_t offset;
};

static void fill(void *floats, size_t bytes, float scale, uint64_t *random)
{
    for (float *x = floats; x < (float *)floats + bytes / sizeof *x; x++)
        *x = scale * random_uniform(random);
}

static struct problem_data *new_problem(int rows, int64_t offset, bool causal)
{
    struct problem_data *p = calloc(1, sizeof *p);
    uint64_t random = 11;
    fill(p->q, sizeof p->q, 2, &random);
    fill(p->k, sizeof p->k, 2, &random);
    fill(p->v, sizeof p->v, 1, &random);
    p->offset = offset;
    p->args = (attnkit_attention_args){
        .size = sizeof p->args,
        .flags = causal ? ATTNKIT_CAUSAL : 0,
        .align = causal ? ATTNKIT_ALIGN_OFFSETS : ATTNKIT_ALIGN_NONE,
        .batch = 1,
        .q_heads = HEADS,
        .kv_heads = 1,
        .q_len = rows,
        .kv_len = KEYS,
        .head_dim = DIM,
        .value_dim = VALUES,
        .q = {.data = p->q, .strides = {0, sizeof p->q[0], sizeof p->q[0][0]}},
        .k = {.data = p->k, .strides = {0, 0, sizeof p->k[0]}},
        .v = {.data = p->v, .strides = {0, 0, sizeof p->v[0]}},
        .out = {.data = p->out, .strides = {0, sizeof p->out[0], sizeof p->out[0][0]}},
        .lse = {.data = p->lse, .strides = {0, sizeof p->lse[0], sizeof p->lse[0][0]}},
        .q_offsets = {.data = causal ? &p->offset : NULL},
    };
    groups_init(&p->groups);
    groups_hang(&p->args, &p->groups);
    groups_set_strided(&p->args, &p->groups);
    return p;
}

static void run(struct problem_data *p, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    assert_int_equal(attnkit_attention_workspace(&p->args, &exec, &exec.workspace_size, message),
                     ATTNKIT_OK);
    exec.workspace = malloc(exec.workspace_size);
    memset(p->out, 0x5a, sizeof p->out);
    memset(p->lse, 0x5a, sizeof p->lse);
    assert_int_equal(attnkit_attention(&p->args, &exec, message), ATTNKIT_OK);
    free(exec.workspace);
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Many rows, for prefill; few rows and one row, for decode. */
static const int row_counts[] = {ROWS, 3, 1};

enum { ROW_COUNTS = sizeof row_counts / sizeof row_counts[0] };

static bool row_is_nan(const struct problem_data *p, int head, int row)
{
    bool all = isnan(p->lse[head][row]);
    for (int c = 0; c < VALUES; c++)
        all &= isnan(p->out[head][row][c]) != 0;
    return all;
}

static bool row_is_same(const struct problem_data *a, const struct problem_data *b, int head,
                        int row)
{
    return memcmp(a->out[head][row], b->out[head][row], sizeof a->out[head][row]) == 0 &&
           memcmp(&a->lse[head][row], &b->lse[head][row], sizeof(float)) == 0;
}

static void what_a_masked_key_holds_changes_no_bit(void **state)
{
    static const uint32_t poison[] = {0x7fc00000, 0x7fa00000, 0xffa00001, 0x7f800000, 0xff800000};
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        const int rows = row_counts[n], offset = 520;
        struct problem_data *clean = new_problem(rows, offset, true);
        run(clean, *state);
        for (size_t i = 0; i < sizeof poison / sizeof poison[0]; i++) {
            struct problem_data *p = new_problem(rows, offset, true);
            const int first_poisoned =
                offset + rows / 2 + 1; /* rows 0 .. rows / 2 see no key from this key on */
            for (int key = first_poisoned; key < KEYS; key++) {
                for (int d = 0; d < DIM; d++)
                    p->k[key][d] = from_bits(poison[i]);
                for (int c = 0; c < VALUES; c++)
                    p->v[key][c] = from_bits(poison[i]);
            }
            run(p, *state);
            for (int h = 0; h < HEADS; h++)
                for (int row = 0; row <= rows / 2; row++)
                    assert_true(row_is_same(clean, p, h, row));
            free(p);
        }
        free(clean);
    }
}

static void keys_beyond_kv_len_are_absent(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        struct problem_data *exact = new_problem(row_counts[n], 0, false);
        struct problem_data *padded = new_problem(row_counts[n], 0, false);
        const int64_t length = 531;
        exact->args.kv_len = length;
        padded->groups.visibility.kv_lens = (attnkit_ints){.data = &length};
        for (int key = (int)length; key < KEYS; key++)
            padded->k[key][0] = padded->v[key][0] = NAN;
        run(exact, *state);
        run(padded, *state);
        assert_memory_equal(exact->out, padded->out, sizeof exact->out);
        assert_memory_equal(exact->lse, padded->lse, sizeof exact->lse);
        free(exact);
        free(padded);
    }
}

/* Returns a copy of the first `keys` rows. The copy ends at a page without access. */
static char *ending_at_a_guard(const void *rows, size_t row_bytes, size_t keys)
{
    enum { PAGE = 4096, PAGES = 32 };
    char *region =
        mmap(NULL, PAGE * PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(region != MAP_FAILED);
    char *end = region + PAGE * (PAGES - 1);
    assert_int_equal(mprotect(end, PAGE, PROT_NONE), 0);
    return memcpy(end - row_bytes * keys, rows, row_bytes * keys);
}

static void keys_that_no_row_sees_may_be_unmapped(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        const int offset = 300;
        const size_t keys = (size_t)(offset + row_counts[n]);
        struct problem_data *p = new_problem(row_counts[n], offset, true);
        struct problem_data *cut = new_problem(row_counts[n], offset, true);
        cut->args.k.data = ending_at_a_guard(p->k, sizeof p->k[0], keys);
        cut->args.v.data = ending_at_a_guard(p->v, sizeof p->v[0], keys);
        run(p, *state);
        run(cut, *state);
        assert_memory_equal(p->out, cut->out, sizeof p->out);
        free(p);
        free(cut);
    }
}

static void row_that_sees_nothing_is_zero_with_lse_minus_infinity(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        const int rows = row_counts[n], blind = rows / 2 + 1;
        struct problem_data *p = new_problem(rows, -blind, true);
        for (int key = 0; key < KEYS; key++)
            for (int c = 0; c < VALUES; c++)
                p->v[key][c] = key % 2 ? NAN : -1.0f;
        run(p, *state);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < blind && row < rows; row++) {
                for (int c = 0; c < VALUES; c++)
                    assert_true(p->out[h][row][c] == 0.0f && !signbit(p->out[h][row][c]));
                assert_true(p->lse[h][row] == -INFINITY);
            }
        free(p);
    }
}

static void no_keys_at_all_give_zero_with_lse_minus_infinity(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        struct problem_data *p = new_problem(row_counts[n], 0, false);
        p->args.kv_len = 0;
        p->args.k.data = p->args.v.data = NULL;
        run(p, *state);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < row_counts[n]; row++) {
                for (int c = 0; c < VALUES; c++)
                    assert_true(p->out[h][row][c] == 0.0f && !signbit(p->out[h][row][c]));
                assert_true(p->lse[h][row] == -INFINITY);
            }
        free(p);
    }
}

static void nan_in_q_makes_that_row_nan_and_no_other(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        struct problem_data *clean = new_problem(row_counts[n], 530, true);
        struct problem_data *p = new_problem(row_counts[n], 530, true);
        const int bad = row_counts[n] / 3;
        p->q[1][bad][DIM - 1] = NAN;
        run(clean, *state);
        run(p, *state);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < row_counts[n]; row++)
                assert_true(h == 1 && row == bad ? row_is_nan(p, h, row)
                                                 : row_is_same(clean, p, h, row));
        free(clean);
        free(p);
    }
}

/* Each of 100 keys has the NaN in turn, because an instruction for the maximum may lose a NaN only
 * at some places of a vector. */
static void nan_in_a_visible_k_makes_the_row_nan(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++)
        for (int key = 500; key < 600; key++) {
            struct problem_data *p = new_problem(row_counts[n], 530, true);
            p->k[key][key % DIM] = NAN;
            run(p, *state);
            for (int h = 0; h < HEADS; h++)
                for (int row = 0; row < row_counts[n]; row++)
                    assert_int_equal(row_is_nan(p, h, row), key <= 530 + row);
            free(p);
        }
}

static void nan_in_a_visible_v_makes_the_column_nan(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++)
        for (int key = 510; key < 600; key += 3) {
            struct problem_data *p = new_problem(row_counts[n], 530, true);
            const int column = key % VALUES;
            p->v[key][column] = NAN;
            run(p, *state);
            for (int h = 0; h < HEADS; h++)
                for (int row = 0; row < row_counts[n]; row++) {
                    assert_false(isnan(p->lse[h][row]));
                    for (int c = 0; c < VALUES; c++)
                        assert_int_equal(isnan(p->out[h][row][c]) != 0,
                                         c == column && key <= 530 + row);
                }
            free(p);
        }
}

/* The weight of key 7 is 0 by underflow. The weight of key 9 is 0 because its score is -inf. The
 * NaNs of both keys still reach the result. */
static void nan_in_a_visible_v_of_weight_zero_is_not_lost(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        struct problem_data *p = new_problem(row_counts[n], 0, false);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < row_counts[n]; row++)
                p->q[h][row][0] = 1e3f;
        p->k[7][0] = -1e3f;
        p->k[9][0] = -3e38f;
        p->v[7][3] = NAN;
        p->v[9][4] = NAN;
        run(p, *state);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < row_counts[n]; row++)
                for (int c = 0; c < VALUES; c++)
                    assert_int_equal(isnan(p->out[h][row][c]) != 0, c == 3 || c == 4);
        free(p);
    }
}

static void score_of_plus_infinity_makes_the_row_nan(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        struct problem_data *p = new_problem(row_counts[n], 530, true);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < row_counts[n]; row++)
                p->q[h][row][0] = 1e30f;
        const int huge = row_counts[n] > 1 ? 531 : 530;
        for (int key = 0; key < KEYS; key++)
            p->k[key][0] = key == huge ? 1e30f : 0.0f;
        run(p, *state);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < row_counts[n]; row++)
                assert_int_equal(row_is_nan(p, h, row), huge <= 530 + row);
        free(p);
    }
}

static void score_of_minus_infinity_has_weight_zero(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        struct problem_data *with = new_problem(row_counts[n], 0, false);
        struct problem_data *without = new_problem(row_counts[n], 0, false);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < row_counts[n]; row++)
                with->q[h][row][0] = without->q[h][row][0] = 1e30f;
        for (int key = 0; key < KEYS; key++)
            with->k[key][0] = without->k[key][0] = 0.0f;
        with->k[KEYS - 1][0] = -1e30f;
        without->args.kv_len = KEYS - 1;
        run(with, *state);
        run(without, *state);
        assert_memory_equal(with->out, without->out, sizeof with->out);
        assert_memory_equal(with->lse, without->lse, sizeof with->lse);
        free(with);
        free(without);
    }
}

static void row_of_minus_infinite_scores_is_zero(void **state)
{
    for (size_t n = 0; n < ROW_COUNTS; n++) {
        struct problem_data *p = new_problem(row_counts[n], 0, false);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < row_counts[n]; row++)
                p->q[h][row][0] = 1e30f;
        for (int key = 0; key < KEYS; key++)
            p->k[key][0] = -1e30f;
        p->v[KEYS / 2][2] = NAN;
        run(p, *state);
        for (int h = 0; h < HEADS; h++)
            for (int row = 0; row < row_counts[n]; row++) {
                for (int c = 0; c < VALUES; c++)
                    assert_true(c == 2 ? isnan(p->out[h][row][c]) != 0 : p->out[h][row][c] == 0.0f);
                assert_true(p->lse[h][row] == -INFINITY);
            }
        free(p);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(what_a_masked_key_holds_changes_no_bit),
        cmocka_unit_test(keys_beyond_kv_len_are_absent),
        cmocka_unit_test(keys_that_no_row_sees_may_be_unmapped),
        cmocka_unit_test(row_that_sees_nothing_is_zero_with_lse_minus_infinity),
        cmocka_unit_test(no_keys_at_all_give_zero_with_lse_minus_infinity),
        cmocka_unit_test(nan_in_q_makes_that_row_nan_and_no_other),
        cmocka_unit_test(nan_in_a_visible_k_makes_the_row_nan),
        cmocka_unit_test(nan_in_a_visible_v_makes_the_column_nan),
        cmocka_unit_test(nan_in_a_visible_v_of_weight_zero_is_not_lost),
        cmocka_unit_test(score_of_plus_infinity_makes_the_row_nan),
        cmocka_unit_test(score_of_minus_infinity_has_weight_zero),
        cmocka_unit_test(row_of_minus_infinite_scores_is_zero),
    };
    enum { PROMISES = sizeof promises / sizeof promises[0], MOST = 8 * PROMISES };
    struct CMUnitTest tests[MOST];
    char names[MOST][128];
    size_t count = 0;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    for (int i = 0; i < isa_count; i++) {
        const bool wanted = argc < 2 || strcmp(argv[1], isas[i].name) == 0;
        if (!wanted || !attnkit_isa_can_run(&isas[i]))
            continue;
        for (int j = 0; j < PROMISES; j++, count++) {
            snprintf(names[count], sizeof names[count], "%s: %s", isas[i].name, promises[j].name);
            tests[count] = promises[j];
            tests[count].name = names[count];
            tests[count].initial_state = (void *)(uintptr_t)isas[i].name;
        }
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("masked", tests, count, NULL, NULL);
}
