/* SPDX-License-Identifier: Apache-2.0
 *
 * The public call of attention with bad and odd arguments. The library refuses a call that it
 * cannot compute: it returns the documented status, and writes nothing but a message that names the
 * argument and its value. A call that only looks odd has the reference's result. The tests change a
 * small valid call.
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
#include <unistd.h>

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "kernels/attention/keys.h"
#include "kernels/scalar/reference.h"
#include "attnkit.h"
#include "tests/support/random.h"

enum {
    BATCH = 2,
    Q_HEADS = 4,
    KV_HEADS = 2,
    Q_LEN = 3,
    KV_LEN = 5,
    HEAD_DIM = 4,
    VALUE_DIM = 6,
    Q_ROWS = BATCH * Q_HEADS * Q_LEN,
    KV_ROWS = BATCH * KV_HEADS * KV_LEN,

    ROOM = 8192,   /* floats for each tensor */
    MARGIN = 1024, /* how many of the ROOM floats lie before a tensor's first element */
    PATTERN = 0xa5,
};

/* A call and all its memory except the workspace. A refused call may change none of this memory. */
struct call {
    attnkit_attention_args args;
    attnkit_exec exec;
    attnkit_visibility visibility; /* in some tests, args.visibility points here */
    int64_t kv_lens[BATCH], q_offsets[BATCH];
    float q[ROOM], k[ROOM], v[ROOM], out[ROOM], lse[ROOM];
};

static char workspace[1 << 20];

static void fill(float *x, uint64_t seed)
{
    for (int i = 0; i < ROOM; i++)
        x[i] = random_uniform(&seed);
}

/* Returns the valid call. Its memory is overwritten when this function is called again. */
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
    attnkit_visibility_init(&c.visibility);
    fill(c.q, 1);
    fill(c.k, 2);
    fill(c.v, 3);
    return &c;
}

static void set_strides(attnkit_tensor *t, int64_t heads, int64_t rows, int64_t row_bytes)
{
    t->layout = ATTNKIT_STRIDED;
    t->strides[2] = row_bytes;
    t->strides[1] = rows * row_bytes;
    t->strides[0] = heads * rows * row_bytes;
}

/* Makes the valid call with explicit dense strides. */
static struct call *good_strided_call(void)
{
    struct call *c = good_call();
    set_strides(&c->args.q, Q_HEADS, Q_LEN, HEAD_DIM * 4);
    set_strides(&c->args.k, KV_HEADS, KV_LEN, HEAD_DIM * 4);
    set_strides(&c->args.v, KV_HEADS, KV_LEN, VALUE_DIM * 4);
    set_strides(&c->args.out, Q_HEADS, Q_LEN, VALUE_DIM * 4);
    set_strides(&c->args.lse, Q_HEADS, Q_LEN, 4);
    return c;
}

static void give_kv_lens(struct call *c, const int64_t *kv_lens)
{
    c->visibility.kv_lens.data = kv_lens;
    c->args.visibility = &c->visibility;
}

/* Indices of the tensors of a call, for loops over all tensors. */
enum { OUT, LSE, Q, K, V, TENSORS };

static const char *const tensor_names[TENSORS] = {"out", "lse", "q", "k", "v"};
static const char *const axis_names[3] = {"batch", "head", "row"};

/* The size of each dense tensor in bytes. */
static const int64_t tensor_bytes[TENSORS] = {
    4 * Q_ROWS * VALUE_DIM, 4 * Q_ROWS, 4 * Q_ROWS *HEAD_DIM, 4 * KV_ROWS *HEAD_DIM,
    4 * KV_ROWS *VALUE_DIM,
};

static attnkit_tensor *tensor_of(struct call *c, int tensor)
{
    attnkit_tensor *const tensors[TENSORS] = {&c->args.out, &c->args.lse, &c->args.q, &c->args.k,
                                              &c->args.v};
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
    const attnkit_status silent = attnkit_attention_workspace(&c->args, &c->exec, &bytes, NULL);
    fail_unless(silent == expected, "query without message", text, silent, message);
    fail_unless(bytes == 12345, "bytes have changed", text, status, message);
}

static void expect_query(const struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    size_t bytes;
    const attnkit_status status = attnkit_attention_workspace(&c->args, &c->exec, &bytes, message);
    fail_unless(status == ATTNKIT_OK && message[0] == '\0', "query", "", status, message);
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
                attnkit_reference_row(a, b, g, r, out, &lse);
                assert_memory_equal(out_row(a, place_of_row(a, b, g, r)), out,
                                    (size_t)a->value_dim * sizeof *out);
                if (a->lse)
                    assert_memory_equal(lse_row(a, place_of_row(a, b, g, r)), &lse, sizeof lse);
            }
    free(out);
}

static void expect_ok(struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_attention(&c->args, &c->exec, message);
    fail_unless(status == ATTNKIT_OK && message[0] == '\0', "call", "", status, message);
}

static void expect_result(struct call *c)
{
    expect_query(c);
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

static struct call *changed_call(const struct refusal *r)
{
    struct call *c = good_call();
    for (int i = 0; i < 4; i++)
        apply(c, &r->change[i]);
    return c;
}

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* Checks that the call and the workspace query refuse each fault of the table. The query can see
 * these faults, because they lie neither in the address of a tensor nor in the elements of an
 * array. */
static void expect_shape_refusals(const struct refusal *table, size_t count,
                                  attnkit_status expected)
{
    for (size_t i = 0; i < count; i++) {
        struct call *c = changed_call(&table[i]);
        expect_refusal(c, expected, table[i].text);
        expect_query_refusal(c, expected, table[i].text);
    }
}

/* Checks that the call refuses each fault of the table. The workspace query cannot see these
 * faults. */
static void expect_call_refusals(const struct refusal *table, size_t count, attnkit_status expected)
{
    for (size_t i = 0; i < count; i++) {
        struct call *c = changed_call(&table[i]);
        expect_refusal(c, expected, table[i].text);
        expect_query(c);
    }
}

/* --- Structs ----------------------------------------------------------------------------- */

static void the_good_call_is_right(void **state)
{
    (void)state;
    expect_result(good_call());
    expect_result(good_strided_call());
}

static void a_call_without_message_is_right(void **state)
{
    (void)state;
    struct call *c = good_call();
    assert_int_equal(attnkit_attention(&c->args, &c->exec, NULL), ATTNKIT_OK);
    expect_reference_rows(&c->args);
}

static void null_structs_are_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes;
    assert_int_equal(attnkit_attention(NULL, &c->exec, NULL), ATTNKIT_BAD_ARGUMENT);
    assert_int_equal(attnkit_attention(NULL, &c->exec, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "args is NULL");
    assert_int_equal(attnkit_attention_workspace(NULL, NULL, &bytes, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "args is NULL");
    assert_int_equal(attnkit_attention_workspace(&c->args, NULL, NULL, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "bytes is NULL");
    assert_int_equal(attnkit_attention_workspace(&c->args, NULL, NULL, NULL), ATTNKIT_BAD_ARGUMENT);
}

static void a_null_exec_asks_for_one_thread_and_has_no_workspace(void **state)
{
    (void)state;
    struct call *c = good_call();
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t with, without;
    c->exec.threads = 1;
    assert_int_equal(attnkit_attention_workspace(&c->args, NULL, &without, NULL), ATTNKIT_OK);
    assert_int_equal(attnkit_attention_workspace(&c->args, &c->exec, &with, NULL), ATTNKIT_OK);
    assert_int_equal(with, without);
    assert_int_equal(attnkit_attention(&c->args, NULL, message), ATTNKIT_BAD_WORKSPACE);
    assert_non_null(strstr(message, "exec.workspace is NULL"));
}

static void struct_sizes_of_no_version_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"attnkit_attention_args.size is 0", {SET(args.size, 0)}},
        {"attnkit_attention_args.size is 8", {SET(args.size, 8)}},
        {"attnkit_attention_args.size is ", {SET(args.size, sizeof(attnkit_attention_args) - 1)}},
        {"attnkit_attention_args.size is 4097", {SET(args.size, 4097)}},
        {"attnkit_attention_args.size is 18446744073709551615", {SET(args.size, -1)}},
        {"attnkit_exec.size is 0", {SET(exec.size, 0)}},
        {"attnkit_exec.size is 8", {SET(exec.size, 8)}},
        {"attnkit_exec.size is ", {SET(exec.size, sizeof(attnkit_exec) - 1)}},
        {"attnkit_exec.size is 4097", {SET(exec.size, 4097)}},
        {"attnkit_exec.size is 18446744073709551615", {SET(exec.size, -1)}},
    };
    expect_shape_refusals(table, COUNT(table), ATTNKIT_BAD_ARGUMENT);
}

/* The structs of a caller that was built with a newer header. */
struct newer {
    attnkit_attention_args args;
    char args_tail[4096 - sizeof(attnkit_attention_args)];
    attnkit_exec exec;
    char exec_tail[4096 - sizeof(attnkit_exec)];
};

static void make_newer(struct newer *n, const struct call *c)
{
    memset(n, 0, sizeof *n);
    n->args = c->args;
    n->exec = c->exec;
    n->args.size = n->exec.size = 4096;
}

static void newer_structs_with_a_zero_tail_are_accepted(void **state)
{
    (void)state;
    struct call *c = good_call();
    static struct newer n;
    make_newer(&n, c);
    size_t bytes;
    assert_int_equal(attnkit_attention_workspace(&n.args, &n.exec, &bytes, NULL), ATTNKIT_OK);
    assert_int_equal(attnkit_attention(&n.args, &n.exec, NULL), ATTNKIT_OK);
    expect_reference_rows(&c->args);
}

static void expect_unknown_byte(struct newer *n, char *byte, const char *text)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes;
    *byte = 1;
    assert_int_equal(attnkit_attention(&n->args, &n->exec, message), ATTNKIT_UNSUPPORTED);
    assert_non_null(strstr(message, text));
    assert_int_equal(attnkit_attention_workspace(&n->args, &n->exec, &bytes, message),
                     ATTNKIT_UNSUPPORTED);
    assert_non_null(strstr(message, text));
    *byte = 0;
}

static void newer_structs_that_set_an_unknown_byte_are_unsupported(void **state)
{
    (void)state;
    static struct newer n;
    make_newer(&n, good_call());
    expect_unknown_byte(&n, &n.args_tail[0], "attnkit_attention_args.size is 4096 and byte ");
    expect_unknown_byte(&n, &n.args_tail[sizeof n.args_tail - 1], "byte 4095 is set");
    expect_unknown_byte(&n, &n.exec_tail[0], "attnkit_exec.size is 4096 and byte ");
    expect_unknown_byte(&n, &n.exec_tail[sizeof n.exec_tail - 1], "byte 4095 is set");
}

/* --- Flags, types, sizes ----------------------------------------------------------------- */

static void unknown_flags_aligns_and_types_are_unsupported(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"flags is 0x20: bits 0x20 are not known", {SET(args.flags, 32)}},
        {"flags is 0x40: bits 0x40", {SET(args.flags, 64)}},
        {"flags is 0x24: bits 0x20 are not known", {SET(args.flags, ATTNKIT_INTEGERS | 32)}},
        {"flags is 0x80000001: bits 0x80000000", {SET(args.flags, 0x80000001)}},
        {"flags is 0xffffffff: bits 0xffffffe0", {SET(args.flags, -1)}},
        {"align is 4", {SET(args.align, 4)}},
        {"align is -1", {SET(args.align, -1)}},
        {"align is 2147483647", {SET(args.align, INT32_MAX)}},
        {"align is -2147483648", {SET(args.align, INT32_MIN)}},
        {"q.type is 3", {SET(args.q.type, 3)}},
        {"q.type is -1", {SET(args.q.type, -1)}},
        {"k.type is 13", {SET(args.k.type, 13)}},
        {"k.type is -2147483648", {SET(args.k.type, INT32_MIN)}},
        {"v.type is 77", {SET(args.v.type, 77)}},
        {"v.type is -1", {SET(args.v.type, -1)}},
        {"out.type is 2147483647", {SET(args.out.type, INT32_MAX)}},
        {"out.type is 4", {SET(args.out.type, 4)}},
        {"out.type is -1", {SET(args.out.type, -1)}},
        {"lse.type is 1: must be ATTNKIT_F32 (0)", {SET(args.lse.type, ATTNKIT_F16)}},
        {"lse.type is -1", {SET(args.lse.type, -1)}},
        /* types that only masks have */
        {"q.type is 64", {SET(args.q.type, ATTNKIT_BOOL)}},
        {"k.type is 64", {SET(args.k.type, ATTNKIT_BOOL)}},
        {"v.type is 65", {SET(args.v.type, ATTNKIT_BITS)}},
        {"out.type is 65", {SET(args.out.type, ATTNKIT_BITS)}},
        {"lse.type is 64", {SET(args.lse.type, ATTNKIT_BOOL)}},
    };
    expect_shape_refusals(table, COUNT(table), ATTNKIT_UNSUPPORTED);
}

static void unknown_bits_of_layouts_are_unsupported(void **state)
{
    (void)state;
    for (int t = 0; t < TENSORS; t++)
        for (uint32_t bit = ATTNKIT_TILED; bit != 0; bit *= 2) {
            struct call *c = good_strided_call();
            char text[96];
            if (t == K && bit == ATTNKIT_TILED)
                continue;
            tensor_of(c, t)->layout |= bit;
            if (bit == ATTNKIT_TILED)
                snprintf(text, sizeof text, "%s.layout is 0x3: %s cannot be in tiles",
                         tensor_names[t], tensor_names[t]);
            else
                snprintf(text, sizeof text, "%s.layout is 0x%x: bits 0x%x are not known",
                         tensor_names[t], (unsigned)(ATTNKIT_STRIDED | bit), (unsigned)bit);
            expect_refusal(c, ATTNKIT_UNSUPPORTED, text);
            expect_query_refusal(c, ATTNKIT_UNSUPPORTED, text);
        }
}

static void unknown_widths_of_integers_are_unsupported(void **state)
{
    (void)state;
    const struct change at_offsets = SET(args.align, ATTNKIT_ALIGN_OFFSETS);
    const struct refusal table[] = {
        {"q_offsets.type is 2: must be ATTNKIT_INT64 (0) or ATTNKIT_INT32 (1)",
         {at_offsets, SET(args.q_offsets.type, 2)}},
        {"q_offsets.type is -1: must be ATTNKIT_INT64 (0)",
         {at_offsets, SET(args.q_offsets.type, -1)}},
        {"q_offsets.reserved is 1: must be 0", {at_offsets, SET(args.q_offsets.reserved, 1)}},
        {"kv_lens.type is 2: must be ATTNKIT_INT64 (0) or ATTNKIT_INT32 (1)",
         {SET(visibility.kv_lens.type, 2)}},
        {"kv_lens.type is -2147483648", {SET(visibility.kv_lens.type, INT32_MIN)}},
        {"kv_lens.reserved is -1: must be 0", {SET(visibility.kv_lens.reserved, -1)}},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct call *c = good_call();
        c->args.q_offsets.data = i < 3 ? c->q_offsets : NULL;
        give_kv_lens(c, c->kv_lens);
        for (int j = 0; j < 2; j++)
            apply(c, &table[i].change[j]);
        expect_refusal(c, ATTNKIT_UNSUPPORTED, table[i].text);
        expect_query_refusal(c, ATTNKIT_UNSUPPORTED, table[i].text);
    }
}

static void sizes_below_their_least_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"batch is -1: must be at least 0", {SET(args.batch, -1)}},
        {"batch is -9223372036854775808", {SET(args.batch, INT64_MIN)}},
        {"q_heads is -4: must be at least 0", {SET(args.q_heads, -4)}},
        {"q_heads is -9223372036854775808", {SET(args.q_heads, INT64_MIN)}},
        {"kv_heads is -2: must be at least 0", {SET(args.kv_heads, -2)}},
        {"kv_heads is -9223372036854775808", {SET(args.kv_heads, INT64_MIN)}},
        {"q_len is -1: must be at least 0", {SET(args.q_len, -1)}},
        {"q_len is -9223372036854775808", {SET(args.q_len, INT64_MIN)}},
        {"kv_len is -1: must be at least 0", {SET(args.kv_len, -1)}},
        {"kv_len is -9223372036854775808", {SET(args.kv_len, INT64_MIN)}},
        {"head_dim is 0: must be at least 1", {SET(args.head_dim, 0)}},
        {"head_dim is -1: must be at least 1", {SET(args.head_dim, -1)}},
        {"head_dim is -9223372036854775808", {SET(args.head_dim, INT64_MIN)}},
        {"value_dim is -1: must be at least 0", {SET(args.value_dim, -1)}},
        {"value_dim is -9223372036854775808", {SET(args.value_dim, INT64_MIN)}},
        /* a bad call with nothing to do is refused */
        {"kv_len is -1", {SET(args.batch, 0), SET(args.kv_len, -1)}},
        {"head_dim is 0", {SET(args.q_len, 0), SET(args.head_dim, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), ATTNKIT_BAD_ARGUMENT);
}

static void query_heads_that_are_no_multiple_of_kv_heads_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"q_heads is 3: must be a multiple of kv_heads (2)", {SET(args.q_heads, 3)}},
        {"q_heads is 4: must be a multiple of kv_heads (3)", {SET(args.kv_heads, 3)}},
        {"q_heads is 4: must be a multiple of kv_heads (8)", {SET(args.kv_heads, 8)}},
        {"q_heads is 4: must be a multiple of kv_heads (0)", {SET(args.kv_heads, 0)}},
        {"q_heads is 9223372036854775807", {SET(args.q_heads, INT64_MAX)}},
        {"kv_heads (9223372036854775807)", {SET(args.kv_heads, INT64_MAX)}},
    };
    expect_shape_refusals(table, COUNT(table), ATTNKIT_BAD_ARGUMENT);
}

static void sizes_whose_products_leave_63_bits_are_refused(void **state)
{
    (void)state;
    const int64_t two_32 = INT64_C(1) << 32;
    const struct refusal table[] = {
        {"is 9223372036854775807 x 4 x 3", {SET(args.batch, INT64_MAX)}},
        {"is 2 x 9223372036854775807 x 3", {SET(args.q_heads, INT64_MAX), SET(args.kv_heads, 1)}},
        {"is 2 x 9223372036854775807 x 3",
         {SET(args.q_heads, INT64_MAX), SET(args.kv_heads, INT64_MAX)}},
        {"is 2 x 4 x 9223372036854775807", {SET(args.q_len, INT64_MAX)}},
        {"k has 2 x 2 x 9223372036854775807 rows of 16 bytes", {SET(args.kv_len, INT64_MAX)}},
        {"head_dim is 9223372036854775807", {SET(args.head_dim, INT64_MAX)}},
        {"value_dim is 9223372036854775807", {SET(args.value_dim, INT64_MAX)}},
        {"is 4294967296 x 4294967296 x 3",
         {SET(args.batch, two_32), SET(args.q_heads, two_32), SET(args.kv_heads, two_32)}},
        {"is 2 x 4294967296 x 2147483648",
         {SET(args.q_heads, two_32), SET(args.q_len, two_32 / 2)}},
        {"out has 2 x 4 x 144115188075855872 rows of 24 bytes",
         {SET(args.q_len, INT64_C(1) << 57)}},
        {"q has 2 x 4 x 72057594037927936 rows of 16 bytes",
         {SET(args.q_len, INT64_C(1) << 56), SET(args.value_dim, 1)}},
        {"v has 2 x 2 x 144115188075855872 rows of 24 bytes",
         {SET(args.kv_len, INT64_C(1) << 57), SET(args.head_dim, 1)}},
        {"value_dim is 1152921504606846976", {SET(args.value_dim, INT64_C(1) << 60)}},
    };
    expect_shape_refusals(table, COUNT(table), ATTNKIT_OVERFLOW);
}

/* Gives all rows of a tensor the same address, by strides of 0. A tensor with a huge number of rows
 * then spans the bytes of one row. Therefore the library does not refuse this number of rows for
 * the size of the tensor. */
static void repeat(attnkit_tensor *t)
{
    t->layout = ATTNKIT_STRIDED;
    memset(t->strides, 0, sizeof t->strides);
}

static void a_workspace_beyond_63_bits_is_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.q_len = 128;
    c->args.batch = 32;
    c->args.head_dim = INT64_C(1) << 49;
    c->exec.threads = 64;
    for (int t = Q; t < TENSORS; t++)
        repeat(tensor_of(c, t));
    expect_query_refusal(c, ATTNKIT_OVERFLOW, "64 threads");
}

static void expect_nothing_done(struct call *c)
{
    static struct call before;
    memcpy(&before, c, sizeof before);
    size_t bytes = 1;
    assert_int_equal(attnkit_attention_workspace(&c->args, NULL, &bytes, NULL), ATTNKIT_OK);
    assert_int_equal(bytes, 0);
    expect_ok(c);
    assert_int_equal(attnkit_attention(&c->args, NULL, NULL), ATTNKIT_OK);
    assert_memory_equal(&before, c, sizeof before);
    for (int t = 0; t < TENSORS; t++)
        set_data(c, t, NULL);
    c->exec.workspace = NULL;
    c->exec.workspace_size = 0;
    expect_ok(c);
}

static void a_call_without_query_rows_does_nothing(void **state)
{
    (void)state;
    const struct change changes[] = {SET(args.batch, 0), SET(args.q_len, 0), SET(args.q_heads, 0)};
    for (size_t i = 0; i < COUNT(changes); i++) {
        struct call *c = good_call();
        apply(c, &changes[i]);
        expect_nothing_done(c);
    }
    struct call *c = good_call();
    c->args.q_heads = c->args.kv_heads = 0;
    expect_nothing_done(c);
}

static void arrays_are_not_read_if_there_is_nothing_to_do(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.batch = 0;
    give_kv_lens(c, (const int64_t *)16);
    c->args.q_offsets.data = (const int64_t *)16;
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    expect_ok(c);
}

/* Checks that rows first .. first + rows - 1 of each head have the result of rows that see no
 * key. */
static void expect_empty_rows(const struct call *c, int first, int rows)
{
    for (int h = 0; h < BATCH * Q_HEADS; h++)
        for (int i = first; i < first + rows; i++) {
            const int row = h * Q_LEN + i;
            const float *out = c->out + MARGIN + row * VALUE_DIM;
            for (int d = 0; d < VALUE_DIM; d++)
                assert_true(out[d] == 0.0f && !signbit(out[d]));
            assert_true(c->lse[MARGIN + row] == -INFINITY);
        }
}

static void kv_len_0_needs_no_k_and_v_and_gives_zeros(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.kv_len = 0;
    c->args.k.data = c->args.v.data = NULL;
    expect_result(c);
    expect_empty_rows(c, 0, Q_LEN);
}

static void value_dim_0_means_head_dim(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.value_dim = 0;
    expect_result(c);
    c->args.value_dim = HEAD_DIM;
    expect_result(c);
}

static void any_head_dim_and_value_dim_work(void **state)
{
    (void)state;
    static const int dims[] = {1, 3, 17, 257};
    for (size_t i = 0; i < COUNT(dims); i++)
        for (size_t j = 0; j < COUNT(dims); j++) {
            struct call *c = good_call();
            c->args.batch = 1;
            c->args.q_heads = c->args.kv_heads = 1;
            c->args.head_dim = dims[i];
            c->args.value_dim = dims[j];
            expect_result(c);
        }
}

/* --- Strides ----------------------------------------------------------------------------- */

static void strides_without_their_flag_are_refused(void **state)
{
    (void)state;
    for (int t = 0; t < TENSORS; t++)
        for (int axis = 0; axis < 3; axis++) {
            struct call *c = good_call();
            char text[96];
            strides_of(c, t)[axis] = 16;
            snprintf(text, sizeof text,
                     "%s.strides[%d] (%s) is 16, but %s.layout lacks ATTNKIT_STRIDED",
                     tensor_names[t], axis, axis_names[axis], tensor_names[t]);
            expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
            expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
        }
}

/* Sets each stride of each tensor in turn to `stride`, and expects a refusal. */
static void expect_stride_refusals(int64_t stride, attnkit_status expected)
{
    for (int t = 0; t < TENSORS; t++)
        for (int axis = 0; axis < 3; axis++) {
            struct call *c = good_strided_call();
            char text[64];
            strides_of(c, t)[axis] = stride;
            snprintf(text, sizeof text, "%s.strides[%d] (%s) is %lld", tensor_names[t], axis,
                     axis_names[axis], (long long)stride);
            expect_refusal(c, expected, text);
            expect_query_refusal(c, expected, text);
        }
}

static void strides_of_parts_of_an_element_are_refused(void **state)
{
    (void)state;
    expect_stride_refusals(6, ATTNKIT_BAD_ARGUMENT);
    expect_stride_refusals(-1, ATTNKIT_BAD_ARGUMENT);
    expect_stride_refusals(INT64_MAX, ATTNKIT_BAD_ARGUMENT);
}

static void strides_that_overflow_are_refused(void **state)
{
    (void)state;
    expect_stride_refusals(INT64_C(1) << 62, ATTNKIT_OVERFLOW);
    expect_stride_refusals(-(INT64_C(1) << 62) - 4, ATTNKIT_OVERFLOW);
    expect_stride_refusals(INT64_MIN, ATTNKIT_OVERFLOW);
    expect_stride_refusals(INT64_MAX - 3, ATTNKIT_OVERFLOW);
}

static void tensors_that_leave_the_address_space_are_refused(void **state)
{
    (void)state;
    for (int t = 0; t < TENSORS; t++) {
        struct call *c = good_strided_call();
        char text[64];
        strides_of(c, t)[0] = -(INT64_C(1) << 60);
        snprintf(text, sizeof text, "%s.strides are {-1152921504606846976, ", tensor_names[t]);
        expect_refusal(c, ATTNKIT_OVERFLOW, text);
        expect_query(c);
    }
}

static void strides_along_a_single_entry_are_not_looked_at(void **state)
{
    (void)state;
    struct call *c = good_strided_call();
    c->args.batch = 1;
    c->args.q_len = 1;
    for (int t = 0; t < TENSORS; t++)
        strides_of(c, t)[0] = INT64_MIN + t;
    c->args.q.strides[2] = 1;
    c->args.out.strides[2] = INT64_MAX;
    c->args.lse.strides[2] = 0;
    expect_result(c);
}

static void outputs_whose_rows_overlap_are_refused(void **state)
{
    (void)state;
    static const struct {
        int tensor, axis;
        int64_t stride;
        const char *text;
    } table[] = {
        {OUT, 2, 0, "out.strides are {288, 72, 0}: rows of out (24 bytes)"},
        {OUT, 2, 20, "out.strides are {288, 72, 20}: rows of out (24 bytes)"},
        {OUT, 2, -20, "out.strides are {288, 72, -20}: rows of out (24 bytes)"},
        {OUT, 1, 0, "out.strides are {288, 0, 24}: rows of out (24 bytes)"},
        {OUT, 1, 24, "out.strides are {288, 24, 24}: rows of out (24 bytes)"},
        {OUT, 1, 68, "out.strides are {288, 68, 24}: rows of out (24 bytes)"},
        {OUT, 0, 0, "out.strides are {0, 72, 24}: rows of out (24 bytes)"},
        {OUT, 0, 284, "out.strides are {284, 72, 24}: rows of out (24 bytes)"},
        {OUT, 0, -284, "out.strides are {-284, 72, 24}: rows of out (24 bytes)"},
        {LSE, 2, 0, "lse.strides are {48, 12, 0}: rows of lse (4 bytes)"},
        {LSE, 1, 4, "lse.strides are {48, 4, 4}: rows of lse (4 bytes)"},
        {LSE, 0, 44, "lse.strides are {44, 12, 4}: rows of lse (4 bytes)"},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct call *c = good_strided_call();
        strides_of(c, table[i].tensor)[table[i].axis] = table[i].stride;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, table[i].text);
        expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, table[i].text);
    }
}

static void inputs_may_repeat_by_stride_0_and_overlap_themselves(void **state)
{
    (void)state;
    static const int64_t strides[] = {0, 4, -4, 8};
    for (int t = Q; t < TENSORS; t++)
        for (int axis = 0; axis < 3; axis++)
            for (size_t i = 0; i < COUNT(strides); i++) {
                struct call *c = good_strided_call();
                strides_of(c, t)[axis] = strides[i];
                expect_result(c);
            }
}

static void negative_strides_go_backwards(void **state)
{
    (void)state;
    for (int t = 0; t < TENSORS; t++)
        for (int axis = 0; axis < 3; axis++) {
            struct call *c = good_strided_call();
            const bool kv = t == K || t == V;
            const int64_t counts[3] = {BATCH, kv ? KV_HEADS : Q_HEADS, kv ? KV_LEN : Q_LEN};
            int64_t *stride = &strides_of(c, t)[axis];
            set_data(c, t, data_of(c, t) + (counts[axis] - 1) * *stride);
            *stride = -*stride;
            expect_result(c);
        }
}

static void gaps_between_rows_are_left_alone(void **state)
{
    (void)state;
    struct call *c = good_strided_call();
    set_strides(&c->args.out, Q_HEADS, Q_LEN, VALUE_DIM * 4 + 8);
    set_strides(&c->args.lse, Q_HEADS, Q_LEN, 12);
    expect_result(c);
    const unsigned char *const tensors[] = {c->args.out.data, c->args.lse.data};
    for (int row = -1; row < Q_ROWS; row++)
        for (int i = 1; i <= 8; i++) {
            assert_int_equal(tensors[0][(row + 1) * (VALUE_DIM * 4 + 8) - i], PATTERN);
            assert_int_equal(tensors[1][(row + 1) * 12 - i], PATTERN);
        }
}

/* --- Pointers ---------------------------------------------------------------------------- */

static void null_tensors_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"q is NULL", {SET(args.q.data, 0)}},
        {"k is NULL", {SET(args.k.data, 0)}},
        {"v is NULL", {SET(args.v.data, 0)}},
        {"out is NULL", {SET(args.out.data, 0)}},
    };
    expect_call_refusals(table, COUNT(table), ATTNKIT_BAD_ARGUMENT);
}

/* Makes a call with 2^40 batch entries. With has_arrays, q_offsets and kv_lens lie in unmapped
 * memory, where a read faults. */
static struct call *huge_call(bool has_arrays)
{
    struct call *c = good_call();
    c->args.batch = INT64_C(1) << 40;
    if (!has_arrays)
        return c;
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    c->args.q_offsets.data = (const void *)16;
    give_kv_lens(c, (const int64_t *)16);
    return c;
}

/* The call must be refused before any loop over the batch entries: 2^40 turns of a loop take
 * minutes at least. */
static void null_tensors_of_a_huge_batch_are_refused_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * TENSORS; i++) {
        const int t = i / 2;
        struct call *c = huge_call(i % 2);
        char text[16];
        if (t == LSE)
            continue;
        set_data(c, t, NULL);
        snprintf(text, sizeof text, "%s is NULL", tensor_names[t]);
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
        expect_query(c);
    }
}

static void runs_of_a_huge_batch_without_tensors_are_refused_at_once(void **state)
{
    (void)state;
    const size_t size = attnkit_attention_plan_size();
    void *const plan = malloc(size);
    for (int has_arrays = 0; has_arrays < 2; has_arrays++) {
        struct call *c = huge_call(has_arrays);
        char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
        attnkit_status status = attnkit_attention_plan(&c->args, &c->exec, plan, size, message);
        fail_unless(status == ATTNKIT_OK && message[0] == '\0', "plan", "", status, message);
        const attnkit_attention_data data = {.size = sizeof data,
                                             .batch = c->args.batch,
                                             .q_len = Q_LEN,
                                             .kv_len = KV_LEN,
                                             .k = c->args.k.data,
                                             .v = c->args.v.data,
                                             .out = c->out + MARGIN,
                                             .lse = c->lse + MARGIN,
                                             .kv_lens = c->visibility.kv_lens.data,
                                             .q_offsets = c->args.q_offsets.data};
        status = attnkit_attention_run(plan, &data, &c->exec, message);
        fail_unless(status == ATTNKIT_BAD_ARGUMENT && strstr(message, "q is NULL"), "run",
                    "q is NULL", status, message);
    }
    free(plan);
}

static void without_lse_there_is_only_out(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.lse.data = NULL;
    expect_result(c);
    for (int i = 0; i < ROOM; i++)
        assert_int_equal(((unsigned char *)c->lse)[4 * i], PATTERN);
}

/* A run checks that the workspace does not overlap lse. Before planning, the memory of the plan is
 * full of a pattern. If lse is absent, the run must not take this pattern for the address of lse.
 */
static void an_absent_lse_lies_nowhere(void **state)
{
    (void)state;
    struct call *c = good_call();
    const size_t size = attnkit_attention_plan_size();
    void *const plan = malloc(size);
    c->args.lse.data = NULL;
    memset(plan, PATTERN, size);
    assert_int_equal(attnkit_attention_plan(&c->args, &c->exec, plan, size, NULL), ATTNKIT_OK);
    const attnkit_attention_data data = {.size = sizeof data,
                                         .batch = BATCH,
                                         .q_len = Q_LEN,
                                         .kv_len = KV_LEN,
                                         .q = c->args.q.data,
                                         .k = c->args.k.data,
                                         .v = c->args.v.data,
                                         .out = c->out + MARGIN};
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_attention_run(plan, &data, &c->exec, message);
    fail_unless(status == ATTNKIT_OK && message[0] == '\0', "run", "", status, message);
    expect_reference_rows(&c->args);
    free(plan);
}

static void misaligned_tensors_are_refused(void **state)
{
    (void)state;
    for (int t = 0; t < TENSORS; t++)
        for (int offset = 1; offset < 4; offset++) {
            struct call *c = good_call();
            char text[64];
            set_data(c, t, data_of(c, t) + offset);
            snprintf(text, sizeof text, "%s is %p: must be aligned", tensor_names[t],
                     (const void *)data_of(c, t));
            expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
            expect_query(c);
        }
}

static void any_address_of_an_element_works(void **state)
{
    (void)state;
    for (int offset = 0; offset < 64; offset += 4) {
        struct call *c = good_call();
        for (int t = 0; t < TENSORS; t++)
            set_data(c, t, data_of(c, t) + offset);
        expect_result(c);
    }
}

static void expect_overlap(int output, int other, int64_t offset)
{
    struct call *c = good_call();
    set_data(c, output, data_of(c, other) + offset);
    char text[128];
    snprintf(text, sizeof text, "%s (%p) overlaps %s (%p)", tensor_names[output],
             (const void *)data_of(c, output), tensor_names[other],
             (const void *)data_of(c, other));
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
    expect_query(c);
}

static void outputs_that_overlap_a_tensor_are_refused(void **state)
{
    (void)state;
    for (int output = OUT; output <= LSE; output++)
        for (int other = output + 1; other < TENSORS; other++) {
            expect_overlap(output, other, 0);
            expect_overlap(output, other, 4);
            expect_overlap(output, other, -4);
            expect_overlap(output, other, tensor_bytes[other] - 4);
            if (tensor_bytes[output] > 4)
                expect_overlap(output, other, 4 - tensor_bytes[output]);
        }
}

static void outputs_may_touch_other_tensors(void **state)
{
    (void)state;
    for (int output = OUT; output <= LSE; output++)
        for (int other = output + 1; other < TENSORS; other++) {
            const int64_t offsets[2] = {tensor_bytes[other], -tensor_bytes[output]};
            for (int i = 0; i < 2; i++) {
                struct call *c = good_call();
                set_data(c, output, data_of(c, other) + offsets[i]);
                expect_result(c);
            }
        }
}

static void inputs_may_overlap_each_other(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.k.data = c->args.v.data = c->args.q.data;
    expect_result(c);
    c->args.k.data = (const float *)c->args.q.data + 1;
    c->args.v.data = (const float *)c->args.q.data - 7;
    expect_result(c);
}

/* Makes a call whose q, out and lse lie in one piece of memory. Each row of q is followed by its
 * row of out and its lse. */
static struct call *call_in_the_gaps(void)
{
    struct call *c = good_strided_call();
    const int64_t row_bytes = (HEAD_DIM + VALUE_DIM + 1) * 4;
    set_strides(&c->args.q, Q_HEADS, Q_LEN, row_bytes);
    set_strides(&c->args.out, Q_HEADS, Q_LEN, row_bytes);
    set_strides(&c->args.lse, Q_HEADS, Q_LEN, row_bytes);
    c->args.out.data = c->q + MARGIN + HEAD_DIM;
    c->args.lse.data = c->q + MARGIN + HEAD_DIM + VALUE_DIM;
    return c;
}

static void outputs_may_lie_in_the_gaps_of_an_input(void **state)
{
    (void)state;
    expect_result(call_in_the_gaps());
    struct call *c = call_in_the_gaps();
    c->args.lse.data = (const float *)c->args.lse.data - 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps lse");
    c = call_in_the_gaps();
    c->args.lse.data = (const float *)c->args.lse.data + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps q");
    c = call_in_the_gaps();
    c->args.out.data = (const float *)c->args.out.data - 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps q");
}

/* --- Workspace --------------------------------------------------------------------------- */

static size_t workspace_needed(const struct call *c)
{
    size_t bytes;
    assert_int_equal(attnkit_attention_workspace(&c->args, &c->exec, &bytes, NULL), ATTNKIT_OK);
    return bytes;
}

static void a_missing_workspace_is_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"exec.workspace is NULL", {SET(exec.workspace, 0)}},
        {"exec.workspace_size is 0", {SET(exec.workspace_size, 0)}},
        {"exec.workspace_size is 1", {SET(exec.workspace_size, 1)}},
    };
    expect_call_refusals(table, COUNT(table), ATTNKIT_BAD_WORKSPACE);
}

static void one_byte_too_few_is_refused_at_any_alignment(void **state)
{
    (void)state;
    for (int alignment = 0; alignment < 64; alignment++) {
        struct call *c = good_call();
        char text[64];
        c->exec.workspace = workspace + alignment;
        c->exec.workspace_size = workspace_needed(c) - 1;
        snprintf(text, sizeof text, "exec.workspace_size is %zu", c->exec.workspace_size);
        expect_refusal(c, ATTNKIT_BAD_WORKSPACE, text);
    }
}

/* Makes a call that uses all its scratch. The call has a second chunk of keys. A NaN in V makes the
 * library compute rows again. With these sizes, no rounding up of the scratch hides a missing
 * byte. */
static struct call *call_that_uses_all_scratch(int q_len)
{
    struct call *c = good_call();
    c->args.batch = 1;
    c->args.q_heads = c->args.kv_heads = 2;
    c->args.q_len = q_len;
    c->args.kv_len = 520;
    c->args.flags = ATTNKIT_CAUSAL;
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    c->v[MARGIN + 519 * VALUE_DIM] = NAN;
    return c;
}

static void the_bytes_asked_for_are_enough_at_any_alignment(void **state)
{
    (void)state;
    for (int alignment = 0; alignment < 64; alignment++)
        for (int kind = 0; kind < 4; kind++) {
            struct call *c = call_that_uses_all_scratch(kind & 1 ? 1 : 40);
            c->exec.threads = kind & 2 ? 2 : 1;
            const size_t needed = workspace_needed(c);
            memset(workspace, PATTERN, needed + 128);
            c->exec.workspace = workspace + 64 + alignment;
            c->exec.workspace_size = needed;
            for (c->exec.thread = 0; c->exec.thread < c->exec.threads; c->exec.thread++)
                expect_ok(c);
            if (alignment == 0)
                expect_reference_rows(&c->args);
            for (int i = 0; i < 64 + alignment; i++)
                assert_int_equal((unsigned char)workspace[i], PATTERN);
            for (int i = alignment; i < 64; i++)
                assert_int_equal((unsigned char)workspace[64 + needed + (size_t)i], PATTERN);
        }
}

static void a_workspace_inside_a_tensor_is_refused(void **state)
{
    (void)state;
    for (int t = 0; t < TENSORS; t++) {
        const int64_t offsets[3] = {0, 1, tensor_bytes[t] - 1};
        for (int i = 0; i < 3; i++) {
            struct call *c = good_call();
            char text[64];
            c->exec.workspace = (char *)(uintptr_t)data_of(c, t) + offsets[i];
            snprintf(text, sizeof text, " bytes) overlaps %s", tensor_names[t]);
            expect_refusal(c, ATTNKIT_BAD_WORKSPACE, text);
        }
    }
}

static void a_tensor_at_the_end_of_the_workspace_is_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    const size_t needed = workspace_needed(c) / 4 * 4;
    c->args.out.data = workspace + needed - 4;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "overlaps out");
    c->args.out.data = workspace + needed + 4;
    expect_result(c);
}

/* Returns the bound that attnkit.h gives for the workspace of each thread, in bytes, without the
 * terms that are added under a condition. */
static size_t workspace_bound(int64_t head_dim, int64_t value_dim)
{
    const int64_t bytes = 4 * (290 * head_dim + 780 * value_dim + 10000) + 4096;
    return (size_t)(head_dim + 3 * value_dim <= 283 ? 2 * bytes : bytes);
}

static void the_workspace_keeps_to_the_bound_of_the_header(void **state)
{
    (void)state;
    static const int64_t dims[] = {1, 64, 128, 576}, lengths[] = {1, 7, 33, 1000, 1 << 20};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t d = 0; d < COUNT(dims); d++)
            for (size_t v = 0; v < COUNT(dims); v++)
                for (size_t l = 0; l < COUNT(lengths); l++)
                    for (int threads = 1; threads <= 8; threads += 7) {
                        if (!attnkit_isa_can_run(&isas[i]))
                            continue;
                        struct call *c = good_call();
                        c->args.head_dim = dims[d];
                        c->args.value_dim = dims[v];
                        c->args.q_len = lengths[l];
                        c->exec.threads = threads;
                        c->exec.isa = isas[i].name;
                        assert_true(workspace_needed(c) <=
                                    (size_t)threads * workspace_bound(dims[d], dims[v]));
                    }
}

static void the_workspace_does_not_grow_with_the_lengths(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.q_len = 1000;
    const size_t needed = workspace_needed(c);
    c->args.kv_len = 1 << 30;
    assert_int_equal(workspace_needed(c), needed);
    c->args.q_len = 1 << 30;
    assert_int_equal(workspace_needed(c), needed);
}

/* The workspace must not shrink as q_len grows, so that a workspace for the longest of several
 * calls is enough for all of them. */
static void the_workspace_does_not_shrink_as_q_len_grows(void **state)
{
    (void)state;
    static const int threads[] = {1, 4, 16, 33};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t t = 0; t < 2 * COUNT(threads) && attnkit_isa_can_run(&isas[i]); t++) {
            struct call *c = good_call();
            c->exec.isa = isas[i].name;
            c->exec.threads = threads[t / 2];
            if (t % 2) /* several chunks, which threads can share */
                c->args.kv_len = 5000;
            size_t before = 0;
            for (c->args.q_len = 1; c->args.q_len < 1200; c->args.q_len++) {
                const size_t needed = workspace_needed(c);
                assert_true(needed >= before);
                before = needed;
            }
        }
}

static void the_workspace_does_not_shrink_as_kv_len_grows(void **state)
{
    (void)state;
    static const int threads[] = {1, 4, 33};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t n = 0; n < 4 * COUNT(threads) && attnkit_isa_can_run(&isas[i]); n++) {
            struct call *c = good_call();
            c->exec.isa = isas[i].name;
            c->exec.threads = threads[n / 4];
            c->args.q_len = n % 2 ? 1 : 100;
            c->args.batch =
                n / 2 % 2 ? 1 : 50; /* 50 entries have enough heads for a vector of heads */
            size_t before = 0;
            for (c->args.kv_len = 0; c->args.kv_len < 3000;
                 c->args.kv_len += c->args.kv_len < 20 ? 1 : 97) {
                const size_t needed = workspace_needed(c);
                assert_true(needed >= before);
                assert_true(c->exec.threads > 1 || before == 0 || needed == before);
                before = needed;
            }
        }
}

/* The workspace must not shrink as lengths grow. For the largest lengths of this test, the number
 * of items times the number of chunks exceeds 63 bits. */
static void the_workspace_does_not_shrink_as_lengths_grow_huge(void **state)
{
    (void)state;
    static const int threads[] = {1, 4, 33};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t n = 0; n < 2 * COUNT(threads) && attnkit_isa_can_run(&isas[i]); n++) {
            struct call *c = good_call();
            c->exec.isa = isas[i].name;
            c->exec.threads = threads[n / 2];
            c->args.q_len = c->args.kv_len = INT64_C(1) << 48;
            int64_t *const grows = n % 2 ? &c->args.q_len : &c->args.kv_len;
            size_t before = 0;
            for (*grows = 1; *grows < INT64_C(1) << 49; *grows *= 2) {
                const size_t needed = workspace_needed(c);
                assert_true(needed >= before);
                before = needed;
            }
        }
}

static void sizes_up_to_2_63_are_a_size_or_a_status(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 5, 16, INT64_C(1) << 54, INT64_C(1) << 62, INT64_MAX};
    const size_t n = COUNT(sizes);
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t at = 0; at < n * n * n * n * n && attnkit_isa_can_run(&isas[i]); at++) {
            struct call *c = good_call();
            for (int t = Q; t < TENSORS; t++)
                repeat(tensor_of(c, t));
            c->args.kv_len = sizes[at % n];
            c->args.q_len = sizes[at / n % n];
            c->args.batch = sizes[at / (n * n) % n];
            c->exec.threads = sizes[at / (n * n * n) % n];
            c->args.value_dim = sizes[at / (n * n * n * n)];
            c->args.q_heads = c->args.kv_heads = 1;
            c->exec.isa = isas[i].name;
            size_t bytes = 0;
            const attnkit_status status =
                attnkit_attention_workspace(&c->args, &c->exec, &bytes, NULL);
            if (status == ATTNKIT_OK)
                assert_in_range(bytes, 1, INT64_MAX);
            else
                assert_int_equal(status, ATTNKIT_OVERFLOW);
        }
}

/* --- Options ----------------------------------------------------------------------------- */

static void scales_that_are_not_finite_in_binary32_are_refused(void **state)
{
    (void)state;
    static const struct {
        double scale;
        const char *text;
    } table[] = {
        {NAN, "scale is nan"},      {INFINITY, "scale is inf"}, {-INFINITY, "scale is -inf"},
        {1e300, "scale is 1e+300"}, {-1e39, "scale is -1e+39"},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct call *c = good_call();
        c->args.flags = ATTNKIT_SCALE_GIVEN;
        c->args.scale = table[i].scale;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, table[i].text);
        expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, table[i].text);
    }
}

static void a_scale_without_its_flag_is_refused(void **state)
{
    (void)state;
    static const double scales[] = {0.5, -1e-310, INFINITY};
    static const char *const texts[] = {"scale is 0.5, but", "scale is -1e-310, but",
                                        "scale is inf, but"};
    for (size_t i = 0; i < COUNT(scales); i++) {
        struct call *c = good_call();
        c->args.scale = scales[i];
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, texts[i]);
        expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, texts[i]);
    }
    struct call *c = good_call();
    c->args.scale = NAN;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "scale is nan, but");
}

static double mean_of_v(const struct call *c, int head, int column)
{
    double sum = 0;
    for (int key = 0; key < KV_LEN; key++)
        sum += (double)c->v[MARGIN + (head * KV_LEN + key) * VALUE_DIM + column];
    return sum / KV_LEN;
}

/* A scale of 1e-310 is 0 in binary32. */
static void scale_0_gives_the_mean_of_v(void **state)
{
    (void)state;
    static const double scales[] = {0.0, -0.0, 1e-310};
    for (size_t i = 0; i < COUNT(scales); i++) {
        struct call *c = good_call();
        c->args.flags = ATTNKIT_SCALE_GIVEN;
        c->args.scale = scales[i];
        expect_result(c);
        for (int row = 0; row < Q_ROWS; row++)
            for (int d = 0; d < VALUE_DIM; d++) {
                const double mean = mean_of_v(c, row / Q_LEN / (Q_HEADS / KV_HEADS), d);
                const float got = c->out[MARGIN + row * VALUE_DIM + d];
                assert_true(fabs((double)got - mean) < 1e-6);
            }
        assert_true(fabs((double)c->lse[MARGIN] - log(KV_LEN)) < 1e-6);
    }
}

static void a_negative_scale_gives_the_result_of_minus_k(void **state)
{
    (void)state;
    static float out[ROOM];
    struct call *c = good_call();
    c->args.flags = ATTNKIT_SCALE_GIVEN;
    c->args.scale = -0.75;
    expect_result(c);
    memcpy(out, c->out, sizeof out);
    c->args.scale = 0.75;
    for (int i = 0; i < ROOM; i++)
        c->k[i] = -c->k[i];
    expect_result(c);
    assert_memory_equal(out, c->out, sizeof out);
}

static void tiny_and_huge_scales_that_fit_binary32_are_taken(void **state)
{
    (void)state;
    static const double scales[] = {1e-40, -1e-45, 1e38, -2e38, 0x1p-126};
    for (size_t i = 0; i < COUNT(scales); i++) {
        struct call *c = good_call();
        c->args.flags = ATTNKIT_SCALE_GIVEN;
        c->args.scale = scales[i];
        expect_result(c);
    }
}

static void causal_without_a_position_is_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"align is ATTNKIT_ALIGN_NONE", {SET(args.flags, ATTNKIT_CAUSAL)}},
    };
    expect_shape_refusals(table, COUNT(table), ATTNKIT_BAD_ARGUMENT);
}

static void offsets_and_their_align_come_together(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "q_offsets is NULL");
    expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, "q_offsets is NULL");
    static const attnkit_align others[] = {ATTNKIT_ALIGN_NONE, ATTNKIT_ALIGN_UPPER_LEFT,
                                           ATTNKIT_ALIGN_BOTTOM_RIGHT};
    for (int i = 0; i < 3; i++) {
        c = good_call();
        char text[64];
        c->args.align = others[i];
        c->args.q_offsets.data = c->q_offsets;
        snprintf(text, sizeof text, "q_offsets is given, but align is %d", (int)others[i]);
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
        expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, text);
    }
}

static void an_align_without_causal_changes_nothing(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    expect_result(c);
}

static struct call *call_with_offsets(int64_t first, int64_t second)
{
    struct call *c = good_call();
    c->args.flags = ATTNKIT_CAUSAL;
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    c->args.q_offsets.data = c->q_offsets;
    c->q_offsets[0] = first;
    c->q_offsets[1] = second;
    return c;
}

static void positions_beyond_63_bits_are_refused(void **state)
{
    (void)state;
    expect_refusal(call_with_offsets(0, INT64_MAX), ATTNKIT_OVERFLOW,
                   "q_offsets[1] is 9223372036854775807");
    expect_refusal(call_with_offsets(INT64_MAX - Q_LEN + 1, 0), ATTNKIT_OVERFLOW,
                   "q_offsets[0] is 9223372036854775805");
}

/* 32-bit integers give the same result as 64-bit integers, and the same messages. */
static void integers_may_have_32_bits(void **state)
{
    (void)state;
    static const int32_t lens[BATCH] = {2, KV_LEN}, offsets[BATCH] = {-1, 3};
    static float out[ROOM];
    struct call *c = call_with_offsets(offsets[0], offsets[1]);
    c->kv_lens[0] = lens[0];
    c->kv_lens[1] = lens[1];
    give_kv_lens(c, c->kv_lens);
    expect_result(c);
    memcpy(out, c->out, sizeof out);
    c = call_with_offsets(0, 0);
    c->args.q_offsets = (attnkit_ints){.data = offsets, .type = ATTNKIT_INT32};
    give_kv_lens(c, NULL);
    c->visibility.kv_lens = (attnkit_ints){.data = lens, .type = ATTNKIT_INT32};
    expect_result(c);
    assert_memory_equal(out, c->out, sizeof out);
    static const int32_t beyond[BATCH] = {0, KV_LEN + 1}, negative[BATCH] = {INT32_MIN, 0};
    c->visibility.kv_lens.data = beyond;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "kv_lens[1] is 6: must be between 0 and kv_len (5)");
    c->visibility.kv_lens.data = negative;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "kv_lens[0] is -2147483648: must be between");
}

static void rows_before_the_keys_see_no_key_and_rows_behind_see_all(void **state)
{
    (void)state;
    struct call *c = call_with_offsets(-Q_LEN, INT64_MIN);
    expect_result(c);
    expect_empty_rows(c, 0, Q_LEN);
    c = call_with_offsets(-1, -1);
    expect_result(c);
    expect_empty_rows(c, 0, 1);
    static float out[ROOM];
    c = call_with_offsets(INT64_MAX - Q_LEN, INT64_C(1) << 33);
    expect_result(c);
    memcpy(out, c->out, sizeof out);
    c = good_call();
    expect_result(c);
    assert_memory_equal(out, c->out, sizeof out);
}

static void more_causal_rows_than_keys_have_empty_rows_at_the_bottom_right(void **state)
{
    (void)state;
    for (int kv_len = 0; kv_len <= Q_LEN; kv_len++) {
        struct call *c = good_call();
        c->args.kv_len = kv_len;
        c->args.flags = ATTNKIT_CAUSAL;
        c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
        expect_result(c);
        expect_empty_rows(c, 0, Q_LEN - kv_len);
        c->args.align = ATTNKIT_ALIGN_UPPER_LEFT;
        expect_result(c);
    }
}

static void kv_lens_outside_kv_len_are_refused(void **state)
{
    (void)state;
    static const struct {
        int index;
        int64_t length;
        const char *text;
    } table[] = {
        {0, -1, "kv_lens[0] is -1: must be between 0 and kv_len (5)"},
        {1, 6, "kv_lens[1] is 6: must be between 0 and kv_len (5)"},
        {1, INT64_MAX, "kv_lens[1] is 9223372036854775807"},
        {0, INT64_MIN, "kv_lens[0] is -9223372036854775808"},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct call *c = good_call();
        give_kv_lens(c, c->kv_lens);
        c->kv_lens[0] = c->kv_lens[1] = KV_LEN;
        c->kv_lens[table[i].index] = table[i].length;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, table[i].text);
        expect_query(c);
    }
}

static void kv_lens_from_0_to_kv_len_are_taken(void **state)
{
    (void)state;
    for (int length = 0; length <= KV_LEN; length++) {
        struct call *c = good_call();
        give_kv_lens(c, c->kv_lens);
        c->kv_lens[0] = length;
        c->kv_lens[1] = KV_LEN - length;
        expect_result(c);
    }
    struct call *c = good_call();
    give_kv_lens(c, c->kv_lens);
    c->kv_lens[0] = c->kv_lens[1] = 0;
    expect_result(c);
    expect_empty_rows(c, 0, Q_LEN);
}

/* A score of NaN or +infinity makes its row NaN. A score of -infinity has a weight of 0. A row
 * whose scores are all -infinity has the result of a row that sees no key. */
static void scores_that_are_not_finite_have_a_defined_result(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.batch = 1;
    float *q = c->q + MARGIN;
    q[0] = NAN;
    q[HEAD_DIM] = INFINITY;
    for (int key = 0; key < KV_LEN; key++)
        c->k[MARGIN + key * HEAD_DIM] = key == 0 ? 1.0f : -1.0f;
    expect_result(c);
    assert_true(isnan(c->out[MARGIN]) && isnan(c->lse[MARGIN]));
    assert_true(isnan(c->out[MARGIN + VALUE_DIM]));
    assert_true(isfinite(c->out[MARGIN + 2 * VALUE_DIM]));
    q[HEAD_DIM] = -INFINITY;
    c->k[MARGIN] = 1.0f;
    for (int key = 1; key < KV_LEN; key++)
        c->k[MARGIN + key * HEAD_DIM] = 1.0f;
    expect_result(c);
    assert_true(c->out[MARGIN + VALUE_DIM] == 0.0f && c->lse[MARGIN + 1] == -INFINITY);
}

static void huge_equal_scores_give_the_mean_of_v(void **state)
{
    (void)state;
    struct call *c = good_call();
    for (int i = 0; i < ROOM; i++) {
        c->q[i] = 9e18f;
        c->k[i] = 9e18f;
    }
    c->args.flags = ATTNKIT_SCALE_GIVEN;
    c->args.scale = 0.25;
    expect_result(c);
    assert_true(fabs((double)c->out[MARGIN] - mean_of_v(c, 0, 0)) < 1e-6);
}

/* --- Threads and instruction set --------------------------------------------------------- */

static void run_in_order(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    *(int64_t *)pool += n;
    for (int64_t i = 0; i < n; i++)
        task(arg, i);
}

static void thread_numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"exec.threads is -1", {SET(exec.threads, -1)}},
        {"exec.threads is -9223372036854775808", {SET(exec.threads, INT64_MIN)}},
        {"exec.thread is -1: must be between 0 and threads - 1 (0)", {SET(exec.thread, -1)}},
        {"exec.thread is 1: must be between 0 and threads - 1 (0)", {SET(exec.thread, 1)}},
        {"exec.thread is 3: must be between 0 and threads - 1 (2)",
         {SET(exec.threads, 3), SET(exec.thread, 3)}},
        {"exec.thread is 9223372036854775807",
         {SET(exec.threads, INT64_MAX), SET(exec.thread, INT64_MAX)}},
    };
    expect_shape_refusals(table, COUNT(table), ATTNKIT_BAD_ARGUMENT);
}

static void parallel_for_goes_with_thread_0_only(void **state)
{
    (void)state;
    struct call *c = good_call();
    int64_t tasks = 0;
    c->exec.parallel_for = run_in_order;
    c->exec.pool = &tasks;
    c->exec.threads = 2;
    c->exec.thread = 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "exec.thread is 1: must be 0 with parallel_for");
    expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, "exec.thread is 1");
    assert_int_equal(tasks, 0);
    c->exec.thread = 0;
    expect_result(c);
    assert_int_equal(tasks, 2);
}

static void a_refused_call_runs_no_task(void **state)
{
    (void)state;
    struct call *c = good_call();
    int64_t tasks = 0;
    c->exec.parallel_for = run_in_order;
    c->exec.pool = &tasks;
    c->args.batch = -1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "batch is -1");
    c->args.batch = 0;
    expect_ok(c);
    assert_int_equal(tasks, 0);
}

/* The call has 4 items. Only threads that get an item need workspace. */
static void far_more_threads_than_work_are_fine(void **state)
{
    (void)state;
    static const int64_t counts[] = {5, 1000000, INT64_MAX};
    for (size_t i = 0; i < COUNT(counts); i++) {
        struct call *c = good_call();
        c->exec.threads = counts[i];
        assert_true(workspace_needed(c) < sizeof workspace);
        for (c->exec.thread = 0; c->exec.thread < 5; c->exec.thread++)
            expect_ok(c);
        c->exec.thread = counts[i] - 1;
        expect_ok(c);
        expect_reference_rows(&c->args);
        c = good_call();
        int64_t tasks = 0;
        c->exec.threads = counts[i];
        c->exec.parallel_for = run_in_order;
        c->exec.pool = &tasks;
        expect_result(c);
        assert_true(tasks <= 5);
    }
}

static void threads_0_means_1(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->exec.threads = 0;
    const size_t needed = workspace_needed(c);
    expect_result(c);
    c->exec.threads = 1;
    assert_int_equal(workspace_needed(c), needed);
}

static void expect_isa_refusal(const char *isa, const char *text)
{
    struct call *c = good_call();
    c->exec.isa = isa;
    expect_refusal(c, ATTNKIT_BAD_ISA, text);
    expect_query_refusal(c, ATTNKIT_BAD_ISA, text);
    expect_query_refusal(c, ATTNKIT_BAD_ISA, "possible here: scalar");
}

static void unknown_instruction_sets_are_refused(void **state)
{
    (void)state;
    expect_isa_refusal("sse9", "exec.isa is \"sse9\"");
    expect_isa_refusal("", "exec.isa is \"\"");
    expect_isa_refusal("SCALAR", "exec.isa is \"SCALAR\"");
    expect_isa_refusal("scalar ", "exec.isa is \"scalar \"");
    expect_isa_refusal("\xff\xfe%s%n", "exec.isa is \"\xff\xfe%s%n\"");
    const size_t megabyte = 1 << 20;
    char *name = malloc(megabyte + 1);
    memset(name, 'a', megabyte);
    name[megabyte] = '\0';
    expect_isa_refusal(name, "exec.isa is \"aaaa");
    free(name);
}

static void instruction_sets_that_cannot_run_here_are_refused(void **state)
{
    (void)state;
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        if (!attnkit_isa_can_run(&isas[i]))
            expect_isa_refusal(isas[i].name, isas[i].name);
}

/* The last two of the 5 rows of K, and of V, lie on a page that no thread may access. */
static void keys_that_no_row_sees_may_be_unmapped(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + page, page, PROT_NONE), 0);
    for (int causal = 0; causal < 2; causal++) {
        struct call *c = good_call();
        c->args.batch = c->args.q_heads = c->args.kv_heads = 1;
        c->args.k.data = memory + page - 3 * HEAD_DIM * 4;
        c->args.v.data = memory + page - 3 * VALUE_DIM * 4;
        if (!causal)
            give_kv_lens(c, c->kv_lens);
        c->kv_lens[0] = 3;
        c->args.flags = causal ? ATTNKIT_CAUSAL : 0;
        c->args.align = causal ? ATTNKIT_ALIGN_UPPER_LEFT : ATTNKIT_ALIGN_NONE;
        expect_result(c);
    }
    munmap(memory, 2 * page);
}

/* --- Sizes beyond 32 bits ---------------------------------------------------------------- */

/* Reserves address space, or skips the test if there is too little of it. Each page gets memory,
 * filled with zeros, only when the page is first touched. */
static char *sparse(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        skip();
    return memory;
}

static void fill_row(char *row, int count, uint64_t seed)
{
    for (int i = 0; i < count; i++) {
        const float x = random_uniform(&seed);
        memcpy(row + 4 * i, &x, 4);
    }
}

/* Heads are 2^33 bytes apart, and the tensors lie in each other's gaps. */
static void heads_may_lie_gigabytes_apart(void **state)
{
    (void)state;
    const int64_t head = INT64_C(1) << 33, batch = head / 2, tensor = 1 << 20;
    const size_t bytes = (size_t)(head * Q_HEADS);
    char *memory = sparse(bytes);
    struct call *c = good_strided_call();
    for (int t = 0; t < TENSORS; t++) {
        set_data(c, t, memory + t * tensor);
        strides_of(c, t)[0] = batch;
        strides_of(c, t)[1] = head;
        for (int i = 0; t >= Q && i < BATCH * Q_HEADS; i++)
            fill_row(memory + t * tensor + i / Q_HEADS * batch + i % Q_HEADS * head, 60,
                     (uint64_t)(t * 100 + i));
    }
    expect_result(c);
    munmap(memory, bytes);
}

/* Expects the right result with dense K and V of 3 batch entries with 2 heads. K and V have room
 * for `room` keys of each head, but at most 7 of these keys are in use. */
static void expect_result_in_room(int64_t room)
{
    enum { DIM = 64, HEADS = 2 };
    const int64_t batch = 3;
    const size_t bytes = (size_t)(batch * HEADS * room * DIM * 4);
    static const int64_t lens[3] = {5, 0, 7};
    char *k = sparse(bytes), *v = sparse(bytes);
    struct call *c = good_call();
    c->args.batch = batch;
    c->args.q_heads = c->args.kv_heads = HEADS;
    c->args.kv_len = room;
    give_kv_lens(c, lens);
    c->args.head_dim = c->args.value_dim = DIM;
    c->args.k.data = k;
    c->args.v.data = v;
    for (int64_t i = 0; i < batch * HEADS; i++) {
        fill_row(k + i * room * DIM * 4, 7 * DIM, (uint64_t)i);
        fill_row(v + i * room * DIM * 4, 7 * DIM, (uint64_t)i + 100);
    }
    expect_result(c);
    assert_true(c->out[MARGIN] != 0.0f);
    munmap(k, bytes);
    munmap(v, bytes);
}

static void tensors_of_more_than_2_to_the_31_elements_are_right(void **state)
{
    (void)state;
    expect_result_in_room((INT64_C(1) << 31) / (6 * 64) + 1000);
}

static void tensors_of_more_than_2_to_the_32_elements_are_right(void **state)
{
    (void)state;
    expect_result_in_room((INT64_C(1) << 32) / (6 * 64) + 1000);
    expect_result_in_room(INT64_C(1) << 25);
}

/* --- Names of statuses -------------------------------------------------------------------- */

static void every_number_of_a_status_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(attnkit_status_string(ATTNKIT_OK), "ATTNKIT_OK");
    assert_string_equal(attnkit_status_string(ATTNKIT_BAD_ARGUMENT), "ATTNKIT_BAD_ARGUMENT");
    assert_string_equal(attnkit_status_string(ATTNKIT_UNSUPPORTED), "ATTNKIT_UNSUPPORTED");
    assert_string_equal(attnkit_status_string(ATTNKIT_OVERFLOW), "ATTNKIT_OVERFLOW");
    assert_string_equal(attnkit_status_string(ATTNKIT_BAD_WORKSPACE), "ATTNKIT_BAD_WORKSPACE");
    assert_string_equal(attnkit_status_string(ATTNKIT_BAD_ISA), "ATTNKIT_BAD_ISA");
    static const int others[] = {-1, 6, 1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < COUNT(others); i++)
        assert_non_null(attnkit_status_string((attnkit_status)others[i]));
}

static void the_version_equals_the_header(void **state)
{
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", ATTNKIT_VERSION_MAJOR, ATTNKIT_VERSION_MINOR,
             ATTNKIT_VERSION_PATCH);
    assert_string_equal(attnkit_version(), version);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_call_is_right),
        cmocka_unit_test(a_call_without_message_is_right),
        cmocka_unit_test(null_structs_are_refused),
        cmocka_unit_test(a_null_exec_asks_for_one_thread_and_has_no_workspace),
        cmocka_unit_test(struct_sizes_of_no_version_are_refused),
        cmocka_unit_test(newer_structs_with_a_zero_tail_are_accepted),
        cmocka_unit_test(newer_structs_that_set_an_unknown_byte_are_unsupported),
        cmocka_unit_test(unknown_flags_aligns_and_types_are_unsupported),
        cmocka_unit_test(unknown_bits_of_layouts_are_unsupported),
        cmocka_unit_test(unknown_widths_of_integers_are_unsupported),
        cmocka_unit_test(sizes_below_their_least_are_refused),
        cmocka_unit_test(query_heads_that_are_no_multiple_of_kv_heads_are_refused),
        cmocka_unit_test(sizes_whose_products_leave_63_bits_are_refused),
        cmocka_unit_test(a_workspace_beyond_63_bits_is_refused),
        cmocka_unit_test(a_call_without_query_rows_does_nothing),
        cmocka_unit_test(arrays_are_not_read_if_there_is_nothing_to_do),
        cmocka_unit_test(kv_len_0_needs_no_k_and_v_and_gives_zeros),
        cmocka_unit_test(value_dim_0_means_head_dim),
        cmocka_unit_test(any_head_dim_and_value_dim_work),
        cmocka_unit_test(strides_without_their_flag_are_refused),
        cmocka_unit_test(strides_of_parts_of_an_element_are_refused),
        cmocka_unit_test(strides_that_overflow_are_refused),
        cmocka_unit_test(tensors_that_leave_the_address_space_are_refused),
        cmocka_unit_test(strides_along_a_single_entry_are_not_looked_at),
        cmocka_unit_test(outputs_whose_rows_overlap_are_refused),
        cmocka_unit_test(inputs_may_repeat_by_stride_0_and_overlap_themselves),
        cmocka_unit_test(negative_strides_go_backwards),
        cmocka_unit_test(gaps_between_rows_are_left_alone),
        cmocka_unit_test(null_tensors_are_refused),
        cmocka_unit_test(null_tensors_of_a_huge_batch_are_refused_at_once),
        cmocka_unit_test(runs_of_a_huge_batch_without_tensors_are_refused_at_once),
        cmocka_unit_test(without_lse_there_is_only_out),
        cmocka_unit_test(an_absent_lse_lies_nowhere),
        cmocka_unit_test(misaligned_tensors_are_refused),
        cmocka_unit_test(any_address_of_an_element_works),
        cmocka_unit_test(outputs_that_overlap_a_tensor_are_refused),
        cmocka_unit_test(outputs_may_touch_other_tensors),
        cmocka_unit_test(inputs_may_overlap_each_other),
        cmocka_unit_test(outputs_may_lie_in_the_gaps_of_an_input),
        cmocka_unit_test(a_missing_workspace_is_refused),
        cmocka_unit_test(one_byte_too_few_is_refused_at_any_alignment),
        cmocka_unit_test(the_bytes_asked_for_are_enough_at_any_alignment),
        cmocka_unit_test(a_workspace_inside_a_tensor_is_refused),
        cmocka_unit_test(a_tensor_at_the_end_of_the_workspace_is_refused),
        cmocka_unit_test(the_workspace_keeps_to_the_bound_of_the_header),
        cmocka_unit_test(the_workspace_does_not_grow_with_the_lengths),
        cmocka_unit_test(the_workspace_does_not_shrink_as_q_len_grows),
        cmocka_unit_test(the_workspace_does_not_shrink_as_kv_len_grows),
        cmocka_unit_test(the_workspace_does_not_shrink_as_lengths_grow_huge),
        cmocka_unit_test(sizes_up_to_2_63_are_a_size_or_a_status),
        cmocka_unit_test(scales_that_are_not_finite_in_binary32_are_refused),
        cmocka_unit_test(a_scale_without_its_flag_is_refused),
        cmocka_unit_test(scale_0_gives_the_mean_of_v),
        cmocka_unit_test(a_negative_scale_gives_the_result_of_minus_k),
        cmocka_unit_test(tiny_and_huge_scales_that_fit_binary32_are_taken),
        cmocka_unit_test(causal_without_a_position_is_refused),
        cmocka_unit_test(offsets_and_their_align_come_together),
        cmocka_unit_test(an_align_without_causal_changes_nothing),
        cmocka_unit_test(positions_beyond_63_bits_are_refused),
        cmocka_unit_test(integers_may_have_32_bits),
        cmocka_unit_test(rows_before_the_keys_see_no_key_and_rows_behind_see_all),
        cmocka_unit_test(more_causal_rows_than_keys_have_empty_rows_at_the_bottom_right),
        cmocka_unit_test(kv_lens_outside_kv_len_are_refused),
        cmocka_unit_test(kv_lens_from_0_to_kv_len_are_taken),
        cmocka_unit_test(scores_that_are_not_finite_have_a_defined_result),
        cmocka_unit_test(huge_equal_scores_give_the_mean_of_v),
        cmocka_unit_test(thread_numbers_out_of_range_are_refused),
        cmocka_unit_test(parallel_for_goes_with_thread_0_only),
        cmocka_unit_test(a_refused_call_runs_no_task),
        cmocka_unit_test(far_more_threads_than_work_are_fine),
        cmocka_unit_test(threads_0_means_1),
        cmocka_unit_test(unknown_instruction_sets_are_refused),
        cmocka_unit_test(instruction_sets_that_cannot_run_here_are_refused),
        cmocka_unit_test(keys_that_no_row_sees_may_be_unmapped),
        cmocka_unit_test(heads_may_lie_gigabytes_apart),
        cmocka_unit_test(tensors_of_more_than_2_to_the_31_elements_are_right),
        cmocka_unit_test(tensors_of_more_than_2_to_the_32_elements_are_right),
        cmocka_unit_test(every_number_of_a_status_has_a_name),
        cmocka_unit_test(the_version_equals_the_header),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
