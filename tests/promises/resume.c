/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over the keys in parts: each call continues from the state of the call before it. The
 * last call, or one more call without keys, gives the result. The result has the bits of a single
 * call. The cases have few or many rows, with and without a causal mask, and rows that see no key
 * of a part. In three quarters of the cases, K and V are binary32. In the other cases, V is Q8_0 or
 * bfloat16, and K is binary32, binary16 or bfloat16. The calls over parts have one to three
 * threads, whose tasks run one after the other. A case is drawn from its number.
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

#include "dispatch/cpu/isa.h"
#include "tests/support/groups.h"
#include "tests/support/random.h"
#include "tests/support/units.h"

enum {
    CASES = 60,
    MAX_ISAS = 8,
    KV_HEADS = 2,
    MAX_BATCH = 2,
    CHUNK = ATTNKIT_CHUNK_KEYS,
};

struct drawn {
    attnkit_attention_args args;
    struct groups groups;
    int64_t kv_lens[MAX_BATCH], q_offsets[MAX_BATCH];
    size_t rows;
    int threads;
    uint64_t random;
};

static float *random_floats(size_t count, float scale, bool special, uint64_t *random)
{
    float *x = malloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = scale * random_uniform(random);
        if (special && random_below(random, 20000) == 0)
            x[i] = random_below(random, 2) ? NAN : INFINITY;
    }
    return x;
}

static void draw_case(struct drawn *c, int number)
{
    *c = (struct drawn){.random = (uint64_t)number + 1};
    uint64_t *const random = &c->random;
    attnkit_attention_args *const a = &c->args;
    a->size = sizeof *a;
    groups_init(&c->groups);
    groups_hang(a, &c->groups);
    a->batch = 1 + random_below(random, MAX_BATCH);
    a->kv_heads = KV_HEADS;
    a->q_heads = KV_HEADS * (1 + random_below(random, 4));
    a->q_len = number % 3 == 0 ? 1 : 1 + random_below(random, 40);
    a->kv_len = random_below(random, 5 * CHUNK);
    a->head_dim = 1 + random_below(random, 24);
    a->value_dim = 1 + random_below(random, 40);
    c->threads = 1 + (int)random_below(random, 3);
    if (number % 4 == 0) {
        a->head_dim = a->value_dim = 32;
        a->k.type = (attnkit_type)random_below(random, 3);
        a->v.type = random_below(random, 2) ? ATTNKIT_Q8_0 : ATTNKIT_BF16;
    }
    for (int b = 0; b < a->batch; b++) {
        c->kv_lens[b] = random_below(random, a->kv_len + 1);
        c->q_offsets[b] = random_below(random, a->kv_len + 1) - random_below(random, 30);
    }
    if (random_below(random, 2))
        c->groups.visibility.kv_lens.data = c->kv_lens;
    if (random_below(random, 3)) {
        a->flags = ATTNKIT_CAUSAL;
        a->align = random_below(random, 2) ? ATTNKIT_ALIGN_OFFSETS : ATTNKIT_ALIGN_UPPER_LEFT;
        if (a->align == ATTNKIT_ALIGN_OFFSETS)
            a->q_offsets.data = c->q_offsets;
    }
    /* The rows of K and V are dense: the rows of a head lie one after the other, without gaps. */
    const size_t keys = (size_t)(a->batch * a->kv_heads * a->kv_len);
    c->rows = (size_t)(a->batch * a->q_heads * a->q_len);
    const bool special = number % 5 == 0;
    a->q.data = random_floats(c->rows * (size_t)a->head_dim, 4.0f, special, random);
    a->k.data = random_floats(keys * (size_t)a->head_dim, 4.0f, special, random);
    a->v.data = random_floats(keys * (size_t)a->value_dim, number % 6 == 1 ? FLT_MAX : 4.0f,
                              special, random);
    a->out.data = malloc(c->rows * (size_t)a->value_dim * sizeof(float));
    a->lse.data = malloc(c->rows * sizeof(float));
}

static void free_case(struct drawn *c)
{
    const attnkit_tensor *const tensors[] = {&c->args.q, &c->args.k, &c->args.v, &c->args.out,
                                             &c->args.lse};
    for (int i = 0; i < 5; i++)
        free((void *)(uintptr_t)tensors[i]->data);
}

static attnkit_state new_state(const struct drawn *c)
{
    const size_t bytes = c->rows * sizeof(double);
    const attnkit_state s = {malloc(c->rows * sizeof(float)), malloc(bytes),
                             malloc(bytes * (size_t)c->args.value_dim)};
    return s;
}

static void free_state(attnkit_state s)
{
    free(s.max);
    free(s.sum);
    free(s.out);
}

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    for (int64_t i = n - 1; i >= 0; i--)
        task(arg, i);
}

static void attend(const attnkit_attention_args *args, const char *isa, int threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    if (threads > 1)
        exec.parallel_for = backwards;
    assert_int_equal(attnkit_attention_workspace(args, &exec, &exec.workspace_size, message),
                     ATTNKIT_OK);
    exec.workspace = malloc(exec.workspace_size + 1);
    const attnkit_status status = attnkit_attention(args, &exec, message);
    if (status != ATTNKIT_OK)
        printf("# %s\n", message);
    assert_int_equal(status, ATTNKIT_OK);
    free(exec.workspace);
}

/* Returns the size in bytes of `n` elements of a row. For Q8_0, n is a multiple of 32. */
static int64_t row_bytes(attnkit_type type, int64_t n)
{
    return type == ATTNKIT_F32 ? 4 * n : type == ATTNKIT_Q8_0 ? n / 32 * 34 : 2 * n;
}

static void set_strides(attnkit_attention_args *a)
{
    attnkit_tensor *const tensors[] = {&a->q, &a->k, &a->v, &a->out, &a->lse};
    const int64_t dims[] = {a->head_dim, a->head_dim, a->value_dim, a->value_dim, 1};
    for (int i = 0; i < 5; i++) {
        const bool is_key = i == 1 || i == 2;
        int64_t *const strides = tensors[i]->strides;
        tensors[i]->layout |= ATTNKIT_STRIDED;
        strides[2] = row_bytes(tensors[i]->type, dims[i]);
        strides[1] = strides[2] * (is_key ? a->kv_len : a->q_len);
        strides[0] = strides[1] * (is_key ? a->kv_heads : a->q_heads);
    }
}

/* A call over a range of the keys. */
struct part {
    attnkit_attention_args args;
    struct groups groups;
    int64_t kv_lens[MAX_BATCH];
};

/* Makes the call over keys first .. end - 1 of the case. */
static void make_part(struct part *part, const struct drawn *c, int64_t first, int64_t end)
{
    attnkit_attention_args *const a = &part->args;
    *part = (struct part){.args = c->args, .groups = c->groups};
    groups_hang(a, &part->groups);
    set_strides(a);
    part->groups.states.first_key = first;
    a->kv_len = end - first;
    a->k.data = (const char *)a->k.data + first * a->k.strides[2];
    a->v.data = (const char *)a->v.data + first * a->v.strides[2];
    for (int b = 0; b < a->batch; b++) {
        const int64_t all = c->groups.visibility.kv_lens.data ? c->kv_lens[b] : c->args.kv_len;
        part->kv_lens[b] = all < first ? 0 : all > end ? end - first : all - first;
    }
    part->groups.visibility.kv_lens.data = part->kv_lens;
}

/* Runs a call over keys first .. end - 1. If `before` is not NULL, the call continues from this
 * state. The call writes the state `after`. If `after` is NULL, it writes out and lse instead. */
static void attend_part(const struct drawn *c, const char *isa, int64_t first, int64_t end,
                        const attnkit_state *before, const attnkit_state *after, float *out,
                        float *lse)
{
    struct part part;
    make_part(&part, c, first, end);
    part.args.out.data = after ? NULL : out;
    part.args.lse.data = after ? NULL : lse;
    if (before)
        part.groups.states.state_in = *before;
    if (after)
        part.groups.states.state_out = *after;
    attend(&part.args, isa, c->threads);
}

/* Attends over the keys in parts of one to three chunks, drawn at random. The last part may be
 * shorter. In about half of the cases, one more call without keys gives the result. */
static void attend_in_parts(struct drawn *c, const char *isa, float *out, float *lse)
{
    attnkit_state states[2] = {new_state(c), new_state(c)};
    const int64_t keys = c->args.kv_len;
    const bool empty_last = random_below(&c->random, 2);
    int part = 0;
    for (int64_t first = 0; first < keys || part == 0; part++) {
        const int64_t length = CHUNK * (1 + random_below(&c->random, 3));
        const int64_t end = first + length < keys ? first + length : keys;
        const attnkit_state *before = part > 0 ? &states[part % 2] : NULL;
        const bool is_result = end == keys && !empty_last;
        attend_part(c, isa, first, end, before, is_result ? NULL : &states[(part + 1) % 2], out,
                    lse);
        first = end;
    }
    if (empty_last)
        attend_part(c, isa, 0, 0, &states[part % 2], NULL, out, lse);
    free_state(states[0]);
    free_state(states[1]);
}

static void parts_have_the_bits_of_the_whole(void **state)
{
    const struct isa *isa = *state;
    for (int i = 0; i < CASES; i++) {
        struct drawn c;
        draw_case(&c, i);
        attend(&c.args, isa->name, 1);
        float *out = malloc(c.rows * (size_t)c.args.value_dim * sizeof *out);
        float *lse = malloc(c.rows * sizeof *lse);
        attend_in_parts(&c, isa->name, out, lse);
        if (memcmp(out, c.args.out.data, c.rows * (size_t)c.args.value_dim * sizeof *out) != 0 ||
            memcmp(lse, c.args.lse.data, c.rows * sizeof *lse) != 0) {
            printf("# %s: case %d differs\n", isa->name, i);
            fail();
        }
        free(out);
        free(lse);
        free_case(&c);
    }
}

/* The maximum is the ceiling of a number above -1, and the weighted sum of V is a sum of products
 * that underflow. Both are zero. Until the state is written, these zeros may be negative. */
static void a_zero_in_a_state_is_positive(void **state)
{
    const struct isa *isa = *state;
    enum { ROWS = 70 };
    const double zero[2] = {0.0, 0.0};
    const float k[2] = {1.0f, 3.0f};
    const float v[2][2] = {{0.0f, 0.0f}, {-0x1p-149f, 0x1p-149f}};
    float q[ROWS], row_max[ROWS];
    double row_sum[ROWS], out[ROWS][2];
    for (int r = 0; r < ROWS; r++)
        q[r] = -0.6f;
    const attnkit_states states = {.size = sizeof states, .state_out = {row_max, row_sum, out[0]}};
    for (int rows = 1; rows <= ROWS; rows += ROWS - 1) {
        const attnkit_attention_args a = {
            .size = sizeof a,
            .batch = 1,
            .q_heads = 1,
            .kv_heads = 1,
            .q_len = rows,
            .kv_len = 2,
            .head_dim = 1,
            .value_dim = 2,
            .q = {.data = q},
            .k = {.data = k},
            .v = {.data = v},
            .states = &states,
        };
        memset(out, 0xff, sizeof out);
        attend(&a, isa->name, 1);
        for (int r = 0; r < rows; r++) {
            assert_memory_equal(&row_max[r], zero, sizeof row_max[r]);
            assert_memory_equal(out[r], zero, sizeof out[r]);
            assert_true(row_sum[r] > 0.7 && row_sum[r] < 0.72);
        }
    }
}

/* Makes one call of 35 causal rows, and one call of each of these rows alone. All calls continue
 * from the same state, and must write the same bits. The state may have numbers that no call
 * writes. Only the last row sees the NaN in V. *nan_in_o says whether any other row has a NaN in
 * its weighted sum of V. */
static void go_on_from(const char *isa, float max_in, double sum_in, bool *nan_in_o)
{
    enum { ROWS = 35 };
    const float zeros[ROWS] = {0.0f};
    float v[ROWS], in_max[ROWS], out_max[ROWS], max;
    double in_sum[ROWS], in_o[ROWS], out_sum[ROWS], out_o[ROWS], sum, o;
    for (int r = 0; r < ROWS; r++) {
        v[r] = r == ROWS - 1 ? NAN : FLT_MAX;
        in_max[r] = max_in;
        in_sum[r] = sum_in;
        in_o[r] = 1.0;
    }
    int64_t offset = 0;
    attnkit_states states = {.size = sizeof states,
                             .state_in = {in_max, in_sum, in_o},
                             .state_out = {out_max, out_sum, out_o}};
    attnkit_attention_args a = {
        .size = sizeof a,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = ROWS,
        .kv_len = ROWS,
        .head_dim = 1,
        .value_dim = 1,
        .flags = ATTNKIT_CAUSAL,
        .align = ATTNKIT_ALIGN_OFFSETS,
        .q_offsets = {.data = &offset},
        .q = {.data = zeros},
        .k = {.data = zeros},
        .v = {.data = v},
        .states = &states,
    };
    attend(&a, isa, 1);
    a.q_len = 1;
    states.state_out = (attnkit_state){&max, &sum, &o};
    *nan_in_o = false;
    for (offset = 0; offset < ROWS; offset++) {
        attend(&a, isa, 1);
        assert_memory_equal(&max, &out_max[offset], sizeof max);
        assert_memory_equal(&sum, &out_sum[offset], sizeof sum);
        assert_memory_equal(&o, &out_o[offset], sizeof o);
        *nan_in_o |= offset < ROWS - 1 && isnan(o);
    }
}

static void a_masked_key_is_absent_from_any_state(void **state)
{
    const struct isa *isa = *state;
    const double nan = (double)NAN;
    bool nan_in_o;
    go_on_from(isa->name, 0.0f, nan, &nan_in_o);
    assert_false(nan_in_o);
    go_on_from(isa->name, INFINITY, 1.0, &nan_in_o);
    go_on_from(isa->name, NAN, 1.0, &nan_in_o);
    assert_true(nan_in_o);
}

static void states_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct drawn c;
    draw_case(&c, 1);
    const attnkit_state s = new_state(&c);
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec};
    attnkit_attention_args a = c.args;
    attnkit_states *const states = &c.groups.states;
    states->first_key = 100;
    assert_int_equal(attnkit_attention(&a, &exec, message), ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "first_key is 100: must be a multiple of"));
    states->first_key = INT64_MAX / CHUNK * CHUNK;
    a.kv_len = CHUNK;
    assert_int_equal(attnkit_attention(&a, &exec, message), ATTNKIT_OVERFLOW);
    a = c.args;
    attnkit_states_init(states);
    states->state_in.max = s.max;
    assert_int_equal(attnkit_attention(&a, &exec, message), ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "state_in.max, state_in.sum and state_in.out: some are NULL"));
    attnkit_states_init(states);
    states->state_out = s;
    a.out.data = NULL;
    assert_int_equal(attnkit_attention(&a, &exec, message), ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "lse and state_out are both given"));
    a.lse.data = NULL;
    states->state_in = s;
    assert_int_equal(attnkit_attention(&a, &exec, message), ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "overlaps"));
    free_state(s);
    free_case(&c);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[3 * MAX_ISAS + 1] = {
        cmocka_unit_test(states_that_do_not_fit_are_refused)};
    size_t count = 1;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++) {
        void *const isa = (void *)(uintptr_t)&isas[i];
        if ((argc >= 2 && strcmp(argv[1], isas[i].name) != 0) || !attnkit_isa_can_run(&isas[i]))
            continue;
        tests[count++] =
            (struct CMUnitTest){isas[i].name, parts_have_the_bits_of_the_whole, NULL, NULL, isa};
        tests[count++] = (struct CMUnitTest){"a_zero_in_a_state_is_positive",
                                             a_zero_in_a_state_is_positive, NULL, NULL, isa};
        tests[count++] =
            (struct CMUnitTest){"a_masked_key_is_absent_from_any_state",
                                a_masked_key_is_absent_from_any_state, NULL, NULL, isa};
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("resume", tests, count, NULL, NULL);
}
