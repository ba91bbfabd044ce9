/* SPDX-License-Identifier: Apache-2.0
 *
 * Every NaN that a linear map, an append or an embedding computes has the same bits: 0x7fc00000 in
 * binary32, 0x7e00 in binary16, 0x7fc0 in bfloat16. The calls have NaN of any sign and payload, and
 * infinities, in their inputs. The results of linear maps must have the bits of the reference.
 * The results of appends and embeddings must have the bits of the scalar kernels. Every computed
 * NaN must have the bits above. The tests count the NaN, so that a test without a NaN fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/scalar/scalar.h"
#include "tests/support/call.h"
#include "tests/support/linear_call.h"
#include "tests/support/odd.h"
#include "tests/support/random.h"

enum {
    ROUNDED_TYPES = 3, /* binary32 and the types of 16 bits */
    TYPES = 7,         /* number of types that an append can write */
};

static const char *const type_names[TYPES] = {"f32", "f16", "bf16", "i8", "q8_0", "q4_0", "q5_0"};
static const enum type written[TYPES] = {TYPE_F32,  TYPE_F16,  TYPE_BF16, TYPE_I8,
                                         TYPE_Q8_0, TYPE_Q4_0, TYPE_Q5_0};

/* Prints how many NaN were counted in results of each of `types` types, from `first` on. Fails the
 * test if a type had none. */
static void expect_some(const char *isa, const char *what, enum type first, int types,
                        const int64_t *nans)
{
    printf("# %s: NaN in %s:", isa, what);
    for (int i = 0; i < types; i++)
        printf(" %lld %s", (long long)nans[i], type_names[(int)first + i]);
    printf("\n");
    for (int i = 0; i < types; i++)
        assert_true(nans[i] > 0);
}

/* --- Scales of blocks ------------------------------------------------------------------------- */

/* Counts the NaN among the scales of `count` blocks. The blocks come in groups of `together`
 * blocks. The scales of a group come first, then the integers of its blocks.
 */
static int64_t count_scales(const char *what, enum type type, const char *blocks, int64_t count,
                            int64_t together)
{
    const int64_t line = together * (int64_t)sizeof(uint16_t);
    int64_t nans = 0;
    for (int64_t i = 0; i < count; i += together) {
        uint16_t scales[TILE_KEYS];
        memcpy(scales, blocks + i * bytes_of(type, Q8_BLOCK), (size_t)line);
        nans += odd_count(what, TYPE_F16, scales, together);
    }
    return nans;
}

/* --- Linear maps ------------------------------------------------------------------------------ */

/* The shapes have few rows and many, an in_dim of one block of TYPE_Q8_0 or more, and an out_dim
 * that is no multiple of a tile. */
static const struct linear_shape shapes[] = {
    {1, 64, 70}, {5, 96, 33}, {17, 544, 50}, {40, 1056, 20}, {66, 32, 130}};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void put_into_rows(const struct tensor *t, enum type type, int64_t dim, int64_t rows_to_one,
                          uint64_t *random)
{
    const int64_t places = type == TYPE_Q8_0 ? dim / Q8_BLOCK : dim;
    for (int64_t row = 0; row < t->count[2]; row++)
        odd_put(type, tensor_row(t, 0, 0, row), dim, rows_to_one * places, random);
}

/* Puts NaN and infinities into about every fourth or every fortieth row of w, and into the bias. In
 * about half of the calls, some rows of x also get NaN and infinities. A NaN in a row of x makes
 * the whole row of y NaN. */
static void put_into_linear(const struct linear_call *c, uint64_t *random)
{
    const int64_t dim = c->args.in_dim, apart = random_below(random, 2) ? 4 : 40;
    if (random_below(random, 2))
        put_into_rows(&c->x, (enum type)c->args.x.type, dim, 3, random);
    put_into_rows(&c->w, (enum type)c->pack.w.type, dim, apart, random);
    if (c->args.bias)
        odd_put(TYPE_F32, c->bias.data, c->args.out_dim, 2 * apart, random);
}

/* Numbers of NaN in y, and in the scales that packing computes. */
struct linear_nans {
    int64_t y, scales;
};

static struct linear_nans check_linear(const struct linear_kind *kind, struct linear_shape shape,
                                       uint64_t seed, const char *isa)
{
    const struct runner runner = {.isa = isa, .threads = 1 + (int)(seed % 3)};
    struct linear_call *const c = linear_call_new(kind, shape, seed);
    struct linear_nans nans = {0, 0};
    put_into_linear(c, &seed);
    linear_call_pack(c, runner);
    assert_true(linear_call_is_packed(c));
    linear_call_run(c, runner);
    char *const expected = linear_call_reference(c), *const y = linear_call_take(c);
    assert_non_null(y);
    assert_true(linear_call_same(c, y, expected, shape.rows));
    nans.y = odd_count("y", (enum type)kind->y_type, y, shape.rows * shape.out_dim);
    if (kind->packed_type == ATTNKIT_Q8_0 && kind->w_type != ATTNKIT_Q8_0)
        nans.scales = count_scales("packed", TYPE_Q8_0, c->pack.packed,
                                   (shape.out_dim + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS *
                                       shape.in_dim / Q8_BLOCK,
                                   TILE_KEYS);
    free(expected);
    free(y);
    linear_call_free(c);
    return nans;
}

static void every_nan_of_linear_maps_has_the_same_bits(void **state)
{
    int64_t nans[SHAPES][ROUNDED_TYPES] = {{0}}, scales = 0;
    uint64_t random = 1;
    for (int w = 0; w < MATRIX_CONVERSIONS; w++)
        for (int i = 0; i < SHAPES * ROUNDED_TYPES; i++) {
            const int shape = i / ROUNDED_TYPES, y = i % ROUNDED_TYPES;
            const struct linear_kind kind = {.x_type = (attnkit_type)((w + i) % ROUNDED_TYPES),
                                             .w_type = matrix_conversions[w][0],
                                             .packed_type = matrix_conversions[w][1],
                                             .y_type = (attnkit_type)y,
                                             .bias = (w + i) % 2,
                                             .integers =
                                                 matrix_conversions[w][1] == ATTNKIT_Q8_0 && i % 2};
            const struct linear_nans found =
                check_linear(&kind, shapes[shape], random_bits(&random), *state);
            nans[shape][y] += found.y;
            scales += found.scales;
        }
    for (int i = 0; i < SHAPES; i++) {
        char what[64];
        snprintf(what, sizeof what, "y of %lld rows", (long long)shapes[i].rows);
        expect_some(*state, what, TYPE_F32, ROUNDED_TYPES, nans[i]);
    }
    expect_some(*state, "scales of packed rows", TYPE_Q8_0, 1, &scales);
}

/* --- Appends ---------------------------------------------------------------------------------- */

enum { HEADS = 2, LEN = 2 * TILE_KEYS, DIM = 64, GROUP = 16, ROWS = HEADS * LEN };

struct cache {
    char rows[ROWS * DIM * sizeof(float)];
    float scales[ROWS * DIM / GROUP];
};

/* An append of rows of binary32, binary16 or bfloat16, rotated or not, to a cache of any type that
 * an append can write, in tiles or not. */
struct append {
    attnkit_append_args args;
    attnkit_rotation rotation;
    float src[ROWS * DIM], cos[LEN * DIM / 2], sin[LEN * DIM / 2];
};

static void fill(float *x, int64_t count, int64_t rate, uint64_t *random)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = random_normal(random);
    odd_put(TYPE_F32, x, count, rate, random);
}

static void draw_append(struct append *a, enum type from, enum type to, attnkit_rope rope,
                        bool tiled, uint64_t *random)
{
    float x[ROWS * DIM];
    fill(x, ROWS * DIM, 0, random);
    attnkit_scalar_narrow(from, x, ROWS * DIM, 0, a->src, NULL);
    odd_put(from, a->src, ROWS * DIM, 2 * DIM, random);
    fill(a->cos, LEN * DIM / 2, DIM, random);
    fill(a->sin, LEN * DIM / 2, DIM, random);
    attnkit_rotation_init(&a->rotation);
    a->rotation.kind = rope;
    a->rotation.cos = a->cos;
    a->rotation.sin = a->sin;
    a->rotation.table_positions = LEN;
    attnkit_append_args_init(&a->args);
    a->args.batch = 1;
    a->args.heads = HEADS;
    a->args.len = a->args.capacity = LEN;
    a->args.dim = DIM;
    a->args.src = (attnkit_tensor){.data = a->src, .type = (attnkit_type)from};
    a->args.dst.type = (attnkit_type)to;
    a->args.dst.layout = tiled ? ATTNKIT_TILED : 0;
    a->args.scale_group = to == TYPE_I8 ? GROUP : 0;
    a->args.rotation = rope != ATTNKIT_ROPE_NONE ? &a->rotation : NULL;
}

static void run_append(const struct append *a, struct cache *cache, const char *isa)
{
    char workspace[1 << 14], message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_exec exec = {.size = sizeof exec,
                               .isa = isa,
                               .workspace = workspace,
                               .workspace_size = sizeof workspace};
    attnkit_append_args args = a->args;
    memset(cache, 0xa5, sizeof *cache);
    args.dst.data = cache->rows;
    args.dst_scales.data = args.dst.type == ATTNKIT_I8 ? cache->scales : NULL;
    if (attnkit_append(&args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
}

/* Counts the NaN among the numbers that an append computes: rotated elements, or scales. */
static int64_t count_append(const struct append *a, const struct cache *cache)
{
    const enum type to = (enum type)a->args.dst.type;
    if (to == TYPE_I8)
        return odd_count("scales", TYPE_F32, cache->scales, ROWS * DIM / GROUP);
    if (block_elements(to) == Q8_BLOCK)
        return count_scales("dst", to, cache->rows, ROWS * DIM / Q8_BLOCK,
                            a->args.dst.layout & ATTNKIT_TILED ? TILE_KEYS : 1);
    return a->args.rotation ? odd_count("dst", to, cache->rows, ROWS * DIM) : 0;
}

static int64_t check_append(const struct append *a, const char *isa)
{
    static struct cache got, expected;
    run_append(a, &got, isa);
    run_append(a, &expected, "scalar");
    assert_memory_equal(&got, &expected, sizeof got);
    return count_append(a, &got);
}

static void every_nan_of_rotated_rows_and_scales_has_the_same_bits(void **state)
{
    static const attnkit_rope ropes[] = {ATTNKIT_ROPE_NONE, ATTNKIT_ROPE_INTERLEAVED,
                                         ATTNKIT_ROPE_HALF};
    static struct append a;
    int64_t nans[TYPES] = {0};
    uint64_t random = 1;
    for (int from = 0; from < ROUNDED_TYPES; from++)
        for (int to = 0; to < TYPES; to++)
            for (int i = 0; i < 3 * 2; i++) {
                const bool tiled = i % 2 && !is_only_widened(written[to]);
                draw_append(&a, (enum type)from, written[to], ropes[i / 2], tiled, &random);
                nans[to] += check_append(&a, *state);
            }
    expect_some(*state, "rotated elements", TYPE_F32, ROUNDED_TYPES, nans);
    expect_some(*state, "scales of rows", TYPE_I8, TYPES - ROUNDED_TYPES, nans + ROUNDED_TYPES);
}

/* --- Embeddings ------------------------------------------------------------------------------- */

enum { VOCAB = 40 };

static void embed(const void *table, attnkit_type out_type, void *out, const char *isa)
{
    static const int32_t ids[VOCAB] = {7, 3, 0, 39, 12, 13, 14, 15, 1, 1, 22};
    char message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    const attnkit_embed_args args = {
        .size = sizeof args,
        .count = VOCAB,
        .vocab = VOCAB,
        .dim = DIM,
        .ids = {.data = ids, .type = ATTNKIT_INT32},
        .table = {.data = table, .type = ATTNKIT_Q8_0},
        .out = {.data = out, .type = out_type},
    };
    if (attnkit_embed(&args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
}

/* Only a table with scales is tested. Without scales, an embedding only changes the type of
 * rows, which computes no NaN. */
static void rows_of_tables_with_scales_have_one_nan(void **state)
{
    char table[VOCAB * DIM / Q8_BLOCK * Q8_BLOCK_BYTES];
    float x[VOCAB * DIM], got[VOCAB * DIM], expected[VOCAB * DIM];
    int64_t nans[ROUNDED_TYPES];
    uint64_t random = 1;
    for (int i = 0; i < VOCAB * DIM; i++)
        x[i] = random_below(&random, 4) ? random_normal(&random) : 0.0f;
    attnkit_scalar_narrow(TYPE_Q8_0, x, VOCAB * DIM, 0, table, NULL);
    odd_put(TYPE_Q8_0, table, VOCAB * DIM, 2, &random);
    for (int type = 0; type < ROUNDED_TYPES; type++) {
        memset(got, 0, sizeof got);
        memset(expected, 0, sizeof expected);
        embed(table, (attnkit_type)type, got, *state);
        embed(table, (attnkit_type)type, expected, "scalar");
        assert_memory_equal(got, expected, sizeof got);
        nans[type] = odd_count("out", (enum type)type, got, VOCAB * DIM);
    }
    expect_some(*state, "rows of a table of q8_0", TYPE_F32, ROUNDED_TYPES, nans);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(every_nan_of_linear_maps_has_the_same_bits),
        cmocka_unit_test(every_nan_of_rotated_rows_and_scales_has_the_same_bits),
        cmocka_unit_test(rows_of_tables_with_scales_have_one_nan),
    };
    return promises_main("nan", promises, sizeof promises / sizeof promises[0], argc, argv);
}
