/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden cases of merging. A case has no part, one part or several parts. The lse have all
 * magnitudes. Some cases have absent parts, or NaN and infinities.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnkit.h"
#include "tests/promises/golden/hash.h"
#include "tests/promises/golden/kind.h"
#include "tests/support/memory.h"

static const uint64_t SEED = 11;

enum { MOST_PARTS = 17 };

enum numbers {
    USUAL,
    APART,   /* lse so far apart that factors may be 0 */
    LARGE,   /* lse up to 2e4 in magnitude */
    EXTREME, /* zeros, the ends of the range of lse and other special lse; tiny out */
    ABSENT,  /* in each row, about half of the parts are absent */
    SPECIAL, /* NaN and infinities in out and lse */
    NUMBERS,
};

struct merge {
    uint64_t seed;
    int64_t parts, batch, heads, q_len, dim;
    enum numbers numbers;
    attnkit_type out;
};

static struct merge draw_merge(int number)
{
    static const int64_t parts[] = {0, 1, 2, 2, 3, 4, 5, 8, MOST_PARTS};
    static const int64_t dims[] = {1, 3, 4, 8, 15, 16, 17, 33, 64, 100, 128, 200, 256, 1000};
    uint64_t random = golden_random(SEED, number);
    struct merge m = {
        .parts = parts[number % 9],
        .numbers = (enum numbers)(number / 9 % NUMBERS),
        .out = (attnkit_type)(number / 5 % 3),
    };
    m.seed = random_bits(&random);
    m.batch = 1 + random_below(&random, 2);
    m.heads = 1 + random_below(&random, 3);
    m.q_len = 1 + random_below(&random, 5);
    m.dim = dims[random_below(&random, 14)];
    return m;
}

static float draw_lse(enum numbers numbers, uint64_t *random)
{
    static const float extremes[] = {
        0.0f,       -0.0f, 1e-45f,  0.6931472f, -88.0f,   1e4f,      -1.2e7f,  11629079.0f,
        8388607.0f, 1e20f, 2.3e38f, -2.3e38f,   2.36e38f, -2.36e38f, INFINITY, 3.402823e38f};
    static const float specials[] = {NAN, INFINITY, -INFINITY, 1.0f, -3.0f, 2.0f, 0.5f, 0.0f};
    const float x = random_uniform(random);
    switch (numbers) {
    case APART:
        return 110.0f * x;
    case LARGE:
        return x < 0.0f ? 1e4f + 8.0f * x : 2e4f * random_uniform(random);
    case EXTREME:
        return extremes[random_below(random, 16)];
    case ABSENT:
        return x < 0.0f ? -INFINITY : 8.0f * x;
    case SPECIAL:
        return specials[random_below(random, 8)];
    default:
        return 8.0f * x;
    }
}

static float draw_out(enum numbers numbers, uint64_t *random)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, 3.4e38f};
    const float x = random_uniform(random);
    if (numbers == SPECIAL && random_below(random, 40) == 0)
        return specials[random_below(random, 7)];
    return numbers == EXTREME ? 0x1p-130f * x : x;
}

/* Draws lse and out of the rows of a part. out is NaN in rows where the part is absent. */
static void fill_part(const struct merge *m, int64_t rows, float *out, float *lse, uint64_t *random)
{
    for (int64_t r = 0; r < rows; r++) {
        lse[r] = draw_lse(m->numbers, random);
        for (int64_t c = 0; c < m->dim; c++)
            out[r * m->dim + c] = lse[r] == -INFINITY ? NAN : draw_out(m->numbers, random);
    }
}

/* The rows of out and of lse. The memory of each of the two tensors lies between unmapped pages. */
struct rows {
    struct guarded out, lse;
};

static struct rows take_rows(const struct merge *m, attnkit_type type)
{
    const int64_t rows = m->batch * m->heads * m->q_len;
    const int64_t element = type == ATTNKIT_F32 ? 4 : 2;
    return (struct rows){memory_guarded((size_t)(rows * m->dim * element), 0, true),
                         memory_guarded((size_t)rows * sizeof(float), 0, true)};
}

static void free_rows(struct rows *r)
{
    memory_unguard(&r->out);
    memory_unguard(&r->lse);
}

static void run_merge(const struct merge *m, const float *const *outs, const float *const *lses,
                      const struct rows *result, const char *isa)
{
    const attnkit_merge_args args = {
        .size = sizeof args,
        .parts = m->parts,
        .batch = m->batch,
        .q_heads = m->heads,
        .q_len = m->q_len,
        .value_dim = m->dim,
        .part_outs = m->parts ? outs : NULL,
        .part_lses = m->parts ? lses : NULL,
        .out = {.data = result->out.data, .type = m->out},
        .lse = {.data = result->lse.data},
    };
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    char message[ATTNKIT_MESSAGE_SIZE];
    if (attnkit_merge(&args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
}

static uint64_t hash_of(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)kind;
    (void)way;
    const struct merge m = draw_merge(number);
    const int64_t rows = m.batch * m.heads * m.q_len;
    struct rows parts[MOST_PARTS], result = take_rows(&m, m.out);
    const float *outs[MOST_PARTS], *lses[MOST_PARTS];
    uint64_t random = m.seed;
    for (int64_t i = 0; i < m.parts; i++) {
        parts[i] = take_rows(&m, ATTNKIT_F32);
        fill_part(&m, rows, (float *)parts[i].out.data, (float *)parts[i].lse.data, &random);
        outs[i] = (const float *)parts[i].out.data;
        lses[i] = (const float *)parts[i].lse.data;
    }
    run_merge(&m, outs, lses, &result, isa ? isa : "scalar");
    uint64_t hash = hash_elements(HASH_BEGIN, m.out, result.out.data, (size_t)(rows * m.dim));
    hash = hash_floats(hash, (const float *)result.lse.data, (size_t)rows);
    for (int64_t i = 0; i < m.parts; i++)
        free_rows(&parts[i]);
    free_rows(&result);
    return hash;
}

static void print(const struct golden_kind *kind, int number)
{
    (void)kind;
    const struct merge m = draw_merge(number);
    printf("# %d parts, B%d H%d, %d x %d, numbers %d, type %d\n", (int)m.parts, (int)m.batch,
           (int)m.heads, (int)m.q_len, (int)m.dim, m.numbers, m.out);
}

static const struct golden_kind kinds[] = {
    {"merge", 300, 1, hash_of, print, NULL},
};

const struct golden_kinds golden_merge = {kinds, sizeof kinds / sizeof kinds[0]};
