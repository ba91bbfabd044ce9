/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden cases of plain attention in binary32. The cases have every head_dim up to 130, and four
 * larger head_dims. The lengths lie around the borders of tiles and blocks, and one length takes
 * two chunks. The cases have all layouts of tests/cases/case.h. On every instruction set, but not
 * in the reference, each case also runs with every row next to an unmapped page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/cases/covering.h"
#include "tests/promises/golden/kind.h"

enum { CASES = 1800, DIMS = 134, LARGE_DIMS = 4 };

static const uint64_t SEED = 7;
static const double CASE_COST =
    2e5; /* cost_limit of sampled_cases, in multiply-adds; an emulator does 10^7 a second */

static const int lengths[] = {0,  1,  2,  3,  5,   7,   8,   15,  16,  17,  31,  32,
                              33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000};
static const int large_dims[LARGE_DIMS] = {192, 256, 512, 576};
static const int thread_counts[] = {1, 2, 3, 7};
static const int counting[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};

/* Returns the axes of tests/cases/case.h with the values that they had when the first hashes were
 * written. */
static struct axes old_axes(void)
{
    static int dims[DIMS];
    for (int i = 0; i < DIMS; i++)
        dims[i] = i < DIMS - LARGE_DIMS ? i + 1 : large_dims[i - (DIMS - LARGE_DIMS)];
    return (struct axes){
        .count = AXIS_SCALE + 1,
        .counts = {[AXIS_HEAD_DIM] = DIMS,
                   [AXIS_VALUE_DIM] = DIMS,
                   [AXIS_Q_LEN] = 23,
                   [AXIS_KV_LEN] = 23,
                   [AXIS_GROUP] = 8,
                   [AXIS_MASK] = 6,
                   [AXIS_LAYOUT] = 7,
                   [AXIS_THREADS] = 4,
                   [AXIS_BATCH] = 3,
                   [AXIS_KV_HEADS] = 2,
                   [AXIS_KV_LENS] = 2,
                   [AXIS_DATA] = 5,
                   [AXIS_SCALE] = 4},
        .values = {[AXIS_HEAD_DIM] = dims,
                   [AXIS_VALUE_DIM] = dims,
                   [AXIS_Q_LEN] = lengths,
                   [AXIS_KV_LEN] = lengths,
                   [AXIS_GROUP] = counting + 1,
                   [AXIS_MASK] = counting,
                   [AXIS_LAYOUT] = counting,
                   [AXIS_THREADS] = thread_counts,
                   [AXIS_BATCH] = counting + 1,
                   [AXIS_KV_HEADS] = counting + 1,
                   [AXIS_KV_LENS] = counting,
                   [AXIS_DATA] = counting,
                   [AXIS_SCALE] = counting},
    };
}

/* Returns a case. The first call of this function draws all cases, because each case is drawn to
 * have many pairs of values that no earlier case has. */
static const struct test_case *case_of(int number)
{
    static struct cases cases;
    const struct axes axes = old_axes();
    if (!cases.list)
        cases = sampled_cases(&axes, SEED, CASES, CASE_COST);
    return &cases.list[number];
}

static uint64_t hash_of(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)kind;
    const struct test_case *const c = case_of(number);
    const enum layout_kind guarded = number % 2 ? BEFORE_GUARD : AFTER_GUARD;
    struct setting s;
    setting_make(&s, c, way == 0 ? (enum layout_kind)c->value[AXIS_LAYOUT] : guarded);
    struct result r = result_new(&s.args);
    if (isa) {
        run_attention(&s.args, (struct runner){.isa = isa, .threads = 1});
        if (!setting_take_result(&s, &r))
            fail_msg("case %d: bytes outside the rows of out or lse were written", number);
    } else {
        result_from_reference(&r, &s.args);
    }
    const uint64_t hash = result_hash(&r);
    result_free(&r);
    return hash;
}

static void print(const struct golden_kind *kind, int number)
{
    (void)kind;
    case_print(case_of(number));
}

static const struct golden_kind kinds[] = {
    {"attention-f32", CASES, 2, hash_of, print, NULL},
};

const struct golden_kinds golden_f32 = {kinds, sizeof kinds / sizeof kinds[0]};
