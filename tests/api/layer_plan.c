/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests planned layers. A run writes to its result and to the cache the bits that a single call
 * writes. A run may have fewer batch entries, rows, keys and threads than planned. A plan may be
 * copied to another address. Several threads may run one plan at once. A refused run writes
 * nothing, and its message names the argument. Planning reads no tensor and no array. Planning
 * reads the description of the packed weights, but not the weights themselves. The tests run on
 * every instruction set that can run here, or on the instruction set that the first argument names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/call.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"

enum {
    BATCH = 3,
    LEN = 20,  /* most rows of a batch entry */
    ROOM = 64, /* rows of a cache for each head */
    MODEL = 32,
    Q_HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 8,
    THREADS = 3,
    CACHE = BATCH * KV_HEADS * ROOM * HEAD_DIM, /* floats of K, or of V */
    MEAN = BATCH * LEN * LEN,
    OUTPUTS = 2 * CACHE + BATCH * LEN * MODEL + MEAN,
    PLAN_ALIGNMENT = 16, /* bytes */
};

/* --- The layer -------------------------------------------------------------------------------- */

/* The inputs of all calls below, and the outputs of most of these calls. */
static struct {
    float x[BATCH * LEN * MODEL], w[MODEL * MODEL], bias[MODEL];
    float cos[ROOM * HEAD_DIM / 2], sin[ROOM * HEAD_DIM / 2];
    int64_t cached[BATCH];
    int32_t positions[BATCH];
    _Alignas(64) char packed[1 << 15];
    size_t packed_size;
    float outputs[OUTPUTS]; /* K, V, out, mean weights */
} memory = {.cached = {0, 17, ROOM - LEN}, .positions = {0, 7, 14}};

static float expected[OUTPUTS];

static void fill(float *x, int64_t count, uint64_t random)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = random_uniform(&random);
}

static void clear_outputs(void)
{
    fill(memory.outputs, OUTPUTS, 6);
}

static void make_memory(void)
{
    const attnkit_layer_weights w = {.size = sizeof w,
                                     .d_model = MODEL,
                                     .q_heads = Q_HEADS,
                                     .kv_heads = KV_HEADS,
                                     .w_q = memory.w,
                                     .w_k = memory.w + 5,
                                     .w_v = memory.w + 11,
                                     .w_o = memory.w,
                                     .b_o = memory.bias};
    fill(memory.x, BATCH * LEN * MODEL, 1);
    fill(memory.w, MODEL * MODEL, 2);
    fill(memory.bias, MODEL, 3);
    fill(memory.cos, ROOM * HEAD_DIM / 2, 4);
    fill(memory.sin, ROOM * HEAD_DIM / 2, 5);
    if (attnkit_layer_packed_size(&w, &memory.packed_size, NULL) != ATTNKIT_OK ||
        memory.packed_size > sizeof memory.packed ||
        attnkit_layer_pack(&w, memory.packed, memory.packed_size, NULL, NULL) != ATTNKIT_OK)
        abort();
}

/* A call, the arguments of a plan, and the data of a run. The arguments of the plan are for the
 * largest shape, and have no address except `packed`. The run of the plan must give the results of
 * the call. */
struct pair {
    attnkit_layer_args call, plan;
    attnkit_layer_data run;
    attnkit_rotation rotation, planned_rotation;
    attnkit_attention_args attention, planned_attention;
    attnkit_attention_data brought;
};

enum kind { CACHED, WITHOUT_CACHE, OF_OTHER_KEYS, KINDS };

/* Describes rows of x, key or out, with the strides of the planned shape. */
static attnkit_tensor rows_of(const float *data)
{
    return (attnkit_tensor){data, {LEN * MODEL * 4, 0, MODEL * 4}, 0, ATTNKIT_STRIDED};
}

/* Makes a rotation by tables of ROOM positions. */
static attnkit_rotation new_rotation(const float *cos, const float *sin, const void *positions)
{
    return (attnkit_rotation){.size = sizeof(attnkit_rotation),
                              .kind = ATTNKIT_ROPE_HALF,
                              .cos = cos,
                              .sin = sin,
                              .table_positions = ROOM,
                              .positions = {positions, ATTNKIT_INT32, 0}};
}

/* Makes p->call, a call of the layer with `len` rows in each batch entry. The call is causal,
 * except for the kind OF_OTHER_KEYS. The kind CACHED has a cache with room for ROOM keys. */
static void make_call(struct pair *p, enum kind kind, int64_t batch, int64_t len)
{
    attnkit_layer_args *const a = &p->call;
    p->rotation = new_rotation(memory.cos, memory.sin, memory.positions);
    p->attention = (attnkit_attention_args){
        .size = sizeof p->attention, .flags = ATTNKIT_CAUSAL, .align = ATTNKIT_ALIGN_BOTTOM_RIGHT};
    *a = (attnkit_layer_args){.size = sizeof *a,
                              .packed = memory.packed,
                              .packed_size = memory.packed_size,
                              .batch = batch,
                              .q_len = len,
                              .x = rows_of(memory.x),
                              .out = rows_of(memory.outputs + 2 * CACHE),
                              .rotation = kind == OF_OTHER_KEYS ? NULL : &p->rotation,
                              .attention = &p->attention};
    if (kind == CACHED) {
        p->attention.kv_len = ROOM;
        p->attention.k.data = memory.outputs;
        p->attention.v.data = memory.outputs + CACHE;
        a->cached.data = memory.cached;
    }
    if (kind == OF_OTHER_KEYS) {
        p->attention.flags = p->attention.align = 0;
        a->kv_len = len;
        a->key = rows_of(memory.x);
    }
}

static void bring_all(struct pair *p)
{
    const attnkit_layer_args *const a = &p->call;
    p->brought = (attnkit_attention_data){.size = sizeof p->brought,
                                          .kv_len = p->attention.kv_len,
                                          .k = p->attention.k.data,
                                          .v = p->attention.v.data};
    p->run = (attnkit_layer_data){.size = sizeof p->run,
                                  .packed = a->packed,
                                  .packed_size = a->packed_size,
                                  .batch = a->batch,
                                  .q_len = a->q_len,
                                  .kv_len = a->kv_len,
                                  .x = a->x.data,
                                  .key = a->key.data,
                                  .out = (void *)(uintptr_t)a->out.data,
                                  .cached = a->cached.data,
                                  .attention = &p->brought};
    if (a->rotation) {
        p->run.positions = a->rotation->positions.data;
        p->run.cos = a->rotation->cos;
        p->run.sin = a->rotation->sin;
    }
}

static const void *later(const void *data)
{
    return data ? ATTNKIT_LATER : NULL;
}

/* Makes the arguments of a plan for the largest numbers of batch entries and rows. The arguments
 * have no address except `packed`: planning reads the description at the beginning of the packed
 * weights. */
static void forget_all(struct pair *p)
{
    attnkit_layer_args *const a = &p->plan;
    p->planned_rotation = new_rotation(ATTNKIT_LATER, ATTNKIT_LATER, ATTNKIT_LATER);
    p->planned_attention = p->attention;
    p->planned_attention.k.data = later(p->attention.k.data);
    p->planned_attention.v.data = later(p->attention.v.data);
    *a = p->call;
    a->batch = BATCH;
    a->q_len = LEN;
    a->kv_len = a->key.data ? LEN : 0;
    a->x.data = a->out.data = ATTNKIT_LATER;
    a->key.data = later(a->key.data);
    a->cached.data = later(a->cached.data);
    a->rotation = a->rotation ? &p->planned_rotation : NULL;
    a->attention = &p->planned_attention;
}

static void make_pair(struct pair *p, enum kind kind, int64_t batch, int64_t len)
{
    *p = (struct pair){.call = {.size = 0}};
    make_call(p, kind, batch, len);
    bring_all(p);
    forget_all(p);
}

/* --- The same bits ---------------------------------------------------------------------------- */

static void expect_ok(attnkit_status status, const char *message)
{
    if (status != ATTNKIT_OK || message[0] != '\0')
        fail_msg("%s: \"%s\"", attnkit_status_string(status), message);
}

static void *plan_memory(void)
{
    const size_t size = attnkit_layer_plan_size();
    return aligned_alloc(PLAN_ALIGNMENT,
                         (size + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT);
}

static void *new_plan(const struct pair *p, const char *isa, int64_t threads)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    void *const plan = plan_memory();
    expect_ok(attnkit_layer_plan(&p->plan, &exec, plan, attnkit_layer_plan_size(), message),
              message);
    return plan;
}

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

/* Runs the plan in a workspace of exactly the bytes that the plan asks for. */
static void run_plan(const void *plan, const attnkit_layer_data *data, int64_t threads)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    attnkit_exec exec = {
        .size = sizeof exec, .threads = threads, .parallel_for = threads > 1 ? backwards : NULL};
    expect_ok(attnkit_layer_plan_workspace(plan, &exec.workspace_size, message), message);
    struct guarded workspace = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = workspace.data;
    expect_ok(attnkit_layer_run(plan, data, &exec, message), message);
    memory_unguard(&workspace);
}

static void run_call(const attnkit_layer_args *args, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    expect_ok(attnkit_layer_workspace(args, &exec, &exec.workspace_size, message), message);
    exec.workspace = malloc(exec.workspace_size + 1);
    expect_ok(attnkit_layer(args, &exec, message), message);
    free(exec.workspace);
}

static void check_pair(const struct pair *p, const char *isa)
{
    const size_t size = attnkit_layer_plan_size();
    void *const plan = new_plan(p, isa, THREADS), *const copy = plan_memory();
    memcpy(copy, plan, size);
    clear_outputs();
    run_call(&p->call, isa);
    memcpy(expected, memory.outputs, sizeof expected);
    for (int64_t threads = 1; threads <= THREADS; threads++)
        for (int from_copy = 0; from_copy < 2; from_copy++) {
            clear_outputs();
            run_plan(from_copy ? copy : plan, &p->run, threads);
            assert_memory_equal(memory.outputs, expected, sizeof expected);
            assert_memory_equal(plan, copy, size);
        }
    free(plan);
    free(copy);
}

static void a_run_has_the_bits_of_a_call(void **state)
{
    for (int kind = 0; kind < KINDS; kind++) {
        struct pair p;
        make_pair(&p, (enum kind)kind, BATCH, LEN);
        check_pair(&p, *state);
    }
}

static void lengths_may_be_smaller(void **state)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t batch = 0; batch <= BATCH; batch++)
            for (int64_t len = 0; len <= LEN; len += 1 + len) {
                struct pair p;
                make_pair(&p, (enum kind)kind, batch, len);
                check_pair(&p, *state);
            }
}

/* The cache of the run has at most the planned number of rows, and the planned strides. */
static void a_cache_may_have_less_room(void **state)
{
    for (int64_t room = 40; room <= ROOM; room += 6) {
        const int64_t strides[3] = {KV_HEADS * ROOM * HEAD_DIM * 4, ROOM * HEAD_DIM * 4,
                                    HEAD_DIM * 4};
        struct pair p;
        make_pair(&p, CACHED, 2, 5);
        p.attention.kv_len = p.brought.kv_len = room;
        p.attention.k.layout = p.attention.v.layout = ATTNKIT_STRIDED;
        memcpy(p.attention.k.strides, strides, sizeof strides);
        memcpy(p.attention.v.strides, strides, sizeof strides);
        check_pair(&p, *state);
    }
}

/* One plan runs a sequence row by row, while the cache grows. */
static void one_plan_serves_every_step(void **state)
{
    struct pair whole, step;
    float *const out = memory.outputs + 2 * CACHE;
    make_pair(&whole, WITHOUT_CACHE, 1, LEN);
    make_pair(&step, CACHED, 1, 1);
    whole.call.rotation = NULL;
    step.plan.rotation = NULL;
    step.run.positions = step.run.cos = step.run.sin = NULL;
    run_call(&whole.call, *state);
    memcpy(expected, out, LEN * MODEL * sizeof *out);
    clear_outputs();
    void *const plan = new_plan(&step, *state, 1);
    for (int64_t i = 0; i < LEN; i++) {
        step.run.cached = &i;
        step.run.x = memory.x + i * MODEL;
        step.run.out = out + i * MODEL;
        run_plan(plan, &step.run, 1);
    }
    assert_memory_equal(out, expected, LEN * MODEL * sizeof *out);
    free(plan);
}

/* Mean weights are dense in the planned shape. A shorter run writes the first columns of each of
 * its rows. */
static void the_mean_of_weights_lies_as_planned(void **state)
{
    enum { ENTRIES = 2, ROWS = 5, KEYS = 7 };
    static float mean[ENTRIES * ROWS * KEYS];
    float *const planned = memory.outputs + OUTPUTS - MEAN;
    struct pair p;
    make_pair(&p, OF_OTHER_KEYS, ENTRIES, ROWS);
    p.call.kv_len = p.run.kv_len = KEYS;
    p.call.mean_weights = mean;
    p.plan.mean_weights = ATTNKIT_LATER;
    p.run.mean_weights = planned;
    run_call(&p.call, *state);
    clear_outputs();
    memcpy(expected, memory.outputs, sizeof expected);
    for (int i = 0; i < ENTRIES * ROWS; i++)
        memcpy(expected + OUTPUTS - MEAN + (i / ROWS * LEN + i % ROWS) * LEN, mean + i * KEYS,
               KEYS * sizeof *mean);
    void *const plan = new_plan(&p, *state, 1);
    run_plan(plan, &p.run, 1);
    assert_memory_equal(planned, expected + OUTPUTS - MEAN, MEAN * sizeof *planned);
    free(plan);
}

/* --- Threads ---------------------------------------------------------------------------------- */

/* A thread that computes its own result, or a share of a common result. */
struct caller {
    pthread_t thread;
    const void *plan;
    attnkit_layer_data data;
    attnkit_exec exec;
    float out[BATCH * LEN * MODEL];
    attnkit_status status;
};

static void *run_caller(void *arg)
{
    struct caller *const c = arg;
    c->status = attnkit_layer_run(c->plan, &c->data, &c->exec, NULL);
    return NULL;
}

static void run_callers(struct caller *callers, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&callers[i].thread, NULL, run_caller, &callers[i]), 0);
    for (int i = 0; i < count; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].status, ATTNKIT_OK);
    }
}

static struct caller callers[THREADS];

static void threads_run_one_plan_at_the_same_time(void **state)
{
    struct pair p;
    make_pair(&p, WITHOUT_CACHE, BATCH, LEN);
    void *const plan = new_plan(&p, *state, 1);
    run_call(&p.call, *state);
    for (int i = 0; i < THREADS; i++) {
        struct caller *const c = &callers[i];
        *c = (struct caller){.plan = plan, .data = p.run, .exec = {.size = sizeof c->exec}};
        assert_int_equal(attnkit_layer_plan_workspace(plan, &c->exec.workspace_size, NULL),
                         ATTNKIT_OK);
        c->exec.workspace = malloc(c->exec.workspace_size);
        c->data.out = c->out;
    }
    run_callers(callers, THREADS);
    for (int i = 0; i < THREADS; i++) {
        assert_memory_equal(callers[i].out, memory.outputs + 2 * CACHE, sizeof callers[i].out);
        free(callers[i].exec.workspace);
    }
    free(plan);
}

static void meet(void *pool)
{
    pthread_barrier_wait(pool);
}

static void threads_of_the_caller_share_a_run(void **state)
{
    struct pair p;
    make_pair(&p, CACHED, BATCH, LEN);
    void *const plan = new_plan(&p, *state, THREADS);
    clear_outputs();
    run_call(&p.call, *state);
    memcpy(expected, memory.outputs, sizeof expected);
    for (int threads = 1; threads <= THREADS; threads++) {
        pthread_barrier_t barrier;
        attnkit_exec exec = {
            .size = sizeof exec, .threads = threads, .barrier = meet, .pool = &barrier};
        assert_int_equal(attnkit_layer_plan_workspace(plan, &exec.workspace_size, NULL),
                         ATTNKIT_OK);
        exec.workspace = malloc(exec.workspace_size);
        pthread_barrier_init(&barrier, NULL, (unsigned)threads);
        for (int i = 0; i < threads; i++) {
            callers[i] = (struct caller){.plan = plan, .data = p.run, .exec = exec};
            callers[i].exec.thread = i;
        }
        clear_outputs();
        run_callers(callers, threads);
        assert_memory_equal(memory.outputs, expected, sizeof expected);
        pthread_barrier_destroy(&barrier);
        free(exec.workspace);
    }
    free(plan);
}

/* --- What is refused -------------------------------------------------------------------------- */

/* A pair, its plan for one thread, and everything that a run of the plan needs. */
struct ready {
    struct pair pair;
    void *plan;
    attnkit_exec exec;
};

static void make_ready(struct ready *r, enum kind kind, const char *isa)
{
    make_pair(&r->pair, kind, BATCH, LEN);
    r->plan = new_plan(&r->pair, isa, 1);
    r->exec = (attnkit_exec){.size = sizeof r->exec};
    assert_int_equal(attnkit_layer_plan_workspace(r->plan, &r->exec.workspace_size, NULL),
                     ATTNKIT_OK);
    r->exec.workspace = malloc(r->exec.workspace_size);
    clear_outputs();
    memcpy(expected, memory.outputs, sizeof expected);
}

static void end_ready(const struct ready *r)
{
    free(r->exec.workspace);
    free(r->plan);
}

static void refuse_plan(const struct ready *r, const void *plan, attnkit_status status,
                        const char *words)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_status got = attnkit_layer_run(plan, &r->pair.run, &r->exec, message);
    if (got != status || !strstr(message, words))
        fail_msg("status %d, \"%s\" instead of \"%s\"", (int)got, message, words);
    assert_memory_equal(memory.outputs, expected, sizeof expected);
}

static void refuse_run(const struct ready *r, attnkit_status status, const char *words)
{
    refuse_plan(r, r->plan, status, words);
}

static void memory_without_a_plan_is_refused(void **state)
{
    static const char words[] = "is not what attnkit_layer_plan of this library wrote";
    struct ready r;
    size_t bytes;
    make_ready(&r, CACHED, *state);
    const size_t size = attnkit_layer_plan_size();
    char *const memory_of_none = plan_memory();
    memset(memory_of_none, 0, size);
    refuse_plan(&r, NULL, ATTNKIT_BAD_ARGUMENT, "plan is NULL");
    refuse_plan(&r, memory_of_none, ATTNKIT_BAD_ARGUMENT, words);
    memset(memory_of_none, 0xff, size);
    refuse_plan(&r, memory_of_none, ATTNKIT_BAD_ARGUMENT, words);
    assert_int_equal(attnkit_layer_plan_workspace(memory_of_none, &bytes, NULL),
                     ATTNKIT_BAD_ARGUMENT);
    const attnkit_linear_args linear = {.size = sizeof linear, .in_dim = 8, .out_dim = 8};
    assert_int_equal(attnkit_linear_plan(&linear, NULL, memory_of_none, size, NULL), ATTNKIT_OK);
    refuse_plan(&r, memory_of_none, ATTNKIT_BAD_ARGUMENT, words);
    free(memory_of_none);
    end_ready(&r);
}

static void bad_memory_for_a_plan_is_refused(void **state)
{
    const size_t size = attnkit_layer_plan_size();
    const attnkit_exec exec = {.size = sizeof exec, .isa = *state};
    char message[ATTNKIT_MESSAGE_SIZE];
    struct pair p;
    make_pair(&p, CACHED, BATCH, LEN);
    char *const plan = plan_memory(), *const same = plan_memory();
    memset(plan, 0x5a, size);
    memset(same, 0x5a, size);
    assert_int_equal(attnkit_layer_plan(&p.plan, &exec, plan, size - 1, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "plan_size is "));
    assert_int_equal(attnkit_layer_plan(&p.plan, &exec, plan + 8, size - 8, message),
                     ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "must be aligned to 16 bytes"));
    assert_int_equal(attnkit_layer_plan(&p.plan, &exec, NULL, size, message), ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "plan is NULL"));
    p.plan.q_len = -1;
    assert_int_equal(attnkit_layer_plan(&p.plan, &exec, plan, size, message), ATTNKIT_BAD_ARGUMENT);
    assert_memory_equal(plan, same, size);
    free(plan);
    free(same);
}

static void bad_runs_are_refused(void **state)
{
    struct ready r;
    make_ready(&r, CACHED, *state);
    void *const workspace = r.exec.workspace;
    char message[ATTNKIT_MESSAGE_SIZE];
    r.exec.threads = 2;
    r.exec.parallel_for = backwards;
    refuse_run(&r, ATTNKIT_BAD_ARGUMENT, "exec.threads is 2");
    r.exec.threads = 1;
    r.exec.isa = strcmp(*state, "scalar") ? "scalar" : "avx2";
    refuse_run(&r, ATTNKIT_BAD_ISA, "exec.isa is ");
    r.exec.isa = NULL;
    r.exec.workspace_size--;
    refuse_run(&r, ATTNKIT_BAD_WORKSPACE, "exec.workspace_size is ");
    r.exec.workspace_size++;
    r.exec.workspace = NULL;
    refuse_run(&r, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL");
    r.exec.workspace = workspace;
    r.pair.run.size = 3;
    refuse_run(&r, ATTNKIT_BAD_ARGUMENT, "attnkit_layer_data.size is 3");
    r.pair.run.size = sizeof r.pair.run;
    assert_int_equal(attnkit_layer_run(r.plan, NULL, &r.exec, message), ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "data is NULL"));
    end_ready(&r);
}

/* A pointer or a length that a run passes. */
struct field {
    const char *name; /* name in messages */
    size_t offset;    /* offset in struct pair */
};

#define FIELD(name, field)                                                                         \
    {                                                                                              \
        name, offsetof(struct pair, field)                                                         \
    }

static void lengths_beyond_the_plan_are_refused_by_name(void **state)
{
    static const struct field lengths[] = {FIELD("batch", run.batch), FIELD("q_len", run.q_len),
                                           FIELD("kv_len", run.kv_len),
                                           FIELD("attention->kv_len", brought.kv_len)};
    for (int i = 0; i < 4; i++) {
        struct ready r;
        char words[ATTNKIT_MESSAGE_SIZE];
        make_ready(&r, CACHED, *state);
        char *const field = (char *)&r.pair + lengths[i].offset;
        int64_t own;
        memcpy(&own, field, sizeof own);
        const int64_t bad[] = {own + 1, -1, INT64_MAX, INT64_MIN};
        for (int j = 0; j < 4; j++) {
            memcpy(field, &bad[j], sizeof bad[j]);
            snprintf(words, sizeof words, "%s is %lld", lengths[i].name, (long long)bad[j]);
            refuse_run(&r, ATTNKIT_BAD_ARGUMENT, words);
        }
        end_ready(&r);
    }
}

/* Leaves out a planned pointer, or passes a pointer that was not planned, and expects a refusal.
 * Returns whether the pointer was planned. */
static bool check_pointer(struct ready *r, const struct field *f)
{
    static _Alignas(64) char other[64];
    char *const field = (char *)&r->pair + f->offset;
    void *own, *wrong;
    memcpy(&own, field, sizeof own);
    wrong = own ? NULL : other;
    memcpy(field, &wrong, sizeof wrong);
    char words[ATTNKIT_MESSAGE_SIZE];
    snprintf(words, sizeof words, "%s is %s", f->name, own ? "NULL" : "given");
    refuse_run(r, ATTNKIT_BAD_ARGUMENT, words);
    memcpy(field, &own, sizeof own);
    return own;
}

static void pointers_that_differ_from_the_plan_are_refused_by_name(void **state)
{
    static const struct field pointers[] = {
        FIELD("packed", run.packed),
        FIELD("x", run.x),
        FIELD("out", run.out),
        FIELD("key", run.key),
        FIELD("value", run.value),
        FIELD("cached", run.cached),
        FIELD("positions", run.positions),
        FIELD("rotation.cos", run.cos),
        FIELD("rotation.sin", run.sin),
        FIELD("mean_weights", run.mean_weights),
        FIELD("k", brought.k),
        FIELD("v", brought.v),
        FIELD("q", brought.q),
        FIELD("lse", brought.lse),
    };
    enum { POINTERS = sizeof pointers / sizeof pointers[0], IN_ALL = 3, IN_NONE = 4 };
    int planned[POINTERS] = {0}, in_all = 0, in_none = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < POINTERS; i++) {
            struct ready r;
            make_ready(&r, (enum kind)kind, *state);
            planned[i] += check_pointer(&r, &pointers[i]);
            end_ready(&r);
        }
    for (int i = 0; i < POINTERS; i++) {
        in_all += planned[i] == KINDS;
        in_none += planned[i] == 0;
    }
    assert_int_equal(in_all, IN_ALL);   /* planned in every kind: packed, x and out */
    assert_int_equal(in_none, IN_NONE); /* planned in no kind: value, mean_weights, q, lse */
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(a_run_has_the_bits_of_a_call),
        cmocka_unit_test(lengths_may_be_smaller),
        cmocka_unit_test(a_cache_may_have_less_room),
        cmocka_unit_test(one_plan_serves_every_step),
        cmocka_unit_test(the_mean_of_weights_lies_as_planned),
        cmocka_unit_test(threads_run_one_plan_at_the_same_time),
        cmocka_unit_test(threads_of_the_caller_share_a_run),
        cmocka_unit_test(memory_without_a_plan_is_refused),
        cmocka_unit_test(bad_memory_for_a_plan_is_refused),
        cmocka_unit_test(bad_runs_are_refused),
        cmocka_unit_test(lengths_beyond_the_plan_are_refused_by_name),
        cmocka_unit_test(pointers_that_differ_from_the_plan_are_refused_by_name),
    };
    make_memory();
    return promises_main("layer_plan", promises, sizeof promises / sizeof promises[0], argc, argv);
}
