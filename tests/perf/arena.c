/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of the points of `attnkit compare`. Each side first sets up a point alone, twice, and
 * the blocks of both set-ups are recorded. Then both sides set up the point again for the
 * measurement. The tests check which blocks of the two sides get the same address.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bench/compare/measure/arena.h"

enum { BASE, HEAD };

static void *take(const struct worker_memory *memory, size_t bytes)
{
    void *const block = memory->take(memory->owner, bytes);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 64, 0);
    return block;
}

static void drop(const struct worker_memory *memory, void *block)
{
    assert_true(memory->give_back(memory->owner, block));
}

/* A block that a point's set-up allocates. `has_salt` means that the content of the block differs
 * from one set-up to the next. The set-up itself frees a block that `is_temporary`. */
struct wanted {
    size_t bytes;
    char fill;
    bool has_salt, is_temporary;
};

static void set_up(const struct worker_memory *memory, const struct wanted *wanted, int count,
                   char salt, char *blocks[])
{
    for (int i = 0; i < count; i++) {
        blocks[i] = take(memory, wanted[i].bytes);
        memset(blocks[i], wanted[i].fill, wanted[i].bytes);
        if (wanted[i].has_salt)
            blocks[i][0] = salt;
        if (wanted[i].is_temporary)
            drop(memory, blocks[i]);
    }
}

static void record(int side, const struct wanted *wanted, int count)
{
    for (int i = 0; i < ARENA_RECORDS; i++) {
        char *blocks[8];
        const struct worker_memory *const memory = arena_record(side, i);
        set_up(memory, wanted, count, (char)(10 * side + i), blocks);
        arena_seal();
        for (int b = 0; b < count; b++)
            drop(memory, blocks[b]);
    }
}

static void alike_is_together(void **state)
{
    (void)state;
    const struct wanted wanted[] = {
        {1 << 20, 1, false, false}, {4096, 2, false, false}, {100, 3, false, false}};
    char *base[3], *head[3], *base_again[3];
    record(BASE, wanted, 3);
    record(HEAD, wanted, 3);
    arena_match();
    set_up(arena_place(BASE), wanted, 3, 0, base);
    set_up(arena_place(HEAD), wanted, 3, 1, head);
    set_up(arena_place(BASE), wanted, 3, 2, base_again);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(base[i], head[i]);
        assert_ptr_equal(base[i], base_again[i]);
        assert_int_equal(base[i][0], wanted[i].fill);
    }
}

static void blocks_that_differ_have_separate_addresses(void **state)
{
    (void)state;
    /* Only the last blocks of the two sides are equal. All other blocks differ in size or
     * content. */
    const struct wanted base_wants[] = {
        {64, 1, false, false}, {64, 2, false, false}, {64, 3, false, false}};
    const struct wanted head_wants[] = {{65, 1, false, false},
                                        {64, 9, false, false},
                                        {200, 7, false, false},
                                        {64, 3, false, false}};
    char *base[3], *head[4], *head_again[4];
    record(BASE, base_wants, 3);
    record(HEAD, head_wants, 4);
    arena_match();
    set_up(arena_place(BASE), base_wants, 3, 0, base);
    set_up(arena_place(HEAD), head_wants, 4, 1, head);
    set_up(arena_place(HEAD), head_wants, 4, 2, head_again);
    assert_ptr_equal(base[2], head[3]);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(head[i], head_again[i]); /* two set-ups of the same side agree */
    for (int i = 0; i < 3; i++) {
        assert_ptr_not_equal(head[i], base[0]);
        assert_ptr_not_equal(head[i], base[1]);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(base[i][63], base_wants[i].fill);
}

static void blocks_that_copies_fill_differently_are_separate(void **state)
{
    (void)state;
    const struct wanted wanted[] = {{64, 1, true, false}, {64, 2, false, false}};
    char *copies[4][2];
    record(BASE, wanted, 2);
    record(HEAD, wanted, 2);
    arena_match();
    for (int i = 0; i < 4; i++)
        set_up(arena_place(i % 2), wanted, 2, (char)i, copies[i]);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(copies[i][0][0], i);
        assert_ptr_equal(copies[i][1], copies[0][1]);
    }
}

static void equal_blocks_of_a_side_have_separate_addresses(void **state)
{
    (void)state;
    const struct wanted wanted[] = {{64, 0, false, false}, {64, 0, false, false}};
    char *base[2], *head[2];
    record(BASE, wanted, 2);
    record(HEAD, wanted, 2);
    arena_match();
    set_up(arena_place(BASE), wanted, 2, 0, base);
    set_up(arena_place(HEAD), wanted, 2, 0, head);
    assert_ptr_not_equal(base[0], base[1]);
    assert_ptr_equal(base[0], head[0]);
    assert_ptr_equal(base[1], head[1]);
}

/* A temporary block of one side must not overwrite a block that the other side reads. */
static void temporary_blocks_disturb_nobody(void **state)
{
    (void)state;
    const struct wanted base_wants[] = {{64, 1, false, true}, {64, 2, false, false}};
    const struct wanted head_wants[] = {
        {64, 3, false, true}, {64, 4, false, true}, {64, 2, false, false}};
    char *base[2], *head[3];
    record(BASE, base_wants, 2);
    record(HEAD, head_wants, 3);
    arena_match();
    set_up(arena_place(BASE), base_wants, 2, 0, base);
    set_up(arena_place(HEAD), head_wants, 3, 0, head);
    assert_ptr_equal(base[1], head[2]);
    assert_ptr_not_equal(head[0], base[1]);
    assert_ptr_not_equal(head[1], base[1]);
    assert_int_equal(base[1][5], 2);
}

/* At the recording, a point has one copy of K and V. At the measurement, a point may have many
 * copies. */
static void blocks_may_be_larger_than_recorded(void **state)
{
    (void)state;
    const struct wanted wanted[] = {{64, 1, false, false}, {64, 2, false, false}};
    const struct wanted larger[] = {{640, 1, false, false}, {64, 2, false, false}};
    const struct wanted still_larger[] = {{6400, 1, false, false}, {64, 2, false, false}};
    char *base[2], *head[2], *other[2];
    record(BASE, wanted, 2);
    record(HEAD, wanted, 2);
    arena_match();
    set_up(arena_place(BASE), larger, 2, 0, base);
    set_up(arena_place(HEAD), larger, 2, 0, head);
    set_up(arena_place(HEAD), still_larger, 2, 0, other);
    assert_ptr_equal(base[0], head[0]);
    assert_ptr_not_equal(base[0], other[0]);
    assert_ptr_equal(base[1], other[1]);
    assert_int_equal(base[1][0], 2);
}

static void set_ups_that_differ_in_number_share_nothing(void **state)
{
    (void)state;
    const struct wanted wanted[] = {{64, 1, false, false}, {64, 2, false, false}};
    char *base[2], *head[2];
    record(BASE, wanted, 2);
    arena_record(HEAD, 0);
    arena_seal();
    set_up(arena_record(HEAD, 1), wanted, 1, 0, head);
    arena_seal();
    arena_match();
    set_up(arena_place(BASE), wanted, 2, 0, base);
    set_up(arena_place(HEAD), wanted, 2, 0, head);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            assert_ptr_not_equal(base[i], head[j]);
}

/* At the recording, a point's memory must hold zeros, as memory from the system does. */
static void recording_begins_with_zeros(void **state)
{
    (void)state;
    const struct wanted wanted[] = {{4096, 7, false, false}};
    record(BASE, wanted, 1);
    const char *const block = take(arena_record(HEAD, 0), 4096);
    for (int i = 0; i < 4096; i++)
        assert_int_equal(block[i], 0);
    arena_seal();
}

static void blocks_from_other_memory_are_left_alone(void **state)
{
    (void)state;
    char other;
    const struct worker_memory *const memory = arena_record(BASE, 0);
    assert_false(memory->give_back(memory->owner, &other));
    assert_false(memory->give_back(memory->owner, NULL));
    assert_null(memory->take(memory->owner, SIZE_MAX));
    assert_null(memory->take(memory->owner, SIZE_MAX / 2));
    arena_seal();
}

static int make(void **state)
{
    (void)state;
    return arena_make() ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_is_together),
        cmocka_unit_test(blocks_that_differ_have_separate_addresses),
        cmocka_unit_test(blocks_that_copies_fill_differently_are_separate),
        cmocka_unit_test(equal_blocks_of_a_side_have_separate_addresses),
        cmocka_unit_test(temporary_blocks_disturb_nobody),
        cmocka_unit_test(blocks_may_be_larger_than_recorded),
        cmocka_unit_test(set_ups_that_differ_in_number_share_nothing),
        cmocka_unit_test(recording_begins_with_zeros),
        cmocka_unit_test(blocks_from_other_memory_are_left_alone),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make, NULL);
}
