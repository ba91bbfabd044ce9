/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on K with extreme scales: subnormal, zero, largest, infinite, NaN. Kernels that
 * combined a scale with other factors would round, overflow, or turn an infinity into a NaN. In
 * rows and in tiles, every instruction set has the bits of the scalar kernels on K widened to
 * binary32. All bytes of some keys have the same sign, so that an infinite scale also makes scores
 * of -inf, not only NaN. With small scales, the scale of the call is so large that the scores are
 * about 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "kernels/cache/append.h"
#include "kernels/cache/spread.h"
#include "tests/cases/case.h"
#include "tests/support/formats.h"
#include "tests/support/random.h"

enum {
    KEYS = 37,
    KEY_TILES = (KEYS + TILE_KEYS - 1) / TILE_KEYS,
    MAX_ROWS = 3,
    HEADS = 4, /* query heads; they share one KV head */
    MAX_DIM = 160,
    VALUES = 8,
    WORKSPACE = 1 << 20,
};

/* The bits of a tested scale of K, and the scale of the call. */
struct scale {
    uint32_t bits;
    float factor;
};

static const struct scale f32_scales[] = {
    {0x00000001, 0x1p127f}, {0x00300001, 0x1p111f}, {0x00800000, 0x1p109f},  {0x0c7fffff, 0x1p85f},
    {0x0c800001, 0x1p85f},  {0x8d000003, 0x1p84f},  {0x7f7fffff, 0x1p-145f}, {0x7f800000, 0x1p-10f},
    {0xff800000, 0x1p-10f}, {0x7fc00000, 0x1p-10f}, {0x00000000, 0x1p-10f},  {0x80000000, 0x1p-10f},
};

static const struct scale f16_scales[] = {
    {0x0001, 0x1p7f},   {0x83ff, 0x1p-3f},  {0x0401, 0x1p-3f},
    {0x7bff, 0x1p-33f}, {0x7c00, 0x1p-10f}, {0xfc00, 0x1p-10f},
    {0x7e00, 0x1p-10f}, {0x0000, 0x1p-10f}, {0x8000, 0x1p-10f},
};

static const int dims[] = {32, 64, 96, 160};

static const char *isas[8];
static int isa_count;

static float q[HEADS * MAX_ROWS * MAX_DIM], wide_k[KEYS * MAX_DIM], v[KEYS * VALUES];
static float k_scales[KEY_TILES * TILE_KEYS];
static _Alignas(64) char rows[KEYS * MAX_DIM * 2], tiles[KEY_TILES * TILE_KEYS * MAX_DIM * 2];
static _Alignas(64) char workspace[WORKSPACE];

/* Results of a call. */
struct results {
    float out[HEADS * MAX_ROWS * VALUES], lse[HEADS * MAX_ROWS];
};

/* Draws the bytes of a key. A third of the keys have only positive bytes, and a third only negative
 * bytes. The other keys have bytes of both signs. */
static void draw_bytes(uint64_t *random, int key, int n, char *bytes)
{
    for (int i = 0; i < n; i++) {
        const int byte = 1 + (int)random_below(random, 127);
        const bool negative = key % 3 == 2 ? random_below(random, 2) : key % 3;
        bytes[i] = (char)(negative ? -byte : byte);
        if (key % 3 == 2 && random_below(random, 20) == 0)
            bytes[i] = 0;
    }
}

/* Returns the bits of the scale of a key. Some keys whose bytes are negative have the tested scale.
 * If the tested scale is +infinity, row 0 gets scores of -inf, and all other rows become NaN. If
 * the tested scale is -infinity, row 1 gets scores of -inf, and all other rows become NaN. For keys
 * of TYPE_I8 without the tested scale, the product of the scale and scale->factor is 2^-17. */
static uint32_t scale_of(enum type type, const struct scale *scale, int key)
{
    const float ordinary = 0x1p-17f / scale->factor;
    uint32_t bits = 0x2000 + (uint32_t)key; /* about 2^-7 in binary16 */
    if (type == TYPE_I8)
        memcpy(&bits, &ordinary, sizeof bits);
    return key % 12 == 1 ? scale->bits : bits;
}

/* Draws a key. Stores the key as a row, in its tile, and widened to binary32. */
static void draw_key(uint64_t *random, enum type type, const struct scale *scale, int dim, int key)
{
    char *const row = rows + key * bytes_of(type, dim);
    const uint32_t bits = scale_of(type, scale, key);
    float f32_scale = 0.0f;
    memcpy(&f32_scale, &bits, sizeof f32_scale);
    if (type == TYPE_I8)
        draw_bytes(random, key, dim, row);
    for (int d = 0; d < dim && type == TYPE_Q8_0; d += Q8_BLOCK) {
        const uint16_t half = (uint16_t)bits;
        char *const block = row + bytes_of(type, d);
        memcpy(block, &half, sizeof half);
        draw_bytes(random, key, Q8_BLOCK, block + sizeof half);
    }
    k_scales[key] = f32_scale;
    widen_row(type, row, &f32_scale, dim, dim, wide_k + key * dim);
    spread_row(type, row, dim, key % TILE_KEYS,
               tiles + key / TILE_KEYS * TILE_KEYS * bytes_of(type, dim));
}

static void draw_inputs(uint64_t *random, enum type type, const struct scale *scale, int dim)
{
    /* Rows 0 and 2 are positive, rows 1 and 3 are negative, the other rows have both signs. */
    for (int i = 0; i < HEADS * MAX_ROWS * dim; i++) {
        const int row = i / dim;
        const float x = 0x1p12f * random_uniform(random), one_sign = fabsf(x) + 1.0f;
        q[i] = row >= 4 ? x : row % 2 ? -one_sign : one_sign;
    }
    for (int i = 0; i < KEYS * VALUES; i++)
        v[i] = random_uniform(random);
    for (int key = 0; key < KEYS; key++)
        draw_key(random, type, scale, dim, key);
}

static void run(attnkit_attention_args args, const char *isa, struct results *results)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "";
    const attnkit_exec exec = {.size = sizeof exec,
                               .isa = isa,
                               .workspace = workspace,
                               .workspace_size = sizeof workspace};
    memset(results, 0, sizeof *results);
    args.out.data = results->out;
    args.lse.data = results->lse;
    if (attnkit_attention(&args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s: %s", isa, message);
}

static void check(enum type type, const struct scale *scale, int dim, int q_len)
{
    const attnkit_kv_storage storage = {.size = sizeof storage,
                                        .k_scales = {.data = type == TYPE_I8 ? k_scales : NULL}};
    attnkit_attention_args args = {
        .size = sizeof args,
        .flags = ATTNKIT_SCALE_GIVEN,
        .batch = 1,
        .q_heads = HEADS,
        .kv_heads = 1,
        .q_len = q_len,
        .kv_len = KEYS,
        .head_dim = dim,
        .value_dim = VALUES,
        .q = {.data = q},
        .k = {.data = wide_k},
        .v = {.data = v},
        .scale = scale->factor,
    };
    struct results expected, got;
    run(args, "scalar", &expected);
    args.k.type = (attnkit_type)type;
    args.storage = &storage;
    for (int i = 0; i < 2 * isa_count; i++) {
        const bool tiled = i % 2;
        args.k.layout = tiled ? ATTNKIT_TILED : 0;
        args.k.data = tiled ? tiles : rows;
        run(args, isas[i / 2], &got);
        if (!same_bits(expected.out, got.out, sizeof got.out / sizeof *got.out) ||
            !same_bits(expected.lse, got.lse, sizeof got.lse / sizeof *got.lse))
            fail_msg("%s: %s with scale %08x, head_dim %d, %d rows%s", isas[i / 2],
                     type == TYPE_I8 ? "i8" : "q8_0", (unsigned)scale->bits, dim, q_len,
                     tiled ? ", in tiles" : "");
    }
}

static void check_scales(enum type type, const struct scale *scales, size_t count)
{
    uint64_t random = 1;
    for (size_t s = 0; s < count; s++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (int q_len = 1; q_len <= MAX_ROWS; q_len++) {
                draw_inputs(&random, type, &scales[s], dims[d]);
                check(type, &scales[s], dims[d], q_len);
            }
}

static void scales_of_i8_at_the_ends_of_their_range_keep_the_bits(void **state)
{
    (void)state;
    check_scales(TYPE_I8, f32_scales, sizeof f32_scales / sizeof *f32_scales);
}

static void scales_of_q8_0_at_the_ends_of_their_range_keep_the_bits(void **state)
{
    (void)state;
    check_scales(TYPE_Q8_0, f16_scales, sizeof f16_scales / sizeof *f16_scales);
}

static int list_isas(void **state)
{
    const struct isa *all;
    const int count = attnkit_isas(&all);
    (void)state;
    for (int i = 0; i < count; i++)
        if (attnkit_isa_can_run(&all[i]))
            isas[isa_count++] = all[i].name;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_of_i8_at_the_ends_of_their_range_keep_the_bits),
        cmocka_unit_test(scales_of_q8_0_at_the_ends_of_their_range_keep_the_bits),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, list_isas, NULL);
}
