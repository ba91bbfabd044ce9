/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the public calls of a layer with bad and odd arguments. The library refuses a call that it
 * cannot carry out: it returns the documented status and a message that names the argument and its
 * value. A refused call writes nothing to its outputs or to the cache, no matter which part of the
 * layer refuses the call. The tests change a small valid call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/layer/small.h"
#include "tests/support/random.h"

/* Makes a call that the library must refuse, and writes its message to `message`. Fails the test if
 * the call returns another status than `status`, or has changed the memory of c. */
static void expect_status(struct small_layer *c, attnkit_status status, char *message)
{
    static struct small_layer before;
    message[0] = '\0';
    memcpy(&before, c, sizeof before);
    const attnkit_status got = attnkit_layer(&c->args, &c->exec, message);
    if (got != status)
        fail_msg("status %d, \"%s\": expected %d", (int)got, message, (int)status);
    assert_int_equal(strlen(message) < ATTNKIT_MESSAGE_SIZE - 1, 1);
    assert_memory_equal(c, &before, sizeof before);
    assert_int_equal(attnkit_layer(&c->args, &c->exec, NULL), status);
}

static void expect_refusal(struct small_layer *c, attnkit_status status, const char *text)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_status(c, status, message);
    if (!strstr(message, text))
        fail_msg("\"%s\": expected \"%s\"", message, text);
}

/* Checks that the message says that an output overlaps another tensor: "out (0x...) overlaps x
 * (0x...)". */
static void expect_overlap(struct small_layer *c, const char *output, const char *other)
{
    char message[ATTNKIT_MESSAGE_SIZE], first[64], second[64];
    expect_status(c, ATTNKIT_BAD_ARGUMENT, message);
    snprintf(first, sizeof first, "%s (0x", output);
    snprintf(second, sizeof second, ") overlaps %s (0x", other);
    if (strncmp(message, first, strlen(first)) != 0 || !strstr(message, second))
        fail_msg("\"%s\": expected \"%s%s\"", message, first, second);
}

static void expect_ok(struct small_layer *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "";
    if (attnkit_layer(&c->args, &c->exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    assert_string_equal(message, "");
}

static void good_calls_are_good(void **state)
{
    (void)state;
    expect_ok(small_layer());
    expect_ok(small_cross_layer());
    struct small_layer *const c = small_cross_layer();
    c->args.attention = NULL;
    c->args.mean_weights = NULL;
    expect_ok(c);
}

static void structs_are_checked(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    char message[ATTNKIT_MESSAGE_SIZE];
    assert_int_equal(attnkit_layer(NULL, &c->exec, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "args is NULL");
    c->args.size = 8;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attnkit_layer_args.size is 8");
    c = small_layer();
    c->attention.size = 0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attnkit_attention_args.size is 0");
    c = small_layer();
    c->args.flags = 1u << 20;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "flags is 0x100000");
    c = small_layer();
    c->exec.threads = -1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "exec.threads is -1");
    c = small_layer();
    c->exec.isa = "avx9000";
    expect_refusal(c, ATTNKIT_BAD_ISA, "avx9000");
}

/* A layer refuses ATTNKIT_INTEGERS without a cache, with a cache of binary32, and with a cache of
 * Q8_0. An attention call can multiply Q8_0 as integers. */
static void integers_are_unsupported(void **state)
{
    (void)state;
    static const char text[] = "attention->flags has ATTNKIT_INTEGERS: a layer does not multiply";
    struct small_layer *c = small_cross_layer();
    c->attention.flags |= ATTNKIT_INTEGERS;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, text);
    c = small_layer();
    c->attention.flags |= ATTNKIT_INTEGERS;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, text);
    c->attention.k.type = c->attention.v.type = ATTNKIT_Q8_0;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, text);
}

static void products_of_bf16_are_unsupported(void **state)
{
    (void)state;
    static const char text[] = "attention->flags has ATTNKIT_BF16_PRODUCTS or "
                               "ATTNKIT_SHORT_WEIGHTS: a layer has no products";
    struct small_layer *c = small_cross_layer();
    c->attention.flags |= ATTNKIT_BF16_PRODUCTS;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, text);
    c = small_layer();
    c->attention.flags |= ATTNKIT_BF16_PRODUCTS | ATTNKIT_SHORT_WEIGHTS;
    c->attention.k.type = c->attention.v.type = ATTNKIT_BF16;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, text);
}

static void dims_are_checked(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->args.batch = -1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "batch is -1");
    c = small_layer();
    c->args.q_len = -2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "q_len is -2");
    c = small_cross_layer();
    c->args.kv_len = -3;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "kv_len is -3");
    c = small_layer();
    c->args.kv_len = 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "kv_len is 4, but key is NULL");
    c = small_cross_layer();
    c->args.batch = INT64_MAX / 2;
    expect_refusal(c, ATTNKIT_OVERFLOW, "batch");
    c = small_cross_layer();
    c->args.q_len = INT64_MAX / 8;
    expect_refusal(c, ATTNKIT_OVERFLOW, "rows of");
    c->args.batch = 0;
    expect_refusal(c, ATTNKIT_OVERFLOW, "rows of q");
    c->args.batch = BATCH;
    c->args.q_len = 0;
    c->args.kv_len = INT64_MAX;
    expect_refusal(c, ATTNKIT_OVERFLOW, "batch x kv_len is 2 x 9223372036854775807");
    c = small_cross_layer();
    c->args.q_len = INT64_MAX;
    expect_refusal(c, ATTNKIT_OVERFLOW, "batch x q_len is 2 x 9223372036854775807");
    for (int64_t len = INT64_MAX; len > 1 << 20; len /= 4) {
        c = small_cross_layer(); /* x may repeat one row, by a stride of 0 */
        c->args.x.layout = c->args.out.layout = ATTNKIT_STRIDED;
        c->attention.lse.data = NULL;
        c->args.batch = 1;
        c->args.q_len = len;
        c->args.out.strides[2] = D_MODEL * 4;
        assert_int_not_equal(attnkit_layer(&c->args, &c->exec, NULL), ATTNKIT_OK);
    }
    c = small_layer();
    c->args.batch = 0;
    c->attention.k.layout = c->attention.v.layout = ATTNKIT_STRIDED;
    c->attention.kv_len = INT64_MAX / 2;
    expect_refusal(c, ATTNKIT_OVERFLOW, "0 rows of weights of 4611686018427387903 elements");
    c = small_layer();
    c->args.x.type = ATTNKIT_I8;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "x.type is 3");
    c = small_layer();
    c->args.out.type = 99;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "out.type is 99");
    c = small_layer();
    c->rotation.kind = 7;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "rotation.kind is 7");
}

static void calls_without_batch_entries_or_rows_succeed(void **state)
{
    (void)state;
    static struct small_layer before;
    struct small_layer *const c = small_cross_layer();
    c->args.batch = 0;
    c->exec.workspace = NULL;
    c->exec.workspace_size = 0;
    memcpy(&before, c, sizeof before);
    expect_ok(c);
    c->args.batch = BATCH;
    c->args.q_len = 0;
    expect_ok(c);
    c->exec.isa = "avx9000"; /* the call refuses a bad isa, even with nothing to do */
    expect_refusal(c, ATTNKIT_BAD_ISA, "avx9000");
    c->exec.isa = NULL;
    c->args.q_len = Q_LEN;
    c->args.batch = 0;
    assert_memory_equal(c, &before, sizeof before);
}

/* A call with q_len = 0 has no query rows, but appends its keys to the cache. */
static void keys_without_rows_are_appended(void **state)
{
    (void)state;
    static float k[ROOM], v[ROOM];
    for (int rows = Q_LEN; rows >= 0; rows -= Q_LEN) {
        struct small_layer *c = small_layer();
        c->rotation.kind = ATTNKIT_ROPE_NONE;
        c->args.key.data = c->key + MARGIN;
        c->args.kv_len = 5;
        c->args.q_len = rows;
        c->args.x.data = rows ? c->args.x.data : NULL;
        expect_ok(c);
        if (rows) {
            memcpy(k, c->k, sizeof k);
            memcpy(v, c->v, sizeof v);
        }
        assert_memory_equal(c->k, k, sizeof k);
        assert_memory_equal(c->v, v, sizeof v);
    }
    struct small_layer *c = small_layer();
    c->rotation.kind = ATTNKIT_ROPE_NONE;
    c->args.key.data = c->key + MARGIN;
    c->args.kv_len = 5;
    c->args.q_len = 0;
    c->attention.v.data = c->attention.k.data;
    expect_overlap(c, "attention->k", "attention->v");
    c->attention.v.data = c->args.key.data;
    expect_overlap(c, "attention->v", "key");
    c->attention.v.data = small_workspace;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "overlaps attention->v");
    c->attention.v.data = c->v + MARGIN;
    c->cached[1] = 12;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "cached[1] is 12");
}

/* If a row sees no key, its result is the bias of the output projection. */
static void no_keys_give_the_bias(void **state)
{
    (void)state;
    struct small_layer *const c = small_cross_layer();
    c->args.kv_len = 0;
    c->args.mean_weights = NULL;
    expect_ok(c);
    for (int i = 0; i < BATCH * Q_LEN; i++)
        assert_memory_equal(c->out + MARGIN + i * D_MODEL, c->b[3], D_MODEL * sizeof(float));
}

static void pointers_are_checked(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->args.x.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "x is NULL");
    c = small_layer();
    c->args.out.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out is NULL");
    c = small_layer();
    c->args.x.data = (const char *)c->x + 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "x is 0x");
    c = small_layer();
    c->args.out.data = (char *)c->out + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out is 0x");
    c = small_cross_layer();
    c->args.value.data = c->key;
    c->args.key.data = NULL;
    c->args.kv_len = 0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "value is given, but key is NULL");
    c = small_layer();
    c->attention.k.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "k is NULL");
    c = small_layer();
    c->attention.v.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "v is NULL");
}

static void packed_weights_are_checked(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->args.packed = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "packed is NULL");
    c = small_layer();
    c->args.packed = c->packed + 32;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 64 bytes");
    c = small_layer();
    c->args.packed_size = 100;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "100 bytes) is not what attnkit_layer_pack wrote");
    c = small_layer();
    size_t bytes;
    assert_int_equal(attnkit_layer_packed_size(&c->weights, &bytes, NULL), ATTNKIT_OK);
    c->args.packed_size = bytes - 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "packed_size is");
    c->args.packed_size = bytes;
    expect_ok(c);
    c = small_layer();
    c->packed[0] = 'b';
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "is not what attnkit_layer_pack wrote");
}

/* If the description of the packed weights is damaged, the library must refuse a call, or the call
 * must stay inside its memory. */
static void broken_descriptions_do_no_harm(void **state)
{
    (void)state;
    uint64_t random = 3;
    int refused = 0;
    for (int i = 0; i < 3000; i++) {
        struct small_layer *const c = small_cross_layer();
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

static void arguments_that_the_layer_sets_are_refused(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->attention.q_heads = Q_HEADS;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->q_heads is given");
    c = small_layer();
    c->attention.q.data = c->x;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->q is given");
    c = small_layer();
    c->attention.out.type = ATTNKIT_F16;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->out.type is given");
    c = small_layer();
    c->groups.states.first_key = ATTNKIT_CHUNK_KEYS;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->first_key is given");
    c = small_layer();
    c->groups.states.state_out.max = c->lse;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->state_out is given");
    c = small_cross_layer();
    c->attention.k.data = c->k;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->k is given");
    c = small_cross_layer();
    c->attention.kv_len = 5;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->kv_len is given");
    c = small_cross_layer();
    c->attention.k.layout = ATTNKIT_TILED;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->k.layout is given");
    c = small_cross_layer();
    c->groups.pages.page_size = 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->block_table is given");
}

static void caches_are_checked(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->cached[1] = -1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "cached[1] is -1");
    c = small_layer();
    c->cached[1] = CAPACITY - Q_LEN + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "cached[1] is 14");
    c = small_layer();
    c->cached[0] = INT64_MAX;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "cached[0] is 9223372036854775807");
    c = small_layer();
    c->groups.visibility.kv_lens.data = c->kv_lens;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->kv_lens is given");
    c = small_layer();
    c->args.cached.data = NULL;
    c->args.flags = ATTNKIT_NO_APPEND;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "flags has ATTNKIT_NO_APPEND, but cached is NULL");
    c = small_layer();
    c->args.flags = ATTNKIT_NO_APPEND;
    c->rotation.kind = ATTNKIT_ROPE_NONE;
    c->args.key.data = c->key;
    c->args.kv_len = 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "key is given, but flags has ATTNKIT_NO_APPEND");
    c = small_layer();
    c->groups.storage.cu_seqlens_q.data = c->positions;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "attention->cu_seqlens_q and cached are both given");
    c = small_layer();
    c->attention.k.type = c->attention.v.type = ATTNKIT_Q8_0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "head_dim is 8: must be a multiple of 32");
    c = small_layer();
    c->attention.k.type = c->attention.v.type = ATTNKIT_F8_E4M3;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "attention->k as dst of an append: dst.type is 12");
    c = small_layer();
    c->attention.k.layout = c->attention.v.layout = ATTNKIT_STRIDED;
    c->attention.lse.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->k as dst of an append: dst.strides are");
    c = small_layer();
    c->groups.pages.block_table = c->block_table;
    c->groups.pages.block_table_stride = 1;
    c->groups.pages.page_size = CAPACITY;
    c->groups.pages.pages = 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "block_table[1] is 1");
}

static void rotations_are_checked(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->rotation.dim = 5;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rotation.dim is 5");
    c = small_layer();
    c->rotation.dim = HEAD_DIM + 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rotation.dim is 10");
    c = small_layer();
    c->rotation.base = 0.5;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rotation.base is 0.5");
    c = small_layer();
    c->rotation.positions.data = c->positions;
    c->positions[1] = -4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "positions[1] is -4");
    c = small_layer();
    c->rotation.cos = c->rotation.sin = c->table;
    c->rotation.table_positions = 7;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rotation.table_positions is 7");
    c->rotation.table_positions = 9;
    expect_ok(c);
    c = small_layer();
    c->rotation.kind = ATTNKIT_ROPE_NONE;
    c->rotation.positions.data = c->positions;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT,
                   "positions is given, but rotation.kind is ATTNKIT_ROPE_NONE");
    for (int cross = 0; cross < 2; cross++) {
        c = cross ? small_cross_layer() : small_layer();
        c->rotation.kind = ATTNKIT_ROPE_NONE;
        c->rotation.dim = 4;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT,
                       "rotation.dim is given, but rotation.kind is ATTNKIT_ROPE_NONE");
        c->rotation.dim = 0;
        c->rotation.cos = c->table;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT,
                       "rotation.cos is given, but rotation.kind is ATTNKIT_ROPE_NONE");
    }
    c = small_cross_layer();
    c->rotation.kind = ATTNKIT_ROPE_HALF;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "rotation.kind is 2, but key is given");
}

/* The attention of the layer checks most options, with the messages of an attention call. The layer
 * itself refuses mean_weights if attention writes weights of another kind than SOFTMAX. */
static void options_are_checked(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->attention.align = ATTNKIT_ALIGN_NONE;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "align is ATTNKIT_ALIGN_NONE");
    c = small_layer();
    c->groups.scores.softcap = -1.0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "softcap is -1");
    c = small_layer();
    c->groups.visibility.mask = (attnkit_tensor){.data = c->mask, .type = ATTNKIT_BOOL};
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "mask");
    c = small_layer();
    c->groups.weights.weights.data = c->all;
    c->groups.weights.kind = ATTNKIT_WEIGHTS_SCALED;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "attention->weights.kind is 4");
    c->args.mean_weights = NULL;
    expect_ok(c);
}

static void strides_are_checked(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->args.x.strides[2] = D_MODEL * 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT,
                   "x.strides[2] (row) is 128, but x.layout lacks ATTNKIT_STRIDED");
    c = small_layer();
    c->args.x.layout = c->args.out.layout = ATTNKIT_STRIDED;
    c->args.x.strides[0] = 0;
    c->args.x.strides[2] = 6;
    c->args.out.strides[0] = Q_LEN * D_MODEL * 4;
    c->args.out.strides[2] = D_MODEL * 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "x.strides[2] (row) is 6");
    c->args.x.strides[2] = 0; /* all rows of x are the same row of memory */
    expect_ok(c);
    c->args.out.strides[2] = 64;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out.strides");
}

static void overlaps_are_refused(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->args.out.data = c->args.x.data;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps");
    c = small_layer();
    c->args.out.data = c->lse + MARGIN;
    expect_overlap(c, "out", "attention->lse");
    c = small_layer();
    c->args.mean_weights = c->out + MARGIN;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps");
    c = small_layer();
    c->attention.v.data = c->attention.k.data;
    expect_overlap(c, "attention->k", "attention->v");
    c = small_layer();
    c->args.x.data = c->attention.k.data;
    expect_overlap(c, "attention->k", "x");
    c = small_layer();
    c->args.out.data = (char *)c->packed + 512;
    expect_overlap(c, "out", "packed");
    c = small_layer();
    c->groups.visibility.mask =
        (attnkit_tensor){.data = (unsigned char *)c->out + MARGIN * 4, .type = ATTNKIT_BOOL};
    c->groups.visibility.mask_kind = ATTNKIT_MASK_ATTEND;
    expect_overlap(c, "out", "attention->mask");
    c = small_layer();
    c->attention.v.type = ATTNKIT_I8;
    c->groups.storage.v_scales.data = c->k + MARGIN;
    expect_overlap(c, "attention->k", "attention->v_scales");
}

/* A layer writes its attention weights before the output projection reads the packed matrices. If
 * the attention weights lay in the matrices, the projection would read attention weights as a
 * matrix. The test also moves the attention weights into x, key and value. */
static void weights_that_overlap_are_refused(void **state)
{
    (void)state;
    static const char *const others[] = {"x", "key", "value", "packed"};
    for (int which = 0; which < 4; which++) {
        struct small_layer *const c = small_cross_layer();
        void *const places[] = {c->x + MARGIN, c->key + MARGIN, c->key + MARGIN + 1000,
                                c->packed + 512};
        c->args.value.data = c->key + MARGIN + 1000;
        c->groups.weights.weights.data = places[which];
        c->groups.weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
        expect_overlap(c, "attention->weights", others[which]);
    }
}

static void tables_are_not_written(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    c->rotation.cos = c->out + MARGIN + 7;
    c->rotation.sin = c->table;
    c->rotation.table_positions = 9;
    expect_overlap(c, "out", "rotation.cos");
    c->rotation.cos = c->table;
    c->rotation.sin = c->v + MARGIN;
    expect_overlap(c, "attention->v", "rotation.sin");
    c->rotation.sin = c->table;
    c->attention.lse.data = c->table + 8;
    expect_overlap(c, "attention->lse", "rotation.cos");
}

static void workspaces_are_checked(void **state)
{
    (void)state;
    struct small_layer *c = small_layer();
    size_t bytes;
    assert_int_equal(attnkit_layer_workspace(&c->args, &c->exec, &bytes, NULL), ATTNKIT_OK);
    c->exec.workspace = NULL;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL");
    c->exec.workspace = small_workspace + 1;
    c->exec.workspace_size = bytes - 1;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "exec.workspace_size is");
    memset(small_workspace, PATTERN, SMALL_WORKSPACE);
    c->exec.workspace_size = bytes;
    expect_ok(c);
    assert_int_equal((unsigned char)small_workspace[0], PATTERN);
    for (size_t i = bytes + 1; i < SMALL_WORKSPACE; i++)
        assert_int_equal((unsigned char)small_workspace[i], PATTERN);
    c = small_layer();
    c->exec.threads = 2;
    c->exec.workspace_size = SMALL_WORKSPACE;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT,
                   "exec.barrier is NULL: a layer needs a barrier for 2 threads");
}

/* The workspace must not overlap any tensor or array of the call. The test moves six tensors and
 * the sinks into the workspace, one at a time. */
static void a_workspace_in_a_tensor_is_refused(void **state)
{
    (void)state;
    float *const inside = (float *)(void *)small_workspace + 64;
    for (int which = 0; which < 7; which++) {
        struct small_layer *const c = small_layer();
        c->args.x.data = which == 0 ? inside : c->args.x.data;
        c->args.out.data = which == 1 ? inside : c->args.out.data;
        c->args.mean_weights = which == 2 ? inside : c->args.mean_weights;
        c->attention.k.data = which == 3 ? inside : c->attention.k.data;
        c->attention.v.data = which == 4 ? inside : c->attention.v.data;
        c->attention.lse.data = which == 5 ? inside : c->attention.lse.data;
        c->groups.scores.sinks = which == 6 ? inside : NULL;
        memset(small_workspace, 0, SMALL_WORKSPACE);
        expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "overlaps");
        for (size_t i = 0; i < SMALL_WORKSPACE; i++)
            assert_int_equal(small_workspace[i], 0);
    }
}

/* ---------------------------------------------------------------------------- packing weights */

static void expect_no_packing(struct small_layer *c, attnkit_status status, const char *text)
{
    static struct small_layer before;
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
    struct small_layer *c = small_layer();
    c->weights.q_heads = 5;
    c->weights.kv_heads = 5;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "d_model is 32: must be a multiple of q_heads (5)");
    c = small_layer();
    c->weights.kv_heads = 3;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "q_heads is 4: must be a multiple of kv_heads (3)");
    c = small_layer();
    c->weights.d_model = 0;
    c->weights.head_dim = 4;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "d_model is 0");
    c = small_layer();
    c->weights.q_heads = -4;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "q_heads is -4");
    c = small_layer();
    c->weights.value_dim = -1;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "value_dim is -1");
    c = small_layer();
    c->weights.w_v = NULL;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "w_v is NULL");
    c = small_layer();
    c->weights.w_o = (const char *)c->w[3] + 1;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "w_o is 0x");
    c = small_layer();
    c->weights.w_type = ATTNKIT_I8;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "w_type is 3");
    c = small_layer();
    c->weights.packed_type = ATTNKIT_I8;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "packed_type is 3");
    c->weights.packed_type = ATTNKIT_Q5_0;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "packed_type is 7: must be ATTNKIT_F32 (0)");
    c = small_layer();
    c->weights.w_type = ATTNKIT_Q8_0;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "packed_type is 0: must be ATTNKIT_Q8_0");
    c = small_layer();
    c->weights.packed_type = ATTNKIT_Q8_0;
    c->weights.d_key = 30;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "is 30: must be a multiple of 32");
    c = small_layer();
    c->weights.bias_type = ATTNKIT_Q8_0;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "bias_type is 4");
    c = small_layer();
    c->weights.w_qkv = c->w[0];
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "w_q and w_qkv are both given");
    c = small_layer();
    c->weights.b_qkv = c->b[0];
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "b_q and b_qkv are both given");
    c = small_layer();
    c->weights.w_q = c->weights.w_k = c->weights.w_v = NULL;
    c->weights.w_qkv = c->w[0];
    c->weights.d_key = 16;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "w_qkv is given, but d_model, d_key and d_value");
    c = small_layer();
    c->weights.flags = 1;
    expect_no_packing(c, ATTNKIT_UNSUPPORTED, "flags is 0x1");
    c = small_layer();
    c->weights.d_model = INT64_MAX / 4 * 2;
    c->weights.head_dim = 8;
    expect_no_packing(c, ATTNKIT_OVERFLOW, "beyond 63 bits");
    c = small_layer();
    c->weights.w_k = c->packed + 256;
    expect_no_packing(c, ATTNKIT_BAD_ARGUMENT, "packed");
}

static void packed_memory_is_checked(void **state)
{
    (void)state;
    struct small_layer *const c = small_layer();
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

/* A call must pass key if d_key differs from d_model, and value if d_value differs from d_key. */
static void a_layer_for_cross_attention_needs_a_key(void **state)
{
    (void)state;
    struct small_layer *const c = small_cross_layer();
    c->weights.d_key = 16;
    c->weights.d_value = 24;
    assert_int_equal(attnkit_layer_pack(&c->weights, c->packed, sizeof c->packed, NULL, NULL),
                     ATTNKIT_OK);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "value is NULL: d_value (24)");
    c->args.value.data = c->key;
    expect_ok(c);
    c->args.key.data = c->args.value.data = NULL;
    c->args.kv_len = 0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "key is NULL: d_key (16)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_calls_are_good),
        cmocka_unit_test(structs_are_checked),
        cmocka_unit_test(integers_are_unsupported),
        cmocka_unit_test(products_of_bf16_are_unsupported),
        cmocka_unit_test(dims_are_checked),
        cmocka_unit_test(calls_without_batch_entries_or_rows_succeed),
        cmocka_unit_test(keys_without_rows_are_appended),
        cmocka_unit_test(no_keys_give_the_bias),
        cmocka_unit_test(pointers_are_checked),
        cmocka_unit_test(packed_weights_are_checked),
        cmocka_unit_test(broken_descriptions_do_no_harm),
        cmocka_unit_test(arguments_that_the_layer_sets_are_refused),
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
