/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the public call of attention with bad and odd masks, score mods, dropout and weights. The
 * library refuses a call that it cannot compute. A refused call returns the documented status, and
 * writes nothing but a message, which names the argument and its value. The library accepts a call
 * that only looks odd. Most tests of other arguments are in api.c and api_storage.c.
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

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "attnkit.h"
#include "tests/support/groups.h"

enum {
    BATCH = 2,
    Q_HEADS = 4,
    KV_HEADS = 2,
    Q_LEN = 3,
    KV_LEN = 10,
    HEAD_DIM = 4,
    VALUE_DIM = 6,
    BITS_BYTES = 2, /* bytes of KV_LEN bits */
    Q_ROWS = BATCH * Q_HEADS * Q_LEN,

    ROOM = 4096,   /* bytes for each tensor */
    MARGIN = 1024, /* how many of the ROOM bytes lie before a tensor's first element */
    PATTERN = 0xa5,
};

/* Indices of the tensors that the tests give to a call besides q, k and v. The indices are for
 * loops over these tensors. Outputs come first. */
enum {
    OUT,
    LSE,
    WEIGHTS,
    STATE_MAX,
    STATE_SUM,
    STATE_OUT,
    MASK,
    MASK_BITS,
    BIAS,
    Q_SEGMENTS,
    KV_SEGMENTS,
    SLOPES,
    BIAS_SCALES,
    SINKS,
    SEEDS,
    TENSORS
};

enum { INPUTS = MASK };

static const char *const tensor_names[TENSORS] = {
    "out",         "lse",       "weights",      "state_out.max", "state_out.sum",  "state_out.out",
    "mask",        "mask_bits", "bias",         "q_segment_ids", "kv_segment_ids", "alibi_slopes",
    "bias_scales", "sinks",     "dropout_seeds"};

/* The size of each dense tensor in bytes, if the bias is f32. `alignments` has the alignment of
 * each tensor in bytes. */
static const int64_t tensor_bytes[TENSORS] = {4 * Q_ROWS * VALUE_DIM,
                                              4 * Q_ROWS,
                                              4 * Q_ROWS *KV_LEN,
                                              4 * Q_ROWS,
                                              8 * Q_ROWS,
                                              8 * Q_ROWS *VALUE_DIM,
                                              Q_ROWS *KV_LEN,
                                              Q_ROWS *BITS_BYTES,
                                              4 * Q_ROWS *KV_LEN,
                                              4 * BATCH *Q_LEN,
                                              4 * BATCH *KV_LEN,
                                              4 * Q_HEADS,
                                              4 * Q_HEADS,
                                              4 * Q_HEADS,
                                              8 * BATCH};
static const int alignments[TENSORS] = {4, 4, 4, 4, 8, 8, 1, 1, 4, 4, 4, 4, 4, 4, 8};

/* A call and all its memory except the workspace. A refused call may change none of this memory. */
struct call {
    attnkit_attention_args args;
    struct groups groups;
    attnkit_exec exec;
    int64_t kv_lens[BATCH], q_offsets[BATCH], starts[BATCH + 1];
    _Alignas(64) char q[ROOM], k[ROOM], v[ROOM], tensors[TENSORS][ROOM];
};

static char workspace[1 << 20];

static size_t field_of(int tensor)
{
    static const size_t fields[TENSORS] = {
        offsetof(struct call, args.out.data),
        offsetof(struct call, args.lse.data),
        offsetof(struct call, groups.weights.weights.data),
        offsetof(struct call, groups.states.state_out.max),
        offsetof(struct call, groups.states.state_out.sum),
        offsetof(struct call, groups.states.state_out.out),
        offsetof(struct call, groups.visibility.mask.data),
        offsetof(struct call, groups.visibility.mask_bits.data),
        offsetof(struct call, groups.scores.bias.data),
        offsetof(struct call, groups.visibility.q_segment_ids),
        offsetof(struct call, groups.visibility.kv_segment_ids),
        offsetof(struct call, groups.scores.alibi_slopes),
        offsetof(struct call, groups.scores.bias_scales),
        offsetof(struct call, groups.scores.sinks),
        offsetof(struct call, groups.scores.dropout_seeds),
    };
    return fields[tensor];
}

static void set_data(struct call *c, int tensor, const void *data)
{
    memcpy((char *)c + field_of(tensor), &data, sizeof data);
}

static char *data_of(const struct call *c, int tensor)
{
    char *data;
    memcpy(&data, (const char *)c + field_of(tensor), sizeof data);
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

/* Makes a plain valid call. When this function is called again, it overwrites the call. */
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
    };
    c.exec = (attnkit_exec){
        .size = sizeof c.exec, .workspace = workspace, .workspace_size = sizeof workspace};
    groups_init(&c.groups);
    groups_hang(&c.args, &c.groups);
    give(&c, OUT);
    give(&c, LSE);
    memset(c.q_offsets, 0, sizeof c.q_offsets);
    return &c;
}

/* Functions that turn the valid call into another valid call. */
typedef void (*maker)(struct call *c);

static void make_window(struct call *c)
{
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    groups_set_window(&c->args, &c->groups, 2, 0, 1);
}

static void make_segments(struct call *c)
{
    give(c, Q_SEGMENTS);
    give(c, KV_SEGMENTS);
}

static void make_mask(struct call *c)
{
    give(c, MASK);
    c->groups.visibility.mask.type = ATTNKIT_BOOL;
    c->groups.visibility.mask_kind = ATTNKIT_MASK_ATTEND;
}

static void make_mask_bits(struct call *c)
{
    give(c, MASK_BITS);
    c->groups.visibility.mask_bits.type = ATTNKIT_BITS;
    c->groups.visibility.mask_bits_kind = ATTNKIT_MASK_IGNORE;
}

static void make_bias(struct call *c)
{
    give(c, BIAS);
}

static void make_bias_scales(struct call *c)
{
    make_bias(c);
    give(c, BIAS_SCALES);
}

static void make_masks(struct call *c)
{
    make_mask(c);
    make_mask_bits(c);
    make_bias(c);
}

static void make_softcap(struct call *c)
{
    c->groups.scores.softcap = 30.0;
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
    c->groups.scores.dropout = 0.25;
    give(c, SEEDS);
}

static void make_weights(struct call *c)
{
    give(c, WEIGHTS);
    c->groups.weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
}

static const maker makers[] = {make_window,  make_segments,    make_mask,    make_mask_bits,
                               make_bias,    make_bias_scales, make_softcap, make_slopes,
                               make_dropout, make_sinks,       make_weights};

/* The walk over the keys needs the options of the first IN_WALK makers. Sinks and weights come
 * after the walk. */
enum { MAKERS = sizeof makers / sizeof makers[0], IN_WALK = MAKERS - 2 };

static void make_all(struct call *c)
{
    for (int i = 0; i < MAKERS; i++)
        makers[i](c);
}

static void make_state(struct call *c)
{
    c->args.out.data = NULL;
    c->args.lse.data = NULL;
    for (int t = STATE_MAX; t <= STATE_OUT; t++)
        give(c, t);
}

/* Makes a call that writes a state and has every option of `makers` except sinks and weights. The
 * library refuses sinks or weights in a call that writes a state. */
static void make_all_of_state(struct call *c)
{
    for (int i = 0; i < IN_WALK; i++)
        makers[i](c);
    make_state(c);
}

static void set_strides(attnkit_tensor *t, int64_t row_bytes)
{
    t->layout = ATTNKIT_STRIDED;
    t->strides[2] = row_bytes;
    t->strides[1] = Q_LEN * row_bytes;
    t->strides[0] = Q_HEADS * Q_LEN * row_bytes;
}

/* Makes a call with masks, and sets their dense strides explicitly. */
static void make_strided_masks(struct call *c)
{
    make_masks(c);
    set_strides(&c->groups.visibility.mask, KV_LEN);
    set_strides(&c->groups.visibility.mask_bits, BITS_BYTES);
    set_strides(&c->groups.scores.bias, 4 * KV_LEN);
}

static void set_key_strides(attnkit_tensor *t, int64_t row_bytes)
{
    t->layout = ATTNKIT_STRIDED;
    t->strides[2] = row_bytes;
    t->strides[1] = KV_LEN * row_bytes;
    t->strides[0] = KV_HEADS * KV_LEN * row_bytes;
}

/* Makes a call with masks and weights, and sets the dense strides of all tensors explicitly. */
static void make_strided(struct call *c)
{
    make_strided_masks(c);
    make_weights(c);
    set_strides(&c->args.q, 4 * HEAD_DIM);
    set_key_strides(&c->args.k, 4 * HEAD_DIM);
    set_key_strides(&c->args.v, 4 * VALUE_DIM);
    set_strides(&c->args.out, 4 * VALUE_DIM);
    set_strides(&c->args.lse, 4);
    set_strides(&c->groups.weights.weights, 4 * KV_LEN);
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

/* Checks that the workspace query and the call accept c. Returns the options in the form that the
 * plan of the call holds. */
static const struct extras *accepted(const struct call *c)
{
    static struct attention a;
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    memset(&a, PATTERN, sizeof a);
    expect_query(c);
    attnkit_status status = attnkit_attention_problem(&c->args, &a, message);
    fail_unless(status == ATTNKIT_OK, "check", "", status, message);
    status = attnkit_attention(&c->args, &c->exec, message);
    fail_unless(status == ATTNKIT_OK, "call", "", status, message);
    return &a.extras;
}

static void expect_strides(struct strides s, int64_t batch, int64_t head, int64_t row)
{
    assert_int_equal(s.batch, batch);
    assert_int_equal(s.head, head);
    assert_int_equal(s.row, row);
}

/* --- Tables of refusals ------------------------------------------------------------------ */

/* A field of the call and its new value. */
struct change {
    size_t field, size; /* size is 0 if there is no change */
    int64_t value;
    double real;
    bool is_real;
};

#define SET(name, value)                                                                           \
    {                                                                                              \
        offsetof(struct call, name), sizeof(((struct call *)0)->name), value, 0.0, false           \
    }
#define SET_REAL(name, value)                                                                      \
    {                                                                                              \
        offsetof(struct call, name), sizeof(double), 0, value, true                                \
    }

struct refusal {
    const char *text; /* a part of the message */
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

/* Checks that the call and the workspace query refuse each fault of the table. The library can see
 * these faults without reading a tensor or an array. */
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
        expect_query(c);
    }
}

/* --- All options together ---------------------------------------------------------------- */

static void each_option_is_accepted_alone_and_with_all_others(void **state)
{
    (void)state;
    const struct extras *x = accepted(good_call());
    assert_false(x->any || x->window || x->drops || x->adjust.capped);
    assert_true(!x->q_docs && !x->kv_docs && !x->bytes.first && !x->bits.first && !x->bias.first);
    assert_true(!x->slopes && !x->sinks && !x->seeds && !x->weights && !x->bias_scales);
    assert_int_equal(x->weights_kind, WEIGHTS_NONE);
    for (int i = 0; i < MAKERS; i++)
        assert_int_equal(accepted(made_call(makers[i]))->any, i < IN_WALK);
    assert_true(accepted(made_call(make_all))->any);
    assert_true(accepted(made_call(make_all_of_state))->any);
    assert_true(accepted(made_call(make_strided_masks))->any);
    assert_true(accepted(made_call(make_strided))->any);
}

/* The workspace query only compares pointers with NULL. Here the pointers point to no memory. */
static void the_query_reads_nothing_through_pointers(void **state)
{
    (void)state;
    struct call *c = made_call(make_all);
    for (int t = 0; t < TENSORS; t++)
        if (data_of(c, t))
            set_data(c, t, (const void *)(uintptr_t)1);
    expect_query(c);
}

static void the_query_does_not_read_arrays_and_masks(void **state)
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

static void calls_with_nothing_to_do_need_no_pointers(void **state)
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

/* Without keys, the rows of masks and weights have no elements. */
static void without_keys_masks_and_weights_may_be_null(void **state)
{
    (void)state;
    struct call *c = made_call(make_all);
    c->args.kv_len = 0;
    accepted(c);
    for (int t = MASK; t <= KV_SEGMENTS; t++)
        set_data(c, t, NULL);
    set_data(c, WEIGHTS, NULL);
    give(c, Q_SEGMENTS);
    const struct extras *x = accepted(c);
    assert_true(!x->q_docs && !x->weights && x->weights_kind == WEIGHTS_NONE);
    c = made_call(make_strided);
    c->args.kv_len = 0;
    memset(c->groups.weights.weights.strides, 0, sizeof c->groups.weights.weights.strides);
    accepted(c);
}

/* --- Window ------------------------------------------------------------------------------ */

/* A call has a window if it points to a window. Bounds of 0 are valid bounds. */
static void a_call_has_a_window_if_it_points_to_one(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->groups.window.left = -2;
    assert_false(accepted(c)->window);
    c = made_call(make_window);
    groups_set_window(&c->args, &c->groups, 0, 0, 0);
    const struct extras *x = accepted(c);
    assert_true(x->any && x->window && x->has_right);
    assert_true(x->left == 0 && x->right == 0 && x->keep_first == 0);
}

static void negative_windows_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"window.left is -2: must be at least -1; -1 is no bound on this side",
         {SET(groups.window.left, -2)}},
        {"window.right is -3: must be at least -1; -1 is no bound on this side",
         {SET(groups.window.right, -3)}},
        {"window.right is -9223372036854775808: must be", {SET(groups.window.right, INT64_MIN)}},
        {"window.keep_first is -1: must be at least 0", {SET(groups.window.keep_first, -1)}},
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
        c->groups.window.left = c->groups.window.right = sizes[i];
        c->groups.window.keep_first = bound;
        const struct extras *x = accepted(c);
        assert_true(x->window && x->left == bound && x->keep_first == bound);
        assert_int_equal(x->has_right, sizes[i] >= 0);
        assert_true(!x->has_right || x->right == bound);
        c->groups.window.right = 7;
        x = accepted(c);
        assert_true(x->left == bound && x->has_right && x->right == 7);
    }
}

static void attend(struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_attention(&c->args, &c->exec, message);
    fail_unless(status == ATTNKIT_OK, "call", "", status, message);
}

/* In the call with a window, the positions are near -2^63, so that the largest bound reaches only
 * the first keys. The causal call sees the same keys. */
static void the_largest_bound_is_still_a_bound(void **state)
{
    (void)state;
    static char out[ROOM];
    for (int bounded = 0; bounded < 2; bounded++) {
        struct call *c = good_call();
        for (int i = 0; i < ROOM / 4; i++)
            ((float *)c->v)[i] = (float)i;
        c->args.align = ATTNKIT_ALIGN_OFFSETS;
        c->args.q_offsets.data = c->q_offsets;
        c->args.flags = bounded ? 0 : ATTNKIT_CAUSAL;
        c->q_offsets[0] = bounded ? INT64_MIN + 3 : 2;
        c->q_offsets[1] = bounded ? INT64_MIN : -1; /* row 0 of this entry sees no key */
        if (bounded)
            groups_set_window(&c->args, &c->groups, -1, INT64_MAX, 0);
        attend(c);
        if (!bounded)
            memcpy(out, c->tensors[OUT], sizeof out);
        assert_memory_equal(out, c->tensors[OUT], sizeof out);
    }
}

static void options_that_use_positions_need_an_align(void **state)
{
    (void)state;
    const struct refusal none = {
        "align is ATTNKIT_ALIGN_NONE: a call with a window must say where row 0 stands",
        {SET(args.align, ATTNKIT_ALIGN_NONE)}};
    expect_shape_refusals(&none, 1, make_window, ATTNKIT_BAD_ARGUMENT);
    const struct refusal slopes = {"align is ATTNKIT_ALIGN_NONE: a call with alibi_slopes must",
                                   {SET(args.align, ATTNKIT_ALIGN_NONE)}};
    expect_shape_refusals(&slopes, 1, make_slopes, ATTNKIT_BAD_ARGUMENT);
    const struct refusal dropout = {"align is ATTNKIT_ALIGN_NONE: a call with dropout must",
                                    {SET(args.align, ATTNKIT_ALIGN_NONE)}};
    expect_shape_refusals(&dropout, 1, make_dropout, ATTNKIT_BAD_ARGUMENT);
}

/* The library accepts an offset if offset + q_len is below 2^63, and if offset - first_key is at
 * least -2^63. These bounds also hold for calls that are not causal. */
static void positions_that_do_not_overflow_are_accepted(void **state)
{
    (void)state;
    static const int64_t offsets[] = {INT64_MIN, -Q_LEN, INT64_MAX - Q_LEN};
    struct call *c = made_call(make_all);
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    c->args.q_offsets.data = c->q_offsets;
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
    c->args.q_offsets.data = c->q_offsets;
    c->groups.states.first_key = ATTNKIT_CHUNK_KEYS;
    c->q_offsets[0] = INT64_MIN + ATTNKIT_CHUNK_KEYS;
    accepted(c);
    c->q_offsets[0]--;
    expect_refusal(c, ATTNKIT_OVERFLOW, "q_offsets[0] is -9223372036854775297: must be at least");
}

/* --- Segments and masks ----------------------------------------------------------------- */

static void segments_of_queries_or_keys_alone_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"q_segment_ids is NULL, but kv_segment_ids is given: must be both or none",
         {SET(groups.visibility.q_segment_ids, 0)}},
        {"kv_segment_ids is NULL, but q_segment_ids is given: must be both or none",
         {SET(groups.visibility.kv_segment_ids, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_segments, ATTNKIT_BAD_ARGUMENT);
}

static void masks_without_a_kind_and_kinds_without_a_mask_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"mask is given, but mask_kind is ATTNKIT_MASK_NONE",
         {SET(groups.visibility.mask_kind, 0)}},
        {"mask is NULL, but mask_kind is 1", {SET(groups.visibility.mask.data, 0)}},
        {"mask_bits is given, but mask_bits_kind is ATTNKIT_MASK_NONE",
         {SET(groups.visibility.mask_bits_kind, 0)}},
        {"mask_bits is NULL, but mask_bits_kind is 2", {SET(groups.visibility.mask_bits.data, 0)}},
        {"bias.type is 1, but bias is NULL",
         {SET(groups.scores.bias.data, 0), SET(groups.scores.bias.type, ATTNKIT_F16)}},
        {"bias.type is 2, but bias is NULL",
         {SET(groups.scores.bias.data, 0), SET(groups.scores.bias.type, ATTNKIT_BF16)}},
    };
    expect_shape_refusals(table, COUNT(table), make_masks, ATTNKIT_BAD_ARGUMENT);
}

/* bias_scales need a bias, unless the call has no rows or no keys. */
static void bias_scales_without_a_bias_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"bias_scales is given, but bias is NULL", {SET(groups.scores.bias.data, 0)}},
        {"bias_scales is given, but bias is NULL",
         {SET(groups.scores.bias.data, 0), SET(groups.visibility.mask_bits_columns, 5)}},
    };
    expect_shape_refusals(table, COUNT(table), make_all, ATTNKIT_BAD_ARGUMENT);
    struct call *c = made_call(make_bias_scales);
    assert_true(accepted(c)->bias_scales == c->groups.scores.bias_scales);
    c->groups.scores.bias.data = NULL;
    c->args.kv_len = 0;
    accepted(c);
    c = made_call(make_bias_scales);
    c->groups.scores.bias.data = NULL;
    c->args.batch = 0;
    accepted(c);
}

static void unknown_kinds_and_types_are_unsupported(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"bias.type is 64: must be ATTNKIT_F32 (0)", {SET(groups.scores.bias.type, ATTNKIT_BOOL)}},
        {"weights.type is 1: must be ATTNKIT_F32 (0)",
         {SET(groups.weights.weights.type, ATTNKIT_F16)}},
        {"mask_kind is 3: not known", {SET(groups.visibility.mask_kind, 3)}},
        {"mask_kind is -1: not known", {SET(groups.visibility.mask_kind, -1)}},
        {"mask_bits_kind is 3: not known", {SET(groups.visibility.mask_bits_kind, 3)}},
        {"mask_bits_kind is -2147483648: not known",
         {SET(groups.visibility.mask_bits_kind, INT32_MIN)}},
        {"mask_kind is 3: not known",
         {SET(groups.visibility.mask_kind, 3), SET(groups.visibility.mask.data, 0)}},
        {"bias.type is 3: must be ATTNKIT_F32 (0), ATTNKIT_F16 (1) or ATTNKIT_BF16 (2)",
         {SET(groups.scores.bias.type, ATTNKIT_I8)}},
        {"bias.type is -1: must be ATTNKIT_F32 (0)", {SET(groups.scores.bias.type, -1)}},
        {"bias.type is 4: must be ATTNKIT_F32 (0)",
         {SET(groups.scores.bias.type, 4), SET(groups.scores.bias.data, 0)}},
        {"weights.kind is 5: not known", {SET(groups.weights.kind, 5)}},
        {"weights.kind is -1: not known",
         {SET(groups.weights.kind, -1), SET(groups.weights.weights.data, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_all, ATTNKIT_UNSUPPORTED);
    for (size_t i = 0; i < COUNT(table); i++) { /* a bad call with nothing to do is refused */
        struct call *c = changed_call(&table[i], make_all);
        c->args.batch = 0;
        expect_refusal(c, ATTNKIT_UNSUPPORTED, table[i].text);
    }
}

static void masks_of_other_types_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"mask.type is 0: must be ATTNKIT_BOOL (64)", {SET(groups.visibility.mask.type, 0)}},
        {"mask.type is 65: must be ATTNKIT_BOOL (64)",
         {SET(groups.visibility.mask.type, ATTNKIT_BITS)}},
        {"mask_bits.type is 0: must be ATTNKIT_BITS (65)",
         {SET(groups.visibility.mask_bits.type, 0)}},
        {"mask_bits.type is 64: must be ATTNKIT_BITS (65)",
         {SET(groups.visibility.mask_bits.type, ATTNKIT_BOOL)}},
    };
    expect_shape_refusals(table, COUNT(table), make_masks, ATTNKIT_BAD_ARGUMENT);
}

static void kinds_of_masks_reach_the_plan(void **state)
{
    (void)state;
    struct call *c = made_call(make_masks);
    const struct extras *x = accepted(c);
    assert_false(x->bytes.ignores);
    assert_true(x->bits.ignores);
    assert_true(x->bytes.first == c->groups.visibility.mask.data &&
                x->bits.first == c->groups.visibility.mask_bits.data);
    c->groups.visibility.mask_kind = ATTNKIT_MASK_IGNORE;
    c->groups.visibility.mask_bits_kind = ATTNKIT_MASK_ATTEND;
    x = accepted(c);
    assert_true(x->bytes.ignores);
    assert_false(x->bits.ignores);
}

static void columns_are_at_most_the_keys(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"mask_columns is 11: must be between 0 and kv_len (10)",
         {SET(groups.visibility.mask_columns, 11)}},
        {"mask_columns is -1: must be between 0 and kv_len (10)",
         {SET(groups.visibility.mask_columns, -1)}},
        {"mask_bits_columns is 9223372036854775807: must be",
         {SET(groups.visibility.mask_bits_columns, INT64_MAX)}},
        {"mask_bits_columns is 16: must be between",
         {SET(groups.visibility.mask_bits_columns, 16)}},
        {"bias_columns is -9223372036854775808: must be",
         {SET(groups.scores.bias_columns, INT64_MIN)}},
        {"bias_columns is 11: must be between 0 and kv_len (10)",
         {SET(groups.scores.bias_columns, 11)}},
        {"mask_columns is 1: must be between 0 and kv_len (0)",
         {SET(groups.visibility.mask_columns, 1), SET(args.kv_len, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_masks, ATTNKIT_BAD_ARGUMENT);
    const struct refusal absent[] = {
        {"mask_columns is 5, but mask is NULL", {SET(groups.visibility.mask_columns, 5)}},
        {"mask_bits_columns is 5, but mask_bits is NULL",
         {SET(groups.visibility.mask_bits_columns, 5)}},
        {"bias_columns is 5, but bias is NULL", {SET(groups.scores.bias_columns, 5)}},
        {"bias_columns is -5: must be between 0 and kv_len", {SET(groups.scores.bias_columns, -5)}},
    };
    expect_shape_refusals(absent, COUNT(absent), NULL, ATTNKIT_BAD_ARGUMENT);
}

static void dense_rows_of_masks_have_mask_columns_elements(void **state)
{
    (void)state;
    for (int64_t columns = 0; columns <= KV_LEN; columns++) {
        struct call *c = made_call(make_masks);
        const int64_t n = columns ? columns : KV_LEN, bytes = (n + 7) / 8, half = 2 * n;
        c->groups.visibility.mask_columns = c->groups.visibility.mask_bits_columns =
            c->groups.scores.bias_columns = columns;
        c->groups.scores.bias.type = ATTNKIT_BF16;
        const struct extras *x = accepted(c);
        expect_strides(x->bytes.stride, Q_HEADS * Q_LEN * n, Q_LEN * n, n);
        expect_strides(x->bits.stride, Q_HEADS * Q_LEN * bytes, Q_LEN * bytes, bytes);
        expect_strides(x->bias.stride, Q_HEADS * Q_LEN * half, Q_LEN * half, half);
        assert_true(x->bytes.columns == n && x->bits.columns == n && x->bias.columns == n);
        assert_int_equal(x->bias.type, TYPE_BF16);
    }
}

/* Masks and arrays of packed sequences have no batch dimension: the rows, or the keys, of all
 * entries are one tensor. */
static void packed_masks_and_arrays_have_no_batch(void **state)
{
    (void)state;
    struct call *c = made_call(make_all);
    c->starts[0] = c->starts[1] = 0;
    c->starts[2] = Q_LEN;
    c->groups.storage.cu_seqlens_q.data = c->starts;
    const struct extras *x = accepted(c);
    assert_int_equal(x->bytes.stride.head, Q_LEN * KV_LEN);
    assert_int_equal(x->weights_stride.row, 4 * KV_LEN);
    /* Without packing, the mask of the second batch entry would begin at this address. */
    c->args.out.data = memory_of(c, MASK) + tensor_bytes[MASK] / BATCH;
    accepted(c);
    c->args.out.data = memory_of(c, Q_SEGMENTS) + tensor_bytes[Q_SEGMENTS] / BATCH;
    accepted(c);
    c->args.out.data = memory_of(c, Q_SEGMENTS) + tensor_bytes[Q_SEGMENTS] / BATCH - 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps q_segment_ids");
    c = made_call(make_segments);
    c->starts[0] = c->starts[1] = 0;
    c->starts[2] = KV_LEN;
    c->groups.storage.cu_seqlens_kv.data = c->starts;
    c->args.out.data = memory_of(c, KV_SEGMENTS) + tensor_bytes[KV_SEGMENTS] / BATCH;
    accepted(c);
    c->args.out.data = memory_of(c, KV_SEGMENTS) + tensor_bytes[KV_SEGMENTS] / BATCH - 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps kv_segment_ids");
}

/* --- Strides ----------------------------------------------------------------------------- */

static void strides_of_masks_without_their_bit_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"mask.strides[0] (batch) is 8, but mask.layout lacks ATTNKIT_STRIDED",
         {SET(groups.visibility.mask.strides[0], 8)}},
        {"mask_bits.strides[1] (head) is -1, but mask_bits.layout lacks ATTNKIT_STRIDED",
         {SET(groups.visibility.mask_bits.strides[1], -1)}},
        {"bias.strides[2] (row) is 4, but bias.layout lacks ATTNKIT_STRIDED",
         {SET(groups.scores.bias.strides[2], 4)}},
        {"weights.strides[2] (row) is 4, but weights.layout lacks ATTNKIT_STRIDED",
         {SET(groups.weights.weights.strides[2], 4)}},
        {"weights.strides[2] (row) is 4, but weights.layout lacks ATTNKIT_STRIDED",
         {SET(groups.visibility.mask.layout, ATTNKIT_STRIDED),
          SET(groups.weights.weights.strides[2], 4)}},
    };
    expect_shape_refusals(table, COUNT(table), make_all, ATTNKIT_BAD_ARGUMENT);
}

static void bad_strides_of_masks_are_refused(void **state)
{
    (void)state;
    const struct refusal odd[] = {
        {"bias.strides[0] (batch) is 482: must be a multiple of 4",
         {SET(groups.scores.bias.strides[0], 482)}},
        {"bias.strides[2] (row) is -1: must be a multiple of 2",
         {SET(groups.scores.bias.type, ATTNKIT_F16), SET(groups.scores.bias.strides[2], -1)}},
    };
    expect_shape_refusals(odd, COUNT(odd), make_strided_masks, ATTNKIT_BAD_ARGUMENT);
    const struct refusal large[] = {
        {"mask.strides[1] (head) is 4611686018427387904: too large for size 4",
         {SET(groups.visibility.mask.strides[1], INT64_C(1) << 62)}},
        {"mask_bits.strides[2] (row) is -9223372036854775808: too large for size 3",
         {SET(groups.visibility.mask_bits.strides[2], INT64_MIN)}},
        {"bias.strides[0] (batch) is -9223372036854775808: too large",
         {SET(groups.scores.bias.strides[0], INT64_MIN)}},
    };
    expect_shape_refusals(large, COUNT(large), make_strided_masks, ATTNKIT_OVERFLOW);
    const struct refusal far[] = {
        {"mask leaves the address space",
         {SET(groups.visibility.mask.strides[0], -(INT64_C(1) << 60))}},
        {"mask_bits leaves the address space",
         {SET(groups.visibility.mask_bits.strides[0], -(INT64_C(1) << 60))}},
        {"bias leaves the address space",
         {SET(groups.scores.bias.strides[0], -(INT64_C(1) << 60))}},
        {"q_segment_ids leaves the address space",
         {SET(groups.visibility.q_segment_ids, -16), SET(groups.visibility.kv_segment_ids, 64)}},
        {"alibi_slopes leaves the address space",
         {SET(groups.scores.alibi_slopes, -8), SET(args.align, ATTNKIT_ALIGN_UPPER_LEFT)}},
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
            c->groups.visibility.mask.strides[axis] = c->groups.visibility.mask_bits.strides[axis] =
                strides[i];
            c->groups.scores.bias.strides[axis] = strides[i] - strides[i] % 4;
            const struct extras *x = accepted(c);
            const int64_t got[3] = {x->bytes.stride.batch, x->bytes.stride.head,
                                    x->bytes.stride.row};
            assert_int_equal(got[axis], strides[i]);
        }
}

/* Each mask has strides of 0, so all query rows share one row of the mask. */
static void a_mask_of_keys_alone_is_one_row(void **state)
{
    (void)state;
    struct call *c = made_call(make_masks);
    c->groups.visibility.mask.layout = ATTNKIT_STRIDED;
    c->groups.visibility.mask_bits.layout = ATTNKIT_STRIDED;
    c->groups.scores.bias.layout = ATTNKIT_STRIDED;
    set_data(c, LSE, memory_of(c, BIAS) + 4 * KV_LEN);
    const struct extras *x = accepted(c);
    expect_strides(x->bytes.stride, 0, 0, 0);
    expect_strides(x->bits.stride, 0, 0, 0);
    expect_strides(x->bias.stride, 0, 0, 0);
    set_data(c, LSE, data_of(c, LSE) - 4);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps bias");
}

/* Each mask's own layout tells whether its strides are used. The layouts of the other masks do not
 * matter. */
static void each_mask_has_its_own_layout(void **state)
{
    (void)state;
    struct call *c = made_call(make_strided);
    c->groups.visibility.mask.strides[2] = c->groups.scores.bias.strides[1] = 0;
    const struct extras *x = accepted(c);
    assert_int_equal(x->bytes.stride.row, 0);
    assert_int_equal(x->bias.stride.head, 0);
    c = made_call(make_masks);
    c->groups.visibility.mask.layout = ATTNKIT_STRIDED;
    x = accepted(c);
    assert_int_equal(x->bytes.stride.row, 0);
    assert_int_equal(x->bits.stride.row, BITS_BYTES);
    assert_int_equal(x->bias.stride.row, 4 * KV_LEN);
    c->groups.visibility.mask.layout = 0;
    c->groups.scores.bias.layout = ATTNKIT_STRIDED;
    x = accepted(c);
    assert_int_equal(x->bytes.stride.row, KV_LEN);
    assert_int_equal(x->bias.stride.row, 0);
}

static void unknown_bits_of_layouts_are_unsupported(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"mask.layout is 0x2: mask cannot be in tiles",
         {SET(groups.visibility.mask.layout, ATTNKIT_TILED)}},
        {"mask_bits.layout is 0x5: bits 0x4 are not known",
         {SET(groups.visibility.mask_bits.layout, ATTNKIT_STRIDED | 4)}},
        {"bias.layout is 0x80000000: bits 0x80000000 are not known",
         {SET(groups.scores.bias.layout, 0x80000000)}},
        {"weights.layout is 0x2: weights cannot be in tiles",
         {SET(groups.weights.weights.layout, ATTNKIT_TILED)}},
        {"weights.flags is 0x1: bits 0x1 are not known", {SET(groups.weights.flags, 1)}},
    };
    expect_shape_refusals(table, COUNT(table), make_all, ATTNKIT_UNSUPPORTED);
}

static void strides_of_absent_masks_and_of_one_row_are_ignored(void **state)
{
    (void)state;
    struct call *c = good_call();
    attnkit_tensor *const tensors[] = {&c->groups.visibility.mask, &c->groups.visibility.mask_bits,
                                       &c->groups.scores.bias, &c->groups.weights.weights};
    for (int i = 0; i < 4; i++)
        *tensors[i] = (attnkit_tensor){.strides = {INT64_MIN + 1, INT64_MIN + 1, INT64_MIN + 1},
                                       .layout = ATTNKIT_STRIDED};
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
                made_call(t < STATE_MAX || t > STATE_OUT ? make_all : make_all_of_state);
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
    c->groups.scores.bias.type = ATTNKIT_F16;
    c->groups.scores.bias.data = memory_of(c, BIAS) + 2;
    accepted(c);
    c->groups.scores.bias.data = memory_of(c, BIAS) + 1;
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

/* Returns the largest offset, in bytes, at which an aligned output overlaps the tensor. */
static int64_t last_offset(int tensor, int output)
{
    return (tensor_bytes[tensor] - 1) / alignments[output] * alignments[output];
}

static void outputs_that_overlap_inputs_are_refused(void **state)
{
    (void)state;
    for (int output = OUT; output < INPUTS; output++)
        for (int other = INPUTS; other < TENSORS; other++) {
            const maker make = output < STATE_MAX ? make_all : make_all_of_state;
            if (!data_of(made_call(make), other))
                continue;
            expect_overlap(made_call(make), output, other, 0);
            const int64_t last = last_offset(other, output), element = alignments[output];
            expect_overlap(made_call(make), output, other, last);
            expect_overlap(made_call(make), output, other, element - tensor_bytes[output]);
            const int64_t beside[2] = {last + element, -tensor_bytes[output]};
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
        expect_overlap(made_call(make_all), output, WEIGHTS, last_offset(WEIGHTS, output));
        expect_overlap(made_call(make_all), output, WEIGHTS, 4 - tensor_bytes[output]);
    }
    const char *const inputs[3] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        struct call *c = made_call(make_weights);
        char text[32];
        set_data(c, WEIGHTS, (i == 0 ? c->q : i == 1 ? c->k : c->v) + MARGIN);
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

/* The rows of the bias have gaps that hold the rows of the weights. */
static void outputs_may_lie_in_the_gaps_of_masks(void **state)
{
    (void)state;
    struct call *c = made_call(make_strided);
    set_strides(&c->groups.scores.bias, 8 * KV_LEN);
    set_strides(&c->groups.weights.weights, 8 * KV_LEN);
    set_data(c, WEIGHTS, memory_of(c, BIAS) + 4 * KV_LEN);
    accepted(c);
    set_data(c, WEIGHTS, data_of(c, WEIGHTS) - 4);
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

/* The library remembers no tensor of an earlier call. */
static void a_workspace_may_overlap_masks_of_other_calls(void **state)
{
    (void)state;
    for (int t = INPUTS; t < TENSORS; t++) {
        struct call *c = made_call(make_all);
        set_data(c, t, workspace + 64);
        expect_refusal(c, ATTNKIT_BAD_WORKSPACE, " bytes) overlaps ");
        c = good_call();
        accepted(c);
    }
}

/* --- Sizes ------------------------------------------------------------------------------- */

/* Gives the call INT64_MAX / 2 keys. The rows of K and V have strides of 0, so that any number of
 * keys is valid. */
static void make_endless(struct call *c)
{
    groups_set_strided(&c->args, &c->groups);
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
        {"bias has 4611686018427387903 columns: must be at most 2305843009213693951",
         {SET(groups.scores.bias.data, 64)}},
        {"kv_len is 4611686018427387903: too large for a row of weights",
         {SET(groups.weights.weights.data, 64), SET(groups.weights.kind, ATTNKIT_WEIGHTS_SOFTMAX)}},
        {"kv_segment_ids has 1 x 1 x 4611686018427387903 rows of 4 bytes",
         {SET(groups.visibility.q_segment_ids, 64), SET(groups.visibility.kv_segment_ids, 64)}},
    };
    expect_shape_refusals(endless, COUNT(endless), make_endless, ATTNKIT_OVERFLOW);
    expect_query(made_call(make_endless));
    struct call *c = made_call(make_endless);
    make_masks(c);
    c->groups.scores.bias_columns = 10;
    expect_query(c);
    const struct refusal dense[] = {
        {"mask has 2 x 4 x 1000000000000 rows of 10000000 bytes",
         {SET(groups.visibility.mask.data, 64), SET(groups.visibility.mask.type, ATTNKIT_BOOL),
          SET(groups.visibility.mask_kind, ATTNKIT_MASK_ATTEND)}},
        {"mask_bits has 2 x 4 x 1000000000000 rows of 1250000 bytes",
         {SET(groups.visibility.mask_bits.data, 64),
          SET(groups.visibility.mask_bits.type, ATTNKIT_BITS),
          SET(groups.visibility.mask_bits_kind, ATTNKIT_MASK_ATTEND)}},
        {"bias has 2 x 4 x 1000000000000 rows of 20000000 bytes",
         {SET(groups.scores.bias.data, 64), SET(groups.scores.bias.type, ATTNKIT_F16)}},
        {"weights has 2 x 4 x 1000000000000 rows of 40000000 bytes",
         {SET(groups.weights.weights.data, 64), SET(groups.weights.kind, ATTNKIT_WEIGHTS_SCALED)}},
    };
    expect_shape_refusals(dense, COUNT(dense), make_long, ATTNKIT_OVERFLOW);
    expect_query(made_call(make_long));
}

/* --- Score mods -------------------------------------------------------------------------- */

static void bad_softcaps_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"softcap is -1: must be positive and finite, or 0 for none",
         {SET_REAL(groups.scores.softcap, -1.0)}},
        {"softcap is nan: must be", {SET_REAL(groups.scores.softcap, NAN)}},
        {"softcap is inf: must be", {SET_REAL(groups.scores.softcap, INFINITY)}},
        {"softcap is -inf: must be", {SET_REAL(groups.scores.softcap, -INFINITY)}},
        {"softcap is 1e+300: softcap * log2 e must be finite in binary32",
         {SET_REAL(groups.scores.softcap, 1e300)}},
        {"softcap is 3e+38: softcap * log2 e must be finite in binary32",
         {SET_REAL(groups.scores.softcap, 3e38)}},
        {"softcap is 1e-300: scale (0.5) / softcap must be finite in binary32",
         {SET_REAL(groups.scores.softcap, 1e-300)}},
        {"scale is -1e+300: scale * log2 e must be finite in binary32",
         {SET_REAL(groups.scores.softcap, 1e300), SET_REAL(args.scale, -1e300),
          SET(args.flags, ATTNKIT_SCALE_GIVEN)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
}

static void caps_become_factors_that_are_rounded_once(void **state)
{
    (void)state;
    static const double caps[] = {30.0, 50.0, 0.1, 1e-30, 2.3e38}, log2_e = 0x1.71547652b82fep+0;
    for (size_t i = 0; i < COUNT(caps); i++) {
        struct call *c = good_call();
        c->groups.scores.softcap = caps[i];
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
        c->groups.scores.softcap = none[i];
        const struct extras *x = accepted(c);
        assert_false(x->adjust.capped);
        assert_true(x->adjust.factor == (float)(0.5 * 0x1.71547652b82fep+0));
        assert_true(x->adjust.to_cap == 0.0f && x->cap == 0.0f && x->scale == 0.5f);
    }
}

static void with_a_scale_of_0_any_softcap_is_accepted(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.flags = ATTNKIT_SCALE_GIVEN;
    c->groups.scores.softcap = 1e-300;
    assert_true(accepted(c)->adjust.to_cap == 0.0f);
}

static void sinks_are_for_results(void **state)
{
    (void)state;
    struct call *c = made_call(make_state);
    give(c, SINKS);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "sinks and state_out are both given");
    expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, "sinks and state_out are both given");
    c = made_call(make_sinks);
    char *const before = c->q + MARGIN;
    c->groups.states.state_in =
        (attnkit_state){(float *)before, (double *)before, (double *)before};
    assert_true(accepted(c)->sinks == c->groups.scores.sinks);
}

/* --- Dropout ----------------------------------------------------------------------------- */

static void bad_dropout_rates_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"dropout is 1: must be at least 0, below 1", {SET_REAL(groups.scores.dropout, 1.0)}},
        {"dropout is -0.5: must be at least 0, below 1", {SET_REAL(groups.scores.dropout, -0.5)}},
        {"dropout is 1.5: must be", {SET_REAL(groups.scores.dropout, 1.5)}},
        {"dropout is nan: must be", {SET_REAL(groups.scores.dropout, NAN)}},
        {"dropout is inf: must be", {SET_REAL(groups.scores.dropout, INFINITY)}},
        {"dropout is -inf: must be", {SET_REAL(groups.scores.dropout, -INFINITY)}},
        {"dropout_seeds is NULL, but dropout is 0.25", {SET(groups.scores.dropout_seeds, 0)}},
        {"dropout_seeds is given, but dropout is 0", {SET_REAL(groups.scores.dropout, 0.0)}},
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
        c->groups.scores.dropout = table[i].rate;
        const struct extras *x = accepted(c);
        assert_true(x->drops && x->any && x->seeds == c->groups.scores.dropout_seeds);
        assert_true(x->dropped == table[i].dropped);
        assert_true(x->keep_factor == table[i].keep_factor);
    }
    struct call *c = good_call();
    c->groups.scores.dropout = -0.0;
    assert_false(accepted(c)->drops);
}

/* --- Weights ----------------------------------------------------------------------------- */

static void weights_and_their_kind_come_together(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"weights is given, but weights.kind is ATTNKIT_WEIGHTS_NONE",
         {SET(groups.weights.kind, 0)}},
        {"weights is NULL, but weights.kind is 1", {SET(groups.weights.weights.data, 0)}},
        {"weights is NULL, but weights.kind is 4",
         {SET(groups.weights.weights.data, 0), SET(groups.weights.kind, 4)}},
    };
    expect_shape_refusals(table, COUNT(table), make_weights, ATTNKIT_BAD_ARGUMENT);
    for (int kind = ATTNKIT_WEIGHTS_SOFTMAX; kind <= ATTNKIT_WEIGHTS_SCALED; kind++) {
        struct call *c = made_call(make_weights);
        c->groups.weights.kind = kind;
        const struct extras *x = accepted(c);
        assert_true((int)x->weights_kind == kind &&
                    x->weights == (char *)c->groups.weights.weights.data);
        expect_strides(x->weights_stride, Q_HEADS * Q_LEN * 4 * KV_LEN, Q_LEN * 4 * KV_LEN,
                       4 * KV_LEN);
    }
}

static void weights_are_not_for_parts_of_the_keys(void **state)
{
    (void)state;
    struct call *c = made_call(make_weights);
    make_state(c);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "weights and state_out are both given");
    expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, "weights and state_out are both given");
    const struct refusal table[] = {
        {"weights and state_in are both given",
         {SET(groups.states.state_in.max, 64), SET(groups.states.state_in.sum, 64),
          SET(groups.states.state_in.out, 64)}},
        {"weights is given, but first_key is 512",
         {SET(groups.states.first_key, ATTNKIT_CHUNK_KEYS)}},
    };
    expect_shape_refusals(table, COUNT(table), make_weights, ATTNKIT_BAD_ARGUMENT);
}

static void strides_of_weights_nest(void **state)
{
    (void)state;
    struct call *c = made_call(make_strided);
    set_strides(&c->groups.weights.weights, 4 * KV_LEN + 4);
    expect_strides(accepted(c)->weights_stride, Q_HEADS * Q_LEN * (4 * KV_LEN + 4),
                   Q_LEN * (4 * KV_LEN + 4), 4 * KV_LEN + 4);
    const struct refusal table[] = {
        {"rows of weights (40 bytes) overlap or interleave",
         {SET(groups.weights.weights.strides[2], 36)}},
        {"rows of weights (40 bytes) overlap or interleave",
         {SET(groups.weights.weights.strides[1], 0)}},
        {"rows of weights (40 bytes) overlap or interleave",
         {SET(groups.weights.weights.strides[0], 4)}},
    };
    expect_shape_refusals(table, COUNT(table), make_strided, ATTNKIT_BAD_ARGUMENT);
    const struct refusal odd = {"weights.strides[2] (row) is 42: must be a multiple of 4",
                                {SET(groups.weights.weights.strides[2], 42)}};
    expect_shape_refusals(&odd, 1, make_strided, ATTNKIT_BAD_ARGUMENT);
    const struct refusal large = {"weights.strides[0] (batch) is 9223372036854775804: too large",
                                  {SET(groups.weights.weights.strides[0], INT64_MAX - 3)}};
    expect_shape_refusals(&large, 1, make_strided, ATTNKIT_OVERFLOW);
}

/* --- Workspace --------------------------------------------------------------------------- */

/* Makes K and V binary16. Rows of binary16 need scratch, and so do masks. */
static void make_halves(struct call *c)
{
    c->args.k.type = c->args.v.type = ATTNKIT_F16;
}

static void make_wide_all(struct call *c)
{
    make_all(c);
    make_halves(c);
}

static const maker hungry[] = {make_window, make_segments, make_mask,   make_mask_bits,
                               make_bias,   make_softcap,  make_slopes, make_dropout,
                               make_sinks,  make_weights,  make_all,    make_wide_all};

/* Returns the bound that attnkit.h gives for the workspace of one thread of this call, in bytes. */
static size_t workspace_bound(const struct call *c)
{
    const int64_t head_dim = c->args.head_dim, value_dim = c->args.value_dim;
    const attnkit_visibility *const seen = &c->groups.visibility;
    const attnkit_score_mods *const scores = &c->groups.scores;
    const bool masks =
        seen->q_segment_ids || seen->mask.data || seen->mask_bits.data || scores->bias.data;
    int64_t bytes = 4 * (290 * head_dim + 780 * value_dim + 10000) + 4096;
    if (c->args.k.type != ATTNKIT_F32 || masks || (seen->window && seen->window->keep_first))
        bytes += 4 * 129 * (head_dim + value_dim);
    if (masks || seen->window || scores->softcap > 0.0 || scores->alibi_slopes ||
        scores->dropout > 0.0)
        bytes += 73728;
    if (c->groups.weights.weights.data)
        bytes += 4 * (192 * head_dim + 25000);
    return (size_t)(head_dim + 3 * value_dim <= 283 ? 2 * bytes : bytes);
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
                    assert_true(workspace_needed(c) <= workspace_bound(c));
            }
}

/* The workspace must not shrink as lengths grow, so that a workspace for the longest of several
 * calls is enough for all of them. */
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
        cmocka_unit_test(each_option_is_accepted_alone_and_with_all_others),
        cmocka_unit_test(the_query_reads_nothing_through_pointers),
        cmocka_unit_test(the_query_does_not_read_arrays_and_masks),
        cmocka_unit_test(calls_with_nothing_to_do_need_no_pointers),
        cmocka_unit_test(without_keys_masks_and_weights_may_be_null),
        cmocka_unit_test(a_call_has_a_window_if_it_points_to_one),
        cmocka_unit_test(negative_windows_are_refused),
        cmocka_unit_test(windows_of_any_size_are_taken),
        cmocka_unit_test(the_largest_bound_is_still_a_bound),
        cmocka_unit_test(options_that_use_positions_need_an_align),
        cmocka_unit_test(positions_that_do_not_overflow_are_accepted),
        cmocka_unit_test(segments_of_queries_or_keys_alone_are_refused),
        cmocka_unit_test(masks_without_a_kind_and_kinds_without_a_mask_are_refused),
        cmocka_unit_test(bias_scales_without_a_bias_are_refused),
        cmocka_unit_test(unknown_kinds_and_types_are_unsupported),
        cmocka_unit_test(masks_of_other_types_are_refused),
        cmocka_unit_test(kinds_of_masks_reach_the_plan),
        cmocka_unit_test(columns_are_at_most_the_keys),
        cmocka_unit_test(dense_rows_of_masks_have_mask_columns_elements),
        cmocka_unit_test(packed_masks_and_arrays_have_no_batch),
        cmocka_unit_test(strides_of_masks_without_their_bit_are_refused),
        cmocka_unit_test(bad_strides_of_masks_are_refused),
        cmocka_unit_test(masks_may_repeat_overlap_and_go_backwards),
        cmocka_unit_test(a_mask_of_keys_alone_is_one_row),
        cmocka_unit_test(each_mask_has_its_own_layout),
        cmocka_unit_test(unknown_bits_of_layouts_are_unsupported),
        cmocka_unit_test(strides_of_absent_masks_and_of_one_row_are_ignored),
        cmocka_unit_test(elements_at_odd_addresses_are_refused),
        cmocka_unit_test(outputs_that_overlap_inputs_are_refused),
        cmocka_unit_test(outputs_that_overlap_weights_are_refused),
        cmocka_unit_test(inputs_may_overlap_each_other),
        cmocka_unit_test(outputs_may_lie_in_the_gaps_of_masks),
        cmocka_unit_test(a_workspace_inside_an_extra_is_refused),
        cmocka_unit_test(a_workspace_may_overlap_masks_of_other_calls),
        cmocka_unit_test(sizes_whose_products_leave_63_bits_are_refused),
        cmocka_unit_test(bad_softcaps_are_refused),
        cmocka_unit_test(caps_become_factors_that_are_rounded_once),
        cmocka_unit_test(without_a_cap_the_factor_is_the_scale),
        cmocka_unit_test(with_a_scale_of_0_any_softcap_is_accepted),
        cmocka_unit_test(sinks_are_for_results),
        cmocka_unit_test(bad_dropout_rates_are_refused),
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
