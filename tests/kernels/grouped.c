/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls with ATTNKIT_BF16_PRODUCTS, half of them with ATTNKIT_SHORT_WEIGHTS. Each call is drawn
 * from the number of its case (drawn.h). On each instruction set and with each unit, out and lse
 * must have the bits of the scalar reference, with one thread and with several. Some calls are
 * repeated in a different rounding mode of the caller, which must change no bit. Every third call
 * is also compared with the oracle if it has no cells: each element of the reference's results must
 * be inside the bound that tests/oracle/oracle.c derives. An element of out is left out if its
 * column of V is so large that the weighted sum may overflow (LARGEST_MEAN). Strange numbers are
 * infinities, NaN and numbers that count as 0. Calls with strange numbers are compared with the
 * reference and with the oracle. Scores are also compared with C functions that imitate the
 * instructions for bf16 (tests/units/models.h). If a program has to enable a unit, the library
 * tries the unit's tiles before it uses the unit (dispatch/cpu/probe_groups.c). The tests check
 * that this trial finds a single wrong bit.
 *
 *   grouped [--isa NAME [--every N]]
 *
 * With --every N, the tests run a sample: every Nth case.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/cpu/probe.h"
#include "kernels/scalar/reference.h"
#include "kernels/scalar/scalar.h"
#include "tests/cases/case.h"
#include "tests/cases/drawn.h"
#include "tests/oracle/oracle.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"
#include "tests/support/units.h"
#include "tests/units/models.h"

enum { CASES = 600, LONGER = 10, BOUND_EVERY = 3, MOST_NAMES = 12 };

/* The tests leave out every case whose number is not a multiple of this number. */
static int every = 1;

/* The names of the instruction sets and units that are tested. */
static const char *names[MOST_NAMES];
static int name_count;

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

static void attend(const attnkit_attention_args *args, const char *isa, int threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .threads = threads, .parallel_for = backwards};
    if (attnkit_attention_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    struct guarded workspace = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = workspace.data;
    if (attnkit_attention(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    memory_unguard(&workspace);
}

struct expected {
    char *out;
    float *lse;
};

static struct expected expect(const struct drawn *c)
{
    struct attention a;
    const struct expected e = {malloc(c->out_bytes + 1), malloc(c->lse_bytes + 1)};
    assert_int_equal(attnkit_attention_problem(&c->args, &a, NULL), ATTNKIT_OK);
    a.out = e.out;
    a.lse = (char *)e.lse;
    if (c->lse_bytes > 0)
        attnkit_reference(&a);
    return e;
}

static void check(int number, const struct drawn *c, const char *isa, int threads,
                  const struct expected *e)
{
    drawn_clear(c);
    attend(&c->args, isa, threads);
    const bool is_right = same_bits(e->lse, c->lse, c->lse_bytes / sizeof(float)) &&
                          memcmp(e->out, c->out, c->out_bytes) == 0;
    if (is_right)
        return;
    drawn_print_call(c);
    fail_msg("case %d: %s with %d threads differs", number, isa, threads);
}

static void calls_have_the_bits_of_the_reference(void **state)
{
    (void)state;
    for (int number = 0; number < CASES * (is_long_run() ? LONGER : 1); number += every) {
        struct drawn *const c = drawn_with_bf16_products(number);
        const struct expected e = expect(c);
        for (int i = 0; i < name_count; i++) {
            check(number, c, names[i], 1, &e);
            if (c->threads > 1)
                check(number, c, names[i], c->threads, &e);
        }
        free(e.out);
        free(e.lse);
        drawn_free(c);
    }
}

static void rounding_modes_of_the_caller_change_no_bit(void **state)
{
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    (void)state;
    for (int number = 0; number < CASES / 4; number += every) {
        struct drawn *const c = drawn_with_bf16_products(number);
        const struct expected e = expect(c);
        for (int i = 0; i < name_count; i++) {
            assert_int_equal(fesetround(modes[number % 3]), 0);
            drawn_clear(c);
            attend(&c->args, names[i], 1);
            assert_int_equal(fegetround(), modes[number % 3]);
            assert_int_equal(fesetround(FE_TONEAREST), 0);
            assert_true(same_bits(e.lse, c->lse, c->lse_bytes / sizeof(float)));
            assert_memory_equal(e.out, c->out, c->out_bytes);
        }
        free(e.out);
        free(e.lse);
        drawn_free(c);
    }
}

/* --- The bound -------------------------------------------------------------------------------- */

/* The results that have been compared with the oracle so far: the largest error / bound of each
 * kind of result, and the numbers of elements. Results of 16 bits are a kind of their own, because
 * their last rounding uses up nearly all of the bound. `not_finite` counts elements whose true
 * value is NaN or infinite. `unbounded` counts elements with a finite true value and an infinite
 * bound. */
struct judged {
    double out, out_of_16_bits, lse;
    long long elements, unbounded, not_finite;
};

static double judge(struct judged *j, const struct oracle_element *truth, attnkit_type type,
                    float result)
{
    j->elements++;
    j->not_finite += !isfinite(truth->value);
    j->unbounded += isfinite(truth->value) && isinf(truth->bound);
    return oracle_judge(truth, type, (double)result);
}

/* judge_row judges an element of out only if its weighted mean of |v|, sum_j w_j |v_j|, is below
 * this limit. With a larger mean, the weighted sum of a chunk may overflow. */
static const double LARGEST_MEAN = 0x1p117;

static void judge_row(const struct drawn *c, const struct expected *e, const int64_t index[3],
                      struct judged *j)
{
    const attnkit_attention_args *const a = &c->args;
    const bool packed = c->groups.storage.cu_seqlens_q.data;
    const int64_t outer = packed ? 0 : index[0], first = packed ? c->cu_seqlens_q[index[0]] : 0;
    const int64_t line = (outer * a->q_heads + index[1]) * a->q_len + first + index[2];
    const enum type type = (enum type)a->out.type;
    struct oracle_element *const out = malloc((size_t)a->value_dim * sizeof *out);
    float *const got = malloc((size_t)a->value_dim * sizeof *got);
    const struct oracle_row row = oracle_row(a, index[0], index[1], index[2], out, NULL);
    const struct oracle_element lse = {.value = row.lse, .bound = row.lse_bound};
    attnkit_scalar_widen(type, e->out + bytes_of(type, line * a->value_dim), NULL, 0, a->value_dim,
                         got);
    double *const worst = type == TYPE_F32 ? &j->out : &j->out_of_16_bits;
    for (int64_t i = 0; i < a->value_dim; i++)
        if (out[i].magnitude < LARGEST_MEAN)
            *worst = fmax(*worst, judge(j, &out[i], a->out.type, got[i]));
    j->lse = fmax(j->lse, judge(j, &lse, ATTNKIT_F32, e->lse[line]));
    free(got);
    free(out);
}

static void judge_call(const struct drawn *c, struct judged *j)
{
    const attnkit_attention_args *const a = &c->args;
    const struct expected e = expect(c);
    for (int64_t b = 0; b < a->batch; b++) {
        const bool packed = c->groups.storage.cu_seqlens_q.data;
        const int64_t rows = packed ? c->cu_seqlens_q[b + 1] - c->cu_seqlens_q[b] : a->q_len;
        for (int64_t h = 0; h < a->q_heads; h++)
            for (int64_t i = 0; i < rows; i++)
                judge_row(c, &e, (const int64_t[3]){b, h, i}, j);
    }
    free(e.out);
    free(e.lse);
}

static void reference_is_inside_the_bound(void **state)
{
    (void)state;
    struct judged j = {0};
    for (int number = 0; number < CASES * (is_long_run() ? LONGER : 1);
         number += BOUND_EVERY * every) {
        struct drawn *const c = drawn_with_bf16_products(number);
        if (!c->groups.storage.key_index.data) /* the oracle does not support cells */
            judge_call(c, &j);
        const double worst = fmax(fmax(j.out, j.out_of_16_bits), j.lse);
        if (worst > 1.0) {
            drawn_print_call(c);
            fail_msg("case %d: error / bound %.4g", number, worst);
        }
        drawn_free(c);
    }
    printf(
        "# worst error / bound: %.3f of out, %.3f of out in 16 bits, %.3f of lse; %lld elements, "
        "of which %lld are NaN or infinite, %lld have no bound\n",
        j.out, j.out_of_16_bits, j.lse, j.elements, j.not_finite, j.unbounded);
    /* In a sample, more than 1 % of the elements may have no bound. */
    assert_true(j.not_finite > 0 && (every > 1 || j.unbounded <= j.elements / 100));
}

/* --- Strange numbers -------------------------------------------------------------------------- */

enum { STRANGE = 600, STRANGE_DIM = 70, STRANGE_KEYS = 300, STRANGE_ROWS = 5 };

/* A call of one head. */
struct strange {
    attnkit_attention_args args;
    uint16_t q[STRANGE_ROWS * STRANGE_DIM];
    uint16_t k[STRANGE_KEYS * STRANGE_DIM], v[STRANGE_KEYS * STRANGE_DIM];
    float out[STRANGE_ROWS * STRANGE_DIM], lse[STRANGE_ROWS];
};

/* Draws rows of numbers, with a magnitude that is drawn for each row. Some magnitudes are around
 * 2^-56, below which a number counts as 0. One magnitude makes most numbers subnormal. */
static void draw_numbers(uint16_t *numbers, int64_t rows, int64_t dim, uint64_t *random)
{
    static const float sizes[] = {1.0f,     1e-3f,    10.0f,     0x1p-55f,
                                  0x1p-56f, 0x1p-57f, 0x1p-130f, 1.0f};
    for (int64_t i = 0; i < rows; i++) {
        const float size = sizes[random_below(random, 8)];
        for (int64_t d = 0; d < dim; d++)
            numbers[i * dim + d] = bf16_from_float(size * random_normal(random));
    }
}

/* Makes up to two numbers infinite or NaN. */
static void draw_not_finite(uint16_t *numbers, int64_t count, uint64_t *random)
{
    static const uint16_t not_finite[] = {0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff};
    for (int64_t i = random_below(random, 5); i < 2; i++)
        numbers[random_below(random, count)] = not_finite[random_below(random, 5)];
}

static struct strange *new_strange(int number)
{
    static const double scales[] = {1.0, 0.02, -1.0, 8.0, 0x1p100, 0x1p-20};
    uint64_t random = (uint64_t)number * 7919;
    struct strange *const s = calloc(1, sizeof *s);
    const int64_t dim = 1 + random_below(&random, STRANGE_DIM);
    const int64_t keys = 1 + random_below(&random, random_below(&random, 2) ? 4 : STRANGE_KEYS);
    s->args = (attnkit_attention_args){
        .size = sizeof s->args,
        .flags = ATTNKIT_BF16_PRODUCTS | ATTNKIT_SCALE_GIVEN |
                 (number % 2 ? ATTNKIT_SHORT_WEIGHTS : 0) | (number % 3 ? ATTNKIT_CAUSAL : 0),
        .align = number % 3 ? ATTNKIT_ALIGN_BOTTOM_RIGHT : ATTNKIT_ALIGN_NONE,
        .scale = scales[random_below(&random, 6)],
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = STRANGE_ROWS,
        .kv_len = keys,
        .head_dim = dim,
        .value_dim = dim,
        .q = {.data = s->q, .type = ATTNKIT_BF16},
        .k = {.data = s->k, .type = ATTNKIT_BF16},
        .v = {.data = s->v, .type = ATTNKIT_BF16},
        .out = {.data = s->out},
        .lse = {.data = s->lse},
    };
    draw_numbers(s->q, STRANGE_ROWS, dim, &random);
    draw_numbers(s->k, keys, dim, &random);
    draw_numbers(s->v, keys, dim, &random);
    if (random_below(&random, 10) == 0)
        draw_not_finite(s->q, STRANGE_ROWS * dim, &random);
    draw_not_finite(s->k, keys * dim, &random);
    draw_not_finite(s->v, keys * dim, &random);
    return s;
}

static void check_strange(int number, struct strange *s, struct judged *j)
{
    const int64_t dim = s->args.value_dim;
    float out[STRANGE_ROWS * STRANGE_DIM], lse[STRANGE_ROWS];
    struct oracle_element truth[STRANGE_DIM];
    struct attention a;
    assert_int_equal(attnkit_attention_problem(&s->args, &a, NULL), ATTNKIT_OK);
    a.out = (char *)out;
    a.lse = (char *)lse;
    attnkit_reference(&a);
    for (int64_t i = 0; i < STRANGE_ROWS; i++) {
        const struct oracle_row row = oracle_row(&s->args, 0, 0, i, truth, NULL);
        const struct oracle_element true_lse = {.value = row.lse, .bound = row.lse_bound};
        for (int64_t c = 0; c < dim; c++)
            j->out = fmax(j->out, judge(j, &truth[c], ATTNKIT_F32, out[i * dim + c]));
        j->lse = fmax(j->lse, judge(j, &true_lse, ATTNKIT_F32, lse[i]));
    }
    if (j->out > 1.0 || j->lse > 1.0)
        fail_msg("case %d: error / bound %.4g of out, %.4g of lse", number, j->out, j->lse);
    for (int i = 0; i < name_count; i++) {
        memset(s->out, 1, sizeof s->out);
        memset(s->lse, 1, sizeof s->lse);
        attend(&s->args, names[i], 1);
        if (!same_bits(out, s->out, (size_t)(STRANGE_ROWS * dim)) ||
            !same_bits(lse, s->lse, STRANGE_ROWS))
            fail_msg("case %d: %s differs", number, names[i]);
    }
}

static void strange_numbers_have_the_bits_of_the_reference_and_are_inside_the_bound(void **state)
{
    (void)state;
    struct judged j = {0};
    for (int number = 0; number < STRANGE * (is_long_run() ? LONGER : 1); number += every) {
        struct strange *const s = new_strange(number);
        check_strange(number, s, &j);
        free(s);
    }
    printf(
        "# worst error / bound: %.3f of out, %.3f of lse; %lld elements, of which %lld are NaN or "
        "infinite, %lld have no bound\n",
        j.out, j.lse, j.elements, j.not_finite, j.unbounded);
    assert_true(j.not_finite > 0 && j.not_finite < j.elements * 3 / 4);
}

/* --- Models of the instructions --------------------------------------------------------------- */

enum { MODEL_DIM = 128 };

/* Returns two elements of a row in 32 bits, as the C functions that imitate instructions take
 * them. */
static uint32_t factor_of(const uint16_t *row, int low, int high)
{
    return row[low] | (uint32_t)row[high] << 16;
}

/* Returns the dot product of q and k as AMX computes it, with a TDPBF16PS for each group. */
static float product_by_amx(const uint16_t *q, const uint16_t *k)
{
    uint32_t acc[TILE_ROWS * TILE_WORDS] = {0};
    for (int d = 0; d < MODEL_DIM; d += GROUP_PRODUCTS) {
        uint32_t a[TILE_ROWS * TILE_WORDS] = {0}, b[TILE_ROWS * TILE_WORDS] = {0};
        for (int i = 0; i < GROUP_PRODUCTS / 2; i++) {
            a[i] = factor_of(q + d, 2 * i, 2 * i + 1);
            b[i * TILE_WORDS] = factor_of(k + d, 2 * i, 2 * i + 1);
        }
        model_tdpbf16ps(acc, a, b);
    }
    return float_from_bits(acc[0]);
}

/* Returns the dot product of q and k as VDPBF16PS computes it. Of each four elements of q and k,
 * one instruction takes elements 0 and 2, and another instruction takes elements 1 and 3. */
static float product_by_vdpbf16ps(const uint16_t *q, const uint16_t *k)
{
    float sum = 0.0f;
    for (int d = 0; d < MODEL_DIM; d += GROUP_PRODUCTS) {
        uint32_t half[2] = {0, 0};
        for (int i = d; i < d + GROUP_PRODUCTS; i += QUAD_ELEMENTS)
            for (int odd = 0; odd < 2; odd++)
                half[odd] = model_vdpbf16ps(half[odd], factor_of(q + i, odd + 2, odd),
                                            factor_of(k + i, odd + 2, odd));
        sum += float_from_bits(half[0]) + float_from_bits(half[1]);
    }
    return sum;
}

/* Returns the dot product of q and k as the tiles of an instruction set compute it, in a panel of
 * rows or in a single row. */
static float product_by_tile(const char *isa, bool is_panel, const uint16_t *q, const uint16_t *k)
{
    _Alignas(64) float words[MAX_LANES * MODEL_DIM], s[MAX_LANES];
    float q_words[MODEL_DIM], k_words[MODEL_DIM];
    struct isa_choice choice;
    assert_int_equal(attnkit_isa_pick(isa, &choice, NULL), ATTNKIT_OK);
    const struct kernels *const kernels = choice.kernels;
    const struct grouped_kernels *const g = kernels->grouped;
    const struct rows rows = {(const char *)k_words, sizeof k_words, MODEL_DIM / g->elements};
    const int lanes = is_panel ? kernels->lanes : kernels->vector;
    g->pack_row(q, MODEL_DIM, q_words);
    g->pack_row(k, MODEL_DIM, k_words);
    for (int w = 0; w < MODEL_DIM / g->elements; w++)
        for (int lane = 0; lane < lanes; lane++)
            words[w * lanes + lane] = q_words[w];
    if (g->begin)
        g->begin();
    g->scores(words, lanes, is_panel ? lanes : 1, &rows, 1, NULL, s);
    if (g->end)
        g->end();
    return s[0];
}

static void scores_have_the_bits_of_the_models(void **state)
{
    (void)state;
    uint64_t random = 20261126;
    for (int number = 0; number < 2000; number += every) {
        uint16_t q[MODEL_DIM], k[MODEL_DIM];
        for (int d = 0; d < MODEL_DIM; d++) {
            q[d] = bf16_from_float(random_normal(&random));
            k[d] = bf16_from_float(random_normal(&random));
        }
        const float product = product_by_amx(q, k);
        assert_true(same_bits(&product, (const float[]){product_by_vdpbf16ps(q, k)}, 1));
        for (int i = 0; i < 2 * name_count; i++)
            assert_true(same_bits(&product,
                                  (const float[]){product_by_tile(names[i / 2], i % 2, q, k)}, 1));
    }
}

/* --- The tiles of a panel --------------------------------------------------------------------- */

enum { TILE_DIM = 100, TILE_BLOCKS = 2 };

/* Inputs of the tiles: a panel of query rows, and blocks of keys. */
struct tile_inputs {
    int lanes, keys, dim, value_dim;
    bool is_short, is_masked;
    float scale_log2;
    int32_t visible[MAX_LANES];
    uint16_t q[MAX_LANES][TILE_DIM];
    uint16_t k[TILE_BLOCKS][KEY_BLOCK][TILE_DIM], v[TILE_BLOCKS][KEY_BLOCK][TILE_DIM];
};

/* What the tiles compute: t and its maxima in the last block, and the state after all blocks. */
struct tile_results {
    _Alignas(MAX_VECTOR * sizeof(float)) float t[KEY_BLOCK * MAX_LANES], maxima[MAX_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float max[MAX_LANES], sum[MAX_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float o[TILE_DIM * MAX_LANES];
};

static void fill_with_bf16(uint64_t *random, uint16_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = bf16_from_float(random_normal(random));
}

/* Draws inputs. A tile of AMX has up to 32 lanes and 32 keys or columns, so half of the panels are
 * large. In half of the panels, some keys have a NaN: maxima must leave it out. */
static void draw_inputs(uint64_t *random, const struct kernels *kernels, struct tile_inputs *in)
{
    const bool is_large = random_below(random, 2);
    const int vectors = kernels->lanes / kernels->vector;
    in->lanes = kernels->vector * (is_large ? vectors : 1 + (int)random_below(random, vectors));
    in->keys = is_large ? KEY_BLOCK - (int)random_below(random, 40)
                        : 1 + (int)random_below(random, KEY_BLOCK);
    in->dim = 1 + (int)random_below(random, TILE_DIM);
    in->value_dim = is_large ? 64 + (int)random_below(random, TILE_DIM - 63)
                             : 1 + (int)random_below(random, TILE_DIM);
    in->is_short = random_below(random, 2);
    in->is_masked = random_below(random, 3) == 0;
    in->scale_log2 = 0.1f * random_normal(random);
    for (int lane = 0; lane < in->lanes; lane++)
        in->visible[lane] = (int32_t)random_below(random, in->keys + 1);
    fill_with_bf16(random, in->q[0], sizeof in->q / sizeof(uint16_t));
    fill_with_bf16(random, in->k[0][0], sizeof in->k / sizeof(uint16_t));
    fill_with_bf16(random, in->v[0][0], sizeof in->v / sizeof(uint16_t));
    for (int i = random_below(random, 2) ? 3 : 0; i > 0; i--)
        in->k[random_below(random, TILE_BLOCKS)][random_below(random, KEY_BLOCK)][0] = 0x7fc0;
}

static void score_block(const struct grouped_kernels *g, const struct tile_inputs *in, int block,
                        bool scales_later, struct tile_results *r)
{
    _Alignas(MAX_VECTOR * sizeof(float)) static float q_t[TILE_DIM * MAX_LANES];
    static float words[KEY_BLOCK * TILE_DIM];
    const int count = (int)whole_quads(in->dim) / g->elements;
    const struct rows k = {(const char *)words, count * (ptrdiff_t)sizeof(float), count};
    const struct scaling scaling = {in->scale_log2, in->is_masked ? in->visible : NULL, r->maxima};
    for (int lane = 0; lane < in->lanes; lane++) {
        g->pack_row(in->q[lane], in->dim, words);
        for (int i = 0; i < count; i++)
            q_t[i * in->lanes + lane] = words[i];
    }
    for (int key = 0; key < in->keys; key++)
        g->pack_row(in->k[block][key], in->dim, words + key * count);
    g->scores(q_t, in->lanes, in->lanes, &k, in->keys, scales_later ? NULL : &scaling, r->t);
    if (scales_later)
        g->scale(r->t, in->lanes, in->keys, &scaling);
}

static void weigh_block(const struct grouped_kernels *g, const struct tile_inputs *in, int block,
                        struct tile_results *r)
{
    _Alignas(MAX_VECTOR * sizeof(float)) static float t[KEY_BLOCK * MAX_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) static float parts[2 * KEY_BLOCK * MAX_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float rescale[MAX_LANES], largest[MAX_LANES];
    static float words[KEY_BLOCK * TILE_DIM];
    const struct rows v = {(const char *)words, in->value_dim * (ptrdiff_t)sizeof(float),
                           in->value_dim};
    const struct state st = {r->max, r->sum, r->o};
    const int end = (int)whole_quads(in->keys);
    for (int key = 0; key < end; key += GROUP_PRODUCTS) {
        const void *row[GROUP_PRODUCTS];
        const int rows = end - key < GROUP_PRODUCTS ? end - key : GROUP_PRODUCTS;
        for (int i = 0; i < rows; i++)
            row[i] = key + i < in->keys ? in->v[block][key + i] : NULL;
        g->pack_group(row, rows, in->value_dim, words + key / g->elements * in->value_dim);
    }
    memcpy(t, r->t, (size_t)(in->keys * in->lanes) * sizeof *t);
    g->softmax(t, in->lanes, in->keys, r->maxima, &st, in->is_short, rescale,
               &(struct weight_parts){largest, parts});
    g->weighted_v(parts, in->lanes, in->lanes, largest, block > 0 ? rescale : NULL, &v, in->keys,
                  in->is_short, r->o);
}

static void run_tiles(const struct grouped_kernels *g, const struct tile_inputs *in,
                      bool scales_later, struct tile_results *r)
{
    for (int lane = 0; lane < in->lanes; lane++) {
        r->max[lane] = -INFINITY;
        r->sum[lane] = 0.0f;
    }
    if (g->begin)
        g->begin();
    for (int block = 0; block < TILE_BLOCKS; block++) {
        score_block(g, in, block, scales_later, r);
        weigh_block(g, in, block, r);
    }
    if (g->end)
        g->end();
}

/* Large panels fill all tile registers of AMX, so that the sums of one rectangle are finished while
 * the next rectangle is computed. */
static void tiles_have_the_bits_of_the_scalar_tiles(void **state)
{
    static struct tile_inputs in;
    static struct tile_results r, own;
    (void)state;
    uint64_t random = 20261130;
    for (int number = 0; number < 30 * name_count; number++) {
        struct isa_choice choice;
        assert_int_equal(attnkit_isa_pick(names[number % name_count], &choice, NULL), ATTNKIT_OK);
        draw_inputs(&random, choice.kernels, &in);
        run_tiles(&attnkit_scalar_grouped, &in, false, &r);
        run_tiles(choice.kernels->grouped, &in, random_below(&random, 2), &own);
        const size_t lanes = (size_t)in.lanes;
        assert_true(same_numbers(own.t, r.t, (size_t)in.keys * lanes));
        assert_true(same_bits(own.maxima, r.maxima, lanes));
        assert_true(same_bits(own.max, r.max, lanes));
        assert_true(same_numbers(own.sum, r.sum, lanes));
        assert_true(same_numbers(own.o, r.o, (size_t)in.value_dim * lanes));
    }
}

/* --- The largest weight ----------------------------------------------------------------------- */

/* What `softmax` of struct grouped_kernels computes for each lane, and in `o` the weighted sum of a
 * column of V that holds 1, 2, 3, ... */
struct weighed {
    _Alignas(MAX_VECTOR * sizeof(float)) float o[MAX_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float max[MAX_LANES], sum[MAX_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float rescale[MAX_LANES], largest[MAX_LANES];
};

static void weigh_column(const struct grouped_kernels *g, int lanes, int keys, bool is_short,
                         const struct weight_parts *parts, float *o)
{
    uint16_t column[GROUP_PRODUCTS];
    const void *rows[GROUP_PRODUCTS];
    float words[GROUP_PRODUCTS * MAX_VECTOR] = {0.0f};
    for (int i = 0; i < GROUP_PRODUCTS; i++) {
        column[i] = bf16_from_float((float)(i + 1));
        rows[i] = i < keys ? &column[i] : NULL;
    }
    g->pack_group(rows, (int)whole_quads(keys), 1, words);
    if (g->begin)
        g->begin();
    g->weighted_v(parts->words, lanes, lanes, parts->largest, NULL,
                  &(struct rows){(const char *)words, sizeof(float), 1}, keys, is_short, o);
    if (g->end)
        g->end();
}

/* Computes a struct weighed with the same scores in each lane. */
static void weigh(const struct kernels *kernels, bool is_short, const float *scores, int keys,
                  struct weighed *of)
{
    _Alignas(MAX_VECTOR * sizeof(float)) static float s[KEY_BLOCK * MAX_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) static float words[2 * KEY_BLOCK * MAX_LANES];
    const int lanes = kernels->lanes;
    const struct state st = {of->max, of->sum, NULL};
    const struct weight_parts to = {of->largest, words};
    for (int lane = 0; lane < lanes; lane++) {
        of->max[lane] = -INFINITY;
        of->sum[lane] = 0.0f;
        for (int key = 0; key < keys; key++)
            s[key * lanes + lane] = scores[key];
    }
    kernels->grouped->scale(s, lanes, keys, &(struct scaling){1.0f, NULL, of->largest});
    kernels->grouped->softmax(s, lanes, keys, of->largest, &st, is_short, of->rescale, &to);
    weigh_column(kernels->grouped, lanes, keys, is_short, &to, of->o);
}

/* exp2 rounds several times, so it does not always grow with its argument: a score may have a
 * larger weight than the next larger score. This happens for some 80,000 of a billion scores. */
static void the_largest_weight_may_be_of_another_score_than_the_largest(void **state)
{
    (void)state;
    const float smaller = -0x1.914b18p-10f, larger = nextafterf(smaller, 0.0f);
    const float scores[] = {-3.0f, larger, smaller, larger, -50.0f};
    struct weighed of_larger, right_one, own;
    for (int i = 0; i < 2 * name_count; i++) {
        struct isa_choice choice;
        assert_int_equal(attnkit_isa_pick(names[i / 2], &choice, NULL), ATTNKIT_OK);
        const bool is_short = i % 2;
        weigh(&attnkit_scalar, is_short, &larger, 1, &of_larger);
        weigh(&attnkit_scalar, is_short, scores, 5, &right_one);
        assert_true(right_one.largest[0] > of_larger.largest[0]);
        weigh(choice.kernels, is_short, scores, 5, &own);
        for (int lane = 0; lane < choice.kernels->lanes; lane++) {
            assert_true(same_bits(&own.largest[lane], right_one.largest, 1));
            assert_true(same_bits(&own.sum[lane], right_one.sum, 1));
            assert_true(same_bits(&own.max[lane], right_one.max, 1));
            assert_true(same_bits(&own.rescale[lane], right_one.rescale, 1));
            assert_true(same_bits(&own.o[lane], right_one.o, 1));
        }
    }
}

/* --- The trial of a unit's tiles -------------------------------------------------------------- */

enum { LEAST_LANES = 16 }; /* kernels whose panels have fewer lanes are left out */

static const struct grouped_kernels *right; /* the functions below change results of these tiles */

static void flip_last_bit(float *x)
{
    *x = float_from_bits(bits_from_float(*x) ^ 1);
}

static void wrong_scores(const float *q_t, int lanes, int rows, const struct rows *k, int keys,
                         const struct scaling *scaling, float *s)
{
    right->scores(q_t, lanes, rows, k, keys, scaling, s);
    flip_last_bit(&s[keys * lanes - 1]);
}

static void wrong_weighted_v(const float *parts, int lanes, int rows, const float *largest,
                             const float *rescale, const struct rows *v, int keys, bool is_short,
                             float *o)
{
    right->weighted_v(parts, lanes, rows, largest, rescale, v, keys, is_short, o);
    flip_last_bit(&o[v->dim * lanes - 1]);
}

static void wrong_maxima(const float *q_t, int lanes, int rows, const struct rows *k, int keys,
                         const struct scaling *scaling, float *s)
{
    right->scores(q_t, lanes, rows, k, keys, scaling, s);
    if (scaling)
        flip_last_bit(&scaling->maxima[lanes - 1]);
}

static void wrong_scale(float *s, int lanes, int keys, const struct scaling *scaling)
{
    right->scale(s, lanes, keys, scaling);
    flip_last_bit(&s[keys * lanes - 1]);
}

static void wrong_softmax(float *t, int lanes, int keys, const float *maxima,
                          const struct state *st, bool is_short, float *rescale,
                          const struct weight_parts *to)
{
    right->softmax(t, lanes, keys, maxima, st, is_short, rescale, to);
    flip_last_bit(&st->row_sum[lanes - 1]);
}

static void the_trial_finds_a_single_wrong_bit(void **state)
{
    (void)state;
    for (int i = 0; i < name_count; i++) {
        struct isa_choice choice;
        assert_int_equal(attnkit_isa_pick(names[i], &choice, NULL), ATTNKIT_OK);
        const int lanes = choice.kernels->lanes;
        if (lanes < LEAST_LANES)
            continue;
        right = choice.kernels->grouped;
        struct grouped_kernels wrong[] = {*right, *right, *right, *right, *right};
        wrong[0].scores = wrong_scores;
        wrong[1].scores = wrong_maxima;
        wrong[2].scale = wrong_scale;
        wrong[3].softmax = wrong_softmax;
        wrong[4].weighted_v = wrong_weighted_v;
        assert_true(attnkit_groups_keep_bits(right, lanes));
        for (int w = 0; w < 5; w++)
            assert_false(attnkit_groups_keep_bits(&wrong[w], lanes));
    }
}

/* --- The program ------------------------------------------------------------------------------ */

/* Adds `name` to `names` if its kernels run here, and the user asked for this name or for all
 * names. */
static void add_name(const char *name, bool runs, const char *wanted)
{
    if (runs && (!wanted || strcmp(wanted, name) == 0))
        names[name_count++] = name;
}

static void find_names(const char *wanted)
{
    const struct isa *isas;
    const struct unit *units;
    const int isa_count = attnkit_isas(&isas), unit_count = attnkit_units(&units);
    for (int i = 0; i < isa_count; i++)
        add_name(name_without_units(i), attnkit_isa_can_run(&isas[i]), wanted);
    for (int i = 0; i < unit_count; i++)
        add_name(units[i].name, attnkit_unit_can_run(&units[i]), wanted);
}

int main(int argc, char **argv)
{
    enable_units();
    find_names(argc > 2 && strcmp(argv[1], "--isa") == 0 ? argv[2] : NULL);
    if (argc == 5 && strcmp(argv[3], "--every") == 0)
        every = atoi(argv[4]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_have_the_bits_of_the_reference),
        cmocka_unit_test(rounding_modes_of_the_caller_change_no_bit),
        cmocka_unit_test(reference_is_inside_the_bound),
        cmocka_unit_test(strange_numbers_have_the_bits_of_the_reference_and_are_inside_the_bound),
        cmocka_unit_test(scores_have_the_bits_of_the_models),
        cmocka_unit_test(tiles_have_the_bits_of_the_scalar_tiles),
        cmocka_unit_test(the_largest_weight_may_be_of_another_score_than_the_largest),
        cmocka_unit_test(the_trial_finds_a_single_wrong_bit),
    };
    if (name_count == 0) {
        printf("1..0 # SKIP %s cannot run here\n", argv[2]);
        return 0;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    memory_end();
    return failed;
}
