/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the public calls of linear maps and of packing with bad and odd arguments. The library
 * refuses a call that it cannot carry out. A refused call returns the documented status, and writes
 * nothing but a message, which names the argument and its value. The tests change a small valid
 * call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "attnkit.h"
#include "tests/support/random.h"

enum {
    ROWS = 5,
    IN_DIM = 64,
    OUT_DIM = 20,
    TILES = 2,
    TILE = 16 * IN_DIM, /* number of elements of a tile */
    ROOM = 8192,        /* floats for each tensor and for the packed matrix */
    MARGIN = 1024,      /* how many of the ROOM floats lie before a tensor's first element */
    PATTERN = 0xa5,
};

/* A linear map, a call that packs its matrix, and all memory of both except the workspace. A
 * refused call may change none of this memory. */
struct call {
    attnkit_pack_args pack;
    attnkit_linear_args args;
    attnkit_exec exec;
    float w[ROOM], x[ROOM], y[ROOM], bias[ROOM];
    _Alignas(64) float packed[ROOM];
};

static _Alignas(64) char workspace[1 << 20];

static void fill(float *x, uint64_t seed)
{
    for (int i = 0; i < ROOM; i++)
        x[i] = random_uniform(&seed);
}

/* Returns the arguments of the valid calls, and packs the matrix. The next call of this function
 * overwrites the arguments and the matrix. */
static struct call *good_call(void)
{
    static struct call c;
    memset(&c, PATTERN, sizeof c);
    fill(c.w, 1);
    fill(c.x, 2);
    fill(c.bias, 3);
    c.pack = (attnkit_pack_args){.size = sizeof c.pack,
                                 .out_dim = OUT_DIM,
                                 .in_dim = IN_DIM,
                                 .w = {.data = c.w + MARGIN},
                                 .packed = c.packed + MARGIN,
                                 .packed_size = TILES * TILE * sizeof(float)};
    c.args = (attnkit_linear_args){.size = sizeof c.args,
                                   .rows = ROWS,
                                   .in_dim = IN_DIM,
                                   .out_dim = OUT_DIM,
                                   .x = {.data = c.x + MARGIN},
                                   .w = {.data = c.packed + MARGIN},
                                   .y = {.data = c.y + MARGIN},
                                   .bias = c.bias + MARGIN};
    c.exec = (attnkit_exec){
        .size = sizeof c.exec, .workspace = workspace, .workspace_size = sizeof workspace};
    assert_int_equal(attnkit_pack(&c.pack, NULL, NULL), ATTNKIT_OK);
    return &c;
}

static struct call *good_strided(void)
{
    struct call *const c = good_call();
    c->args.x.layout = c->args.y.layout = c->pack.w.layout = ATTNKIT_STRIDED;
    c->pack.w.strides[2] = c->args.x.strides[2] = IN_DIM * 4;
    c->args.y.strides[2] = OUT_DIM * 4;
    return c;
}

/* --- What is expected ------------------------------------------------------------------------- */

/* A function that makes one of the calls with its arguments from struct call. */
typedef attnkit_status (*caller)(const struct call *c, char *message);

static attnkit_status pack(const struct call *c, char *message)
{
    return attnkit_pack(&c->pack, &c->exec, message);
}

static attnkit_status packed_size(const struct call *c, char *message)
{
    size_t bytes = 12345;
    const attnkit_status status = attnkit_packed_size(&c->pack, &bytes, message);
    assert_true((status == ATTNKIT_OK) == (bytes != 12345));
    return status;
}

static attnkit_status linear(const struct call *c, char *message)
{
    return attnkit_linear(&c->args, &c->exec, message);
}

static attnkit_status linear_workspace(const struct call *c, char *message)
{
    size_t bytes = 12345;
    const attnkit_status status = attnkit_linear_workspace(&c->args, &c->exec, &bytes, message);
    assert_true((status == ATTNKIT_OK) == (bytes != 12345));
    return status;
}

static void expect_refusal(struct call *c, caller call, attnkit_status expected, const char *text)
{
    static struct call before;
    memcpy(&before, c, sizeof before);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = call(c, message);
    if (status != expected || !strstr(message, text))
        fail_msg("expected \"%s\": got %s, \"%s\"", text, attnkit_status_string(status), message);
    assert_int_equal(call(c, NULL), expected);
    assert_memory_equal(c, &before, sizeof before);
}

static void expect_ok(const struct call *c, caller call)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = call(c, message);
    if (status != ATTNKIT_OK || message[0] != '\0')
        fail_msg("%s, \"%s\"", attnkit_status_string(status), message);
}

/* A field of the call, its new value, the expected status, and a part of the message. */
struct refusal {
    const char *text;
    size_t field, size;
    int64_t value;
    attnkit_status status;
};

#define SET(name, value) offsetof(struct call, name), sizeof(((struct call *)0)->name), value

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

static struct call *changed_call(const struct refusal *r)
{
    struct call *const c = good_call();
    const int32_t narrow = (int32_t)r->value;
    memcpy((char *)c + r->field, r->size == 4 ? (const void *)&narrow : &r->value, r->size);
    return c;
}

/* Expects that the call refuses each fault of the table. If `query` is not NULL, the query must
 * also refuse the fault. */
static void expect_refusals(const struct refusal *table, int64_t count, caller call, caller query)
{
    for (int64_t i = 0; i < count; i++) {
        expect_refusal(changed_call(&table[i]), call, table[i].status, table[i].text);
        if (query)
            expect_refusal(changed_call(&table[i]), query, table[i].status, table[i].text);
    }
}

static const attnkit_status bad = ATTNKIT_BAD_ARGUMENT, unsupported = ATTNKIT_UNSUPPORTED,
                            overflow = ATTNKIT_OVERFLOW;

/* --- Calls that are right --------------------------------------------------------------------- */

static void the_good_calls_are_right(void **state)
{
    (void)state;
    const caller calls[] = {pack, packed_size, linear, linear_workspace};
    for (int64_t i = 0; i < COUNT(calls); i++) {
        expect_ok(good_call(), calls[i]);
        expect_ok(good_strided(), calls[i]);
    }
}

static void without_rows_no_memory_is_needed(void **state)
{
    (void)state;
    struct call *const c = good_call();
    size_t bytes = 1;
    c->args.rows = 0;
    c->args.x.data = c->args.w.data = c->args.y.data = NULL;
    c->args.bias = NULL;
    c->exec.workspace = NULL;
    c->exec.workspace_size = 0;
    expect_ok(c, linear);
    assert_int_equal(attnkit_linear_workspace(&c->args, &c->exec, &bytes, NULL), ATTNKIT_OK);
    assert_int_equal(bytes, 0);
}

static void queries_do_not_read_tensors(void **state)
{
    (void)state;
    struct call *const c = good_call();
    size_t size, without;
    assert_int_equal(attnkit_linear_workspace(&c->args, NULL, &size, NULL), ATTNKIT_OK);
    c->args.x.data = c->args.w.data = c->args.y.data = NULL;
    c->args.bias = (const float *)(uintptr_t)4;
    assert_int_equal(attnkit_linear_workspace(&c->args, NULL, &without, NULL), ATTNKIT_OK);
    assert_int_equal(size, without);
    assert_int_equal(attnkit_packed_size(&c->pack, &size, NULL), ATTNKIT_OK);
    c->pack.w.data = NULL;
    c->pack.packed = NULL;
    c->pack.packed_size = 0;
    assert_int_equal(attnkit_packed_size(&c->pack, &without, NULL), ATTNKIT_OK);
    assert_int_equal(size, without);
}

static void packed_size_counts_whole_tiles(void **state)
{
    (void)state;
    static const int64_t outs[][2] = {{1, 16}, {15, 16}, {16, 16}, {17, 32}, {4096, 4096}};
    static const int64_t bytes_of_32[] = {128, 64, 64, 0,
                                          34}; /* size of 32 elements of each type in bytes */
    for (int64_t i = 0; i < COUNT(outs); i++)
        for (int type = ATTNKIT_F32; type <= ATTNKIT_Q8_0; type++) {
            if (type == ATTNKIT_I8)
                continue;
            size_t bytes;
            const attnkit_pack_args args = {.size = sizeof args,
                                            .out_dim = outs[i][0],
                                            .in_dim = 96,
                                            .packed_type = (attnkit_type)type};
            assert_int_equal(attnkit_packed_size(&args, &bytes, NULL), ATTNKIT_OK);
            assert_int_equal(bytes, outs[i][1] * 3 * bytes_of_32[type]);
        }
}

/* A value of the argument `types` of bytes_for. It stands for a call with ATTNKIT_INTEGERS. */
enum { INTEGERS = 27 };

/* Returns the bytes of workspace that a call needs. `types` is INTEGERS, or the type of x + 3 * the
 * type of w + 9 * the type of y. */
static size_t bytes_for(int64_t rows, int64_t in_dim, int64_t out_dim, int types, int64_t threads)
{
    const attnkit_linear_args args = {.size = sizeof args,
                                      .rows = rows,
                                      .in_dim = in_dim,
                                      .out_dim = out_dim,
                                      .x.type = types % 3,
                                      .w.type = types == INTEGERS ? ATTNKIT_Q8_0 : types / 3 % 3,
                                      .y.type = types / 9 % 3,
                                      .flags = types == INTEGERS ? ATTNKIT_INTEGERS : 0};
    const attnkit_exec exec = {.size = sizeof exec, .threads = threads};
    size_t bytes;
    assert_int_equal(attnkit_linear_workspace(&args, &exec, &bytes, NULL), ATTNKIT_OK);
    return bytes;
}

static void workspace_is_within_the_bound_of_the_header(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 7, 8, 9, 255, 256, 257, 100000},
                         dims[] = {1, 5, 64, 300, 4096, 70001}, threads[] = {1, 2, 64};
    for (int64_t r = 0; r < COUNT(rows); r++)
        for (int64_t i = 0; i < COUNT(dims); i++)
            for (int64_t o = 0; o < COUNT(dims); o++)
                for (int64_t t = 0; t < COUNT(threads); t++)
                    for (int types = 0; types <= INTEGERS; types++) {
                        if (types == INTEGERS && dims[i] % 32 != 0)
                            continue;
                        const size_t each = (size_t)(4 * 256 * (dims[i] + 512));
                        assert_true(bytes_for(rows[r], dims[i], dims[o], types, threads[t]) <=
                                    (size_t)threads[t] * (each + 4096));
                    }
}

static void workspace_never_shrinks_as_rows_grow(void **state)
{
    (void)state;
    for (int types = 0; types <= INTEGERS; types++)
        for (int64_t threads = 1; threads <= 3; threads += 2) {
            size_t before = 0;
            for (int64_t rows = 0; rows < 600; rows++) {
                const size_t bytes = bytes_for(rows, 96, 100, types, threads);
                assert_true(bytes >= before);
                before = bytes;
            }
        }
}

/* --- Structs ---------------------------------------------------------------------------------- */

static void null_structs_are_refused(void **state)
{
    (void)state;
    struct call *const c = good_call();
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes = 12345;
    assert_int_equal(attnkit_pack(NULL, NULL, message), bad);
    assert_string_equal(message, "args is NULL");
    assert_int_equal(attnkit_linear(NULL, NULL, message), bad);
    assert_string_equal(message, "args is NULL");
    assert_int_equal(attnkit_packed_size(NULL, &bytes, message), bad);
    assert_string_equal(message, "args is NULL");
    assert_int_equal(attnkit_linear_workspace(NULL, NULL, &bytes, message), bad);
    assert_string_equal(message, "args is NULL");
    assert_int_equal(attnkit_packed_size(&c->pack, NULL, message), bad);
    assert_string_equal(message, "bytes is NULL");
    assert_int_equal(attnkit_linear_workspace(&c->args, NULL, NULL, message), bad);
    assert_string_equal(message, "bytes is NULL");
    assert_int_equal(bytes, 12345);
}

static void struct_sizes_of_no_version_are_refused(void **state)
{
    (void)state;
    const struct refusal packs[] = {
        {"attnkit_pack_args.size is 0", SET(pack.size, 0), bad},
        {"attnkit_pack_args.size is ", SET(pack.size, sizeof(attnkit_pack_args) - 1), bad},
        {"attnkit_pack_args.size is 4097", SET(pack.size, 4097), bad},
    };
    const struct refusal linears[] = {
        {"attnkit_linear_args.size is 0", SET(args.size, 0), bad},
        {"attnkit_linear_args.size is ", SET(args.size, offsetof(attnkit_linear_args, flags) - 1),
         bad},
        {"attnkit_linear_args.size is 4097", SET(args.size, 4097), bad},
        {"attnkit_exec.size is 3", SET(exec.size, 3), bad},
    };
    expect_refusals(packs, COUNT(packs), pack, packed_size);
    expect_refusals(linears, COUNT(linears), linear, linear_workspace);
}

static void newer_structs_may_have_a_tail_of_zeros(void **state)
{
    (void)state;
    struct {
        attnkit_pack_args args;
        char tail[16];
    } newer_pack = {.args = good_call()->pack};
    struct {
        attnkit_linear_args args;
        char tail[16];
    } newer_linear = {.args = good_call()->args};
    struct call *const c = good_call();
    char message[ATTNKIT_MESSAGE_SIZE];
    newer_pack.args.size = sizeof newer_pack;
    newer_linear.args.size = sizeof newer_linear;
    assert_int_equal(attnkit_pack(&newer_pack.args, NULL, message), ATTNKIT_OK);
    assert_int_equal(attnkit_linear(&newer_linear.args, &c->exec, message), ATTNKIT_OK);
    newer_pack.tail[15] = newer_linear.tail[3] = 1;
    assert_int_equal(attnkit_pack(&newer_pack.args, NULL, message), unsupported);
    assert_non_null(strstr(message, "attnkit_pack_args.size is "));
    assert_int_equal(attnkit_linear(&newer_linear.args, &c->exec, message), unsupported);
    assert_non_null(strstr(message, "attnkit_linear_args.size is "));
}

static void an_unknown_instruction_set_is_refused(void **state)
{
    (void)state;
    struct call *const c = good_call();
    c->exec.isa = "none";
    expect_refusal(c, pack, ATTNKIT_BAD_ISA, "none");
    expect_refusal(c, linear, ATTNKIT_BAD_ISA, "none");
    expect_refusal(c, linear_workspace, ATTNKIT_BAD_ISA, "none");
}

static void bad_threads_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"exec.threads is -1", SET(exec.threads, -1), bad},
        {"exec.thread is 1: must be between 0 and threads - 1 (0)", SET(exec.thread, 1), bad},
    };
    expect_refusals(table, COUNT(table), linear, linear_workspace);
    expect_refusals(table, COUNT(table), pack, NULL);
}

/* --- Shapes and types ------------------------------------------------------------------------- */

static void unknown_flags_and_types_are_unsupported(void **state)
{
    (void)state;
    const struct refusal packs[] = {
        {"flags is 0x1: bits 0x1 are not known", SET(pack.flags, 1), unsupported},
        {"w.type is 3: must be", SET(pack.w.type, ATTNKIT_I8), unsupported},
        {"w.type is -1: must be", SET(pack.w.type, -1), unsupported},
        {"packed_type is 3: must be", SET(pack.packed_type, ATTNKIT_I8), unsupported},
        {"packed_type is 5: must be", SET(pack.packed_type, ATTNKIT_Q4_0), unsupported},
        {"packed_type is 12: must be", SET(pack.packed_type, ATTNKIT_F8_E4M3), unsupported},
        {"packed_type is 0: must be ATTNKIT_Q8_0 (4), as w.type is", SET(pack.w.type, ATTNKIT_Q8_0),
         unsupported},
    };
    const struct refusal linears[] = {
        {"x.layout is 0x2: x cannot be in tiles", SET(args.x.layout, 2), unsupported},
        {"x.layout is 0x5: bits 0x4 are not known", SET(args.x.layout, 5), unsupported},
        {"y.layout is 0x3: y cannot be in tiles", SET(args.y.layout, 3), unsupported},
        {"w.layout is 0x1: must be 0 for a matrix from attnkit_pack", SET(args.w.layout, 1),
         unsupported},
        {"w.layout is 0x2: must be 0 for a matrix from attnkit_pack", SET(args.w.layout, 2),
         unsupported},
        {"x.type is 4", SET(args.x.type, ATTNKIT_Q8_0), unsupported},
        {"x.type is -1", SET(args.x.type, -1), unsupported},
        {"w.type is 3: must be", SET(args.w.type, ATTNKIT_I8), unsupported},
        {"w.type is 6: must be", SET(args.w.type, 6), unsupported},
        {"y.type is 3", SET(args.y.type, ATTNKIT_I8), unsupported},
        {"y.type is 4", SET(args.y.type, ATTNKIT_Q8_0), unsupported},
    };
    expect_refusals(packs, COUNT(packs), pack, packed_size);
    expect_refusals(linears, COUNT(linears), linear, linear_workspace);
}

static void sizes_below_their_least_are_refused(void **state)
{
    (void)state;
    const struct refusal packs[] = {
        {"out_dim is 0: must be at least 1", SET(pack.out_dim, 0), bad},
        {"out_dim is -5: must be at least 1", SET(pack.out_dim, -5), bad},
        {"in_dim is 0: must be at least 1", SET(pack.in_dim, 0), bad},
        {"in_dim is -1: must be at least 1", SET(pack.in_dim, -1), bad},
    };
    const struct refusal linears[] = {
        {"rows is -1: must be at least 0", SET(args.rows, -1), bad},
        {"in_dim is 0: must be at least 1", SET(args.in_dim, 0), bad},
        {"out_dim is 0: must be at least 1", SET(args.out_dim, 0), bad},
        {"out_dim is -1: must be at least 1", SET(args.out_dim, -1), bad},
    };
    expect_refusals(packs, COUNT(packs), pack, packed_size);
    expect_refusals(linears, COUNT(linears), linear, linear_workspace);
}

static void blocks_are_whole(void **state)
{
    (void)state;
    struct call *const c = good_call();
    c->pack.in_dim = c->args.in_dim = 48;
    c->pack.packed_type = c->args.w.type = ATTNKIT_Q8_0;
    expect_refusal(c, pack, bad, "in_dim is 48: must be a multiple of 32");
    expect_refusal(c, packed_size, bad, "in_dim is 48: must be a multiple of 32");
    expect_refusal(c, linear, bad, "in_dim is 48: must be a multiple of 32");
    expect_refusal(c, linear_workspace, bad, "in_dim is 48: must be a multiple of 32");
}

/* The flag ATTNKIT_INTEGERS is only for matrices of ATTNKIT_Q8_0. */
static void integers_need_blocks(void **state)
{
    (void)state;
    static const attnkit_type others[] = {ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16};
    static const char *const texts[] = {
        "flags has ATTNKIT_INTEGERS, but w.type is 0: must be ATTNKIT_Q8_0 (4)",
        "flags has ATTNKIT_INTEGERS, but w.type is 1: must be ATTNKIT_Q8_0 (4)",
        "flags has ATTNKIT_INTEGERS, but w.type is 2: must be ATTNKIT_Q8_0 (4)"};
    struct call *const c = good_call();
    c->args.flags = ATTNKIT_INTEGERS;
    for (int64_t i = 0; i < COUNT(others); i++) {
        c->args.w.type = others[i];
        expect_refusal(c, linear, unsupported, texts[i]);
        expect_refusal(c, linear_workspace, unsupported, texts[i]);
    }
    c->pack.packed_type = c->args.w.type = ATTNKIT_Q8_0;
    expect_ok(c, pack);
    expect_ok(c, linear_workspace);
    expect_ok(c, linear);
    c->args.flags |= ATTNKIT_CAUSAL;
    expect_refusal(c, linear, unsupported, "flags is 0x5: bits 0x1 are not known");
    c->args.flags = ATTNKIT_BF16_PRODUCTS;
    expect_refusal(c, linear_workspace, unsupported, "flags is 0x8: bits 0x8 are not known");
    c->args.flags = 0;
    c->args.reserved = 1;
    expect_refusal(c, linear, unsupported, "reserved is 0x1: must be 0");
}

static void sizes_beyond_63_bits_are_refused(void **state)
{
    (void)state;
    const int64_t huge = INT64_C(1) << 61;
    const struct refusal packs[] = {
        {"out_dim x in_dim is 20 x 2305843009213693952", SET(pack.in_dim, huge), overflow},
        {"out_dim x in_dim is 2305843009213693952 x 64", SET(pack.out_dim, huge), overflow},
        {"out_dim x in_dim is 9223372036854775807 x 64", SET(pack.out_dim, INT64_MAX), overflow},
    };
    const struct refusal linears[] = {
        {"rows x in_dim is 2305843009213693952 x 64", SET(args.rows, huge), overflow},
        {"rows x in_dim is 5 x 2305843009213693952", SET(args.in_dim, huge), overflow},
        {"rows x out_dim is 5 x 9223372036854775807", SET(args.out_dim, INT64_MAX), overflow},
    };
    expect_refusals(packs, COUNT(packs), pack, packed_size);
    expect_refusals(linears, COUNT(linears), linear, linear_workspace);
    struct call *const c = good_call();
    c->exec.threads = INT64_MAX / 2;
    expect_refusal(c, linear, overflow, "workspace is ");
    expect_refusal(c, linear_workspace, overflow, "workspace is ");
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void missing_and_misaligned_tensors_are_refused(void **state)
{
    (void)state;
    const struct refusal packs[] = {
        {"w is NULL", SET(pack.w.data, 0), bad},
        {"packed is NULL", SET(pack.packed, 0), bad},
    };
    const struct refusal linears[] = {
        {"x is NULL", SET(args.x.data, 0), bad},
        {"w is NULL", SET(args.w.data, 0), bad},
        {"y is NULL", SET(args.y.data, 0), bad},
    };
    expect_refusals(packs, COUNT(packs), pack, NULL);
    expect_refusals(linears, COUNT(linears), linear, NULL);
    struct call *c = good_call();
    c->pack.w.data = (const char *)c->pack.w.data + 2;
    expect_refusal(c, pack, bad, "must be aligned to 4 bytes");
    c = good_call();
    c->pack.packed = (char *)c->pack.packed + 32;
    expect_refusal(c, pack, bad, "must be aligned to 64 bytes");
    const void **const inputs[] = {&c->args.x.data, &c->args.w.data, &c->args.y.data,
                                   (const void **)(uintptr_t)&c->args.bias};
    const char *const texts[] = {"x is 0x", "w is 0x", "y is 0x", "bias is 0x"};
    for (int64_t i = 0; i < COUNT(inputs); i++) {
        c = good_call();
        *inputs[i] = (const char *)*inputs[i] + 2;
        expect_refusal(c, linear, bad, texts[i]);
    }
}

static void too_little_room_for_packed_is_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->pack.packed_size--;
    expect_refusal(c, pack, bad, "packed_size is 8191: 8192 needed");
    c->pack.packed_size = 0;
    expect_refusal(c, pack, bad, "packed_size is 0: 8192 needed");
    c->pack.packed_size = 8193;
    expect_ok(c, pack);
}

static void bad_strides_are_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.x.strides[2] = 256;
    expect_refusal(c, linear, bad, "x.strides[2] (row) is 256, but x.layout lacks ATTNKIT_STRIDED");
    c = good_call();
    c->args.y.strides[2] = 80;
    expect_refusal(c, linear_workspace, bad,
                   "y.strides[2] (row) is 80, but y.layout lacks ATTNKIT_STRIDED");
    c = good_call();
    c->pack.w.strides[2] = 256;
    expect_refusal(c, pack, bad, "w.strides[2] (row) is 256, but w.layout lacks ATTNKIT_STRIDED");
    c = good_strided();
    c->pack.w.strides[2] = 257;
    expect_refusal(c, pack, bad, "w.strides[2] (row) is 257: must be a multiple of 4");
    c->args.x.strides[2] = 2;
    expect_refusal(c, linear, bad, "x.strides[2] (row) is 2: must be a multiple of 4");
    c = good_strided();
    c->args.x.strides[2] = INT64_MAX / 2 - 3;
    expect_refusal(c, linear, overflow, "x.strides[2] (row) is 4611686018427387900: too large");
    c->args.x.strides[2] = -(INT64_C(1) << 60);
    expect_refusal(c, linear, overflow, "x leaves the address space");
    c = good_strided();
    c->args.y.strides[2] = 4 * OUT_DIM - 4;
    expect_refusal(c, linear, bad, "y.strides are {0, 0, 76}: rows of y (80 bytes) overlap");
    c->args.y.strides[2] = 0;
    expect_refusal(c, linear, bad, "overlap or interleave");
}

static void inputs_may_have_any_strides(void **state)
{
    (void)state;
    const int64_t strides[] = {0, 4, -4, -4 * IN_DIM, 4 * IN_DIM + 4};
    for (int64_t i = 0; i < COUNT(strides); i++) {
        struct call *const c = good_strided();
        c->args.x.strides[2] = c->pack.w.strides[2] = strides[i];
        c->pack.w.data = c->w + ROOM / 2;
        c->args.x.data = c->x + ROOM / 2;
        expect_ok(c, pack);
        expect_ok(c, linear);
    }
}

static void outputs_overlap_nothing(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.y.data = c->x + MARGIN + ROWS * IN_DIM - 1;
    expect_refusal(c, linear, bad, "overlaps x");
    c->args.y.data = c->x + MARGIN + ROWS * IN_DIM;
    expect_ok(c, linear);
    c = good_call();
    c->args.y.data = c->bias + MARGIN + OUT_DIM - 1;
    expect_refusal(c, linear, bad, "overlaps bias");
    c = good_call();
    c->args.y.data = c->packed + MARGIN + TILES * TILE - 1;
    expect_refusal(c, linear, bad, "overlaps w");
    c = good_call();
    c->pack.w.data = c->packed + MARGIN + TILES * TILE - 1;
    expect_refusal(c, pack, bad, "overlaps w");
    c->pack.w.data = c->packed + MARGIN + TILES * TILE;
    expect_ok(c, pack);
}

static void y_may_lie_between_rows_of_x(void **state)
{
    (void)state;
    struct call *const c = good_strided();
    c->args.x.strides[2] = c->args.y.strides[2] = 4 * (IN_DIM + OUT_DIM);
    c->args.y.data = (const char *)c->args.x.data + 4 * IN_DIM;
    expect_ok(c, linear);
    c->args.y.data = (const char *)c->args.y.data - 4;
    expect_refusal(c, linear, bad, "overlaps x");
}

static void a_bad_workspace_is_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    size_t bytes;
    assert_int_equal(attnkit_linear_workspace(&c->args, &c->exec, &bytes, NULL), ATTNKIT_OK);
    c->exec.workspace = NULL;
    expect_refusal(c, linear, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL");
    c = good_call();
    c->exec.workspace_size = bytes - 1;
    expect_refusal(c, linear, ATTNKIT_BAD_WORKSPACE, "exec.workspace_size is ");
    c->exec.workspace_size = bytes;
    expect_ok(c, linear);
    const void **const tensors[] = {&c->args.x.data, &c->args.w.data, &c->args.y.data,
                                    (const void **)(uintptr_t)&c->args.bias};
    const char *const texts[] = {"overlaps x", "overlaps w", "overlaps y", "overlaps bias"};
    for (int64_t i = 0; i < COUNT(tensors); i++) {
        c = good_call();
        *tensors[i] = workspace + bytes / 64 * 64; /* the last bytes of the needed workspace */
        expect_refusal(c, linear, ATTNKIT_BAD_WORKSPACE, texts[i]);
    }
}

/* The test makes the call once for each of 7 threads. Some threads have nothing to do. */
static void more_threads_than_parts_are_right(void **state)
{
    (void)state;
    struct call *const c = good_call();
    static float expected[ROOM];
    expect_ok(c, linear);
    memcpy(expected, c->y, sizeof expected);
    memset(c->y, PATTERN, sizeof c->y);
    c->exec.threads = 7;
    assert_int_equal(attnkit_linear_workspace(&c->args, &c->exec, &c->exec.workspace_size, NULL),
                     ATTNKIT_OK);
    c->exec.workspace = malloc(c->exec.workspace_size);
    for (c->exec.thread = 6; c->exec.thread >= 0; c->exec.thread--)
        expect_ok(c, linear);
    assert_memory_equal(c->y, expected, sizeof expected);
    free(c->exec.workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_calls_are_right),
        cmocka_unit_test(without_rows_no_memory_is_needed),
        cmocka_unit_test(queries_do_not_read_tensors),
        cmocka_unit_test(packed_size_counts_whole_tiles),
        cmocka_unit_test(workspace_is_within_the_bound_of_the_header),
        cmocka_unit_test(workspace_never_shrinks_as_rows_grow),
        cmocka_unit_test(null_structs_are_refused),
        cmocka_unit_test(struct_sizes_of_no_version_are_refused),
        cmocka_unit_test(newer_structs_may_have_a_tail_of_zeros),
        cmocka_unit_test(an_unknown_instruction_set_is_refused),
        cmocka_unit_test(bad_threads_are_refused),
        cmocka_unit_test(unknown_flags_and_types_are_unsupported),
        cmocka_unit_test(sizes_below_their_least_are_refused),
        cmocka_unit_test(blocks_are_whole),
        cmocka_unit_test(integers_need_blocks),
        cmocka_unit_test(sizes_beyond_63_bits_are_refused),
        cmocka_unit_test(missing_and_misaligned_tensors_are_refused),
        cmocka_unit_test(too_little_room_for_packed_is_refused),
        cmocka_unit_test(bad_strides_are_refused),
        cmocka_unit_test(inputs_may_have_any_strides),
        cmocka_unit_test(outputs_overlap_nothing),
        cmocka_unit_test(y_may_lie_between_rows_of_x),
        cmocka_unit_test(a_bad_workspace_is_refused),
        cmocka_unit_test(more_threads_than_parts_are_right),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
