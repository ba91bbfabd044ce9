/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden cases of RoPE's angles. Each pair of elements is (1, 0), so the rotation by an angle turns
 * the pair into the cos and the sin of this angle. The positions are 0 to 63, then numbers up to
 * 2^17, then numbers of any size below 2^63.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>

#include "attnkit.h"
#include "tests/promises/golden/hash.h"
#include "tests/promises/golden/kind.h"

static const uint64_t SEED = 18;
static const double bases[] = {10000.0, 1.0, 500000.0, 1000000.0, 10000.5};
static const int64_t pairs[] = {1, 3, 32, 40, 64, 128};

enum {
    BASES = sizeof bases / sizeof bases[0],
    PAIRS = sizeof pairs / sizeof pairs[0],
    MOST_DIM = 256,
    NEAR = 64, /* positions 0 to 63, the same for every case */
    CACHED = 200,
    FAR = 40,
    POSITIONS = NEAR + CACHED + FAR,
};

static void draw_positions(int number, int64_t *positions)
{
    uint64_t random = golden_random(SEED, number);
    for (int i = 0; i < NEAR; i++)
        positions[i] = i;
    for (int i = NEAR; i < NEAR + CACHED; i++)
        positions[i] = random_below(&random, 131073);
    for (int i = NEAR + CACHED; i < POSITIONS; i++)
        positions[i] = (int64_t)(random_bits(&random) >> (1 + i % 47));
}

static uint64_t hash_of(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)kind, (void)way;
    static float rows[POSITIONS * MOST_DIM];
    const int64_t dim = 2 * pairs[number % PAIRS];
    int64_t positions[POSITIONS];
    draw_positions(number, positions);
    for (int64_t i = 0; i < POSITIONS * dim; i++)
        rows[i] = i % 2 ? 0.0f : 1.0f;
    attnkit_rotation rotation = {.size = sizeof rotation,
                                 .kind = ATTNKIT_ROPE_INTERLEAVED,
                                 .base = bases[number / PAIRS],
                                 .positions = {.data = positions}};
    const attnkit_append_args args = {.size = sizeof args,
                                      .batch = POSITIONS,
                                      .heads = 1,
                                      .len = 1,
                                      .dim = dim,
                                      .capacity = 1,
                                      .src = {.data = rows},
                                      .dst = {.data = rows},
                                      .rotation = &rotation};
    static char workspace[32 * MOST_DIM];
    const attnkit_exec exec = {.size = sizeof exec,
                               .isa = isa ? isa : "scalar",
                               .workspace = workspace,
                               .workspace_size = sizeof workspace};
    char message[ATTNKIT_MESSAGE_SIZE];
    if (attnkit_append(&args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    return hash_floats(HASH_BEGIN, rows, (size_t)(POSITIONS * dim));
}

static void print(const struct golden_kind *kind, int number)
{
    (void)kind;
    printf("# %d pairs, base %g, %d positions\n", (int)pairs[number % PAIRS], bases[number / PAIRS],
           POSITIONS);
}

static const struct golden_kind kinds[] = {
    {"angles", BASES *PAIRS, 1, hash_of, print, NULL},
};

const struct golden_kinds golden_angles = {kinds, sizeof kinds / sizeof kinds[0]};
