/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions of rows of binary32, binary16, bfloat16, I8 and Q8_0 to binary32 and back, and
 * conversions of tiles of K to binary32. The tests run on every instruction set, or on the
 * instruction set that the first argument names. The results are compared with the scalar
 * conversions, with the definitions of the formats (tests/support/formats.h), or with both.
 *
 * `convert [ISA [few]]` narrows every 1021st of the 2^32 bit patterns of binary32. With
 * ATTNKIT_TEST_LONG in the environment it narrows every pattern, which takes minutes. With `few` it
 * narrows every 100,003rd pattern in any environment. `few` is for emulated machines, which are
 * slow.
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

#include "dispatch/cpu/isa.h"
#include "tests/support/formats.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"
#include "tests/support/units.h"

enum {
    PATTERNS = 1 << 16, /* number of patterns of 16 bits */
    BATCH = 4099,     /* patterns at a time; no multiple of the lanes of a vector, so that the tails
                         of loops are tested, too */
    MAX_ROW = 512,    /* elements of a random row */
    MAX_LENGTH = 200, /* elements of a row whose bounds are checked */
    MAX_ISAS = 8,
    PATTERN = 0xa5, /* a byte of memory that nobody has written to */
};

static const struct kernels *scalar;
static uint32_t stride = 1021; /* distance between the patterns that are narrowed */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns the index of the first element in which a and b differ, or `count` if they are equal. */
static int64_t first_difference(const void *a, const void *b, size_t size, int64_t count)
{
    if (memcmp(a, b, size * (size_t)count) == 0)
        return count;
    for (int64_t i = 0; i < count; i++)
        if (memcmp((const char *)a + (size_t)i * size, (const char *)b + (size_t)i * size, size))
            return i;
    return count;
}

/* --- Every pattern of 16 bits ----------------------------------------------------------------- */

static uint16_t halves[PATTERNS], narrowed_again[PATTERNS];
static float floats[PATTERNS];

static void list_patterns(void)
{
    for (int i = 0; i < PATTERNS; i++)
        halves[i] = (uint16_t)i;
}

static void every_pattern_widens(const struct kernels *kernels)
{
    list_patterns();
    for (int f = 0; f < FORMATS; f++) {
        kernels->widen(formats[f].type, halves, NULL, 0, PATTERNS, floats);
        for (int i = 0; i < PATTERNS; i++) {
            const uint32_t expected = widened_bits(&formats[f], (uint16_t)i);
            if (bits_of(floats[i]) != expected)
                fail_msg("%s %04x widens to %08x, not %08x", formats[f].name, (unsigned)i,
                         (unsigned)bits_of(floats[i]), (unsigned)expected);
        }
    }
}

static void every_pattern_comes_back(const struct kernels *kernels)
{
    list_patterns();
    for (int f = 0; f < FORMATS; f++) {
        kernels->widen(formats[f].type, halves, NULL, 0, PATTERNS, floats);
        kernels->narrow(formats[f].type, floats, PATTERNS, 0, narrowed_again, NULL);
        for (int i = 0; i < PATTERNS; i++) {
            const int quiet =
                is_nan(&formats[f], (uint16_t)i) ? 1 << (formats[f].fraction_bits - 1) : 0;
            if (narrowed_again[i] != (i | quiet))
                fail_msg("%s %04x comes back as %04x", formats[f].name, (unsigned)i,
                         (unsigned)narrowed_again[i]);
        }
    }
}

/* --- Where rounding is decided ---------------------------------------------------------------- */

/* Narrows the midpoint between each 16-bit number that is not negative and the next number, up to
 * infinity. Also narrows the floats just below and above each midpoint, and the negatives of all
 * these floats. */
static void every_midpoint_goes_to_even(const struct kernels *kernels)
{
    for (int f = 0; f < FORMATS; f++)
        for (int p = 0; p < formats[f].infinity; p++) {
            const uint16_t below = (uint16_t)p, above = (uint16_t)(p + 1);
            const float middle =
                (float)((magnitude_of(&formats[f], below) + magnitude_of(&formats[f], above)) / 2);
            const uint16_t even = p & 1 ? above : below;
            const float x[] = {nextafterf(middle, 0.0f),  middle,  nextafterf(middle, INFINITY),
                               -nextafterf(middle, 0.0f), -middle, -nextafterf(middle, INFINITY)};
            const uint16_t expected[] = {below,          even,          above,
                                         below | 0x8000, even | 0x8000, above | 0x8000};
            uint16_t got[6];
            kernels->narrow(formats[f].type, x, 6, 0, got, NULL);
            if (memcmp(got, expected, sizeof got) != 0)
                fail_msg("%s: numbers around %a, after pattern %04x, are rounded wrongly",
                         formats[f].name, (double)middle, (unsigned)p);
        }
}

static void known_values_are_known(const struct kernels *kernels)
{
    const struct {
        float x;
        uint16_t f16, bf16;
    } known[] = {
        {0.0f, 0x0000, 0x0000},
        {-0.0f, 0x8000, 0x8000},
        {1.0f, 0x3c00, 0x3f80},
        {-2.0f, 0xc000, 0xc000},
        {0x1.554p-2f, 0x3555, 0x3eab},
        {65504.0f, 0x7bff, 0x4780},
        {65519.996f, 0x7bff, 0x4780},
        {65520.0f, 0x7c00, 0x4780},
        {1e30f, 0x7c00, 0x714a},
        {0x1p-14f, 0x0400, 0x3880},
        {0x1p-24f, 0x0001, 0x3380},
        {0x1p-25f, 0x0000, 0x3300},
        {0x1.8p-25f, 0x0001, 0x3340},
        {0x1p-149f, 0x0000, 0x0000},
        {0x1p-133f, 0x0000, 0x0001},
        {0x1.fffffep127f, 0x7c00, 0x7f80},
        {INFINITY, 0x7c00, 0x7f80},
        {-INFINITY, 0xfc00, 0xff80},
        {float_of(0x7fc00000), 0x7e00, 0x7fc0}, /* a quiet NaN */
        {float_of(0x7f800001), 0x7e00, 0x7fc0}, /* a signalling NaN whose payload does not fit */
        {float_of(0xffa46000), 0xff23, 0xffe4}, /* a signalling NaN whose payload fits in part */
        {float_of(0xffffffff), 0xffff, 0xffff},
    };
    enum { KNOWN = sizeof known / sizeof known[0] };
    float x[KNOWN];
    uint16_t f16[KNOWN], bf16[KNOWN];
    for (int i = 0; i < KNOWN; i++)
        x[i] = known[i].x;
    kernels->narrow(TYPE_F16, x, KNOWN, 0, f16, NULL);
    kernels->narrow(TYPE_BF16, x, KNOWN, 0, bf16, NULL);
    for (int i = 0; i < KNOWN; i++) {
        if (f16[i] != known[i].f16)
            fail_msg("%a becomes f16 %04x, not %04x", (double)x[i], (unsigned)f16[i],
                     (unsigned)known[i].f16);
        if (bf16[i] != known[i].bf16)
            fail_msg("%a becomes bf16 %04x, not %04x", (double)x[i], (unsigned)bf16[i],
                     (unsigned)known[i].bf16);
    }
}

/* --- Every binary32 number, or a sample ------------------------------------------------------- */

/* Stores the next patterns, from *next on, in x. Returns the number of patterns, which is 0 after
 * the last pattern. */
static int64_t take(uint64_t *next, float x[BATCH])
{
    int64_t n = 0;
    for (; n < BATCH && *next <= UINT32_MAX; n++, *next += stride)
        x[n] = float_of((uint32_t)*next);
    return n;
}

static void narrows_batch(const struct kernels *kernels, const struct format *f, const float *x,
                          int64_t n)
{
    uint16_t got[BATCH], expected[BATCH];
    kernels->narrow(f->type, x, n, 0, got, NULL);
    scalar->narrow(f->type, x, n, 0, expected, NULL);
    const int64_t at = first_difference(got, expected, sizeof *got, n);
    if (at < n)
        fail_msg("%08x becomes %s %04x, not %04x", (unsigned)bits_of(x[at]), f->name,
                 (unsigned)got[at], (unsigned)expected[at]);
    for (int64_t i = 0; i < n && kernels == scalar; i++)
        if (!is_narrowed(f, x[i], got[i]))
            fail_msg("%08x becomes %s %04x: not the nearest", (unsigned)bits_of(x[i]), f->name,
                     (unsigned)got[i]);
}

static void every_binary32_narrows(const struct kernels *kernels)
{
    float x[BATCH];
    int64_t n;
    for (uint64_t next = 0; (n = take(&next, x)) > 0;)
        for (int f = 0; f < FORMATS; f++)
            narrows_batch(kernels, &formats[f], x, n);
}

/* --- Quantised rows --------------------------------------------------------------------------- */

/* Checks that each number is its byte times the scale, rounded once, or NaN if the product is NaN.
 * The product is exact in binary64. */
static void expect_products(const int8_t *bytes, float scale, int64_t n, const float *got)
{
    for (int64_t i = 0; i < n; i++) {
        const float expected = (float)((double)bytes[i] * (double)scale);
        if (bits_of(got[i]) != bits_of(expected))
            fail_msg("%d times a scale of %a is %a, not %a", bytes[i], (double)scale,
                     (double)got[i], (double)expected);
    }
}

static void every_byte_is_scaled(const struct kernels *kernels)
{
    const float scales[] = {1.0f,     0.0f,      -0.5f,           1.0f / 3.0f, 0x1.fffffep120f,
                            0x1p127f, 0x1p-149f, 0x1.23456p-140f, INFINITY,    NAN};
    int8_t bytes[256];
    float out[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (int8_t)(i - 128);
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        kernels->widen(TYPE_I8, bytes, &scales[s], 256, 256, out);
        expect_products(bytes, scales[s], 256, out);
    }
}

static void every_block_scale_is_exact(const struct kernels *kernels)
{
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        const uint16_t half = (uint16_t)pattern;
        char block[Q8_BLOCK_BYTES];
        int8_t bytes[Q8_BLOCK];
        float out[Q8_BLOCK];
        for (int i = 0; i < Q8_BLOCK; i++)
            bytes[i] = (int8_t)(i * 8 + pattern % 8 - 128);
        memcpy(block, &half, sizeof half);
        memcpy(block + sizeof half, bytes, sizeof bytes);
        kernels->widen(TYPE_Q8_0, block, NULL, 0, Q8_BLOCK, out);
        expect_products(bytes, float_of(widened_bits(&formats[0], half)), Q8_BLOCK, out);
    }
}

/* The kinds of numbers in a row. */
enum data { NORMAL, WIDE, TINY, HUGE_VALUES, SPECIAL, ZERO, ANY_BITS, DATA };

static float draw(uint64_t *random, enum data data)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 3e38f, 1e-45f};
    const float u = random_uniform(random);
    switch (data) {
    case WIDE:
        return ldexpf(u, (int)random_below(random, 80) - 40);
    case TINY:
        return ldexpf(u, -100 - (int)random_below(random, 50));
    case HUGE_VALUES:
        return ldexpf(u, 100 + (int)random_below(random, 29));
    case SPECIAL:
        return random_below(random, 40) == 0 ? specials[random_below(random, 6)] : u;
    case ZERO:
        return random_below(random, 2) ? 0.0f : -0.0f;
    case ANY_BITS:
        return float_of((uint32_t)random_bits(random));
    default:
        return u;
    }
}

static void draw_row(uint64_t *random, float *x, int64_t n)
{
    const enum data data = (enum data)random_below(random, DATA);
    for (int64_t i = 0; i < n; i++)
        x[i] = draw(random, data);
}

/* Returns the largest magnitude of a group divided by 127, or the NaN 0x7fc00000 if the group
 * has a NaN. */
static float model_scale(const float *x, int64_t n)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++)
        most = isnan(x[i]) || isnan(most) ? NAN : fmaxf(most, fabsf(x[i]));
    return (float)((double)most / 127.0); /* two roundings that give the same result as one
                                             rounding, because 53 > 2 * 24 + 1 */
}

static int model_byte(float x, float scale)
{
    const float quotient = (float)((double)x / (double)scale);
    if (isnan(quotient) || scale == 0.0f)
        return 0;
    return (int)fmax(-127.0, fmin(nearbyint((double)quotient), 127.0));
}

/* Checks the bytes to which a group is narrowed with this scale, and the numbers to which the bytes
 * are widened. */
static void expect_group(const float *x, int64_t n, float scale, const int8_t *bytes,
                         const float *again)
{
    for (int64_t i = 0; i < n; i++) {
        if (bytes[i] != model_byte(x[i], scale))
            fail_msg("%a with a scale of %a becomes %d, not %d", (double)x[i], (double)scale,
                     bytes[i], model_byte(x[i], scale));
        if (isfinite(scale) != isfinite(again[i]))
            fail_msg("%a with a scale of %a comes back as %a", (double)x[i], (double)scale,
                     (double)again[i]);
        /* The error is at most half the scale, plus the roundings of scale and quotient. */
        if (scale >= 0x1p-14f && fabsf(x[i]) <= 127.0f * scale && isfinite(scale) &&
            fabs((double)x[i] - (double)again[i]) > 0.50002 * (double)scale)
            fail_msg("%a with a scale of %a comes back as %a", (double)x[i], (double)scale,
                     (double)again[i]);
    }
}

struct quantised {
    enum type type;
    int64_t n, group;
    float x[MAX_ROW], scales[MAX_ROW], again[MAX_ROW];
    int8_t row[MAX_ROW / Q8_BLOCK * Q8_BLOCK_BYTES];
};

static void convert_both_ways(const struct kernels *kernels, struct quantised *r)
{
    kernels->narrow(r->type, r->x, r->n, r->group, r->row, r->scales);
    kernels->widen(r->type, r->row, r->scales, r->group, r->n, r->again);
}

static void expect_row(const struct quantised *r)
{
    for (int64_t i = 0, g = 0; i < r->n; i += r->group, g++) {
        const int8_t *bytes = r->row + bytes_of(r->type, i);
        const float exact = model_scale(r->x + i, r->group);
        float scale = r->scales[g];
        if (r->type == TYPE_Q8_0) {
            uint16_t half;
            memcpy(&half, bytes, sizeof half);
            assert_true(is_narrowed(&formats[0], exact, half));
            scale = float_of(widened_bits(&formats[0], half));
            bytes += sizeof half;
        } else if (bits_of(scale) != bits_of(exact)) {
            fail_msg("the scale is %a, not %a", (double)scale, (double)exact);
        }
        expect_group(r->x + i, r->group, scale, bytes, r->again + i);
    }
}

static void random_rows_are_quantised(const struct kernels *kernels)
{
    static struct quantised got, expected;
    uint64_t random = 1;
    for (int round = 0; round < 20000; round++) {
        memset(&got, 0, sizeof got);
        got.type = round % 2 ? TYPE_I8 : TYPE_Q8_0;
        got.group = round % 2 ? 1 + random_below(&random, round % 8 == 1 ? MAX_ROW : 40) : Q8_BLOCK;
        got.n = got.group * random_below(&random, MAX_ROW / got.group + 1);
        for (int64_t i = 0; i < got.n; i += got.group)
            draw_row(&random, got.x + i, got.group);
        expected = got;
        convert_both_ways(kernels, &got);
        convert_both_ways(scalar, &expected);
        assert_memory_equal(&got, &expected, sizeof got);
        expect_row(&got);
    }
}

/* The NaNs in a group have various signs, payloads and places. The scale is always the same NaN. */
static void every_nan_scale_has_the_same_bits(const struct kernels *kernels)
{
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001,
                                    0x7fa54321, 0x7fffffff, 0xffffffff};
    static const int8_t zeros[Q8_BLOCK];
    for (int i = 0; i < 7 * Q8_BLOCK; i++) {
        float x[Q8_BLOCK] = {1.0f, -2.0f, INFINITY}, scale;
        int8_t row[Q8_BLOCK];
        char block[Q8_BLOCK_BYTES];
        uint16_t half;
        x[i % Q8_BLOCK] = float_of(nans[i / Q8_BLOCK]);
        x[(i + i / 9) % Q8_BLOCK] = float_of(nans[i % 7]);
        kernels->narrow(TYPE_I8, x, Q8_BLOCK, Q8_BLOCK, row, &scale);
        kernels->narrow(TYPE_Q8_0, x, Q8_BLOCK, 0, block, NULL);
        memcpy(&half, block, sizeof half);
        assert_int_equal(bits_of(scale), 0x7fc00000);
        assert_int_equal(half, 0x7e00);
        assert_memory_equal(row, zeros, Q8_BLOCK);
        assert_memory_equal(block + sizeof half, zeros, Q8_BLOCK);
    }
}

/* --- Bounds: rows of every length at every place, beside an unmapped page --------------------- */

enum { FARTHEST = 64 };

/* A slot that holds a row of `size` bytes. The row begins `place` bytes after the slot's first
 * byte. */
struct window {
    unsigned char *bytes;
    int64_t place, size;
};

static struct window place(int slot, bool at_end, int64_t offset, int64_t size)
{
    struct window w = {(unsigned char *)memory_slots(slot, 1),
                       at_end ? SLOT_BYTES - offset - size : offset, size};
    assert_true(size + offset <= SLOT_BYTES);
    memset(w.bytes, PATTERN, SLOT_BYTES);
    return w;
}

static void *row_in(struct window w)
{
    return w.bytes + w.place;
}

/* Checks that the row is `expected` and the rest of the slot is untouched. */
static void expect_window(struct window w, const void *expected, const char *what)
{
    unsigned char all[SLOT_BYTES];
    memset(all, PATTERN, sizeof all);
    memcpy(all + w.place, expected, (size_t)w.size);
    const int64_t at = first_difference(w.bytes, all, 1, SLOT_BYTES);
    if (at < SLOT_BYTES)
        fail_msg("%s: byte %lld of %lld is wrong", what, (long long)(at - w.place),
                 (long long)w.size);
}

struct bounded {
    const struct kernels *kernels;
    enum type type;
    int64_t n, group;
    int elements; /* distance of the row from the slot's edge, in elements, or in units of 2 bytes
                     for TYPE_Q8_0 */
    bool at_end;
};

static void keeps_bounds(const struct bounded *b, uint64_t *random)
{
    const int64_t align = b->type == TYPE_Q8_0 ? 2 : bytes_of(b->type, 1);
    const int64_t scales_size = b->type == TYPE_I8 ? b->n / b->group * (int64_t)sizeof(float) : 0;
    const struct window row = place(1, b->at_end, align * b->elements, bytes_of(b->type, b->n));
    const struct window wide = place(3, b->at_end, 4 * (b->elements % 16), b->n * 4);
    const struct window scales = place(5, b->at_end, 4 * (b->elements % 16), scales_size);
    float x[MAX_LENGTH], expected_x[MAX_LENGTH], expected_scales[MAX_LENGTH];
    char expected_row[MAX_LENGTH * sizeof(float)];
    for (int64_t i = 0; i < b->n; i++)
        x[i] = (float)(random_below(random, 2000) - 1000) / 64.0f; /* exact in binary16 */
    scalar->narrow(b->type, x, b->n, b->group, expected_row, expected_scales);
    scalar->widen(b->type, expected_row, expected_scales, b->group, b->n, expected_x);

    memcpy(row_in(wide), x, (size_t)b->n * sizeof *x);
    b->kernels->narrow(b->type, row_in(wide), b->n, b->group, row_in(row), row_in(scales));
    expect_window(row, expected_row, "narrowed row");
    expect_window(scales, expected_scales, "scales");
    expect_window(wide, x, "row to narrow");
    b->kernels->widen(b->type, row_in(row), row_in(scales), b->group, b->n, row_in(wide));
    expect_window(wide, expected_x, "widened row");
    expect_window(row, expected_row, "row to widen");
}

/* Draws a divisor of n. */
static int64_t draw_group(uint64_t *random, int64_t n)
{
    int64_t group = 1 + random_below(random, n);
    while (n % group != 0)
        group--;
    return group;
}

static void no_byte_outside_a_row_is_touched(const struct kernels *kernels)
{
    uint64_t random = 1;
    for (int type = TYPE_F32; type <= TYPE_Q8_0; type++) {
        const int step = type == TYPE_Q8_0 ? Q8_BLOCK : 1;
        const int places = FARTHEST / (type == TYPE_I8 ? 1 : type == TYPE_F32 ? 4 : 2);
        for (int n = step; n <= MAX_LENGTH; n += step)
            for (int place_index = 0; place_index < 2 * places; place_index++) {
                const struct bounded b = {.kernels = kernels,
                                          .type = (enum type)type,
                                          .n = n,
                                          .group = draw_group(&random, n),
                                          .elements = place_index / 2,
                                          .at_end = place_index % 2};
                keeps_bounds(&b, &random);
            }
    }
}

/* --- Tiles of K, of any bits, beside an unmapped page ----------------------------------------- */

enum {
    MAX_TILE_DIM = 64, /* a binary32 tile of this dim fits a slot */
    TILE_ROUNDS = 12,  /* rounds for each type and dim; TYPE_Q8_0 has 32 times as many */
};

/* The tile holds all 16-bit patterns. Key i has the patterns i, i + 16, i + 32 and so on. */
static void every_pattern_of_a_tile_widens(const struct kernels *kernels)
{
    list_patterns();
    const int n = PATTERNS / TILE_KEYS;
    for (int f = 0; f < FORMATS; f++) {
        kernels->widen_tile(formats[f].type, halves, NULL, 0, n, floats);
        for (int i = 0; i < PATTERNS; i++) {
            const uint32_t got = bits_of(floats[i % TILE_KEYS * n + i / TILE_KEYS]);
            const uint32_t expected = widened_bits(&formats[f], (uint16_t)i);
            if (got != expected)
                fail_msg("%s %04x of a tile widens to %08x, not %08x", formats[f].name, (unsigned)i,
                         (unsigned)got, (unsigned)expected);
        }
    }
}

/* Copies `count` elements that lie 16 elements apart. */
static void gather(void *to, const void *from, int64_t size, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)to + i * size, (const char *)from + i * TILE_KEYS * size, (size_t)size);
}

/* Copies the row of a key out of a tile. */
static void gather_row(enum type type, const char *tile, int key, int64_t n, char *row)
{
    const int64_t size = bytes_of(type, 1);
    if (type != TYPE_Q8_0) {
        gather(row, tile + key * size, size, n);
        return;
    }
    for (; n > 0; n -= Q8_BLOCK, row += Q8_BLOCK_BYTES, tile += TILE_KEYS * Q8_BLOCK_BYTES) {
        memcpy(row, tile + key * 2, 2);
        gather(row + 2, tile + TILE_KEYS * 2 + key, 1, Q8_BLOCK);
    }
}

/* Draws a tile of random bits. Its scales have random bits, too, or are small numbers. */
static void draw_tile(uint64_t *random, struct window tile, struct window scales)
{
    const bool any_bits = random_below(random, 2);
    for (int64_t i = 0; i < tile.size; i++)
        tile.bytes[tile.place + i] = (unsigned char)random_below(random, 256);
    for (int64_t i = 0; i < scales.size; i += 4) {
        const float scale = any_bits ? draw(random, ANY_BITS) : random_uniform(random);
        memcpy(scales.bytes + scales.place + i, &scale, sizeof scale);
    }
}

/* Places a tile, its scales or its widened keys in a slot. The distance from the slot's edge is
 * less than FARTHEST elements of `align` bytes. */
static struct window place_part(uint64_t *random, int slot, int64_t align, int64_t size)
{
    const int64_t room = (SLOT_BYTES - size) / align;
    const int64_t offset = align * random_below(random, room < FARTHEST ? room + 1 : FARTHEST);
    return place(slot, random_below(random, 2), offset, size);
}

static void widens_tile(const struct kernels *kernels, enum type type, int64_t n, uint64_t *random)
{
    const int64_t group = draw_group(random, n), groups = type == TYPE_I8 ? n / group : 0;
    const int64_t align = type == TYPE_Q8_0 ? 2 : bytes_of(type, 1);
    const struct window tile = place_part(random, 1, align, TILE_KEYS * bytes_of(type, n));
    const struct window scales = place_part(random, 3, 4, TILE_KEYS * 4 * groups);
    const struct window wide = place_part(random, 5, 4, TILE_KEYS * 4 * n);
    char before[SLOT_BYTES], row[MAX_TILE_DIM * sizeof(float)];
    float scales_before[SLOT_BYTES / 4], row_scales[MAX_TILE_DIM];
    float expected[TILE_KEYS * MAX_TILE_DIM];
    draw_tile(random, tile, scales);
    memcpy(before, row_in(tile), (size_t)tile.size);
    memcpy(scales_before, row_in(scales), (size_t)scales.size);
    for (int key = 0; key < TILE_KEYS; key++) {
        gather_row(type, before, key, n, row);
        gather(row_scales, scales_before + key, 4, groups);
        scalar->widen(type, row, row_scales, group, n, expected + key * n);
    }
    kernels->widen_tile(type, row_in(tile), groups ? row_in(scales) : NULL, group, n, row_in(wide));
    expect_window(wide, expected, "keys of a tile");
    expect_window(tile, before, "tile to widen");
    expect_window(scales, scales_before, "scales of a tile");
}

static void tiles_widen_as_their_rows(const struct kernels *kernels)
{
    uint64_t random = 1;
    for (int type = TYPE_F32; type <= TYPE_Q8_0; type++) {
        const int step = type == TYPE_Q8_0 ? Q8_BLOCK : 1;
        for (int n = step; n <= MAX_TILE_DIM; n += step)
            for (int round = 0; round < TILE_ROUNDS * step; round++)
                widens_tile(kernels, (enum type)type, n, &random);
    }
}

/* --- Every test on every instruction set ------------------------------------------------------ */

static const struct check {
    const char *name;
    void (*run)(const struct kernels *kernels);
} checks[] = {
    {"every pattern widens", every_pattern_widens},
    {"every pattern comes back", every_pattern_comes_back},
    {"known values are known", known_values_are_known},
    {"every midpoint goes to even", every_midpoint_goes_to_even},
    {"every binary32 narrows", every_binary32_narrows},
    {"every byte is scaled", every_byte_is_scaled},
    {"every block scale is exact", every_block_scale_is_exact},
    {"random rows are quantised", random_rows_are_quantised},
    {"every NaN scale has the same bits", every_nan_scale_has_the_same_bits},
    {"no byte outside a row is touched", no_byte_outside_a_row_is_touched},
    {"every pattern of a tile widens", every_pattern_of_a_tile_widens},
    {"tiles widen as their rows", tiles_widen_as_their_rows},
};

enum { CHECKS = sizeof checks / sizeof checks[0] };

struct subject {
    const struct kernels *kernels;
    const struct check *check;
    char name[64];
};

static void run_check(void **state)
{
    const struct subject *s = *state;
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
    if (argc > 2)
        stride = 100003;
    else if (is_long_run())
        stride = 1;
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++)
        for (int c = 0; c < CHECKS && attnkit_isa_can_run(&isas[i]); c++) {
            if (argc > 1 && strcmp(argv[1], isas[i].name) != 0)
                continue;
            struct subject *s = &subjects[count];
            *s = (struct subject){.kernels = isas[i].kernels, .check = &checks[c]};
            snprintf(s->name, sizeof s->name, "%s: %s", isas[i].name, checks[c].name);
            tests[count++] = (struct CMUnitTest){s->name, run_check, NULL, NULL, s};
        }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("convert", tests, count, NULL, NULL);
    memory_end();
    return failed;
}
