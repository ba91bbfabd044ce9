/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests planned appends. A run writes the bytes that a single call writes. A run may have fewer
 * batch entries, rows and threads than planned. A plan may be copied to another address. Several
 * threads may run one plan at once. A refused plan or run writes nothing, and its message names the
 * argument.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "attnkit.h"
#include "tests/support/call.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"

enum {
    BATCH = 3,
    HEADS = 2,
    LEN = 5,
    DIM = 64,
    CAPACITY = 40,
    PAGE_SIZE = 16,
    PAGES_EACH = 3,
    PAGES = BATCH * PAGES_EACH,
    TABLE_POSITIONS = 50,

    ROOM = 32768, /* room for each tensor, in floats */
    PLAN_BYTES = 4096,
};

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

/* A call, a run of its plan, and all their memory except the workspace. A refused plan or run may
 * change none of this memory. */
struct memory_of_call {
    attnkit_append_args args;
    attnkit_pages pages;
    attnkit_rotation rotation;
    attnkit_append_data data;
    attnkit_exec exec;
    _Alignas(16) char plan[PLAN_BYTES];
    int64_t starts[BATCH], positions[BATCH];
    int32_t lens[BATCH], block_table[PAGES];
    float src[ROOM], dst[ROOM], scales[ROOM], cos[ROOM], sin[ROOM];
};

static _Alignas(64) char workspace[1 << 16];

static void expect_ok(attnkit_status status, const char *message)
{
    if (status != ATTNKIT_OK || message[0] != '\0')
        fail_msg("%s: %s", attnkit_status_string(status), message);
}

/* The features of a call, as bits. A call without features appends rows of floats. */
enum { ROTATED = 1, PAGED = 2, QUANTISED = 4, TILED = 8, STRIDED = 16, ALL = 31 };

/* Gives src the layout [batch][row][head], with a gap after every row. */
static void stride_src(attnkit_tensor *src)
{
    const int64_t row = (DIM + 3) * 4;
    src->layout = ATTNKIT_STRIDED;
    src->strides[1] = row;
    src->strides[2] = HEADS * row;
    src->strides[0] = LEN * HEADS * row;
}

/* Sets the arguments of the single call, with all addresses. */
static void set_call(struct memory_of_call *c, int options)
{
    c->args = (attnkit_append_args){
        .size = sizeof c->args,
        .batch = BATCH,
        .heads = HEADS,
        .len = LEN,
        .dim = DIM,
        .capacity = CAPACITY,
        .src = {.data = c->src},
        .dst = {.data = c->dst, .layout = options & TILED ? ATTNKIT_TILED : 0},
        .starts = {.data = c->starts},
        .lens = {.data = c->lens, .type = ATTNKIT_INT32},
        .pages = options & PAGED ? &c->pages : NULL,
        .rotation = options & ROTATED ? &c->rotation : NULL,
    };
    c->pages = (attnkit_pages){.size = sizeof c->pages,
                               .block_table = c->block_table,
                               .block_table_stride = PAGES_EACH,
                               .page_size = PAGE_SIZE,
                               .pages = PAGES};
    c->rotation = (attnkit_rotation){.size = sizeof c->rotation,
                                     .kind = ATTNKIT_ROPE_HALF,
                                     .dim = DIM / 2,
                                     .cos = c->cos,
                                     .sin = c->sin,
                                     .table_positions = TABLE_POSITIONS,
                                     .positions = {.data = c->positions}};
    if (options & QUANTISED) {
        c->args.dst.type = ATTNKIT_I8;
        c->args.dst_scales.data = c->scales;
        c->args.scale_group = DIM / 4;
    }
    if (options & STRIDED)
        stride_src(&c->args.src);
}

/* Copies the lengths and addresses of the call to the data of a run. */
static void set_data(struct memory_of_call *c)
{
    const attnkit_append_args *const args = &c->args;
    c->data = (attnkit_append_data){
        .size = sizeof c->data,
        .batch = args->batch,
        .len = args->len,
        .src = args->src.data,
        .dst = (void *)(uintptr_t)args->dst.data,
        .dst_scales = (float *)(uintptr_t)args->dst_scales.data,
        .starts = args->starts.data,
        .lens = args->lens.data,
        .positions = args->rotation ? args->rotation->positions.data : NULL,
        .block_table = args->pages ? args->pages->block_table : NULL,
        .cos = args->rotation ? args->rotation->cos : NULL,
        .sin = args->rotation ? args->rotation->sin : NULL,
    };
}

/* Replaces each address that is not NULL by ATTNKIT_LATER, because planning needs no address. */
static void forget_addresses(struct memory_of_call *c)
{
    c->args.src.data = c->args.dst.data = ATTNKIT_LATER;
    c->args.dst_scales.data = c->args.dst_scales.data ? ATTNKIT_LATER : NULL;
    c->args.starts.data = c->args.lens.data = c->rotation.positions.data = ATTNKIT_LATER;
    c->pages.block_table = ATTNKIT_LATER;
    c->rotation.cos = c->rotation.sin = ATTNKIT_LATER;
}

/* Makes a plan for 2 threads and the data of a valid run. The next call of this function overwrites
 * the plan and the data. */
static struct memory_of_call *good_plan(int options, const char *isa)
{
    static struct memory_of_call c;
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    uint64_t random = (uint64_t)options;
    memset(&c, 0, sizeof c);
    for (int i = 0; i < ROOM; i++) {
        c.src[i] = random_uniform(&random);
        c.cos[i] = random_uniform(&random);
        c.sin[i] = random_uniform(&random);
    }
    for (int b = 0; b < BATCH; b++) {
        c.starts[b] = 7 * b + 13;
        c.lens[b] = LEN - b;
        c.positions[b] = 11 * b;
    }
    for (int i = 0; i < PAGES; i++)
        c.block_table[i] = PAGES - 1 - i;
    set_call(&c, options);
    set_data(&c);
    forget_addresses(&c);
    c.exec = (attnkit_exec){.size = sizeof c.exec,
                            .workspace = workspace,
                            .workspace_size = sizeof workspace,
                            .isa = isa,
                            .threads = 2};
    expect_ok(attnkit_append_plan(&c.args, &c.exec, c.plan, sizeof c.plan, message), message);
    return &c;
}

/* --- Bytes ------------------------------------------------------------------------------------ */

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

/* Runs the plan in a workspace of exactly the bytes that the plan asks for. The plan lies in a page
 * that cannot be written. In a parallel-for, the tasks run backwards. Without a parallel-for, the
 * test makes one run for each thread, one after the other. */
static void run_plan(struct memory_of_call *c, int64_t threads, bool by_parallel_for)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    void *const plan =
        mmap(NULL, PLAN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(plan != MAP_FAILED);
    memcpy(plan, c->plan, attnkit_append_plan_size());
    assert_int_equal(mprotect(plan, PLAN_BYTES, PROT_READ), 0);
    attnkit_exec exec = {.size = sizeof exec,
                         .threads = threads,
                         .parallel_for = by_parallel_for ? backwards : NULL};
    expect_ok(attnkit_append_plan_workspace(plan, &exec.workspace_size, message), message);
    struct guarded memory = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = memory.data;
    for (exec.thread = by_parallel_for ? 0 : threads - 1; exec.thread >= 0; exec.thread--)
        expect_ok(attnkit_append_run(plan, &c->data, &exec, message), message);
    memory_unguard(&memory);
    munmap(plan, PLAN_BYTES);
}

/* Makes the single call with the numbers of batch entries and rows of the run. The tensors of the
 * call have the strides of the planned tensors. */
static void run_single(struct memory_of_call *c, int options, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_exec exec = {.size = sizeof exec,
                               .workspace = workspace,
                               .workspace_size = sizeof workspace,
                               .isa = isa};
    set_call(c, options);
    if (!(options & STRIDED)) {
        c->args.src.layout = ATTNKIT_STRIDED;
        c->args.src.strides[2] = DIM * 4;
        c->args.src.strides[1] = LEN * DIM * 4;
        c->args.src.strides[0] = HEADS * LEN * DIM * 4;
    }
    c->args.batch = c->data.batch;
    c->args.len = c->data.len;
    expect_ok(attnkit_append(&c->args, &exec, message), message);
}

static void check_run(int options, int64_t batch, int64_t len, const char *isa)
{
    static float dst[ROOM], scales[ROOM];
    struct memory_of_call *const c = good_plan(options, isa);
    c->data.batch = batch;
    c->data.len = len;
    for (int b = 0; b < BATCH; b++)
        c->lens[b] = len > b ? (int32_t)(len - b) : 0;
    run_plan(c, 1 + (options + batch) % 2, len % 2);
    memcpy(dst, c->dst, sizeof dst);
    memcpy(scales, c->scales, sizeof scales);
    memset(c->dst, 0, sizeof c->dst);
    memset(c->scales, 0, sizeof c->scales);
    run_single(c, options, isa);
    assert_memory_equal(c->dst, dst, sizeof dst);
    assert_memory_equal(c->scales, scales, sizeof scales);
}

static void a_run_has_the_bytes_of_a_call(void **state)
{
    for (int options = 0; options <= ALL; options++)
        check_run(options, BATCH, LEN, *state);
}

static void lengths_may_be_smaller(void **state)
{
    for (int options = 0; options <= ALL; options++)
        for (int64_t batch = 1; batch <= BATCH; batch++)
            for (int64_t len = 1; len <= LEN; len += 2)
                check_run(options, batch, len, *state);
}

static void arrays_may_be_null(void **state)
{
    static float dst[ROOM];
    struct memory_of_call *const c = good_plan(0, *state);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    c->args.starts.data = c->args.lens.data = NULL;
    expect_ok(attnkit_append_plan(&c->args, &c->exec, c->plan, sizeof c->plan, message), message);
    c->data.starts = c->data.lens = NULL;
    c->data.len = 2;
    run_plan(c, 2, true);
    for (int i = 0; i < BATCH * HEADS; i++)
        memcpy(dst + i * CAPACITY * DIM, c->src + i * LEN * DIM, 2 * DIM * sizeof *dst);
    assert_memory_equal(c->dst, dst, sizeof dst);
}

static void a_rotation_in_place_may_be_planned(void **state)
{
    static float expected[ROOM];
    struct memory_of_call *const c = good_plan(ROTATED, *state);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    c->args.starts.data = NULL;
    c->args.capacity = LEN;
    expect_ok(attnkit_append_plan(&c->args, &c->exec, c->plan, sizeof c->plan, message), message);
    c->data.starts = NULL;
    c->data.batch = 2;
    c->data.len = 3;
    c->lens[0] = c->lens[1] = 3;
    memcpy(c->dst, c->src, sizeof c->dst);
    run_plan(c, 1, false);
    memcpy(expected, c->dst, sizeof expected);
    c->data.dst = c->src;
    run_plan(c, 2, true);
    assert_memory_equal(c->src, expected, sizeof expected);
}

static void a_plan_may_be_copied(void **state)
{
    struct memory_of_call *const c = good_plan(ROTATED | PAGED, *state);
    const size_t size = attnkit_append_plan_size();
    void *const copy = aligned_alloc(16, (size + 15) / 16 * 16);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    static float dst[ROOM];
    memcpy(copy, c->plan, size);
    run_plan(c, 1, false);
    memcpy(dst, c->dst, sizeof dst);
    memset(c->plan, 0xff, sizeof c->plan);
    memset(c->dst, 0, sizeof c->dst);
    c->exec.threads = 1;
    expect_ok(attnkit_append_run(copy, &c->data, &c->exec, message), message);
    assert_memory_equal(c->dst, dst, sizeof dst);
    free(copy);
}

/* --- Threads ---------------------------------------------------------------------------------- */

enum { RUNS = 200 };

/* A thread that runs the plan on its own cache. */
struct runner_thread {
    pthread_t thread;
    const struct memory_of_call *call;
    float dst[ROOM];
    char workspace[4096];
    int64_t wrong;
};

static void *run_often(void *arg)
{
    struct runner_thread *const t = arg;
    attnkit_append_data data = t->call->data;
    const attnkit_exec exec = {
        .size = sizeof exec, .workspace = t->workspace, .workspace_size = sizeof t->workspace};
    data.dst = t->dst;
    for (int i = 0; i < RUNS; i++) {
        memset(t->dst, 0, sizeof t->dst);
        t->wrong += attnkit_append_run(t->call->plan, &data, &exec, NULL) != ATTNKIT_OK;
        t->wrong += memcmp(t->dst, t->call->dst, sizeof t->dst) != 0;
    }
    return NULL;
}

static void threads_run_one_plan_at_the_same_time(void **state)
{
    enum { THREADS = 2 };
    static struct runner_thread threads[THREADS];
    struct memory_of_call *const c = good_plan(ROTATED | PAGED, *state);
    run_plan(c, 1, false);
    for (int i = 0; i < THREADS; i++) {
        threads[i].call = c;
        threads[i].wrong = 0;
        assert_int_equal(pthread_create(&threads[i].thread, NULL, run_often, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].thread, NULL);
        assert_int_equal(threads[i].wrong, 0);
    }
}

/* --- Refusals --------------------------------------------------------------------------------- */

static void expect_run_refusal(const struct memory_of_call *c, const void *plan,
                               attnkit_status expected, const char *text)
{
    static struct memory_of_call before;
    memcpy(&before, c, sizeof before);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_append_run(plan, &c->data, &c->exec, message);
    if (status != expected || !strstr(message, text))
        fail_msg("expected \"%s\": got %s, \"%s\"", text, attnkit_status_string(status), message);
    assert_int_equal(attnkit_append_run(plan, &c->data, &c->exec, NULL), expected);
    assert_memory_equal(c, &before, sizeof before);
}

static void expect_plan_refusal(const struct memory_of_call *c, void *plan, size_t size,
                                attnkit_status expected, const char *text)
{
    static struct memory_of_call before;
    memcpy(&before, c, sizeof before);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_append_plan(&c->args, &c->exec, plan, size, message);
    if (status != expected || !strstr(message, text))
        fail_msg("expected \"%s\": got %s, \"%s\"", text, attnkit_status_string(status), message);
    assert_memory_equal(c, &before, sizeof before);
}

struct refusal {
    const char *text;
    size_t field, size;
    int64_t value;
    attnkit_status status;
};

#define SET(name, value)                                                                           \
    offsetof(struct memory_of_call, name), sizeof(((struct memory_of_call *)0)->name), value

static const attnkit_status bad = ATTNKIT_BAD_ARGUMENT;

static struct memory_of_call *changed(const struct refusal *r, int options, const char *isa)
{
    struct memory_of_call *const c = good_plan(options, isa);
    const int32_t narrow = (int32_t)r->value;
    memcpy((char *)c + r->field, r->size == 4 ? (const void *)&narrow : &r->value, r->size);
    return c;
}

static void bad_plans_are_refused(void **state)
{
    struct memory_of_call *const c = good_plan(ALL, *state);
    const size_t size = attnkit_append_plan_size();
    expect_plan_refusal(c, NULL, size, bad, "plan is NULL");
    expect_plan_refusal(c, c->plan + 4, size, bad, "must be aligned to 16 bytes");
    expect_plan_refusal(c, c->plan, size - 1, bad, "plan_size is ");
    const struct refusal table[] = {
        {"attnkit_append_args.size is 8", SET(args.size, 8), bad},
        {"attnkit_rotation.size is 8", SET(rotation.size, 8), bad},
        {"batch is -1", SET(args.batch, -1), bad},
        {"src.type is 3", SET(args.src.type, 3), ATTNKIT_UNSUPPORTED},
        {"rotation.kind is 9", SET(rotation.kind, 9), ATTNKIT_UNSUPPORTED},
        {"page_size is 24", SET(pages.page_size, 24), bad},
        {"batch x len is", SET(args.len, INT64_MAX), ATTNKIT_OVERFLOW},
        {"exec.threads is -2", SET(exec.threads, -2), bad},
    };
    for (int64_t i = 0; i < COUNT(table); i++)
        expect_plan_refusal(changed(&table[i], ALL, *state), c->plan, size, table[i].status,
                            table[i].text);
    good_plan(ALL, *state)->exec.isa = "none";
    expect_plan_refusal(c, c->plan, size, ATTNKIT_BAD_ISA, "none");
    assert_int_equal(attnkit_append_plan(NULL, NULL, c->plan, size, NULL), bad);
}

static void memory_without_a_plan_is_refused(void **state)
{
    static const char text[] = "is not what attnkit_append_plan of this library wrote";
    struct memory_of_call *const c = good_plan(0, *state);
    _Alignas(16) static char other[PLAN_BYTES];
    size_t bytes = 12345;
    expect_run_refusal(c, NULL, bad, "plan is NULL");
    expect_run_refusal(c, other, bad, text);
    expect_run_refusal(c, c->plan + 8, bad, text);
    assert_int_equal(attnkit_append_plan_workspace(other, &bytes, NULL), bad);
    assert_int_equal(attnkit_append_plan_workspace(NULL, &bytes, NULL), bad);
    assert_int_equal(attnkit_append_plan_workspace(c->plan, NULL, NULL), bad);
    assert_int_equal(bytes, 12345);
    const attnkit_linear_args args = {.size = sizeof args, .rows = 1, .in_dim = 1, .out_dim = 1};
    assert_int_equal(attnkit_linear_plan(&args, &c->exec, other, sizeof other, NULL), ATTNKIT_OK);
    expect_run_refusal(c, other, bad, text);
}

static void another_instruction_set_is_refused(void **state)
{
    struct memory_of_call *const c = good_plan(0, *state);
    c->exec.threads = 1;
    assert_int_equal(attnkit_append_run(c->plan, &c->data, &c->exec, NULL), ATTNKIT_OK);
    c->exec.isa = strcmp(*state, "scalar") == 0 ? "avx2" : "scalar";
    expect_run_refusal(c, c->plan, ATTNKIT_BAD_ISA, "the plan is for \"");
}

static void bad_runs_are_refused(void **state)
{
    const struct refusal table[] = {
        {"attnkit_append_data.size is 0", SET(data.size, 0), bad},
        {"attnkit_exec.size is 7", SET(exec.size, 7), bad},
        {"batch is 4: must be between 0 and the planned value (3)", SET(data.batch, 4), bad},
        {"batch is -1: must be between 0", SET(data.batch, -1), bad},
        {"len is 6: must be between 0 and the planned value (5)", SET(data.len, 6), bad},
        {"len is -1: must be between 0", SET(data.len, -1), bad},
        {"exec.threads is 3: the plan is for at most 2", SET(exec.threads, 3), bad},
        {"src is NULL", SET(data.src, 0), bad},
        {"dst is NULL", SET(data.dst, 0), bad},
        {"dst_scales is NULL", SET(data.dst_scales, 0), bad},
        {"starts is NULL", SET(data.starts, 0), bad},
        {"lens is NULL", SET(data.lens, 0), bad},
        {"positions is NULL", SET(data.positions, 0), bad},
        {"block_table is NULL", SET(data.block_table, 0), bad},
        {"rotation.cos is NULL", SET(data.cos, 0), bad},
        {"rotation.sin is NULL", SET(data.sin, 0), bad},
        {"starts[1] is -1: must be at least 0", SET(starts[1], -1), bad},
        {"capacity is 40: batch entry 0 has 5 rows from row 36 on", SET(starts[0], 36), bad},
        {"lens[0] is 6: must be between 0 and len (5)", SET(lens[0], 6), bad},
        {"lens[0] is 5: must be between 0 and len (3)", SET(data.len, 3), bad},
        {"positions[2] is -1", SET(positions[2], -1), bad},
        {"rotation.table_positions is 50: batch entry 0 has", SET(positions[0], 46), bad},
        {"block_table[1] is 9: must be between 0 and pages - 1 (8)", SET(block_table[1], 9), bad},
        {"block_table[7] is -1: must be between", SET(block_table[7], -1), bad},
        {"exec.workspace is NULL", SET(exec.workspace, 0), ATTNKIT_BAD_WORKSPACE},
        {"exec.workspace_size is 10: ", SET(exec.workspace_size, 10), ATTNKIT_BAD_WORKSPACE},
    };
    const int options = ROTATED | PAGED | QUANTISED | TILED;
    for (int64_t i = 0; i < COUNT(table); i++) {
        struct memory_of_call *const c = changed(&table[i], options, *state);
        expect_run_refusal(c, c->plan, table[i].status, table[i].text);
    }
    struct memory_of_call *const c = good_plan(options, *state);
    assert_int_equal(attnkit_append_run(c->plan, NULL, &c->exec, NULL), bad);
    assert_int_equal(attnkit_append_run(c->plan, &c->data, NULL, NULL), ATTNKIT_BAD_WORKSPACE);
}

/* A run must not pass a pointer that was NULL at planning. */
static void memory_that_was_not_planned_is_refused(void **state)
{
    const struct {
        const char *text;
        size_t field;
    } fields[] = {
        {"dst_scales is given, but the plan has none", offsetof(attnkit_append_data, dst_scales)},
        {"starts is given, but the plan has none", offsetof(attnkit_append_data, starts)},
        {"lens is given, but the plan has none", offsetof(attnkit_append_data, lens)},
        {"positions is given, but the plan has none", offsetof(attnkit_append_data, positions)},
        {"block_table is given, but the plan has none", offsetof(attnkit_append_data, block_table)},
        {"rotation.cos is given, but the plan has none", offsetof(attnkit_append_data, cos)},
        {"rotation.sin is given, but the plan has none", offsetof(attnkit_append_data, sin)},
    };
    for (int64_t i = 0; i < COUNT(fields); i++) {
        struct memory_of_call *const c = good_plan(0, *state);
        const void *const given = c->scales;
        c->args.starts.data = c->args.lens.data = NULL;
        assert_int_equal(attnkit_append_plan(&c->args, &c->exec, c->plan, sizeof c->plan, NULL),
                         ATTNKIT_OK);
        c->data.starts = c->data.lens = NULL;
        memcpy((char *)&c->data + fields[i].field, &given, sizeof given);
        expect_run_refusal(c, c->plan, bad, fields[i].text);
    }
}

static void bad_addresses_of_a_run_are_refused(void **state)
{
    const char *const names[] = {"dst",          "dst_scales",   "src",
                                 "rotation.cos", "rotation.sin", "starts",
                                 "lens",         "positions",    "block_table"};
    const size_t fields[] = {
        offsetof(attnkit_append_data, dst),        offsetof(attnkit_append_data, dst_scales),
        offsetof(attnkit_append_data, src),        offsetof(attnkit_append_data, cos),
        offsetof(attnkit_append_data, sin),        offsetof(attnkit_append_data, starts),
        offsetof(attnkit_append_data, lens),       offsetof(attnkit_append_data, positions),
        offsetof(attnkit_append_data, block_table)};
    static const int64_t inside[BATCH * 8];
    for (int64_t i = 0; i < COUNT(fields); i++) {
        char text[60];
        struct memory_of_call *const c = good_plan(ROTATED | PAGED | QUANTISED, *state);
        const void *address = (const char *)inside + 2;
        if (i > 0) { /* dst, field 0, has bytes, which need no alignment */
            memcpy((char *)&c->data + fields[i], &address, sizeof address);
            snprintf(text, sizeof text, "%s is 0x", names[i]);
            expect_run_refusal(c, c->plan, bad, text);
        }
        good_plan(ROTATED | PAGED | QUANTISED, *state);
        address = workspace;
        memcpy((char *)&c->data + fields[i], &address, sizeof address);
        memset(workspace, 0, 4096); /* zeros are valid in every array */
        snprintf(text, sizeof text, "overlaps %s", names[i]);
        expect_run_refusal(c, c->plan, ATTNKIT_BAD_WORKSPACE, text);
        if (i == 0)
            continue;
        good_plan(ROTATED | PAGED | QUANTISED, *state);
        address = c->dst;
        memcpy((char *)&c->data + fields[i], &address, sizeof address);
        expect_run_refusal(c, c->plan, bad, text);
    }
}

static void calls_with_nothing_to_do_need_no_memory(void **state)
{
    struct memory_of_call *const c = good_plan(ALL, *state);
    attnkit_append_data data = {.size = sizeof data, .batch = BATCH};
    assert_int_equal(attnkit_append_run(c->plan, &data, NULL, NULL), ATTNKIT_OK);
    data.batch = 0;
    data.len = LEN;
    assert_int_equal(attnkit_append_run(c->plan, &data, NULL, NULL), ATTNKIT_OK);
    c->args.heads = 0;
    size_t bytes = 1;
    assert_int_equal(attnkit_append_plan(&c->args, NULL, c->plan, sizeof c->plan, NULL),
                     ATTNKIT_OK);
    assert_int_equal(attnkit_append_plan_workspace(c->plan, &bytes, NULL), ATTNKIT_OK);
    assert_int_equal(bytes, 0);
    data.batch = BATCH;
    assert_int_equal(attnkit_append_run(c->plan, &data, NULL, NULL), ATTNKIT_OK);
}

static void a_plan_has_the_workspace_of_the_call(void **state)
{
    struct memory_of_call *const c = good_plan(ALL, *state);
    size_t call, plan;
    assert_int_equal(attnkit_append_workspace(&c->args, &c->exec, &call, NULL), ATTNKIT_OK);
    assert_int_equal(attnkit_append_plan_workspace(c->plan, &plan, NULL), ATTNKIT_OK);
    assert_int_equal(call, plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest promises[] = {
        cmocka_unit_test(a_run_has_the_bytes_of_a_call),
        cmocka_unit_test(lengths_may_be_smaller),
        cmocka_unit_test(arrays_may_be_null),
        cmocka_unit_test(a_rotation_in_place_may_be_planned),
        cmocka_unit_test(a_plan_may_be_copied),
        cmocka_unit_test(threads_run_one_plan_at_the_same_time),
        cmocka_unit_test(bad_plans_are_refused),
        cmocka_unit_test(memory_without_a_plan_is_refused),
        cmocka_unit_test(another_instruction_set_is_refused),
        cmocka_unit_test(bad_runs_are_refused),
        cmocka_unit_test(memory_that_was_not_planned_is_refused),
        cmocka_unit_test(bad_addresses_of_a_run_are_refused),
        cmocka_unit_test(calls_with_nothing_to_do_need_no_memory),
        cmocka_unit_test(a_plan_has_the_workspace_of_the_call),
    };
    const int failed = promises_main("append_plan", promises, (int)COUNT(promises), argc, argv);
    memory_end();
    return failed;
}
