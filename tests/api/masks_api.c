/* SPDX-License-Identifier: Apache-2.0
 *
 * The public call of an attention against bad and odd masks, score functions, dropout and weights:
 * what cannot be computed is refused with the documented status and a message that names the
 * argument and its value, and nothing is written; what merely looks odd is taken for what it says.
 * api.c and api_storage.c have all other arguments.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dispatch/attention/check.h"
#include "dispatch/cpu/isa.h"
#include "attnkit.h"

enum {
    BATCH = 2,
    Q_HEADS = 4,
    KV_HEADS = 2,
    Q_LEN = 3,
    KV_LEN = 10,
    HEAD_DIM = 4,
    VALUE_DIM = 6,
    BITS_BYTES = 2, /* of KV_LEN bits */
    Q_ROWS = BATCH * Q_HEADS * Q_LEN,

    ROOM = 4096,   /* bytes for each tensor */
    MARGIN = 1024, /* of them before its first element */
    PATTERN = 0xa5,
};

/* What a call may have beyond q, k and v, to go through it by number; outputs first. */
enum {
    OUT,
    LSE,
    WEIGHTS,
    AFTER_MAX,
    AFTER_SUM,
    AFTER_OUT,
    MASK,
    MASK_BITS,
    BIAS,
    Q_DOCS,
    KV_DOCS,
    SLOPES,
    SINKS,
    SEEDS,
    TENSORS
};

enum { INPUTS = MASK };

static const char *const tensor_names[TENSORS] = {
    "out",       "lse",  "weights", "after_max", "after_sum",    "after_out", "mask",
    "mask_bits", "bias", "q_docs",  "kv_docs",   "alibi_slopes", "sinks",     "dropout_seeds"};

/* Bytes of each, dense, with an f32 bias, and what its address is a multiple of. */
static const int64_t tensor_bytes[TENSORS] = {4 * Q_ROWS * VALUE_DIM,
                                              4 * Q_ROWS,
                                              4 * Q_ROWS *KV_LEN,
                                              4 * Q_ROWS,
                                              4 * Q_ROWS,
                                              4 * Q_ROWS *VALUE_DIM,
                                              Q_ROWS *KV_LEN,
                                              Q_ROWS *BITS_BYTES,
                                              4 * Q_ROWS *KV_LEN,
                                              4 * BATCH *Q_LEN,
                                              4 * BATCH *KV_LEN,
                                              4 * Q_HEADS,
                                              4 * Q_HEADS,
                                              8 * BATCH};
static const int alignments[TENSORS] = {4, 4, 4, 4, 4, 4, 1, 1, 4, 4, 4, 4, 4, 8};

/* A call and all its memory but the workspace: what a refused call may not change. */
struct call {
    attnkit_attention_args args;
    attnkit_exec exec;
    int64_t kv_lens[BATCH], q_offsets[BATCH], starts[BATCH + 1];
    _Alignas(64) char q[ROOM], k[ROOM], v[ROOM], tensors[TENSORS][ROOM];
};

static char workspace[1 << 20];

static size_t field_of(int tensor)
{
    static const size_t fields[TENSORS] = {offsetof(attnkit_attention_args, out),
                                           offsetof(attnkit_attention_args, lse),
                                           offsetof(attnkit_attention_args, weights),
                                           offsetof(attnkit_attention_args, after_max),
                                           offsetof(attnkit_attention_args, after_sum),
                                           offsetof(attnkit_attention_args, after_out),
                                           offsetof(attnkit_attention_args, mask),
                                           offsetof(attnkit_attention_args, mask_bits),
                                           offsetof(attnkit_attention_args, bias),
                                           offsetof(attnkit_attention_args, q_docs),
                                           offsetof(attnkit_attention_args, kv_docs),
                                           offsetof(attnkit_attention_args, alibi_slopes),
                                           offsetof(attnkit_attention_args, sinks),
                                           offsetof(attnkit_attention_args, dropout_seeds)};
    return fields[tensor];
}

static void set_data(struct call *c, int tensor, const void *data)
{
    memcpy((char *)&c->args + field_of(tensor), &data, sizeof data);
}

static char *data_of(const struct call *c, int tensor)
{
    char *data;
    memcpy(&data, (const char *)&c->args + field_of(tensor), sizeof data);
    return data;
}

static char *memory_of(struct call *c, int tensor)
{
    return c->tensors[tensor] + MARGIN;
}

static void give(struct call *c, int tensor)
{
    set_data(c, tensor, memory_of(c, tensor));
}

/* A plain call that is right. There is one at a time. */
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
        .q = c.q + MARGIN,
        .k = c.k + MARGIN,
        .v = c.v + MARGIN,
    };
    c.exec = (attnkit_exec){
        .size = sizeof c.exec, .workspace = workspace, .workspace_size = sizeof workspace};
    give(&c, OUT);
    give(&c, LSE);
    memset(c.q_offsets, 0, sizeof c.q_offsets);
    return &c;
}

/* Other calls that are right. */
typedef void (*maker)(struct call *c);

static void make_window(struct call *c)
{
    c->args.flags |= ATTNKIT_WINDOW;
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    c->args.window_left = 2;
    c->args.keep_first = 1;
}

static void make_docs(struct call *c)
{
    give(c, Q_DOCS);
    give(c, KV_DOCS);
}

static void make_mask(struct call *c)
{
    give(c, MASK);
    c->args.mask_kind = ATTNKIT_MASK_ATTEND;
}

static void make_mask_bits(struct call *c)
{
    give(c, MASK_BITS);
    c->args.mask_bits_kind = ATTNKIT_MASK_IGNORE;
}

static void make_bias(struct call *c)
{
    give(c, BIAS);
}

static void make_masks(struct call *c)
{
    make_mask(c);
    make_mask_bits(c);
    make_bias(c);
}

static void make_softcap(struct call *c)
{
    c->args.softcap = 30.0;
}

static void make_slopes(struct call *c)
{
    c->args.align = ATTNKIT_ALIGN_UPPER_LEFT;
    give(c, SLOPES);
}

static void make_sinks(struct call *c)
{
    give(c, SINKS);
}

static void make_dropout(struct call *c)
{
    c->args.align = ATTNKIT_ALIGN_UPPER_LEFT;
    c->args.dropout = 0.25;
    give(c, SEEDS);
}

static void make_weights(struct call *c)
{
    give(c, WEIGHTS);
    c->args.weights_kind = ATTNKIT_WEIGHTS_SOFTMAX;
}

static const maker makers[] = {make_window, make_docs,    make_mask,   make_mask_bits,
                               make_bias,   make_softcap, make_slopes, make_dropout,
                               make_sinks,  make_weights};

enum { MAKERS = sizeof makers / sizeof makers[0], IN_WALK = MAKERS - 2 };

static void make_all(struct call *c)
{
    for (int i = 0; i < MAKERS; i++)
        makers[i](c);
}

static void make_state(struct call *c)
{
    c->args.out = NULL;
    c->args.lse = NULL;
    for (int t = AFTER_MAX; t <= AFTER_OUT; t++)
        give(c, t);
}

/* A state with all inputs that a call for one may have. */
static void make_all_of_state(struct call *c)
{
    for (int i = 0; i < IN_WALK; i++)
        makers[i](c);
    make_state(c);
}

static void set_strides(int64_t strides[3], int64_t row_bytes)
{
    strides[2] = row_bytes;
    strides[1] = Q_LEN * row_bytes;
    strides[0] = Q_HEADS * Q_LEN * row_bytes;
}

/* The dense strides of masks, given. */
static void make_strided_masks(struct call *c)
{
    make_masks(c);
    c->args.flags |= ATTNKIT_MASK_STRIDED;
    set_strides(c->args.mask_strides, KV_LEN);
    set_strides(c->args.mask_bits_strides, BITS_BYTES);
    set_strides(c->args.bias_strides, 4 * KV_LEN);
}

static void set_key_strides(int64_t strides[3], int64_t row_bytes)
{
    strides[2] = row_bytes;
    strides[1] = KV_LEN * row_bytes;
    strides[0] = KV_HEADS * KV_LEN * row_bytes;
}

/* The same of all tensors, with weights. */
static void make_strided(struct call *c)
{
    make_strided_masks(c);
    make_weights(c);
    c->args.flags = ATTNKIT_STRIDED;
    set_strides(c->args.q_strides, 4 * HEAD_DIM);
    set_key_strides(c->args.k_strides, 4 * HEAD_DIM);
    set_key_strides(c->args.v_strides, 4 * VALUE_DIM);
    set_strides(c->args.out_strides, 4 * VALUE_DIM);
    set_strides(c->args.lse_strides, 4);
    set_strides(c->args.weights_strides, 4 * KV_LEN);
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

static void expect_query(const struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    size_t bytes;
    const attnkit_status status = attnkit_attention_workspace(&c->args, &c->exec, &bytes, message);
    fail_unless(status == ATTNKIT_OK, "query", "", status, message);
}

/* The query and the checks of the call take it; what they make of it. */
static const struct extras *accepted(const struct call *c)
{
    static struct problem p;
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    memset(&p, PATTERN, sizeof p);
    expect_query(c);
    attnkit_status status = attnkit_check(&c->args, &p, message);
    fail_unless(status == ATTNKIT_OK, "check", "", status, message);
    status = attnkit_check_workspace(&p, workspace, sizeof workspace, message);
    fail_unless(status == ATTNKIT_OK, "workspace", "", status, message);
    return &p.a.extras;
}

static void expect_strides(struct strides s, int64_t batch, int64_t head, int64_t row)
{
    assert_int_equal(s.batch, batch);
    assert_int_equal(s.head, head);
    assert_int_equal(s.row, row);
}

/* --- Tables of refusals ------------------------------------------------------------------ */

/* A field of the call, and what it is to be. */
struct change {
    size_t field, size; /* size 0: no change */
    int64_t value;
    double real;
    bool is_real;
};

#define SET(name, value)                                                                           \
    {                                                                                              \
        offsetof(struct call, args.name), sizeof(((struct call *)0)->args.name), value, 0.0, false \
    }
#define SET_REAL(name, value)                                                                      \
    {                                                                                              \
        offsetof(struct call, args.name), sizeof(double), 0, value, true                           \
    }

struct refusal {
    const char *text; /* in the message */
    struct change change[4];
};

static void apply(struct call *c, const struct change *change)
{
    char *field = (char *)c + change->field;
    const int32_t narrow = (int32_t)change->value;
    if (change->is_real)
        memcpy(field, &change->real, sizeof change->real);
    else if (change->size == sizeof narrow)
        memcpy(field, &narrow, sizeof narrow);
    else if (change->size == sizeof change->value)
        memcpy(field, &change->value, sizeof change->value);
}

/* The good call, made into another good one if there is `make`. */
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

/* What the call and the workspace query both refuse: it needs no look at tensors and arrays. */
static void expect_shape_refusals(const struct refusal *table, size_t count, maker make,
                                  attnkit_status expected)
{
    for (size_t i = 0; i < count; i++) {
        struct call *c = changed_call(&table[i], make);
        expect_refusal(c, expected, table[i].text);
        expect_query_refusal(c, expected, table[i].text);
    }
}

/* What only the call can refuse. */
static void expect_call_refusals(const struct refusal *table, size_t count, maker make,
                                 attnkit_status expected)
{
    for (size_t i = 0; i < count; i++) {
        struct call *c = changed_call(&table[i], make);
        expect_refusal(c, expected, table[i].text);
        expect_query(c);
    }
}

/* --- All of them ------------------------------------------------------------------------- */

static void each_extra_is_taken_alone_and_with_all_others(void **state)
{
    (void)state;
    const struct extras *x = accepted(good_call());
    assert_false(x->any || x->window || x->drops || x->adjust.capped);
    assert_true(!x->q_docs && !x->kv_docs && !x->bytes.first && !x->bits.first && !x->bias.first);
    assert_true(!x->slopes && !x->sinks && !x->seeds && !x->weights);
    assert_int_equal(x->weights_kind, WEIGHTS_NONE);
    for (int i = 0; i < MAKERS; i++)
        assert_int_equal(accepted(made_call(makers[i]))->any, i < IN_WALK);
    assert_true(accepted(made_call(make_all))->any);
    assert_true(accepted(made_call(make_all_of_state))->any);
    assert_true(accepted(made_call(make_strided_masks))->any);
    assert_true(accepted(made_call(make_strided))->any);
}

/* The query needs to know which pointers are NULL, and no more. */
static void the_query_reads_nothing_through_pointers(void **state)
{
    (void)state;
    struct call *c = made_call(make_all);
    for (int t = 0; t < TENSORS; t++)
        if (data_of(c, t))
            set_data(c, t, (const void *)(uintptr_t)1);
    expect_query(c);
}

static void what_arrays_and_masks_hold_is_not_looked_at(void **state)
{
    (void)state;
    static const int patterns[] = {0, 1, 0xff, 0x7f, 0x80};
    for (size_t i = 0; i < COUNT(patterns); i++) {
        struct call *c = made_call(make_all);
        for (int t = INPUTS; t < TENSORS; t++)
            memset(c->tensors[t], patterns[i], ROOM);
        accepted(c);
    }
}

static void nothing_to_do_needs_no_pointers(void **state)
{
    (void)state;
    static const size_t sizes[] = {offsetof(attnkit_attention_args, batch),
                                   offsetof(attnkit_attention_args, q_heads),
                                   offsetof(attnkit_attention_args, q_len)};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct call *c = made_call(make_all);
        memset((char *)&c->args + sizes[i], 0, sizeof(int64_t));
        for (int t = 0; t < SEEDS; t++)
            set_data(c, t, NULL);
        char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
        expect_query(c);
        const attnkit_status status = attnkit_attention(&c->args, &c->exec, message);
        fail_unless(status == ATTNKIT_OK, "call", "", status, message);
    }
}

/* Their rows have no bytes. */
static void without_keys_masks_and_weights_may_be_null(void **state)
{
    (void)state;
    struct call *c = made_call(make_all);
    c->args.kv_len = 0;
    accepted(c);
    for (int t = MASK; t <= KV_DOCS; t++)
        set_data(c, t, NULL);
    set_data(c, WEIGHTS, NULL);
    give(c, Q_DOCS);
    const struct extras *x = accepted(c);
    assert_true(!x->q_docs && !x->weights && x->weights_kind == WEIGHTS_NONE);
    c = made_call(make_strided);
    c->args.kv_len = 0;
    memset(c->args.weights_strides, 0, sizeof c->args.weights_strides);
    accepted(c);
}

/* --- Window ------------------------------------------------------------------------------ */

static void fields_of_a_window_without_its_flag_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"window_left is 2, but flags lacks ATTNKIT_WINDOW", {SET(window_left, 2)}},
        {"window_right is -1, but flags lacks ATTNKIT_WINDOW", {SET(window_right, -1)}},
        {"keep_first is 4, but flags lacks ATTNKIT_WINDOW", {SET(keep_first, 4)}},
        {"window_left is -2, but flags lacks", {SET(window_left, -2), SET(batch, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
}

static void negative_windows_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"window_left is -2: must be at least -1, which is no bound", {SET(window_left, -2)}},
        {"window_right is -3: must be at least -1, which is no bound", {SET(window_right, -3)}},
        {"window_right is -9223372036854775808: must be", {SET(window_right, INT64_MIN)}},
        {"keep_first is -1: must be at least 0", {SET(keep_first, -1)}},
    };
    expect_shape_refusals(table, COUNT(table), make_window, ATTNKIT_BAD_ARGUMENT);
}

static void windows_of_any_size_are_taken(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, KV_LEN, KV_LEN + 1, INT64_MAX, -1};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct call *c = made_call(make_window);
        const int64_t bound = sizes[i] < 0 ? INT64_MAX : sizes[i];
        c->args.window_left = c->args.window_right = sizes[i];
        c->args.keep_first = bound;
        const struct extras *x = accepted(c);
        assert_true(x->window && x->left == bound && x->right == bound && x->keep_first == bound);
        c->args.window_right = 7;
        x = accepted(c);
        assert_true(x->left == bound && x->right == 7);
    }
}

static void what_is_reckoned_from_positions_needs_them(void **state)
{
    (void)state;
    const struct refusal none = {
        "align is ATTNKIT_ALIGN_NONE: a call with ATTNKIT_WINDOW must say where row 0 stands",
        {SET(align, ATTNKIT_ALIGN_NONE)}};
    expect_shape_refusals(&none, 1, make_window, ATTNKIT_BAD_ARGUMENT);
    const struct refusal slopes = {"align is ATTNKIT_ALIGN_NONE: a call with alibi_slopes must",
                                   {SET(align, ATTNKIT_ALIGN_NONE)}};
    expect_shape_refusals(&slopes, 1, make_slopes, ATTNKIT_BAD_ARGUMENT);
    const struct refusal dropout = {"align is ATTNKIT_ALIGN_NONE: a call with dropout must",
                                    {SET(align, ATTNKIT_ALIGN_NONE)}};
    expect_shape_refusals(&dropout, 1, make_dropout, ATTNKIT_BAD_ARGUMENT);
}

/* Also where the call is not causal. */
static void positions_are_any_that_do_not_overflow(void **state)
{
    (void)state;
    static const int64_t offsets[] = {INT64_MIN, -Q_LEN, INT64_MAX - Q_LEN};
    struct call *c = made_call(make_all);
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    c->args.q_offsets = c->q_offsets;
    for (size_t i = 0; i < COUNT(offsets); i++) {
        c->q_offsets[1] = offsets[i];
        accepted(c);
    }
    c->q_offsets[1] = INT64_MAX - Q_LEN + 1;
    expect_refusal(c, ATTNKIT_OVERFLOW, "q_offsets[1] is 9223372036854775805: must be at most");
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "q_offsets is given, but align is 2");
    c = made_call(make_window);
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    c->args.q_offsets = c->q_offsets;
    c->args.first_key = ATTNKIT_CHUNK_KEYS;
    c->q_offsets[0] = INT64_MIN + ATTNKIT_CHUNK_KEYS;
    accepted(c);
    c->q_offsets[0]--;
    expect_refusal(c, ATTNKIT_OVERFLOW, "q_offsets[0] is -9223372036854775297: must be at least");
}

/* --- Documents and masks ----------------------------------------------------------------- */

static void documents_of_queries_or_keys_alone_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"q_docs is NULL, but kv_docs is given: must be both or none", {SET(q_docs, 0)}},
        {"kv_docs is NULL, but q_docs is given: must be both or none", {SET(kv_docs, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_docs, ATTNKIT_BAD_ARGUMENT);
}

static void masks_without_a_kind_and_kinds_without_a_mask_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"mask is given, but mask_kind is ATTNKIT_MASK_NONE", {SET(mask_kind, 0)}},
        {"mask is NULL, but mask_kind is 1", {SET(mask, 0)}},
        {"mask_bits is given, but mask_bits_kind is ATTNKIT_MASK_NONE", {SET(mask_bits_kind, 0)}},
        {"mask_bits is NULL, but mask_bits_kind is 2", {SET(mask_bits, 0)}},
        {"bias_type is 1, but bias is NULL", {SET(bias, 0), SET(bias_type, ATTNKIT_F16)}},
        {"bias_type is 2, but bias is NULL", {SET(bias, 0), SET(bias_type, ATTNKIT_BF16)}},
    };
    expect_shape_refusals(table, COUNT(table), make_masks, ATTNKIT_BAD_ARGUMENT);
}

static void unknown_kinds_and_types_are_unsupported(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"mask_kind is 3: not known", {SET(mask_kind, 3)}},
        {"mask_kind is -1: not known", {SET(mask_kind, -1)}},
        {"mask_bits_kind is 3: not known", {SET(mask_bits_kind, 3)}},
        {"mask_bits_kind is -2147483648: not known", {SET(mask_bits_kind, INT32_MIN)}},
        {"mask_kind is 3: not known", {SET(mask_kind, 3), SET(mask, 0)}},
        {"bias_type is 3: must be ATTNKIT_F32 (0), ATTNKIT_F16 (1) or ATTNKIT_BF16 (2)",
         {SET(bias_type, ATTNKIT_I8)}},
        {"bias_type is -1: must be ATTNKIT_F32 (0)", {SET(bias_type, -1)}},
        {"bias_type is 4: must be ATTNKIT_F32 (0)", {SET(bias_type, 4), SET(bias, 0)}},
        {"weights_kind is 5: not known", {SET(weights_kind, 5)}},
        {"weights_kind is -1: not known", {SET(weights_kind, -1), SET(weights, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_all, ATTNKIT_UNSUPPORTED);
    for (size_t i = 0; i < COUNT(table); i++) { /* also with nothing to do */
        struct call *c = changed_call(&table[i], make_all);
        c->args.batch = 0;
        expect_refusal(c, ATTNKIT_UNSUPPORTED, table[i].text);
    }
}

static void kinds_are_taken_for_what_they_say(void **state)
{
    (void)state;
    struct call *c = made_call(make_masks);
    const struct extras *x = accepted(c);
    assert_false(x->bytes.ignores);
    assert_true(x->bits.ignores);
    assert_true(x->bytes.first == c->args.mask && x->bits.first == c->args.mask_bits);
    c->args.mask_kind = ATTNKIT_MASK_IGNORE;
    c->args.mask_bits_kind = ATTNKIT_MASK_ATTEND;
    x = accepted(c);
    assert_true(x->bytes.ignores);
    assert_false(x->bits.ignores);
}

static void columns_are_at_most_the_keys(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"mask_columns is 11: must be between 0 and kv_len (10)", {SET(mask_columns, 11)}},
        {"mask_columns is -1: must be between 0 and kv_len (10)", {SET(mask_columns, -1)}},
        {"mask_bits_columns is 9223372036854775807: must be", {SET(mask_bits_columns, INT64_MAX)}},
        {"mask_bits_columns is 16: must be between", {SET(mask_bits_columns, 16)}},
        {"bias_columns is -9223372036854775808: must be", {SET(bias_columns, INT64_MIN)}},
        {"bias_columns is 11: must be between 0 and kv_len (10)", {SET(bias_columns, 11)}},
        {"mask_columns is 1: must be between 0 and kv_len (0)",
         {SET(mask_columns, 1), SET(kv_len, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_masks, ATTNKIT_BAD_ARGUMENT);
    const struct refusal absent[] = {
        {"mask_columns is 5, but mask is NULL", {SET(mask_columns, 5)}},
        {"mask_bits_columns is 5, but mask_bits is NULL", {SET(mask_bits_columns, 5)}},
        {"bias_columns is 5, but bias is NULL", {SET(bias_columns, 5)}},
        {"bias_columns is -5: must be between 0 and kv_len", {SET(bias_columns, -5)}},
    };
    expect_shape_refusals(absent, COUNT(absent), NULL, ATTNKIT_BAD_ARGUMENT);
}

static void dense_rows_of_masks_have_as_many_columns_as_are_said(void **state)
{
    (void)state;
    for (int64_t columns = 0; columns <= KV_LEN; columns++) {
        struct call *c = made_call(make_masks);
        const int64_t n = columns ? columns : KV_LEN, bytes = (n + 7) / 8, half = 2 * n;
        c->args.mask_columns = c->args.mask_bits_columns = c->args.bias_columns = columns;
        c->args.bias_type = ATTNKIT_BF16;
        const struct extras *x = accepted(c);
        expect_strides(x->bytes.stride, Q_HEADS * Q_LEN * n, Q_LEN * n, n);
        expect_strides(x->bits.stride, Q_HEADS * Q_LEN * bytes, Q_LEN * bytes, bytes);
        expect_strides(x->bias.stride, Q_HEADS * Q_LEN * half, Q_LEN * half, half);
        assert_true(x->bytes.columns == n && x->bits.columns == n && x->bias.columns == n);
        assert_int_equal(x->bias.type, TYPE_BF16);
    }
}

/* Rows of all entries together, in one tensor without a batch. */
static void packed_masks_and_arrays_have_no_batch(void **state)
{
    (void)state;
    struct call *c = made_call(make_all);
    c->starts[0] = c->starts[1] = 0;
    c->starts[2] = Q_LEN;
    c->args.q_starts = c->starts;
    const struct extras *x = accepted(c);
    assert_int_equal(x->bytes.stride.head, Q_LEN * KV_LEN);
    assert_int_equal(x->weights_stride.row, 4 * KV_LEN);
    c->args.out = memory_of(c, MASK) + tensor_bytes[MASK] / BATCH; /* where the other batch was */
    accepted(c);
    c->args.out = memory_of(c, Q_DOCS) + tensor_bytes[Q_DOCS] / BATCH;
    accepted(c);
    c->args.out = memory_of(c, Q_DOCS) + tensor_bytes[Q_DOCS] / BATCH - 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps q_docs");
    c = made_call(make_docs);
    c->starts[0] = c->starts[1] = 0;
    c->starts[2] = KV_LEN;
    c->args.kv_starts = c->starts;
    c->args.out = memory_of(c, KV_DOCS) + tensor_bytes[KV_DOCS] / BATCH;
    accepted(c);
    c->args.out = memory_of(c, KV_DOCS) + tensor_bytes[KV_DOCS] / BATCH - 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps kv_docs");
}

/* --- Strides ----------------------------------------------------------------------------- */

static void strides_of_masks_without_a_flag_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"mask_strides[0] (batch) is 8, but flags lacks ATTNKIT_MASK_STRIDED",
         {SET(mask_strides[0], 8)}},
        {"mask_bits_strides[1] (head) is -1, but flags lacks ATTNKIT_MASK_STRIDED",
         {SET(mask_bits_strides[1], -1)}},
        {"bias_strides[2] (row) is 4, but flags lacks ATTNKIT_MASK_STRIDED",
         {SET(bias_strides[2], 4)}},
        {"weights_strides[2] (row) is 4, but flags lacks ATTNKIT_STRIDED",
         {SET(weights_strides[2], 4)}},
        {"weights_strides[2] (row) is 4, but flags lacks ATTNKIT_STRIDED",
         {SET(flags, ATTNKIT_WINDOW | ATTNKIT_MASK_STRIDED), SET(weights_strides[2], 4)}},
    };
    expect_shape_refusals(table, COUNT(table), make_all, ATTNKIT_BAD_ARGUMENT);
}

static void bad_strides_of_masks_are_refused(void **state)
{
    (void)state;
    const struct refusal odd[] = {
        {"bias_strides[0] (batch) is 482: must be a multiple of 4", {SET(bias_strides[0], 482)}},
        {"bias_strides[2] (row) is -1: must be a multiple of 2",
         {SET(bias_type, ATTNKIT_F16), SET(bias_strides[2], -1)}},
    };
    expect_shape_refusals(odd, COUNT(odd), make_strided_masks, ATTNKIT_BAD_ARGUMENT);
    const struct refusal large[] = {
        {"mask_strides[1] (head) is 4611686018427387904: too large for 4 of them",
         {SET(mask_strides[1], INT64_C(1) << 62)}},
        {"mask_bits_strides[2] (row) is -9223372036854775808: too large for 3 of them",
         {SET(mask_bits_strides[2], INT64_MIN)}},
        {"bias_strides[0] (batch) is -9223372036854775808: too large",
         {SET(bias_strides[0], INT64_MIN)}},
    };
    expect_shape_refusals(large, COUNT(large), make_strided_masks, ATTNKIT_OVERFLOW);
    const struct refusal far[] = {
        {"mask leaves the address space", {SET(mask_strides[0], -(INT64_C(1) << 60))}},
        {"mask_bits leaves the address space", {SET(mask_bits_strides[0], -(INT64_C(1) << 60))}},
        {"bias leaves the address space", {SET(bias_strides[0], -(INT64_C(1) << 60))}},
        {"q_docs leaves the address space", {SET(q_docs, -16), SET(kv_docs, 64)}},
        {"alibi_slopes leaves the address space",
         {SET(alibi_slopes, -8), SET(align, ATTNKIT_ALIGN_UPPER_LEFT)}},
    };
    expect_call_refusals(far, COUNT(far), make_strided_masks, ATTNKIT_OVERFLOW);
}

static void masks_may_repeat_overlap_and_go_backwards(void **state)
{
    (void)state;
    static const int64_t strides[] = {0, 4, -4, 1, -1, 100};
    for (int axis = 0; axis < 3; axis++)
        for (size_t i = 0; i < COUNT(strides); i++) {
            struct call *c = made_call(make_strided_masks);
            c->args.mask_strides[axis] = c->args.mask_bits_strides[axis] = strides[i];
            c->args.bias_strides[axis] = strides[i] - strides[i] % 4;
            const struct extras *x = accepted(c);
            const int64_t got[3] = {x->bytes.stride.batch, x->bytes.stride.head,
                                    x->bytes.stride.row};
            assert_int_equal(got[axis], strides[i]);
        }
}

/* One row of columns for all queries. */
static void a_mask_of_keys_alone_is_one_row(void **state)
{
    (void)state;
    struct call *c = made_call(make_masks);
    c->args.flags = ATTNKIT_MASK_STRIDED;
    c->args.lse = (float *)(memory_of(c, BIAS) + 4 * KV_LEN);
    const struct extras *x = accepted(c);
    expect_strides(x->bytes.stride, 0, 0, 0);
    expect_strides(x->bits.stride, 0, 0, 0);
    expect_strides(x->bias.stride, 0, 0, 0);
    c->args.lse--;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps bias");
}

static void either_flag_makes_strides_of_masks_literal(void **state)
{
    (void)state;
    struct call *c = made_call(make_strided);
    c->args.mask_strides[2] = c->args.bias_strides[1] = 0;
    const struct extras *x = accepted(c);
    assert_int_equal(x->bytes.stride.row, 0);
    assert_int_equal(x->bias.stride.head, 0);
    c->args.flags |= ATTNKIT_MASK_STRIDED;
    assert_int_equal(accepted(c)->bytes.stride.row, 0);
}

static void strides_of_absent_masks_and_of_one_row_are_not_looked_at(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.flags = ATTNKIT_MASK_STRIDED;
    for (int axis = 0; axis < 3; axis++) {
        c->args.mask_strides[axis] = c->args.mask_bits_strides[axis] = INT64_MIN + 1;
        c->args.bias_strides[axis] = c->args.weights_strides[axis] = INT64_MIN + 1;
    }
    accepted(c);
    make_masks(c);
    c->args.batch = c->args.q_heads = c->args.kv_heads = c->args.q_len = 1;
    expect_strides(accepted(c)->bias.stride, 0, 0, 0);
}

/* --- Addresses --------------------------------------------------------------------------- */

static void elements_at_odd_addresses_are_refused(void **state)
{
    (void)state;
    for (int t = 0; t < TENSORS; t++)
        for (int offset = 1; offset <= 8; offset++) {
            struct call *c =
                made_call(t < AFTER_MAX || t > AFTER_OUT ? make_all : make_all_of_state);
            char text[96];
            set_data(c, t, memory_of(c, t) + offset);
            snprintf(text, sizeof text, "%s is %p: must be aligned to %d bytes", tensor_names[t],
                     (const void *)data_of(c, t), alignments[t]);
            if (offset % alignments[t] == 0)
                accepted(c);
            else
                expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
        }
    struct call *c = made_call(make_bias);
    c->args.bias_type = ATTNKIT_F16;
    c->args.bias = memory_of(c, BIAS) + 2;
    accepted(c);
    c->args.bias = memory_of(c, BIAS) + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 2 bytes");
}

static void expect_overlap(struct call *c, int output, int other, int64_t offset)
{
    char text[128];
    set_data(c, output, data_of(c, other) + offset);
    snprintf(text, sizeof text, "%s (%p) overlaps %s (%p)", tensor_names[output],
             (const void *)data_of(c, output), tensor_names[other],
             (const void *)data_of(c, other));
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
}

/* The last multiple of 4 bytes that is in the tensor. */
static int64_t last_float(int tensor)
{
    return (tensor_bytes[tensor] - 1) / 4 * 4;
}

static void outputs_that_overlap_inputs_are_refused(void **state)
{
    (void)state;
    for (int output = OUT; output < INPUTS; output++)
        for (int other = INPUTS; other < TENSORS; other++) {
            const maker make = output < AFTER_MAX ? make_all : make_all_of_state;
            if (!data_of(made_call(make), other))
                continue;
            expect_overlap(made_call(make), output, other, 0);
            expect_overlap(made_call(make), output, other, last_float(other));
            expect_overlap(made_call(make), output, other, 4 - tensor_bytes[output]);
            const int64_t beside[2] = {last_float(other) + 4, -tensor_bytes[output]};
            for (int i = 0; i < 2; i++) {
                struct call *c = made_call(make);
                set_data(c, output, data_of(c, other) + beside[i]);
                accepted(c);
            }
        }
}

static void outputs_that_overlap_weights_are_refused(void **state)
{
    (void)state;
    for (int output = OUT; output <= LSE; output++) {
        expect_overlap(made_call(make_all), output, WEIGHTS, last_float(WEIGHTS));
        expect_overlap(made_call(make_all), output, WEIGHTS, 4 - tensor_bytes[output]);
    }
    const char *const inputs[3] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        struct call *c = made_call(make_weights);
        char text[32];
        c->args.weights = (float *)(i == 0 ? c->q : i == 1 ? c->k : c->v) + MARGIN / 4;
        snprintf(text, sizeof text, "overlaps %s (", inputs[i]);
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
    }
}

static void inputs_may_overlap_each_other(void **state)
{
    (void)state;
    struct call *c = made_call(make_all);
    for (int t = INPUTS; t < TENSORS; t++)
        set_data(c, t, c->q + MARGIN);
    accepted(c);
}

/* Rows of a mask with room for those of weights between them. */
static void outputs_may_lie_in_the_gaps_of_masks(void **state)
{
    (void)state;
    struct call *c = made_call(make_strided);
    set_strides(c->args.bias_strides, 8 * KV_LEN);
    set_strides(c->args.weights_strides, 8 * KV_LEN);
    c->args.weights = (float *)memory_of(c, BIAS) + KV_LEN;
    accepted(c);
    c->args.weights--;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps bias");
}

static void a_workspace_inside_an_extra_is_refused(void **state)
{
    (void)state;
    for (int t = WEIGHTS; t < TENSORS; t++) {
        const int64_t offsets[3] = {0, 1, tensor_bytes[t] - 1};
        for (int i = 0; i < 3 && (t == WEIGHTS || t >= INPUTS); i++) {
            struct call *c = made_call(make_all);
            char text[64];
            c->exec.workspace = data_of(c, t) + offsets[i];
            snprintf(text, sizeof text, " bytes) overlaps %s", tensor_names[t]);
            expect_refusal(c, ATTNKIT_BAD_WORKSPACE, text);
        }
    }
}

/* Nothing is left of the call before. */
static void a_workspace_may_lie_where_masks_of_other_calls_are(void **state)
{
    (void)state;
    struct problem p;
    struct call *c = made_call(make_all);
    assert_int_equal(attnkit_check(&c->args, &p, NULL), ATTNKIT_OK);
    for (int t = INPUTS; t < TENSORS; t++)
        assert_int_equal(attnkit_check_workspace(&p, memory_of(c, t), 1, NULL),
                         ATTNKIT_BAD_WORKSPACE);
    c = good_call();
    assert_int_equal(attnkit_check(&c->args, &p, NULL), ATTNKIT_OK);
    for (int t = INPUTS; t < TENSORS; t++)
        assert_int_equal(attnkit_check_workspace(&p, memory_of(c, t), 1, NULL), ATTNKIT_OK);
}

/* --- Sizes ------------------------------------------------------------------------------- */

/* Where rows of K take no memory, any number of them is a size that is right. */
static void make_endless(struct call *c)
{
    c->args.flags = ATTNKIT_STRIDED;
    c->args.batch = c->args.q_heads = c->args.kv_heads = c->args.q_len = 1;
    c->args.kv_len = INT64_MAX / 2;
}

static void make_long(struct call *c)
{
    c->args.q_len = INT64_C(1000000000000);
    c->args.kv_len = 10000000;
}

static void sizes_whose_products_leave_63_bits_are_refused(void **state)
{
    (void)state;
    const struct refusal endless[] = {
        {"bias has 4611686018427387903 columns: too many", {SET(bias, 64)}},
        {"kv_len is 4611686018427387903: too large for a row of weights",
         {SET(weights, 64), SET(weights_kind, ATTNKIT_WEIGHTS_SOFTMAX)}},
        {"kv_docs has 1 x 1 x 4611686018427387903 rows of 4 bytes",
         {SET(q_docs, 64), SET(kv_docs, 64)}},
    };
    expect_shape_refusals(endless, COUNT(endless), make_endless, ATTNKIT_OVERFLOW);
    expect_query(made_call(make_endless));
    struct call *c = made_call(make_endless);
    make_masks(c);
    c->args.bias_columns = 10;
    expect_query(c);
    const struct refusal dense[] = {
        {"mask has 2 x 4 x 1000000000000 rows of 10000000 bytes",
         {SET(mask, 64), SET(mask_kind, ATTNKIT_MASK_ATTEND)}},
        {"mask_bits has 2 x 4 x 1000000000000 rows of 1250000 bytes",
         {SET(mask_bits, 64), SET(mask_bits_kind, ATTNKIT_MASK_ATTEND)}},
        {"bias has 2 x 4 x 1000000000000 rows of 20000000 bytes",
         {SET(bias, 64), SET(bias_type, ATTNKIT_F16)}},
        {"weights has 2 x 4 x 1000000000000 rows of 40000000 bytes",
         {SET(weights, 64), SET(weights_kind, ATTNKIT_WEIGHTS_SCALED)}},
    };
    expect_shape_refusals(dense, COUNT(dense), make_long, ATTNKIT_OVERFLOW);
    expect_query(made_call(make_long));
}

/* --- Functions of the score -------------------------------------------------------------- */

static void caps_that_are_none_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"softcap is -1: must be positive and finite, or 0 for none", {SET_REAL(softcap, -1.0)}},
        {"softcap is nan: must be", {SET_REAL(softcap, NAN)}},
        {"softcap is inf: must be", {SET_REAL(softcap, INFINITY)}},
        {"softcap is -inf: must be", {SET_REAL(softcap, -INFINITY)}},
        {"softcap is 1e+300: * log2 e must be finite in binary32", {SET_REAL(softcap, 1e300)}},
        {"softcap is 3e+38: * log2 e must be finite in binary32", {SET_REAL(softcap, 3e38)}},
        {"softcap is 1e-300: scale (0.5) / softcap must be finite in binary32",
         {SET_REAL(softcap, 1e-300)}},
        {"scale is -1e+300: must be finite in binary32",
         {SET_REAL(softcap, 1e300), SET_REAL(scale, -1e300), SET(flags, ATTNKIT_SCALE_GIVEN)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
}

static void caps_become_factors_that_are_rounded_once(void **state)
{
    (void)state;
    static const double caps[] = {30.0, 50.0, 0.1, 1e-30, 2.3e38}, log2_e = 0x1.71547652b82fep+0;
    for (size_t i = 0; i < COUNT(caps); i++) {
        struct call *c = good_call();
        c->args.softcap = caps[i];
        const struct extras *x = accepted(c);
        assert_true(x->adjust.capped && x->any);
        assert_true(x->adjust.to_cap == (float)(0.5 / caps[i]));
        assert_true(x->adjust.factor == (float)(caps[i] * log2_e));
        assert_true(x->scale == 0.5f && x->cap == (float)caps[i]);
        c->args.flags = ATTNKIT_SCALE_GIVEN;
        c->args.scale = -0.3;
        x = accepted(c);
        assert_true(x->adjust.to_cap == (float)(-0.3 / caps[i]));
        assert_true(x->scale == -0.3f);
    }
}

static void without_a_cap_the_factor_is_the_scale(void **state)
{
    (void)state;
    static const double none[] = {0.0, -0.0};
    for (int i = 0; i < 2; i++) {
        struct call *c = made_call(make_bias);
        c->args.softcap = none[i];
        const struct extras *x = accepted(c);
        assert_false(x->adjust.capped);
        assert_true(x->adjust.factor == (float)(0.5 * 0x1.71547652b82fep+0));
        assert_true(x->adjust.to_cap == 0.0f && x->cap == 0.0f && x->scale == 0.5f);
    }
}

static void a_scale_of_0_needs_no_cap_of_a_size(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.flags = ATTNKIT_SCALE_GIVEN;
    c->args.softcap = 1e-300;
    assert_true(accepted(c)->adjust.to_cap == 0.0f);
}

static void sinks_are_for_results(void **state)
{
    (void)state;
    struct call *c = made_call(make_state);
    give(c, SINKS);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "sinks is given, but after_out, too");
    expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, "sinks is given, but after_out, too");
    c = made_call(make_sinks);
    c->args.before_max = c->args.before_sum = (const float *)(c->q + MARGIN);
    c->args.before_out = (const float *)(c->q + MARGIN);
    assert_true(accepted(c)->sinks == c->args.sinks);
}

/* --- Dropout ----------------------------------------------------------------------------- */

static void rates_that_are_none_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"dropout is 1: must be at least 0, below 1", {SET_REAL(dropout, 1.0)}},
        {"dropout is -0.5: must be at least 0, below 1", {SET_REAL(dropout, -0.5)}},
        {"dropout is 1.5: must be", {SET_REAL(dropout, 1.5)}},
        {"dropout is nan: must be", {SET_REAL(dropout, NAN)}},
        {"dropout is inf: must be", {SET_REAL(dropout, INFINITY)}},
        {"dropout is -inf: must be", {SET_REAL(dropout, -INFINITY)}},
        {"dropout_seeds is NULL, but dropout is 0.25", {SET(dropout_seeds, 0)}},
        {"dropout_seeds is given, but dropout is 0", {SET_REAL(dropout, 0.0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_dropout, ATTNKIT_BAD_ARGUMENT);
}

static void rates_become_words_and_factors(void **state)
{
    (void)state;
    static const struct {
        double rate;
        uint64_t dropped;
        float keep_factor;
    } table[] = {{0.5, UINT64_C(1) << 31, 2.0f},
                 {0.25, UINT64_C(1) << 30, (float)(1.0 / 0.75)},
                 {0x1p-33, 1, 1.0f},
                 {0x1p-1074, 1, 1.0f},
                 {1.0 - 0x1p-53, UINT64_C(1) << 32, 0x1p53f}};
    for (size_t i = 0; i < COUNT(table); i++) {
        struct call *c = made_call(make_dropout);
        c->args.dropout = table[i].rate;
        const struct extras *x = accepted(c);
        assert_true(x->drops && x->any && x->seeds == c->args.dropout_seeds);
        assert_true(x->dropped == table[i].dropped);
        assert_true(x->keep_factor == table[i].keep_factor);
    }
    struct call *c = good_call();
    c->args.dropout = -0.0;
    assert_false(accepted(c)->drops);
}

/* --- Weights ----------------------------------------------------------------------------- */

static void weights_and_their_kind_come_together(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"weights is given, but weights_kind is ATTNKIT_WEIGHTS_NONE", {SET(weights_kind, 0)}},
        {"weights is NULL, but weights_kind is 1", {SET(weights, 0)}},
        {"weights is NULL, but weights_kind is 4", {SET(weights, 0), SET(weights_kind, 4)}},
    };
    expect_shape_refusals(table, COUNT(table), make_weights, ATTNKIT_BAD_ARGUMENT);
    for (int kind = ATTNKIT_WEIGHTS_SOFTMAX; kind <= ATTNKIT_WEIGHTS_SCALED; kind++) {
        struct call *c = made_call(make_weights);
        c->args.weights_kind = (attnkit_weights)kind;
        const struct extras *x = accepted(c);
        assert_true((int)x->weights_kind == kind && x->weights == (char *)c->args.weights);
        expect_strides(x->weights_stride, Q_HEADS * Q_LEN * 4 * KV_LEN, Q_LEN * 4 * KV_LEN,
                       4 * KV_LEN);
    }
}

static void weights_are_not_for_parts_of_the_keys(void **state)
{
    (void)state;
    struct call *c = made_call(make_weights);
    make_state(c);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "weights is given, but after_out, too");
    expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, "weights is given, but after_out, too");
    const struct refusal table[] = {
        {"weights is given, but before_out, too",
         {SET(before_max, 64), SET(before_sum, 64), SET(before_out, 64)}},
        {"weights is given, but first_key is 512", {SET(first_key, ATTNKIT_CHUNK_KEYS)}},
    };
    expect_shape_refusals(table, COUNT(table), make_weights, ATTNKIT_BAD_ARGUMENT);
}

static void strides_of_weights_nest(void **state)
{
    (void)state;
    struct call *c = made_call(make_strided);
    set_strides(c->args.weights_strides, 4 * KV_LEN + 4);
    expect_strides(accepted(c)->weights_stride, Q_HEADS * Q_LEN * (4 * KV_LEN + 4),
                   Q_LEN * (4 * KV_LEN + 4), 4 * KV_LEN + 4);
    const struct refusal table[] = {
        {"rows of weights (40 bytes) overlap or interleave", {SET(weights_strides[2], 36)}},
        {"rows of weights (40 bytes) overlap or interleave", {SET(weights_strides[1], 0)}},
        {"rows of weights (40 bytes) overlap or interleave", {SET(weights_strides[0], 4)}},
    };
    expect_call_refusals(table, COUNT(table), make_strided, ATTNKIT_BAD_ARGUMENT);
    const struct refusal odd = {"weights_strides[2] (row) is 42: must be a multiple of 4",
                                {SET(weights_strides[2], 42)}};
    expect_shape_refusals(&odd, 1, make_strided, ATTNKIT_BAD_ARGUMENT);
    const struct refusal large = {"weights_strides[0] (batch) is 9223372036854775804: too large",
                                  {SET(weights_strides[0], INT64_MAX - 3)}};
    expect_shape_refusals(&large, 1, make_strided, ATTNKIT_OVERFLOW);
}

/* --- Workspace --------------------------------------------------------------------------- */

/* K and V of 16 bits take what masks take, too. */
static void make_halves(struct call *c)
{
    c->args.k_type = c->args.v_type = ATTNKIT_F16;
}

static void make_wide_all(struct call *c)
{
    make_all(c);
    make_halves(c);
}

static const maker hungry[] = {make_window, make_docs,    make_mask,   make_mask_bits,
                               make_bias,   make_softcap, make_slopes, make_dropout,
                               make_sinks,  make_weights, make_all,    make_wide_all};

/* The bound that the header states for one thread of a call like this. */
static size_t workspace_bound(const attnkit_attention_args *a)
{
    const int64_t head_dim = a->head_dim, value_dim = a->value_dim;
    const bool masks = a->q_docs || a->mask || a->mask_bits || a->bias;
    int64_t bytes = 4 * (256 * (head_dim + 2 * value_dim + 4) + 128 * 64 + 2 * value_dim) + 4096;
    if (a->k_type != ATTNKIT_F32 || masks || a->keep_first)
        bytes += 4 * 129 * (head_dim + value_dim);
    if (masks || (a->flags & ATTNKIT_WINDOW) || a->softcap > 0.0 || a->alibi_slopes ||
        a->dropout > 0.0)
        bytes += 73728;
    if (a->weights)
        bytes += 4 * (192 * head_dim + 25000);
    return (size_t)bytes;
}

static size_t workspace_needed(const struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    size_t bytes = 0;
    const attnkit_status status = attnkit_attention_workspace(&c->args, &c->exec, &bytes, message);
    fail_unless(status == ATTNKIT_OK, "query", "", status, message);
    return bytes;
}

static void the_workspace_keeps_to_the_bound_of_the_header(void **state)
{
    (void)state;
    static const int64_t dims[] = {1, 32, 128, 576}, lengths[] = {1, 2, 7, 33, 1000, 1 << 20};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t d = 0; d < COUNT(dims) * COUNT(dims); d++)
            for (size_t n = 0; n < COUNT(lengths) * COUNT(hungry); n++) {
                struct call *c = made_call(hungry[n / COUNT(lengths)]);
                c->exec.isa = isas[i].name;
                c->args.q_len = lengths[n % COUNT(lengths)];
                c->args.kv_len = 100000;
                c->args.head_dim = dims[d % COUNT(dims)];
                c->args.value_dim = dims[d / COUNT(dims)];
                if (attnkit_isa_can_run(&isas[i]))
                    assert_true(workspace_needed(c) <= workspace_bound(&c->args));
            }
}

/* So that one made for the longest of several calls does for all of them. */
static void the_workspace_does_not_shrink_as_lengths_grow(void **state)
{
    (void)state;
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t n = 0; n < 2 * COUNT(hungry) && attnkit_isa_can_run(&isas[i]); n++) {
            struct call *c = made_call(hungry[n / 2]);
            c->exec.isa = isas[i].name;
            c->exec.threads = n % 2 ? 16 : 1;
            size_t before = 0;
            for (c->args.q_len = 1; c->args.q_len < 600; c->args.q_len++) {
                const size_t needed = workspace_needed(c);
                assert_true(needed >= before);
                before = needed;
            }
            c->args.kv_len = 1 << 30;
            assert_true(workspace_needed(c) >= before);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_extra_is_taken_alone_and_with_all_others),
        cmocka_unit_test(the_query_reads_nothing_through_pointers),
        cmocka_unit_test(what_arrays_and_masks_hold_is_not_looked_at),
        cmocka_unit_test(nothing_to_do_needs_no_pointers),
        cmocka_unit_test(without_keys_masks_and_weights_may_be_null),
        cmocka_unit_test(fields_of_a_window_without_its_flag_are_refused),
        cmocka_unit_test(negative_windows_are_refused),
        cmocka_unit_test(windows_of_any_size_are_taken),
        cmocka_unit_test(what_is_reckoned_from_positions_needs_them),
        cmocka_unit_test(positions_are_any_that_do_not_overflow),
        cmocka_unit_test(documents_of_queries_or_keys_alone_are_refused),
        cmocka_unit_test(masks_without_a_kind_and_kinds_without_a_mask_are_refused),
        cmocka_unit_test(unknown_kinds_and_types_are_unsupported),
        cmocka_unit_test(kinds_are_taken_for_what_they_say),
        cmocka_unit_test(columns_are_at_most_the_keys),
        cmocka_unit_test(dense_rows_of_masks_have_as_many_columns_as_are_said),
        cmocka_unit_test(packed_masks_and_arrays_have_no_batch),
        cmocka_unit_test(strides_of_masks_without_a_flag_are_refused),
        cmocka_unit_test(bad_strides_of_masks_are_refused),
        cmocka_unit_test(masks_may_repeat_overlap_and_go_backwards),
        cmocka_unit_test(a_mask_of_keys_alone_is_one_row),
        cmocka_unit_test(either_flag_makes_strides_of_masks_literal),
        cmocka_unit_test(strides_of_absent_masks_and_of_one_row_are_not_looked_at),
        cmocka_unit_test(elements_at_odd_addresses_are_refused),
        cmocka_unit_test(outputs_that_overlap_inputs_are_refused),
        cmocka_unit_test(outputs_that_overlap_weights_are_refused),
        cmocka_unit_test(inputs_may_overlap_each_other),
        cmocka_unit_test(outputs_may_lie_in_the_gaps_of_masks),
        cmocka_unit_test(a_workspace_inside_an_extra_is_refused),
        cmocka_unit_test(a_workspace_may_lie_where_masks_of_other_calls_are),
        cmocka_unit_test(sizes_whose_products_leave_63_bits_are_refused),
        cmocka_unit_test(caps_that_are_none_are_refused),
        cmocka_unit_test(caps_become_factors_that_are_rounded_once),
        cmocka_unit_test(without_a_cap_the_factor_is_the_scale),
        cmocka_unit_test(a_scale_of_0_needs_no_cap_of_a_size),
        cmocka_unit_test(sinks_are_for_results),
        cmocka_unit_test(rates_that_are_none_are_refused),
        cmocka_unit_test(rates_become_words_and_factors),
        cmocka_unit_test(weights_and_their_kind_come_together),
        cmocka_unit_test(weights_are_not_for_parts_of_the_keys),
        cmocka_unit_test(strides_of_weights_nest),
        cmocka_unit_test(the_workspace_keeps_to_the_bound_of_the_header),
        cmocka_unit_test(the_workspace_does_not_shrink_as_lengths_grow),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
