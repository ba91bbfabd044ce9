/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences packed one after the other: the result of each sequence has the bits of a call of this
 * sequence alone. Lengths may be 0. Rows, keys or both are packed, head-major or token-major, on
 * one thread and several. Another test of this file checks which cu_seqlens are refused. A case is
 * drawn from its number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
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
    MAX_BATCH = 6,
    Q_HEADS = 6,
    KV_HEADS = 2,
};

struct drawn {
    attnkit_attention_args args;
    struct groups groups;
    int64_t cu_seqlens_q[MAX_BATCH + 1], cu_seqlens_kv[MAX_BATCH + 1];
    int64_t kv_lens[MAX_BATCH], q_offsets[MAX_BATCH];
    size_t out_bytes, lse_bytes;
    int threads;
};

static float *random_floats(int64_t count, uint64_t *random)
{
    float *x = malloc((size_t)count * sizeof *x + 1);
    for (int64_t i = 0; i < count; i++)
        x[i] = 3.0f * random_uniform(random);
    return x;
}

static void draw_starts(int64_t *starts, int64_t batch, int64_t most, uint64_t *random)
{
    starts[0] = 0;
    for (int64_t b = 0; b < batch; b++) {
        const bool is_empty = random_below(random, 5) == 0;
        starts[b + 1] = starts[b] + (is_empty ? 0 : 1 + random_below(random, most));
    }
}

/* Sets the strides {batch, head, row} of a head-major or token-major tensor. */
static void set_strides(attnkit_tensor *t, int64_t heads, int64_t rows, int64_t dim, bool tokens)
{
    t->layout = ATTNKIT_STRIDED;
    t->strides[tokens ? 1 : 2] = dim * 4;
    t->strides[tokens ? 2 : 1] = dim * 4 * (tokens ? heads : rows);
    t->strides[0] = dim * 4 * heads * rows;
}

static void draw_case(struct drawn *c, int number)
{
    *c = (struct drawn){.threads = 1 + number / 3 % 3};
    uint64_t random = (uint64_t)number + 1;
    attnkit_attention_args *const a = &c->args;
    a->size = sizeof *a;
    groups_init(&c->groups);
    groups_hang(a, &c->groups);
    a->batch = 1 + random_below(&random, MAX_BATCH);
    a->q_heads = Q_HEADS;
    a->kv_heads = KV_HEADS;
    a->head_dim = 1 + random_below(&random, 20);
    a->value_dim = 1 + random_below(&random, 40);
    draw_starts(c->cu_seqlens_q, a->batch, number % 4 ? 40 : 200, &random);
    draw_starts(c->cu_seqlens_kv, a->batch, number % 5 ? 600 : 2000, &random);
    a->q_len = 1 + random_below(&random, 40);
    a->kv_len = random_below(&random, 600);
    if (number % 3 != 1) {
        c->groups.storage.cu_seqlens_q.data = c->cu_seqlens_q;
        a->q_len = c->cu_seqlens_q[a->batch];
    }
    for (int b = 0; b < a->batch; b++)
        c->kv_lens[b] = random_below(&random, a->kv_len + 1);
    if (number % 3 != 2) {
        c->groups.storage.cu_seqlens_kv.data = c->cu_seqlens_kv;
        a->kv_len = c->cu_seqlens_kv[a->batch];
    } else if (random_below(&random, 2)) {
        c->groups.visibility.kv_lens.data = c->kv_lens;
    }
    for (int b = 0; b < a->batch; b++)
        c->q_offsets[b] = random_below(&random, 600) - 40;
    if (random_below(&random, 4)) {
        a->flags |= ATTNKIT_CAUSAL;
        a->align = (attnkit_align)(1 + random_below(&random, 3));
        a->q_offsets.data = a->align == ATTNKIT_ALIGN_OFFSETS ? c->q_offsets : NULL;
    }
    const bool packed_rows = c->groups.storage.cu_seqlens_q.data;
    const bool packed_keys = c->groups.storage.cu_seqlens_kv.data;
    const int64_t rows = a->q_len * Q_HEADS * (packed_rows ? 1 : a->batch);
    const int64_t keys = a->kv_len * KV_HEADS * (packed_keys ? 1 : a->batch);
    c->out_bytes = (size_t)(rows * a->value_dim) * sizeof(float);
    c->lse_bytes = (size_t)rows * sizeof(float);
    a->q.data = random_floats(rows * a->head_dim, &random);
    a->k.data = random_floats(keys * a->head_dim, &random);
    a->v.data = random_floats(keys * a->value_dim, &random);
    a->out.data = malloc(c->out_bytes + 1);
    a->lse.data = malloc(c->lse_bytes + 1);
    const bool tokens = random_below(&random, 2);
    set_strides(&a->q, Q_HEADS, a->q_len, a->head_dim, tokens);
    set_strides(&a->k, KV_HEADS, a->kv_len, a->head_dim, tokens);
    set_strides(&a->v, KV_HEADS, a->kv_len, a->value_dim, tokens);
    set_strides(&a->out, Q_HEADS, a->q_len, a->value_dim, tokens);
    set_strides(&a->lse, Q_HEADS, a->q_len, 1, tokens);
}

static void free_case(struct drawn *c)
{
    const attnkit_tensor *const tensors[] = {&c->args.q, &c->args.k, &c->args.v, &c->args.out,
                                             &c->args.lse};
    for (int i = 0; i < 5; i++)
        free((void *)(uintptr_t)tensors[i]->data);
}

static void forwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    for (int64_t i = 0; i < n; i++)
        task(arg, i);
}

static void attend(const attnkit_attention_args *args, const char *isa, int threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    exec.parallel_for = threads > 1 ? forwards : NULL;
    assert_int_equal(attnkit_attention_workspace(args, &exec, &exec.workspace_size, message),
                     ATTNKIT_OK);
    exec.workspace = malloc(exec.workspace_size + 1);
    const attnkit_status status = attnkit_attention(args, &exec, message);
    if (status != ATTNKIT_OK)
        printf("# %s\n", message);
    assert_int_equal(status, ATTNKIT_OK);
    free(exec.workspace);
}

/* Makes a tensor begin at the given row of an entry. */
static void move_to(attnkit_tensor *t, int64_t entry, int64_t row)
{
    t->data = (const char *)t->data + entry * t->strides[0] + row * t->strides[2];
}

/* Runs a call of entry b alone. Its result goes to the same places of out and lse as in the whole
 * call. */
static void attend_alone(const struct drawn *c, int64_t b, const char *isa, char *out, char *lse)
{
    attnkit_attention_args a = c->args;
    struct groups g = c->groups;
    attnkit_kv_storage *const storage = &g.storage;
    const bool packed_rows = storage->cu_seqlens_q.data, packed_keys = storage->cu_seqlens_kv.data;
    const int64_t row = packed_rows ? c->cu_seqlens_q[b] : 0;
    const int64_t key = packed_keys ? c->cu_seqlens_kv[b] : 0;
    const int64_t row_entry = packed_rows ? 0 : b, key_entry = packed_keys ? 0 : b;
    groups_hang(&a, &g);
    a.batch = 1;
    a.q_len = packed_rows ? c->cu_seqlens_q[b + 1] - row : a.q_len;
    a.kv_len = packed_keys ? c->cu_seqlens_kv[b + 1] - key : a.kv_len;
    storage->cu_seqlens_q.data = storage->cu_seqlens_kv.data = NULL;
    g.visibility.kv_lens.data = g.visibility.kv_lens.data ? c->kv_lens + b : NULL;
    a.q_offsets.data = a.q_offsets.data ? c->q_offsets + b : NULL;
    a.out.data = out;
    a.lse.data = lse;
    move_to(&a.q, row_entry, row);
    move_to(&a.out, row_entry, row);
    move_to(&a.lse, row_entry, row);
    move_to(&a.k, key_entry, key);
    move_to(&a.v, key_entry, key);
    attend(&a, isa, 1);
}

static void packed_sequences_have_the_bits_of_each_sequence_alone(void **state)
{
    const struct isa *isa = *state;
    for (int i = 0; i < CASES; i++) {
        struct drawn c;
        draw_case(&c, i);
        char *out = malloc(c.out_bytes + 1), *lse = malloc(c.lse_bytes + 1);
        attend(&c.args, isa->name, c.threads);
        for (int64_t b = 0; b < c.args.batch; b++)
            attend_alone(&c, b, isa->name, out, lse);
        if (memcmp(out, c.args.out.data, c.out_bytes) ||
            memcmp(lse, c.args.lse.data, c.lse_bytes)) {
            printf("# %s: case %d differs\n", isa->name, i);
            fail();
        }
        free(out);
        free(lse);
        free_case(&c);
    }
}

static void expect(const attnkit_attention_args *args, attnkit_status expected, const char *words)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec};
    assert_int_equal(attnkit_attention(args, &exec, message), expected);
    if (!strstr(message, words))
        printf("# %s\n", message);
    assert_non_null(strstr(message, words));
}

static void bad_starts_are_refused(void **state)
{
    (void)state;
    struct drawn c;
    draw_case(&c, 0);
    c.args.batch = 3;
    c.args.q_len = c.args.kv_len = 9;
    c.args.flags = 0;
    c.args.align = ATTNKIT_ALIGN_NONE;
    c.args.q_offsets.data = NULL;
    attnkit_tensor *const tensors[] = {&c.args.q, &c.args.k, &c.args.v, &c.args.out, &c.args.lse};
    for (int i = 0; i < 5; i++)
        *tensors[i] = (attnkit_tensor){.data = tensors[i]->data};
    static const int64_t good[4] = {0, 4, 4, 9}, late[4] = {1, 4, 4, 9}, back[4] = {0, 5, 4, 9},
                         less[4] = {0, 4, 4, 8}, more[4] = {0, 4, 4, INT64_MAX},
                         negative[4] = {0, -1, 4, 9};
    attnkit_attention_args a = c.args;
    attnkit_ints *const starts = &c.groups.storage.cu_seqlens_q;
    attnkit_ints *const kv_starts = &c.groups.storage.cu_seqlens_kv;
    starts->data = kv_starts->data = good;
    expect(&a, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL");
    starts->data = late;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "cu_seqlens_q[0] is 1: must be 0");
    starts->data = back;
    expect(&a, ATTNKIT_BAD_ARGUMENT,
           "cu_seqlens_q[2] is 4: must be at least the number before it (5)");
    starts->data = negative;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "cu_seqlens_q[1] is -1");
    starts->data = less;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "cu_seqlens_q[3] is 8: must be q_len (9)");
    starts->data = good;
    kv_starts->data = more;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "cu_seqlens_kv[3] is 9223372036854775807: must be kv_len (9)");
    kv_starts->data = good;
    c.groups.visibility.kv_lens.data = good;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "kv_lens and cu_seqlens_kv are both given");
    c.groups.visibility.kv_lens.data = NULL;
    static const int32_t narrow[4] = {0, 5, 4, 9}, narrow_negative[4] = {0, -1, 4, 9};
    *starts = (attnkit_ints){.data = narrow, .type = ATTNKIT_INT32};
    expect(&a, ATTNKIT_BAD_ARGUMENT,
           "cu_seqlens_q[2] is 4: must be at least the number before it (5)");
    starts->data = narrow_negative;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "cu_seqlens_q[1] is -1");
    *starts = (attnkit_ints){.data = good};
    const int32_t table[1] = {0};
    c.groups.pages.block_table = table;
    c.groups.pages.page_size = c.groups.pages.block_table_stride = 9;
    c.groups.pages.pages = 1;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "cu_seqlens_kv and block_table are both given");
    free_case(&c);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[MAX_ISAS + 1] = {cmocka_unit_test(bad_starts_are_refused)};
    size_t count = 1;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++)
        if ((argc < 2 || strcmp(argv[1], isas[i].name) == 0) && attnkit_isa_can_run(&isas[i]))
            tests[count++] = (struct CMUnitTest){
                isas[i].name, packed_sequences_have_the_bits_of_each_sequence_alone, NULL, NULL,
                (void *)(uintptr_t)&isas[i]};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("packed", tests, count, NULL, NULL);
}
