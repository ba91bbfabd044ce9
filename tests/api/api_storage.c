/* SPDX-License-Identifier: Apache-2.0
 *
 * The public call of attention with bad and odd storage of its tensors: types, scales, pages, cells
 * and tiles. The library refuses a call that it cannot compute. It then writes nothing, and returns
 * the documented status and a message that names the argument and its value. A call that only looks
 * odd has the reference's result. Most tests of other arguments are in api.c and masks_api.c.
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

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "kernels/attention/keys.h"
#include "kernels/scalar/reference.h"
#include "attnkit.h"
#include "tests/support/formats.h"
#include "tests/support/groups.h"
#include "tests/support/random.h"

enum {
    BATCH = 2,
    Q_HEADS = 4,
    KV_HEADS = 2,
    Q_LEN = 3,
    KV_LEN = 10,
    HEAD_DIM = 32,
    VALUE_DIM = 64,
    GROUP = 8, /* number of elements of K that share a scale; in V the whole row shares a scale */
    PAGE_SIZE = 4,
    PAGES_EACH = 3,
    PAGES = BATCH * PAGES_EACH,

    ROOM = 49152,  /* bytes for each tensor */
    MARGIN = 4096, /* how many of the ROOM bytes lie before a tensor's first element */
    PATTERN = 0xa5,
};

/* A call and all its memory except the workspace. A refused call may change none of this memory. */
struct call {
    attnkit_attention_args args;
    struct groups groups;
    attnkit_exec exec;
    int64_t kv_lens[BATCH];
    int32_t block_table[PAGES];
    int32_t key_index[BATCH * KV_LEN];
    int64_t q_offsets[BATCH];
    _Alignas(64) char q[ROOM], k[ROOM], v[ROOM], out[ROOM], lse[ROOM], k_scales[ROOM],
        v_scales[ROOM];
};

static char workspace[1 << 20];

/* Fills memory with bytes that make finite numbers in every type. */
static void fill(char *memory, uint64_t seed)
{
    for (int i = 0; i < ROOM; i++)
        memory[i] = (char)(random_bits(&seed) & 0x3b);
}

/* Makes the valid call, which is dense and binary32. When this function is called again, it
 * overwrites the call. */
static struct call *good_call(void)
{
    static struct call c;
    memset(&c, PATTERN, sizeof c);
    c.args = (attnkit_attention_args){
        .size = sizeof c.args,
        .batch = BATCH,
        .q_heads = Q_HEADS,
        .kv_heads = KV_HEADS,
        .q_len = Q_LEN,
        .kv_len = KV_LEN,
        .head_dim = HEAD_DIM,
        .value_dim = VALUE_DIM,
        .q = {.data = c.q + MARGIN},
        .k = {.data = c.k + MARGIN},
        .v = {.data = c.v + MARGIN},
        .out = {.data = c.out + MARGIN},
        .lse = {.data = c.lse + MARGIN},
    };
    c.exec = (attnkit_exec){
        .size = sizeof c.exec, .workspace = workspace, .workspace_size = sizeof workspace};
    groups_init(&c.groups);
    groups_hang(&c.args, &c.groups);
    c.kv_lens[0] = 5;
    c.kv_lens[1] = 0;
    for (int i = 0; i < PAGES; i++)
        c.block_table[i] = PAGES - 1 - i;
    char *const inputs[] = {c.q, c.k, c.v, c.k_scales, c.v_scales};
    for (int i = 0; i < 5; i++)
        fill(inputs[i], (uint64_t)i);
    return &c;
}

/* Functions that turn the valid call into another valid call. */
typedef void (*maker)(struct call *c);

static void make_halves(struct call *c)
{
    c->args.q.type = c->args.k.type = ATTNKIT_F16;
    c->args.v.type = c->args.out.type = ATTNKIT_BF16;
}

static void make_bytes(struct call *c)
{
    c->args.k.type = c->args.v.type = ATTNKIT_I8;
    c->groups.storage.k_scales.data = c->k_scales + MARGIN;
    c->groups.storage.v_scales.data = c->v_scales + MARGIN;
    c->groups.storage.k_scale_group = GROUP;
}

/* Makes V a tensor of bytes with scales, and K a tensor of 16-bit elements. */
static void make_value_bytes(struct call *c)
{
    make_bytes(c);
    c->args.k.type = ATTNKIT_F16;
    c->groups.storage.k_scales.data = NULL;
    c->groups.storage.k_scale_group = 0;
}

static void make_blocks(struct call *c)
{
    c->args.k.type = c->args.v.type = ATTNKIT_Q8_0;
}

/* Makes a call that multiplies K and V of ATTNKIT_Q8_0 as integers. */
static void make_integers(struct call *c)
{
    make_blocks(c);
    c->args.flags |= ATTNKIT_INTEGERS;
}

/* Makes a call that multiplies K and V of ATTNKIT_I8 as integers. */
static void make_integer_bytes(struct call *c)
{
    make_bytes(c);
    c->groups.storage.k_scale_group = HEAD_DIM;
    c->args.flags |= ATTNKIT_INTEGERS;
}

/* Makes a call that multiplies K of ATTNKIT_Q8_0 and V of ATTNKIT_I8 as integers. */
static void make_mixed_integers(struct call *c)
{
    make_integers(c);
    c->args.v.type = ATTNKIT_I8;
    c->groups.storage.v_scales.data = c->v_scales + MARGIN;
    c->groups.storage.v_scale_group = VALUE_DIM / 2;
}

/* Makes a call that multiplies bf16 in groups of products. */
static void make_products(struct call *c)
{
    c->args.q.type = c->args.k.type = c->args.v.type = ATTNKIT_BF16;
    c->args.flags |= ATTNKIT_BF16_PRODUCTS;
}

static void make_short_products(struct call *c)
{
    make_products(c);
    c->args.flags |= ATTNKIT_SHORT_WEIGHTS;
}

static void make_paged(struct call *c)
{
    c->groups.pages.block_table = c->block_table;
    c->groups.pages.block_table_stride = PAGES_EACH;
    c->groups.pages.page_size = PAGE_SIZE;
    c->groups.pages.pages = PAGES;
}

static void make_paged_bytes(struct call *c)
{
    make_bytes(c);
    make_paged(c);
}

static void make_tiled(struct call *c)
{
    c->args.k.layout |= ATTNKIT_TILED;
}

/* Makes pages of one tile. Each batch entry has one page. */
static void make_tiled_pages(struct call *c)
{
    make_paged(c);
    make_tiled(c);
    c->groups.pages.page_size = TILE_KEYS;
    c->groups.pages.pages = BATCH;
    c->block_table[0] = 1;
    c->block_table[PAGES_EACH] = 0;
}

static void make_tiled_bytes(struct call *c)
{
    make_bytes(c);
    make_tiled(c);
}

static void make_tiled_integers(struct call *c)
{
    make_integers(c);
    make_tiled(c);
}

static const maker makers[] = {make_halves,         make_bytes,       make_value_bytes,
                               make_blocks,         make_integers,    make_integer_bytes,
                               make_mixed_integers, make_products,    make_short_products,
                               make_paged,          make_paged_bytes, make_tiled_bytes,
                               make_tiled,          make_tiled_pages, make_tiled_integers};

static void set_strides(attnkit_tensor *t, int64_t heads, int64_t rows, int64_t row_bytes)
{
    t->layout |= ATTNKIT_STRIDED;
    t->strides[2] = row_bytes;
    t->strides[1] = rows * row_bytes;
    t->strides[0] = heads * rows * row_bytes;
}

/* Sets the strides of the call's dense tensors explicitly. */
static void make_strided(struct call *c)
{
    attnkit_attention_args *a = &c->args;
    attnkit_kv_storage *storage = &c->groups.storage;
    const bool tiled = a->k.layout & ATTNKIT_TILED, paged = c->groups.pages.block_table;
    const int64_t rows = paged ? c->groups.pages.page_size : KV_LEN;
    const int64_t k_rows = tiled ? 1 : rows,
                  keys = tiled ? TILE_KEYS : 1; /* keys that strides[2] of K steps over:
                                                   1, or the 16 keys of a tile */
    set_strides(&a->q, Q_HEADS, Q_LEN, bytes_of((enum type)a->q.type, HEAD_DIM));
    set_strides(&a->k, KV_HEADS, k_rows, keys * bytes_of((enum type)a->k.type, HEAD_DIM));
    set_strides(&a->v, KV_HEADS, rows, bytes_of((enum type)a->v.type, VALUE_DIM));
    set_strides(&a->out, Q_HEADS, Q_LEN, bytes_of((enum type)a->out.type, VALUE_DIM));
    set_strides(&a->lse, Q_HEADS, Q_LEN, 4);
    set_strides(&storage->k_scales, KV_HEADS, k_rows, keys * (HEAD_DIM / GROUP * 4));
    set_strides(&storage->v_scales, KV_HEADS, rows, 4);
}

/* Makes K and V 8-bit floating point, each with one scale for the whole tensor, as in vLLM. */
static void make_e4m3(struct call *c)
{
    make_bytes(c);
    c->args.k.type = c->args.v.type = ATTNKIT_F8_E4M3;
    c->groups.storage.k_scale_group = 0;
    c->groups.storage.k_scales.layout = c->groups.storage.v_scales.layout = ATTNKIT_STRIDED;
}

static void make_strided_bytes(struct call *c)
{
    make_bytes(c);
    make_strided(c);
}

/* --- What is expected -------------------------------------------------------------------- */

static void fail_unless(bool right, const char *what, const char *text, attnkit_status status,
                        const char *message)
{
    if (!right)
        fail_msg("%s, expected \"%s\": got %s, \"%s\"", what, text, attnkit_status_string(status),
                 message);
}

static void expect_refusal(struct call *c, attnkit_status expected, const char *text)
{
    static struct call before;
    memcpy(&before, c, sizeof before);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_attention(&c->args, &c->exec, message);
    fail_unless(status == expected && strstr(message, text), "call", text, status, message);
    const attnkit_status silent = attnkit_attention(&c->args, &c->exec, NULL);
    fail_unless(silent == expected, "call without message", text, silent, message);
    fail_unless(memcmp(&before, c, sizeof before) == 0, "memory has changed", text, status,
                message);
}

static void expect_query_refusal(const struct call *c, attnkit_status expected, const char *text)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    size_t bytes = 12345;
    const attnkit_status status = attnkit_attention_workspace(&c->args, &c->exec, &bytes, message);
    fail_unless(status == expected && strstr(message, text), "query", text, status, message);
    fail_unless(bytes == 12345, "bytes have changed", text, status, message);
}

static size_t workspace_needed(const struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    size_t bytes = 0;
    const attnkit_status status = attnkit_attention_workspace(&c->args, &c->exec, &bytes, message);
    fail_unless(status == ATTNKIT_OK && message[0] == '\0', "query", "", status, message);
    return bytes;
}

/* Compares each row of out and lse, at the address that the strides give, with the reference. */
static void expect_reference_rows(const attnkit_attention_args *args)
{
    struct attention problem;
    const struct attention *const a = &problem;
    assert_int_equal(attnkit_attention_problem(args, &problem, NULL), ATTNKIT_OK);
    float *out = malloc((size_t)a->value_dim * sizeof *out), lse;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t g = 0; g < a->kv_heads; g++)
            for (int64_t r = 0; r < a->q_len * a->group; r++) {
                const struct place place = place_of_row(a, b, g, r);
                attnkit_reference_row(a, b, g, r, out, &lse);
                assert_true(is_narrowed_row(a->out_type, out, out_row(a, place), a->value_dim));
                assert_true(is_narrowed_row(TYPE_F32, &lse, (const char *)lse_row(a, place), 1));
            }
    free(out);
}

static void expect_ok(struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    workspace_needed(c);
    const attnkit_status status = attnkit_attention(&c->args, &c->exec, message);
    fail_unless(status == ATTNKIT_OK && message[0] == '\0', "call", "", status, message);
}

static void expect_result(struct call *c)
{
    expect_ok(c);
    expect_reference_rows(&c->args);
}

/* --- Tables of refusals ------------------------------------------------------------------ */

/* A field of the call and its new value. */
struct change {
    size_t field, size; /* size is 0 if there is no change */
    int64_t value;
};

#define SET(name, value)                                                                           \
    {                                                                                              \
        offsetof(struct call, name), sizeof(((struct call *)0)->name), value                       \
    }

struct refusal {
    const char *text; /* a part of the message */
    struct change change[4];
};

static void apply(struct call *c, const struct change *change)
{
    char *field = (char *)c + change->field;
    const int32_t narrow = (int32_t)change->value;
    if (change->size == sizeof narrow)
        memcpy(field, &narrow, sizeof narrow);
    else if (change->size == sizeof change->value)
        memcpy(field, &change->value, sizeof change->value);
}

/* Makes the valid call, and changes it by `make` unless `make` is NULL. */
static struct call *made_call(maker make)
{
    struct call *c = good_call();
    if (make)
        make(c);
    return c;
}

static struct call *changed_call(const struct refusal *r, maker make)
{
    struct call *c = made_call(make);
    for (int i = 0; i < 4; i++)
        apply(c, &r->change[i]);
    return c;
}

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* Checks that the call and the workspace query refuse each fault of the table. The library finds
 * these faults without reading the memory of a tensor or an array. */
static void expect_shape_refusals(const struct refusal *table, size_t count, maker make,
                                  attnkit_status expected)
{
    for (size_t i = 0; i < count; i++) {
        struct call *c = changed_call(&table[i], make);
        expect_refusal(c, expected, table[i].text);
        expect_query_refusal(c, expected, table[i].text);
    }
}

/* Checks that the call refuses each fault of the table. The workspace query cannot see these
 * faults. */
static void expect_call_refusals(const struct refusal *table, size_t count, maker make,
                                 attnkit_status expected)
{
    for (size_t i = 0; i < count; i++) {
        struct call *c = changed_call(&table[i], make);
        expect_refusal(c, expected, table[i].text);
        workspace_needed(c);
    }
}

static void the_good_calls_are_right(void **state)
{
    (void)state;
    expect_result(good_call());
    for (size_t i = 0; i < COUNT(makers); i++) {
        expect_result(made_call(makers[i]));
        struct call *c = made_call(makers[i]);
        make_strided(c);
        expect_result(c);
    }
}

/* --- Types and scales -------------------------------------------------------------------- */

static void unknown_types_are_unsupported(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"q.type is 3: must be ATTNKIT_F32 (0), ATTNKIT_F16 (1) or ATTNKIT_BF16 (2)",
         {SET(args.q.type, ATTNKIT_I8)}},
        {"q.type is 4: must be ATTNKIT_F32 (0)", {SET(args.q.type, ATTNKIT_Q8_0)}},
        {"q.type is 5: must be ATTNKIT_F32 (0)", {SET(args.q.type, ATTNKIT_Q4_0)}},
        {"q.type is 12: must be ATTNKIT_F32 (0)", {SET(args.q.type, ATTNKIT_F8_E4M3)}},
        {"out.type is 3: must be ATTNKIT_F32 (0), ATTNKIT_F16 (1) or ATTNKIT_BF16 (2)",
         {SET(args.out.type, ATTNKIT_I8)}},
        {"out.type is -1", {SET(args.out.type, -1)}},
        {"out.type is 7: must be ATTNKIT_F32 (0)", {SET(args.out.type, ATTNKIT_Q5_0)}},
        {"k.type is 13: not known", {SET(args.k.type, 13)}},
        {"k.type is 64: not known", {SET(args.k.type, ATTNKIT_BOOL)}},
        {"k.type is -1: not known", {SET(args.k.type, -1)}},
        {"v.type is 13: not known", {SET(args.v.type, 13)}},
        {"v.type is -2147483648: not known", {SET(args.v.type, INT32_MIN)}},
        {"v.type is 13",
         {SET(args.batch, 0), SET(args.v.type, 13)}}, /* a bad call with nothing to do is refused */
        {"k.type is 5: there are no tiles (ATTNKIT_TILED) of ATTNKIT_Q4_0",
         {SET(args.k.type, ATTNKIT_Q4_0), SET(args.k.layout, ATTNKIT_TILED)}},
        {"k.type is 10: there are no tiles (ATTNKIT_TILED) of ATTNKIT_Q1_0",
         {SET(args.k.type, ATTNKIT_Q1_0), SET(args.k.layout, ATTNKIT_TILED)}},
        {"k.type is 12: there are no tiles (ATTNKIT_TILED) of ATTNKIT_F8_E4M3",
         {SET(args.k.type, ATTNKIT_F8_E4M3), SET(args.k.layout, ATTNKIT_TILED)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_UNSUPPORTED);
    const struct refusal bytes[] = {
        {"k_scales.type is 1: must be ATTNKIT_F32 (0)",
         {SET(groups.storage.k_scales.type, ATTNKIT_F16)}},
        {"v_scales.type is -1: must be ATTNKIT_F32 (0)", {SET(groups.storage.v_scales.type, -1)}},
        {"v_scales.layout is 0x4: bits 0x4 are not known",
         {SET(groups.storage.v_scales.layout, 4)}},
        {"v_scales.layout is 0x2: v_scales cannot be in tiles",
         {SET(groups.storage.v_scales.layout, ATTNKIT_TILED)}},
        {"k_scales.layout is 0x80000001: bits 0x80000000 are not known",
         {SET(groups.storage.k_scales.layout, 0x80000001)}},
    };
    expect_shape_refusals(bytes, COUNT(bytes), make_bytes, ATTNKIT_UNSUPPORTED);
}

static void integers_need_bytes_and_no_weights(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"flags has ATTNKIT_INTEGERS, but k.type is 0: must be ATTNKIT_I8 (3) or ATTNKIT_Q8_0 (4)",
         {SET(args.k.type, ATTNKIT_F32)}},
        {"flags has ATTNKIT_INTEGERS, but k.type is 2: must be ATTNKIT_I8 (3) or ATTNKIT_Q8_0 (4)",
         {SET(args.k.type, ATTNKIT_BF16), SET(args.v.type, ATTNKIT_BF16)}},
        {"flags has ATTNKIT_INTEGERS, but k.type is 5: must be ATTNKIT_I8 (3) or ATTNKIT_Q8_0 (4)",
         {SET(args.k.type, ATTNKIT_Q4_0)}},
        {"flags has ATTNKIT_INTEGERS, but v.type is 0: must be ATTNKIT_I8 (3) or ATTNKIT_Q8_0 (4)",
         {SET(args.v.type, ATTNKIT_F32)}},
        {"flags has ATTNKIT_INTEGERS, but v.type is 7: must be ATTNKIT_I8 (3) or ATTNKIT_Q8_0 (4)",
         {SET(args.v.type, ATTNKIT_Q5_0)}},
        {"flags has ATTNKIT_INTEGERS, but v.type is 1", /* a bad call with nothing to do */
         {SET(args.v.type, ATTNKIT_F16), SET(args.q_len, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_integers, ATTNKIT_UNSUPPORTED);
    struct call *const c = made_call(make_integers);
    c->groups.weights.weights.data = c->lse + MARGIN;
    c->groups.weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
    expect_refusal(c, ATTNKIT_UNSUPPORTED,
                   "flags has ATTNKIT_INTEGERS, but weights is given: they do not go together");
}

static void integers_need_scales_of_32_elements(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"flags has ATTNKIT_INTEGERS, but k_scale_group is 8: must be a multiple of 32",
         {SET(groups.storage.k_scale_group, 8)}},
        {"flags has ATTNKIT_INTEGERS, but k_scale_group is 48: must be a multiple of 32",
         {SET(args.head_dim, 96), SET(groups.storage.k_scale_group, 48)}},
        {"flags has ATTNKIT_INTEGERS and k_scale_group is 0, but head_dim is 40: must be a "
         "multiple of 32",
         {SET(args.head_dim, 40), SET(groups.storage.k_scale_group, 0)}},
        {"flags has ATTNKIT_INTEGERS, but v_scale_group is 16: must be a multiple of 32",
         {SET(groups.storage.v_scale_group, 16)}},
        {"flags has ATTNKIT_INTEGERS and v_scale_group is 0, but value_dim is 80: must be a "
         "multiple of 32",
         {SET(args.value_dim, 80)}},
        {"flags has ATTNKIT_INTEGERS, but v_scale_group is 16", /* a bad call without keys */
         {SET(groups.storage.v_scale_group, 16), SET(args.kv_len, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_integer_bytes, ATTNKIT_UNSUPPORTED);
    for (int64_t group = 32; group <= VALUE_DIM; group += 32) {
        struct call *const c = made_call(make_integer_bytes);
        c->groups.storage.v_scale_group = group;
        expect_result(c);
    }
}

static void products_need_rows_of_bf16_and_no_weights_or_dropout(void **state)
{
    (void)state;
    static const uint64_t seeds[BATCH];
    const struct refusal table[] = {
        {"flags has ATTNKIT_BF16_PRODUCTS, but q.type is 0: must be ATTNKIT_BF16 (2)",
         {SET(args.q.type, ATTNKIT_F32)}},
        {"flags has ATTNKIT_BF16_PRODUCTS, but k.type is 1: must be ATTNKIT_BF16 (2)",
         {SET(args.k.type, ATTNKIT_F16), SET(args.v.type, ATTNKIT_F16)}},
        {"flags has ATTNKIT_BF16_PRODUCTS, but v.type is 0: must be ATTNKIT_BF16 (2)",
         {SET(args.v.type, ATTNKIT_F32)}},
        {"flags has ATTNKIT_BF16_PRODUCTS, but k.layout has ATTNKIT_TILED: K must lie in rows",
         {SET(args.k.layout, ATTNKIT_TILED)}},
        {"flags has ATTNKIT_BF16_PRODUCTS, but q.type is 1", /* a bad call with nothing to do */
         {SET(args.q.type, ATTNKIT_F16), SET(args.q_len, 0)}},
    };
    const struct refusal flags[] = {
        {"flags has ATTNKIT_BF16_PRODUCTS and ATTNKIT_INTEGERS: they do not go together",
         {SET(args.flags, ATTNKIT_BF16_PRODUCTS | ATTNKIT_INTEGERS)}},
        {"flags has ATTNKIT_SHORT_WEIGHTS, but not ATTNKIT_BF16_PRODUCTS",
         {SET(args.flags, ATTNKIT_SHORT_WEIGHTS)}},
    };
    expect_shape_refusals(table, COUNT(table), make_products, ATTNKIT_UNSUPPORTED);
    expect_shape_refusals(flags, COUNT(flags), make_products, ATTNKIT_BAD_ARGUMENT);
    struct call *c = made_call(make_products);
    c->groups.weights.weights.data = c->lse + MARGIN;
    c->groups.weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
    expect_refusal(
        c, ATTNKIT_UNSUPPORTED,
        "flags has ATTNKIT_BF16_PRODUCTS, but weights is given: they do not go together");
    c = made_call(make_short_products);
    c->args.align = ATTNKIT_ALIGN_UPPER_LEFT;
    c->groups.scores.dropout = 0.5;
    c->groups.scores.dropout_seeds = seeds;
    expect_refusal(c, ATTNKIT_UNSUPPORTED,
                   "flags has ATTNKIT_BF16_PRODUCTS, but dropout is 0.5: they do not go together");
}

static void scales_without_bytes_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"k_scale_group is 8, but k.type is 0 and not ATTNKIT_I8 (3)",
         {SET(groups.storage.k_scale_group, 8)}},
        {"v_scale_group is 64, but v.type is 1 and not ATTNKIT_I8 (3)",
         {SET(groups.storage.v_scale_group, 64), SET(args.v.type, ATTNKIT_F16)}},
        {"k_scale_group is 32, but k.type is 5 and not ATTNKIT_I8 (3) or ATTNKIT_F8_E4M3 (12)",
         {SET(groups.storage.k_scale_group, 32), SET(args.k.type, ATTNKIT_Q4_0)}},
        {"v_scales is given, but v.type is 9 and not ATTNKIT_I8 (3)",
         {SET(groups.storage.v_scales.data, 64), SET(args.v.type, ATTNKIT_IQ4_NL)}},
        {"k_scale_group is 32, but k.type is 4",
         {SET(groups.storage.k_scale_group, 32), SET(args.k.type, ATTNKIT_Q8_0)}},
        {"k_scales is given, but k.type is 0 and not ATTNKIT_I8 (3)",
         {SET(groups.storage.k_scales.data, 64)}},
        {"k_scales is given, but k.type is 4",
         {SET(groups.storage.k_scales.data, 64), SET(args.k.type, ATTNKIT_Q8_0)}},
        {"v_scales is given, but v.type is 2",
         {SET(groups.storage.v_scales.data, 64), SET(args.v.type, ATTNKIT_BF16)}},
        {"k_scale_group is -1: must be at least 0", {SET(groups.storage.k_scale_group, -1)}},
        {"v_scale_group is -9223372036854775808: must be at least 0",
         {SET(groups.storage.v_scale_group, INT64_MIN)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
}

static void groups_that_do_not_divide_a_row_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"k_scale_group is 5: must divide head_dim (32)", {SET(groups.storage.k_scale_group, 5)}},
        {"k_scale_group is 64: must divide head_dim (32)", {SET(groups.storage.k_scale_group, 64)}},
        {"k_scale_group is -8: must be at least 0", {SET(groups.storage.k_scale_group, -8)}},
        {"v_scale_group is 65: must divide value_dim (64)",
         {SET(groups.storage.v_scale_group, 65)}},
        {"v_scale_group is 9223372036854775807: must divide value_dim (64)",
         {SET(groups.storage.v_scale_group, INT64_MAX)}},
        {"v_scale_group is 64: must divide value_dim (32)", /* value_dim 0 stands for head_dim */
         {SET(groups.storage.v_scale_group, 64), SET(args.value_dim, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_bytes, ATTNKIT_BAD_ARGUMENT);
}

static void every_group_that_divides_a_row_is_taken(void **state)
{
    (void)state;
    for (int64_t group = 0; group <= HEAD_DIM; group = group ? 2 * group : 1) {
        struct call *c = made_call(make_bytes);
        c->groups.storage.k_scale_group = c->groups.storage.v_scale_group = group;
        expect_result(c);
    }
}

static void missing_scales_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"k_scales is NULL", {SET(groups.storage.k_scales.data, 0)}},
        {"v_scales is NULL", {SET(groups.storage.v_scales.data, 0)}},
    };
    expect_call_refusals(table, COUNT(table), make_bytes, ATTNKIT_BAD_ARGUMENT);
}

static void parts_of_blocks_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"head_dim is 48: must be a multiple of 32 for ATTNKIT_Q8_0", {SET(args.head_dim, 48)}},
        {"head_dim is 1: must be a multiple of 32", {SET(args.head_dim, 1)}},
        {"value_dim is 33: must be a multiple of 32 for ATTNKIT_Q8_0", {SET(args.value_dim, 33)}},
        {"head_dim is 48: must be a multiple of 32 for ATTNKIT_Q4_0",
         {SET(args.k.type, ATTNKIT_Q4_0), SET(args.head_dim, 48)}},
        {"value_dim is 33: must be a multiple of 32 for ATTNKIT_Q4_1",
         {SET(args.v.type, ATTNKIT_Q4_1), SET(args.value_dim, 33)}},
        {"head_dim is 16: must be a multiple of 32 for ATTNKIT_Q5_0",
         {SET(args.k.type, ATTNKIT_Q5_0), SET(args.head_dim, 16)}},
        {"value_dim is 1: must be a multiple of 32 for ATTNKIT_Q5_1",
         {SET(args.v.type, ATTNKIT_Q5_1), SET(args.value_dim, 1)}},
        {"head_dim is 80: must be a multiple of 32 for ATTNKIT_IQ4_NL",
         {SET(args.k.type, ATTNKIT_IQ4_NL), SET(args.head_dim, 80)}},
        {"value_dim is 64: must be a multiple of 128 for ATTNKIT_Q1_0",
         {SET(args.v.type, ATTNKIT_Q1_0), SET(args.value_dim, 64)}},
        {"head_dim is 96: must be a multiple of 64 for ATTNKIT_Q2_0",
         {SET(args.k.type, ATTNKIT_Q2_0), SET(args.head_dim, 96)}},
        {"value_dim is 16: must be a multiple of 32", /* value_dim 0 stands for head_dim */
         {SET(args.k.type, 0), SET(args.head_dim, 16), SET(args.value_dim, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_blocks, ATTNKIT_BAD_ARGUMENT);
}

static void sizes_whose_products_leave_63_bits_are_refused(void **state)
{
    (void)state;
    const int64_t two_32 = INT64_C(1) << 32;
    const struct refusal table[] = {
        {"head_dim is 2305843009213693952",
         {SET(args.head_dim, INT64_C(1) << 61), SET(args.k.type, ATTNKIT_F16)}},
        {"k has 2 x 2 x 9223372036854775807 rows of 34 bytes",
         {SET(args.kv_len, INT64_MAX), SET(args.k.type, ATTNKIT_Q8_0)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_OVERFLOW);
    const struct refusal bytes[] = {
        {"k_scales has 2 x 2 x 1152921504606846976 rows of 4 bytes",
         {SET(args.kv_len, INT64_C(1) << 60), SET(args.head_dim, 1), SET(args.value_dim, 1),
          SET(groups.storage.k_scale_group, 0)}},
    };
    expect_shape_refusals(bytes, COUNT(bytes), make_bytes, ATTNKIT_OVERFLOW);
    const struct refusal value_bytes[] = {
        {"v_scales has 2 x 2 x 576460752303423488 rows of 4 bytes",
         {SET(args.kv_len, INT64_C(1) << 59), SET(args.head_dim, 1), SET(args.value_dim, 1)}},
    };
    expect_shape_refusals(value_bytes, COUNT(value_bytes), make_value_bytes, ATTNKIT_OVERFLOW);
    const struct refusal paged[] = {
        {"block_table_stride is 9223372036854775807: too large",
         {SET(groups.pages.block_table_stride, INT64_MAX)}},
        {"block_table_stride is 2305843009213693951: too large", /* too large for two batch entries
                                                                  */
         {SET(groups.pages.block_table_stride, (INT64_C(1) << 61) - 1)}},
        {"kv_len is 9223372036854775807: too large for pages of 1",
         {SET(args.batch, 1), SET(args.kv_len, INT64_MAX), SET(groups.pages.page_size, 1)}},
        {"k has 4294967296 x 2 x 4294967296 rows of 128 bytes",
         {SET(groups.pages.pages, two_32), SET(groups.pages.page_size, two_32)}},
    };
    expect_shape_refusals(paged, COUNT(paged), make_paged, ATTNKIT_OVERFLOW);
}

/* --- Addresses and strides --------------------------------------------------------------- */

/* Indices of the tensors of a call, for loops over all tensors. */
enum { OUT, LSE, Q, K, V, K_SCALES, V_SCALES, TENSORS };

static const char *const tensor_names[TENSORS] = {"out", "lse",      "q",       "k",
                                                  "v",   "k_scales", "v_scales"};
static const char *const axis_names[3] = {"batch", "head", "row"};

static attnkit_tensor *tensor_of(struct call *c, int tensor)
{
    attnkit_tensor *const tensors[TENSORS] = {
        &c->args.out,
        &c->args.lse,
        &c->args.q,
        &c->args.k,
        &c->args.v,
        &c->groups.storage.k_scales,
        &c->groups.storage.v_scales,
    };
    return tensors[tensor];
}

static int64_t *strides_of(struct call *c, int tensor)
{
    return tensor_of(c, tensor)->strides;
}

static const char *data_of(struct call *c, int tensor)
{
    return tensor_of(c, tensor)->data;
}

static void set_data(struct call *c, int tensor, const char *data)
{
    tensor_of(c, tensor)->data = data;
}

/* The types that the tests of alignment use, and the alignment of their elements in bytes. */
static const struct {
    attnkit_type type;
    int bytes;
} alignments[] = {{ATTNKIT_F32, 4},  {ATTNKIT_F16, 2},   {ATTNKIT_BF16, 2}, {ATTNKIT_I8, 1},
                  {ATTNKIT_Q8_0, 2}, {ATTNKIT_Q4_0, 2},  {ATTNKIT_Q4_1, 2}, {ATTNKIT_Q5_0, 2},
                  {ATTNKIT_Q5_1, 2}, {ATTNKIT_IQ4_NL, 2}};

/* Makes a call with this type in K and V. q and out also get the type, if they may have it. */
static struct call *call_of_type(attnkit_type type)
{
    struct call *c = made_call(type == ATTNKIT_I8 ? make_bytes : NULL);
    c->args.k.type = c->args.v.type = type;
    if (type < ATTNKIT_I8)
        c->args.q.type = c->args.out.type = type;
    return c;
}

static int alignment_of(attnkit_type type, int tensor)
{
    const bool has_it =
        tensor == K || tensor == V || (type < ATTNKIT_I8 && (tensor == Q || tensor == OUT));
    return has_it ? alignments[type].bytes : 4;
}

static void elements_at_odd_addresses_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(alignments); i++)
        for (int t = 0; t < TENSORS; t++)
            for (int offset = 1; offset <= 4; offset++) {
                struct call *c = call_of_type(alignments[i].type);
                const int alignment = alignment_of(alignments[i].type, t);
                char text[96];
                if (!data_of(c, t))
                    continue;
                set_data(c, t, data_of(c, t) + offset);
                snprintf(text, sizeof text, "%s is %p: must be aligned to %d bytes",
                         tensor_names[t], (const void *)data_of(c, t), alignment);
                if (offset % alignment == 0)
                    expect_result(c);
                else
                    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
            }
}

static void strides_of_parts_of_an_element_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(alignments); i++)
        for (int t = 0; t < TENSORS; t++)
            for (int axis = 0; axis < 3; axis++) {
                struct call *c = call_of_type(alignments[i].type);
                const int alignment = alignment_of(alignments[i].type, t);
                char text[96];
                if (!data_of(c, t) || alignment == 1)
                    continue;
                make_strided(c);
                strides_of(c, t)[axis] += alignment / 2;
                snprintf(text, sizeof text, "%s.strides[%d] (%s) is %lld: must be a multiple of %d",
                         tensor_names[t], axis, axis_names[axis], (long long)strides_of(c, t)[axis],
                         alignment);
                expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
                expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
            }
}

static void bad_strides_of_scales_are_refused(void **state)
{
    (void)state;
    const struct refusal dense[] = {
        {"k_scales.strides[0] (batch) is 64, but k_scales.layout lacks ATTNKIT_STRIDED",
         {SET(groups.storage.k_scales.strides[0], 64)}},
        {"v_scales.strides[2] (row) is -4, but v_scales.layout lacks ATTNKIT_STRIDED",
         {SET(groups.storage.v_scales.strides[2], -4)}},
    };
    expect_shape_refusals(dense, COUNT(dense), make_bytes, ATTNKIT_BAD_ARGUMENT);
    const struct refusal large[] = {
        {"k_scales.strides[1] (head) is 4611686018427387904: too large for size 2",
         {SET(groups.storage.k_scales.strides[1], INT64_C(1) << 62)}},
        {"v_scales.strides[2] (row) is -9223372036854775808: too large for size 10",
         {SET(groups.storage.v_scales.strides[2], INT64_MIN)}},
    };
    expect_shape_refusals(large, COUNT(large), make_strided_bytes, ATTNKIT_OVERFLOW);
    const struct refusal far[] = {
        {"k_scales leaves the address space",
         {SET(groups.storage.k_scales.strides[0], -(INT64_C(1) << 60))}},
        {"v_scales leaves the address space",
         {SET(groups.storage.v_scales.strides[0], -(INT64_C(1) << 60))}},
    };
    expect_call_refusals(far, COUNT(far), make_strided_bytes, ATTNKIT_OVERFLOW);
}

/* A whole tensor has one scale, or each head has one scale. */
static void one_scale_serves_a_tensor(void **state)
{
    (void)state;
    static const float scales[] = {0.25f, 3.0f, 0.25f, 0.25f};
    struct call *c = made_call(make_e4m3);
    memcpy(c->k_scales + MARGIN, scales, sizeof scales);
    memcpy(c->v_scales + MARGIN, scales, sizeof scales);
    expect_result(c);
    c->groups.storage.k_scales.strides[1] = c->groups.storage.v_scales.strides[1] = 4;
    expect_result(c);
    c->groups.storage.v_scales.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "v_scales is NULL");
}

static void scales_may_repeat_overlap_and_go_backwards(void **state)
{
    (void)state;
    static const int64_t strides[] = {0, 4, -4, 8};
    for (int t = K_SCALES; t < TENSORS; t++)
        for (int axis = 0; axis < 3; axis++)
            for (size_t i = 0; i < COUNT(strides); i++) {
                struct call *c = made_call(make_strided_bytes);
                strides_of(c, t)[axis] = strides[i];
                expect_result(c);
            }
}

static void strides_of_absent_scales_are_not_looked_at(void **state)
{
    (void)state;
    struct call *c = made_call(make_strided);
    for (int axis = 0; axis < 3; axis++)
        c->groups.storage.k_scales.strides[axis] = c->groups.storage.v_scales.strides[axis] =
            INT64_MIN + 1;
    expect_result(c);
}

/* --- Pages ------------------------------------------------------------------------------- */

static void fields_of_pages_without_a_table_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"page_size is 4, but block_table is NULL", {SET(groups.pages.page_size, 4)}},
        {"block_table_stride is 3, but block_table is NULL",
         {SET(groups.pages.block_table_stride, 3)}},
        {"pages is 6, but block_table is NULL", {SET(groups.pages.pages, 6)}},
        {"page_size is -1: must be at least 0", {SET(groups.pages.page_size, -1)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
}

static void bad_fields_of_pages_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"page_size is 0: must be at least 1 with block_table", {SET(groups.pages.page_size, 0)}},
        {"page_size is -4: must be at least 0", {SET(groups.pages.page_size, -4)}},
        {"page_size is -9223372036854775808", {SET(groups.pages.page_size, INT64_MIN)}},
        {"pages is -6: must be at least 0", {SET(groups.pages.pages, -6)}},
        {"block_table_stride is -3: must be at least 0",
         {SET(groups.pages.block_table_stride, -3)}},
        {"block_table_stride is -1",
         {SET(args.batch, 1), SET(groups.pages.block_table_stride, -1)}},
        {"block_table_stride is 2: must be at least 3, the pages of kv_len (10)",
         {SET(groups.pages.block_table_stride, 2)}},
        {"block_table_stride is 0: must be at least 3", {SET(groups.pages.block_table_stride, 0)}},
        {"block_table_stride is 3: must be at least 4, the pages of kv_len (13)",
         {SET(args.kv_len, 13)}},
        {"page_size is 0", {SET(args.batch, 0), SET(groups.pages.page_size, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_paged, ATTNKIT_BAD_ARGUMENT);
}

static void one_batch_entry_needs_no_table_stride(void **state)
{
    (void)state;
    struct call *c = made_call(make_paged);
    c->args.batch = 1;
    c->groups.pages.block_table_stride = 0;
    expect_result(c);
}

static void bad_page_numbers_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"block_table[0] is -1: must be between 0 and pages - 1 (5)", {SET(block_table[0], -1)}},
        {"block_table[2] is 6: must be between 0 and pages - 1 (5)", {SET(block_table[2], 6)}},
        {"block_table[3] is 2147483647", {SET(block_table[3], INT32_MAX)}},
        {"block_table[5] is -2147483648", {SET(block_table[5], INT32_MIN)}},
        {"block_table[0] is 5: must be between 0 and pages - 1 (4)", {SET(groups.pages.pages, 5)}},
        {"block_table[0] is 5: must be between 0 and pages - 1 (-1)", {SET(groups.pages.pages, 0)}},
    };
    expect_call_refusals(table, COUNT(table), make_paged, ATTNKIT_BAD_ARGUMENT);
    expect_call_refusals(table, COUNT(table), make_paged_bytes, ATTNKIT_BAD_ARGUMENT);
}

/* At first, the 5 keys of the first batch entry take two pages, and the second entry has no
 * keys. */
static void only_table_entries_of_keys_that_exist_are_read(void **state)
{
    (void)state;
    struct call *c = made_call(make_paged);
    c->groups.visibility.kv_lens.data = c->kv_lens;
    c->block_table[2] = -1;
    c->block_table[3] = c->block_table[4] = c->block_table[5] = INT32_MAX;
    expect_result(c);
    c->block_table[1] = 6;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "block_table[1] is 6");
    c->block_table[1] = 0;
    c->kv_lens[0] = 9;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "block_table[2] is -1");
    c->kv_lens[0] = 8;
    expect_result(c);
    c->kv_lens[1] = 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "block_table[3] is 2147483647");
}

static void without_keys_no_pages_are_needed(void **state)
{
    (void)state;
    struct call *c = made_call(make_paged_bytes);
    c->args.kv_len = 0;
    c->groups.pages.pages = 0;
    c->args.k.data = c->args.v.data = NULL;
    c->groups.storage.k_scales.data = c->groups.storage.v_scales.data = NULL;
    expect_result(c);
}

static void tables_are_not_read_if_there_is_nothing_to_do(void **state)
{
    (void)state;
    struct call *c = made_call(make_paged);
    c->args.q_len = 0;
    c->groups.pages.block_table = (const int32_t *)16;
    expect_ok(c);
}

static void messages_name_strides_of_pages(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"k.strides[0] (page) is 4, but k.layout lacks ATTNKIT_STRIDED",
         {SET(args.k.strides[0], 4)}},
        {"v_scales.strides[0] (page) is 4, but v_scales.layout lacks ATTNKIT_STRIDED",
         {SET(groups.storage.v_scales.strides[0], 4)}},
        {"q.strides[0] (batch) is 4, but q.layout lacks ATTNKIT_STRIDED",
         {SET(args.q.strides[0], 4)}},
    };
    expect_shape_refusals(table, COUNT(table), make_paged_bytes, ATTNKIT_BAD_ARGUMENT);
}

/* The second sequence has the first page of the first sequence as its first and its second page. */
static void pages_may_be_shared(void **state)
{
    (void)state;
    struct call *c = made_call(make_paged);
    c->block_table[3] = c->block_table[0];
    c->block_table[4] = c->block_table[0];
    expect_result(c);
}

/* --- Cells -------------------------------------------------------------------------------- */

/* Puts the keys into cells. The cache of the first entry is a ring. In the second entry, every
 * second cell is empty. */
static void make_cells(struct call *c)
{
    for (int cell = 0; cell < KV_LEN; cell++) {
        c->key_index[cell] = cell < 4 ? 1020 + cell : 1010 + cell;
        c->key_index[KV_LEN + cell] = cell % 2 ? -1 : 7 - cell / 2;
    }
    c->groups.storage.key_index = (attnkit_ints){.data = c->key_index, .type = ATTNKIT_INT32};
    c->groups.storage.key_index_stride = KV_LEN;
}

static void make_cells_of_bytes(struct call *c)
{
    make_bytes(c);
    make_cells(c);
}

/* Makes cells for a causal call. Each row sees one key more than the row before it. */
static void make_causal_cells(struct call *c)
{
    make_cells(c);
    c->args.flags |= ATTNKIT_CAUSAL;
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
}

static void cells_have_the_result_of_the_reference(void **state)
{
    static const maker cells[] = {make_cells, make_cells_of_bytes, make_causal_cells};
    (void)state;
    for (size_t i = 0; i < COUNT(cells); i++) {
        expect_result(made_call(cells[i]));
        struct call *c = made_call(cells[i]);
        c->groups.storage.key_index_stride = 0; /* both entries have the same cells */
        expect_result(c);
        c = made_call(cells[i]);
        memset(c->key_index, 0xff, sizeof c->key_index); /* no cell has a key */
        expect_result(c);
        c = made_call(cells[i]);
        c->args.batch = 1;
        expect_result(c);
    }
}

static void wide_indices_of_cells_may_be_large(void **state)
{
    static int64_t wide[BATCH * KV_LEN];
    (void)state;
    struct call *const c = made_call(make_causal_cells);
    for (int i = 0; i < BATCH * KV_LEN; i++)
        wide[i] = c->key_index[i] < 0 ? -1 : (INT64_C(1) << 60) + c->key_index[i];
    c->groups.storage.key_index = (attnkit_ints){.data = wide};
    expect_result(c);
    wide[0] = INT64_MAX - 511;
    expect_refusal(c, ATTNKIT_OVERFLOW,
                   "key_index[0][0] is 9223372036854775296: must be at most 2^63 - 1 - 512");
    wide[0] = INT64_MAX - 512;
    for (int i = 1; i < KV_LEN; i++)
        wide[i] = -1;
    expect_result(c);
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    c->q_offsets[0] = INT64_MIN;
    c->q_offsets[1] = 1;
    c->args.q_offsets.data = c->q_offsets;
    expect_refusal(c, ATTNKIT_OVERFLOW,
                   "q_offsets[0] is -9223372036854775808: must be at least -2^63 + "
                   "9223372036854774784, the first key of the chunk of the smallest key_index");
}

static void bad_fields_of_cells_are_refused(void **state)
{
    (void)state;
    const struct refusal without[] = {
        {"key_index_stride is 3, but key_index is NULL", {SET(groups.storage.key_index_stride, 3)}},
    };
    const struct refusal table[] = {
        {"key_index_stride is 9: must be 0 or at least kv_len (10)",
         {SET(groups.storage.key_index_stride, 9)}},
        {"key_index_stride is -1: must be 0 or", {SET(groups.storage.key_index_stride, -1)}},
    };
    const struct refusal large[] = {
        {"kv_len is 2147483648: must be below 2^31 with key_index",
         {SET(args.kv_len, INT64_C(1) << 31), SET(groups.storage.key_index_stride, 0)}},
        {"key_index_stride is 1152921504606846976: too large",
         {SET(groups.storage.key_index_stride, INT64_C(1) << 60)}},
    };
    const struct refusal unknown[] = {
        {"key_index.type is 2: must be ATTNKIT_INT64", {SET(groups.storage.key_index.type, 2)}},
        {"key_index.reserved is 1", {SET(groups.storage.key_index.reserved, 1)}},
    };
    expect_shape_refusals(without, COUNT(without), NULL, ATTNKIT_BAD_ARGUMENT);
    expect_shape_refusals(table, COUNT(table), make_cells, ATTNKIT_BAD_ARGUMENT);
    expect_shape_refusals(large, COUNT(large), make_cells, ATTNKIT_OVERFLOW);
    expect_shape_refusals(unknown, COUNT(unknown), make_cells, ATTNKIT_UNSUPPORTED);
}

static void make_paged_cells(struct call *c)
{
    make_paged(c);
    make_cells(c);
}

static void make_tiled_cells(struct call *c)
{
    make_tiled(c);
    make_cells(c);
}

static void options_that_cells_exclude_are_refused(void **state)
{
    static const int64_t starts[BATCH + 1] = {0, 4, KV_LEN};
    static float max[BATCH * Q_HEADS * Q_LEN];
    static double sum[BATCH * Q_HEADS * Q_LEN], out[BATCH * Q_HEADS * Q_LEN * VALUE_DIM];
    (void)state;
    struct call *c = made_call(make_paged_cells);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "key_index and block_table are both given");
    c = made_call(make_tiled_cells);
    expect_refusal(c, ATTNKIT_UNSUPPORTED,
                   "key_index and ATTNKIT_TILED in k.layout are both given");
    c = made_call(make_cells);
    c->groups.storage.cu_seqlens_kv.data = starts;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "key_index and cu_seqlens_kv are both given");
    c = made_call(make_cells);
    c->groups.states.first_key = 512;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "key_index and first_key are both given");
    c = made_call(make_cells);
    c->groups.states.state_in = (attnkit_state){max, sum, out};
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "key_index and state_in are both given");
    c = made_call(make_cells);
    c->args.out.data = c->args.lse.data = NULL;
    c->groups.states.state_out = (attnkit_state){max, sum, out};
    expect_query_refusal(c, ATTNKIT_UNSUPPORTED, "key_index and state_out are both given");
}

static void bad_indices_of_cells_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"key_index[0][2] is -2: must be at least -1, which is an empty cell",
         {SET(key_index[2], -2)}},
        {"key_index[1][9] is -2147483648", {SET(key_index[KV_LEN + 9], INT32_MIN)}},
        {"key_index[0][3] is 1020: cell 0 has this index, too", {SET(key_index[3], 1020)}},
        {"key_index[1][8] is 7: cell 0 has this index, too", {SET(key_index[KV_LEN + 8], 7)}},
        {"key_index[0][5] is 1055: must be at most 4 * kv_len (10) more than the smallest index "
         "(1014)",
         {SET(key_index[5], 1055)}},
        {"key_index[0][3] is 1023: must be at most 4 * kv_len (10) more than the smallest index "
         "(0)",
         {SET(key_index[9], 0)}},
        {"key_index[0][1] is 2147483647", {SET(key_index[1], INT32_MAX)}},
    };
    expect_call_refusals(table, COUNT(table), make_cells, ATTNKIT_BAD_ARGUMENT);
    expect_call_refusals(table, COUNT(table), make_cells_of_bytes, ATTNKIT_BAD_ARGUMENT);
}

/* Every thread of the caller refuses bad indices, even a thread that has nothing to do. */
static void every_thread_refuses_bad_indices(void **state)
{
    (void)state;
    struct call *const c = made_call(make_cells);
    c->key_index[3] = 1020;
    c->exec.threads = 40;
    for (c->exec.thread = 0; c->exec.thread < c->exec.threads; c->exec.thread += 13)
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "key_index[0][3] is 1020");
}

static void only_cells_in_use_are_looked_at(void **state)
{
    (void)state;
    struct call *const c = made_call(make_cells);
    c->groups.visibility.kv_lens.data = c->kv_lens; /* lengths 5 and 0 */
    c->key_index[5] = -77;
    c->key_index[6] = c->key_index[7] = INT32_MAX;
    c->key_index[KV_LEN] = -2;
    expect_result(c);
    c->kv_lens[0] = 6;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "key_index[0][5] is -77");
}

static void indices_are_not_read_if_there_is_nothing_to_do(void **state)
{
    (void)state;
    struct call *c = made_call(make_cells);
    c->args.q_len = 0;
    c->groups.storage.key_index.data = (const void *)16;
    expect_ok(c);
    c = made_call(make_cells);
    c->args.kv_len = 0;
    expect_result(c);
}

static void memory_of_indices_is_checked(void **state)
{
    (void)state;
    struct call *c = made_call(make_cells);
    c->groups.storage.key_index.data = c->out + MARGIN + 64;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps key_index");
    c = made_call(make_cells);
    c->groups.storage.key_index.data = (char *)c->key_index + 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 4 bytes");
    c = made_call(make_cells);
    c->groups.storage.key_index.data = workspace + 128;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "overlaps key_index");
}

/* --- Tiles ------------------------------------------------------------------------------- */

static void make_strided_tiles(struct call *c)
{
    make_tiled(c);
    make_strided(c);
    c->args.kv_len = 2 * TILE_KEYS + 1;
    set_strides(&c->args.k, KV_HEADS, 3, TILE_KEYS * HEAD_DIM * 4);
}

static void tiles_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct refusal pages[] = {
        {"page_size is 20: must be a multiple of ATTNKIT_TILE_KEYS (16) with ATTNKIT_TILED",
         {SET(groups.pages.page_size, 20)}},
        {"page_size is 8: must be a multiple of ATTNKIT_TILE_KEYS (16)",
         {SET(groups.pages.page_size, 8)}},
    };
    expect_shape_refusals(pages, COUNT(pages), make_tiled_pages, ATTNKIT_BAD_ARGUMENT);
    const struct refusal dense[] = {
        {"k.strides[2] (tile) is 4, but k.layout lacks ATTNKIT_STRIDED",
         {SET(args.k.strides[2], 4)}},
        {"k_scales.strides[2] (tile) is 4, but k_scales.layout lacks",
         {SET(groups.storage.k_scales.strides[2], 4)}},
        {"v.strides[2] (row) is 4, but v.layout lacks", {SET(args.v.strides[2], 4)}},
    };
    expect_shape_refusals(dense, COUNT(dense), make_tiled_bytes, ATTNKIT_BAD_ARGUMENT);
    const struct refusal odd[] = {
        {"k.strides[2] (tile) is 2050: must be a multiple of 4", {SET(args.k.strides[2], 2050)}}};
    expect_shape_refusals(odd, COUNT(odd), make_strided_tiles, ATTNKIT_BAD_ARGUMENT);
    const struct refusal huge[] = {
        {"k has 2 x 2 x 576460752303423488 tiles of 2048 bytes", {SET(args.kv_len, INT64_MAX)}},
        {"head_dim is 2305843009213693952", {SET(args.head_dim, INT64_C(1) << 61)}},
    };
    expect_shape_refusals(huge, COUNT(huge), make_tiled, ATTNKIT_OVERFLOW);
    const struct refusal large[] = {
        {"k.strides[2] (tile) is 4611686018427387904: too large for size 3",
         {SET(args.k.strides[2], INT64_C(1) << 62)}},
    };
    expect_shape_refusals(large, COUNT(large), make_strided_tiles, ATTNKIT_OVERFLOW);
}

static void packed_tiles_are_unsupported(void **state)
{
    (void)state;
    static const int64_t starts[BATCH + 1] = {0, 5, KV_LEN};
    struct call *c = made_call(make_tiled);
    c->groups.storage.cu_seqlens_kv.data = starts;
    expect_refusal(c, ATTNKIT_UNSUPPORTED,
                   "cu_seqlens_kv is given, but k.layout has ATTNKIT_TILED: keys in tiles are not "
                   "packed");
    expect_query_refusal(c, ATTNKIT_UNSUPPORTED, "cu_seqlens_kv is given");
    c->args.k.layout = 0;
    expect_result(c);
}

/* 32-bit integers give the same result as 64-bit integers, and the same messages. */
static void ends_of_packed_sequences_may_have_32_bits(void **state)
{
    (void)state;
    static const int64_t wide_q[BATCH + 1] = {0, 1, Q_LEN}, wide_kv[BATCH + 1] = {0, 6, KV_LEN};
    static const int32_t q[BATCH + 1] = {0, 1, Q_LEN}, kv[BATCH + 1] = {0, 6, KV_LEN};
    static const int32_t falling[BATCH + 1] = {0, Q_LEN + 1, Q_LEN}, late[BATCH + 1] = {-1, 0, 0};
    static char out[ROOM];
    struct call *c = good_call();
    attnkit_kv_storage *const storage = &c->groups.storage;
    storage->cu_seqlens_q.data = wide_q;
    storage->cu_seqlens_kv.data = wide_kv;
    expect_ok(c);
    memcpy(out, c->out, sizeof out);
    c = good_call();
    storage->cu_seqlens_q = (attnkit_ints){.data = q, .type = ATTNKIT_INT32};
    storage->cu_seqlens_kv = (attnkit_ints){.data = kv, .type = ATTNKIT_INT32};
    expect_ok(c);
    assert_memory_equal(out, c->out, sizeof out);
    storage->cu_seqlens_q.data = NULL;
    expect_result(c); /* only the keys are packed */
    storage->cu_seqlens_q.data = falling;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT,
                   "cu_seqlens_q[2] is 3: must be at least the number before it (4)");
    storage->cu_seqlens_q.data = late;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "cu_seqlens_q[0] is -1: must be 0");
    storage->cu_seqlens_q.type = 2;
    expect_refusal(c, ATTNKIT_UNSUPPORTED, "cu_seqlens_q.type is 2: must be ATTNKIT_INT64 (0)");
    expect_query_refusal(c, ATTNKIT_UNSUPPORTED,
                         "cu_seqlens_q.type is 2: must be ATTNKIT_INT64 (0)");
}

static void tiles_may_repeat_overlap_and_go_backwards(void **state)
{
    (void)state;
    static const int64_t strides[] = {0, 4, -4, -2048, 2052};
    for (int axis = 0; axis < 3; axis++)
        for (size_t i = 0; i < COUNT(strides); i++) {
            struct call *c = made_call(make_strided_tiles);
            c->args.k.data = c->k + ROOM / 2;
            c->args.k.strides[0] = c->args.k.strides[1] = 0;
            c->args.k.strides[axis] = strides[i];
            expect_result(c);
        }
}

/* Elements of a tile that belong to no key are NaN. */
static void elements_of_a_tile_without_a_key_change_no_bit(void **state)
{
    (void)state;
    struct call *c = made_call(make_tiled);
    char *const tiles = c->k + MARGIN;
    for (int64_t key = KV_LEN; key < TILE_KEYS; key++)
        for (int64_t d = 0; d < BATCH * KV_HEADS * HEAD_DIM; d++)
            memset(tiles + (d * TILE_KEYS + key) * 4, 0xff, 4);
    expect_result(c);
    for (int64_t i = 0; i < BATCH * Q_HEADS * Q_LEN * VALUE_DIM; i++)
        assert_true(isfinite(((const float *)c->args.out.data)[i]));
    c->groups.visibility.kv_lens.data = c->kv_lens;
    expect_result(c);
}

/* The whole last tile counts as part of K, although this tile is not full. */
static void outputs_and_workspaces_that_overlap_tiles_are_refused(void **state)
{
    (void)state;
    const int64_t bytes = BATCH * KV_HEADS * TILE_KEYS * HEAD_DIM;
    struct call *c = made_call(make_tiled_bytes);
    c->args.out.data = c->k + MARGIN + bytes - 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps k (0x");
    c->args.out.data = c->k + MARGIN + bytes;
    expect_result(c);
    c = made_call(make_tiled_bytes);
    set_data(c, LSE, c->k_scales + MARGIN + bytes / GROUP * 4 - 4);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps k_scales (0x");
    set_data(c, LSE, data_of(c, LSE) + 4);
    expect_result(c);
    c->exec.workspace = c->k + MARGIN + bytes - 1;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "overlaps k");
}

/* --- Overlaps ---------------------------------------------------------------------------- */

/* The size in bytes of each dense tensor of make_bytes. */
static const int64_t tensor_bytes[TENSORS] = {
    4 * BATCH * Q_HEADS * Q_LEN * VALUE_DIM,
    4 * BATCH *Q_HEADS *Q_LEN,
    4 * BATCH *Q_HEADS *Q_LEN *HEAD_DIM,
    BATCH *KV_HEADS *KV_LEN *HEAD_DIM,
    BATCH *KV_HEADS *KV_LEN *VALUE_DIM,
    4 * BATCH *KV_HEADS *KV_LEN *HEAD_DIM / GROUP,
    4 * BATCH *KV_HEADS *KV_LEN,
};

static void expect_overlap(struct call *c, int output, int other, int64_t offset)
{
    char text[128];
    set_data(c, output, data_of(c, other) + offset);
    snprintf(text, sizeof text, "%s (%p) overlaps %s (%p)", tensor_names[output],
             (const void *)data_of(c, output), tensor_names[other],
             (const void *)data_of(c, other));
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
}

static void outputs_that_overlap_bytes_or_scales_are_refused(void **state)
{
    (void)state;
    for (int output = OUT; output <= LSE; output++)
        for (int other = K; other < TENSORS; other++) {
            expect_overlap(made_call(make_bytes), output, other, 0);
            expect_overlap(made_call(make_bytes), output, other, tensor_bytes[other] - 4);
            expect_overlap(made_call(make_bytes), output, other, 4 - tensor_bytes[output]);
            const int64_t beside[2] = {tensor_bytes[other], -tensor_bytes[output]};
            for (int i = 0; i < 2; i++) {
                struct call *c = made_call(make_bytes);
                set_data(c, output, data_of(c, other) + beside[i]);
                expect_result(c);
            }
        }
}

/* The library refuses an overlap with any page, even with a page that is not in the block table. */
static void outputs_that_overlap_pages_are_refused(void **state)
{
    (void)state;
    const int64_t page = KV_HEADS * PAGE_SIZE * HEAD_DIM * 4;
    for (int64_t i = 0; i < PAGES; i++) {
        struct call *c = made_call(make_paged);
        for (int j = 0; j < PAGES; j++)
            c->block_table[j] = 1;
        expect_overlap(c, LSE, K, i * page);
    }
    struct call *c = made_call(make_paged);
    set_data(c, LSE, data_of(c, K) + PAGES * page);
    expect_result(c);
}

/* Puts K, its scales and lse into one piece of memory. Each row of K is followed by its scales, and
 * by room for two log-sum-exps. */
static void make_one_tensor_of_bytes_and_scales(struct call *c)
{
    const int64_t row = HEAD_DIM + HEAD_DIM / GROUP * 4 + 8;
    make_strided_bytes(c);
    set_strides(&c->args.k, KV_HEADS, KV_LEN, row);
    set_strides(&c->groups.storage.k_scales, KV_HEADS, KV_LEN, row);
    set_strides(&c->args.lse, Q_HEADS, Q_LEN, row);
    c->groups.storage.k_scales.data = c->k + MARGIN + HEAD_DIM;
    c->args.lse.data = c->k + MARGIN + row - 8;
}

static void outputs_may_lie_in_the_gaps_of_bytes_and_scales(void **state)
{
    (void)state;
    struct call *c = made_call(make_one_tensor_of_bytes_and_scales);
    expect_result(c);
    c = made_call(make_one_tensor_of_bytes_and_scales);
    set_data(c, LSE, data_of(c, LSE) - 4);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps k_scales");
    c = made_call(make_one_tensor_of_bytes_and_scales);
    set_data(c, LSE, data_of(c, LSE) + 8);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps k ");
}

/* --- Workspace --------------------------------------------------------------------------- */

static void a_workspace_inside_stored_tensors_is_refused(void **state)
{
    (void)state;
    for (int t = K; t < TENSORS; t++) {
        const int64_t offsets[3] = {0, 1, tensor_bytes[t] - 1};
        for (int i = 0; i < 3; i++) {
            struct call *c = made_call(make_bytes);
            char text[64];
            c->exec.workspace = (char *)(uintptr_t)data_of(c, t) + offsets[i];
            snprintf(text, sizeof text, " bytes) overlaps %s", tensor_names[t]);
            expect_refusal(c, ATTNKIT_BAD_WORKSPACE, text);
        }
    }
    struct call *c = made_call(make_paged);
    const int64_t page = KV_HEADS * PAGE_SIZE * VALUE_DIM * 4;
    c->exec.workspace = (char *)(uintptr_t)data_of(c, V) + PAGES * page - 1;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "overlaps v");
}

static void run_in_order(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    for (int64_t i = 0; i < n; i++)
        task(arg, i);
}

/* Returns the bound that attnkit.h gives for the workspace of `threads` threads, in bytes. The
 * result has the terms of types, gaps, pages, tiles and several threads, but no other term that
 * depends on a condition. */
static size_t workspace_bound(int64_t head_dim, int64_t value_dim, int64_t threads)
{
    const int64_t rows = 290 * head_dim + 780 * value_dim + 10000,
                  shared = 4 * 256 * (value_dim + 3);
    const int64_t bytes =
        4 * rows + 4096 + 4 * 129 * (head_dim + value_dim) + (threads > 1 ? 4 * shared + 65536 : 0);
    return (size_t)(head_dim + 3 * value_dim <= 283 ? 2 * bytes * threads : bytes * threads);
}

static void expect_workspace_within_bound(maker make, const char *isa, int64_t head_dim,
                                          int64_t value_dim, int64_t q_len)
{
    for (int64_t threads = 1; threads <= 8; threads += 7) {
        struct call *c = made_call(make);
        c->args.head_dim = head_dim;
        c->args.value_dim = value_dim;
        c->args.q_len = q_len;
        c->exec.threads = threads;
        c->exec.isa = isa;
        const bool is_grouped = c->args.flags & ATTNKIT_BF16_PRODUCTS;
        const size_t bound = workspace_bound(head_dim, value_dim, threads);
        const size_t most = is_grouped ? 2 * bound + 140000 * (size_t)threads : bound;
        assert_true(workspace_needed(c) <= most);
        c->exec.parallel_for = run_in_order;
        c->args.kv_len = 100000;
        c->groups.pages.block_table_stride *= 10000;
        assert_true(workspace_needed(c) <= most);
    }
}

static void the_workspace_keeps_to_the_bound_of_the_header(void **state)
{
    (void)state;
    static const int64_t dims[] = {32, 64, 128, 576}, lengths[] = {1, 2, 7, 33, 1000, 1 << 20};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t d = 0; d < COUNT(dims) * COUNT(dims); d++)
            for (size_t l = 0; l < COUNT(lengths); l++)
                for (size_t m = 0; m < COUNT(makers) && attnkit_isa_can_run(&isas[i]); m++)
                    expect_workspace_within_bound(makers[m], isas[i].name, dims[d % COUNT(dims)],
                                                  dims[d / COUNT(dims)], lengths[l]);
}

/* Sets the strides of K and V so that rows of binary32 share sets of L1 and may be copied. */
static void make_apart(struct call *c)
{
    set_strides(&c->args.k, KV_HEADS, KV_LEN, 4096);
    set_strides(&c->args.v, KV_HEADS, KV_LEN, 4096);
}

static void the_workspace_of_rows_with_gaps_keeps_to_the_bound_of_the_header(void **state)
{
    (void)state;
    static const int64_t dims[] = {32, 64, 128, 576}, lengths[] = {1, 7, 33, 1000, 1 << 20};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t d = 0; d < COUNT(dims) && attnkit_isa_can_run(&isas[i]); d++)
            for (size_t l = 0; l < COUNT(lengths); l++)
                expect_workspace_within_bound(make_apart, isas[i].name, dims[d], dims[d],
                                              lengths[l]);
}

/* Rows in reverse order, and rows that overlap, have no gaps between them. */
static void rows_without_gaps_need_no_more_workspace(void **state)
{
    (void)state;
    static const int64_t dims[] = {512, 576, 1024}, strides[] = {-2048, 2048, -4096};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t d = 0; d < COUNT(dims) && attnkit_isa_can_run(&isas[i]); d++) {
            struct call *c = good_call();
            c->args.head_dim = c->args.value_dim = dims[d];
            c->args.q_len = 300;
            c->exec.isa = isas[i].name;
            const size_t dense = workspace_needed(c);
            set_strides(&c->args.k, KV_HEADS, KV_LEN, strides[d]);
            set_strides(&c->args.v, KV_HEADS, KV_LEN, strides[d]);
            assert_int_equal(workspace_needed(c), dense);
        }
}

/* With cells, the workspace needs room for a table of the keys, once for each thread. */
static void the_workspace_of_cells_keeps_to_the_bound_of_the_header(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 511, 512, 1000, 1 << 20, INT32_MAX};
    for (size_t l = 0; l < COUNT(lengths); l++)
        for (int64_t batch = 1; batch < 2000; batch += 999)
            for (int64_t threads = 1; threads <= 8; threads += 7) {
                struct call *const c = made_call(make_cells);
                c->args.batch = batch;
                c->args.kv_len = c->groups.storage.key_index_stride = lengths[l];
                c->exec.threads = threads;
                const int64_t cells = 17 * lengths[l] + 16 * batch + 16384 + 73728;
                assert_true(workspace_needed(c) <= workspace_bound(HEAD_DIM, VALUE_DIM, threads) +
                                                       (size_t)(cells * threads));
            }
}

static void the_workspace_does_not_grow_with_the_lengths(void **state)
{
    (void)state;
    for (size_t m = 0; m < COUNT(makers); m++) {
        struct call *c = made_call(makers[m]);
        c->args.q_len = 1000;
        const size_t needed = workspace_needed(c);
        c->args.kv_len = 1 << 30;
        if (c->groups.pages.block_table)
            c->groups.pages.block_table_stride = 1 << 30;
        assert_int_equal(workspace_needed(c), needed);
        c->args.q_len = 1 << 30;
        assert_int_equal(workspace_needed(c), needed);
    }
}

/* The workspace must not shrink as q_len grows, so that a workspace for the longest of several
 * calls is enough for all of them. */
static void the_workspace_does_not_shrink_as_q_len_grows(void **state)
{
    (void)state;
    static const int threads[] = {1, 16};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t n = 0; n < 2 * COUNT(makers) && attnkit_isa_can_run(&isas[i]); n++) {
            struct call *c = made_call(makers[n / 2]);
            c->exec.isa = isas[i].name;
            c->exec.threads = threads[n % 2];
            size_t before = 0;
            for (c->args.q_len = 1; c->args.q_len < 600; c->args.q_len++) {
                const size_t needed = workspace_needed(c);
                assert_true(needed >= before);
                before = needed;
            }
        }
}

/* Rows after whole vectors of panel rows may go through decode, which can need more scratch than
 * prefill if rows of V are longer than rows of K. A call with one row more may have no rows for
 * decode. */
static void the_workspace_does_not_shrink_where_no_rows_are_left_for_decode(void **state)
{
    (void)state;
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (int group = 1; group < 4 && attnkit_isa_can_run(&isas[i]); group++) {
            struct call *c = made_call(make_value_bytes);
            size_t before = 0;
            c->exec.isa = isas[i].name;
            c->args.batch = c->args.kv_heads = 1;
            c->args.q_heads = group;
            c->args.kv_len = 575;
            c->args.head_dim = 32;
            c->args.value_dim = 208;
            c->args.k.type = ATTNKIT_Q8_0;
            c->groups.storage.v_scale_group = 8;
            for (c->args.q_len = 1; c->args.q_len < 100; c->args.q_len++) {
                const size_t needed = workspace_needed(c);
                assert_true(needed >= before);
                before = needed;
            }
        }
}

/* Fills V with zeros, and puts a NaN into the last row of V or into the scale of this row. With
 * pages, V is one page, which all entries of the block table name. */
static void make_last_value_nan(struct call *c, char *v)
{
    const enum type type = (enum type)c->args.v.type;
    const int64_t last =
        c->groups.pages.block_table ? c->groups.pages.page_size - 1 : c->args.kv_len - 1;
    const uint16_t nan_half = type == TYPE_Q8_0 ? 0x7e00 : 0x7fc0;
    const float nan_scale = NAN;
    memset(v, 0, (size_t)bytes_of(type, (last + 1) * c->args.value_dim));
    if (type == TYPE_I8)
        memcpy(c->v_scales + MARGIN + 4 * last, &nan_scale, 4);
    else
        for (int i = 0; i < 2; i++)
            memcpy(v + last * bytes_of(type, c->args.value_dim) + 2 * i, &nan_half,
                   sizeof nan_half);
}

/* Makes a call that uses all its scratch. The call has a second chunk of keys. In most of these
 * calls, a NaN in V makes the library compute rows again. */
static struct call *call_that_uses_all_scratch(maker make, int q_len)
{
    enum { KEYS = 608 };
    static char k[KEYS * HEAD_DIM * 4], v[KEYS * HEAD_DIM * 4];
    static const int32_t table[KEYS / PAGE_SIZE];
    struct call *c = made_call(make);
    c->args.batch = c->args.q_heads = c->args.kv_heads = 1;
    c->args.q_len = q_len;
    c->args.kv_len = KEYS - 8; /* the last tile is half full */
    c->args.value_dim = HEAD_DIM;
    c->args.k.data = k;
    c->args.v.data = v;
    c->args.flags |= ATTNKIT_CAUSAL;
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    if (c->groups.pages.block_table)
        c->groups.pages.block_table = table;
    make_last_value_nan(c, v);
    return c;
}

static void the_bytes_asked_for_are_enough(void **state)
{
    (void)state;
    for (int alignment = 0; alignment < 64; alignment += 7)
        for (size_t kind = 0; kind < 2 * COUNT(makers); kind++) {
            struct call *c = call_that_uses_all_scratch(makers[kind / 2], kind % 2 ? 1 : 40);
            const size_t needed = workspace_needed(c);
            memset(workspace, PATTERN, needed + 128);
            c->exec.workspace = workspace + 64 + alignment;
            c->exec.workspace_size = needed - 1;
            expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "exec.workspace_size is ");
            c->exec.workspace_size = needed;
            expect_result(c);
            for (int i = 0; i < 64 + alignment; i++)
                assert_int_equal((unsigned char)workspace[i], PATTERN);
            for (int i = alignment; i < 64; i++)
                assert_int_equal((unsigned char)workspace[64 + needed + (size_t)i], PATTERN);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_calls_are_right),
        cmocka_unit_test(unknown_types_are_unsupported),
        cmocka_unit_test(integers_need_bytes_and_no_weights),
        cmocka_unit_test(integers_need_scales_of_32_elements),
        cmocka_unit_test(products_need_rows_of_bf16_and_no_weights_or_dropout),
        cmocka_unit_test(scales_without_bytes_are_refused),
        cmocka_unit_test(groups_that_do_not_divide_a_row_are_refused),
        cmocka_unit_test(every_group_that_divides_a_row_is_taken),
        cmocka_unit_test(missing_scales_are_refused),
        cmocka_unit_test(parts_of_blocks_are_refused),
        cmocka_unit_test(sizes_whose_products_leave_63_bits_are_refused),
        cmocka_unit_test(elements_at_odd_addresses_are_refused),
        cmocka_unit_test(strides_of_parts_of_an_element_are_refused),
        cmocka_unit_test(bad_strides_of_scales_are_refused),
        cmocka_unit_test(one_scale_serves_a_tensor),
        cmocka_unit_test(scales_may_repeat_overlap_and_go_backwards),
        cmocka_unit_test(strides_of_absent_scales_are_not_looked_at),
        cmocka_unit_test(fields_of_pages_without_a_table_are_refused),
        cmocka_unit_test(bad_fields_of_pages_are_refused),
        cmocka_unit_test(one_batch_entry_needs_no_table_stride),
        cmocka_unit_test(bad_page_numbers_are_refused),
        cmocka_unit_test(only_table_entries_of_keys_that_exist_are_read),
        cmocka_unit_test(without_keys_no_pages_are_needed),
        cmocka_unit_test(tables_are_not_read_if_there_is_nothing_to_do),
        cmocka_unit_test(messages_name_strides_of_pages),
        cmocka_unit_test(pages_may_be_shared),
        cmocka_unit_test(cells_have_the_result_of_the_reference),
        cmocka_unit_test(wide_indices_of_cells_may_be_large),
        cmocka_unit_test(bad_fields_of_cells_are_refused),
        cmocka_unit_test(options_that_cells_exclude_are_refused),
        cmocka_unit_test(bad_indices_of_cells_are_refused),
        cmocka_unit_test(every_thread_refuses_bad_indices),
        cmocka_unit_test(only_cells_in_use_are_looked_at),
        cmocka_unit_test(indices_are_not_read_if_there_is_nothing_to_do),
        cmocka_unit_test(memory_of_indices_is_checked),
        cmocka_unit_test(tiles_that_do_not_fit_are_refused),
        cmocka_unit_test(packed_tiles_are_unsupported),
        cmocka_unit_test(ends_of_packed_sequences_may_have_32_bits),
        cmocka_unit_test(tiles_may_repeat_overlap_and_go_backwards),
        cmocka_unit_test(elements_of_a_tile_without_a_key_change_no_bit),
        cmocka_unit_test(outputs_and_workspaces_that_overlap_tiles_are_refused),
        cmocka_unit_test(outputs_that_overlap_bytes_or_scales_are_refused),
        cmocka_unit_test(outputs_that_overlap_pages_are_refused),
        cmocka_unit_test(outputs_may_lie_in_the_gaps_of_bytes_and_scales),
        cmocka_unit_test(a_workspace_inside_stored_tensors_is_refused),
        cmocka_unit_test(the_workspace_of_rows_with_gaps_keeps_to_the_bound_of_the_header),
        cmocka_unit_test(rows_without_gaps_need_no_more_workspace),
        cmocka_unit_test(the_workspace_keeps_to_the_bound_of_the_header),
        cmocka_unit_test(the_workspace_of_cells_keeps_to_the_bound_of_the_header),
        cmocka_unit_test(the_workspace_does_not_grow_with_the_lengths),
        cmocka_unit_test(the_workspace_does_not_shrink_as_q_len_grows),
        cmocka_unit_test(the_workspace_does_not_shrink_where_no_rows_are_left_for_decode),
        cmocka_unit_test(the_bytes_asked_for_are_enough),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
