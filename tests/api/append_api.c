/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests attnkit_append and its workspace query with bad and odd arguments. The library refuses a
 * call that it cannot carry out. A refused call returns the documented status, and writes nothing
 * but a message, which names the argument and its value. The tests change a small valid call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "attnkit.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"

enum {
    BATCH = 2,
    HEADS = 3,
    LEN = 4,
    DIM = 32,
    CAPACITY = 10,
    PAGE_SIZE = 4,
    PAGES = 6, /* pages for CAPACITY rows of each batch entry */
    PAGES_EACH = 3,
    TABLE_POSITIONS = 20,

    ROOM = 8192,   /* floats for each tensor */
    MARGIN = 1024, /* how many of the ROOM floats lie before a tensor's first element */
    PATTERN = 0xa5,
};

/* A call and all its memory except the workspace. A refused call may change none of this memory. */
struct call {
    attnkit_append_args args;
    attnkit_rotation rotation;
    attnkit_pages pages;
    attnkit_exec exec;
    int64_t starts[BATCH], lens[BATCH], positions[BATCH];
    int32_t block_table[PAGES];
    float src[ROOM], dst[ROOM], scales[ROOM], cos[ROOM], sin[ROOM];
};

static char workspace[1 << 16];

static void fill(float *x, uint64_t seed)
{
    for (int i = 0; i < ROOM; i++)
        x[i] = random_uniform(&seed);
}

/* Returns the valid call, which appends floats and rotates them by tables. The struct is static,
 * and this function overwrites it each time. */
static struct call *good_call(void)
{
    static struct call c;
    memset(&c, PATTERN, sizeof c);
    c.args = (attnkit_append_args){
        .size = sizeof c.args,
        .batch = BATCH,
        .heads = HEADS,
        .len = LEN,
        .dim = DIM,
        .capacity = CAPACITY,
        .src = {.data = c.src + MARGIN},
        .dst = {.data = c.dst + MARGIN},
        .starts = {.data = c.starts},
        .lens = {.data = c.lens},
        .rotation = &c.rotation,
    };
    c.rotation = (attnkit_rotation){
        .size = sizeof c.rotation,
        .kind = ATTNKIT_ROPE_HALF,
        .cos = c.cos + MARGIN,
        .sin = c.sin + MARGIN,
        .table_positions = TABLE_POSITIONS,
        .positions = {.data = c.positions},
    };
    attnkit_pages_init(&c.pages);
    c.exec = (attnkit_exec){
        .size = sizeof c.exec, .workspace = workspace, .workspace_size = sizeof workspace};
    for (int b = 0; b < BATCH; b++) {
        c.starts[b] = 5 + b;
        c.lens[b] = LEN - b;
        c.positions[b] = 7 * b;
    }
    for (int i = 0; i < PAGES; i++)
        c.block_table[i] = PAGES - 1 - i;
    fill(c.src, 1);
    fill(c.cos, 2);
    fill(c.sin, 3);
    return &c;
}

static void make_paged(struct call *c)
{
    c->args.pages = &c->pages;
    c->pages.block_table = c->block_table;
    c->pages.block_table_stride = PAGES_EACH;
    c->pages.page_size = PAGE_SIZE;
    c->pages.pages = PAGES;
}

static void make_quantised(struct call *c)
{
    c->args.dst.type = ATTNKIT_I8;
    c->args.dst_scales.data = c->scales + MARGIN;
    c->args.scale_group = 8;
}

/* Makes the valid call write to tiles. */
static void make_tiled(struct call *c)
{
    c->args.dst.layout |= ATTNKIT_TILED;
}

static void make_tiled_pages(struct call *c)
{
    make_paged(c);
    make_tiled(c);
    c->pages.block_table_stride = 1;
    c->pages.page_size = 16;
    c->pages.pages = BATCH;
    c->block_table[0] = 1;
    c->block_table[1] = 0;
}

/* Makes the call rotate by angles from a base, without tables. */
static void make_angles(struct call *c)
{
    c->rotation.cos = c->rotation.sin = NULL;
    c->rotation.table_positions = 0;
}

static void set_dense_strides(attnkit_tensor *t, int64_t rows, int64_t row_bytes)
{
    t->layout |= ATTNKIT_STRIDED;
    t->strides[2] = row_bytes;
    t->strides[1] = rows * row_bytes;
    t->strides[0] = HEADS * rows * row_bytes;
}

static void make_strided(struct call *c)
{
    set_dense_strides(&c->args.src, LEN, DIM * 4);
    set_dense_strides(&c->args.dst, CAPACITY, DIM * 4);
}

enum { TILED_CAPACITY = 40, TILES = 3 };

static void make_strided_tiles(struct call *c)
{
    make_strided(c);
    make_tiled(c);
    c->args.capacity = TILED_CAPACITY;
    set_dense_strides(&c->args.dst, TILES, 16 * DIM * 4);
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
    const attnkit_status status = attnkit_append(&c->args, &c->exec, message);
    fail_unless(status == expected && strstr(message, text), "call", text, status, message);
    const attnkit_status silent = attnkit_append(&c->args, &c->exec, NULL);
    fail_unless(silent == expected, "call without message", text, silent, message);
    fail_unless(memcmp(&before, c, sizeof before) == 0, "memory has changed", text, status,
                message);
}

static void expect_query_refusal(const struct call *c, attnkit_status expected, const char *text)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    size_t bytes = 12345;
    const attnkit_status status = attnkit_append_workspace(&c->args, &c->exec, &bytes, message);
    fail_unless(status == expected && strstr(message, text), "query", text, status, message);
    const attnkit_status silent = attnkit_append_workspace(&c->args, &c->exec, &bytes, NULL);
    fail_unless(silent == expected, "query without message", text, silent, message);
    fail_unless(bytes == 12345, "bytes have changed", text, status, message);
}

static size_t expect_query(const struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    size_t bytes = 12345;
    const attnkit_status status = attnkit_append_workspace(&c->args, &c->exec, &bytes, message);
    fail_unless(status == ATTNKIT_OK && message[0] == '\0', "query", "", status, message);
    return bytes;
}

static void expect_ok(struct call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    expect_query(c);
    const attnkit_status status = attnkit_append(&c->args, &c->exec, message);
    fail_unless(status == ATTNKIT_OK && message[0] == '\0', "call", "", status, message);
}

/* Returns whether a byte still has the pattern that fills memory before a call. */
static bool is_untouched(const void *byte)
{
    return *(const unsigned char *)byte == PATTERN;
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

typedef void (*maker)(struct call *c);

/* Makes the valid call, and changes it: first by `make`, which may be NULL, then by the changes of
 * the refusal. */
static struct call *changed_call(const struct refusal *r, maker make)
{
    struct call *c = good_call();
    if (make)
        make(c);
    for (int i = 0; i < 4; i++)
        apply(c, &r->change[i]);
    return c;
}

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* Checks that the call and the workspace query refuse each fault of the table. The library finds
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

/* --- Calls that are right ---------------------------------------------------------------- */

static void the_good_calls_are_right(void **state)
{
    (void)state;
    const maker makers[] = {make_paged, make_quantised,   make_strided,
                            make_tiled, make_tiled_pages, make_strided_tiles};
    expect_ok(good_call());
    for (size_t i = 0; i < COUNT(makers); i++) {
        struct call *c = good_call();
        makers[i](c);
        expect_ok(c);
    }
}

static void calls_with_nothing_to_do_need_no_memory(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"", {SET(args.batch, 0)}}, {"", {SET(args.heads, 0)}}, {"", {SET(args.len, 0)}}};
    for (size_t i = 0; i < COUNT(table); i++) {
        struct call *c = changed_call(&table[i], NULL);
        c->args.src.data = c->args.dst.data = NULL;
        c->args.starts.data = c->args.lens.data = c->rotation.positions.data = NULL;
        assert_int_equal(expect_query(c), 0);
        assert_int_equal(attnkit_append(&c->args, NULL, NULL), ATTNKIT_OK);
    }
}

static void entries_without_rows_are_untouched(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->lens[0] = c->lens[1] = 0;
    expect_ok(c);
    for (int i = 0; i < ROOM; i++)
        assert_true(is_untouched(&c->dst[i]));
    c->lens[1] = 1;
    expect_ok(c);
    assert_true(is_untouched(&c->dst[MARGIN + 5 * DIM]));
    assert_false(is_untouched(&c->dst[MARGIN + (HEADS * CAPACITY + 6) * DIM]));
}

/* Entries of the block table may have any value if the call appends no row to their page. */
static void only_table_entries_of_written_pages_are_read(void **state)
{
    (void)state;
    struct call *c = good_call();
    make_paged(c);
    c->block_table[0] = -1; /* page of rows 0 .. 3; batch entry 0 gets rows 5 .. 8 */
    c->block_table[PAGES_EACH] = INT32_MAX;
    expect_ok(c);
}

static void workspace_is_within_the_bound_of_the_header(void **state)
{
    (void)state;
    for (int64_t dim = 2; dim < 600; dim += 2) {
        struct call *c = good_call();
        c->args.dim = dim;
        make_angles(c);
        c->exec.threads = 1 + dim % 4;
        assert_true(expect_query(c) <= (size_t)((12 * dim + 128) * c->exec.threads));
        make_tiled(c);
        assert_true(expect_query(c) <= (size_t)((17 * dim + 128) * c->exec.threads));
        make_quantised(c);
        c->args.scale_group = 1;
        assert_true(expect_query(c) <= (size_t)((17 * dim + 128) * c->exec.threads));
    }
}

/* The workspace has exactly the size that the query returns. A pattern follows the workspace. */
static void a_workspace_for_tiles_is_enough(void **state)
{
    (void)state;
    for (int64_t group = 0; group <= DIM; group = group ? 2 * group : 1) { /* 0 stands for floats */
        struct call *c = good_call();
        make_tiled(c);
        if (group > 0)
            make_quantised(c);
        c->args.scale_group = group;
        const size_t bytes = expect_query(c);
        memset(workspace, PATTERN, bytes + 64);
        c->exec.workspace_size = bytes;
        expect_ok(c);
        for (size_t at = bytes; at < bytes + 64; at++)
            assert_true(is_untouched(&workspace[at]));
    }
}

static void workspace_does_not_depend_on_lengths(void **state)
{
    (void)state;
    struct call *c = good_call();
    const size_t bytes = expect_query(c);
    c->args.lens.data = NULL;
    c->args.capacity = 1000000;
    assert_int_equal(expect_query(c), bytes);
    c->args.len = 1000;
    assert_int_equal(expect_query(c), bytes);
}

/* --- Structs ----------------------------------------------------------------------------- */

static void null_structs_are_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes;
    assert_int_equal(attnkit_append(NULL, &c->exec, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "args is NULL");
    assert_int_equal(attnkit_append_workspace(NULL, NULL, &bytes, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "args is NULL");
    assert_int_equal(attnkit_append_workspace(&c->args, NULL, NULL, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "bytes is NULL");
    assert_int_equal(attnkit_append(&c->args, NULL, message), ATTNKIT_BAD_WORKSPACE);
    assert_non_null(strstr(message, "exec.workspace is NULL"));
}

static void struct_sizes_of_no_version_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"attnkit_append_args.size is 0", {SET(args.size, 0)}},
        {"attnkit_append_args.size is ", {SET(args.size, sizeof(attnkit_append_args) - 1)}},
        {"attnkit_append_args.size is 4097", {SET(args.size, 4097)}},
        {"attnkit_rotation.size is 0", {SET(rotation.size, 0)}},
        {"attnkit_rotation.size is ", {SET(rotation.size, sizeof(attnkit_rotation) - 1)}},
        {"attnkit_exec.size is 0", {SET(exec.size, 0)}},
        {"exec.threads is -1", {SET(exec.threads, -1)}},
        {"exec.thread is 1", {SET(exec.thread, 1)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
    const struct refusal pages[] = {
        {"attnkit_pages.size is 0", {SET(pages.size, 0)}},
        {"attnkit_pages.size is 4097", {SET(pages.size, 4097)}},
    };
    expect_shape_refusals(pages, COUNT(pages), make_paged, ATTNKIT_BAD_ARGUMENT);
}

static void newer_structs_may_have_a_tail_of_zeros(void **state)
{
    (void)state;
    static struct {
        attnkit_append_args args;
        char tail[64];
    } newer;
    struct call *c = good_call();
    char message[ATTNKIT_MESSAGE_SIZE];
    newer.args = c->args;
    newer.args.size = sizeof newer;
    assert_int_equal(attnkit_append(&newer.args, &c->exec, message), ATTNKIT_OK);
    newer.tail[0] = 1;
    assert_int_equal(attnkit_append(&newer.args, &c->exec, message), ATTNKIT_UNSUPPORTED);
    assert_non_null(strstr(message, "attnkit_append_args.size is "));
}

static void an_unknown_instruction_set_is_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->exec.isa = "avx9000";
    expect_refusal(c, ATTNKIT_BAD_ISA, "avx9000");
    expect_query_refusal(c, ATTNKIT_BAD_ISA, "avx9000");
}

/* --- Flags, types, sizes ----------------------------------------------------------------- */

static void unknown_layouts_types_and_kinds_are_unsupported(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"src.layout is 0x2: src cannot be in tiles", {SET(args.src.layout, 2)}},
        {"dst.layout is 0x4: bits 0x4 are not known", {SET(args.dst.layout, 4)}},
        {"dst.layout is 0xffffffff: bits 0xfffffffc", {SET(args.dst.layout, -1)}},
        {"dst_scales.layout is 0x3: dst_scales cannot be in", {SET(args.dst_scales.layout, 3)}},
        {"dst_scales.type is 1: must be ATTNKIT_F32 (0)", {SET(args.dst_scales.type, 1)}},
        {"starts.type is 2: must be ATTNKIT_INT64 (0) or ATTNKIT_INT32 (1)",
         {SET(args.starts.type, 2)}},
        {"lens.type is -1: must be", {SET(args.lens.type, -1)}},
        {"positions.type is 7: must be", {SET(rotation.positions.type, 7)}},
        {"starts.reserved is 1: must be 0", {SET(args.starts.reserved, 1)}},
        {"lens.reserved is -5: must be 0", {SET(args.lens.reserved, -5)}},
        {"positions.reserved is 1: must be 0", {SET(rotation.positions.reserved, 1)}},
        {"rotation.kind is 3: not known", {SET(rotation.kind, 3)}},
        {"rotation.kind is -1: not known", {SET(rotation.kind, -1)}},
        {"rotation.flags is 0x10: bits 0x10 are not known", {SET(rotation.flags, 16)}},
        {"src.type is 3: must be ATTNKIT_F32 (0)", {SET(args.src.type, ATTNKIT_I8)}},
        {"src.type is 4", {SET(args.src.type, ATTNKIT_Q8_0)}},
        {"src.type is -1", {SET(args.src.type, -1)}},
        {"src.type is 5", {SET(args.src.type, ATTNKIT_Q4_0)}},
        {"dst.type is 13: not known", {SET(args.dst.type, 13)}},
        {"dst.type is 6: an append cannot write ATTNKIT_Q4_1", {SET(args.dst.type, ATTNKIT_Q4_1)}},
        {"dst.type is 8: an append cannot write ATTNKIT_Q5_1", {SET(args.dst.type, ATTNKIT_Q5_1)}},
        {"dst.type is 9: an append cannot write ATTNKIT_IQ4_NL",
         {SET(args.dst.type, ATTNKIT_IQ4_NL)}},
        {"dst.type is 10: an append cannot write ATTNKIT_Q1_0",
         {SET(args.dst.type, ATTNKIT_Q1_0), SET(args.dim, 128)}},
        {"dst.type is 11: an append cannot write ATTNKIT_Q2_0",
         {SET(args.dst.type, ATTNKIT_Q2_0), SET(args.dim, 64)}},
        {"dst.type is 12: an append cannot write ATTNKIT_F8_E4M3",
         {SET(args.dst.type, ATTNKIT_F8_E4M3)}},
        {"dst.type is 5: there are no tiles (ATTNKIT_TILED) of ATTNKIT_Q4_0",
         {SET(args.dst.type, ATTNKIT_Q4_0), SET(args.dst.layout, ATTNKIT_TILED)}},
        {"dst.type is -2147483648", {SET(args.dst.type, INT32_MIN)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_UNSUPPORTED);
}

static void sizes_below_their_least_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"batch is -1: must be at least 0", {SET(args.batch, -1)}},
        {"heads is -1: must be at least 0", {SET(args.heads, -1)}},
        {"len is -9223372036854775808", {SET(args.len, INT64_MIN)}},
        {"dim is 0: must be at least 1", {SET(args.dim, 0)}},
        {"capacity is -1: must be at least 0", {SET(args.capacity, -1)}},
        {"scale_group is -8: must be at least 0", {SET(args.scale_group, -8)}},
        {"rotation.table_positions is -1: must be at least 0", {SET(rotation.table_positions, -1)}},
        {"dim is 0",
         {SET(args.batch, 0), SET(args.dim, 0)}}, /* a bad call with nothing to do is refused */
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
    const struct refusal paged[] = {
        {"block_table_stride is -3: must be at least 0", {SET(pages.block_table_stride, -3)}},
        {"page_size is -4: must be at least 0", {SET(pages.page_size, -4)}},
        {"pages is -6: must be at least 0", {SET(pages.pages, -6)}},
    };
    expect_shape_refusals(paged, COUNT(paged), make_paged, ATTNKIT_BAD_ARGUMENT);
}

static void sizes_whose_products_leave_63_bits_are_refused(void **state)
{
    (void)state;
    const int64_t two_32 = INT64_C(1) << 32;
    const struct refusal table[] = {
        {"dim is 9223372036854775806: too large", {SET(args.dim, INT64_MAX - 1)}},
        {"batch x len is 4294967296 x 4294967296",
         {SET(args.batch, two_32), SET(args.len, two_32)}},
        {"src has 2 x 3 x 4294967296 rows of 17179869184 bytes",
         {SET(args.len, two_32), SET(args.dim, two_32)}},
        {"dst has 2 x 3 x 9223372036854775807 rows of 128 bytes", {SET(args.capacity, INT64_MAX)}},
        {"rotation.cos has 1 x 1 x 9223372036854775807 rows of 64 bytes",
         {SET(rotation.table_positions, INT64_MAX)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_OVERFLOW);
    const struct refusal paged[] = {
        {"block_table_stride is 9223372036854775807", {SET(pages.block_table_stride, INT64_MAX)}},
        {"capacity is 9223372036854775807: too large for pages of 1",
         {SET(args.batch, 1), SET(args.capacity, INT64_MAX), SET(pages.page_size, 1)}},
        {"dst has 4294967296 x 3 x 4294967296 rows",
         {SET(pages.pages, two_32), SET(pages.page_size, two_32)}},
    };
    expect_shape_refusals(paged, COUNT(paged), make_paged, ATTNKIT_OVERFLOW);
}

static void scales_that_do_not_fit_the_type_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"scale_group is 8, but dst.type is 0 and not ATTNKIT_I8", {SET(args.scale_group, 8)}},
        {"scale_group is 8, but dst.type is 4",
         {SET(args.scale_group, 8), SET(args.dst.type, ATTNKIT_Q8_0)}},
        {"dst_scales is given, but dst.type is 0", {SET(args.dst_scales.data, 64)}},
        {"dim is 48: must be a multiple of 32 for ATTNKIT_Q8_0",
         {SET(args.dst.type, ATTNKIT_Q8_0), SET(args.dim, 48)}},
        {"dim is 48: must be a multiple of 32 for ATTNKIT_Q5_0",
         {SET(args.dst.type, ATTNKIT_Q5_0), SET(args.dim, 48)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
    const struct refusal quantised[] = {
        {"scale_group is 5: must divide dim (32)", {SET(args.scale_group, 5)}},
        {"scale_group is 64: must divide dim (32)", {SET(args.scale_group, 64)}},
    };
    expect_shape_refusals(quantised, COUNT(quantised), make_quantised, ATTNKIT_BAD_ARGUMENT);
    const struct refusal missing[] = {{"dst_scales is NULL", {SET(args.dst_scales.data, 0)}}};
    expect_call_refusals(missing, COUNT(missing), make_quantised, ATTNKIT_BAD_ARGUMENT);
}

/* --- Rotation ---------------------------------------------------------------------------- */

static void rope_fields_without_a_rotation_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"positions is given, but rotation.kind is ATTNKIT_ROPE_NONE", {SET(rotation.kind, 0)}},
        {"rotation.cos is given, but rotation.kind is ATTNKIT_ROPE_NONE",
         {SET(rotation.kind, 0), SET(rotation.positions.data, 0)}},
        {"rotation.sin is given",
         {SET(rotation.kind, 0), SET(rotation.positions.data, 0), SET(rotation.cos, 0)}},
        {"rotation.table_positions is given",
         {SET(rotation.kind, 0), SET(rotation.positions.data, 0), SET(rotation.cos, 0),
          SET(rotation.sin, 0)}},
        {"rotation.dim is given",
         {SET(rotation.kind, 0), SET(rotation.positions.data, 0), SET(rotation.dim, 8)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
    struct call *c = good_call();
    c->rotation.kind = ATTNKIT_ROPE_NONE;
    c->rotation.positions.data = NULL;
    c->rotation.base = 10000.0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rotation.base is given");
}

static void bad_rope_dims_and_tables_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"rotation.dim is 7: must be even, at least 0 and at most dim (32)",
         {SET(rotation.dim, 7)}},
        {"rotation.dim is 34", {SET(rotation.dim, 34)}},
        {"rotation.dim is -2", {SET(rotation.dim, -2)}},
        {"rotation.dim is 0: must be even, at least 0 and at most dim (31)", {SET(args.dim, 31)}},
        {"rotation.sin is NULL: give both tables or none", {SET(rotation.sin, 0)}},
        {"rotation.cos is NULL: give both tables or none", {SET(rotation.cos, 0)}},
        {"rotation.table_positions is 20: must be 0 without tables",
         {SET(rotation.cos, 0), SET(rotation.sin, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
    struct call *c = good_call();
    c->rotation.base = 10000.0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rotation.base is 10000: must be 0 with tables");
}

static void bad_bases_are_refused(void **state)
{
    (void)state;
    const double bases[] = {-10000.0, -0x1p-1074, 0.999999, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < COUNT(bases); i++) {
        struct call *c = good_call();
        make_angles(c);
        c->rotation.base = bases[i];
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rotation.base is ");
        expect_query_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be finite, at least 1");
    }
}

static void positions_outside_the_tables_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"positions[1] is -1: must be at least 0", {SET(positions[1], -1)}},
        {"rotation.table_positions is 20: batch entry 0 has 4 rows from position 17 on",
         {SET(positions[0], 17)}},
        {"rotation.table_positions is 9: batch entry 1 has 3 rows from position 7 on",
         {SET(rotation.table_positions, 9)}},
        {"rotation.table_positions is 8: batch entry 0 has 4 rows from position 5 on",
         {SET(rotation.positions.data, 0),
          SET(rotation.table_positions, 8)}}, /* without an array, the positions are c->starts */
        {"rotation.table_positions is 0", {SET(rotation.table_positions, 0)}},
    };
    expect_call_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
    const struct refusal far[] = {{"positions[0] is 9223372036854775804: must be at most 2^63 - 1 "
                                   "minus the number of rows (4)",
                                   {SET(positions[0], INT64_MAX - 3)}}};
    expect_call_refusals(far, COUNT(far), NULL, ATTNKIT_OVERFLOW);
    struct call *c = good_call();
    c->positions[0] = TABLE_POSITIONS - LEN;
    expect_ok(c);
}

/* --- Rows and pages ---------------------------------------------------------------------- */

static void rows_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"lens[1] is 5: must be between 0 and len (4)", {SET(lens[1], 5)}},
        {"lens[0] is -1: must be between 0 and len (4)", {SET(lens[0], -1)}},
        {"starts[0] is -1: must be at least 0", {SET(starts[0], -1)}},
        {"starts[1] is -9223372036854775808", {SET(starts[1], INT64_MIN)}},
        {"capacity is 10: batch entry 1 has 3 rows from row 8 on", {SET(starts[1], 8)}},
        {"capacity is 10: batch entry 0 has 4 rows from row 9223372036854775807 on",
         {SET(starts[0], INT64_MAX)}},
        {"capacity is 10: batch entry 0 has 0 rows from row 11 on",
         {SET(starts[0], 11), SET(lens[0], 0)}},
        {"capacity is 8: batch entry 0 has 4 rows from row 5 on", {SET(args.capacity, 8)}},
        {"capacity is 3: batch entry 0 has 4 rows from row 0 on",
         {SET(args.capacity, 3), SET(args.starts.data, 0)}},
        {"capacity is 0", {SET(args.capacity, 0)}},
    };
    expect_call_refusals(table, COUNT(table), NULL, ATTNKIT_BAD_ARGUMENT);
    expect_call_refusals(table, 6, make_paged, ATTNKIT_BAD_ARGUMENT);
    struct call *c = good_call();
    c->starts[0] = CAPACITY - LEN;
    expect_ok(c);
}

static void bad_page_shapes_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"page_size is 0: must be at least 1 with block_table", {SET(pages.page_size, 0)}},
        {"page_size is 4, but block_table is NULL", {SET(pages.block_table, 0)}},
        {"block_table_stride is 3, but block_table is NULL",
         {SET(pages.block_table, 0), SET(pages.page_size, 0)}},
        {"pages is 6, but block_table is NULL",
         {SET(pages.block_table, 0), SET(pages.page_size, 0), SET(pages.block_table_stride, 0)}},
        {"block_table_stride is 2: must be at least 3, the pages of capacity (10)",
         {SET(pages.block_table_stride, 2)}},
        {"block_table_stride is 0: must be at least 3", {SET(pages.block_table_stride, 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_paged, ATTNKIT_BAD_ARGUMENT);
}

static void table_entries_that_are_no_pages_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"block_table[1] is -1: must be between 0 and pages - 1 (5)", {SET(block_table[1], -1)}},
        {"block_table[2] is 6: must be between 0 and pages - 1 (5)", {SET(block_table[2], 6)}},
        {"block_table[4] is 2147483647", {SET(block_table[4], INT32_MAX)}},
        {"block_table[5] is -2147483648", {SET(block_table[5], INT32_MIN)}},
        {"block_table[1] is 4: must be between 0 and pages - 1 (3)", {SET(pages.pages, 4)}},
        {"must be between 0 and pages - 1 (-1)", {SET(pages.pages, 0)}},
    };
    expect_call_refusals(table, COUNT(table), make_paged, ATTNKIT_BAD_ARGUMENT);
}

/* --- Tensors ----------------------------------------------------------------------------- */

static void missing_and_misaligned_tensors_are_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.src.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "src is NULL");
    c = good_call();
    c->args.dst.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "dst is NULL");
    c = good_call();
    c->args.src.data = (char *)c->src + 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 4 bytes");
    c->args.src.type = ATTNKIT_BF16;
    expect_ok(c);
    c = good_call();
    c->args.dst.data = (char *)c->dst + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "dst is 0x");
    c->args.dst.type = ATTNKIT_Q8_0;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 2 bytes");
    make_quantised(c);
    expect_ok(c);
    c->args.dst_scales.data = (float *)((char *)c->scales + 2);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "dst_scales is 0x");
    c = good_call();
    c->rotation.sin = (const float *)((char *)c->sin + 2);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "rotation.sin is 0x");
    const char *const texts[] = {"starts is 0x", "lens is 0x", "positions is 0x"};
    for (int i = 0; i < 3; i++) {
        c = good_call();
        attnkit_ints *const ints[] = {&c->args.starts, &c->args.lens, &c->rotation.positions};
        ints[i]->data = (const char *)ints[i]->data + 4;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, texts[i]);
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 8 bytes");
    }
    c = good_call();
    make_paged(c);
    c->pages.block_table = (const int32_t *)((char *)c->block_table + 2);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "block_table is 0x");
}

/* Only the length of the first batch entry is in mapped memory, so that reading the second length
 * faults. */
static void a_missing_tensor_is_refused_before_entries_are_read(void **state)
{
    (void)state;
    struct guarded lens = memory_guarded(sizeof(int64_t), 0, true);
    memset(lens.data, 0, sizeof(int64_t));
    struct call *const c = good_call();
    make_strided(c);
    c->args.batch = INT64_C(1) << 40;
    c->args.starts.data = c->rotation.positions.data = NULL;
    c->args.lens.data = lens.data;
    c->args.src.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "src is NULL");
    c->args.src.data = c->src + MARGIN;
    c->args.dst.data = NULL;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "dst is NULL");
    memory_unguard(&lens);
}

static void bad_strides_are_refused(void **state)
{
    (void)state;
    const struct refusal not_strided[] = {
        {"src.strides[1] (head) is 8, but src.layout lacks ATTNKIT_STRIDED",
         {SET(args.src.strides[1], 8)}},
        {"dst.strides[2] (row) is 4, but dst.layout lacks", {SET(args.dst.strides[2], 4)}},
    };
    expect_shape_refusals(not_strided, COUNT(not_strided), NULL, ATTNKIT_BAD_ARGUMENT);
    const struct refusal quantised[] = {
        {"dst_scales.strides[0] (batch) is 16, but dst_scales.layout lacks",
         {SET(args.dst_scales.strides[0], 16)}}};
    expect_shape_refusals(quantised, COUNT(quantised), make_quantised, ATTNKIT_BAD_ARGUMENT);
    const struct refusal paged[] = {
        {"dst.strides[0] (page) is 16, but dst.layout lacks", {SET(args.dst.strides[0], 16)}}};
    expect_shape_refusals(paged, COUNT(paged), make_paged, ATTNKIT_BAD_ARGUMENT);
    const struct refusal odd[] = {
        {"src.strides[0] (batch) is 1538: must be a multiple of 4",
         {SET(args.src.strides[0], 1538)}},
        {"dst.strides[1] (head) is 3: must be a multiple of 4", {SET(args.dst.strides[1], 3)}},
    };
    expect_shape_refusals(odd, COUNT(odd), make_strided, ATTNKIT_BAD_ARGUMENT);
    const struct refusal huge[] = {
        {"src.strides[0] (batch) is 4611686018427387904: too large for size 2",
         {SET(args.src.strides[0], INT64_C(1) << 62)}}};
    expect_shape_refusals(huge, COUNT(huge), make_strided, ATTNKIT_OVERFLOW);
}

static void rows_of_dst_that_overlap_are_refused(void **state)
{
    (void)state;
    const struct refusal table[] = {
        {"rows of dst (128 bytes) overlap or interleave", {SET(args.dst.strides[2], 0)}},
        {"dst.strides are {3840, 1280, 124}", {SET(args.dst.strides[2], 124)}},
        {"dst.strides are {3840, 128, 128}", {SET(args.dst.strides[1], 128)}},
        {"dst.strides are {0, 1280, 128}", {SET(args.dst.strides[0], 0)}},
    };
    expect_shape_refusals(table, COUNT(table), make_strided, ATTNKIT_BAD_ARGUMENT);
    struct call *c = good_call();
    make_strided(c);
    c->args.src.strides[0] = c->args.src.strides[1] = 0; /* src may repeat rows */
    expect_ok(c);
}

static void tensors_that_overlap_are_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    c->args.dst.data = c->src + MARGIN;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps src (0x");
    c->args.dst.data = c->src + MARGIN - BATCH * HEADS * CAPACITY * DIM + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps src (0x");
    c = good_call();
    c->args.dst.data = c->cos + MARGIN;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps rotation.cos (0x");
    c = good_call();
    make_quantised(c);
    c->args.dst.data = c->scales + MARGIN + 3;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps dst_scales (0x");
    c->args.dst.data = c->dst + MARGIN;
    c->args.dst_scales.data = c->src + MARGIN;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "dst_scales (0x");
}

/* If an array lay in dst, the call would change the array after checking it. */
static void arrays_that_lie_in_dst_are_refused(void **state)
{
    (void)state;
    const char *const texts[] = {"overlaps starts (0x", "overlaps lens (0x",
                                 "overlaps positions (0x"};
    for (int i = 0; i < 3; i++) {
        struct call *const c = good_call();
        attnkit_ints *const ints[] = {&c->args.starts, &c->args.lens, &c->rotation.positions};
        ints[i]->data = c->dst + MARGIN + BATCH * HEADS * CAPACITY * DIM - 2;
        expect_refusal(c, ATTNKIT_BAD_ARGUMENT, texts[i]);
    }
    struct call *const c = good_call();
    make_paged(c);
    c->pages.block_table = (const int32_t *)(c->dst + MARGIN) - PAGES + 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps block_table (0x");
    c->pages.block_table = (const int32_t *)(c->dst + MARGIN) - PAGES;
    memcpy(c->dst + MARGIN - PAGES, c->block_table, sizeof c->block_table);
    expect_ok(c);
}

/* Makes a valid rotation in place. */
static void make_in_place(struct call *c)
{
    c->args.starts.data = NULL;
    c->args.capacity = LEN;
    c->args.dst.data = c->src + MARGIN;
}

static void a_rotation_in_place_with_other_rows_is_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    make_in_place(c);
    expect_ok(c);
    c = good_call();
    make_in_place(c);
    c->starts[0] = c->starts[1] = 0;
    c->args.starts.data = c->starts;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps src (0x");
    c = good_call();
    make_in_place(c);
    c->args.capacity = LEN + 1; /* the strides of dst then differ from the strides of src */
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps src (0x");
    c = good_call();
    make_in_place(c);
    c->args.dst.type = ATTNKIT_BF16;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps src (0x");
    c = good_call();
    make_in_place(c);
    c->args.dst.data = c->src + MARGIN + DIM;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps src (0x");
    c = good_call();
    make_in_place(c);
    make_paged(c);
    c->pages.block_table_stride = 1;
    c->pages.pages = BATCH;
    c->block_table[0] = 0;
    c->block_table[1] = 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps src (0x");
}

/* If dst is in tiles, the library checks sizes and strides of whole tiles of 16 rows. */
static void tiles_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct refusal pages[] = {
        {"page_size is 20: must be a multiple of ATTNKIT_TILE_KEYS (16) with ATTNKIT_TILED",
         {SET(pages.page_size, 20)}},
        {"page_size is 24: must be a multiple", {SET(pages.page_size, 24)}},
    };
    expect_shape_refusals(pages, COUNT(pages), make_tiled_pages, ATTNKIT_BAD_ARGUMENT);
    const struct refusal strides[] = {
        {"dst.strides[2] (tile) is 2, but dst.layout lacks ATTNKIT_STRIDED",
         {SET(args.dst.strides[2], 2)}},
    };
    expect_shape_refusals(strides, COUNT(strides), make_tiled, ATTNKIT_BAD_ARGUMENT);
    const struct refusal odd[] = {{"dst.strides[2] (tile) is 2050: must be a multiple of 4",
                                   {SET(args.dst.strides[2], 2050)}}};
    expect_shape_refusals(odd, COUNT(odd), make_strided_tiles, ATTNKIT_BAD_ARGUMENT);
    const struct refusal nested[] = {
        {"dst.strides are {18432, 6144, 2044}: tiles of dst (2048 bytes) overlap or interleave",
         {SET(args.dst.strides[2], 2044)}},
        {"tiles of dst (2048 bytes) overlap or interleave", {SET(args.dst.strides[1], 2048)}},
        {"tiles of dst (2048 bytes) overlap or interleave", {SET(args.dst.strides[0], 0)}},
    };
    expect_shape_refusals(nested, COUNT(nested), make_strided_tiles, ATTNKIT_BAD_ARGUMENT);
    const struct refusal huge[] = {
        {"dst has 2 x 3 x 576460752303423488 tiles of 2048 bytes", {SET(args.capacity, INT64_MAX)}},
        {"dim is 288230376151711744: too large", {SET(args.dim, INT64_C(1) << 58)}},
    };
    expect_shape_refusals(huge, COUNT(huge), make_tiled, ATTNKIT_OVERFLOW);
}

/* The whole last tile counts as part of dst, although the call can write only the first CAPACITY of
 * its 16 rows. */
static void tiles_that_overlap_are_refused(void **state)
{
    (void)state;
    const int64_t floats =
        BATCH * HEADS * 16 * DIM; /* elements of dst: a tile for each batch entry and head */
    struct call *c = good_call();
    make_tiled(c);
    c->args.dst.data = c->dst + MARGIN;
    c->args.src.data = c->dst + MARGIN + floats - 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps src (0x");
    c->args.src.data = c->dst + MARGIN + floats;
    expect_ok(c);
    c = good_call();
    make_tiled(c);
    make_quantised(c);
    c->args.dst_scales.data = (const float *)((const char *)c->args.dst.data + floats) - 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps dst_scales (0x");
    c->args.dst_scales.data = (const float *)c->args.dst_scales.data + 1;
    expect_ok(c);
    c->exec.workspace = (char *)(uintptr_t)c->args.dst.data + floats - 1;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "overlaps dst");
    c = good_call();
    make_in_place(c);
    make_tiled(c);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps src (0x");
}

/* In some caches the scales of a row lie after its elements. */
static void scales_may_lie_between_rows(void **state)
{
    (void)state;
    struct call *c = good_call();
    make_strided(c);
    make_quantised(c);
    const int64_t row = DIM + 16; /* bytes: DIM elements and 4 scales */
    set_dense_strides(&c->args.dst, CAPACITY, row);
    set_dense_strides(&c->args.dst_scales, CAPACITY, row);
    c->args.dst_scales.data = (const float *)((const char *)c->args.dst.data + DIM);
    expect_ok(c);
    c->args.dst_scales.data = (const float *)((const char *)c->args.dst.data + DIM - 4);
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps dst_scales (0x");
}

/* --- Workspace --------------------------------------------------------------------------- */

static void a_bad_workspace_is_refused(void **state)
{
    (void)state;
    struct call *c = good_call();
    const size_t bytes = expect_query(c);
    c->exec.workspace = NULL;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL");
    c = good_call();
    c->exec.workspace_size = bytes - 1;
    expect_refusal(c, ATTNKIT_BAD_WORKSPACE, "exec.workspace_size is ");
    c->exec.workspace_size = bytes;
    expect_ok(c);
    c = good_call();
    make_quantised(c);
    float *const tensors[] = {c->dst, c->scales, c->src, c->cos, c->sin};
    const char *const names[] = {"overlaps dst", "overlaps dst_scales", "overlaps src",
                                 "overlaps rotation.cos", "overlaps rotation.sin"};
    for (size_t i = 0; i < COUNT(tensors); i++) {
        c->exec.workspace = tensors[i] + MARGIN;
        expect_refusal(c, ATTNKIT_BAD_WORKSPACE, names[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_good_calls_are_right),
        cmocka_unit_test(calls_with_nothing_to_do_need_no_memory),
        cmocka_unit_test(entries_without_rows_are_untouched),
        cmocka_unit_test(only_table_entries_of_written_pages_are_read),
        cmocka_unit_test(workspace_is_within_the_bound_of_the_header),
        cmocka_unit_test(a_workspace_for_tiles_is_enough),
        cmocka_unit_test(workspace_does_not_depend_on_lengths),
        cmocka_unit_test(null_structs_are_refused),
        cmocka_unit_test(struct_sizes_of_no_version_are_refused),
        cmocka_unit_test(newer_structs_may_have_a_tail_of_zeros),
        cmocka_unit_test(an_unknown_instruction_set_is_refused),
        cmocka_unit_test(unknown_layouts_types_and_kinds_are_unsupported),
        cmocka_unit_test(sizes_below_their_least_are_refused),
        cmocka_unit_test(sizes_whose_products_leave_63_bits_are_refused),
        cmocka_unit_test(scales_that_do_not_fit_the_type_are_refused),
        cmocka_unit_test(rope_fields_without_a_rotation_are_refused),
        cmocka_unit_test(bad_rope_dims_and_tables_are_refused),
        cmocka_unit_test(bad_bases_are_refused),
        cmocka_unit_test(positions_outside_the_tables_are_refused),
        cmocka_unit_test(rows_that_do_not_fit_are_refused),
        cmocka_unit_test(bad_page_shapes_are_refused),
        cmocka_unit_test(table_entries_that_are_no_pages_are_refused),
        cmocka_unit_test(missing_and_misaligned_tensors_are_refused),
        cmocka_unit_test(a_missing_tensor_is_refused_before_entries_are_read),
        cmocka_unit_test(bad_strides_are_refused),
        cmocka_unit_test(rows_of_dst_that_overlap_are_refused),
        cmocka_unit_test(tensors_that_overlap_are_refused),
        cmocka_unit_test(arrays_that_lie_in_dst_are_refused),
        cmocka_unit_test(a_rotation_in_place_with_other_rows_is_refused),
        cmocka_unit_test(tiles_that_do_not_fit_are_refused),
        cmocka_unit_test(tiles_that_overlap_are_refused),
        cmocka_unit_test(scales_may_lie_between_rows),
        cmocka_unit_test(a_bad_workspace_is_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
