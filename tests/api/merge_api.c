/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests attnkit_merge with bad and odd arguments. The library refuses bad arguments. A refused call
 * returns the documented status, and writes nothing but a message, which names the argument and its
 * value. The tests change a small valid call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "attnkit.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* --- Refusals ----------------------------------------------------------------------------------
 */

enum {
    PARTS = 3,
    BATCH = 2,
    HEADS = 3,
    Q_LEN = 4,
    DIM = 5,
    ROWS = BATCH * HEADS * Q_LEN,
    PATTERN = 0xa5,
};

/* A small dense call, and all its memory. */
struct call {
    attnkit_merge_args args;
    attnkit_exec exec;
    const float *outs[PARTS], *lses[PARTS];
    float part_outs[PARTS][ROWS * DIM + 64], part_lses[PARTS][ROWS + 64];
    float out[2 * ROWS * DIM], lse[2 * ROWS];
};

static struct call *good_call(void)
{
    static struct call c;
    memset(&c, PATTERN, sizeof c);
    for (int i = 0; i < PARTS; i++) {
        c.outs[i] = c.part_outs[i];
        c.lses[i] = c.part_lses[i];
    }
    c.args = (attnkit_merge_args){
        .size = sizeof c.args,
        .parts = PARTS,
        .batch = BATCH,
        .q_heads = HEADS,
        .q_len = Q_LEN,
        .value_dim = DIM,
        .part_outs = c.outs,
        .part_lses = c.lses,
        .out = {.data = c.out},
        .lse = {.data = c.lse},
    };
    c.exec = (attnkit_exec){.size = sizeof c.exec};
    return &c;
}

static void set_dense(attnkit_tensor *t, int64_t row_bytes)
{
    t->layout = ATTNKIT_STRIDED;
    t->strides[2] = row_bytes;
    t->strides[1] = Q_LEN * row_bytes;
    t->strides[0] = HEADS * Q_LEN * row_bytes;
}

static struct call *good_strided_call(void)
{
    struct call *c = good_call();
    set_dense(&c->args.part_out, DIM * 4);
    set_dense(&c->args.part_lse, 4);
    set_dense(&c->args.out, DIM * 4);
    set_dense(&c->args.lse, 4);
    return c;
}

static void expect_ok(const attnkit_merge_args *args, const attnkit_exec *exec)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_merge(args, exec, message);
    if (status != ATTNKIT_OK || message[0] != '\0')
        fail_msg("%s: %s", attnkit_status_string(status), message);
}

static void expect_refusal(struct call *c, attnkit_status expected, const char *text)
{
    static struct call before;
    memcpy(&before, c, sizeof before);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_merge(&c->args, &c->exec, message);
    if (status != expected || !strstr(message, text))
        fail_msg("expected \"%s\": got %s, \"%s\"", text, attnkit_status_string(status), message);
    assert_int_equal(attnkit_merge(&c->args, &c->exec, NULL), expected);
    assert_memory_equal(&before, c, sizeof before);
}

/* If a good call had a fault, the library could refuse the calls below for this fault instead of
 * their own. */
static void the_good_calls_are_right(void **state)
{
    (void)state;
    struct call *c = good_call();
    expect_ok(&c->args, &c->exec);
    c = good_strided_call();
    expect_ok(&c->args, &c->exec);
}

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
    struct change change[2];
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

static void expect_refusals(const struct refusal *table, size_t count, attnkit_status expected)
{
    for (size_t i = 0; i < count; i++) {
        struct call *c = good_call();
        for (int j = 0; j < 2; j++)
            apply(c, &table[i].change[j]);
        expect_refusal(c, expected, table[i].text);
    }
}

static void bad_values_are_refused(void **state)
{
    (void)state;
    static const struct refusal table[] = {
        {"attnkit_merge_args.size is 0", {SET(args.size, 0)}},
        {"attnkit_merge_args.size is ", {SET(args.size, sizeof(attnkit_merge_args) - 1)}},
        {"attnkit_merge_args.size is 4097", {SET(args.size, 4097)}},
        {"parts is -1: must be at least 0", {SET(args.parts, -1)}},
        {"batch is -1: must be at least 0", {SET(args.batch, -1)}},
        {"q_heads is -2: must be at least 0", {SET(args.q_heads, -2)}},
        {"q_len is -9223372036854775808", {SET(args.q_len, INT64_MIN)}},
        {"value_dim is 0: must be at least 1", {SET(args.value_dim, 0)}},
        {"value_dim is -1: must be at least 1", {SET(args.value_dim, -1)}},
        {"value_dim is 0", {SET(args.value_dim, 0), SET(args.batch, 0)}},
        {"out is NULL", {SET(args.out.data, 0)}},
        {"part_out.data is given: must be NULL, the addresses of the parts are in part_outs",
         {SET(args.part_out.data, 64)}},
        {"part_lse.data is given: must be NULL, the addresses of the parts are in part_lses",
         {SET(args.part_lse.data, 64)}},
        {"part_outs is NULL: parts is 3", {SET(args.part_outs, 0)}},
        {"part_lses is NULL: parts is 3", {SET(args.part_lses, 0)}},
        {"part_outs[0] is NULL", {SET(outs[0], 0)}},
        {"part_outs[2] is NULL", {SET(outs[2], 0)}},
        {"part_lses[1] is NULL", {SET(lses[1], 0)}},
        {"attnkit_exec.size is 0", {SET(exec.size, 0)}},
        {"exec.threads is -1", {SET(exec.threads, -1)}},
        {"exec.thread is 1", {SET(exec.thread, 1)}},
    };
    expect_refusals(table, COUNT(table), ATTNKIT_BAD_ARGUMENT);
}

static void unknown_layouts_and_types_are_unsupported(void **state)
{
    (void)state;
    static const struct refusal table[] = {
        {"out.layout is 0x2: out cannot be in tiles", {SET(args.out.layout, 2)}},
        {"lse.layout is 0xffffffff: bits 0xfffffffe", {SET(args.lse.layout, -1)}},
        {"part_out.layout is 0x4: bits 0x4 are", {SET(args.part_out.layout, 4)}},
        {"part_lse.layout is 0x2: part_lse cannot", {SET(args.part_lse.layout, 2)}},
        {"out.type is 3", {SET(args.out.type, ATTNKIT_I8)}},
        {"out.type is -1", {SET(args.out.type, -1)}},
        {"out.type is 77", {SET(args.out.type, 77)}},
        {"lse.type is 1: must be ATTNKIT_F32 (0)", {SET(args.lse.type, 1)}},
        {"part_out.type is 2: must be ATTNKIT_F32 (0)", {SET(args.part_out.type, 2)}},
        {"part_lse.type is -1: must be ATTNKIT_F32 (0)", {SET(args.part_lse.type, -1)}},
    };
    expect_refusals(table, COUNT(table), ATTNKIT_UNSUPPORTED);
}

static void sizes_beyond_63_bits_are_refused(void **state)
{
    (void)state;
    static const struct refusal table[] = {
        {"value_dim is 2305843009213693952", {SET(args.value_dim, INT64_C(1) << 61)}},
        {"parts is 1152921504606846976", {SET(args.parts, INT64_C(1) << 60)}},
        {"is 9223372036854775807 x 3 x 4", {SET(args.batch, INT64_MAX)}},
        {"is 2 x 9223372036854775807 x 4", {SET(args.q_heads, INT64_MAX)}},
        {"is 2 x 3 x 9223372036854775807", {SET(args.q_len, INT64_MAX)}},
        {"out has 2 x 3 x 288230376151711744 rows", {SET(args.q_len, INT64_C(1) << 58)}},
    };
    expect_refusals(table, COUNT(table), ATTNKIT_OVERFLOW);
}

static void structs_of_no_version_are_refused(void **state)
{
    (void)state;
    char message[ATTNKIT_MESSAGE_SIZE];
    assert_int_equal(attnkit_merge(NULL, NULL, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "args is NULL");
    struct call *c = good_call();
    c->exec.isa = "none";
    expect_refusal(c, ATTNKIT_BAD_ISA, "none");
    /* The struct of a newer header is longer. Bytes that this library does not know must be
     * zero. */
    union {
        attnkit_merge_args args;
        char bytes[4096];
    } newer = {{0}};
    newer.args = good_call()->args;
    newer.args.size = sizeof newer;
    expect_ok(&newer.args, NULL);
    newer.bytes[sizeof newer.args] = 1;
    assert_int_equal(attnkit_merge(&newer.args, NULL, message), ATTNKIT_UNSUPPORTED);
    assert_non_null(strstr(message, "attnkit_merge_args.size is 4096 and byte "));
}

/* Indices of the tensors of a call, for loops over all tensors. */
enum { OUT, LSE, PART_OUT, PART_LSE, TENSORS };

static const char *const strides_names[TENSORS] = {"out.strides", "lse.strides", "part_out.strides",
                                                   "part_lse.strides"};
static const char *const axis_names[3] = {"batch", "head", "row"};

static int64_t *strides_of(struct call *c, int tensor)
{
    int64_t *const strides[TENSORS] = {c->args.out.strides, c->args.lse.strides,
                                       c->args.part_out.strides, c->args.part_lse.strides};
    return strides[tensor];
}

static void expect_stride_refusal(struct call *c, int tensor, int axis, int64_t stride,
                                  attnkit_status expected)
{
    char text[80];
    strides_of(c, tensor)[axis] = stride;
    snprintf(text, sizeof text, "%s[%d] (%s) is %lld", strides_names[tensor], axis,
             axis_names[axis], (long long)stride);
    expect_refusal(c, expected, text);
}

static void bad_strides_are_refused(void **state)
{
    (void)state;
    const int64_t far = INT64_C(1) << 62;
    for (int t = 0; t < TENSORS; t++)
        for (int axis = 0; axis < 3; axis++) {
            expect_stride_refusal(good_call(), t, axis, 16, ATTNKIT_BAD_ARGUMENT);
            expect_stride_refusal(good_strided_call(), t, axis, 6, ATTNKIT_BAD_ARGUMENT);
            expect_stride_refusal(good_strided_call(), t, axis, -1, ATTNKIT_BAD_ARGUMENT);
            expect_stride_refusal(good_strided_call(), t, axis, far, ATTNKIT_OVERFLOW);
            expect_stride_refusal(good_strided_call(), t, axis, INT64_MIN, ATTNKIT_OVERFLOW);
        }
    static const char *const leaving[TENSORS] = {"out leaves", "lse leaves", "part_outs[0] leaves",
                                                 "part_lses[0] leaves"};
    for (int t = 0; t < TENSORS; t++) {
        struct call *c = good_strided_call();
        strides_of(c, t)[0] = -(INT64_C(1) << 60);
        expect_refusal(c, ATTNKIT_OVERFLOW, leaving[t]);
    }
}

static void outputs_whose_rows_overlap_are_refused(void **state)
{
    (void)state;
    for (int axis = 0; axis < 3; axis++) {
        struct call *c = good_strided_call();
        c->args.out.strides[axis] = DIM * 4 - 4;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rows of out (20 bytes) overlap");
        c = good_strided_call();
        c->args.lse.strides[axis] = 0;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rows of lse (4 bytes) overlap");
    }
}

static void misaligned_tensors_are_refused(void **state)
{
    (void)state;
    for (int offset = 1; offset < 4; offset++) {
        struct call *c = good_call();
        c->args.out.data = (char *)c->out + offset;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 4");
        c = good_call();
        c->args.lse.data = (float *)((uintptr_t)c->lse + (uintptr_t)offset);
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "lse is 0x");
        c = good_call();
        c->outs[1] = (const float *)((uintptr_t)c->outs[1] + (uintptr_t)offset);
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "part_outs[1] is 0x");
        c = good_call();
        c->lses[2] = (const float *)((uintptr_t)c->lses[2] + (uintptr_t)offset);
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "part_lses[2] is 0x");
    }
}

/* Moves a part or an output so that two tensors overlap. The two tensors begin at different
 * addresses, with one exception: part_lses[0] begins at out. The library refuses this overlap,
 * too. */
static void outputs_that_overlap_are_refused(void **state)
{
    (void)state;
    static const int offsets[] = {DIM, 1, ROWS * DIM - 1};
    for (size_t i = 0; i < COUNT(offsets); i++) {
        struct call *c = good_call();
        c->outs[1] = c->out + offsets[i];
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps part_outs[1] (");
        c = good_call();
        c->lses[2] = c->lse + 1 + offsets[i] % (ROWS - 1);
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps part_lses[2] (");
    }
    struct call *c = good_call();
    c->args.lse.data = c->out + ROWS * DIM - 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps lse (");
    c = good_call();
    c->lses[0] = c->out;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps part_lses[0] (");
    c = good_call();
    c->outs[0] = c->lse - ROWS * DIM + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps part_outs[0] (");
}

/* An output at the address of a part is allowed only if the output has the strides of the part. */
static void in_place_with_other_strides_is_refused(void **state)
{
    (void)state;
    for (int axis = 0; axis < 2; axis++) {
        struct call *c = good_strided_call();
        c->outs[0] = c->out;
        c->args.out.strides[0] += 4 * DIM * HEADS;
        c->args.out.strides[1] += axis * 4 * DIM;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps part_outs[0] (");
        c = good_strided_call();
        c->lses[1] = c->lse;
        c->args.part_lse.strides[axis] = 0;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps part_lses[1] (");
    }
}

/* A call without rows reads nothing, not even the arrays of pointers. */
static void a_call_without_rows_does_nothing(void **state)
{
    (void)state;
    static const struct change changes[] = {SET(args.batch, 0), SET(args.q_len, 0),
                                            SET(args.q_heads, 0)};
    for (size_t i = 0; i < COUNT(changes); i++) {
        static struct call before;
        struct call *c = good_call();
        apply(c, &changes[i]);
        memcpy(&before, c, sizeof before);
        expect_ok(&c->args, &c->exec);
        assert_memory_equal(c, &before, sizeof before);
        c->args.part_outs = c->args.part_lses = NULL;
        c->args.out.data = c->args.lse.data = NULL;
        expect_ok(&c->args, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_calls_are_right),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(unknown_layouts_and_types_are_unsupported),
        cmocka_unit_test(sizes_beyond_63_bits_are_refused),
        cmocka_unit_test(structs_of_no_version_are_refused),
        cmocka_unit_test(bad_strides_are_refused),
        cmocka_unit_test(outputs_whose_rows_overlap_are_refused),
        cmocka_unit_test(misaligned_tensors_are_refused),
        cmocka_unit_test(outputs_that_overlap_are_refused),
        cmocka_unit_test(in_place_with_other_strides_is_refused),
        cmocka_unit_test(a_call_without_rows_does_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
