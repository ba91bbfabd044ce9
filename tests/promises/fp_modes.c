/* SPDX-License-Identifier: Apache-2.0
 *
 * The floating-point modes of the calling thread: rounding, flushing of subnormals, traps. The bits
 * of a result do not depend on the modes. A call leaves the modes as they were, even if it fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fenv.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "kernels/scalar/scalar.h"
#include "tests/support/groups.h"
#include "tests/cases/planned.h"
#include "tests/support/random.h"

/* --- Modes ------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <xmmintrin.h>

enum {
    FLUSH = 0x8040, /* subnormal results are flushed to zero, and subnormal operands are taken as
                       zero */
    STICKY_FLAGS = 0x3f, /* bits of MXCSR that are flags, not modes */
};

static uint64_t get_modes(void)
{
    return _mm_getcsr() & ~(unsigned)STICKY_FLAGS;
}

static void set_flush(void)
{
    _mm_setcsr(_mm_getcsr() | FLUSH);
}

#elif defined(__aarch64__)
static uint64_t get_modes(void)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}

static void set_flush(void)
{
    const uint64_t fz = UINT64_C(1) << 24;
    __asm__ volatile("msr fpcr, %0" ::"r"(get_modes() | fz));
}

#else
static uint64_t get_modes(void)
{
    return (uint64_t)fegetround();
}

static void set_flush(void)
{
}
#endif

enum { ROUNDINGS = 4, MODES = 2 * ROUNDINGS };

static void set_mode(int mode)
{
    static const int roundings[ROUNDINGS] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    fesetenv(FE_DFL_ENV);
    fesetround(roundings[mode % ROUNDINGS]);
    if (mode >= ROUNDINGS)
        set_flush();
}

static void set_default_mode(void)
{
    fesetenv(FE_DFL_ENV);
}

/* --- Calls ------------------------------------------------------------------------------- */

enum {
    HEADS = 4,
    KV_HEADS = 2,
    KV_LEN = 150,
    HEAD_DIM = 20,
    VALUE_DIM = 12,
    MOST_ROWS = 40,
    MOST_BATCH = 9,
    FLOATS = MOST_BATCH * HEADS * KV_LEN * HEAD_DIM,
    ALL_ROWS = MOST_BATCH * HEADS * MOST_ROWS,
};

static float q[FLOATS], k[FLOATS], v[FLOATS];

struct result {
    float out[ALL_ROWS * VALUE_DIM], lse[ALL_ROWS];
};

static char workspace[1 << 20];

/* Kinds of data. With each kind, the rounding mode could change the result. In all kinds but the
 * first, results, products or the scale are subnormal, so flushing could also change the result. */
static const struct data {
    float q, k, v; /* largest magnitudes of the elements of q, k and v */
    double scale;  /* 0: the default */
} data_kinds[] = {
    {1.0f, 1.0f, 1.0f, 0},
    {3.0f, 3.0f, 1e-38f, 0.3},
    {1e-20f, 1e-19f, 1.0f, 1e30},
    {1e19f, 1e18f, 1.0f, 1e-39},
};

enum { DATA_KINDS = sizeof data_kinds / sizeof data_kinds[0] };

static void fill(float *x, float magnitude, uint64_t seed)
{
    for (int i = 0; i < FLOATS; i++)
        x[i] = random_uniform(&seed) * magnitude;
}

static attnkit_attention_args make_args(const struct data *data, int batch, int q_len,
                                        struct result *r)
{
    fill(q, data->q, 1);
    fill(k, data->k, 2);
    fill(v, data->v, 3);
    return (attnkit_attention_args){
        .size = sizeof(attnkit_attention_args),
        .flags = ATTNKIT_CAUSAL | (data->scale != 0 ? ATTNKIT_SCALE_GIVEN : 0),
        .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
        .batch = batch,
        .q_heads = HEADS,
        .kv_heads = KV_HEADS,
        .q_len = q_len,
        .kv_len = KV_LEN,
        .head_dim = HEAD_DIM,
        .value_dim = VALUE_DIM,
        .q = {.data = q},
        .k = {.data = k},
        .v = {.data = v},
        .out = {.data = r->out},
        .lse = {.data = r->lse},
        .scale = data->scale,
    };
}

static attnkit_exec make_exec(const char *isa)
{
    return (attnkit_exec){.size = sizeof(attnkit_exec),
                          .workspace = workspace,
                          .workspace_size = sizeof workspace,
                          .isa = isa};
}

/* Runs the call in a mode. Checks that the thread has the same mode after the call. */
static attnkit_status run_in_mode(int mode, const attnkit_attention_args *args,
                                  const attnkit_exec *exec)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    set_mode(mode);
    const uint64_t before = get_modes();
    const attnkit_status status = attnkit_attention(args, exec, message);
    const uint64_t after = get_modes();
    set_default_mode();
    assert_int_equal(after, before);
    return status;
}

/* --- Tests ------------------------------------------------------------------------------- */

static void compare_modes(const char *isa, const struct data *data, int q_len)
{
    static struct result expected, got;
    attnkit_attention_args args = make_args(data, 1, q_len, &expected);
    const attnkit_exec exec = make_exec(isa);
    memset(&expected, 0, sizeof expected);
    assert_int_equal(run_in_mode(0, &args, &exec), ATTNKIT_OK);
    args.out.data = got.out;
    args.lse.data = got.lse;
    for (int mode = 1; mode < MODES; mode++) {
        memset(&got, 0, sizeof got);
        assert_int_equal(run_in_mode(mode, &args, &exec), ATTNKIT_OK);
        assert_memory_equal(&got, &expected, sizeof got);
    }
}

static void no_mode_changes_a_bit_on_any_instruction_set(void **state)
{
    (void)state;
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (int kind = 0; attnkit_isa_can_run(&isas[i]) && kind < DATA_KINDS; kind++) {
            compare_modes(isas[i].name, &data_kinds[kind], MOST_ROWS);
            compare_modes(isas[i].name, &data_kinds[kind], 1);
        }
}

/* Types of tensors, and magnitudes of data that make elements, scales or results subnormal in these
 * types. */
static const struct storage {
    attnkit_type q, k, v, out;
    struct data data;
} storages[] = {
    {ATTNKIT_F16, ATTNKIT_F16, ATTNKIT_F16, ATTNKIT_F16, {1.0f, 3e-5f, 3e-5f, 0}},
    {ATTNKIT_BF16, ATTNKIT_BF16, ATTNKIT_BF16, ATTNKIT_BF16, {3.0f, 3.0f, 1e-38f, 0}},
    {ATTNKIT_F32, ATTNKIT_I8, ATTNKIT_I8, ATTNKIT_F32, {3.0f, 3.0f, 1e-37f, 0}},
    {ATTNKIT_F32, ATTNKIT_Q8_0, ATTNKIT_Q8_0, ATTNKIT_BF16, {3.0f, 3.0f, 1e-4f, 0}},
};

enum {
    STORAGES = sizeof storages / sizeof storages[0],
    STORED_DIM = 32,
    STORED_VALUES = HEADS * MOST_ROWS * STORED_DIM, /* values of the largest result */
};

static char stored_q[sizeof q], stored_k[sizeof k], stored_v[sizeof v];
static float k_scales[FLOATS], v_scales[FLOATS];

/* Makes the call of make_args, but with rows of STORED_DIM elements, in the types of `as`. For
 * ATTNKIT_I8, sets the scales in `groups`. */
static attnkit_attention_args make_stored(const struct storage *as, int q_len, struct result *r,
                                          struct groups *groups)
{
    attnkit_attention_args args = make_args(&as->data, 1, q_len, r);
    const bool has_scales = as->k == ATTNKIT_I8;
    attnkit_scalar_narrow((enum type)as->q, q, HEADS * q_len * STORED_DIM, 0, stored_q, NULL);
    attnkit_scalar_narrow((enum type)as->k, k, KV_HEADS * KV_LEN * STORED_DIM, STORED_DIM, stored_k,
                          k_scales);
    attnkit_scalar_narrow((enum type)as->v, v, KV_HEADS * KV_LEN * STORED_DIM, STORED_DIM, stored_v,
                          v_scales);
    args.head_dim = args.value_dim = STORED_DIM;
    args.q = (attnkit_tensor){.data = stored_q, .type = as->q};
    args.k = (attnkit_tensor){.data = stored_k, .type = as->k};
    args.v = (attnkit_tensor){.data = stored_v, .type = as->v};
    args.out.type = as->out;
    groups_init(groups);
    groups->storage.k_scales.data = has_scales ? k_scales : NULL;
    groups->storage.v_scales.data = has_scales ? v_scales : NULL;
    groups_hang(&args, groups);
    return args;
}

static void compare_modes_of_stored(const struct isa *isa, const struct storage *as, int q_len)
{
    static struct result expected, got;
    static const struct result nothing;
    memset(&expected, 0, sizeof expected);
    const attnkit_exec scalar = make_exec("scalar"), exec = make_exec(isa->name);
    struct groups groups;
    attnkit_attention_args args = make_stored(as, q_len, &expected, &groups);
    assert_int_equal(run_in_mode(0, &args, &scalar), ATTNKIT_OK);
    assert_memory_not_equal(expected.out, nothing.out, sizeof nothing.out);
    args.out.data = got.out;
    args.lse.data = got.lse;
    for (int mode = 0; mode < MODES; mode++) {
        memset(&got, 0, sizeof got);
        assert_int_equal(run_in_mode(mode, &args, &exec), ATTNKIT_OK);
        assert_memory_equal(&got, &expected, sizeof got);
    }
}

static void no_mode_changes_a_bit_of_stored_types(void **state)
{
    (void)state;
    _Static_assert((int)STORED_VALUES <= (int)FLOATS && (int)STORED_VALUES <= ALL_ROWS * VALUE_DIM,
                   "there is room");
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (int kind = 0; attnkit_isa_can_run(&isas[i]) && kind < STORAGES; kind++) {
            compare_modes_of_stored(&isas[i], &storages[kind], MOST_ROWS);
            compare_modes_of_stored(&isas[i], &storages[kind], 1);
        }
}

/* Plans the call in the mode `planning`, and runs the plan in the mode `running`. */
static attnkit_status run_planned(int planning, int running, const attnkit_attention_args *args,
                                  const attnkit_exec *exec)
{
    static _Alignas(16) char plan[1 << 14];
    struct brought brought;
    plan_bring(args, &brought);
    set_mode(planning);
    const uint64_t before = get_modes();
    attnkit_status status = attnkit_attention_plan(args, exec, plan, sizeof plan, NULL);
    const uint64_t after = get_modes();
    set_mode(running);
    const uint64_t before_run = get_modes();
    if (status == ATTNKIT_OK)
        status = attnkit_attention_run(plan, &brought.data, exec, NULL);
    const uint64_t after_run = get_modes();
    set_default_mode();
    assert_int_equal(after, before);
    assert_int_equal(after_run, before_run);
    return status;
}

static void no_mode_changes_a_bit_of_a_planned_run(void **state)
{
    (void)state;
    static struct result expected, got;
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    assert_true(attnkit_attention_plan_size() <= 1 << 14);
    for (int i = 0; i < count; i++)
        for (int kind = 0; attnkit_isa_can_run(&isas[i]) && kind < DATA_KINDS; kind++) {
            attnkit_attention_args args = make_args(&data_kinds[kind], 1, MOST_ROWS, &expected);
            const attnkit_exec exec = make_exec(isas[i].name);
            memset(&expected, 0, sizeof expected);
            assert_int_equal(run_in_mode(0, &args, &exec), ATTNKIT_OK);
            args.out.data = got.out;
            args.lse.data = got.lse;
            for (int mode = 0; mode < MODES; mode++) {
                memset(&got, 0, sizeof got);
                assert_int_equal(run_planned(mode, (mode + 3) % MODES, &args, &exec), ATTNKIT_OK);
                assert_memory_equal(&got, &expected, sizeof got);
            }
        }
}

/* Merges two parts. Some products, sums and quotients are subnormal. Others are rounded. */
static attnkit_status merge_in_mode(int mode, const char *isa, struct result *r)
{
    static float parts[2][VALUE_DIM];
    static const float lses[2] = {-0.3f, 1.7f};
    const float *outs[2] = {parts[0], parts[1]}, *lse_rows[2] = {&lses[0], &lses[1]};
    uint64_t random = 1;
    for (int i = 0; i < 2 * VALUE_DIM; i++)
        parts[i / VALUE_DIM][i % VALUE_DIM] = random_uniform(&random) * (i % 2 ? 1e-38f : 1.0f);
    const attnkit_merge_args args = {
        .size = sizeof args,
        .parts = 2,
        .batch = 1,
        .q_heads = 1,
        .q_len = 1,
        .value_dim = VALUE_DIM,
        .part_outs = outs,
        .part_lses = lse_rows,
        .out = {.data = r->out},
        .lse = {.data = r->lse},
    };
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    set_mode(mode);
    const uint64_t before = get_modes();
    const attnkit_status status = attnkit_merge(&args, &exec, NULL);
    const uint64_t after = get_modes();
    set_default_mode();
    assert_int_equal(after, before);
    return status;
}

static void no_mode_changes_a_bit_of_a_merge(void **state)
{
    (void)state;
    static struct result expected, got;
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (int mode = 0; attnkit_isa_can_run(&isas[i]) && mode < MODES; mode++) {
            assert_int_equal(merge_in_mode(0, "scalar", &expected), ATTNKIT_OK);
            assert_int_equal(merge_in_mode(mode, isas[i].name, &got), ATTNKIT_OK);
            assert_memory_equal(&got, &expected, sizeof got);
        }
}

enum { IN_DIM = 70, OUT_DIM = 33, LINEAR_VALUES = MOST_ROWS * OUT_DIM };

_Static_assert((int)LINEAR_VALUES <= (int)ALL_ROWS * (int)VALUE_DIM, "there is room");

/* Packs a matrix, runs a linear map, and looks up rows of an embedding. Some of the products, sums
 * and conversions are rounded, and some are subnormal. Writes y to r->out, and the rows of the
 * embedding to r->lse.
 */
static attnkit_status map_in_mode(int mode, int64_t rows, const char *isa, struct result *r)
{
    static _Alignas(64) char packed[48 * IN_DIM * sizeof(float)];
    static const int32_t ids[] = {5, 0, 3};
    fill(q, 1.0f, 1);
    fill(k, 1e-5f, 2);
    fill(v, 1e-37f, 3);
    const attnkit_pack_args pack = {.size = sizeof pack,
                                    .out_dim = OUT_DIM,
                                    .in_dim = IN_DIM,
                                    .w = {.data = k},
                                    .packed_type = ATTNKIT_F16,
                                    .packed = packed,
                                    .packed_size = sizeof packed};
    const attnkit_linear_args linear = {.size = sizeof linear,
                                        .rows = rows,
                                        .in_dim = IN_DIM,
                                        .out_dim = OUT_DIM,
                                        .x = {.data = v},
                                        .w = {.data = packed, .type = ATTNKIT_F16},
                                        .y = {.data = r->out},
                                        .bias = v};
    const attnkit_embed_args embed = {.size = sizeof embed,
                                      .count = 3,
                                      .vocab = 6,
                                      .dim = IN_DIM,
                                      .ids = {.data = ids, .type = ATTNKIT_INT32},
                                      .table = {.data = k},
                                      .out = {.data = r->lse, .type = ATTNKIT_F16}};
    const attnkit_exec exec = make_exec(isa);
    set_mode(mode);
    const uint64_t before = get_modes();
    attnkit_status status = attnkit_pack(&pack, &exec, NULL);
    if (status == ATTNKIT_OK)
        status = attnkit_linear(&linear, &exec, NULL);
    if (status == ATTNKIT_OK)
        status = attnkit_embed(&embed, &exec, NULL);
    const uint64_t after = get_modes();
    set_default_mode();
    assert_int_equal(after, before);
    return status;
}

static void no_mode_changes_a_bit_of_a_linear_map(void **state)
{
    (void)state;
    static struct result expected, got;
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int64_t rows = 1; rows <= MOST_ROWS; rows += MOST_ROWS - 1) {
        memset(&expected, 0, sizeof expected);
        memset(&got, 0, sizeof got);
        assert_int_equal(map_in_mode(0, rows, "scalar", &expected), ATTNKIT_OK);
        int subnormal = 0;
        for (int64_t i = 0; i < rows * OUT_DIM; i++)
            subnormal += fpclassify(expected.out[i]) == FP_SUBNORMAL;
        assert_true(subnormal > 0);
        for (int i = 0; i < count; i++)
            for (int mode = 0; attnkit_isa_can_run(&isas[i]) && mode < MODES; mode++) {
                assert_int_equal(map_in_mode(mode, rows, isas[i].name, &got), ATTNKIT_OK);
                assert_memory_equal(&got, &expected, sizeof got);
            }
    }
}

/* Without subnormal results, no_mode_changes_a_bit_on_any_instruction_set would compare only zeros
 * and normal numbers. */
static void the_data_has_subnormal_results(void **state)
{
    (void)state;
    static struct result r;
    const attnkit_attention_args args = make_args(&data_kinds[1], 1, MOST_ROWS, &r);
    const attnkit_exec exec = make_exec(NULL);
    assert_int_equal(run_in_mode(0, &args, &exec), ATTNKIT_OK);
    int subnormal = 0;
    for (int i = 0; i < HEADS * MOST_ROWS * VALUE_DIM; i++)
        subnormal += fpclassify(r.out[i]) == FP_SUBNORMAL;
    assert_true(subnormal > 1000);
}

static void refused_calls_leave_the_modes_alone(void **state)
{
    (void)state;
    static struct result r;
    for (int mode = 0; mode < MODES; mode++) {
        attnkit_attention_args args = make_args(&data_kinds[0], 1, 1, &r);
        attnkit_exec exec = make_exec(NULL);
        exec.workspace = NULL;
        assert_int_equal(run_in_mode(mode, &args, &exec), ATTNKIT_BAD_WORKSPACE);
        exec = make_exec("none");
        assert_int_equal(run_in_mode(mode, &args, &exec), ATTNKIT_BAD_ISA);
        exec = make_exec(NULL);
        args.batch = -1;
        assert_int_equal(run_in_mode(mode, &args, &exec), ATTNKIT_BAD_ARGUMENT);
        assert_int_equal(run_in_mode(mode, NULL, &exec), ATTNKIT_BAD_ARGUMENT);
    }
}

/* Rounded to nearest, 2.4e38 * log2 e is infinite in binary32. Rounded towards zero, this product
 * is the largest finite number. */
static void the_same_scales_are_refused_in_every_mode(void **state)
{
    (void)state;
    static struct result r;
    const struct data too_large = {1.0f, 1.0f, 1.0f, 2.4e38}, largest = {1.0f, 1.0f, 1.0f, 2.3e38};
    const attnkit_exec exec = make_exec(NULL);
    for (int mode = 0; mode < MODES; mode++) {
        attnkit_attention_args args = make_args(&too_large, 1, 1, &r);
        assert_int_equal(run_in_mode(mode, &args, &exec), ATTNKIT_BAD_ARGUMENT);
        args = make_args(&largest, 1, 1, &r);
        assert_int_equal(run_in_mode(mode, &args, &exec), ATTNKIT_OK);
    }
}

/* The call has 18 items of equal cost. The middles of some items fall on the borders of the 12
 * shares. */
static void threads_in_different_modes_leave_no_row_out(void **state)
{
    (void)state;
    static struct result expected, got;
    attnkit_attention_args args = make_args(&data_kinds[0], MOST_BATCH, 1, &expected);
    attnkit_exec exec = make_exec(NULL);
    assert_int_equal(run_in_mode(0, &args, &exec), ATTNKIT_OK);
    args.out.data = got.out;
    args.lse.data = got.lse;
    exec.threads = 12;
    for (int first = 0; first < ROUNDINGS; first++) {
        memset(&got, 0, sizeof got);
        for (exec.thread = 0; exec.thread < exec.threads; exec.thread++)
            assert_int_equal(run_in_mode((first + (int)exec.thread) % ROUNDINGS, &args, &exec),
                             ATTNKIT_OK);
        assert_memory_equal(&got, &expected, sizeof got);
    }
}

/* A parallel-for that sets a different mode for each task. Writes to `pool` the modes of the thread
 * that calls the parallel-for. */
static void run_in_other_modes(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    *(uint64_t *)pool = get_modes();
    for (int64_t i = 0; i < n; i++) {
        set_mode((int)(i % MODES));
        const uint64_t before = get_modes();
        task(arg, i);
        const uint64_t after = get_modes();
        set_default_mode();
        assert_int_equal(after, before);
    }
}

static void parallel_for_runs_in_the_modes_of_its_caller_and_tasks_in_any(void **state)
{
    (void)state;
    static struct result expected, got;
    attnkit_attention_args args = make_args(&data_kinds[1], 2, MOST_ROWS, &expected);
    attnkit_exec exec = make_exec(NULL);
    assert_int_equal(run_in_mode(0, &args, &exec), ATTNKIT_OK);
    args.out.data = got.out;
    args.lse.data = got.lse;
    exec.threads = 4;
    exec.parallel_for = run_in_other_modes;
    uint64_t seen;
    exec.pool = &seen;
    for (int mode = 0; mode < MODES; mode++) {
        set_mode(mode);
        const uint64_t callers = get_modes();
        const attnkit_status status = attnkit_attention(&args, &exec, NULL);
        set_default_mode();
        assert_int_equal(status, ATTNKIT_OK);
        assert_int_equal(seen, callers);
        assert_memory_equal(&got, &expected, sizeof got);
    }
}

/* On a CPU that cannot trap, the calls of this test run without traps. */
static void a_caller_that_traps_on_inexact_results_is_not_stopped(void **state)
{
    (void)state;
    static struct result r;
    const attnkit_exec exec = make_exec(NULL);
    for (int kind = 0; kind < DATA_KINDS; kind++) {
        const attnkit_attention_args args = make_args(&data_kinds[kind], 1, MOST_ROWS, &r);
        feclearexcept(FE_ALL_EXCEPT);
        feenableexcept(FE_ALL_EXCEPT);
        const uint64_t before = get_modes();
        const attnkit_status status = attnkit_attention(&args, &exec, NULL);
        const uint64_t after = get_modes();
        set_default_mode();
        assert_int_equal(status, ATTNKIT_OK);
        assert_int_equal(after, before);
    }
}

/* The checks of a layer compute the scale of its attention before any kernel runs. This scale, 1 /
 * sqrt(5), is inexact. */
static void a_layer_of_a_caller_that_traps_is_not_stopped(void **state)
{
    (void)state;
    enum { D = 5 * HEADS };
    static _Alignas(64) char packed[1 << 14];
    static struct result r;
    fill(q, 1.0f, 1);
    fill(k, 1.0f, 2);
    const attnkit_layer_weights weights = {.size = sizeof weights,
                                           .d_model = D,
                                           .q_heads = HEADS,
                                           .w_q = k,
                                           .w_k = k + 7,
                                           .w_v = k + 19,
                                           .w_o = k + 31};
    const attnkit_layer_args args = {.size = sizeof args,
                                     .packed = packed,
                                     .packed_size = sizeof packed,
                                     .batch = 1,
                                     .q_len = 4,
                                     .x = {.data = q},
                                     .out = {.data = r.out}};
    attnkit_exec exec = {.size = sizeof exec, .workspace = workspace};
    assert_int_equal(attnkit_layer_pack(&weights, packed, sizeof packed, NULL, NULL), ATTNKIT_OK);
    feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(FE_ALL_EXCEPT);
    const uint64_t before = get_modes();
    attnkit_status status = attnkit_layer_workspace(&args, &exec, &exec.workspace_size, NULL);
    if (status == ATTNKIT_OK)
        status = attnkit_layer(&args, &exec, NULL);
    const uint64_t after = get_modes();
    set_default_mode();
    assert_int_equal(status, ATTNKIT_OK);
    assert_in_range(exec.workspace_size, 1, sizeof workspace);
    assert_int_equal(after, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_mode_changes_a_bit_on_any_instruction_set),
        cmocka_unit_test(no_mode_changes_a_bit_of_stored_types),
        cmocka_unit_test(no_mode_changes_a_bit_of_a_planned_run),
        cmocka_unit_test(no_mode_changes_a_bit_of_a_merge),
        cmocka_unit_test(no_mode_changes_a_bit_of_a_linear_map),
        cmocka_unit_test(the_data_has_subnormal_results),
        cmocka_unit_test(refused_calls_leave_the_modes_alone),
        cmocka_unit_test(the_same_scales_are_refused_in_every_mode),
        cmocka_unit_test(threads_in_different_modes_leave_no_row_out),
        cmocka_unit_test(parallel_for_runs_in_the_modes_of_its_caller_and_tasks_in_any),
        cmocka_unit_test(a_caller_that_traps_on_inexact_results_is_not_stopped),
        cmocka_unit_test(a_layer_of_a_caller_that_traps_is_not_stopped),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
