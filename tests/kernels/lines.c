/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the entries of kernel tables that work on lines (masks, bias, slopes, dropout), on rows of
 * numbers, or on pointers. A line has one number for each key of a block. The entries are compared
 * with plain loops, on every instruction set, or on the instruction set that the first argument
 * names. The operands of the entries lie at the edge of an unmapped page, or some elements away
 * from the edge.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "tests/support/call.h"
#include "tests/cases/case.h"
#include "tests/support/formats.h"
#include "tests/support/memory.h"
#include "tests/support/philox.h"
#include "tests/support/random.h"

enum {
    ROUNDS = 400,
    MAX_ROWS = 9,
    MAX_ROW = 100,  /* elements; more than four of the longest vectors */
    PATTERN = 0xff, /* a byte of memory that nobody has written to; four of them are a NaN */
};

static const struct kernels *kernels_of(void *const *state)
{
    struct isa_choice choice;
    char message[ATTNKIT_MESSAGE_SIZE];
    assert_int_equal(attnkit_isa_pick(*state, &choice, message), ATTNKIT_OK);
    return choice.kernels;
}

static void expect_floats(const char *what, const float *got, const float *expected, int count)
{
    if (same_numbers(got, expected, (size_t)count))
        return;
    for (int i = 0; i < count; i++)
        if (!same_numbers(got + i, expected + i, 1))
            print_message("# %s[%d] is %a, not %a\n", what, i, (double)got[i], (double)expected[i]);
    fail();
}

/* Allocates memory for `count` elements of `bytes` bytes. In half of the cases the memory lies up
 * to 15 elements from the unmapped page, and is aligned only to an element. */
static struct guarded new_elements(uint64_t *random, size_t count, size_t bytes)
{
    const size_t apart = random_below(random, 2) ? bytes * (size_t)random_below(random, 16) : 0;
    const bool at_end = random_below(random, 2);
    struct guarded memory = memory_guarded(count * bytes + apart, 0, at_end);
    memset(memory.mapping + SLOT_BYTES, PATTERN, memory.mapping_size - 2 * SLOT_BYTES);
    memory.data += at_end ? 0 : apart;
    return memory;
}

static struct guarded new_line(uint64_t *random)
{
    return new_elements(random, KEY_BLOCK, sizeof(float));
}

/* Returns whether only the first `bytes` bytes of the data have been written. Overwrites these
 * bytes with the pattern. */
static bool is_all_else_untouched(struct guarded *memory, size_t bytes)
{
    const char *const first = memory->mapping + SLOT_BYTES;
    const size_t usable = memory->mapping_size - 2 * SLOT_BYTES;
    memset(memory->data, PATTERN, bytes);
    for (size_t i = 0; i < usable; i++)
        if ((unsigned char)first[i] != PATTERN)
            return false;
    return true;
}

static void end_line(struct guarded *line)
{
    assert_true(is_all_else_untouched(line, KEY_BLOCK * sizeof(float)));
    memory_unguard(line);
}

static bool has_bit(const uint64_t words[KEY_BLOCK / 64], int i)
{
    return words[i / 64] >> i % 64 & 1;
}

/* Draws a key set: all, none, a range, or each key with a probability that is drawn once. */
static void draw_set(uint64_t *random, uint64_t words[KEY_BLOCK / 64])
{
    const int kind = (int)random_below(random, 8), first = (int)random_below(random, KEY_BLOCK);
    const int end = first + (int)random_below(random, KEY_BLOCK + 1 - first);
    const int64_t one_in = 1 + random_below(random, 1 << random_below(random, 6));
    words[0] = words[1] = 0;
    for (int i = 0; i < KEY_BLOCK; i++) {
        const bool in = kind == 0   ? true
                        : kind == 1 ? false
                        : kind == 2 ? i >= first && i < end
                                    : (random_below(random, one_in) == 0) == (kind % 2 == 0);
        words[i / 64] |= (uint64_t)in << i % 64;
    }
}

/* --- Masks to bits ---------------------------------------------------------------------------- */

static void bits_are_the_bytes_that_are_not_0(void **state)
{
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct guarded memory = new_elements(&random, KEY_BLOCK, 1);
        uint64_t words[KEY_BLOCK / 64];
        const int64_t values = 1 + random_below(&random, 256);
        for (int i = 0; i < KEY_BLOCK; i++)
            memory.data[i] = (char)random_below(&random, values);
        kernels->nonzero((const unsigned char *)memory.data, words);
        for (int i = 0; i < KEY_BLOCK; i++)
            assert_int_equal(has_bit(words, i), memory.data[i] != 0);
        memory_unguard(&memory);
    }
}

static void bits_are_the_keys_with_the_id_of_the_row(void **state)
{
    static const int32_t some[] = {0, 1, -1, 256, INT32_MAX, INT32_MIN, 0x01000000, 1 << 16};
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct guarded memory = new_elements(&random, KEY_BLOCK, sizeof(int32_t));
        int32_t *const ids = (int32_t *)memory.data;
        const int64_t values = 1 + random_below(&random, 8);
        const int32_t own = some[random_below(&random, 8)];
        uint64_t words[KEY_BLOCK / 64];
        for (int i = 0; i < KEY_BLOCK; i++)
            ids[i] = some[random_below(&random, values)];
        kernels->same_ids(ids, own, words);
        for (int i = 0; i < KEY_BLOCK; i++)
            assert_int_equal(has_bit(words, i), ids[i] == own);
        memory_unguard(&memory);
    }
}

/* Draws the bits of a number: -inf, a neighbour of the bits of -inf, NaN, infinity, 1, the smallest
 * positive number, or a zero. -inf and zeros of either sign are more frequent. */
static uint32_t draw_number(uint64_t *random, enum type type)
{
    static const uint32_t f32[] = {0,          0x80000000, 0xff800000, 0xff800000, 0x7f800000,
                                   0xff800001, 0xff7fffff, 0xffc00000, 0x00000001, 0x3f800000};
    static const uint16_t f16[] = {0,      0x8000, 0xfc00, 0xfc00, 0x7c00,
                                   0xfc01, 0xfbff, 0xfe00, 0x0001, 0x3c00};
    static const uint16_t bf16[] = {0,      0x8000, 0xff80, 0xff80, 0x7f80,
                                    0xff81, 0xff7f, 0xffc0, 0x0001, 0x3f80};
    const int64_t n = random_below(random, 3) ? random_below(random, 4) : random_below(random, 10);
    return type == TYPE_F32 ? f32[n] : type == TYPE_F16 ? f16[n] : bf16[n];
}

static void put_number(enum type type, char *numbers, int i, uint32_t bits)
{
    const uint16_t half = (uint16_t)bits;
    if (type == TYPE_F32)
        memcpy(numbers + 4 * i, &bits, sizeof bits);
    else
        memcpy(numbers + 2 * i, &half, sizeof half);
}

static void bits_are_the_numbers_above_minus_infinity(void **state)
{
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 1;
    int biased = 0;
    for (int round = 0; round < 3 * ROUNDS; round++) {
        const enum type type = (enum type)(round % 3);
        struct guarded memory = new_elements(&random, KEY_BLOCK, (size_t)bytes_of(type, 1));
        uint64_t words[KEY_BLOCK / 64];
        uint32_t bits[KEY_BLOCK];
        float numbers[KEY_BLOCK];
        bool any = false;
        for (int i = 0; i < KEY_BLOCK; i++) {
            bits[i] = draw_number(&random, type);
            if (round % 2 &&
                i != round % KEY_BLOCK) /* in every second round only one key has a drawn number */
                bits[i] = i % 3              ? 0
                          : type == TYPE_F32 ? 0xff800000
                          : type == TYPE_F16 ? 0xfc00
                                             : 0xff80;
            put_number(type, memory.data, i, bits[i]);
        }
        widen_row(type, memory.data, NULL, 0, KEY_BLOCK, numbers);
        const bool got = kernels->unmasked(type, memory.data, words);
        for (int i = 0; i < KEY_BLOCK; i++) {
            assert_int_equal(has_bit(words, i), numbers[i] != -INFINITY);
            any |= numbers[i] != -INFINITY && numbers[i] != 0.0f;
        }
        assert_int_equal(got, any);
        biased += any;
        memory_unguard(&memory);
    }
    assert_in_range(biased, ROUNDS, 3 * ROUNDS - 100);
}

/* --- Lines of a bias -------------------------------------------------------------------------- */

/* Returns b_j of step 3 of the canonical order in kernels/README.md, for key i of the block.
 * Returns -inf if the key is not seen. */
static float model_bias(const struct bias_line *what, const float *numbers, int i)
{
    float b = 0.0f;
    if (!has_bit(what->seen, i))
        return -INFINITY;
    if (numbers) {
        b = numbers[i] * what->unit;
        b = b < what->least ? what->least : b;
    }
    if (!what->sloped)
        return b;
    __int128_t distance = (__int128_t)what->distance + i;
    if (distance > INT64_MAX)
        distance = INT64_MAX;
    const float product = what->slope * (float)(int64_t)distance;
    b = b + product;
    return b < -FLT_MAX ? -FLT_MAX : b;
}

static void check_bias(const struct kernels *kernels, const struct bias_line *what,
                       uint64_t *random)
{
    struct guarded line = new_line(random);
    float numbers[KEY_BLOCK] = {0}, expected[KEY_BLOCK];
    if (what->numbers)
        widen_row(what->type, what->numbers, NULL, 0, what->count, numbers);
    for (int i = 0; i < KEY_BLOCK; i++)
        expected[i] = model_bias(what, what->numbers ? numbers : NULL, i);
    kernels->bias_line(what, (float *)line.data);
    expect_floats("bias", (const float *)line.data, expected, KEY_BLOCK);
    end_line(&line);
}

/* Hides the keys from `count` on, which have no number. */
static void hide_from(struct bias_line *what, int count)
{
    for (int i = count; i < KEY_BLOCK; i++)
        what->seen[i / 64] &= ~(UINT64_C(1) << i % 64);
}

static void bias_lines_are_as_the_canonical_order_has_them(void **state)
{
    static const float slopes[] = {0.5f, -0.0f, 0.0f, 0x1.71547p-3f, -3.0f, 1e38f, 1e-45f};
    static const float units[] = {0x1.715476p+0f, 1.0f, -0.5f,     0.0f,    -0.0f,
                                  0x1p-140f,      NAN,  -INFINITY, INFINITY};
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 1;
    for (int round = 0; round < 6 * ROUNDS; round++) {
        struct bias_line what = {
            .type = (enum type)random_below(&random, 3),
            .count = (int)random_below(&random, KEY_BLOCK + 1),
            .unit = units[random_below(&random, 2) ? random_below(&random, 9) : round % 2],
            .least = round % 2 ? -0x1.715476p+126f : -0x1p126f,
            .sloped = random_below(&random, 2),
            .slope = slopes[random_below(&random, 7)],
            .distance = random_below(&random, 4000) - 2000};
        struct guarded memory =
            new_elements(&random, (size_t)what.count, (size_t)bytes_of(what.type, 1));
        for (int i = 0; i < what.count; i++) {
            const uint32_t bits = random_below(&random, 4) ? (uint32_t)random_bits(&random)
                                                           : draw_number(&random, what.type);
            put_number(what.type, memory.data, i, bits);
        }
        draw_set(&random, what.seen);
        if (random_below(&random, 3)) {
            what.numbers = memory.data;
            hide_from(&what, what.count);
        }
        check_bias(kernels, &what, &random);
        memory_unguard(&memory);
    }
}

/* Some distances are near 2^24, up to which binary32 represents every integer. Some distances are
 * near the limits of 32-bit or 64-bit integers. */
static void slopes_times_any_distance_are_rounded_once(void **state)
{
    static const int64_t edges[] = {0,         1 << 24,   INT32_MAX,        INT32_MIN,
                                    INT64_MAX, INT64_MIN, INT64_C(1) << 40, -(INT64_C(1) << 53),
                                    123456789, -87654321, INT64_C(1) << 62, -(INT64_C(1) << 31)};
    static const float slopes[] = {1.0f, -1.0f, 0x1.715476p-8f, INFINITY, -INFINITY,
                                   NAN,  0.0f,  -0.0f,          FLT_MAX,  0x1p-149f};
    const struct kernels *const kernels = kernels_of(state);
    float numbers[KEY_BLOCK];
    uint64_t random = 1;
    for (int i = 0; i < KEY_BLOCK; i++)
        numbers[i] = i % 5 == 0 ? -FLT_MAX : random_uniform(&random) * 1000.0f;
    for (int edge = 0; edge < 12; edge++)
        for (int slope = 0; slope < 10; slope++)
            for (int64_t near = -2 * KEY_BLOCK; near <= KEY_BLOCK; near += 13) {
                struct bias_line what = {.type = TYPE_F32,
                                         .numbers = near % 2 ? numbers : NULL,
                                         .count = KEY_BLOCK,
                                         .unit = 1.0f,
                                         .least = -0x1p126f,
                                         .sloped = true,
                                         .slope = slopes[slope],
                                         .seen = {UINT64_MAX, UINT64_MAX}};
                if (__builtin_add_overflow(edges[edge], near, &what.distance))
                    what.distance = edges[edge];
                check_bias(kernels, &what, &random);
            }
}

/* --- Dropout ---------------------------------------------------------------------------------- */

static uint32_t random_word(const struct keep_line *what, int key)
{
    const uint64_t j = what->first_key + (uint64_t)key;
    const uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)what->position, what->head,
                                 (uint32_t)(j / 4 >> 32 & 0xffff) |
                                     (uint32_t)(what->position >> 32 & 0xffff) << 16};
    uint32_t words[4];
    philox4x32_10(counter, (uint32_t)what->seed, (uint32_t)(what->seed >> 32), words);
    return words[j % 4];
}

static void check_keep(const struct kernels *kernels, const struct keep_line *what,
                       uint64_t *random)
{
    struct guarded line = new_line(random);
    float expected[KEY_BLOCK];
    for (int key = 0; key < KEY_BLOCK; key++)
        expected[key] = random_word(what, key) < what->dropped ? 0.0f : what->factor;
    kernels->keep_line(what, (float *)line.data);
    expect_floats("keep", (const float *)line.data, expected, KEY_BLOCK);
    end_line(&line);
}

/* Positions and keys reach beyond 32 bits and beyond 48 bits. */
static void factors_are_kept_by_seed_head_position_and_key(void **state)
{
    static const uint64_t positions[] = {0,
                                         1,
                                         UINT32_MAX,
                                         UINT64_C(1) << 32,
                                         UINT64_MAX,
                                         UINT64_C(0x123456789abc),
                                         (UINT64_C(1) << 48) - 1,
                                         UINT64_C(1) << 48};
    /* Philox takes key / 4. From key 2^34 on, this quotient exceeds 32 bits. From key 2^50 on, it
     * exceeds 48 bits. */
    static const uint64_t keys[] = {0,
                                    KEY_BLOCK,
                                    (UINT64_C(1) << 34) - KEY_BLOCK,
                                    UINT64_C(1) << 34,
                                    (UINT64_C(1) << 50) - KEY_BLOCK,
                                    UINT64_C(1) << 50,
                                    UINT64_C(0x123456789abc) * KEY_BLOCK,
                                    UINT64_MAX - 127};
    static const uint64_t drops[] = {1,          1 << 20,           UINT64_C(1) << 31,
                                     UINT32_MAX, UINT64_C(1) << 32, 0x40000000};
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 1;
    for (int p = 0; p < 8; p++)
        for (int k = 0; k < 8; k++)
            for (int d = 0; d < 6; d++) {
                struct keep_line what = {.seed = random_bits(&random),
                                         .position = positions[p],
                                         .head = (uint32_t)random_bits(&random),
                                         .first_key = keys[k],
                                         .dropped = drops[d],
                                         .factor = 4.0f / 3.0f};
                if (d == 0)
                    what.seed = p % 2 ? 0 : UINT64_MAX;
                check_keep(kernels, &what, &random);
            }
}

static void word_below_the_bound_drops_and_the_bound_itself_keeps(void **state)
{
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 2;
    for (int round = 0; round < ROUNDS; round++) {
        struct keep_line what = {.seed = random_bits(&random),
                                 .position = random_bits(&random),
                                 .head = (uint32_t)random_below(&random, 100),
                                 .first_key = random_bits(&random) / KEY_BLOCK * KEY_BLOCK,
                                 .dropped = 1,
                                 .factor = 2.0f};
        what.dropped = random_word(&what, round % KEY_BLOCK) + (uint64_t)(round / KEY_BLOCK % 2);
        if (what.dropped > 0)
            check_keep(kernels, &what, &random);
    }
}

/* --- Lines of some keys ----------------------------------------------------------------------- */

static void numbers_of_some_keys_move_to_the_beginning(void **state)
{
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 1;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        struct guarded memory = new_line(&random);
        float *const line = (float *)memory.data;
        float expected[KEY_BLOCK];
        uint64_t keys[KEY_BLOCK / 64];
        int count = 0;
        draw_set(&random, keys);
        for (int i = 0; i < KEY_BLOCK; i++) {
            line[i] = random_number(&random);
            if (has_bit(keys, i))
                expected[count++] = line[i];
        }
        kernels->compact_line(keys, line);
        assert_memory_equal(line, expected, (size_t)count * sizeof *line);
        end_line(&memory);
    }
}

static void numbers_of_some_keys_move_back_to_their_places(void **state)
{
    static const float none[] = {0.0f, -INFINITY};
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 1;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        struct guarded memory = new_line(&random), numbers = new_line(&random);
        float expected[KEY_BLOCK], *const given = (float *)numbers.data;
        uint64_t keys[KEY_BLOCK / 64], own[KEY_BLOCK / 64];
        int count = 0;
        draw_set(&random, keys);
        draw_set(&random, own);
        for (int i = 0; i < KEY_BLOCK / 64; i++)
            own[i] &= keys[i];
        for (int i = 0; i < KEY_BLOCK; i++) {
            expected[i] = none[round % 2];
            if (!has_bit(keys, i))
                continue;
            given[count] = random_number(&random);
            if (has_bit(own, i))
                expected[i] = given[count];
            count++;
        }
        kernels->spread_line(keys, given, own, none[round % 2], (float *)memory.data);
        assert_memory_equal(memory.data, expected, sizeof expected);
        memory_unguard(&numbers);
        end_line(&memory);
    }
}

/* --- Rows ------------------------------------------------------------------------------------- */

/* Allocates memory with `count` random numbers. */
static struct guarded new_numbers(uint64_t *random, int count)
{
    struct guarded memory = new_elements(random, (size_t)count, sizeof(float));
    for (int i = 0; i < count; i++)
        ((float *)memory.data)[i] = random_number(random);
    return memory;
}

/* Checks n results, and that no byte outside the results was written. Frees the memory. */
static void end_result(const char *what, struct guarded *memory, const float *expected, int n)
{
    expect_floats(what, (const float *)memory->data, expected, n);
    assert_true(is_all_else_untouched(memory, (size_t)n * sizeof *expected));
    memory_unguard(memory);
}

static void weights_are_multiplied_one_by_one(void **state)
{
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 1;
    for (int round = 0; round < ROUNDS; round++) {
        const int n = round % MAX_ROW;
        struct guarded s = new_numbers(&random, n);
        struct guarded factors = new_numbers(&random, n);
        float expected[MAX_ROW];
        for (int i = 0; i < n; i++)
            expected[i] = ((float *)s.data)[i] * ((float *)factors.data)[i];
        kernels->multiply((const float *)factors.data, (size_t)n, (float *)s.data);
        memory_unguard(&factors);
        end_result("s", &s, expected, n);
    }
}

static void mean_is_the_sum_in_order_divided_once(void **state)
{
    const struct kernels *const kernels = kernels_of(state);
    uint64_t random = 1;
    for (int round = 0; round < ROUNDS; round++) {
        const int n = round % MAX_ROW, count = 1 + round % MAX_ROWS, gap = round % 3;
        struct guarded given = new_numbers(&random, n ? count * (n + gap) - gap : 0);
        struct guarded mean = new_numbers(&random, n);
        const bool down = round % 5 == 0;
        const int64_t stride = (n + gap) * (int64_t)sizeof(float);
        const struct rows rows = {given.data + (down ? (count - 1) * stride : 0),
                                  down ? -stride : stride, n};
        float expected[MAX_ROW];
        for (int i = 0; i < n; i++) {
            float sum = 0.0f;
            for (int r = 0; r < count; r++)
                sum += ((const float *)(rows.first + r * rows.stride))[i];
            expected[i] = sum / (float)count;
        }
        kernels->mean(&rows, count, (float *)mean.data);
        memory_unguard(&given);
        end_result("mean", &mean, expected, n);
    }
}

static void pointers_are_a_step_apart(void **state)
{
    static const ptrdiff_t steps[] = {0, 1, 34, 256, -4096, PTRDIFF_MAX, PTRDIFF_MIN};
    static const char here[1];
    const struct kernels *const kernels = kernels_of(state);
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++)
        for (int count = 0; count <= KEY_BLOCK; count++) {
            const size_t size = (size_t)count * sizeof(void *);
            struct guarded list = memory_guarded(size, 0, true);
            kernels->fill_pointers(here, steps[s], count, list.data);
            for (int i = 0; i < count; i++) {
                const uintptr_t at = (uintptr_t)here + (uintptr_t)i * (uintptr_t)steps[s];
                assert_true(((uintptr_t *)list.data)[i] == at);
            }
            memory_unguard(&list);
        }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(bits_are_the_bytes_that_are_not_0),
        cmocka_unit_test(bits_are_the_keys_with_the_id_of_the_row),
        cmocka_unit_test(bits_are_the_numbers_above_minus_infinity),
        cmocka_unit_test(bias_lines_are_as_the_canonical_order_has_them),
        cmocka_unit_test(slopes_times_any_distance_are_rounded_once),
        cmocka_unit_test(factors_are_kept_by_seed_head_position_and_key),
        cmocka_unit_test(word_below_the_bound_drops_and_the_bound_itself_keeps),
        cmocka_unit_test(numbers_of_some_keys_move_to_the_beginning),
        cmocka_unit_test(numbers_of_some_keys_move_back_to_their_places),
        cmocka_unit_test(weights_are_multiplied_one_by_one),
        cmocka_unit_test(mean_is_the_sum_in_order_divided_once),
        cmocka_unit_test(pointers_are_a_step_apart),
    };
    return promises_main("lines", promises, sizeof promises / sizeof promises[0], argc, argv);
}
