/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences packed one after the other: each has the bits that it has in a call of its own, with
 * any lengths, none among them, rows only or keys only packed, dense and token-major, on one
 * thread and several. And what starts may not be. A case is drawn from its number.
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
#include "attnkit.h"
#include "tests/support/random.h"

enum {
    CASES = 60,
    MAX_ISAS = 8,
    MAX_BATCH = 6,
    Q_HEADS = 6,
    KV_HEADS = 2,
};

struct drawn {
    attnkit_attention_args args;
    int64_t q_starts[MAX_BATCH + 1], kv_starts[MAX_BATCH + 1];
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

/* {batch, head, row}: heads inside or rows inside. */
static void set_strides(int64_t strides[3], int64_t heads, int64_t rows, int64_t dim, bool tokens)
{
    strides[tokens ? 1 : 2] = dim * 4;
    strides[tokens ? 2 : 1] = dim * 4 * (tokens ? heads : rows);
    strides[0] = dim * 4 * heads * rows;
}

static void draw_case(struct drawn *c, int number)
{
    *c = (struct drawn){.threads = 1 + number / 3 % 3};
    uint64_t random = (uint64_t)number + 1;
    attnkit_attention_args *const a = &c->args;
    a->size = sizeof *a;
    a->flags = ATTNKIT_STRIDED;
    a->batch = 1 + random_below(&random, MAX_BATCH);
    a->q_heads = Q_HEADS;
    a->kv_heads = KV_HEADS;
    a->head_dim = 1 + random_below(&random, 20);
    a->value_dim = 1 + random_below(&random, 40);
    draw_starts(c->q_starts, a->batch, number % 4 ? 40 : 200, &random);
    draw_starts(c->kv_starts, a->batch, number % 5 ? 600 : 2000, &random);
    a->q_len = 1 + random_below(&random, 40);
    a->kv_len = random_below(&random, 600);
    if (number % 3 != 1) {
        a->q_starts = c->q_starts;
        a->q_len = c->q_starts[a->batch];
    }
    for (int b = 0; b < a->batch; b++)
        c->kv_lens[b] = random_below(&random, a->kv_len + 1);
    if (number % 3 != 2) {
        a->kv_starts = c->kv_starts;
        a->kv_len = c->kv_starts[a->batch];
    } else if (random_below(&random, 2)) {
        a->kv_lens = c->kv_lens;
    }
    for (int b = 0; b < a->batch; b++)
        c->q_offsets[b] = random_below(&random, 600) - 40;
    if (random_below(&random, 4)) {
        a->flags |= ATTNKIT_CAUSAL;
        a->align = (attnkit_align)(1 + random_below(&random, 3));
        a->q_offsets = a->align == ATTNKIT_ALIGN_OFFSETS ? c->q_offsets : NULL;
    }
    const int64_t rows = a->q_len * Q_HEADS * (a->q_starts ? 1 : a->batch);
    const int64_t keys = a->kv_len * KV_HEADS * (a->kv_starts ? 1 : a->batch);
    c->out_bytes = (size_t)(rows * a->value_dim) * sizeof(float);
    c->lse_bytes = (size_t)rows * sizeof(float);
    a->q = random_floats(rows * a->head_dim, &random);
    a->k = random_floats(keys * a->head_dim, &random);
    a->v = random_floats(keys * a->value_dim, &random);
    a->out = malloc(c->out_bytes + 1);
    a->lse = malloc(c->lse_bytes + 1);
    const bool tokens = random_below(&random, 2);
    set_strides(a->q_strides, Q_HEADS, a->q_len, a->head_dim, tokens);
    set_strides(a->k_strides, KV_HEADS, a->kv_len, a->head_dim, tokens);
    set_strides(a->v_strides, KV_HEADS, a->kv_len, a->value_dim, tokens);
    set_strides(a->out_strides, Q_HEADS, a->q_len, a->value_dim, tokens);
    set_strides(a->lse_strides, Q_HEADS, a->q_len, 1, tokens);
}

static void free_case(struct drawn *c)
{
    free((void *)(uintptr_t)c->args.q);
    free((void *)(uintptr_t)c->args.k);
    free((void *)(uintptr_t)c->args.v);
    free(c->args.out);
    free(c->args.lse);
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

/* Entry b by itself, its result into out and lse in the same place as in the whole. */
static void attend_alone(const struct drawn *c, int64_t b, const char *isa, char *out, char *lse)
{
    attnkit_attention_args a = c->args;
    const bool packed_rows = a.q_starts, packed_keys = a.kv_starts;
    const int64_t row = packed_rows ? c->q_starts[b] : 0, key = packed_keys ? c->kv_starts[b] : 0;
    const int64_t row_entry = packed_rows ? 0 : b, key_entry = packed_keys ? 0 : b;
    a.batch = 1;
    a.q_len = packed_rows ? c->q_starts[b + 1] - row : a.q_len;
    a.kv_len = packed_keys ? c->kv_starts[b + 1] - key : a.kv_len;
    a.q_starts = a.kv_starts = NULL;
    a.kv_lens = a.kv_lens ? a.kv_lens + b : NULL;
    a.q_offsets = a.q_offsets ? a.q_offsets + b : NULL;
    a.q = (const char *)a.q + row_entry * a.q_strides[0] + row * a.q_strides[2];
    a.out = out + row_entry * a.out_strides[0] + row * a.out_strides[2];
    a.lse = (float *)(void *)(lse + row_entry * a.lse_strides[0] + row * a.lse_strides[2]);
    a.k = (const char *)a.k + key_entry * a.k_strides[0] + key * a.k_strides[2];
    a.v = (const char *)a.v + key_entry * a.v_strides[0] + key * a.v_strides[2];
    attend(&a, isa, 1);
}

static void packed_sequences_have_the_bits_of_lone_ones(void **state)
{
    const struct isa *isa = *state;
    for (int i = 0; i < CASES; i++) {
        struct drawn c;
        draw_case(&c, i);
        char *out = malloc(c.out_bytes + 1), *lse = malloc(c.lse_bytes + 1);
        attend(&c.args, isa->name, c.threads);
        for (int64_t b = 0; b < c.args.batch; b++)
            attend_alone(&c, b, isa->name, out, lse);
        if (memcmp(out, c.args.out, c.out_bytes) || memcmp(lse, c.args.lse, c.lse_bytes)) {
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
    c.args.q_offsets = NULL;
    int64_t *const strides[5] = {c.args.q_strides, c.args.k_strides, c.args.v_strides,
                                 c.args.out_strides, c.args.lse_strides};
    for (int i = 0; i < 5; i++)
        memset(strides[i], 0, 3 * sizeof(int64_t));
    static const int64_t good[4] = {0, 4, 4, 9}, late[4] = {1, 4, 4, 9}, back[4] = {0, 5, 4, 9},
                         less[4] = {0, 4, 4, 8}, more[4] = {0, 4, 4, INT64_MAX},
                         negative[4] = {0, -1, 4, 9};
    attnkit_attention_args a = c.args;
    a.q_starts = a.kv_starts = good;
    expect(&a, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL");
    a.q_starts = late;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "q_starts[0] is 1: must be 0");
    a.q_starts = back;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "q_starts[2] is 4: must be at least the one before it (5)");
    a.q_starts = negative;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "q_starts[1] is -1");
    a.q_starts = less;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "q_starts[3] is 8: must be q_len (9)");
    a.q_starts = good;
    a.kv_starts = more;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "kv_starts[3] is 9223372036854775807: must be kv_len (9)");
    a.kv_starts = good;
    a.kv_lens = good;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "kv_lens is given, but kv_starts, too");
    a.kv_lens = NULL;
    const int32_t table[1] = {0};
    a.page_table = table;
    a.page_size = a.page_table_stride = 9;
    a.pages = 1;
    expect(&a, ATTNKIT_BAD_ARGUMENT, "kv_starts is given, but page_table, too");
    free_case(&c);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[MAX_ISAS + 1] = {cmocka_unit_test(bad_starts_are_refused)};
    size_t count = 1;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++)
        if ((argc < 2 || strcmp(argv[1], isas[i].name) == 0) && attnkit_isa_can_run(&isas[i]))
            tests[count++] =
                (struct CMUnitTest){isas[i].name, packed_sequences_have_the_bits_of_lone_ones, NULL,
                                    NULL, (void *)(uintptr_t)&isas[i]};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("packed", tests, count, NULL, NULL);
}
