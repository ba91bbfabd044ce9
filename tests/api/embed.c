/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests token embeddings. For all types and layouts, each row of out must be a row of the table,
 * converted element by element, or zeros. The tests compare all bytes. No byte outside the rows may
 * be written. The library refuses a call that it cannot carry out. A refused call writes nothing
 * but a message, which names the argument and its value.
 *
 * Usage: embed [ISA]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/scalar/scalar.h"
#include "attnkit.h"
#include "tests/support/call.h"
#include "tests/support/memory.h"
#include "tests/support/tensor.h"

enum {
    DRAWS = 4, /* number of cases for each pair of types and each layout */
    MAX_COUNT = 70,
    MAX_VOCAB = 40,
    MAX_DIM = 600,
};

static const attnkit_type table_types[] = {ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_Q8_0};

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

/* --- Values ----------------------------------------------------------------------------------- */

/* A call and its memory. */
struct lookup {
    attnkit_embed_args args;
    struct tensor table, out;
    struct guarded ids;
};

static int64_t id_at(const struct lookup *l, int64_t i)
{
    int32_t narrow;
    int64_t wide;
    memcpy(&narrow, l->ids.data + 4 * i, sizeof narrow);
    if (l->args.ids.type == ATTNKIT_INT32)
        return narrow;
    memcpy(&wide, l->ids.data + 8 * i, sizeof wide);
    return wide;
}

static void set_id(struct lookup *l, int64_t i, int64_t id)
{
    const int32_t narrow = (int32_t)id;
    if (l->args.ids.type == ATTNKIT_INT64)
        memcpy(l->ids.data + 8 * i, &id, sizeof id);
    else
        memcpy(l->ids.data + 4 * i, &narrow, sizeof narrow);
}

/* Draws ids, and in half of the calls a padding id, which may lie outside the table. In a call with
 * a padding id, the function sets about a quarter of the ids to the padding id. */
static void draw_ids(struct lookup *l, uint64_t *random)
{
    static const int64_t paddings[] = {0, -1, 1, INT32_MIN, INT32_MAX, -100};
    attnkit_embed_args *const a = &l->args;
    const int64_t padding = paddings[random_below(random, COUNT(paddings))];
    const bool is_given = random_below(random, 2);
    if (is_given) {
        a->flags |= ATTNKIT_PADDING_GIVEN;
        a->padding_id = padding;
    }
    for (int64_t i = 0; i < a->count; i++)
        set_id(l, i,
               is_given && random_below(random, 4) == 0 ? padding : random_below(random, a->vocab));
    a->ids.data = l->ids.data;
}

static void fill_table(const struct lookup *l, uint64_t *random)
{
    float x[MAX_DIM];
    for (int64_t i = 0; i < l->args.vocab; i++) {
        for (int64_t d = 0; d < l->args.dim; d++)
            x[d] = i % 2 ? random_normal(random) : random_number(random);
        attnkit_scalar_narrow((enum type)l->args.table.type, x, l->args.dim, 0,
                              tensor_row(&l->table, 0, 0, i), NULL);
    }
}

static void place(struct lookup *l, enum layout_kind layout)
{
    attnkit_embed_args *const a = &l->args;
    l->table = (struct tensor){.count = {1, 1, a->vocab},
                               .row_bytes = bytes_of((enum type)a->table.type, a->dim)};
    l->out = (struct tensor){.count = {1, 1, a->count},
                             .row_bytes = bytes_of((enum type)a->out.type, a->dim)};
    tensor_place(&l->table, layout, 0, 0, a->table.type == ATTNKIT_F32 ? 4 : 2);
    tensor_place(&l->out, layout, 1, MAX_VOCAB, a->out.type == ATTNKIT_F32 ? 4 : 2);
    l->ids = memory_guarded((size_t)a->count * (a->ids.type == ATTNKIT_INT64 ? 8 : 4), 0,
                            layout != AFTER_GUARD);
    a->table.data = l->table.first;
    a->out.data = l->out.first;
    if (layout == DENSE)
        return;
    a->table.layout = a->out.layout = ATTNKIT_STRIDED;
    a->table.strides[2] = l->table.strides[2];
    a->out.strides[2] = l->out.strides[2];
}

static struct lookup new_lookup(attnkit_type from, attnkit_type to, enum layout_kind layout,
                                uint64_t *random)
{
    static const int64_t dims[] = {1, 31, 255, 257, 600}, blocks[] = {32, 256, 288, 512};
    struct lookup l = {.args = {.size = sizeof l.args,
                                .ids.type = random_below(random, 2) ? ATTNKIT_INT64 : ATTNKIT_INT32,
                                .count = 1 + random_below(random, MAX_COUNT),
                                .vocab = 2 + random_below(random, MAX_VOCAB - 1),
                                .dim = from == ATTNKIT_Q8_0
                                           ? blocks[random_below(random, COUNT(blocks))]
                                           : dims[random_below(random, COUNT(dims))],
                                .table.type = from,
                                .out.type = to}};
    place(&l, layout);
    draw_ids(&l, random);
    fill_table(&l, random);
    return l;
}

static void expected_row(const struct lookup *l, int64_t id, char *row)
{
    const attnkit_embed_args *const a = &l->args;
    float x[MAX_DIM];
    memset(row, 0, (size_t)l->out.row_bytes);
    if ((a->flags & ATTNKIT_PADDING_GIVEN) && id == a->padding_id)
        return;
    const char *const from = tensor_row(&l->table, 0, 0, id);
    if (a->table.type == a->out.type) {
        memcpy(row, from, (size_t)l->out.row_bytes);
        return;
    }
    attnkit_scalar_widen((enum type)a->table.type, from, NULL, 0, a->dim, x);
    for (int64_t d = 0; d < a->dim && a->table.type == ATTNKIT_Q8_0; d++)
        x[d] = plain_nan(x[d]);
    attnkit_scalar_narrow((enum type)a->out.type, x, a->dim, 0, row, NULL);
}

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

/* Runs the call. 2 threads run in a parallel-for. For any other number of threads, the test makes
 * one call for each thread, one after the other. */
static void run(const struct lookup *l, const char *isa, int64_t threads)
{
    attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    if (threads == 2)
        exec.parallel_for = backwards;
    for (exec.thread = threads == 2 ? 0 : threads - 1; exec.thread >= 0; exec.thread--) {
        char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
        const attnkit_status status = attnkit_embed(&l->args, &exec, message);
        if (status != ATTNKIT_OK || message[0] != '\0')
            fail_msg("%s: %s", attnkit_status_string(status), message);
    }
}

static void check(const struct lookup *l, const char *isa, int64_t threads)
{
    char *const expected = tensor_copy(&l->out);
    for (int64_t i = 0; i < l->args.count; i++)
        expected_row(l, id_at(l, i),
                     tensor_in_copy(&l->out, expected, tensor_row(&l->out, 0, 0, i)));
    run(l, isa, threads);
    assert_true(tensor_is_as_in(&l->out, expected));
    free(expected);
}

static void rows_are_rows_of_the_table_or_zeros(void **state)
{
    uint64_t random = 1;
    for (int64_t from = 0; from < COUNT(table_types); from++)
        for (int to = ATTNKIT_F32; to <= ATTNKIT_BF16; to++)
            for (int layout = 0; layout < TENSOR_LAYOUTS; layout++)
                for (int draw = 0; draw < DRAWS; draw++) {
                    struct lookup l = new_lookup(table_types[from], (attnkit_type)to,
                                                 tensor_layouts[layout], &random);
                    check(&l, *state, 1 + (layout + draw) % 5);
                    memory_unguard(&l.ids);
                }
}

static void more_threads_than_ids_are_right(void **state)
{
    uint64_t random = 2;
    struct lookup l = new_lookup(ATTNKIT_F32, ATTNKIT_F16, PADDED, &random);
    l.args.count = 3;
    char *const rest = tensor_copy(&l.out);
    run(&l, *state, 17);
    for (int64_t i = 0; i < 3; i++)
        expected_row(&l, id_at(&l, i), tensor_in_copy(&l.out, rest, tensor_row(&l.out, 0, 0, i)));
    assert_true(tensor_is_as_in(&l.out, rest));
    free(rest);
    memory_unguard(&l.ids);
}

/* The table's row of the padding id is unmapped. */
static void the_row_of_the_padding_is_not_read(void **state)
{
    uint64_t random = 3;
    struct lookup l = new_lookup(ATTNKIT_F32, ATTNKIT_BF16, BEFORE_GUARD, &random);
    l.args.flags |= ATTNKIT_PADDING_GIVEN;
    l.args.padding_id = 1;
    for (int64_t i = 0; i < l.args.count; i++)
        set_id(&l, i, i % 3 ? 1 : 0);
    memory_hide_slots(1, 1);
    check(&l, *state, 1);
    memory_slots(1, 1);
    memory_unguard(&l.ids);
}

/* A padding id of 2^32 must not equal an id of 0. */
static void ids_are_compared_in_64_bits(void **state)
{
    const int64_t far = INT64_C(1) << 32, ids[] = {far, 0, far, 1};
    static const int32_t narrow[] = {0, 1};
    static const float table[2] = {3, 4};
    float out[4];
    attnkit_embed_args args = {.size = sizeof args,
                               .flags = ATTNKIT_PADDING_GIVEN,
                               .count = 4,
                               .vocab = 2,
                               .dim = 1,
                               .ids = {.data = ids},
                               .table = {.data = table},
                               .out = {.data = out},
                               .padding_id = far};
    const attnkit_exec exec = {.size = sizeof exec, .isa = *state};
    assert_int_equal(attnkit_embed(&args, &exec, NULL), ATTNKIT_OK);
    assert_memory_equal(out, ((const float[]){0, 3, 0, 4}), sizeof out);
    args.ids = (attnkit_ints){.data = narrow, .type = ATTNKIT_INT32};
    args.count = 2;
    assert_int_equal(attnkit_embed(&args, &exec, NULL), ATTNKIT_OK);
    assert_memory_equal(out, table, sizeof table);
}

static void a_table_without_rows_has_the_padding(void **state)
{
    static const int32_t ids[] = {7, 7};
    float out[2] = {1, 2};
    const attnkit_embed_args args = {.size = sizeof args,
                                     .flags = ATTNKIT_PADDING_GIVEN,
                                     .count = 2,
                                     .dim = 1,
                                     .ids = {.data = ids, .type = ATTNKIT_INT32},
                                     .out = {.data = out},
                                     .padding_id = 7};
    const attnkit_exec exec = {.size = sizeof exec, .isa = *state};
    assert_int_equal(attnkit_embed(&args, &exec, NULL), ATTNKIT_OK);
    assert_memory_equal(out, ((const float[]){0, 0}), sizeof out);
}

/* --- Refusals --------------------------------------------------------------------------------- */

enum { ROWS = 5, VOCAB = 6, DIM = 32, ROOM = 512 };

/* A call and all its memory. A refused call may change none of this memory. */
struct call_memory {
    attnkit_embed_args args;
    attnkit_exec exec;
    int32_t ids[ROOM];
    float table[ROOM], out[ROOM];
};

static struct call_memory *good_call(const char *isa)
{
    static struct call_memory c;
    memset(&c, PATTERN, sizeof c);
    c.args = (attnkit_embed_args){.size = sizeof c.args,
                                  .count = ROWS,
                                  .vocab = VOCAB,
                                  .dim = DIM,
                                  .ids = {.data = c.ids, .type = ATTNKIT_INT32},
                                  .table = {.data = c.table},
                                  .out = {.data = c.out}};
    c.exec = (attnkit_exec){.size = sizeof c.exec, .isa = isa};
    for (int i = 0; i < ROWS; i++)
        c.ids[i] = VOCAB - 1 - i;
    for (int i = 0; i < VOCAB * DIM; i++)
        c.table[i] = (float)i;
    return &c;
}

static void expect_refusal(struct call_memory *c, attnkit_status expected, const char *text)
{
    static struct call_memory before;
    memcpy(&before, c, sizeof before);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_embed(&c->args, &c->exec, message);
    if (status != expected || !strstr(message, text))
        fail_msg("expected \"%s\": got %s, \"%s\"", text, attnkit_status_string(status), message);
    assert_int_equal(attnkit_embed(&c->args, &c->exec, NULL), expected);
    assert_memory_equal(c, &before, sizeof before);
}

struct refusal {
    const char *text; /* a part of the message */
    size_t field, size;
    int64_t value;
    attnkit_status status;
};

#define SET(name, value)                                                                           \
    offsetof(struct call_memory, name), sizeof(((struct call_memory *)0)->name), value

static void expect_refusals(const struct refusal *table, int64_t count, const char *isa)
{
    for (int64_t i = 0; i < count; i++) {
        struct call_memory *const c = good_call(isa);
        const int32_t narrow = (int32_t)table[i].value;
        char *const field = (char *)c + table[i].field;
        memcpy(field, table[i].size == 4 ? (const void *)&narrow : &table[i].value, table[i].size);
        expect_refusal(c, table[i].status, table[i].text);
    }
}

static void the_good_call_is_right(void **state)
{
    struct call_memory *const c = good_call(*state);
    assert_int_equal(attnkit_embed(&c->args, NULL, NULL), ATTNKIT_OK);
    assert_memory_equal(c->out, c->table + DIM * (VOCAB - 1), DIM * sizeof(float));
    assert_true(((unsigned char *)(c->out + ROWS * DIM))[0] == PATTERN);
}

static void without_ids_no_memory_is_needed(void **state)
{
    struct call_memory *const c = good_call(*state);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    c->args.count = 0;
    c->args.ids.data = c->args.table.data = c->args.out.data = NULL;
    assert_int_equal(attnkit_embed(&c->args, &c->exec, message), ATTNKIT_OK);
    assert_string_equal(message, "");
}

static void bad_fields_are_refused(void **state)
{
    const attnkit_status bad = ATTNKIT_BAD_ARGUMENT, unsupported = ATTNKIT_UNSUPPORTED;
    const struct refusal table[] = {
        {"attnkit_embed_args.size is 8", SET(args.size, 8), bad},
        {"attnkit_embed_args.size is 4097", SET(args.size, 4097), bad},
        {"flags is 0x2: bits 0x2 are not known", SET(args.flags, 2), unsupported},
        {"flags is 0x101: bits 0x100 are not known", SET(args.flags, 257), unsupported},
        {"reserved is 0x7: must be 0", SET(args.reserved, 7), unsupported},
        {"count is -1: must be at least 0", SET(args.count, -1), bad},
        {"vocab is -2: must be at least 0", SET(args.vocab, -2), bad},
        {"dim is 0: must be at least 1", SET(args.dim, 0), bad},
        {"table.type is 3: must be", SET(args.table.type, 3), unsupported},
        {"table.type is 5: must be", SET(args.table.type, 5), unsupported},
        {"table.type is -1: must be", SET(args.table.type, -1), unsupported},
        {"out.type is 4", SET(args.out.type, 4), unsupported},
        {"out.type is -1", SET(args.out.type, -1), unsupported},
        {"padding_id is 3, but flags lacks ATTNKIT_PADDING_GIVEN", SET(args.padding_id, 3), bad},
        {"table.strides[2] (row) is 128, but table.layout lacks", SET(args.table.strides[2], 128),
         bad},
        {"out.strides[2] (row) is 4, but out.layout lacks", SET(args.out.strides[2], 4), bad},
        {"table.layout is 0x2: table cannot be in tiles", SET(args.table.layout, 2), unsupported},
        {"out.layout is 0x4: bits 0x4 are not known", SET(args.out.layout, 4), unsupported},
        {"ids.type is 2: must be ATTNKIT_INT64 (0) or ATTNKIT_INT32 (1)", SET(args.ids.type, 2),
         unsupported},
        {"ids.type is -1: must be", SET(args.ids.type, -1), unsupported},
        {"ids.reserved is 3: must be 0", SET(args.ids.reserved, 3), unsupported},
        {"ids is NULL", SET(args.ids.data, 0), bad},
        {"table is NULL", SET(args.table.data, 0), bad},
        {"out is NULL", SET(args.out.data, 0), bad},
        {"ids[2] is 6: must be at least 0 and below vocab (6)", SET(ids[2], 6), bad},
        {"ids[4] is -1: must be at least 0 and below vocab (6)", SET(ids[4], -1), bad},
        {"ids[0] is 5: must be at least 0 and below vocab (5)", SET(args.vocab, 5), bad},
        {"exec.threads is -1", SET(exec.threads, -1), bad},
        {"exec.thread is 1", SET(exec.thread, 1), bad},
        {"attnkit_exec.size is 0", SET(exec.size, 0), bad},
    };
    expect_refusals(table, COUNT(table), *state);
    assert_int_equal(attnkit_embed(NULL, NULL, NULL), ATTNKIT_BAD_ARGUMENT);
    struct call_memory *const c = good_call("none");
    expect_refusal(c, ATTNKIT_BAD_ISA, "none");
}

static void blocks_are_whole(void **state)
{
    struct call_memory *const c = good_call(*state);
    c->args.table.type = ATTNKIT_Q8_0;
    c->args.dim = 33;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "dim is 33: must be a multiple of 32");
}

static void sizes_beyond_63_bits_are_refused(void **state)
{
    const attnkit_status overflow = ATTNKIT_OVERFLOW;
    const struct refusal table[] = {
        {"vocab x dim is 6 x 9223372036854775807", SET(args.dim, INT64_MAX), overflow},
        {"vocab x dim is 9223372036854775807 x 32", SET(args.vocab, INT64_MAX), overflow},
        {"count x dim is 4611686018427387904 x 32", SET(args.count, INT64_C(1) << 62), overflow},
    };
    expect_refusals(table, COUNT(table), *state);
    struct call_memory *const c = good_call(*state);
    c->args.ids.type = ATTNKIT_INT64;
    c->args.dim = 1;
    c->args.out.type = ATTNKIT_F16;
    c->args.count = INT64_MAX / 4 - 100;
    expect_refusal(c, overflow, "ids has 1 x 1 x ");
}

static void bad_strides_and_addresses_are_refused(void **state)
{
    struct call_memory *c = good_call(*state);
    c->args.table.layout = c->args.out.layout = ATTNKIT_STRIDED;
    c->args.table.strides[2] = 4 * DIM;
    c->args.out.strides[2] = 4 * DIM - 4;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out.strides are {0, 0, 124}: rows of out (128 bytes)");
    c->args.out.strides[2] = 4 * DIM + 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "out.strides[2] (row) is 130: must be a multiple of 4");
    c->args.out.strides[2] = 4 * DIM;
    c->args.table.strides[2] = 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "table.strides[2] (row) is 1: must be a multiple of 4");
    c->args.table.strides[2] = 0;
    assert_int_equal(attnkit_embed(&c->args, &c->exec, NULL), ATTNKIT_OK);
    c = good_call(*state);
    c->args.table.data = (const char *)c->table + 2;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 4 bytes");
    c = good_call(*state);
    c->args.ids = (attnkit_ints){.data = c->ids + 1};
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "must be aligned to 8 bytes");
}

static void out_overlaps_nothing(void **state)
{
    struct call_memory *c = good_call(*state);
    c->args.out.data = c->table + VOCAB * DIM - 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps table");
    c = good_call(*state);
    c->args.out.data = c->ids + ROWS - 1;
    expect_refusal(c, ATTNKIT_BAD_ARGUMENT, "overlaps ids");
    c->args.out.data = c->ids + ROWS;
    c->args.count = 1;
    assert_int_equal(attnkit_embed(&c->args, &c->exec, NULL), ATTNKIT_OK);
}

static void newer_structs_may_have_a_tail_of_zeros(void **state)
{
    struct {
        attnkit_embed_args args;
        char tail[16];
    } newer = {.args = good_call(*state)->args};
    char message[ATTNKIT_MESSAGE_SIZE];
    newer.args.size = sizeof newer;
    assert_int_equal(attnkit_embed(&newer.args, NULL, message), ATTNKIT_OK);
    newer.tail[15] = 1;
    assert_int_equal(attnkit_embed(&newer.args, NULL, message), ATTNKIT_UNSUPPORTED);
    assert_non_null(strstr(message, "attnkit_embed_args.size is "));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest promises[] = {
        cmocka_unit_test(rows_are_rows_of_the_table_or_zeros),
        cmocka_unit_test(more_threads_than_ids_are_right),
        cmocka_unit_test(the_row_of_the_padding_is_not_read),
        cmocka_unit_test(ids_are_compared_in_64_bits),
        cmocka_unit_test(a_table_without_rows_has_the_padding),
        cmocka_unit_test(the_good_call_is_right),
        cmocka_unit_test(without_ids_no_memory_is_needed),
        cmocka_unit_test(bad_fields_are_refused),
        cmocka_unit_test(blocks_are_whole),
        cmocka_unit_test(sizes_beyond_63_bits_are_refused),
        cmocka_unit_test(bad_strides_and_addresses_are_refused),
        cmocka_unit_test(out_overlaps_nothing),
        cmocka_unit_test(newer_structs_may_have_a_tail_of_zeros),
    };
    const int failed = promises_main("embed", promises, (int)COUNT(promises), argc, argv);
    memory_end();
    return failed;
}
