/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests which keys a row sees. There is a test for each item of the section Visibility of
 * docs/semantics.md. The tests run on every instruction set that can run here, or on the
 * instruction set that the first argument names. In all tests but the last two, the score of each
 * seen key is 0 and V is the unit matrix. So the result of a row that sees n keys is exactly 1 / n
 * in the column of each of these keys, and 0 in all other columns. In the last two tests no row
 * sees a key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/call.h"
#include "tests/cases/kinds.h"

/* One and three rows, for decode, and many rows, for prefill. The keys are a few, or more than a
 * block. */
static const struct {
    int64_t rows, keys;
} sizes[] = {{1, 10}, {3, 10}, {70, 10}, {1, 200}, {3, 200}, {70, 200}};

enum { SIZES = sizeof sizes / sizeof sizes[0] };

static struct call *new_call(struct shape shape)
{
    shape.head_dim = 1;
    shape.value_dim = shape.kv_len;
    struct call *const c = call_new(shape);
    const attnkit_attention_args *const a = &c->args;
    memset(c->q, 0, (size_t)(a->batch * a->q_heads * a->q_len) * sizeof(float));
    for (int64_t row = 0; row < a->batch * a->kv_heads * a->kv_len; row++)
        for (int64_t column = 0; column < a->kv_len; column++)
            c->v[row * a->kv_len + column] = column == row % a->kv_len ? 1.0f : 0.0f;
    return c;
}

typedef bool (*predicate)(const struct call *c, struct at at);

static bool is_close(double x, double y)
{
    return fabs(x - y) <= 4e-7 * (1.0 + fabs(y));
}

/* Returns whether the result of a row is the mean of V over the keys that the row should see, and
 * the lse of the row is right. */
static bool is_right(const struct call *c, struct at at, const bool *expected)
{
    const float *const out = call_out(c, at);
    int count = 0;
    for (int64_t j = 0; j < c->args.kv_len; j++)
        count += expected[j];
    for (int64_t j = 0; j < c->args.kv_len; j++)
        if (out[j] != (expected[j] ? 1.0f / (float)count : 0.0f) || signbit(out[j]))
            return false;
    const float lse = *call_lse(c, at);
    return count > 0 ? is_close(lse, log(count)) : lse == -INFINITY;
}

static void check_row(const struct call *c, struct at at, const bool *expected)
{
    if (is_right(c, at, expected))
        return;
    for (int64_t j = 0; j < c->args.kv_len; j++)
        if ((call_out(c, at)[j] != 0.0f) != expected[j])
            printf("# key %lld is %s\n", (long long)j, expected[j] ? "not seen" : "seen");
    fail_msg("entry %lld head %lld row %lld of %lld x %lld: lse %g", (long long)at.b,
             (long long)at.h, (long long)at.i, (long long)c->args.q_len, (long long)c->args.kv_len,
             (double)*call_lse(c, at));
}

/* Runs the call. Checks that each row sees exactly the keys that `sees` allows. Frees the call. */
static void check(struct call *c, const char *isa, predicate sees)
{
    bool expected[1400];
    call_run(c, isa);
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
        for (at.j = 0; at.j < c->args.kv_len; at.j++)
            expected[at.j] = sees(c, at);
        check_row(c, at, expected);
    }
    call_free(c);
}

static struct call *call_of_size(int size)
{
    return new_call((struct shape){.batch = 2,
                                   .kv_heads = 2,
                                   .group = 2,
                                   .q_len = sizes[size].rows,
                                   .kv_len = sizes[size].keys});
}

static void check_sizes(const char *isa, void (*set)(struct call *c), predicate sees)
{
    for (int size = 0; size < SIZES; size++) {
        struct call *const c = call_of_size(size);
        set(c);
        check(c, isa, sees);
    }
}

static int64_t position(const struct call *c, struct at at)
{
    return ints_at(c->args.q_offsets, at.b) + at.i;
}

/* --- Positions -------------------------------------------------------------------------------- */

static void set_upper_left(struct call *c)
{
    c->args.flags |= ATTNKIT_CAUSAL;
    c->args.align = ATTNKIT_ALIGN_UPPER_LEFT;
}

static bool sees_to_its_number(const struct call *c, struct at at)
{
    (void)c;
    return at.j <= at.i;
}

static void upper_left_counts_rows_from_0(void **state)
{
    check_sizes(*state, set_upper_left, sees_to_its_number);
}

static void set_bottom_right(struct call *c)
{
    static const int64_t lens[] = {7, 10};
    c->args.flags |= ATTNKIT_CAUSAL;
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    c->groups.visibility.kv_lens = (attnkit_ints){.data = lens};
}

static bool last_row_sees_all(const struct call *c, struct at at)
{
    const int64_t keys = ints_at(c->groups.visibility.kv_lens, at.b);
    return at.j < keys && at.j <= keys - c->args.q_len + at.i;
}

static void bottom_right_lets_the_last_row_see_all_keys_of_its_sequence(void **state)
{
    check_sizes(*state, set_bottom_right, last_row_sees_all);
}

static void set_some_offsets(struct call *c)
{
    static const int64_t offsets[] = {-4, 6};
    c->args.flags |= ATTNKIT_CAUSAL;
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    c->args.q_offsets = (attnkit_ints){.data = offsets};
}

static bool sees_to_its_position(const struct call *c, struct at at)
{
    return at.j <= position(c, at);
}

static void causal_rows_see_keys_up_to_their_position(void **state)
{
    check_sizes(*state, set_some_offsets, sees_to_its_position);
}

static void set_far_offsets(struct call *c)
{
    static const int64_t offsets[] = {INT64_MIN, INT64_MAX - 70};
    set_some_offsets(c);
    c->args.q_offsets = (attnkit_ints){.data = offsets};
}

static bool second_entry_sees_all(const struct call *c, struct at at)
{
    (void)c;
    return at.b == 1;
}

static void the_least_and_largest_positions_see_no_key_and_all_keys(void **state)
{
    check_sizes(*state, set_far_offsets, second_entry_sees_all);
}

static void set_narrow_offsets(struct call *c)
{
    static const int32_t offsets[] = {-4, 6};
    set_some_offsets(c);
    c->args.q_offsets = (attnkit_ints){.data = offsets, .type = ATTNKIT_INT32};
}

static void set_far_narrow_offsets(struct call *c)
{
    static const int32_t offsets[] = {INT32_MIN, INT32_MAX};
    set_some_offsets(c);
    c->args.q_offsets = (attnkit_ints){.data = offsets, .type = ATTNKIT_INT32};
}

static void positions_of_32_bits_are_signed_and_do_not_wrap(void **state)
{
    check_sizes(*state, set_narrow_offsets, sees_to_its_position);
    check_sizes(*state, set_far_narrow_offsets, second_entry_sees_all);
}

/* --- Windows ---------------------------------------------------------------------------------- */

static void set_window(struct call *c, int64_t left, int64_t right, int64_t keep_first)
{
    static const int64_t offsets[] = {2, -1};
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    c->args.q_offsets = (attnkit_ints){.data = offsets};
    groups_set_window(&c->args, &c->groups, left, right, keep_first);
}

static void set_3_keys(struct call *c)
{
    set_window(c, 2, 0, 0);
}

static bool sees_3_keys(const struct call *c, struct at at)
{
    const int64_t own = position(c, at);
    return at.j == own || at.j == own - 1 || at.j == own - 2;
}

static void window_of_left_2_and_right_0_is_3_keys(void **state)
{
    check_sizes(*state, set_3_keys, sees_3_keys);
}

static void set_own_key(struct call *c)
{
    set_window(c, 0, 0, 0);
}

static bool sees_own_key(const struct call *c, struct at at)
{
    return at.j == position(c, at);
}

static void window_of_0_and_0_is_the_own_key(void **state)
{
    check_sizes(*state, set_own_key, sees_own_key);
}

static void set_unbounded_left(struct call *c)
{
    set_window(c, -1, 1, 0);
}

static bool sees_to_the_next(const struct call *c, struct at at)
{
    return at.j <= position(c, at) + 1;
}

static void left_of_minus_1_is_no_bound(void **state)
{
    check_sizes(*state, set_unbounded_left, sees_to_the_next);
}

static void set_unbounded_right(struct call *c)
{
    set_window(c, 1, -1, 0);
}

static bool sees_from_the_one_before(const struct call *c, struct at at)
{
    return at.j >= position(c, at) - 1;
}

static void right_of_minus_1_is_no_bound(void **state)
{
    check_sizes(*state, set_unbounded_right, sees_from_the_one_before);
}

static void set_unbounded(struct call *c)
{
    set_window(c, -1, -1, 0);
}

static bool sees_all(const struct call *c, struct at at)
{
    (void)c;
    (void)at;
    return true;
}

static void window_without_bounds_is_all_keys(void **state)
{
    check_sizes(*state, set_unbounded, sees_all);
}

static void set_huge_window(struct call *c)
{
    set_window(c, INT64_MAX, INT64_MAX, 0);
}

static void the_largest_window_is_all_keys(void **state)
{
    check_sizes(*state, set_huge_window, sees_all);
}

/* The rows have nearly the least positions. For row i, a window of INT64_MAX keys to the right ends
 * at key i - 1 in entry 0, and at key i + 4 in entry 1. */
static void set_largest_right(struct call *c)
{
    static const int64_t offsets[] = {INT64_MIN, INT64_MIN + 5};
    set_window(c, -1, INT64_MAX, 0);
    c->args.q_offsets = (attnkit_ints){.data = offsets};
}

static bool sees_first_keys(const struct call *c, struct at at)
{
    (void)c;
    return at.j <= (at.b == 0 ? -1 : 4) + at.i;
}

static void right_of_the_largest_number_is_a_bound(void **state)
{
    check_sizes(*state, set_largest_right, sees_first_keys);
}

/* The rows have nearly the largest positions. For row i, a window of INT64_MAX - 72 keys to the
 * left begins at key i + 2 in entry 0, and at key i - 3 in entry 1. */
static void set_largest_left(struct call *c)
{
    static const int64_t offsets[] = {INT64_MAX - 70, INT64_MAX - 75};
    set_window(c, INT64_MAX - 72, -1, 0);
    c->args.q_offsets = (attnkit_ints){.data = offsets};
}

static bool sees_last_keys(const struct call *c, struct at at)
{
    (void)c;
    return at.j >= (at.b == 0 ? 2 : -3) + at.i;
}

static void left_of_nearly_the_largest_number_is_a_bound(void **state)
{
    check_sizes(*state, set_largest_left, sees_last_keys);
}

static void set_kept(struct call *c)
{
    set_window(c, 1, 0, 3);
}

static bool sees_2_keys_and_the_first_3(const struct call *c, struct at at)
{
    return at.j < 3 || at.j == position(c, at) || at.j == position(c, at) - 1;
}

static void first_keys_are_in_every_window(void **state)
{
    check_sizes(*state, set_kept, sees_2_keys_and_the_first_3);
}

static void set_causal_kept(struct call *c)
{
    set_kept(c);
    c->args.flags |= ATTNKIT_CAUSAL;
}

static bool sees_them_up_to_itself(const struct call *c, struct at at)
{
    return at.j <= position(c, at) && sees_2_keys_and_the_first_3(c, at);
}

static void first_keys_are_not_seen_before_their_time(void **state)
{
    check_sizes(*state, set_causal_kept, sees_them_up_to_itself);
}

static void set_all_kept(struct call *c)
{
    set_window(c, 0, 0, INT64_MAX);
}

static void any_number_of_first_keys_can_be_kept(void **state)
{
    check_sizes(*state, set_all_kept, sees_all);
}

/* The windows cross the borders of blocks and of chunks, for few rows and many. */
static void window_moves_through_blocks_and_chunks(void **state)
{
    static const int64_t offset = 480;
    for (int64_t rows = 1; rows <= 65; rows += 32) {
        struct call *const c = new_call((struct shape){.q_len = rows, .kv_len = 700});
        set_window(c, 100, 70, 130);
        c->args.q_offsets = (attnkit_ints){.data = &offset};
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            bool expected[700];
            const int64_t own = offset + at.i;
            for (int64_t j = 0; j < 700; j++)
                expected[j] = j < 130 || (j >= own - 100 && j <= own + 70);
            check_row(c, at, expected);
        }
        call_free(c);
    }
}

/* --- Masks ------------------------------------------------------------------------------------ */

enum { ALL_BYTES = 256 };

static void set_every_byte(struct call *c, attnkit_mask_kind kind)
{
    unsigned char *const mask = call_memory(c, ALL_BYTES);
    for (int i = 0; i < ALL_BYTES; i++)
        mask[i] = (unsigned char)i;
    c->groups.visibility.mask.data = mask;
    c->groups.visibility.mask.type = ATTNKIT_BOOL;
    c->groups.visibility.mask_kind = kind;
}

static bool sees_all_but_key_0(const struct call *c, struct at at)
{
    (void)c;
    return at.j != 0;
}

static bool sees_key_0(const struct call *c, struct at at)
{
    (void)c;
    return at.j == 0;
}

static void any_byte_but_0_is_true(void **state)
{
    for (int64_t rows = 1; rows <= 33; rows += 32) {
        const struct shape shape = {.q_len = rows, .kv_len = ALL_BYTES};
        struct call *c = new_call(shape);
        set_every_byte(c, ATTNKIT_MASK_ATTEND);
        check(c, *state, sees_all_but_key_0);
        c = new_call(shape);
        set_every_byte(c, ATTNKIT_MASK_IGNORE);
        check(c, *state, sees_key_0);
    }
}

/* In each call exactly one bit of the mask is set. */
static void key_j_is_bit_j_mod_8_of_byte_j_div_8(void **state)
{
    enum { COLUMNS = 139 };
    for (int key = 0; key < COLUMNS; key += key < 20 ? 1 : 7)
        for (attnkit_mask_kind kind = ATTNKIT_MASK_ATTEND; kind <= ATTNKIT_MASK_IGNORE; kind++) {
            struct call *const c = new_call((struct shape){.q_len = 2, .kv_len = COLUMNS});
            unsigned char *const bits = call_memory(c, (COLUMNS + 7) / 8);
            bool expected[COLUMNS];
            bits[key / 8] = (unsigned char)(1 << key % 8);
            c->groups.visibility.mask_bits.data = bits;
            c->groups.visibility.mask_bits.type = ATTNKIT_BITS;
            c->groups.visibility.mask_bits_kind = kind;
            for (int j = 0; j < COLUMNS; j++)
                expected[j] = (j == key) == (kind == ATTNKIT_MASK_ATTEND);
            call_run(c, *state);
            check_row(c, (struct at){.i = 0}, expected);
            check_row(c, (struct at){.i = 1}, expected);
            call_free(c);
        }
}

/* The masks of the next tests: bytes, bits, or a bias of f32. */
enum tensor { BYTE_MASK, BIT_MASK, BIAS_MASK, TENSORS };

static attnkit_tensor *tensor_of(struct call *c, enum tensor tensor)
{
    attnkit_tensor *const tensors[TENSORS] = {
        &c->groups.visibility.mask, &c->groups.visibility.mask_bits, &c->groups.scores.bias};
    return tensors[tensor];
}

static void *set_tensor(struct call *c, enum tensor tensor, int64_t columns, size_t bytes)
{
    attnkit_visibility *const see = &c->groups.visibility;
    void *const data = call_memory(c, bytes);
    tensor_of(c, tensor)->data = data;
    switch (tensor) {
    case BYTE_MASK:
        see->mask.type = ATTNKIT_BOOL;
        see->mask_kind = ATTNKIT_MASK_IGNORE;
        see->mask_columns = columns;
        break;
    case BIT_MASK:
        see->mask_bits.type = ATTNKIT_BITS;
        see->mask_bits_kind = ATTNKIT_MASK_IGNORE;
        see->mask_bits_columns = columns;
        break;
    default:
        c->groups.scores.bias_columns = columns;
        break;
    }
    return data;
}

/* Hides key 0 in a row of a mask. */
static void hide_key_0(char *row, enum tensor tensor)
{
    const float minus_infinity = -INFINITY;
    if (tensor == BIAS_MASK)
        memcpy(row, &minus_infinity, sizeof minus_infinity);
    else
        row[0] = 1;
}

static void keys_after_the_columns_of_a_mask_are_masked(void **state)
{
    static const int64_t all_columns[] = {1, 7, 8, 9, 127, 128, 129, 199, 200};
    for (int64_t rows = 1; rows <= 65; rows += 32)
        for (int tensor = 0; tensor < TENSORS; tensor++)
            for (int n = 0; n < 9; n++) {
                const int64_t columns = all_columns[n];
                struct call *const c = new_call((struct shape){.q_len = rows, .kv_len = 200});
                set_tensor(c, (enum tensor)tensor, columns, 200 * sizeof(float));
                bool expected[200];
                for (int64_t j = 0; j < 200; j++)
                    expected[j] = j < columns;
                call_run(c, *state);
                for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
                    check_row(c, at, expected);
                call_free(c);
            }
}

/* The mask has 11 columns. All bits of its two bytes are set, also the 5 bits after the columns. */
static void bits_after_the_columns_mean_nothing(void **state)
{
    for (int64_t rows = 1; rows <= 33; rows += 32) {
        struct call *const c = new_call((struct shape){.q_len = rows, .kv_len = 24});
        unsigned char *const bits = set_tensor(c, BIT_MASK, 11, 2);
        c->groups.visibility.mask_bits_kind = ATTNKIT_MASK_ATTEND;
        bits[0] = bits[1] = 0xff;
        bool expected[24];
        for (int j = 0; j < 24; j++)
            expected[j] = j < 11;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            check_row(c, at, expected);
        call_free(c);
    }
}

/* Checks a mask that hides key 0 from some rows. Bit i of `repeated` makes the mask repeat along
 * dimension i by a stride of 0. */
static void check_repeated(const char *isa, enum tensor tensor, int repeated, int64_t rows)
{
    enum { BATCH = 2, HEADS = 4, KEYS = 9, ROW_BYTES = KEYS * 4 };
    struct call *const c = new_call(
        (struct shape){.batch = BATCH, .kv_heads = 2, .group = 2, .q_len = rows, .kv_len = KEYS});
    const int64_t all = BATCH * HEADS * rows, count[3] = {BATCH, HEADS, rows};
    char *const mask = set_tensor(c, tensor, KEYS, (size_t)(all * ROW_BYTES));
    int64_t *const strides = tensor_of(c, tensor)->strides;
    int64_t step = ROW_BYTES;
    for (int i = 2; i >= 0; i--) {
        strides[i] = repeated >> i & 1 ? 0 : step;
        step *= count[i];
    }
    for (int64_t row = 0; row < all; row += 3)
        hide_key_0(mask + row * ROW_BYTES, tensor);
    call_run(c, isa);
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
        const int64_t row = ((repeated & 1 ? 0 : at.b) * HEADS + (repeated & 2 ? 0 : at.h)) * rows +
                            (repeated & 4 ? 0 : at.i);
        const bool expected[KEYS] = {row % 3 != 0, true, true, true, true, true, true, true, true};
        check_row(c, at, expected);
    }
    call_free(c);
}

static void masks_repeat_by_stride_0_over_batch_head_and_query(void **state)
{
    static const int64_t row_counts[] = {1, 2, 40};
    for (int n = 0; n < 3; n++)
        for (int tensor = 0; tensor < TENSORS; tensor++)
            for (int repeated = 0; repeated < 8; repeated++)
                check_repeated(*state, (enum tensor)tensor, repeated, row_counts[n]);
}

/* A mask without strides is dense, with a mask row for each query row. */
static void masks_without_strides_are_dense(void **state)
{
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        enum { HEADS = 2, ROWS = 20, KEYS = 12 };
        static const int64_t row_bytes[TENSORS] = {KEYS, (KEYS + 7) / 8, KEYS * 4};
        const int64_t bytes = row_bytes[tensor];
        struct call *const c =
            new_call((struct shape){.batch = 2, .group = HEADS, .q_len = ROWS, .kv_len = KEYS});
        char *const mask =
            set_tensor(c, (enum tensor)tensor, 0, (size_t)(2 * HEADS * ROWS * bytes));
        tensor_of(c, (enum tensor)tensor)->layout = 0;
        attnkit_tensor *const others[] = {&c->args.q, &c->args.k, &c->args.v, &c->args.out,
                                          &c->args.lse};
        for (int i = 0; i < 5; i++)
            *others[i] = (attnkit_tensor){.data = others[i]->data};
        for (int64_t row = 0; row < 2 * HEADS * ROWS; row += 3)
            hide_key_0(mask + row * bytes, (enum tensor)tensor);
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
            bool expected[KEYS];
            for (int j = 0; j < KEYS; j++)
                expected[j] = j > 0 || ((at.b * HEADS + at.h) * ROWS + at.i) % 3 != 0;
            check_row(c, at, expected);
        }
        call_free(c);
    }
}

/* Masks and the segment ids of rows are packed like q. The columns of a mask are the keys of the
 * entry. */
static void check_packed(const char *isa, enum tensor tensor, const int64_t *q_starts)
{
    enum { ENTRIES = 3, HEADS = 2, KEYS = 170 };
    static const int64_t kv_starts[ENTRIES + 1] = {0, 20, 27, KEYS};
    const int64_t rows = q_starts[ENTRIES];
    struct call *const c = new_call((struct shape){.group = HEADS, .q_len = rows, .kv_len = KEYS});
    int32_t *const q_ids = call_memory(c, (size_t)rows * sizeof *q_ids);
    int32_t *const kv_ids = call_memory(c, KEYS * sizeof *kv_ids);
    char *const mask = set_tensor(c, tensor, 1, (size_t)(HEADS * rows * 4));
    tensor_of(c, tensor)->strides[2] = 4;
    tensor_of(c, tensor)->strides[1] = 4 * rows;
    c->args.batch = ENTRIES;
    c->groups.storage.cu_seqlens_q = (attnkit_ints){.data = q_starts};
    c->groups.storage.cu_seqlens_kv = (attnkit_ints){.data = kv_starts};
    for (int64_t row = 0; row < HEADS * rows; row += 3)
        hide_key_0(mask + row * 4, tensor);
    for (int64_t key = 0; key < KEYS; key++)
        kv_ids[key] = (int32_t)(key % 4);
    for (int64_t row = 0; row < rows; row++)
        q_ids[row] = (int32_t)(row % 2);
    c->groups.visibility.q_segment_ids = q_ids;
    c->groups.visibility.kv_segment_ids = kv_ids;
    if (tensor == BIAS_MASK) { /* this case has segment ids without a mask */
        c->groups.scores.bias.data = NULL;
        c->groups.scores.bias_columns = 0;
    }
    call_run(c, isa);
    c->args.batch = 1;
    for (int64_t entry = 0; entry < ENTRIES; entry++)
        for (struct at at = {.i = q_starts[entry]}; at.i < q_starts[entry + 1]; at.i++)
            for (at.h = 0; at.h < HEADS; at.h++) {
                bool expected[KEYS] = {false};
                const int64_t first = kv_starts[entry], end = kv_starts[entry + 1];
                for (int64_t key = first; key < end; key++)
                    expected[key] =
                        key % 4 == at.i % 2 &&
                        (tensor == BIAS_MASK || (key == first && (at.h * rows + at.i) % 3 != 0));
                check_row(c, at, expected);
            }
    call_free(c);
}

static void packed_sequences_have_packed_masks_and_segments(void **state)
{
    static const int64_t few[] = {0, 1, 3, 4}, many[] = {0, 35, 35, 80};
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        check_packed(*state, (enum tensor)tensor, few);
        check_packed(*state, (enum tensor)tensor, many);
    }
}

/* --- All masks together ----------------------------------------------------------------------- */

static void every_kind_alone_hides_what_it_says(void **state)
{
    for (int i = 0; i < KINDS; i++)
        check_sizes(*state, kinds[i].set, kinds[i].sees);
}

/* The kinds of masks that the current call combines. A row sees a key if all chosen kinds allow the
 * key. */
static const struct kind *chosen[KINDS];
static int chosen_count;

static bool sees_by_all_chosen(const struct call *c, struct at at)
{
    for (int i = 0; i < chosen_count; i++)
        if (!chosen[i]->sees(c, at))
            return false;
    return true;
}

static void check_chosen(const char *isa)
{
    for (int64_t rows = 1; rows <= 35; rows += 34) {
        struct call *const c =
            new_call((struct shape){.batch = 2, .group = 2, .q_len = rows, .kv_len = 150});
        for (int i = 0; i < chosen_count; i++)
            chosen[i]->set(c);
        check(c, isa, sees_by_all_chosen);
    }
}

static void any_two_kinds_show_the_intersection(void **state)
{
    chosen_count = 2;
    for (int i = 0; i < KINDS; i++)
        for (int j = 0; j < i; j++)
            if (kinds[i].field != kinds[j].field) {
                chosen[0] = &kinds[i];
                chosen[1] = &kinds[j];
                check_chosen(*state);
            }
}

/* Begins with each kind in turn and adds the other kinds one by one. Leaves out a kind whose field
 * another kind has taken. Checks calls with the first kind alone, and after each addition. */
static void any_kinds_together_show_the_intersection(void **state)
{
    for (int first = 0; first < KINDS; first++) {
        bool taken[KINDS] = {false};
        chosen_count = 0;
        for (int n = 0; n < KINDS; n++) {
            const struct kind *const kind = &kinds[(first + n) % KINDS];
            if (taken[kind->field])
                continue;
            taken[kind->field] = true;
            chosen[chosen_count++] = kind;
            check_chosen(*state);
        }
    }
}

/* --- Rows that see no key --------------------------------------------------------------------- */

static void set_no_position(struct call *c)
{
    static const int64_t offsets[] = {-100, -100};
    c->args.flags |= ATTNKIT_CAUSAL;
    c->args.align = ATTNKIT_ALIGN_OFFSETS;
    c->args.q_offsets = (attnkit_ints){.data = offsets};
}

static void set_far_window(struct call *c)
{
    set_window(c, 2, 2, 0);
    static const int64_t far = 1000;
    c->args.q_offsets = (attnkit_ints){.data = &far};
}

static void set_no_lengths(struct call *c)
{
    static const int64_t none = 0;
    c->groups.visibility.kv_lens = (attnkit_ints){.data = &none};
}

static void set_other_segments(struct call *c)
{
    int32_t *const ids = call_memory(c, (size_t)c->args.q_len * sizeof *ids);
    for (int64_t i = 0; i < c->args.q_len; i++)
        ids[i] = 1;
    c->groups.visibility.q_segment_ids = ids;
    c->groups.visibility.kv_segment_ids = call_memory(c, (size_t)c->args.kv_len * sizeof *ids);
}

static void set_no_bytes(struct call *c)
{
    set_tensor(c, BYTE_MASK, 0, (size_t)c->args.kv_len);
    c->groups.visibility.mask_kind = ATTNKIT_MASK_ATTEND;
}

static void set_no_bits(struct call *c)
{
    set_tensor(c, BIT_MASK, 0, (size_t)c->args.kv_len);
    c->groups.visibility.mask_bits_kind = ATTNKIT_MASK_ATTEND;
}

static void set_no_bias(struct call *c)
{
    float *const bias = set_tensor(c, BIAS_MASK, 0, (size_t)c->args.kv_len * sizeof *bias);
    for (int64_t j = 0; j < c->args.kv_len; j++)
        bias[j] = -INFINITY;
}

static void set_no_keys(struct call *c)
{
    c->args.kv_len = 0;
    c->args.k.data = c->args.v.data = NULL;
}

static void (*const blinding[])(struct call *c) = {
    set_no_position, set_far_window, set_no_lengths, set_other_segments,
    set_no_bytes,    set_no_bits,    set_no_bias,    set_no_keys,
};

enum { BLINDING = sizeof blinding / sizeof blinding[0] };

static struct call *new_blind_call(int kind, int64_t rows)
{
    struct call *const c = call_new((struct shape){
        .kv_heads = 2, .group = 2, .q_len = rows, .kv_len = 140, .head_dim = 5, .value_dim = 3});
    for (int64_t i = 0; i < 140 * 3; i++)
        c->v[i] = i % 2 ? -1.0f : NAN;
    blinding[kind](c);
    return c;
}

static void row_that_sees_nothing_is_0_with_lse_minus_infinity(void **state)
{
    for (int kind = 0; kind < BLINDING; kind++)
        for (int64_t rows = 1; rows <= 33; rows += 32) {
            struct call *const c = new_blind_call(kind, rows);
            call_run(c, *state);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
                for (int column = 0; column < 3; column++)
                    assert_true(call_out(c, at)[column] == 0.0f &&
                                !signbit(call_out(c, at)[column]));
                assert_true(*call_lse(c, at) == -INFINITY);
            }
            call_free(c);
        }
}

static void lse_of_a_row_that_sees_nothing_is_its_sink(void **state)
{
    static const float sinks[] = {0.0f, -3.75f, 88.5f, -INFINITY};
    for (int kind = 0; kind < BLINDING; kind++)
        for (int64_t rows = 1; rows <= 33; rows += 32) {
            struct call *const c = new_blind_call(kind, rows);
            c->groups.scores.sinks = sinks;
            call_run(c, *state);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at)) {
                const float lse = *call_lse(c, at), sink = sinks[at.h];
                for (int column = 0; column < 3; column++)
                    assert_true(call_out(c, at)[column] == 0.0f &&
                                !signbit(call_out(c, at)[column]));
                if (lse != sink && !is_close(lse, sink))
                    fail_msg("lse is %.9g for a sink of %.9g", (double)lse, (double)sink);
            }
            call_free(c);
        }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(upper_left_counts_rows_from_0),
        cmocka_unit_test(bottom_right_lets_the_last_row_see_all_keys_of_its_sequence),
        cmocka_unit_test(causal_rows_see_keys_up_to_their_position),
        cmocka_unit_test(the_least_and_largest_positions_see_no_key_and_all_keys),
        cmocka_unit_test(positions_of_32_bits_are_signed_and_do_not_wrap),
        cmocka_unit_test(window_of_left_2_and_right_0_is_3_keys),
        cmocka_unit_test(window_of_0_and_0_is_the_own_key),
        cmocka_unit_test(left_of_minus_1_is_no_bound),
        cmocka_unit_test(right_of_minus_1_is_no_bound),
        cmocka_unit_test(window_without_bounds_is_all_keys),
        cmocka_unit_test(the_largest_window_is_all_keys),
        cmocka_unit_test(right_of_the_largest_number_is_a_bound),
        cmocka_unit_test(left_of_nearly_the_largest_number_is_a_bound),
        cmocka_unit_test(first_keys_are_in_every_window),
        cmocka_unit_test(first_keys_are_not_seen_before_their_time),
        cmocka_unit_test(any_number_of_first_keys_can_be_kept),
        cmocka_unit_test(window_moves_through_blocks_and_chunks),
        cmocka_unit_test(any_byte_but_0_is_true),
        cmocka_unit_test(key_j_is_bit_j_mod_8_of_byte_j_div_8),
        cmocka_unit_test(keys_after_the_columns_of_a_mask_are_masked),
        cmocka_unit_test(bits_after_the_columns_mean_nothing),
        cmocka_unit_test(masks_repeat_by_stride_0_over_batch_head_and_query),
        cmocka_unit_test(masks_without_strides_are_dense),
        cmocka_unit_test(packed_sequences_have_packed_masks_and_segments),
        cmocka_unit_test(every_kind_alone_hides_what_it_says),
        cmocka_unit_test(any_two_kinds_show_the_intersection),
        cmocka_unit_test(any_kinds_together_show_the_intersection),
        cmocka_unit_test(row_that_sees_nothing_is_0_with_lse_minus_infinity),
        cmocka_unit_test(lse_of_a_row_that_sees_nothing_is_its_sink),
    };
    return promises_main("visible", promises, sizeof promises / sizeof promises[0], argc, argv);
}
