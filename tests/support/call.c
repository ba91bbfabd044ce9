/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "tests/support/call.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"
#include "tests/support/units.h"

void *call_memory(struct call *c, size_t bytes)
{
    assert_true(c->owned_count < (int)(sizeof c->owned / sizeof c->owned[0]));
    void *const memory = calloc(bytes + 1, 1);
    assert_non_null(memory);
    return c->owned[c->owned_count++] = memory;
}

static float *new_floats(struct call *c, int64_t count, float scale, uint64_t *random)
{
    float *const x = call_memory(c, (size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = scale * random_uniform(random);
    return x;
}

/* Sets the address of a tensor, and strides as if the tensor were dense: [entries][heads][rows]. */
static void set_dense(attnkit_tensor *t, const void *data, int64_t row_bytes, int64_t rows,
                      int64_t heads)
{
    t->data = data;
    t->layout |= ATTNKIT_STRIDED;
    t->strides[2] = row_bytes;
    t->strides[1] = row_bytes * rows;
    t->strides[0] = row_bytes * rows * heads;
}

static int64_t or_one(int64_t n)
{
    return n ? n : 1;
}

static void set_outputs(struct call *c)
{
    attnkit_attention_args *const a = &c->args;
    const size_t rows = (size_t)(a->batch * a->q_heads * a->q_len);
    c->out = call_memory(c, rows * (size_t)a->value_dim * sizeof *c->out);
    c->lse = call_memory(c, rows * sizeof *c->lse);
    set_dense(&a->out, c->out, 4 * a->value_dim, a->q_len, a->q_heads);
    set_dense(&a->lse, c->lse, 4, a->q_len, a->q_heads);
}

struct call *call_new(struct shape shape)
{
    struct call *const c = calloc(1, sizeof *c);
    attnkit_attention_args *const a = &c->args;
    uint64_t random = 5;
    c->threads = 1;
    a->size = sizeof *a;
    groups_init(&c->groups);
    groups_hang(a, &c->groups);
    groups_set_strided(a, &c->groups);
    a->batch = or_one(shape.batch);
    a->kv_heads = or_one(shape.kv_heads);
    a->q_heads = a->kv_heads * or_one(shape.group);
    a->q_len = or_one(shape.q_len);
    a->kv_len = or_one(shape.kv_len);
    a->head_dim = or_one(shape.head_dim);
    a->value_dim = or_one(shape.value_dim);
    const int64_t rows = a->batch * a->q_heads * a->q_len,
                  keys = a->batch * a->kv_heads * a->kv_len;
    c->q = new_floats(c, rows * a->head_dim, 2.0f, &random);
    c->k = new_floats(c, keys * a->head_dim, 2.0f, &random);
    c->v = new_floats(c, keys * a->value_dim, 1.0f, &random);
    set_dense(&a->q, c->q, 4 * a->head_dim, a->q_len, a->q_heads);
    set_dense(&a->k, c->k, 4 * a->head_dim, a->kv_len, a->kv_heads);
    set_dense(&a->v, c->v, 4 * a->value_dim, a->kv_len, a->kv_heads);
    set_outputs(c);
    return c;
}

/* Copies the call, but not its tensors. The copy owns no memory. */
static struct call *copy(const struct call *c)
{
    struct call *const d = calloc(1, sizeof *d);
    *d = *c;
    d->owned_count = 0;
    groups_hang(&d->args, &d->groups);
    return d;
}

static void set_own_outputs(struct call *c)
{
    const attnkit_weights_out *const weights = &c->groups.weights;
    set_outputs(c);
    if (weights->weights.data)
        call_set_weights(c, weights->kind);
}

struct call *call_like(const struct call *c)
{
    struct call *const d = copy(c);
    set_own_outputs(d);
    return d;
}

static const void *moved(const void *data, int64_t bytes)
{
    return data ? (const char *)data + bytes : NULL;
}

/* Makes a tensor begin at row `first` of batch entry b. NULL stays NULL. */
static void move_to(attnkit_tensor *t, int64_t b, int64_t first)
{
    t->data = moved(t->data, b * t->strides[0] + first * t->strides[2]);
}

struct call *call_rows(const struct call *c, int64_t b, int64_t first, int64_t count)
{
    const attnkit_attention_args *const all = &c->args;
    struct call *const d = copy(c);
    attnkit_attention_args *const a = &d->args;
    struct groups *const g = &d->groups;
    a->batch = 1;
    a->q_len = count;
    move_to(&a->q, b, first);
    if (!g->pages.block_table) {
        move_to(&a->k, b, 0);
        move_to(&a->v, b, 0);
    }
    g->pages.block_table = moved(g->pages.block_table, b * g->pages.block_table_stride * 4);
    attnkit_visibility *const v = &g->visibility;
    move_to(&v->mask, b, first);
    move_to(&v->mask_bits, b, first);
    move_to(&g->scores.bias, b, first);
    v->q_segment_ids = moved(v->q_segment_ids, (b * all->q_len + first) * 4);
    v->kv_segment_ids = moved(v->kv_segment_ids, b * all->kv_len * 4);
    v->kv_lens.data = moved(v->kv_lens.data, b * (v->kv_lens.type == ATTNKIT_INT32 ? 4 : 8));
    g->scores.dropout_seeds = moved(g->scores.dropout_seeds, b * 8);
    if (all->q_offsets.data) {
        int64_t *const offset = call_memory(d, sizeof *offset);
        *offset = ints_at(all->q_offsets, b) + first;
        a->q_offsets = (attnkit_ints){.data = offset};
    }
    set_own_outputs(d);
    return d;
}

void call_free(struct call *c)
{
    for (int i = 0; i < c->owned_count; i++)
        free(c->owned[i]);
    free(c);
}

void call_set_positions(struct call *c)
{
    attnkit_attention_args *const a = &c->args;
    if (a->align == ATTNKIT_ALIGN_OFFSETS)
        return;
    int64_t *const offsets = call_memory(c, (size_t)a->batch * sizeof *offsets);
    for (int64_t b = 0; b < a->batch; b++)
        offsets[b] = a->kv_len - a->q_len - 2 - 3 * b;
    a->align = ATTNKIT_ALIGN_OFFSETS;
    a->q_offsets = (attnkit_ints){.data = offsets};
}

float *call_set_weights(struct call *c, attnkit_weights_kind kind)
{
    const attnkit_attention_args *const a = &c->args;
    const size_t rows = (size_t)(a->batch * a->q_heads * a->q_len);
    c->weights = call_memory(c, rows * (size_t)a->kv_len * sizeof *c->weights);
    c->groups.weights.kind = kind;
    set_dense(&c->groups.weights.weights, c->weights, 4 * a->kv_len, a->q_len, a->q_heads);
    return c->weights;
}

static void append(const attnkit_append_args *args)
{
    char workspace[1 << 16], message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_exec exec = {
        .size = sizeof exec, .workspace = workspace, .workspace_size = sizeof workspace};
    if (attnkit_append(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
}

/* Copies K or V to new memory. Elements that belong to no key become NaN. */
static void store(struct call *c, attnkit_tensor *t, const float *src, int64_t dim, bool tiled)
{
    const attnkit_attention_args *const a = &c->args;
    const attnkit_pages *const p = &c->groups.pages;
    int64_t rows = p->block_table ? p->page_size : a->kv_len;
    if (tiled)
        rows = (rows + ATTNKIT_TILE_KEYS - 1) / ATTNKIT_TILE_KEYS * ATTNKIT_TILE_KEYS;
    const int64_t pages = p->block_table ? p->pages : a->batch;
    const size_t bytes = (size_t)(pages * a->kv_heads * rows * dim) * sizeof(float);
    const int64_t unit = tiled ? ATTNKIT_TILE_KEYS : 1;
    void *const dst = call_memory(c, bytes);
    memset(dst, 0xff, bytes);
    append(&(attnkit_append_args){.size = sizeof(attnkit_append_args),
                                  .batch = a->batch,
                                  .heads = a->kv_heads,
                                  .len = a->kv_len,
                                  .dim = dim,
                                  .capacity = a->kv_len,
                                  .src = {.data = src},
                                  .dst = {.data = dst, .layout = tiled ? ATTNKIT_TILED : 0},
                                  .pages = p});
    t->layout |= tiled ? ATTNKIT_TILED : 0;
    set_dense(t, dst, 4 * dim * unit, rows / unit, a->kv_heads);
}

void call_store(struct call *c, bool tiled, int64_t page_size)
{
    attnkit_attention_args *const a = &c->args;
    attnkit_pages *const p = &c->groups.pages;
    if (page_size > 0) {
        p->page_size = page_size;
        p->block_table_stride = (a->kv_len + page_size - 1) / page_size;
        p->pages = a->batch * p->block_table_stride;
        int32_t *const table = call_memory(c, (size_t)p->pages * sizeof *table);
        for (int64_t i = 0; i < p->pages; i++)
            table[i] = (int32_t)(p->pages - 1 - i);
        p->block_table = table;
    }
    store(c, &a->k, c->k, a->head_dim, tiled);
    store(c, &a->v, c->v, a->value_dim, false);
}

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

void call_run(struct call *c, const char *isa)
{
    const attnkit_attention_args *const a = &c->args;
    const int64_t entries = c->groups.storage.cu_seqlens_q.data ? 1 : a->batch;
    const size_t rows = (size_t)(entries * a->q_heads * a->q_len) * sizeof(float);
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .threads = c->threads, .parallel_for = backwards};
    memset(c->out, 0x5a, rows * (size_t)a->value_dim);
    memset(c->lse, 0x5a, rows);
    if (c->groups.weights.weights.data)
        memset(c->weights, 0x5a, rows * (size_t)a->kv_len);
    if (attnkit_attention_workspace(a, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    exec.workspace = malloc(exec.workspace_size);
    if (attnkit_attention(a, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    free(exec.workspace);
}

static int64_t query_row(const struct call *c, struct at at)
{
    return (at.b * c->args.q_heads + at.h) * c->args.q_len + at.i;
}

static int64_t key_row(const struct call *c, struct at at)
{
    const int64_t group = c->args.q_heads / c->args.kv_heads;
    return (at.b * c->args.kv_heads + at.h / group) * c->args.kv_len + at.j;
}

float *call_q(const struct call *c, struct at at)
{
    return c->q + query_row(c, at) * c->args.head_dim;
}

float *call_k(const struct call *c, struct at at)
{
    return c->k + key_row(c, at) * c->args.head_dim;
}

float *call_v(const struct call *c, struct at at)
{
    return c->v + key_row(c, at) * c->args.value_dim;
}

float *call_out(const struct call *c, struct at at)
{
    return c->out + query_row(c, at) * c->args.value_dim;
}

float *call_lse(const struct call *c, struct at at)
{
    return c->lse + query_row(c, at);
}

bool call_same_row(const struct call *c, struct at at, const struct call *d, struct at there)
{
    const size_t bytes = (size_t)c->args.value_dim * sizeof(float);
    return memcmp(call_out(c, at), call_out(d, there), bytes) == 0 &&
           memcmp(call_lse(c, at), call_lse(d, there), sizeof(float)) == 0;
}

bool call_same(const struct call *c, const struct call *d)
{
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        if (!call_same_row(c, at, d, at))
            return false;
    return true;
}

bool call_has(const struct call *c, struct at at)
{
    return at.b < c->args.batch;
}

struct at call_next(const struct call *c, struct at at)
{
    if (++at.i < c->args.q_len)
        return at;
    at.i = 0;
    if (++at.h < c->args.q_heads)
        return at;
    return (struct at){.b = at.b + 1};
}

float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

int promises_main(const char *program, const struct CMUnitTest *promises, int count, int argc,
                  char **argv)
{
    enum { MOST = 200, NAME = 160 };
    static struct CMUnitTest tests[MOST];
    static char names[MOST][NAME];
    int test_count = 0;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    for (int i = 0; i < isa_count; i++) {
        const bool wanted = argc < 2 || strcmp(argv[1], isas[i].name) == 0;
        if (!wanted || !attnkit_isa_can_run(&isas[i]))
            continue;
        if (i == 0 && isa_count > 1 && is_without_scalar()) {
            printf("# %s: left out, because the native run tests it\n", isas[i].name);
            continue;
        }
        for (int j = 0; j < count && test_count < MOST; j++, test_count++) {
            snprintf(names[test_count], NAME, "%s: %s", isas[i].name, promises[j].name);
            tests[test_count] = promises[j];
            tests[test_count].name = names[test_count];
            tests[test_count].initial_state = (void *)(uintptr_t)isas[i].name;
        }
    }
    if (test_count == 0 || test_count == MOST) {
        printf("Bail out! %s\n", test_count ? "too many tests" : "nothing can run here");
        return 2;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests(program, tests, (size_t)test_count, NULL, NULL);
}
