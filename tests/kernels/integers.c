/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls with ATTNKIT_INTEGERS. Each call is drawn from the number of its case (drawn.h). On each
 * instruction set and with each unit, out and lse must have the bits of the scalar reference, with
 * one thread and with several. Some calls are repeated in a different rounding mode of the caller,
 * which must change no bit. Every third call is also compared with the oracle if it has no cells
 * and V is not huge. Each element of the reference's results must then be inside the bound that
 * tests/oracle/oracle.c derives. Calls with strange numbers are compared with the reference and
 * with the oracle. In these calls, scales may be NaN, infinite, 0 or negative, and groups of q may
 * be so small that they become 0.
 *
 * Each unit's instructions for integers are also compared with C functions that imitate them
 * (tests/units/models.h). Before the library uses a unit for products of signed bytes, it tries the
 * instructions (dispatch/cpu/probe.h). The tests check that this trial notices wrong instructions.
 *
 *   integers [--isa NAME]
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
#include "kernels/integers.h"
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
    for (int number = 0; number < CASES * (is_long_run() ? LONGER : 1); number++) {
        struct drawn *const c = drawn_with_integers(number);
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
    for (int number = 0; number < CASES / 4; number++) {
        struct drawn *const c = drawn_with_integers(number);
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
    for (int number = 0; number < CASES * (is_long_run() ? LONGER : 1); number += BOUND_EVERY) {
        struct drawn *const c = drawn_with_integers(number);
        /* The oracle does not support cells, and sums of huge V may overflow. */
        if (!c->groups.storage.key_index.data && !c->huge)
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
    assert_true(j.not_finite > 0 && j.unbounded <= j.elements / 100);
}

/* --- Strange numbers -------------------------------------------------------------------------- */

enum {
    STRANGE = 600,
    STRANGE_DIM = 96,
    STRANGE_KEYS = 300,
    STRANGE_ROWS = 44, /* enough rows for panels */
    FEW_STRANGE_ROWS = 2,
    MANY_ROWS_EVERY = 6, /* every sixth call may have up to STRANGE_ROWS rows, and is causal */
};

/* A call of one head. */
struct strange {
    attnkit_attention_args args;
    attnkit_kv_storage storage;
    float q[STRANGE_ROWS * STRANGE_DIM], out[STRANGE_ROWS * STRANGE_DIM], lse[STRANGE_ROWS];
    char k[STRANGE_KEYS * (STRANGE_DIM / Q8_BLOCK) * Q8_BLOCK_BYTES];
    char v[STRANGE_KEYS * (STRANGE_DIM / Q8_BLOCK) * Q8_BLOCK_BYTES];
    float k_scales[STRANGE_KEYS * (STRANGE_DIM / Q8_BLOCK)];
    float v_scales[STRANGE_KEYS * (STRANGE_DIM / Q8_BLOCK)];
};

/* Draws rows of q. Half of the groups are 0 or below 2^-96. One call in ten has a number that is
 * not finite. */
static void draw_q(float *q, int64_t count, uint64_t *random)
{
    static const float sizes[] = {1.0f, 1e-3f, 10.0f, 0x1p-99f, 0x1p-101f, 0x1p-130f, 1.0f, 0.0f};
    static const float not_finite[] = {NAN, INFINITY, -INFINITY};
    for (int64_t d = 0; d < count; d += Q8_BLOCK) {
        const float size = sizes[random_below(random, 8)];
        for (int i = 0; i < Q8_BLOCK; i++)
            q[d + i] = size * random_normal(random);
    }
    if (random_below(random, 10) == 0)
        q[random_below(random, count)] = not_finite[random_below(random, 3)];
}

static uint16_t draw_scale(uint64_t *random)
{
    static const uint16_t scales[] = {0x0000, 0x0001, 0x8001, 0x03ff,
                                      0x2000, 0xa000, 0x1800, 0x2400};
    return scales[random_below(random, 8)];
}

/* Draws blocks of K or V. With a probability of one half, one or two scales are not finite. */
static void draw_blocks(char *blocks, int64_t count, uint64_t *random)
{
    static const uint16_t not_finite[] = {0x7c00, 0xfc00, 0x7e00, 0x7c01};
    for (int64_t b = 0; b < count; b++) {
        char *const block = blocks + b * Q8_BLOCK_BYTES;
        const uint16_t scale = draw_scale(random);
        const bool is_zero = random_below(random, 8) == 0;
        memcpy(block, &scale, sizeof scale);
        for (int i = 0; i < Q8_BLOCK; i++)
            block[sizeof scale + (size_t)i] = is_zero ? 0 : (char)random_below(random, 256);
    }
    for (int64_t i = random_below(random, 4); i < 2; i++)
        memcpy(blocks + random_below(random, count) * Q8_BLOCK_BYTES,
               &not_finite[random_below(random, 4)], sizeof not_finite[0]);
}

/* Draws integers of ATTNKIT_I8 and their scales. A scale belongs to a row or to 32 elements of a
 * row. With a probability of one half, one or two of the drawn scales are not finite. */
static void draw_bytes(attnkit_tensor *tensor, char *bytes, attnkit_tensor *scales, float *own,
                       int64_t count, int64_t *group, uint64_t *random)
{
    static const float all[] = {0.0f,   0x1p-149f, -0x1p-149f, 0x1.8p-127f, 0x1p-100f, 0x1.3p-90f,
                                -0.03f, 0.017f,    0.02f,      0.01f,       0x1p90f,   -0x1p40f};
    static const float not_finite[] = {NAN, INFINITY, -INFINITY};
    const int64_t few = random_below(random, 2) ? 12 : 10, from = random_below(random, 6);
    for (int64_t i = 0; i < count * Q8_BLOCK; i++)
        bytes[i] = (char)(random_below(random, 8) == 0 ? 0 : random_below(random, 256));
    for (int64_t i = 0; i < count; i++)
        own[i] = all[from + random_below(random, few - from)];
    for (int64_t i = random_below(random, 4); i < 2; i++)
        own[random_below(random, count)] = not_finite[random_below(random, 3)];
    *group = random_below(random, 2) ? Q8_BLOCK : 0;
    tensor->type = ATTNKIT_I8;
    scales->data = own;
}

/* Makes a call whose numbers are all 0. */
static struct strange *new_zeros(int64_t dim, int64_t keys, double scale)
{
    struct strange *const s = calloc(1, sizeof *s);
    s->storage.size = sizeof s->storage;
    s->args = (attnkit_attention_args){
        .size = sizeof s->args,
        .flags = ATTNKIT_INTEGERS | ATTNKIT_SCALE_GIVEN,
        .scale = scale,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = FEW_STRANGE_ROWS,
        .kv_len = keys,
        .head_dim = dim,
        .value_dim = dim,
        .q = {.data = s->q},
        .k = {.data = s->k, .type = ATTNKIT_Q8_0},
        .v = {.data = s->v, .type = ATTNKIT_Q8_0},
        .out = {.data = s->out},
        .lse = {.data = s->lse},
        .storage = &s->storage,
    };
    return s;
}

static struct strange *new_strange(int number)
{
    static const double scales[] = {1.0, 0.02, -1.0, 8.0, 0x1p100, 0x1p-20};
    uint64_t random = (uint64_t)number * 7919;
    const int64_t dim = Q8_BLOCK * (1 + random_below(&random, STRANGE_DIM / Q8_BLOCK));
    const int64_t keys = 1 + random_below(&random, random_below(&random, 2) ? 4 : STRANGE_KEYS);
    struct strange *const s = new_zeros(dim, keys, scales[random_below(&random, 6)]);
    if (number % MANY_ROWS_EVERY == 0) {
        s->args.q_len = FEW_STRANGE_ROWS + random_below(&random, STRANGE_ROWS - 1);
        s->args.flags |= ATTNKIT_CAUSAL;
        s->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    }
    draw_q(s->q, s->args.q_len * dim, &random);
    draw_blocks(s->k, keys * (dim / Q8_BLOCK), &random);
    draw_blocks(s->v, keys * (dim / Q8_BLOCK), &random);
    if (number % 4 >= 2)
        draw_bytes(&s->args.k, s->k, &s->storage.k_scales, s->k_scales, keys * (dim / Q8_BLOCK),
                   &s->storage.k_scale_group, &random);
    if (number % 4 % 3 != 0)
        draw_bytes(&s->args.v, s->v, &s->storage.v_scales, s->v_scales, keys * (dim / Q8_BLOCK),
                   &s->storage.v_scale_group, &random);
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
    for (int64_t i = 0; i < s->args.q_len; i++) {
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
        if (!same_bits(out, s->out, (size_t)(s->args.q_len * dim)) ||
            !same_bits(lse, s->lse, (size_t)s->args.q_len))
            fail_msg("case %d: %s differs", number, names[i]);
    }
}

static void strange_numbers_have_the_bits_of_the_reference_and_are_inside_the_bound(void **state)
{
    (void)state;
    struct judged j = {0};
    for (int number = 0; number < STRANGE * (is_long_run() ? LONGER : 1); number++) {
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

static void put_block(char *block, uint16_t scale, int integer)
{
    memcpy(block, &scale, sizeof scale);
    memset(block + sizeof scale, integer, Q8_BLOCK);
}

/* The second block of keys has one key. The weight of this key times the scale of its V is below
 * 2^-100. */
static void small_weights_become_0_inside_the_bound(void **state)
{
    (void)state;
    struct strange *const s = new_zeros(Q8_BLOCK, KEY_BLOCK + 1, 1.0);
    struct oracle_element truth[Q8_BLOCK];
    struct judged j = {0};
    s->q[0] = s->q[Q8_BLOCK] = 1.0f;
    put_block(s->k + KEY_BLOCK * Q8_BLOCK_BYTES, 0x3c00, -62);
    put_block(s->v + KEY_BLOCK * Q8_BLOCK_BYTES, 0x0001, 127);
    check_strange(0, s, &j);
    oracle_row(&s->args, 0, 0, 0, truth, NULL);
    assert_true(s->out[0] == 0.0f);
    assert_true(truth[0].value > 0.0 && truth[0].bound < 0x1p-90);
    free(s);
}

/* The product of the scales of q and K is about 2^-138: a subnormal number with 12 significant
 * bits. */
static void subnormal_products_of_scales_are_inside_the_bound(void **state)
{
    (void)state;
    struct strange *const s = new_zeros(Q8_BLOCK, 1, 0x1p110);
    struct oracle_element truth[Q8_BLOCK];
    struct judged j = {0};
    for (int i = 0; i < STRANGE_ROWS * Q8_BLOCK; i++)
        s->q[i] = 0x1.3a92fp-99f;
    put_block(s->k, 0x0001, 127);
    check_strange(0, s, &j);
    const struct oracle_row row = oracle_row(&s->args, 0, 0, 0, truth, NULL);
    const double error = fabs((double)s->lse[0] - row.lse);
    assert_true(error > 0x1p-17 * fabs(row.lse) && row.lse_bound < 0x1p-7);
    free(s);
}

/* --- Parts of the keys ------------------------------------------------------------------------ */

enum { PARTS_DIM = 96, PARTS_ROWS = 5, PARTS_KEYS = 1300, PARTS_BLOCKS = PARTS_DIM / Q8_BLOCK };

/* Sets a tensor to its part from row `rows` on. A row has `row_bytes` bytes. */
static void skip_rows(attnkit_tensor *tensor, int64_t rows, int64_t row_bytes)
{
    if (tensor->data)
        tensor->data = (const char *)tensor->data + rows * row_bytes;
}

/* Computes the state of a call over the first `first` keys, then continues from this state with the
 * other keys. */
static void attend_in_parts(const attnkit_attention_args *whole, int64_t first, const char *isa)
{
    float max[PARTS_ROWS];
    double sum[PARTS_ROWS], out[PARTS_ROWS * PARTS_DIM];
    attnkit_states to = {.size = sizeof to, .state_out = {max, sum, out}};
    attnkit_states from = {.size = sizeof from, .first_key = first, .state_in = {max, sum, out}};
    attnkit_attention_args head = *whole, tail = *whole;
    attnkit_kv_storage storage = *whole->storage;
    head.states = &to;
    head.kv_len = first;
    head.out.data = head.lse.data = NULL;
    tail.states = &from;
    tail.storage = &storage;
    tail.kv_len -= first;
    skip_rows(&tail.k, first, bytes_of((enum type)whole->k.type, PARTS_DIM));
    skip_rows(&tail.v, first, bytes_of((enum type)whole->v.type, PARTS_DIM));
    skip_rows(&storage.k_scales, first, sizeof(float));
    skip_rows(&storage.v_scales, first, sizeof(float));
    attend(&head, isa, 1);
    attend(&tail, isa, 1);
}

static void check_parts(attnkit_attention_args *args)
{
    static float whole[PARTS_ROWS * PARTS_DIM], parts[PARTS_ROWS * PARTS_DIM];
    float whole_lse[PARTS_ROWS], parts_lse[PARTS_ROWS];
    for (int i = 0; i < name_count; i++)
        for (int64_t first = CHUNK_KEYS; first < PARTS_KEYS; first += CHUNK_KEYS) {
            args->out.data = whole;
            args->lse.data = whole_lse;
            attend(args, names[i], 1);
            args->out.data = parts;
            args->lse.data = parts_lse;
            attend_in_parts(args, first, names[i]);
            assert_memory_equal(whole, parts, sizeof whole);
            assert_memory_equal(whole_lse, parts_lse, sizeof whole_lse);
        }
}

/* Draws the scales of rows. If may_be_huge, about one scale in 500 is so large that sums
 * overflow. */
static void draw_row_scales(float *scales, bool may_be_huge, uint64_t *random)
{
    for (int i = 0; i < PARTS_KEYS; i++)
        scales[i] = may_be_huge && random_below(random, 500) == 0 ? 0x1p126f : 0.017f;
}

static void parts_of_the_keys_have_the_bits_of_one_call(void **state)
{
    static char k[PARTS_KEYS * PARTS_BLOCKS * Q8_BLOCK_BYTES], v[sizeof k];
    static float q[PARTS_ROWS * PARTS_DIM], k_scales[PARTS_KEYS], v_scales[PARTS_KEYS];
    uint64_t random = 30;
    (void)state;
    for (int i = 0; i < PARTS_ROWS * PARTS_DIM; i++)
        q[i] = random_normal(&random);
    for (size_t i = 0; i < sizeof k; i += Q8_BLOCK_BYTES)
        for (size_t j = 0; j < Q8_BLOCK_BYTES; j++) {
            static const char scale[] = {0x55, 0x24}; /* about 0.017 */
            k[i + j] = j < 2 ? scale[j] : (char)random_below(&random, 256);
            v[i + j] = j < 2 ? scale[j] : (char)random_below(&random, 256);
        }
    attnkit_kv_storage storage = {.size = sizeof storage};
    attnkit_attention_args args = {.size = sizeof args,
                                   .flags = ATTNKIT_INTEGERS,
                                   .batch = 1,
                                   .q_heads = 1,
                                   .kv_heads = 1,
                                   .q_len = PARTS_ROWS,
                                   .kv_len = PARTS_KEYS,
                                   .head_dim = PARTS_DIM,
                                   .value_dim = PARTS_DIM,
                                   .q = {.data = q},
                                   .k = {.data = k, .type = ATTNKIT_Q8_0},
                                   .v = {.data = v, .type = ATTNKIT_Q8_0},
                                   .storage = &storage};
    check_parts(&args);
    args.k.type = args.v.type = ATTNKIT_I8;
    storage.k_scales.data = k_scales;
    storage.v_scales.data = v_scales;
    for (int huge = 0; huge < 2; huge++) {
        draw_row_scales(k_scales, false, &random);
        draw_row_scales(v_scales, huge, &random);
        check_parts(&args);
    }
}

/* --- Tiles of prefill ------------------------------------------------------------------------- */

enum { PANEL_CASES = 200, MOST_BLOCKS = 4, MOST_DIM = MOST_BLOCKS * Q8_BLOCK, MOST_ODD = 3 };

/* K or V of a block of keys. The tiles may leave out packed rows at the beginning and at the
 * end. */
struct panel_keys {
    char bytes[KEY_BLOCK][MOST_BLOCKS * Q8_BLOCK_BYTES];
    float own_scales[KEY_BLOCK][MOST_BLOCKS];
    const char *row[KEY_BLOCK];
    const float *scales[KEY_BLOCK]; /* scales of rows of TYPE_I8 */
    struct key_rows rows;
    int count;       /* rows that are packed */
    int first, keys; /* the tiles multiply `keys` rows, from row `first` on */
};

static void draw_panel_keys(struct panel_keys *k, uint64_t *random)
{
    k->rows = (struct key_rows){.type = TYPE_Q8_0, .row = k->row};
    k->rows.dim = Q8_BLOCK * (1 + random_below(random, MOST_BLOCKS));
    if (random_below(random, 2)) {
        k->rows.type = TYPE_I8;
        k->rows.scales = k->scales;
        k->rows.scale_group = random_below(random, 2) ? Q8_BLOCK : k->rows.dim;
    }
    k->count = 1 + (int)random_below(random, KEY_BLOCK);
    k->first = (int)random_below(random, k->count < MOST_ODD ? k->count : MOST_ODD);
    k->keys = k->count - k->first - (int)random_below(random, 2);
    k->keys = k->keys < 1 ? 1 : k->keys;
    for (int i = 0; i < k->count; i++) {
        k->row[i] = k->bytes[i];
        k->scales[i] = k->own_scales[i];
        for (int64_t b = 0; b < k->rows.dim / Q8_BLOCK; b++) {
            k->own_scales[i][b] = 0.01f * random_normal(random);
            char *const block = k->bytes[i] + b * Q8_BLOCK_BYTES;
            const uint16_t scale = draw_scale(random);
            memcpy(block, &scale, sizeof scale);
            for (size_t d = sizeof scale; d < Q8_BLOCK_BYTES; d++)
                block[d] = (char)random_below(random, 256);
        }
    }
}

static float panel_scale(const struct panel_keys *k, int i, int64_t d)
{
    uint16_t half;
    if (k->rows.type == TYPE_I8)
        return k->scales[i][d / k->rows.scale_group];
    memcpy(&half, k->row[i] + bytes_of(TYPE_Q8_0, d), sizeof half);
    return float_from_f16(half);
}

static int panel_byte(const struct panel_keys *k, int i, int64_t d)
{
    const int64_t at = bytes_of(TYPE_Q8_0, d) + (int64_t)sizeof(uint16_t) + d % Q8_BLOCK;
    return (int8_t)k->row[i][k->rows.type == TYPE_I8 ? d : at];
}

static float model_panel_score(const struct panel_keys *k, int i, const float *rounded)
{
    static const int order[] = {0, 2, 1, 3};
    const int64_t dim = k->rows.dim;
    float s = 0.0f;
    for (int64_t d = 0; d < dim; d += Q8_BLOCK) {
        int32_t sum = 0;
        for (int e = 0; e < Q8_BLOCK; e++)
            sum +=
                integers_of(rounded, dim)[d + e] * panel_byte(k, i, d + e / 4 * 4 + order[e % 4]);
        s = fmaf((float)sum, rounded[d / Q8_BLOCK] * panel_scale(k, i, d), s);
    }
    return s;
}

/* Returns the weighted sum of column c over the keys. p has the weights of a lane, `lanes` floats
 * apart. */
static float model_panel_sum(const struct panel_keys *v, const float *p, int lanes, int64_t c)
{
    float weight[KEY_BLOCK];
    uint32_t largest = 0;
    int32_t sum = 0;
    for (int i = 0; i < v->keys; i++) {
        weight[i] = p[i * lanes] * panel_scale(v, v->first + i, c);
        largest = magnitude_bits(weight[i]) > largest ? magnitude_bits(weight[i]) : largest;
    }
    const struct integer_scale s = integer_scale_of(largest);
    for (int i = 0; i < v->keys && !isnan(s.scale); i++)
        sum += (int32_t)rintf(weight[i] * s.inverse) * panel_byte(v, v->first + i, c);
    return (float)sum * s.scale;
}

/* Returns memory for `count` floats. The memory ends at an unmapped page. */
static float *take_floats(struct guarded *memory, int64_t count)
{
    *memory = memory_guarded((size_t)count * sizeof(float), 0, true);
    return (float *)(void *)memory->data;
}

/* Packs up to 8 rows in each call of `pack`, as the loops do. */
static void pack_panel_keys(const struct panel_keys *k,
                            void (*pack)(const struct key_rows *, int, int, float *), float *words)
{
    enum { STEP = 8 };
    for (int i = 0; i < k->count; i += STEP)
        pack(&k->rows, i, k->count - i < STEP ? k->count - i : STEP, words);
}

static void check_panel_scores(const struct kernels *kernels, uint64_t *random)
{
    static struct panel_keys k;
    const struct integer_panel_kernels *const panel = kernels->integers->panel;
    static float rounded[MAX_LANES][MOST_DIM];
    const float *rows[MAX_LANES];
    struct guarded memory[3];
    draw_panel_keys(&k, random);
    const int64_t dim = k.rows.dim, row_floats = rounded_row_floats(dim);
    const int lanes =
        kernels->vector * (1 + (int)random_below(random, kernels->lanes / kernels->vector));
    for (int lane = 0; lane < lanes; lane++) {
        float q[MOST_DIM];
        for (int64_t d = 0; d < dim; d++)
            q[d] = random_normal(random);
        kernels->integers->round_row(q, dim, rounded[lane]);
        rows[lane] = rounded[lane];
    }
    float *const q_t = take_floats(&memory[0], row_floats * lanes);
    float *const words = take_floats(&memory[1], row_floats * ((k.count + 3) / 4 * 4));
    float *const s = take_floats(&memory[2], (int64_t)k.keys * lanes);
    panel->pack_q(rows, lanes, dim, q_t);
    pack_panel_keys(&k, panel->pack_k, words);
    panel->scores(q_t, lanes, words + k.first * row_floats, k.keys, dim, s);
    for (int i = 0; i < k.keys; i++)
        for (int lane = 0; lane < lanes; lane++) {
            const float expected = model_panel_score(&k, k.first + i, rounded[lane]);
            assert_true(same_bits(&expected, &s[i * lanes + lane], 1));
        }
    for (int i = 0; i < 3; i++)
        memory_unguard(&memory[i]);
}

static void check_panel_weighted_v(const struct kernels *kernels, uint64_t *random)
{
    static struct panel_keys v;
    static float before[MOST_DIM * MAX_LANES];
    const struct integer_panel_kernels *const panel = kernels->integers->panel;
    struct guarded memory[5];
    draw_panel_keys(&v, random);
    const int64_t dim = v.rows.dim;
    const int lanes =
        kernels->vector * (1 + (int)random_below(random, kernels->lanes / kernels->vector));
    float *const words = take_floats(&memory[0], KEY_BLOCK * dim);
    float *const p = take_floats(&memory[1], (int64_t)v.keys * lanes);
    float *const o = take_floats(&memory[2], dim * lanes);
    float *const parts = take_floats(&memory[3], (int64_t)KEY_BLOCK / 2 * lanes);
    float *const rescale = take_floats(&memory[4], lanes);
    const bool is_fresh = random_below(random, 3) == 0;
    for (int i = 0; i < v.keys * lanes; i++)
        p[i] = random_below(random, 4) ? (float)random_below(random, 1 << 20) * 0x1p-20f : 0.0f;
    for (int64_t i = 0; i < dim * lanes; i++)
        before[i] = o[i] = is_fresh ? NAN : random_normal(random);
    for (int lane = 0; lane < lanes; lane++)
        rescale[lane] = lane % 2 ? 0.25f : 1.0f;
    pack_panel_keys(&v, panel->pack_v, words);
    panel->weighted_v(p, lanes, is_fresh ? NULL : rescale, words, dim, v.first, v.keys, o, parts);
    for (int64_t c = 0; c < dim; c++)
        for (int lane = 0; lane < lanes; lane++) {
            const float sum = model_panel_sum(&v, p + lane, lanes, c);
            const float expected =
                is_fresh ? sum : fmaf(before[c * lanes + lane], rescale[lane], sum);
            assert_true(same_bits(&expected, &o[c * lanes + lane], 1));
        }
    for (int i = 0; i < 5; i++)
        memory_unguard(&memory[i]);
}

static void tiles_of_prefill_keep_their_contract(void **state)
{
    (void)state;
    for (int i = 0; i < name_count; i++) {
        struct isa_choice choice;
        uint64_t random = 20261126;
        assert_int_equal(attnkit_isa_pick(names[i], &choice, NULL), ATTNKIT_OK);
        for (int number = 0; number < PANEL_CASES; number++) {
            check_panel_scores(choice.kernels, &random);
            check_panel_weighted_v(choice.kernels, &random);
        }
    }
}

/* --- Instructions of units ---------------------------------------------------------------------
 */

enum { INSTRUCTION_CASES = 2000, FACTORS = 4 * MAX_VECTOR };

/* The sums and factors of an instruction. The C functions that imitate the instruction take the
 * factors as numbers of 32 bits. The kernels take the same memory as integers of 16 or 8 bits. */
struct operands {
    uint32_t sum[MAX_VECTOR], a[MAX_VECTOR], b[MAX_VECTOR];
};

/* Draws operands. Half of the bytes of the factors are extreme. The sums are below 2^30. */
static struct operands draw_operands(uint64_t *random)
{
    static const uint8_t extremes[] = {0x00, 0x01, 0x7f, 0x80, 0x81, 0xff};
    struct operands o;
    uint8_t a[FACTORS], b[FACTORS];
    for (int i = 0; i < FACTORS; i++) {
        const uint64_t bits = random_bits(random);
        a[i] = bits & 1 << 20 ? extremes[bits % 6] : (uint8_t)bits;
        b[i] = bits & 1 << 21 ? extremes[(bits >> 8) % 6] : (uint8_t)(bits >> 8);
    }
    memcpy(o.a, a, sizeof a);
    memcpy(o.b, b, sizeof b);
    for (int i = 0; i < MAX_VECTOR; i++)
        o.sum[i] = (uint32_t)random_bits(random) >> 2;
    return o;
}

static void expect_lanes(const struct operands *o, const int32_t *got,
                         uint32_t (*model)(uint32_t sum, uint32_t a, uint32_t b))
{
    uint32_t expected[MAX_VECTOR];
    for (int i = 0; i < MAX_VECTOR; i++)
        expected[i] = model(o->sum[i], o->a[i], o->b[i]);
    assert_memory_equal(got, expected, sizeof expected);
}

static void expect_matrices(const struct operands *o, const int32_t *got)
{
    uint32_t expected[MAX_VECTOR];
    memcpy(expected, o->sum, sizeof expected);
    for (int i = 0; i < MAX_VECTOR; i += 4)
        model_smmla(expected + i, o->a + i, o->b + i);
    assert_memory_equal(got, expected, sizeof expected);
}

/* Compares instructions of the kernels with C functions that imitate them. Returns the number of
 * instructions that were compared. */
static int check_instructions(const struct kernels *kernels, const struct operands *o)
{
    int32_t sum[MAX_VECTOR];
    int count = 0;
    if (kernels->integers->add && ++count) {
        memcpy(sum, o->sum, sizeof sum);
        kernels->integers->add(sum, (const int16_t *)(const void *)o->a,
                               (const int16_t *)(const void *)o->b);
        expect_lanes(o, sum, model_vpdpwssd);
    }
    if (kernels->matrix_integers->add && ++count) {
        memcpy(sum, o->sum, sizeof sum);
        kernels->matrix_integers->add(sum, (const uint8_t *)o->a, (const int8_t *)o->b);
        expect_lanes(o, sum, model_vpdpbusd);
    }
    if (kernels->bytes && kernels->bytes->dot && ++count) {
        memcpy(sum, o->sum, sizeof sum);
        kernels->bytes->dot(sum, (const int8_t *)o->a, (const int8_t *)o->b);
        expect_lanes(o, sum, model_sdot);
    }
    if (kernels->bytes && kernels->bytes->multiply && ++count) {
        memcpy(sum, o->sum, sizeof sum);
        kernels->bytes->multiply(sum, (const int8_t *)o->a, (const int8_t *)o->b);
        expect_matrices(o, sum);
    }
    return count;
}

static void instructions_of_units_have_the_bits_of_their_models(void **state)
{
    (void)state;
    const struct unit *units;
    const int unit_count = attnkit_units(&units);
    for (int u = 0; u < unit_count; u++) {
        uint64_t random = 30;
        if (!attnkit_unit_can_run(&units[u]))
            continue;
        for (int i = 0; i < INSTRUCTION_CASES; i++) {
            const struct operands o = draw_operands(&random);
            assert_true(check_instructions(units[u].kernels, &o) > 0);
        }
    }
}

static void dot(int32_t *sum, const int8_t *a, const int8_t *b)
{
    for (int i = 0; i < FACTORS; i++)
        sum[i / 4] += a[i] * b[i];
}

static void dot_with_unsigned_bytes(int32_t *sum, const int8_t *a, const int8_t *b)
{
    for (int i = 0; i < FACTORS; i++)
        sum[i / 4] += (uint8_t)a[i] * b[i];
}

static void dot_of_three(int32_t *sum, const int8_t *a, const int8_t *b)
{
    for (int i = 0; i < FACTORS; i++)
        sum[i / 4] += i % 4 == 3 ? 0 : a[i] * b[i];
}

/* Multiplies matrices. If `transposed`, swaps the two sums that are not on the diagonal. */
static void multiply_any(int32_t *sum, const int8_t *a, const int8_t *b, bool transposed)
{
    for (int i = 0; i < MAX_VECTOR; i++) {
        const int row = transposed ? i % 2 : i / 2 % 2, column = transposed ? i / 2 % 2 : i % 2;
        for (int j = 0; j < 8; j++)
            sum[i] += a[i / 4 * 16 + row * 8 + j] * b[i / 4 * 16 + column * 8 + j];
    }
}

static void multiply(int32_t *sum, const int8_t *a, const int8_t *b)
{
    multiply_any(sum, a, b, false);
}

static void multiply_transposed(int32_t *sum, const int8_t *a, const int8_t *b)
{
    multiply_any(sum, a, b, true);
}

static void the_trial_notices_wrong_products_of_bytes(void **state)
{
    (void)state;
    const struct byte_kernels right = {dot, multiply};
    const struct byte_kernels wrong[] = {
        {dot_with_unsigned_bytes, multiply}, {dot_of_three, multiply}, {dot, multiply_transposed}};
    assert_true(attnkit_signed_bytes_keep_bits(&right));
    for (int i = 0; i < 3; i++)
        assert_false(attnkit_signed_bytes_keep_bits(&wrong[i]));
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
    find_names(argc == 3 && strcmp(argv[1], "--isa") == 0 ? argv[2] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_have_the_bits_of_the_reference),
        cmocka_unit_test(rounding_modes_of_the_caller_change_no_bit),
        cmocka_unit_test(reference_is_inside_the_bound),
        cmocka_unit_test(strange_numbers_have_the_bits_of_the_reference_and_are_inside_the_bound),
        cmocka_unit_test(small_weights_become_0_inside_the_bound),
        cmocka_unit_test(subnormal_products_of_scales_are_inside_the_bound),
        cmocka_unit_test(parts_of_the_keys_have_the_bits_of_one_call),
        cmocka_unit_test(tiles_of_prefill_keep_their_contract),
        cmocka_unit_test(instructions_of_units_have_the_bits_of_their_models),
        cmocka_unit_test(the_trial_notices_wrong_products_of_bytes),
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
