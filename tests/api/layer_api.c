/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of a layer against bad and odd arguments. What cannot be done is refused with
 * the documented status and a message that names the argument and its value, and nothing is
 * written: neither out, weights and lse nor the cache, whichever part of the layer it is that says
 * no. Each test takes a small call that is right and changes one thing of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "attnkit.h"
#include "tests/support/random.h"

enum {
    BATCH = 2,
    Q_HEADS = 4,
    KV_HEADS = 2,
    D_MODEL = 32,
    HEAD_DIM = 8,
    Q_LEN = 3,
    CAPACITY = 16,
    ROOM = 8192,    /* floats of each tensor */
    MARGIN = 512,   /* of them before its first element */
    PACKED = 32768, /* bytes */
    PATTERN = 0xa5,
};

/* A call and all its memory but the workspace: what a refused call may not change. */
struct call {
    attnkit_layer_weights weights;
    attnkit_layer_args args;
    attnkit_attention_args attention;
    attnkit_exec exec;
    int64_t cached[BATCH], positions[BATCH], kv_lens[BATCH];
    int32_t page_table[BATCH];
    _Alignas(64) char packed[PACKED];
    float w[4][ROOM], b[4][ROOM];
    float x[ROOM], key[ROOM], out[ROOM], lse[ROOM], all[ROOM], mean[ROOM];
    float k[ROOM], v[ROOM], scales[ROOM], table[ROOM];
    unsigned char mask[ROOM];
};

static _Alignas(64) char workspace[1 << 20];

static void fill(float *x, uint64_t seed)
{
    for (int i = 0; i < ROOM; i++)
        x[i] = random_uniform(&seed);
}

/* The call that is right: a step with a cache, rotated and causal. There is one at a time. */
static struct call *good_call(void)
{
    static struct call c;
    char message[ATTNKIT_MESSAGE_SIZE];
    memset(&c, PATTERN, sizeof c);
    for (int i = 0; i < 4; i++) {
        fill(c.w[i], (uint64_t)i + 1);
        fill(c.b[i], (uint64_t)i + 5);
    }
    fill(c.x, 9);
    fill(c.key, 10);
    fill(c.k, 11);
    fill(c.v, 12);
    fill(c.table, 13);
    memset(c.mask, 1, sizeof c.mask);
    c.weights = (attnkit_layer_weights){.size = sizeof c.weights,
                                        .d_model = D_MODEL,
                                        .q_heads = Q_HEADS,
                                        .kv_heads = KV_HEADS,
                                        .w_q = c.w[0],
                                        .w_k = c.w[1],
                                        .w_v = c.w[2],
                                        .w_o = c.w[3],
                                        .b_q = c.b[0],
                                        .b_k = c.b[1],
                                        .b_v = c.b[2],
                                        .b_o = c.b[3]};
    assert_int_equal(attnkit_layer_pack(&c.weights, c.packed, sizeof c.packed, NULL, message),
                     ATTNKIT_OK);
    c.attention = (attnkit_attention_args){.size = sizeof c.attention,
                                           .flags = ATTNKIT_CAUSAL,
                                           .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
                                           .kv_len = CAPACITY,
                                           .k = c.k + MARGIN,
                                           .v = c.v + MARGIN,
                                           .lse = c.lse + MARGIN};
    c.args = (attnkit_layer_args){.size = sizeof c.args,
                                  .packed = c.packed,
                                  .packed_size = sizeof c.packed,
                                  .batch = BATCH,
                                  .q_len = Q_LEN,
                                  .x = c.x + MARGIN,
                                  .out = c.out + MARGIN,
                                  .rope = ATTNKIT_ROPE_HALF,
                                  .attention = &c.attention,
                                  .cached = c.cached,
                                  .mean_weights = c.mean + MARGIN};
    c.exec = (attnkit_exec){
        .size = sizeof c.exec, .workspace = workspace, .workspace_size = sizeof workspace};
    for (int b = 0; b < BATCH; b++) {
        c.cached[b] = 5 + b;
        c.positions[b] = 3 * b;
        c.kv_lens[b] = 2 + b;
        c.page_table[b] = b;
    }
    return &c;
}

/* The same without a cache: cross-attention. */
static struct call *good_cross(void)
{
    struct call *const c = good_call();
    c->args.cached = NULL;
    c->args.rope = ATTNKIT_ROPE_NONE;
    c->args.key = c->key + MARGIN;
    c->args.kv_len = 5;
    c->attention.k = c->attention.v = NULL;
    c->attention.kv_len = 0;
    return c;
}

static void expect_refusal(struct call *c, attnkit_status status, const char *text)
{
    static struct call before;
    char message[ATTNKIT_MESSAGE_SIZE] = "";
    memcpy(&before, c, sizeof before);
    const attnkit_status got = attnkit_layer(&c->args, &c->exec, message);
    if (got != status || !strstr(message, text))
        fail_msg("status %d, \"%s\": expected %d, \"%s\"", (int)got, message, (int)status, text);
    assert_int_equal(strlen(message) < ATTNKIT_MESSAGE_SIZE - 1, 1);
    assert_memory_equal(c, &before, sizeof before);
    assert_int_equal(attnkit_layer(&c->args, &c->exec, NULL), status);
}

static void expect_ok(struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "";
    if (attnkit_layer(&c->args, &c->exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    assert_string_equal(message, "");
}

static void good_calls_are_good(void **state)
{
    (void)state;
    expect_ok(good_call());
    expect_ok(good_cross());
    struct call *const c = good_cross();
    c->args.attention = NULL;
    c->args.mean_weights = NULL;
    expect_ok(c);
}

static void structs_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    char message[ATTNKIT_MESSAGE_SIZE];
    assert_int_equal(attnkit_layer(NULL, &c->exec, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "args is NULL");
    c->args.size = 8;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attnkit_layer_args.size is 8");
    c = good_call();
    c->attention.size = 0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attnkit_attention_args.size is 0");
    c = good_call();
    c->args.flags = 1u << 20;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "flags is 0x100000");
    c = good_call();
    c->exec.threads = -1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "exec.threads is -1");
    c = good_call();
    c->exec.isa = "avx9000";
    expect_refusal(c, ATTNKIT_BAD_ISA, "avx9000");
}

static void dims_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.batch = -1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "batch is -1");
    c = good_call();
    c->args.q_len = -2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "q_len is -2");
    c = good_cross();
    c->args.kv_len = -3;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "kv_len is -3");
    c = good_call();
    c->args.kv_len = 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "kv_len is 4, but key is NULL");
    c = good_cross();
    c->args.batch = INT64_MAX / 2;
    expect_refusal(c, ATTNKIT_OVERFLOW, "batch");
    c = good_cross();
    c->args.q_len = INT64_MAX / 8;
    expect_refusal(c, ATTNKIT_OVERFLOW, "rows of");
    c->args.q_len = 0;
    c->args.kv_len = INT64_MAX;
    expect_refusal(c, ATTNKIT_OVERFLOW, "batch x kv_len is 2 x 9223372036854775807");
    c = good_cross();
    c->args.q_len = INT64_MAX;
    expect_refusal(c, ATTNKIT_OVERFLOW, "batch x q_len is 2 x 9223372036854775807");
    for (int64_t len = INT64_MAX; len > 1 << 20; len /= 4) {
        c = good_cross(); /* strides that are read have no bound of their own */
        c->args.flags = ATTNKIT_STRIDED;
        c->attention.flags |= ATTNKIT_STRIDED;
        c->attention.lse = NULL;
        c->args.batch = 1;
        c->args.q_len = len;
        c->args.out_strides[1] = D_MODEL * 4;
        assert_int_not_equal(attnkit_layer(&c->args, &c->exec, NULL), ATTNKIT_OK);
    }
    c = good_call();
    c->args.batch = 0;
    c->attention.flags |= ATTNKIT_STRIDED;
    c->attention.kv_len = INT64_MAX / 2;
    expect_refusal(c, ATTNKIT_OVERFLOW, "0 rows of weights of 4611686018427387903 elements");
    c = good_call();
    c->args.x_type = ATTNKIT_I8;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "x_type is 3");
    c = good_call();
    c->args.out_type = (attnkit_type)99;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "out_type is 99");
    c = good_call();
    c->args.rope = (attnkit_rope)7;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "rope is 7");
}

static void nothing_to_do_is_done(void **state)
{
    (void)state;
    static struct call before;
    struct call *const c = good_cross();
    c->args.batch = 0;
    c->exec.workspace = NULL;
    c->exec.workspace_size = 0;
    memcpy(&before, c, sizeof before);
    expect_ok(c);
    c->args.batch = BATCH;
    c->args.q_len = 0;
    expect_ok(c);
    c->exec.isa = "avx9000"; /* even then */
    expect_refusal(c, ATTNKIT_BAD_ISA, "avx9000");
    c->exec.isa = NULL;
    c->args.q_len = Q_LEN;
    c->args.batch = 0;
    assert_memory_equal(c, &before, sizeof before);
}

/* Keys go into the cache whether or not there is a row to see them. */
static void keys_without_rows_are_appended(void **state)
{
    (void)state;
    static float k[ROOM], v[ROOM];
    for (int rows = Q_LEN; rows >= 0; rows -= Q_LEN) {
        struct call *c = good_call();
        c->args.rope = ATTNKIT_ROPE_NONE;
        c->args.key = c->key + MARGIN;
        c->args.kv_len = 5;
        c->args.q_len = rows;
        c->args.x = rows ? c->args.x : NULL;
        expect_ok(c);
        if (rows) {
            memcpy(k, c->k, sizeof k);
            memcpy(v, c->v, sizeof v);
        }
        assert_memory_equal(c->k, k, sizeof k);
        assert_memory_equal(c->v, v, sizeof v);
    }
    struct call *c = good_call();
    c->args.rope = ATTNKIT_ROPE_NONE;
    c->args.key = c->key + MARGIN;
    c->args.kv_len = 5;
    c->args.q_len = 0;
    c->attention.v = c->attention.k;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->k overlaps attention->v");
    c->attention.v = c->args.key;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->v overlaps key");
    c->attention.v = workspace;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "overlaps v");
    c->attention.v = c->v + MARGIN;
    c->cached[1] = 12;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "cached[1] is 12");
}

/* A row that sees no key is the bias of the output projection. */
static void no_keys_give_the_bias(void **state)
{
    (void)state;
    struct call *const c = good_cross();
    c->args.kv_len = 0;
    c->args.mean_weights = NULL;
    expect_ok(c);
    for (int i = 0; i < BATCH * Q_LEN; i++)
        assert_memory_equal(c->out + MARGIN + i * D_MODEL, c->b[3], D_MODEL * sizeof(float));
}

static void pointers_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.x = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "x is NULL");
    c = good_call();
    c->args.out = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out is NULL");
    c = good_call();
    c->args.x = (const char *)c->x + 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "x is 0x");
    c = good_call();
    c->args.out = (char *)c->out + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out is 0x");
    c = good_cross();
    c->args.value = c->key;
    c->args.key = NULL;
    c->args.kv_len = 0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "value is given, but key is NULL");
    c = good_call();
    c->attention.k = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "k is NULL");
    c = good_call();
    c->attention.v = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "v is NULL");
}

static void packed_weights_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.packed = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "packed is NULL");
    c = good_call();
    c->args.packed = c->packed + 32;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 64 bytes");
    c = good_call();
    c->args.packed_size = 100;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "100 bytes) is not what attnkit_layer_pack wrote");
    c = good_call();
    size_t bytes;
    assert_int_equal(attnkit_layer_packed_size(&c->weights, &bytes, NULL), ATTNKIT_OK);
    c->args.packed_size = bytes - 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "packed_size is");
    c->args.packed_size = bytes;
    expect_ok(c);
    c = good_call();
    c->packed[0] = 'b';
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "is not what attnkit_layer_pack wrote");
}

/* Whatever the bytes of a description are, a call is refused or fits into what there is. */
static void broken_descriptions_do_no_harm(void **state)
{
    (void)state;
    uint64_t random = 3;
    int refused = 0;
    for (int i = 0; i < 3000; i++) {
        struct call *const c = good_cross();
        size_t bytes;
        assert_int_equal(attnkit_layer_packed_size(&c->weights, &bytes, NULL), ATTNKIT_OK);
        c->args.packed_size = bytes;
        const int64_t at = 8 + random_below(&random, 120);
        c->packed[at] = (char)random_bits(&random);
        c->packed[8 + random_below(&random, 80)] ^= (char)(1 << random_below(&random, 8));
        refused += attnkit_layer(&c->args, &c->exec, NULL) != ATTNKIT_OK;
    }
    assert_in_range(refused, 1000, 3000);
}

static void what_the_layer_says_may_not_be_said_again(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->attention.q_heads = Q_HEADS;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->q_heads is given");
    c = good_call();
    c->attention.q = c->x;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->q is given");
    c = good_call();
    c->attention.out_type = ATTNKIT_F16;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->out_type is given");
    c = good_call();
    c->attention.first_key = ATTNKIT_CHUNK_KEYS;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->first_key is given");
    c = good_call();
    c->attention.after_sum = c->lse;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->after_max is given");
    c = good_cross();
    c->attention.k = c->k;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->k is given");
    c = good_cross();
    c->attention.kv_len = 5;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->kv_len is given");
    c = good_cross();
    c->attention.flags |= ATTNKIT_TILED;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "ATTNKIT_TILED");
    c = good_cross();
    c->attention.page_size = 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->page_table is given");
}

static void caches_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->cached[1] = -1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "cached[1] is -1");
    c = good_call();
    c->cached[1] = CAPACITY - Q_LEN + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "cached[1] is 14");
    c = good_call();
    c->cached[0] = INT64_MAX;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "cached[0] is 9223372036854775807");
    c = good_call();
    c->attention.kv_lens = c->kv_lens;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->kv_lens is given");
    c = good_call();
    c->args.cached = NULL;
    c->args.flags = ATTNKIT_NO_APPEND;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "flags has ATTNKIT_NO_APPEND, but cached is NULL");
    c = good_call();
    c->args.flags = ATTNKIT_NO_APPEND;
    c->args.rope = ATTNKIT_ROPE_NONE;
    c->args.key = c->key;
    c->args.kv_len = 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "key is given, but flags has ATTNKIT_NO_APPEND");
    c = good_call();
    c->attention.q_starts = c->positions;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "attention->q_starts is given, but cached, too");
    c = good_call();
    c->attention.k_type = c->attention.v_type = ATTNKIT_Q8_0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "head_dim is 8: must be a multiple of 32");
    c = good_call();
    c->attention.flags |= ATTNKIT_STRIDED;
    c->attention.lse = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->k as dst of an append: dst_strides are");
    c = good_call();
    c->attention.page_table = c->page_table;
    c->attention.page_table_stride = 1;
    c->attention.page_size = CAPACITY;
    c->attention.pages = 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "page_table[1] is 1");
}

static void rotations_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.rope_dim = 5;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rope_dim is 5");
    c = good_call();
    c->args.rope_dim = HEAD_DIM + 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rope_dim is 10");
    c = good_call();
    c->args.rope_base = 0.5;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rope_base is 0.5");
    c = good_call();
    c->args.positions = c->positions;
    c->positions[1] = -4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "positions[1] is -4");
    c = good_call();
    c->args.rope_cos = c->args.rope_sin = c->table;
    c->args.rope_positions = 7;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rope_positions is 7");
    c->args.rope_positions = 9;
    expect_ok(c);
    c = good_call();
    c->args.rope = ATTNKIT_ROPE_NONE;
    c->args.positions = c->positions;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "positions is given, but rope is ATTNKIT_ROPE_NONE");
    for (int cross = 0; cross < 2; cross++) {
        c = cross ? good_cross() : good_call();
        c->args.rope = ATTNKIT_ROPE_NONE;
        c->args.rope_dim = 4;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rope_dim is given, but rope is ATTNKIT_ROPE_NONE");
        c->args.rope_dim = 0;
        c->args.rope_cos = c->table;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rope_cos is given, but rope is ATTNKIT_ROPE_NONE");
    }
    c = good_cross();
    c->args.rope = ATTNKIT_ROPE_HALF;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "rope is 2, but key is given");
}

/* Options are the attention's, and so is what is said of them. */
static void options_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->attention.align = ATTNKIT_ALIGN_NONE;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "align is ATTNKIT_ALIGN_NONE");
    c = good_call();
    c->attention.softcap = -1.0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "softcap is -1");
    c = good_call();
    c->attention.mask = c->mask;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "mask");
    c = good_call();
    c->attention.weights = c->all;
    c->attention.weights_kind = ATTNKIT_WEIGHTS_SCALED;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->weights_kind is 4");
    c->args.mean_weights = NULL;
    expect_ok(c);
}

static void strides_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.x_strides[1] = D_MODEL * 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "x_strides[1] (row) is 128, but flags lacks");
    c = good_call();
    c->args.flags = ATTNKIT_STRIDED;
    c->args.x_strides[0] = 0;
    c->args.x_strides[1] = 6;
    c->args.out_strides[0] = Q_LEN * D_MODEL * 4;
    c->args.out_strides[1] = D_MODEL * 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "x_strides[1] (row) is 6");
    c->args.x_strides[1] = 0; /* the same row again and again */
    expect_ok(c);
    c->args.out_strides[1] = 64;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out_strides");
}

static void overlaps_are_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.out = (void *)(uintptr_t)c->args.x;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps");
    c = good_call();
    c->args.out = c->lse + MARGIN;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out overlaps attention->lse");
    c = good_call();
    c->args.mean_weights = c->out + MARGIN;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps");
    c = good_call();
    c->attention.v = c->attention.k;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->k overlaps attention->v");
    c = good_call();
    c->args.x = c->attention.k;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->k overlaps x");
    c = good_call();
    c->args.out = (char *)c->packed + 512;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps packed");
    c = good_call();
    c->attention.mask = (unsigned char *)c->out + MARGIN * 4;
    c->attention.mask_kind = ATTNKIT_MASK_ATTEND;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out overlaps attention->mask");
    c = good_call();
    c->attention.v_type = ATTNKIT_I8;
    c->attention.v_scales = c->k + MARGIN;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->k overlaps attention->v_scales");
}

/* Weights are written before the output projection is read. */
static void weights_that_overlap_are_refused(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "attention->weights overlaps x", "attention->weights overlaps key",
        "attention->weights overlaps value", "attention->weights overlaps packed"};
    for (int which = 0; which < 4; which++) {
        struct call *const c = good_cross();
        void *const places[] = {c->x + MARGIN, c->key + MARGIN, c->key + MARGIN + 1000,
                                c->packed + 512};
        c->args.value = c->key + MARGIN + 1000;
        c->attention.weights = places[which];
        c->attention.weights_kind = ATTNKIT_WEIGHTS_SOFTMAX;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, messages[which]);
    }
}

static void tables_are_not_written(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.rope_cos = c->out + MARGIN + 7;
    c->args.rope_sin = c->table;
    c->args.rope_positions = 9;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out overlaps rope_cos");
    c->args.rope_cos = c->table;
    c->args.rope_sin = c->v + MARGIN;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->v overlaps rope_sin");
    c->args.rope_sin = c->table;
    c->attention.lse = c->table + 8;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->lse overlaps rope_cos");
}

static void workspaces_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    size_t bytes;
    assert_int_equal(attnkit_layer_workspace(&c->args, &c->exec, &bytes, NULL), ATTNKIT_OK);
    c->exec.workspace = NULL;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL");
    c->exec.workspace = workspace + 1;
    c->exec.workspace_size = bytes - 1;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "exec.workspace_size is");
    memset(workspace, PATTERN, sizeof workspace);
    c->exec.workspace_size = bytes;
    expect_ok(c);
    assert_int_equal((unsigned char)workspace[0], PATTERN);
    for (size_t i = bytes + 1; i < sizeof workspace; i++)
        assert_int_equal((unsigned char)workspace[i], PATTERN);
    c = good_call();
    c->exec.threads = 2;
    c->exec.workspace_size = sizeof workspace;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "exec.barrier is NULL: 2 threads");
}

/* Tensors that a workspace may not lie in, each in turn made to lie there. */
static void a_workspace_in_a_tensor_is_refused(void **state)
{
    (void)state;
    float *const inside = (float *)(void *)workspace + 64;
    for (int which = 0; which < 7; which++) {
        struct call *const c = good_call();
        c->args.x = which == 0 ? inside : c->args.x;
        c->args.out = which == 1 ? inside : c->args.out;
        c->args.mean_weights = which == 2 ? inside : c->args.mean_weights;
        c->attention.k = which == 3 ? inside : c->attention.k;
        c->attention.v = which == 4 ? inside : c->attention.v;
        c->attention.lse = which == 5 ? inside : c->attention.lse;
        c->attention.sinks = which == 6 ? inside : NULL;
        memset(workspace, 0, sizeof workspace);
        expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "overlaps");
        for (size_t i = 0; i < sizeof workspace; i++)
            assert_int_equal(workspace[i], 0);
    }
}

/* ---------------------------------------------------------------------------- packing weights */

static void expect_no_packing(struct call *c, attnkit_status status, const char *text)
{
    static struct call before;
    char message[ATTNKIT_MESSAGE_SIZE] = "";
    memcpy(&before, c, sizeof before);
    const attnkit_status got =
        attnkit_layer_pack(&c->weights, c->packed, sizeof c->packed, NULL, message);
    if (got != status || !strstr(message, text))
        fail_msg("status %d, \"%s\": expected %d, \"%s\"", (int)got, message, (int)status, text);
    assert_memory_equal(c, &before, sizeof before);
}

static void weights_are_checked(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->weights.q_heads = 5;
    c->weights.kv_heads = 5;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "d_model is 32: must be a multiple of q_heads (5)");
    c = good_call();
    c->weights.kv_heads = 3;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "q_heads is 4: must be a multiple of kv_heads (3)");
    c = good_call();
    c->weights.d_model = 0;
    c->weights.head_dim = 4;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "d_model is 0");
    c = good_call();
    c->weights.q_heads = -4;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "q_heads is -4");
    c = good_call();
    c->weights.value_dim = -1;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "value_dim is -1");
    c = good_call();
    c->weights.w_v = NULL;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "w_v is NULL");
    c = good_call();
    c->weights.w_o = (const char *)c->w[3] + 1;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "w_o is 0x");
    c = good_call();
    c->weights.w_type = ATTNKIT_I8;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "w_type is 3");
    c = good_call();
    c->weights.packed_type = ATTNKIT_I8;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "packed_type is 3");
    c = good_call();
    c->weights.w_type = ATTNKIT_Q8_0;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "packed_type is 0: must be ATTNKIT_Q8_0");
    c = good_call();
    c->weights.packed_type = ATTNKIT_Q8_0;
    c->weights.d_key = 30;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "is 30: must be a multiple of 32");
    c = good_call();
    c->weights.bias_type = ATTNKIT_Q8_0;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "bias_type is 4");
    c = good_call();
    c->weights.w_qkv = c->w[0];
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "w_q is given, but w_qkv, too");
    c = good_call();
    c->weights.b_qkv = c->b[0];
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "b_q is given, but b_qkv, too");
    c = good_call();
    c->weights.w_q = c->weights.w_k = c->weights.w_v = NULL;
    c->weights.w_qkv = c->w[0];
    c->weights.d_key = 16;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "w_qkv is given, but d_model, d_key and d_value");
    c = good_call();
    c->weights.flags = 1;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "flags is 0x1");
    c = good_call();
    c->weights.d_model = INT64_MAX / 4 * 2;
    c->weights.head_dim = 8;
    expect_no_packing(c, ATTNKIT_OVERFLOW, "beyond 63 bits");
    c = good_call();
    c->weights.w_k = c->packed + 256;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "packed");
}

static void packed_memory_is_checked(void **state)
{
    (void)state;
    struct call *const c = good_call();
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes;
    assert_int_equal(attnkit_layer_packed_size(&c->weights, NULL, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "bytes is NULL");
    assert_int_equal(attnkit_layer_packed_size(NULL, &bytes, message), ATTNKIT_BAD_ARGUMENT);
    assert_int_equal(attnkit_layer_packed_size(&c->weights, &bytes, message), ATTNKIT_OK);
    assert_int_equal(bytes % 64, 0);
    assert_int_equal(attnkit_layer_pack(&c->weights, NULL, bytes, NULL, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "packed is NULL");
    assert_int_equal(attnkit_layer_pack(&c->weights, c->packed, bytes - 1, NULL, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "needed"));
    assert_int_equal(attnkit_layer_pack(&c->weights, c->packed + 4, bytes, NULL, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "must be aligned to 64 bytes"));
    memset(c->packed, PATTERN, sizeof c->packed);
    assert_int_equal(attnkit_layer_pack(&c->weights, c->packed, bytes, NULL, message), ATTNKIT_OK);
    for (size_t i = bytes; i < sizeof c->packed; i++)
        assert_int_equal((unsigned char)c->packed[i], PATTERN);
}

/* Keys and values of another width need inputs of their own. */
static void a_layer_for_cross_attention_needs_a_key(void **state)
{
    (void)state;
    struct call *const c = good_cross();
    c->weights.d_key = 16;
    c->weights.d_value = 24;
    assert_int_equal(attnkit_layer_pack(&c->weights, c->packed, sizeof c->packed, NULL, NULL),
                     ATTNKIT_OK);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "value is NULL: d_value (24)");
    c->args.value = c->key;
    expect_ok(c);
    c->args.key = c->args.value = NULL;
    c->args.kv_len = 0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "key is NULL: d_key (16)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_calls_are_good),
        cmocka_unit_test(structs_are_checked),
        cmocka_unit_test(dims_are_checked),
        cmocka_unit_test(nothing_to_do_is_done),
        cmocka_unit_test(keys_without_rows_are_appended),
        cmocka_unit_test(no_keys_give_the_bias),
        cmocka_unit_test(pointers_are_checked),
        cmocka_unit_test(packed_weights_are_checked),
        cmocka_unit_test(broken_descriptions_do_no_harm),
        cmocka_unit_test(what_the_layer_says_may_not_be_said_again),
        cmocka_unit_test(caches_are_checked),
        cmocka_unit_test(rotations_are_checked),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(strides_are_checked),
        cmocka_unit_test(overlaps_are_refused),
        cmocka_unit_test(weights_that_overlap_are_refused),
        cmocka_unit_test(tables_are_not_written),
        cmocka_unit_test(workspaces_are_checked),
        cmocka_unit_test(a_workspace_in_a_tensor_is_refused),
        cmocka_unit_test(weights_are_checked),
        cmocka_unit_test(packed_memory_is_checked),
        cmocka_unit_test(a_layer_for_cross_attention_needs_a_key),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
