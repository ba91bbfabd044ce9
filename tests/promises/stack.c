/* SPDX-License-Identifier: Apache-2.0
 *
 * A call needs at most 64 KiB of stack. Public calls, their workspace queries, their plans and runs
 * of these plans are made on a thread with a stack of 64 KiB, which ends at an unmapped page. The
 * tests use every option, in prefill and decode, on every instruction set, or on the instruction
 * set that the first argument names. They print the largest number of bytes of stack in use,
 * including the bytes that the thread itself needs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dispatch/cpu/isa.h"
#include "dispatch/cpu/probe.h"
#include "tests/cases/drawn.h"
#include "tests/cases/full.h"
#include "tests/support/layer/drawn.h"
#include "tests/support/layer/run.h"
#include "tests/support/layer/sequences.h"
#include "tests/cases/planned.h"
#include "tests/support/sample.h"
#include "tests/support/units.h"

enum { STACK = 64 * 1024 }; /* bytes */

enum { CASES = 120, LAYER_CASES = 60, UNTOUCHED = 0xa5, THREADS = 3 };

/* --- The thread ------------------------------------------------------------------------------- */

/* The stack of the thread. Its size is STACK. If the system allows no stack this small, its size is
 * the least size that the system allows, rounded up to whole pages. Only the last STACK bytes of
 * the stack are usable. Any access to a byte below them faults. */
static struct {
    char *first; /* first byte of the thread's stack, mapped or not */
    size_t size;
    char *usable;
} stack;

static size_t most_used; /* bytes of stack, in the test that is running */

static void make_stack(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const long least = sysconf(_SC_THREAD_STACK_MIN);
    stack.size = least > STACK ? ((size_t)least + page - 1) / page * page : STACK;
    char *const mapping =
        mmap(NULL, page + stack.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack.first = mapping + page;
    stack.usable = stack.first + stack.size - STACK;
    if (mapping == MAP_FAILED || mprotect(stack.usable, STACK, PROT_READ | PROT_WRITE))
        abort();
}

static size_t used_bytes(void)
{
    size_t untouched = 0;
    while (untouched < STACK && (unsigned char)stack.usable[untouched] == UNTOUCHED)
        untouched++;
    return STACK - untouched;
}

static void run_on_small_stack(void *(*job)(void *arg), void *arg)
{
    pthread_t thread;
    pthread_attr_t attributes;
    memset(stack.usable, UNTOUCHED, STACK);
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstack(&attributes, stack.first, stack.size), 0);
    assert_int_equal(pthread_create(&thread, &attributes, job, arg), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    if (used_bytes() > most_used)
        most_used = used_bytes();
}

static void *nothing(void *arg)
{
    return arg;
}

static void begin_measuring(void)
{
    most_used = 0;
}

static void print_used(const char *isa, const char *what)
{
    const size_t used = most_used;
    most_used = 0;
    run_on_small_stack(nothing, NULL);
    printf("# %s: %s: %zu bytes, of which the thread itself takes %zu\n", isa, what, used,
           most_used);
}

/* --- Arguments -------------------------------------------------------------------------------- */

/* The arguments of a call. The function that gets the arguments decides which call is made. */
struct job {
    const void *args, *data; /* arguments of the call, and of a run of its plan */
    void *plan;
    size_t plan_size;
    attnkit_exec exec; /* for the call, the plan and the run */
    attnkit_status status;
    char message[ATTNKIT_MESSAGE_SIZE];
};

typedef attnkit_status query(struct job *j, size_t *bytes);
typedef attnkit_status step(struct job *j);

/* The functions that attention, appends, linear maps and layers each have. */
struct calls {
    query *workspace, *plan_workspace;
    step *call, *plan, *run;
    size_t (*plan_size)(void);
};

static const struct calls *running; /* the functions that run on the small stack */

static void *run_all(void *arg)
{
    struct job *const j = arg;
    size_t bytes;
    j->status = running->workspace(j, &bytes);
    if (j->status == ATTNKIT_OK)
        j->status = running->call(j);
    if (j->status == ATTNKIT_OK)
        j->status = running->plan(j);
    if (j->status == ATTNKIT_OK)
        j->status = running->plan_workspace(j, &bytes);
    if (j->status == ATTNKIT_OK)
        j->status = running->run(j);
    return NULL;
}

static void expect_ok(const struct job *j)
{
    if (j->status != ATTNKIT_OK)
        fail_msg("%s: \"%s\"", attnkit_status_string(j->status), j->message);
}

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

static struct job new_job(const void *args, const void *data, const char *isa, int64_t threads)
{
    return (struct job){.args = args,
                        .data = data,
                        .exec = {.size = sizeof(attnkit_exec),
                                 .isa = isa,
                                 .threads = threads,
                                 .parallel_for = threads > 1 ? backwards : NULL}};
}

/* Makes all calls with the arguments j on the small stack. The thread of the test allocates the
 * plan and the workspace. */
static void run_calls(const struct calls *calls, struct job j)
{
    size_t bytes = 0;
    j.plan_size = calls->plan_size();
    j.plan = aligned_alloc(PLAN_ALIGNMENT,
                           (j.plan_size + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT);
    j.status = calls->workspace(&j, &j.exec.workspace_size);
    if (j.status == ATTNKIT_OK)
        j.status = calls->plan(&j);
    if (j.status == ATTNKIT_OK)
        j.status = calls->plan_workspace(&j, &bytes);
    expect_ok(&j);
    if (bytes > j.exec.workspace_size)
        j.exec.workspace_size = bytes;
    j.exec.workspace = malloc(j.exec.workspace_size + 1);
    running = calls;
    run_on_small_stack(run_all, &j);
    expect_ok(&j);
    free(j.exec.workspace);
    free(j.plan);
}

/* --- Attention -------------------------------------------------------------------------------- */

static attnkit_status attention_workspace(struct job *j, size_t *bytes)
{
    return attnkit_attention_workspace(j->args, &j->exec, bytes, j->message);
}

static attnkit_status attention(struct job *j)
{
    return attnkit_attention(j->args, &j->exec, j->message);
}

static attnkit_status attention_plan(struct job *j)
{
    return attnkit_attention_plan(j->args, &j->exec, j->plan, j->plan_size, j->message);
}

static attnkit_status attention_plan_workspace(struct job *j, size_t *bytes)
{
    return attnkit_attention_plan_workspace(j->plan, bytes, j->message);
}

static attnkit_status attention_run(struct job *j)
{
    return attnkit_attention_run(j->plan, j->data, &j->exec, j->message);
}

static const struct calls attention_calls = {attention_workspace, attention_plan_workspace,
                                             attention,           attention_plan,
                                             attention_run,       attnkit_attention_plan_size};

static void attend(const attnkit_attention_args *args, const char *isa, int64_t threads)
{
    struct brought brought;
    plan_bring(args, &brought);
    run_calls(&attention_calls, new_job(args, &brought.data, isa, threads));
}

static void attention_with_any_options_needs_64_kb(void **state)
{
    begin_measuring();
    for (int i = 0; i < sampled(CASES, 4); i++) {
        struct drawn *const c = drawn_new(i);
        attend(&c->args, *state, c->threads);
        drawn_free(c);
    }
    print_used(*state, "attention, drawn");
}

static void attention_with_cells_needs_64_kb(void **state)
{
    begin_measuring();
    for (int i = 0; i < sampled(CASES, 4); i++) {
        struct drawn *const c = drawn_in_cells(i);
        if (!c)
            continue;
        attend(&c->args, *state, c->threads);
        drawn_free(c);
    }
    print_used(*state, "attention with cells, drawn");
}

/* Makes the call without units of the instruction set, and with each of its units that can run
 * here. So this machine also tests tiles that it does not use by itself, but that other CPUs
 * use. */
static void attend_with_units(const attnkit_attention_args *args, const char *isa, int64_t threads)
{
    const struct isa *isas;
    const struct unit *units;
    attnkit_isas(&isas);
    const int unit_count = attnkit_units(&units);
    struct isa_choice choice;
    assert_int_equal(attnkit_isa_pick(isa, &choice, NULL), ATTNKIT_OK);
    attend(args, name_without_units(choice.isa), threads);
    for (int i = 0; i < unit_count; i++)
        if (units[i].isa == choice.isa && attnkit_unit_can_run(&units[i]))
            attend(args, units[i].name, threads);
}

static void attention_with_integers_needs_64_kb(void **state)
{
    begin_measuring();
    for (int i = 0; i < sampled(CASES, 4); i++) {
        struct drawn *const c = drawn_with_integers(i);
        attend_with_units(&c->args, *state, c->threads);
        drawn_free(c);
    }
    print_used(*state, "attention with integers, drawn");
}

static void attention_with_bf16_products_needs_64_kb(void **state)
{
    begin_measuring();
    for (int i = 0; i < sampled(CASES, 4); i++) {
        struct drawn *const c = drawn_with_bf16_products(i);
        attend_with_units(&c->args, *state, c->threads);
        drawn_free(c);
    }
    print_used(*state, "attention with products of bf16, drawn");
}

/* The calls have one row (a decoding step), few rows, many rows, or several blocks of 256 rows for
 * each KV head. */
static void attention_with_every_option_needs_64_kb(void **state)
{
    static const int64_t row_counts[] = {1, 3, 35, 300};
    begin_measuring();
    for (int i = 0; i < 4; i++)
        for (int n = 0; n < FULL_CALLS; n++)
            for (int64_t threads = 1; threads <= THREADS; threads += 2) {
                struct call *const c = full_calls[n](row_counts[i]);
                attend(&c->args, *state, threads);
                call_free(c);
            }
    print_used(*state, "attention with every option");
}

/* The calls have rows of V with 576 elements, and as many KV heads as decode interleaves. They run
 * on one thread, and on more threads than KV heads. In calls with many rows, only the last rows of
 * the first head see a NaN in V. These rows, and the other rows of their panels, are computed again
 * one by one, deeper in the stack. */
static void attention_over_many_keys_needs_64_kb(void **state)
{
    begin_measuring();
    for (int64_t rows = 1; rows <= 70; rows += 69)
        for (int64_t threads = 1; threads <= 9; threads += 8) {
            struct call *const c = call_new((struct shape){.kv_heads = 8,
                                                           .group = rows == 1 ? 8 : 1,
                                                           .q_len = rows,
                                                           .kv_len = 1100,
                                                           .head_dim = 128,
                                                           .value_dim = 576});
            c->args.flags |= ATTNKIT_CAUSAL;
            c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
            *call_v(c, (struct at){.j = 1080}) = NAN;
            attend(&c->args, *state, threads);
            call_free(c);
        }
    print_used(*state, "attention over many keys");
}

/* Makes a tensor [1][heads][rows][dim] token-major, with the same memory. */
static void make_token_major(attnkit_tensor *t, int64_t heads, int64_t rows, int64_t dim)
{
    const int64_t row = dim * (int64_t)sizeof(float);
    t->layout = ATTNKIT_STRIDED;
    t->strides[0] = heads * rows * row;
    t->strides[1] = row;
    t->strides[2] = heads * row;
}

/* The heads take turns in instruction sets with decode_together. Some units need more than 16 MiB
 * of K and V for turns. */
static void decoding_in_turns_needs_64_kb(void **state)
{
    enum { HEADS = 8, KEYS = 2100, DIM = 128 };
    begin_measuring();
    for (int64_t group = 1; group <= 4; group += 3) {
        struct call *const c = call_new((struct shape){.kv_heads = HEADS,
                                                       .group = group,
                                                       .q_len = 1,
                                                       .kv_len = KEYS,
                                                       .head_dim = DIM,
                                                       .value_dim = DIM});
        make_token_major(&c->args.k, HEADS, KEYS, DIM);
        make_token_major(&c->args.v, HEADS, KEYS, DIM);
        attend(&c->args, *state, 1);
        call_free(c);
    }
    print_used(*state, "decoding in turns");
}

/* --- Appends ---------------------------------------------------------------------------------- */

static attnkit_status append_workspace(struct job *j, size_t *bytes)
{
    return attnkit_append_workspace(j->args, &j->exec, bytes, j->message);
}

static attnkit_status append(struct job *j)
{
    return attnkit_append(j->args, &j->exec, j->message);
}

static attnkit_status append_plan(struct job *j)
{
    return attnkit_append_plan(j->args, &j->exec, j->plan, j->plan_size, j->message);
}

static attnkit_status append_plan_workspace(struct job *j, size_t *bytes)
{
    return attnkit_append_plan_workspace(j->plan, bytes, j->message);
}

static attnkit_status append_run(struct job *j)
{
    return attnkit_append_run(j->plan, j->data, &j->exec, j->message);
}

static const struct calls append_calls = {append_workspace, append_plan_workspace,
                                          append,           append_plan,
                                          append_run,       attnkit_append_plan_size};

enum { BATCH = 2, HEADS = 3, LEN = 70, DIM = 96, ROWS = BATCH * HEADS * LEN };

/* The tensors of most calls below. */
static struct {
    float x[ROWS * DIM], y[ROWS * DIM], w[DIM * DIM], scales[ROWS * DIM];
    float cos[LEN * DIM], sin[LEN * DIM], lse[2][ROWS];
    _Alignas(64) char packed[4 * DIM * DIM * sizeof(float)];
    _Alignas(64) char layer[1 << 18];
    int64_t starts[BATCH];
    int32_t ids[LEN], table[BATCH];
} memory = {.table = {1, 0}};

/* Appends rows, rotated by `rotation`. Does nothing if the library does not support the
 * rotation. */
static void append_as(attnkit_type type, bool tiled, attnkit_rotation rotation, const char *isa)
{
    const attnkit_pages pages = {.size = sizeof pages,
                                 .block_table = memory.table,
                                 .block_table_stride = 1,
                                 .page_size = 80,
                                 .pages = BATCH};
    const attnkit_append_args args = {
        .size = sizeof args,
        .batch = BATCH,
        .heads = HEADS,
        .len = LEN,
        .dim = DIM,
        .capacity = LEN,
        .src = {.data = memory.x},
        .dst = {.data = memory.y, .type = type, .layout = tiled ? ATTNKIT_TILED : 0},
        .dst_scales = {.data = type == ATTNKIT_I8 ? memory.scales : NULL},
        .starts = {.data = memory.starts},
        .pages = type == ATTNKIT_F32 ? NULL : &pages,
        .rotation = &rotation};
    const attnkit_append_data data = {.size = sizeof data,
                                      .batch = BATCH,
                                      .len = LEN,
                                      .src = memory.x,
                                      .dst = memory.y,
                                      .dst_scales = (float *)(uintptr_t)args.dst_scales.data,
                                      .starts = memory.starts,
                                      .block_table = args.pages ? memory.table : NULL,
                                      .cos = rotation.cos,
                                      .sin = rotation.sin};
    size_t bytes;
    if (attnkit_append_workspace(&args, NULL, &bytes, NULL) == ATTNKIT_UNSUPPORTED)
        return; /* this build of the library has no rotation by angles */
    for (int64_t threads = 1; threads <= THREADS; threads += 2)
        run_calls(&append_calls, new_job(&args, &data, isa, threads));
}

static void appends_need_64_kb(void **state)
{
    const attnkit_rotation angles = {.size = sizeof angles, .kind = ATTNKIT_ROPE_HALF},
                           tables = {.size = sizeof tables,
                                     .kind = ATTNKIT_ROPE_INTERLEAVED,
                                     .cos = memory.cos,
                                     .sin = memory.sin,
                                     .table_positions = LEN};
    begin_measuring();
    for (attnkit_type type = ATTNKIT_F32; type <= ATTNKIT_Q8_0; type++)
        for (int tiled = 0; tiled < 2; tiled++) {
            if (type == ATTNKIT_F32 && tiled)
                continue; /* y has no room for whole tiles of this type */
            append_as(type, tiled, angles, *state);
            append_as(type, tiled, tables, *state);
        }
    print_used(*state, "appends");
}

/* --- Linear maps ------------------------------------------------------------------------------ */

static attnkit_status linear_workspace(struct job *j, size_t *bytes)
{
    return attnkit_linear_workspace(j->args, &j->exec, bytes, j->message);
}

static attnkit_status linear(struct job *j)
{
    return attnkit_linear(j->args, &j->exec, j->message);
}

static attnkit_status linear_plan(struct job *j)
{
    return attnkit_linear_plan(j->args, &j->exec, j->plan, j->plan_size, j->message);
}

static attnkit_status linear_plan_workspace(struct job *j, size_t *bytes)
{
    return attnkit_linear_plan_workspace(j->plan, bytes, j->message);
}

static attnkit_status linear_run(struct job *j)
{
    return attnkit_linear_run(j->plan, j->data, &j->exec, j->message);
}

static const struct calls linear_calls = {linear_workspace, linear_plan_workspace,
                                          linear,           linear_plan,
                                          linear_run,       attnkit_linear_plan_size};

static void *pack(void *arg)
{
    struct job *const j = arg;
    size_t bytes;
    j->status = attnkit_packed_size(j->args, &bytes, j->message);
    if (j->status == ATTNKIT_OK)
        j->status = attnkit_pack(j->args, &j->exec, j->message);
    return NULL;
}

static void pack_as(attnkit_type type, const char *isa)
{
    const attnkit_pack_args args = {.size = sizeof args,
                                    .out_dim = DIM,
                                    .in_dim = DIM,
                                    .w = {.data = memory.w},
                                    .packed_type = type,
                                    .packed = memory.packed,
                                    .packed_size = sizeof memory.packed};
    struct job j = new_job(&args, NULL, isa, 1);
    run_on_small_stack(pack, &j);
    expect_ok(&j);
}

static void map_as(attnkit_type type, attnkit_type y_type, uint32_t flags, int64_t rows,
                   const char *isa)
{
    const attnkit_linear_args args = {.size = sizeof args,
                                      .rows = rows,
                                      .in_dim = DIM,
                                      .out_dim = DIM,
                                      .x = {.data = memory.x},
                                      .w = {.data = memory.packed, .type = type},
                                      .y = {.data = memory.y, .type = y_type},
                                      .bias = memory.w,
                                      .flags = flags};
    const attnkit_linear_data data = {.size = sizeof data,
                                      .rows = rows,
                                      .x = memory.x,
                                      .w = memory.packed,
                                      .bias = memory.w,
                                      .y = memory.y};
    for (int64_t threads = 1; threads <= THREADS; threads += 2)
        run_calls(&linear_calls, new_job(&args, &data, isa, threads));
}

static void linear_maps_need_64_kb(void **state)
{
    static const attnkit_type types[] = {ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_Q8_0};
    begin_measuring();
    for (int i = 0; i < 4; i++) {
        pack_as(types[i], *state);
        for (int64_t rows = 1; rows <= 400; rows += 133) {
            map_as(types[i], ATTNKIT_F32, 0, rows, *state);
            map_as(types[i], ATTNKIT_BF16, 0, rows, *state);
            if (types[i] == ATTNKIT_Q8_0)
                map_as(types[i], ATTNKIT_BF16, ATTNKIT_INTEGERS, rows, *state);
        }
    }
    print_used(*state, "linear maps");
}

static void *embed(void *arg)
{
    struct job *const j = arg;
    j->status = attnkit_embed(j->args, &j->exec, j->message);
    return NULL;
}

static void embeddings_need_64_kb(void **state)
{
    begin_measuring();
    for (attnkit_type type = ATTNKIT_F32; type <= ATTNKIT_BF16; type++) {
        const attnkit_embed_args args = {.size = sizeof args,
                                         .count = LEN,
                                         .vocab = DIM,
                                         .dim = DIM,
                                         .ids = {memory.ids, ATTNKIT_INT32, 0},
                                         .table = {.data = memory.w},
                                         .out = {.data = memory.y, .type = type}};
        struct job j = new_job(&args, NULL, *state, 1);
        run_on_small_stack(embed, &j);
        expect_ok(&j);
    }
    print_used(*state, "embeddings");
}

/* --- Merging ---------------------------------------------------------------------------------- */

static void *merge(void *arg)
{
    struct job *const j = arg;
    j->status = attnkit_merge(j->args, &j->exec, j->message);
    return NULL;
}

static void merging_needs_64_kb(void **state)
{
    const float *const outs[2] = {memory.x, memory.x}, *const lses[2] = {memory.lse[0],
                                                                         memory.lse[0]};
    begin_measuring();
    for (attnkit_type type = ATTNKIT_F32; type <= ATTNKIT_BF16; type++) {
        const attnkit_merge_args args = {.size = sizeof args,
                                         .parts = 2,
                                         .batch = BATCH,
                                         .q_heads = HEADS,
                                         .q_len = LEN,
                                         .value_dim = DIM,
                                         .part_outs = outs,
                                         .part_lses = lses,
                                         .out = {.data = memory.y, .type = type},
                                         .lse = {.data = memory.lse[1]}};
        struct job j = new_job(&args, NULL, *state, 1);
        run_on_small_stack(merge, &j);
        expect_ok(&j);
    }
    print_used(*state, "merging");
}

/* --- Layers ----------------------------------------------------------------------------------- */

static attnkit_status layer_workspace(struct job *j, size_t *bytes)
{
    return attnkit_layer_workspace(j->args, &j->exec, bytes, j->message);
}

static attnkit_status layer(struct job *j)
{
    return attnkit_layer(j->args, &j->exec, j->message);
}

static attnkit_status layer_plan(struct job *j)
{
    return attnkit_layer_plan(j->args, &j->exec, j->plan, j->plan_size, j->message);
}

static attnkit_status layer_plan_workspace(struct job *j, size_t *bytes)
{
    return attnkit_layer_plan_workspace(j->plan, bytes, j->message);
}

static attnkit_status layer_run(struct job *j)
{
    return attnkit_layer_run(j->plan, j->data, &j->exec, j->message);
}

static const struct calls layer_calls = {layer_workspace, layer_plan_workspace,   layer, layer_plan,
                                         layer_run,       attnkit_layer_plan_size};

static void *pack_layer(void *arg)
{
    struct job *const j = arg;
    size_t bytes;
    j->status = attnkit_layer_packed_size(j->args, &bytes, j->message);
    if (j->status == ATTNKIT_OK)
        j->status =
            attnkit_layer_pack(j->args, memory.layer, sizeof memory.layer, &j->exec, j->message);
    return NULL;
}

/* Runs a layer with a softcap, a window and the mean of weights, over a cache of the given type. */
static void run_layer(attnkit_type type, int64_t rows, const char *isa)
{
    enum { ROOM = LEN, CACHE = BATCH * HEADS * ROOM * 32 };
    const bool has_scales = type == ATTNKIT_I8;
    const attnkit_window window = {.size = sizeof window, .left = 20, .right = -1};
    const attnkit_visibility visibility = {.size = sizeof visibility, .window = &window};
    const attnkit_score_mods scores = {.size = sizeof scores, .softcap = 30.0};
    const attnkit_kv_storage storage = {
        .size = sizeof storage,
        .k_scales = {.data = has_scales ? memory.scales : NULL},
        .v_scales = {.data = has_scales ? memory.scales + CACHE : NULL}};
    const attnkit_rotation rotation = {.size = sizeof rotation,
                                       .kind = ATTNKIT_ROPE_HALF,
                                       .cos = memory.cos,
                                       .sin = memory.sin,
                                       .table_positions = LEN};
    const attnkit_attention_args options = {.size = sizeof options,
                                            .flags = ATTNKIT_CAUSAL,
                                            .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
                                            .kv_len = ROOM,
                                            .k = {.data = memory.y, .type = type},
                                            .v = {.data = memory.y + CACHE, .type = type},
                                            .storage = &storage,
                                            .visibility = &visibility,
                                            .scores = &scores};
    float *const out = malloc((size_t)(BATCH * rows * DIM) * sizeof *out);
    float *const mean = malloc((size_t)(BATCH * rows * ROOM) * sizeof *mean);
    const attnkit_layer_args args = {.size = sizeof args,
                                     .packed = memory.layer,
                                     .packed_size = sizeof memory.layer,
                                     .batch = BATCH,
                                     .q_len = rows,
                                     .x = {.data = memory.x},
                                     .out = {.data = out},
                                     .rotation = &rotation,
                                     .attention = &options,
                                     .cached = {.data = memory.starts},
                                     .mean_weights = mean};
    const attnkit_attention_group_data groups = {.size = sizeof groups,
                                                 .k_scales = storage.k_scales.data,
                                                 .v_scales = storage.v_scales.data};
    const attnkit_attention_data brought = {.size = sizeof brought,
                                            .kv_len = ROOM,
                                            .k = memory.y,
                                            .v = memory.y + CACHE,
                                            .groups = &groups};
    const attnkit_layer_data data = {.size = sizeof data,
                                     .packed = memory.layer,
                                     .packed_size = sizeof memory.layer,
                                     .batch = BATCH,
                                     .q_len = rows,
                                     .x = memory.x,
                                     .out = out,
                                     .cached = memory.starts,
                                     .cos = memory.cos,
                                     .sin = memory.sin,
                                     .attention = &brought,
                                     .mean_weights = mean};
    for (int64_t threads = 1; threads <= THREADS; threads += 2)
        run_calls(&layer_calls, new_job(&args, &data, isa, threads));
    free(out);
    free(mean);
}

static void layers_need_64_kb(void **state)
{
    const attnkit_layer_weights w = {.size = sizeof w,
                                     .d_model = DIM,
                                     .q_heads = HEADS,
                                     .w_q = memory.w,
                                     .w_k = memory.w,
                                     .w_v = memory.w,
                                     .w_o = memory.w};
    struct job j = new_job(&w, NULL, *state, 1);
    begin_measuring();
    run_on_small_stack(pack_layer, &j);
    expect_ok(&j);
    for (attnkit_type type = ATTNKIT_F32; type <= ATTNKIT_Q8_0; type++) {
        run_layer(type, 1, *state);
        run_layer(type, LEN, *state);
        /* Rows that do not see the NaN in K and V are computed again one by one, if another row of
         * their panel sees this NaN. */
        memory.x[LEN / 2 * DIM] = NAN;
        run_layer(type, LEN, *state);
        memory.x[LEN / 2 * DIM] = 0.0f;
    }
    print_used(*state, "layers");
}

static void layers_with_any_options_need_64_kb(void **state)
{
    begin_measuring();
    for (int i = 0; i < sampled(LAYER_CASES, 4); i++) {
        struct layer_call c;
        struct layer_brought brought;
        layer_call_draw(&c, i);
        if (i % 2)
            ((float *)(uintptr_t)c.args.x.data)[0] = NAN;
        layer_bring(&c.args, &brought);
        for (int64_t threads = 1; threads <= THREADS; threads += 2)
            run_calls(&layer_calls, new_job(&c.args, &brought.data, *state, threads));
        layer_call_free(&c);
    }
    print_used(*state, "layers, drawn");
}

static void layers_with_any_cache_need_64_kb(void **state)
{
    begin_measuring();
    for (int how = 0; how < STORAGES; how++)
        for (int64_t rows = 1; rows <= 131; rows += 65) {
            struct sequences s;
            struct cached_layer cache;
            struct layer_brought brought;
            sequences_begin(&s, 2, 140, 7);
            cached_layer_begin(&cache, &s, &storages[how]);
            cached_layer_step(&cache, &s, 9, rows);
            layer_bring(&cache.args, &brought);
            for (int64_t threads = 1; threads <= THREADS; threads += 2)
                run_calls(&layer_calls, new_job(&cache.args, &brought.data, *state, threads));
            cached_layer_end(&cache);
            sequences_end(&s);
        }
    print_used(*state, "layers with caches");
}

/* --- Choosing an instruction set, and refusals ------------------------------------------------ */

/* Makes two calls that succeed, and one call that fails and therefore formats a message. */
static void *ask(void *arg)
{
    struct job *const j = arg;
    attnkit_isa_choice choice = {.size = sizeof choice};
    attnkit_isa_info info = {.size = sizeof info};
    j->status = attnkit_isa_choose(j->exec.isa, &choice, j->message);
    if (j->status == ATTNKIT_OK)
        j->status = attnkit_isa_get(0, &info, j->message);
    j->exec.isa = "none";
    if (attnkit_attention(j->args, &j->exec, j->message) != ATTNKIT_BAD_ISA)
        j->status = ATTNKIT_UNSUPPORTED;
    return NULL;
}

static void questions_and_refusals_need_64_kb(void **state)
{
    struct call *const c = full_call_new(3);
    struct job j = new_job(&c->args, NULL, *state, 1);
    begin_measuring();
    run_on_small_stack(ask, &j);
    expect_ok(&j);
    print_used(*state, "questions");
    call_free(c);
}

static void *try_groups(void *arg)
{
    const struct kernels *const kernels = arg;
    return attnkit_groups_keep_bits(kernels->grouped, kernels->lanes) ? arg : NULL;
}

/* attnkit_enable tries the tiles of a unit (dispatch/cpu/probe_groups.c). Here the trial runs with
 * the tiles of the tested instruction set. */
static void trials_of_units_need_64_kb(void **state)
{
    struct isa_choice choice;
    assert_int_equal(attnkit_isa_pick(*state, &choice, NULL), ATTNKIT_OK);
    if (choice.kernels->lanes < MAX_VECTOR)
        return; /* a trial needs 16 lanes */
    void *const kernels = (void *)(uintptr_t)choice.kernels;
    assert_ptr_equal(try_groups(kernels), kernels);
    begin_measuring();
    run_on_small_stack(try_groups, kernels);
    print_used(*state, "trials of units");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(attention_with_any_options_needs_64_kb),
        cmocka_unit_test(attention_with_cells_needs_64_kb),
        cmocka_unit_test(attention_with_integers_needs_64_kb),
        cmocka_unit_test(attention_with_bf16_products_needs_64_kb),
        cmocka_unit_test(attention_with_every_option_needs_64_kb),
        cmocka_unit_test(attention_over_many_keys_needs_64_kb),
        cmocka_unit_test(decoding_in_turns_needs_64_kb),
        cmocka_unit_test(appends_need_64_kb),
        cmocka_unit_test(linear_maps_need_64_kb),
        cmocka_unit_test(embeddings_need_64_kb),
        cmocka_unit_test(merging_needs_64_kb),
        cmocka_unit_test(layers_need_64_kb),
        cmocka_unit_test(layers_with_any_options_need_64_kb),
        cmocka_unit_test(layers_with_any_cache_need_64_kb),
        cmocka_unit_test(questions_and_refusals_need_64_kb),
        cmocka_unit_test(trials_of_units_need_64_kb),
    };
    make_stack();
    enable_units();
    const int failed =
        promises_main("stack", promises, sizeof promises / sizeof promises[0], argc, argv);
    memory_end();
    return failed;
}
