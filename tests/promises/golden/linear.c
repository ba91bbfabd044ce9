/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden cases of linear maps and of embeddings. The linear maps have every combination of types.
 * The hash of a map covers the packed matrix and y, except in the two oldest kinds. These two kinds
 * have the same maps: linear-first-packed hashes the packed matrix, and linear-first-y hashes y.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/scalar/scalar.h"
#include "tests/promises/golden/hash.h"
#include "tests/promises/golden/kind.h"
#include "tests/support/linear_call.h"

static const uint64_t LINEAR_SEED = 14, EMBED_SEED = 15, INTEGER_SEED = 22;

enum { TYPES = 3 /* number of types that x, y and the results of embeddings can have */ };

/* --- Linear maps ------------------------------------------------------------------------------ */

/* In each conversion: the type of w, and the type to which w is packed. */
enum { CONVERSIONS = 13 };
static const attnkit_type conversions[CONVERSIONS][2] = {
    {ATTNKIT_F32, ATTNKIT_F32},   {ATTNKIT_F32, ATTNKIT_F16},   {ATTNKIT_F32, ATTNKIT_BF16},
    {ATTNKIT_F32, ATTNKIT_Q8_0},  {ATTNKIT_F16, ATTNKIT_F32},   {ATTNKIT_F16, ATTNKIT_F16},
    {ATTNKIT_F16, ATTNKIT_BF16},  {ATTNKIT_F16, ATTNKIT_Q8_0},  {ATTNKIT_BF16, ATTNKIT_F32},
    {ATTNKIT_BF16, ATTNKIT_F16},  {ATTNKIT_BF16, ATTNKIT_BF16}, {ATTNKIT_BF16, ATTNKIT_Q8_0},
    {ATTNKIT_Q8_0, ATTNKIT_Q8_0},
};

struct map {
    struct linear_kind kind;
    struct linear_shape shape;
    uint64_t seed;
};

static struct map draw_map(int number)
{
    static const int64_t rows[] = {1, 2, 3, 5, 8, 9, 16, 17, 33, 65, 130, 257};
    static const int64_t in_dims[] = {1, 2, 31, 32, 65, 97, 256, 257, 511, 513, 1056};
    static const int64_t out_dims[] = {1, 2, 15, 16, 17, 33, 64, 65, 130, 257};
    static const enum numbers numbers[] = {NORMAL, NORMAL, TINY, SPECIAL};
    uint64_t random = golden_random(LINEAR_SEED, number);
    const attnkit_type *const types = conversions[number % CONVERSIONS];
    const bool in_blocks = types[0] == ATTNKIT_Q8_0 || types[1] == ATTNKIT_Q8_0;
    struct map m = {.kind = {.x_type = (attnkit_type)(number / CONVERSIONS % TYPES),
                             .y_type = (attnkit_type)(number / CONVERSIONS / TYPES % TYPES),
                             .w_type = types[0],
                             .packed_type = types[1]}};
    struct linear_shape *const s = &m.shape;
    m.seed = random_bits(&random);
    m.kind.bias = golden_one_in(&random, 2);
    m.kind.numbers = numbers[random_below(&random, 4)];
    m.kind.layout = golden_one_in(&random, 2) ? BEFORE_GUARD : PADDED;
    do {
        s->rows = rows[random_below(&random, 12)];
        s->in_dim = in_dims[random_below(&random, 11)];
        s->out_dim = out_dims[random_below(&random, 10)];
        s->in_dim = in_blocks ? (s->in_dim + Q8_BLOCK - 1) / Q8_BLOCK * Q8_BLOCK : s->in_dim;
    } while (s->rows * s->in_dim * s->out_dim > (number % 16 ? 100000 : 1000000));
    return m;
}

/* Describes a map that multiplies integers. */
static struct map draw_integers(int number)
{
    static const int64_t rows[] = {1, 2, 4, 5, 8, 17, 65, 257};
    static const int64_t blocks[] = {1, 2, 3, 8, 17, 33};
    static const int64_t out_dims[] = {1, 15, 17, 48, 65, 130};
    static const attnkit_type w_types[] = {ATTNKIT_Q8_0, ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16};
    static const enum numbers numbers[] = {NORMAL, NORMAL, TINY, SPECIAL};
    uint64_t random = golden_random(INTEGER_SEED, number);
    struct map m = {.kind = {.x_type = (attnkit_type)(number % TYPES),
                             .y_type = (attnkit_type)(number / TYPES % TYPES),
                             .w_type = w_types[number / TYPES / TYPES % 4],
                             .packed_type = ATTNKIT_Q8_0,
                             .integers = true}};
    m.seed = random_bits(&random);
    m.kind.bias = golden_one_in(&random, 2);
    m.kind.numbers = numbers[random_below(&random, 4)];
    m.kind.layout = golden_one_in(&random, 2) ? BEFORE_GUARD : PADDED;
    do
        m.shape = (struct linear_shape){rows[random_below(&random, 8)],
                                        Q8_BLOCK * blocks[random_below(&random, 6)],
                                        out_dims[random_below(&random, 6)]};
    while (m.shape.rows * m.shape.in_dim * m.shape.out_dim > (number % 8 ? 100000 : 1000000));
    return m;
}

/* Packs the matrix. Runs the map on an instruction set, or computes the reference if isa is NULL.
 * Returns y, which the caller frees. */
static char *new_y(const struct linear_call *c, const char *isa)
{
    const struct runner runner = {.isa = isa ? isa : "scalar", .threads = 1};
    linear_call_pack(c, runner);
    if (!linear_call_is_packed(c))
        fail_msg("the packed matrix differs from the reference");
    if (!isa)
        return linear_call_reference(c);
    linear_call_run(c, runner);
    char *const y = linear_call_take(c);
    if (!y)
        fail_msg("a byte outside the rows of y has changed");
    return y;
}

/* Returns a hash over the packed matrix and then over y. */
static uint64_t hash_drawn(struct map m, const char *isa)
{
    struct linear_call *const c = linear_call_new(&m.kind, m.shape, m.seed);
    char *const y = new_y(c, isa);
    uint64_t hash = hash_bytes(HASH_BEGIN, c->packed.data, c->pack.packed_size);
    hash = hash_elements(hash, m.kind.y_type, y, (size_t)(m.shape.rows * m.shape.out_dim));
    free(y);
    linear_call_free(c);
    return hash;
}

static uint64_t hash_map(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)kind;
    (void)way;
    return hash_drawn(draw_map(number), isa);
}

static uint64_t hash_integers(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)kind;
    (void)way;
    return hash_drawn(draw_integers(number), isa);
}

static void print_linear(struct map m)
{
    printf("# %d x %d to %d, types x %d w %d packed %d y %d, bias %d numbers %d\n",
           (int)m.shape.rows, (int)m.shape.in_dim, (int)m.shape.out_dim, m.kind.x_type,
           m.kind.w_type, m.kind.packed_type, m.kind.y_type, m.kind.bias, m.kind.numbers);
}

static void print_map(const struct golden_kind *kind, int number)
{
    (void)kind;
    print_linear(draw_map(number));
}

static void print_integers(const struct golden_kind *kind, int number)
{
    (void)kind;
    print_linear(draw_integers(number));
}

/* --- The oldest golden cases of linear maps --------------------------------------------------- */

/* Describes the map of one conversion. The packed matrix and y of this map have separate hashes. */
static struct map first_map(int number)
{
    const attnkit_type *const types = conversions[number];
    return (struct map){
        .kind = {.x_type = (attnkit_type)(number / 5),
                 .w_type = types[0],
                 .packed_type = types[1],
                 .y_type = (attnkit_type)(number % TYPES),
                 .bias = number % 4 != 0,
                 .numbers = number % 5 ? NORMAL : TINY},
        .shape = {1 + number * number / 2, 32 * (1 + number), 5 + 7 * number},
        .seed = (uint64_t)number,
    };
}

static uint64_t hash_first_packed(const struct golden_kind *kind, int number, int way,
                                  const char *isa)
{
    (void)kind;
    (void)way;
    const struct map m = first_map(number);
    struct linear_call *const c = linear_call_new(&m.kind, m.shape, m.seed);
    linear_call_pack(c, (struct runner){.isa = isa ? isa : "scalar", .threads = 1});
    const uint64_t hash = hash_bytes(HASH_BEGIN, c->packed.data, c->pack.packed_size);
    linear_call_free(c);
    return hash;
}

static uint64_t hash_first_y(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)kind;
    (void)way;
    const struct map m = first_map(number);
    struct linear_call *const c = linear_call_new(&m.kind, m.shape, m.seed);
    char *const y = new_y(c, isa);
    const uint64_t hash =
        hash_elements(HASH_BEGIN, m.kind.y_type, y, (size_t)(m.shape.rows * m.shape.out_dim));
    free(y);
    linear_call_free(c);
    return hash;
}

static void print_first_map(const struct golden_kind *kind, int number)
{
    (void)kind;
    print_linear(first_map(number));
}

/* --- Embeddings ------------------------------------------------------------------------------- */

struct embedding {
    uint64_t seed;
    attnkit_type table, out;
    int64_t count, vocab, dim;
    bool has_padding;
};

static struct embedding draw_embedding(int number)
{
    uint64_t random = golden_random(EMBED_SEED, number);
    struct embedding e = {.table = (attnkit_type)(number % 4),
                          .out = (attnkit_type)(number / 4 % TYPES)};
    e.table = e.table == ATTNKIT_I8 ? ATTNKIT_Q8_0 : e.table;
    e.seed = random_bits(&random);
    e.count = 1 + random_below(&random, 40);
    e.vocab = 1 + random_below(&random, 20);
    e.dim = e.table == ATTNKIT_Q8_0 ? 32 * (1 + random_below(&random, 4))
                                    : 1 + random_below(&random, 100);
    e.has_padding = golden_one_in(&random, 2);
    return e;
}

static void fill_table(const struct embedding *e, char *table, uint64_t *random)
{
    const enum type type = (enum type)e->table;
    float x[128];
    for (int64_t row = 0; row < e->vocab; row++) {
        for (int64_t i = 0; i < e->dim; i++)
            x[i] = row % 4 ? random_normal(random) : random_number(random);
        attnkit_scalar_narrow(type, x, e->dim, e->dim, table + row * bytes_of(type, e->dim), NULL);
    }
}

static uint64_t hash_embedding(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)kind;
    (void)way;
    const struct embedding e = draw_embedding(number);
    uint64_t random = e.seed;
    int32_t ids[40];
    char message[ATTNKIT_MESSAGE_SIZE];
    const int64_t elements = e.count * e.dim;
    struct guarded table =
        memory_guarded((size_t)(e.vocab * bytes_of((enum type)e.table, e.dim)), 0, true);
    struct guarded out = memory_guarded((size_t)bytes_of((enum type)e.out, elements), 0, true);
    fill_table(&e, table.data, &random);
    for (int64_t i = 0; i < e.count; i++)
        ids[i] = (int32_t)random_below(&random, e.vocab);
    const attnkit_embed_args args = {.size = sizeof args,
                                     .flags = e.has_padding ? ATTNKIT_PADDING_GIVEN : 0,
                                     .count = e.count,
                                     .vocab = e.vocab,
                                     .dim = e.dim,
                                     .ids = {.data = ids, .type = ATTNKIT_INT32},
                                     .table = {.data = table.data, .type = e.table},
                                     .out = {.data = out.data, .type = e.out}};
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa ? isa : "scalar"};
    if (attnkit_embed(&args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    const uint64_t hash = hash_elements(HASH_BEGIN, e.out, out.data, (size_t)elements);
    memory_unguard(&table);
    memory_unguard(&out);
    return hash;
}

static void print_embedding(const struct golden_kind *kind, int number)
{
    (void)kind;
    const struct embedding e = draw_embedding(number);
    printf("# %d of %d rows of %d, types %d %d, padding %d\n", (int)e.count, (int)e.vocab,
           (int)e.dim, e.table, e.out, e.has_padding);
}

static const struct golden_kind kinds[] = {
    {"linear", 351, 1, hash_map, print_map, NULL},
    {"linear-first-packed", CONVERSIONS, 1, hash_first_packed, print_first_map, NULL},
    {"linear-first-y", CONVERSIONS, 1, hash_first_y, print_first_map, NULL},
    {"embed", 72, 1, hash_embedding, print_embedding, NULL},
    {"linear-integers", 216, 1, hash_integers, print_integers, NULL},
};

const struct golden_kinds golden_linear = {kinds, sizeof kinds / sizeof kinds[0]};
