/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions to binary32 from blocks with less than a byte per element, and from 8-bit floating
 * point. For types that is_unpacked accepts, conversions to TYPE_Q8_0 are also tested. For types
 * that the library writes, conversions from binary32 are also tested. The tests run on every
 * instruction set, or on the instruction set that the first argument names. The results are
 * compared with the definitions of the formats (tests/support/blocks.h), with the bytes and numbers
 * of ggml's reference, and with the results of the scalar conversions.
 *
 * Usage: blocks [ISA]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "kernels/blocks.h"
#include "kernels/scalar/scalar.h"
#include "tests/kernels/ggml_blocks.h"
#include "tests/support/blocks.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"
#include "tests/support/units.h"

enum {
    PATTERNS = 1 << 16, /* bit patterns of a scale */
    MAX_BLOCK = 128,    /* elements */
    MAX_ROW = 512,
    MAX_ISAS = 8,
    PATTERN = 0xa5, /* a byte of memory that nobody has written to */
    FARTHEST = 64,  /* a row lies fewer than FARTHEST bytes from an end of its slot */
};

static const enum type written[] = {TYPE_Q4_0, TYPE_Q5_0};

static const struct kernels *scalar;

/* Returns whether both numbers have the same bits, or both are NaN. */
static bool is_same(float a, float b)
{
    return bits_from_float(a) == bits_from_float(b) || (isnan(a) && isnan(b));
}

/* --- Reading ---------------------------------------------------------------------------------- */

static void draw_block(const struct block_format *f, uint16_t scale, uint64_t *random, char *block)
{
    const uint16_t minimum = (uint16_t)(scale * 40503u + 1);
    for (int i = 0; i < f->bytes; i++)
        block[i] = (char)random_bits(random);
    memcpy(block, &scale, sizeof scale);
    if (f->minimum_at)
        memcpy(block + f->minimum_at, &minimum, sizeof minimum);
}

/* Widens blocks with every bit pattern of a scale (in a sampled run, with every 17th pattern). The
 * integers are random. The minimum of a block, if its type has one, is made from the scale. */
static void every_scale_of_a_block_widens(const struct kernels *kernels)
{
    uint64_t random = 1;
    for (int b = 0; b < BLOCK_FORMATS; b++) {
        const struct block_format *const f = &block_formats[b];
        for (int pattern = 0; pattern < PATTERNS; pattern += is_sampled_run() ? 17 : 1) {
            char block[32];
            float out[MAX_BLOCK];
            draw_block(f, (uint16_t)pattern, &random, block);
            kernels->widen(f->type, block, NULL, 0, f->elements, out);
            for (int i = 0; i < f->elements; i++)
                if (!is_same(out[i], block_element(f, block, i)))
                    fail_msg("%s, scale %04x, element %d with bits %d: %a, not %a", f->name,
                             (unsigned)pattern, i, block_bits(f, block, i), (double)out[i],
                             (double)block_element(f, block, i));
        }
    }
}

/* Widens blocks with every integer at every place of a block. */
static void every_integer_widens(const struct kernels *kernels)
{
    for (int b = 0; b < BLOCK_FORMATS; b++) {
        const struct block_format *const f = &block_formats[b];
        const int integers = 1 << (f->bits + (f->fifth_at ? 1 : 0));
        for (int place = 0; place < f->elements * integers; place++) {
            char block[32] = {0x00, 0x3c}; /* a scale of 1 */
            float out[MAX_BLOCK];
            const int at = place / integers, bits = place % integers;
            block_put_bits(f, block, at, bits);
            kernels->widen(f->type, block, NULL, 0, f->elements, out);
            for (int i = 0; i < f->elements; i++) {
                const int expected = block_integer(f, i == at ? bits : 0);
                if (out[i] != (float)expected)
                    fail_msg("%s, element %d, with bits %d at %d: %a, not %d", f->name, i, bits, at,
                             (double)out[i], expected);
            }
        }
    }
}

static void every_byte_of_e4m3_is_scaled(const struct kernels *kernels)
{
    const float scales[] = {1.0f,     0.0f,      -0.5f,           1.0f / 3.0f, 0x1.fffffep120f,
                            0x1p127f, 0x1p-149f, 0x1.23456p-140f, INFINITY,    NAN};
    uint8_t bytes[256];
    float out[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (uint8_t)i;
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++)
        for (int n = 1; n <= 256; n++) {
            kernels->widen(TYPE_F8_E4M3, bytes + 256 - n, &scales[s], n, n, out);
            for (int i = 0; i < n; i++) {
                const uint8_t byte = bytes[256 - n + i];
                const float expected = (float)((double)e4m3_value(byte) * (double)scales[s]);
                if (!is_same(out[i], expected))
                    fail_msg("e4m3 %02x by %a is %a, not %a", byte, (double)scales[s],
                             (double)out[i], (double)expected);
            }
        }
}

static void groups_of_e4m3_have_their_scales(const struct kernels *kernels)
{
    uint8_t row[192];
    float scales[192], got[192], expected[192];
    uint64_t random = 1;
    for (int i = 0; i < 192; i++) {
        row[i] = (uint8_t)random_bits(&random);
        scales[i] = random_uniform(&random);
    }
    for (int group = 1; group <= 96; group++) {
        kernels->widen(TYPE_F8_E4M3, row, scales, group, 192 / group * group, got);
        scalar->widen(TYPE_F8_E4M3, row, scales, group, 192 / group * group, expected);
        for (int i = 0; i < 192 / group * group; i++)
            assert_true(is_same(got[i], expected[i]));
    }
}

/* Unpacks blocks to blocks of TYPE_Q8_0. The unpacked blocks must widen to the same numbers as the
 * original blocks. No byte after the unpacked blocks may be written.
 */
static void blocks_are_unpacked(const struct kernels *kernels)
{
    uint64_t random = 1;
    for (int b = 0; b < BLOCK_FORMATS; b++)
        for (int pattern = 0; pattern < PATTERNS && is_unpacked(block_formats[b].type);
             pattern += 13) {
            const struct block_format *const f = &block_formats[b];
            char block[32];
            unsigned char got[MAX_BLOCK / UNIT * Q8_BLOCK_BYTES + 2];
            float out[MAX_BLOCK];
            draw_block(f, (uint16_t)pattern, &random, block);
            memset(got, PATTERN, sizeof got);
            const struct rows rows = {block, f->bytes, f->elements};
            kernels->unpack(f->type, &rows, 1, got);
            scalar->widen(TYPE_Q8_0, got, NULL, 0, f->elements, out);
            for (int i = 0; i < f->elements; i++)
                if (!is_same(out[i], block_element(f, block, i)))
                    fail_msg("%s, scale %04x, element %d: %a, not %a", f->name, (unsigned)pattern,
                             i, (double)out[i], (double)block_element(f, block, i));
            for (size_t i = (size_t)bytes_of(TYPE_Q8_0, f->elements); i < sizeof got; i++)
                assert_int_equal(got[i], PATTERN);
        }
}

/* Unpacks rows at a stride that is no multiple of a block's bytes, forwards and backwards. */
static void rows_are_unpacked_one_after_the_other(const struct kernels *kernels)
{
    enum { ROWS = 5, DIM = 256, STRIDE = 200 };
    char stored[ROWS * STRIDE];
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof stored; i++)
        stored[i] = (char)random_bits(&random);
    for (int b = 0; b < BLOCK_FORMATS; b++)
        for (int count = 0; count <= ROWS && is_unpacked(block_formats[b].type); count++)
            for (int backwards = 0; backwards < 2; backwards++) {
                const enum type type = block_formats[b].type;
                const int64_t size = bytes_of(TYPE_Q8_0, DIM);
                char got[ROWS * DIM * 2], expected[ROWS * DIM * 2];
                const struct rows rows = {stored + (backwards ? (ROWS - 1) * STRIDE : 0),
                                          backwards ? -STRIDE : STRIDE, DIM};
                memset(got, PATTERN, sizeof got);
                memset(expected, PATTERN, sizeof expected);
                kernels->unpack(type, &rows, count, got);
                for (int r = 0; r < count; r++) {
                    const struct rows one = {rows.first + r * rows.stride, 0, DIM};
                    scalar->unpack(type, &one, 1, expected + r * size);
                }
                assert_memory_equal(got, expected, sizeof got);
            }
}

/* --- The bytes of ggml ------------------------------------------------------------------------ */

static const struct {
    enum type type;
    const uint8_t *blocks;
    const uint32_t *numbers;
} ggml[] = {
    {TYPE_Q4_0, ggml_q4_0, ggml_q4_0_numbers},       {TYPE_Q4_1, ggml_q4_1, ggml_q4_1_numbers},
    {TYPE_Q5_0, ggml_q5_0, ggml_q5_0_numbers},       {TYPE_Q5_1, ggml_q5_1, ggml_q5_1_numbers},
    {TYPE_IQ4_NL, ggml_iq4_nl, ggml_iq4_nl_numbers}, {TYPE_Q1_0, ggml_q1_0, ggml_q1_0_numbers},
    {TYPE_Q2_0, ggml_q2_0, ggml_q2_0_numbers},
};

static void blocks_widen_as_in_ggml(const struct kernels *kernels)
{
    for (size_t i = 0; i < sizeof ggml / sizeof ggml[0]; i++) {
        float out[GGML_NUMBERS];
        kernels->widen(ggml[i].type, ggml[i].blocks, NULL, 0, GGML_NUMBERS, out);
        assert_memory_equal(out, ggml[i].numbers, sizeof out);
    }
}

static void rows_are_written_as_in_ggml(const struct kernels *kernels)
{
    for (size_t i = 0; i < sizeof ggml / sizeof ggml[0]; i++)
        for (size_t w = 0; w < sizeof written / sizeof written[0]; w++) {
            float x[GGML_NUMBERS];
            char row[GGML_NUMBERS];
            if (ggml[i].type != written[w])
                continue;
            memcpy(x, ggml_numbers, sizeof x);
            kernels->narrow(ggml[i].type, x, GGML_NUMBERS, 0, row, NULL);
            assert_memory_equal(row, ggml[i].blocks, bytes_of(ggml[i].type, GGML_NUMBERS));
        }
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* Returns the integer by which a block stores x, by the contract of `narrow`. `largest` is the
 * block's element of largest magnitude. */
static int model_integer(const struct block_format *f, float x, float largest)
{
    const float factor = 1.0f / (largest / (float)-f->zero);
    if (!isfinite(factor) || factor == 0.0f)
        return f->zero;
    const float product = x * factor, shifted = product + ((float)f->zero + 0.5f);
    const double integer = floor((double)shifted);
    return (int)fmin(integer, 2 * f->zero - 1);
}

static float model_largest(const float *x)
{
    float largest = 0.0f;
    for (int i = 0; i < UNIT; i++)
        if (isnan(x[i]))
            return NAN;
        else if (fabsf(x[i]) > fabsf(largest))
            largest = x[i];
    return largest;
}

static void expect_block(const struct block_format *f, const float *x, const char *block)
{
    const float largest = model_largest(x);
    uint16_t half;
    memcpy(&half, block, sizeof half);
    if (isnan(largest))
        assert_int_equal(half, 0x7e00);
    else if (largest != 0.0f) /* rows_are_written_as_in_ggml compares signs of zeros */
        assert_int_equal(half, f16_from_float(largest / (float)-f->zero));
    for (int i = 0; i < UNIT; i++) {
        const int expected = model_integer(f, x[i], largest);
        if (block_bits(f, block, i) != expected)
            fail_msg("%s: %a beside %a is %d, not %d", f->name, (double)x[i], (double)largest,
                     block_bits(f, block, i), expected);
        if (!isfinite(largest))
            assert_true(isnan(block_element(f, block, i)));
    }
}

/* The kinds of numbers in a block. */
enum data { NORMAL, WIDE, TINY, HUGE_VALUES, SPECIAL, HALVES, SAME_SIZE, ANY_BITS, DATA };

static float draw(uint64_t *random, enum data data)
{
    static const float specials[] = {NAN, -NAN, INFINITY, -INFINITY, -0.0f, 3e38f, 1e-45f};
    const float u = random_uniform(random);
    switch (data) {
    case WIDE:
        return ldexpf(u, (int)random_below(random, 80) - 40);
    case TINY: /* scales are small enough that some reciprocals overflow */
        return ldexpf(u, -115 - (int)random_below(random, 30));
    case HUGE_VALUES:
        return ldexpf(u, 100 + (int)random_below(random, 29));
    case SPECIAL:
        return random_below(random, 40) == 0 ? specials[random_below(random, 7)] : u;
    case HALVES: /* integers, and numbers halfway between two integers */
        return ldexpf((float)(random_below(random, 65) - 32), -1);
    case SAME_SIZE:
        return random_below(random, 2) ? 1.5f : -1.5f;
    case ANY_BITS:
        return float_from_bits((uint32_t)random_bits(random));
    default:
        return u;
    }
}

static void random_rows_are_written(const struct kernels *kernels)
{
    uint64_t random = 1;
    for (int round = 0; round < (is_sampled_run() ? 2000 : 20000); round++) {
        const struct block_format *const f = block_format_of(written[round % 2]);
        const int64_t n = UNIT * random_below(&random, MAX_ROW / UNIT + 1);
        float x[MAX_ROW];
        char got[MAX_ROW], expected[MAX_ROW];
        for (int64_t i = 0; i < n; i += UNIT) {
            const enum data data = (enum data)random_below(&random, DATA);
            for (int64_t j = i; j < i + UNIT; j++)
                x[j] = draw(&random, data);
        }
        kernels->narrow(f->type, x, n, 0, got, NULL);
        scalar->narrow(f->type, x, n, 0, expected, NULL);
        assert_memory_equal(got, expected, bytes_of(f->type, n));
        for (int64_t i = 0; i < n; i += UNIT)
            expect_block(f, x + i, got + i / UNIT * f->bytes);
    }
}

/* --- Bounds: rows of every length at every place, beside an unmapped page --------------------- */

/* Fills a slot with PATTERN. Returns the address of a row in the slot. The row lies `offset` bytes
 * from the slot's end or beginning. */
static unsigned char *place(int slot, bool at_end, int64_t offset, int64_t size)
{
    unsigned char *const bytes = (unsigned char *)memory_slots(slot, 1);
    memset(bytes, PATTERN, SLOT_BYTES);
    return bytes + (at_end ? SLOT_BYTES - offset - size : offset);
}

static void expect_only(int slot, const unsigned char *row, const void *expected, int64_t size)
{
    unsigned char all[SLOT_BYTES];
    const unsigned char *const bytes = (unsigned char *)memory_slots(slot, 1);
    memset(all, PATTERN, sizeof all);
    memcpy(all + (row - bytes), expected, (size_t)size);
    assert_memory_equal(bytes, all, SLOT_BYTES);
}

static void keeps_bounds(const struct kernels *kernels, enum type type, int64_t n, int64_t offset,
                         bool at_end, uint64_t *random)
{
    const int64_t size = bytes_of(type, n);
    const float scale = 0.5f;
    float x[MAX_ROW], expected[MAX_ROW];
    char row[MAX_ROW];
    for (int64_t i = 0; i < n; i++)
        x[i] = random_uniform(random);
    if (type != TYPE_F8_E4M3)
        store_row(type, x, n, n, row, NULL);
    for (int64_t i = 0; i < n && type == TYPE_F8_E4M3; i++)
        row[i] = (char)(random_bits(random) & 0xf7); /* no byte is NaN */
    scalar->widen(type, row, &scale, n, n, expected);
    unsigned char *const stored = place(1, at_end, offset, size);
    unsigned char *const wide = place(3, at_end, offset / 4 * 4, n * 4);
    memcpy(stored, row, (size_t)size);
    kernels->widen(type, stored, &scale, n, n, (float *)(void *)wide);
    expect_only(3, wide, expected, n * 4);
    expect_only(1, stored, row, size);
    if (is_unpacked(type)) {
        char unpacked[MAX_ROW / UNIT * Q8_BLOCK_BYTES];
        scalar->unpack(type, &(struct rows){row, size, n}, 1, unpacked);
        unsigned char *const to = place(3, at_end, offset / 2 * 2, bytes_of(TYPE_Q8_0, n));
        kernels->unpack(type, &(struct rows){(char *)stored, size, n}, 1, to);
        expect_only(3, to, unpacked, bytes_of(TYPE_Q8_0, n));
        expect_only(1, stored, row, size);
    }
    if (!can_be_written(type))
        return;
    place(3, at_end, offset / 4 * 4, n * 4);
    memcpy(wide, x, (size_t)n * 4);
    memset(stored, PATTERN, (size_t)size);
    kernels->narrow(type, (float *)(void *)wide, n, 0, stored, NULL);
    expect_only(1, stored, row, size);
    expect_only(3, wide, x, n * 4);
}

static void no_byte_outside_a_row_is_touched(const struct kernels *kernels)
{
    uint64_t random = 1;
    for (int type = TYPE_Q4_0; type < TYPE_COUNT; type++) {
        const int64_t block = block_elements((enum type)type), most = block > 1 ? 256 : 40;
        const int64_t align = block > 1 ? 2 : 1;
        for (int64_t n = block; n <= most; n += block)
            for (int64_t offset = 0; offset < FARTHEST; offset += align)
                for (int at_end = 0; at_end < 2; at_end++)
                    keeps_bounds(kernels, (enum type)type, n, offset, at_end, &random);
    }
}

/* --- Every test on every instruction set ------------------------------------------------------ */

static const struct check {
    const char *name;
    void (*run)(const struct kernels *kernels);
} checks[] = {
    {"every scale of a block widens", every_scale_of_a_block_widens},
    {"every integer widens", every_integer_widens},
    {"every byte of e4m3 is scaled", every_byte_of_e4m3_is_scaled},
    {"groups of e4m3 have their scales", groups_of_e4m3_have_their_scales},
    {"blocks are unpacked", blocks_are_unpacked},
    {"rows are unpacked one after the other", rows_are_unpacked_one_after_the_other},
    {"blocks widen as in ggml", blocks_widen_as_in_ggml},
    {"rows are written as in ggml", rows_are_written_as_in_ggml},
    {"random rows are written", random_rows_are_written},
    {"no byte outside a row is touched", no_byte_outside_a_row_is_touched},
};

enum { CHECKS = sizeof checks / sizeof checks[0] };

struct subject {
    const struct kernels *kernels;
    const struct check *check;
    char name[64];
};

static void run_check(void **state)
{
    const struct subject *const s = *state;
    s->check->run(s->kernels);
}

int main(int argc, char **argv)
{
    static struct subject subjects[MAX_ISAS * CHECKS];
    static struct CMUnitTest tests[MAX_ISAS * CHECKS];
    size_t count = 0;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    scalar = isas[0].kernels;
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++)
        for (int c = 0; c < CHECKS && attnkit_isa_can_run(&isas[i]); c++) {
            if (argc > 1 && strcmp(argv[1], isas[i].name) != 0)
                continue;
            struct subject *const s = &subjects[count];
            *s = (struct subject){.kernels = isas[i].kernels, .check = &checks[c]};
            snprintf(s->name, sizeof s->name, "%s: %s", isas[i].name, checks[c].name);
            tests[count++] = (struct CMUnitTest){s->name, run_check, NULL, NULL, s};
        }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("blocks", tests, count, NULL, NULL);
    memory_end();
    return failed;
}
