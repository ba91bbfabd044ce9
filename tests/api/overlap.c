/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the overlap checks of dispatch/common/overlap.c. The first tests draw small tensors, and
 * mark the bytes of each tensor in a map. The checks must agree with the map, but may report a
 * tensor whose rows interleave without sharing a byte. The addresses are only numbers: no memory
 * belongs to them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "dispatch/common/overlap.h"
#include "tests/support/random.h"

enum {
    BASE = 1 << 20, /* address of byte 0 of the map */
    MAP_BYTES = 4096,
    PAIRS = 20000,
};

/* A tensor as a caller describes it. Row 0 of the tensor begins at byte `first` of the map. */
struct tensor {
    int64_t first, count[3], stride[3], row_bytes;
};

typedef unsigned char byte_map[MAP_BYTES];

/* Clears the map, and marks every byte of every row. Returns true if a byte was marked twice. */
static bool mark(const struct tensor *t, byte_map map)
{
    bool twice = false;
    memset(map, 0, MAP_BYTES);
    for (int64_t a = 0; a < t->count[0]; a++)
        for (int64_t b = 0; b < t->count[1]; b++)
            for (int64_t c = 0; c < t->count[2]; c++)
                for (int64_t i = 0; i < t->row_bytes; i++) {
                    const int64_t at =
                        t->first + a * t->stride[0] + b * t->stride[1] + c * t->stride[2] + i;
                    twice |= map[at] != 0;
                    map[at] = 1;
                }
    return twice;
}

static bool maps_meet(const byte_map a, const byte_map b)
{
    for (int i = 0; i < MAP_BYTES; i++)
        if (a[i] && b[i])
            return true;
    return false;
}

static bool layout_of(const struct tensor *t, struct layout *l, bool *repeats)
{
    const void *data = (const void *)(uintptr_t)(BASE + t->first);
    return attnkit_layout(l, data, t->count, t->stride, t->row_bytes, repeats);
}

/* Draws a tensor with arbitrary strides. The strides may be zero or negative, and rows may
 * interleave or overlap. */
static struct tensor draw_wild(uint64_t *random)
{
    struct tensor t = {.first = MAP_BYTES / 2 + random_below(random, 200),
                       .row_bytes = 1 + random_below(random, 12)};
    for (int i = 0; i < 3; i++) {
        t.count[i] = random_below(random, 6);
        t.stride[i] = random_below(random, 81) - 40;
    }
    return t;
}

/* Draws a tensor of the kind that callers usually have. Its dimensions nest, in one of three
 * orders. Each stride may be negative. The rows of another tensor may lie in the gaps of this
 * tensor. */
static struct tensor draw_nested(uint64_t *random)
{
    struct tensor t = {.first = MAP_BYTES / 2 + random_below(random, 100),
                       .row_bytes = 4 * (1 + random_below(random, 3))};
    int64_t inner = t.row_bytes;
    const int64_t start = random_below(random, 3);
    for (int i = 0; i < 3; i++) {
        const int64_t dim = (start + i) % 3;
        t.count[dim] = 1 + random_below(random, 3);
        t.stride[dim] = inner + 4 * random_below(random, 4);
        inner = t.stride[dim] * t.count[dim];
        if (random_below(random, 3) == 0)
            t.stride[dim] = -t.stride[dim];
    }
    return t;
}

static struct tensor draw(uint64_t *random)
{
    return random_below(random, 2) ? draw_wild(random) : draw_nested(random);
}

/* Draws two tensors. In half of the pairs, the second tensor has the strides of the first tensor,
 * and its address is 0 to 39 bytes higher. The rows of the second tensor then lie in gaps of the
 * first tensor, on rows of the first tensor, or after the end of the first tensor. */
static void draw_pair(uint64_t *random, struct tensor t[2])
{
    t[0] = t[1] = draw(random);
    if (random_below(random, 2)) {
        t[1].first += random_below(random, 40);
        t[1].row_bytes = 1 + random_below(random, 8);
    } else {
        t[1] = draw(random);
    }
}

static void tensors_overlap_if_they_share_a_byte(void **state)
{
    (void)state;
    uint64_t random = 1;
    static byte_map map[2];
    /* For each answer, the number of pairs whose address ranges alone do not decide the answer. */
    int64_t seen[2] = {0, 0};
    for (int i = 0; i < PAIRS; i++) {
        struct tensor t[2];
        struct layout l[2];
        bool repeats;
        draw_pair(&random, t);
        for (int j = 0; j < 2; j++) {
            mark(&t[j], map[j]);
            assert_true(layout_of(&t[j], &l[j], &repeats));
        }
        const bool meet = maps_meet(map[0], map[1]);
        assert_int_equal(attnkit_layouts_overlap(&l[0], &l[1]), meet);
        assert_int_equal(attnkit_layouts_overlap(&l[1], &l[0]), meet);
        const bool ranges_apart = l[0].first + (uintptr_t)l[0].span <= l[1].first ||
                                  l[1].first + (uintptr_t)l[1].span <= l[0].first;
        seen[meet] += l[0].row_bytes > 0 && l[1].row_bytes > 0 && !ranges_apart;
    }
    assert_true(seen[false] > PAIRS / 20);
    assert_true(seen[true] > PAIRS / 20);
}

static int compare_sizes(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns whether the stride of every dimension is at least the bytes that the dimensions with
 * smaller strides span. */
static bool nests(const struct tensor *t)
{
    int64_t stride[3], span = t->row_bytes;
    for (int i = 0; i < 3; i++)
        stride[i] = t->count[i] > 1 ? llabs(t->stride[i]) : INT64_MAX;
    qsort(stride, 3, sizeof stride[0], compare_sizes);
    for (int i = 0; i < 3 && stride[i] != INT64_MAX; i++) {
        if (stride[i] < span)
            return false;
        for (int j = 0; j < 3; j++)
            if (t->count[j] > 1 && llabs(t->stride[j]) == stride[i])
                span = t->stride[j] == 0 ? span : (t->count[j] - 1) * stride[i] + span;
    }
    return true;
}

/* The library must report every tensor whose rows share a byte. It may also report rows that
 * interleave without sharing a byte, such as rows of 4 bytes with strides of 8 and 12. No real
 * tensor has this layout. */
static void rows_that_share_a_byte_are_always_seen(void **state)
{
    (void)state;
    uint64_t random = 2;
    static byte_map map;
    int64_t seen[2] = {0, 0};
    for (int i = 0; i < PAIRS; i++) {
        const struct tensor t = draw(&random);
        struct layout l;
        bool repeats;
        const bool twice = mark(&t, map);
        assert_true(layout_of(&t, &l, &repeats));
        if (twice || nests(&t))
            assert_int_equal(repeats, twice);
        seen[twice]++;
    }
    assert_true(seen[false] > PAIRS / 20);
    assert_true(seen[true] > PAIRS / 20);
}

static void a_layout_spans_the_first_to_the_last_byte(void **state)
{
    (void)state;
    uint64_t random = 3;
    static byte_map map;
    for (int i = 0; i < PAIRS; i++) {
        const struct tensor t = draw(&random);
        struct layout l;
        bool repeats;
        mark(&t, map);
        assert_true(layout_of(&t, &l, &repeats));
        const unsigned char *first = memchr(map, 1, MAP_BYTES);
        const unsigned char *last = memrchr(map, 1, MAP_BYTES);
        if (!first) {
            assert_int_equal(l.span, 0);
            continue;
        }
        assert_int_equal(l.first, BASE + (first - map));
        assert_int_equal(l.span, last - first + 1);
    }
}

static bool fits(uintptr_t first, int64_t count, int64_t stride)
{
    struct layout l;
    bool repeats;
    const int64_t counts[3] = {1, count, 1}, strides[3] = {0, stride, 0};
    return attnkit_layout(&l, (const void *)first, counts, strides, 4, &repeats);
}

static void bytes_outside_the_address_space_are_refused(void **state)
{
    (void)state;
    /* The address after the last byte must also fit. */
    assert_true(fits(UINTPTR_MAX - 104, 26, 4));
    assert_false(fits(UINTPTR_MAX - 104, 27, 4));
    assert_true(fits(100, 26, -4));
    assert_false(fits(100, 27, -4));
    assert_true(fits(0, 1, INT64_MIN));
    assert_false(fits(0, 2, INT64_MIN));
    assert_false(fits(0, 2, INT64_MAX));
    assert_false(fits(0, INT64_MAX, 4));
    assert_false(fits(UINTPTR_MAX, INT64_MAX, -4));
    assert_true(fits(UINTPTR_MAX - 4, INT64_MAX, 0));
}

static void reaches_that_add_up_beyond_63_bits_are_refused(void **state)
{
    (void)state;
    struct layout l;
    bool repeats;
    const int64_t far = INT64_MAX / 2;
    const int64_t count[3] = {2, 2, 2}, stride[3] = {far, -far, far};
    assert_false(attnkit_layout(&l, (const void *)(uintptr_t)far, count, stride, 4, &repeats));
}

static void a_tensor_without_rows_has_no_bytes_and_overlaps_nothing(void **state)
{
    (void)state;
    const int64_t full[3] = {2, 3, 4}, stride[3] = {48, 16, 4};
    struct layout empty, whole;
    bool repeats;
    assert_true(attnkit_layout(&whole, (const void *)BASE, full, stride, 4, &repeats));
    for (int i = 0; i < 3; i++) {
        int64_t count[3] = {2, 3, 4};
        count[i] = 0;
        assert_true(attnkit_layout(&empty, (const void *)BASE, count, stride, 4, &repeats));
        assert_int_equal(empty.row_bytes, 0);
        assert_false(repeats);
        assert_false(attnkit_layouts_overlap(&empty, &whole));
        assert_false(attnkit_layouts_overlap(&whole, &empty));
    }
}

/* Rows of 0 bytes may have the same address, but share no byte. */
static void rows_without_bytes_overlap_nothing(void **state)
{
    (void)state;
    const int64_t count[3] = {2, 3, 4}, stride[3] = {48, 16, 4}, none[3] = {0};
    struct layout empty, whole;
    bool repeats;
    assert_true(attnkit_layout(&whole, (const void *)BASE, count, stride, 4, &repeats));
    assert_true(attnkit_layout(&empty, (const void *)BASE, count, none, 0, &repeats));
    assert_false(repeats);
    assert_false(attnkit_layouts_overlap(&empty, &whole));
    assert_false(attnkit_layouts_overlap(&whole, &empty));
}

/* A tensor of a million rows lies in the gaps of another tensor of a million rows. The check must
 * not compare all pairs of rows. */
static void interleaved_tensors_cost_a_step_for_each_row(void **state)
{
    (void)state;
    const int64_t count[3] = {10, 100, 1000}, stride[3] = {8000000, 80000, 80};
    struct layout a, b;
    bool repeats;
    assert_true(attnkit_layout(&a, (const void *)BASE, count, stride, 40, &repeats));
    assert_true(attnkit_layout(&b, (const void *)(BASE + 40), count, stride, 40, &repeats));
    assert_false(attnkit_layouts_overlap(&a, &b));
    assert_true(attnkit_layout(&b, (const void *)(BASE + 36), count, stride, 40, &repeats));
    assert_true(attnkit_layouts_overlap(&a, &b));
}

/* Scales lie next to their elements, in more rows than a search could visit one by one. The library
 * compares all rows at once, modulo the common period of the strides. */
static void rows_are_compared_modulo_the_period_of_the_strides(void **state)
{
    (void)state;
    const int64_t rows = INT64_C(1) << 40;
    const int64_t count[3] = {1, 8, rows}, stride[3] = {0, 136, 8 * 136};
    struct layout elements, scales;
    bool repeats;
    assert_true(attnkit_layout(&elements, (const void *)BASE, count, stride, 128, &repeats));
    assert_true(attnkit_layout(&scales, (const void *)(BASE + 128), count, stride, 8, &repeats));
    assert_false(attnkit_layouts_overlap(&elements, &scales));
    assert_false(attnkit_layouts_overlap(&scales, &elements));
    assert_true(attnkit_layout(&scales, (const void *)(BASE + 132), count, stride, 8, &repeats));
    assert_true(attnkit_layouts_overlap(&elements, &scales));
}

/* The dimensions interleave, and there are 2^64 rows. */
static void more_rows_than_can_be_counted_are_seen(void **state)
{
    (void)state;
    const int64_t count[3] = {1 << 22, 1 << 21, 1 << 21}, stride[3] = {8, 16, 24};
    const int64_t one[3] = {1, 1, 1};
    struct layout many, row;
    bool repeats;
    assert_true(attnkit_layout(&many, (const void *)BASE, count, stride, 4, &repeats));
    assert_true(repeats);
    assert_true(attnkit_layout(&row, (const void *)(BASE + 8000), one, stride, 4, &repeats));
    assert_true(attnkit_layouts_overlap(&many, &row));
    assert_true(attnkit_layouts_overlap(&row, &many));
    assert_true(attnkit_layout(&row, (const void *)(BASE + 8004), one, stride, 4, &repeats));
    assert_false(attnkit_layouts_overlap(&many, &row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_overlap_if_they_share_a_byte),
        cmocka_unit_test(rows_that_share_a_byte_are_always_seen),
        cmocka_unit_test(a_layout_spans_the_first_to_the_last_byte),
        cmocka_unit_test(bytes_outside_the_address_space_are_refused),
        cmocka_unit_test(reaches_that_add_up_beyond_63_bits_are_refused),
        cmocka_unit_test(a_tensor_without_rows_has_no_bytes_and_overlaps_nothing),
        cmocka_unit_test(rows_without_bytes_overlap_nothing),
        cmocka_unit_test(interleaved_tensors_cost_a_step_for_each_row),
        cmocka_unit_test(rows_are_compared_modulo_the_period_of_the_strides),
        cmocka_unit_test(more_rows_than_can_be_counted_are_seen),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
