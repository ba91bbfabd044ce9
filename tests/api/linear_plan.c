/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests planned linear maps. A run has the bits of the reference, as a call without a plan has. A
 * run may have fewer rows and threads than planned. A plan may be copied to another address.
 * Several threads may run one plan at once. A refused plan or run writes nothing, and its message
 * names the argument.
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
#include "tests/support/linear_call.h"

enum {
    ROUNDED_TYPES = 3, /* number of types that x and y can have */
    MOST_ROWS = 300,
    PLAN_BYTES = 4096, /* room for a plan: one page */
};

#define COUNT(table) ((int64_t)(sizeof(table) / sizeof(table)[0]))

static void expect_ok(attnkit_status status, const char *message)
{
    if (status != ATTNKIT_OK || message[0] != '\0')
        fail_msg("%s: %s", attnkit_status_string(status), message);
}

/* --- Bits ------------------------------------------------------------------------------------- */

/* Makes a plan without addresses for `rows` rows. The plan lies in a page of its own, which nobody
 * can write to after planning. */
static void *new_plan(const struct linear_call *c, int64_t rows, struct runner runner)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    attnkit_linear_args args = c->args;
    const attnkit_exec exec = {.size = sizeof exec, .isa = runner.isa, .threads = runner.threads};
    void *const plan =
        mmap(NULL, PLAN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(plan != MAP_FAILED && attnkit_linear_plan_size() <= PLAN_BYTES);
    args.rows = rows;
    args.x.data = args.w.data = args.y.data = ATTNKIT_LATER;
    args.bias = args.bias ? ATTNKIT_LATER : NULL;
    expect_ok(attnkit_linear_plan(&args, &exec, plan, PLAN_BYTES, message), message);
    assert_int_equal(mprotect(plan, PLAN_BYTES, PROT_READ), 0);
    return plan;
}

static void free_plan(void *plan)
{
    munmap(plan, PLAN_BYTES);
}

static attnkit_linear_data data_of(const struct linear_call *c)
{
    return (attnkit_linear_data){.size = sizeof(attnkit_linear_data),
                                 .rows = c->args.rows,
                                 .x = c->args.x.data,
                                 .w = c->args.w.data,
                                 .bias = c->args.bias,
                                 .y = (void *)(uintptr_t)c->args.y.data};
}

static void twice_and_backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i),
                                void *arg)
{
    (void)pool;
    for (int64_t i = 2 * n; i-- > 0;)
        task(arg, i % n);
}

/* Runs the plan in a workspace of exactly the bytes that the plan asks for. 2 threads run in a
 * parallel-for. For any other number of threads, the test makes one run for each thread, one after
 * the other. */
static void run_plan(const struct linear_call *c, const void *plan, int64_t threads)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_linear_data data = data_of(c);
    attnkit_exec exec = {.size = sizeof exec,
                         .threads = threads,
                         .parallel_for = threads == 2 ? twice_and_backwards : NULL};
    expect_ok(attnkit_linear_plan_workspace(plan, &exec.workspace_size, message), message);
    struct guarded workspace = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = workspace.data;
    for (exec.thread = threads == 2 ? 0 : threads - 1; exec.thread >= 0; exec.thread--)
        expect_ok(attnkit_linear_run(plan, &data, &exec, message), message);
    memory_unguard(&workspace);
}

static void expect_reference(const struct linear_call *c)
{
    char *const expected = linear_call_reference(c), *const y = linear_call_take(c);
    assert_non_null(y);
    assert_true(linear_call_same(c, y, expected, c->args.rows));
    free(expected);
    free(y);
}

/* The runs have all matrix types, all layouts, and all types of x and y, but not in every
 * combination. Their plans are for as many rows and threads as the runs have, or for more. */
static void a_run_has_the_bits_of_a_call(void **state)
{
    static const int64_t rows[] = {1, 2, 9, 33, 257}, more[] = {0, 1, 300};
    for (int w = 0; w < MATRIX_CONVERSIONS; w++)
        for (int i = 0; i < TENSOR_LAYOUTS; i++) {
            const struct linear_kind k = {.x_type = i % ROUNDED_TYPES,
                                          .w_type = matrix_conversions[w][0],
                                          .packed_type = matrix_conversions[w][1],
                                          .y_type = (i + w) % ROUNDED_TYPES,
                                          .bias = w % 2,
                                          .layout = tensor_layouts[i],
                                          .integers =
                                              matrix_conversions[w][1] == ATTNKIT_Q8_0 && i % 2};
            const struct linear_shape shape = {rows[(w + i) % COUNT(rows)], 96, 70};
            const int64_t threads = 1 + (w + i) % 4;
            const struct runner runner = {.isa = *state, .threads = threads + i % 3};
            struct linear_call *const c = linear_call_new(&k, shape, (uint64_t)w);
            void *const plan = new_plan(c, shape.rows + more[i % COUNT(more)], runner);
            linear_call_pack(c, runner);
            run_plan(c, plan, threads);
            expect_reference(c);
            free_plan(plan);
            linear_call_free(c);
        }
}

static void check_fewer_rows(attnkit_type packed_type, struct runner runner)
{
    const struct linear_kind k = {.packed_type = packed_type, .bias = true, .layout = PADDED};
    struct linear_call *const c = linear_call_new(&k, (struct linear_shape){MOST_ROWS, 40, 100}, 1);
    void *const plan = new_plan(c, MOST_ROWS, runner);
    linear_call_pack(c, runner);
    for (int64_t rows = MOST_ROWS; rows > 0; rows -= rows > 34 ? 19 : 1) {
        struct linear_call part = *c;
        part.args.rows = part.x.count[2] = part.y.count[2] = rows;
        run_plan(&part, plan, 1 + rows % 3);
        expect_reference(&part);
    }
    free_plan(plan);
    linear_call_free(c);
}

/* One plan serves runs of 1 to 34 rows, and of several larger numbers of rows. few_product takes at
 * most some number of rows. This number is at most 16, and depends on the instruction set and on
 * whether the matrix is f32. */
static void rows_may_be_fewer(void **state)
{
    const struct runner runner = {.isa = *state, .threads = 3};
    check_fewer_rows(ATTNKIT_F32, runner);
    check_fewer_rows(ATTNKIT_F16, runner);
}

static void a_plan_serves_all_matrices_of_its_shape(void **state)
{
    const struct linear_kind k = {.bias = true};
    const struct linear_shape shape = {5, 64, 40};
    const struct runner runner = {.isa = *state, .threads = 1};
    void *plan = NULL;
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct linear_call *const c = linear_call_new(&k, shape, seed);
        plan = plan ? plan : new_plan(c, shape.rows, runner);
        linear_call_pack(c, runner);
        run_plan(c, plan, 1);
        expect_reference(c);
        linear_call_free(c);
    }
    free_plan(plan);
}

static void a_plan_may_be_copied(void **state)
{
    const struct linear_kind k = {.bias = true};
    const struct runner runner = {.isa = *state, .threads = 2};
    struct linear_call *const c = linear_call_new(&k, (struct linear_shape){5, 64, 40}, 1);
    void *const plan = new_plan(c, 7, runner);
    void *const copy = aligned_alloc(16, (attnkit_linear_plan_size() + 15) / 16 * 16);
    memcpy(copy, plan, attnkit_linear_plan_size());
    free_plan(plan);
    linear_call_pack(c, runner);
    run_plan(c, copy, 2);
    expect_reference(c);
    free(copy);
    linear_call_free(c);
}

/* --- Threads ---------------------------------------------------------------------------------- */

enum { RUNS = 200, RUN_ROWS = 3, RUN_IN = 48, RUN_OUT = 80 };

/* A thread that runs the plan on its own x and y. */
struct runner_thread {
    pthread_t thread;
    const void *plan;
    const void *w;
    float x[RUN_ROWS * RUN_IN], y[RUN_ROWS * RUN_OUT], expected[RUN_ROWS * RUN_OUT];
    char workspace[1 << 20];
    int64_t wrong;
};

static void *run_often(void *arg)
{
    struct runner_thread *const t = arg;
    const attnkit_linear_data data = {
        .size = sizeof data, .rows = RUN_ROWS, .x = t->x, .w = t->w, .y = t->y};
    const attnkit_exec exec = {
        .size = sizeof exec, .workspace = t->workspace, .workspace_size = sizeof t->workspace};
    for (int i = 0; i < RUNS; i++) {
        memset(t->y, 0, sizeof t->y);
        t->wrong += attnkit_linear_run(t->plan, &data, &exec, NULL) != ATTNKIT_OK;
        t->wrong += memcmp(t->y, t->expected, sizeof t->y) != 0;
    }
    return NULL;
}

static void threads_run_one_plan_at_the_same_time(void **state)
{
    enum { THREADS = 2 };
    static struct runner_thread threads[THREADS];
    const struct linear_kind k = {.bias = false};
    const struct runner runner = {.isa = *state, .threads = 1};
    struct linear_call *const c =
        linear_call_new(&k, (struct linear_shape){RUN_ROWS, RUN_IN, RUN_OUT}, 1);
    void *const plan = new_plan(c, RUN_ROWS, runner);
    linear_call_pack(c, runner);
    for (int i = 0; i < THREADS; i++) {
        struct runner_thread *const t = &threads[i];
        memset(t, 0, sizeof *t);
        t->plan = plan;
        t->w = c->args.w.data;
        for (int j = 0; j < RUN_ROWS * RUN_IN; j++)
            t->x[j] = (float)(j % (7 + i)) - 3.0f;
        attnkit_linear_args args = c->args;
        args.x.data = t->x;
        args.y.data = t->expected;
        const attnkit_exec exec = {.size = sizeof exec,
                                   .workspace = t->workspace,
                                   .workspace_size = sizeof t->workspace,
                                   .isa = runner.isa};
        assert_int_equal(attnkit_linear(&args, &exec, NULL), ATTNKIT_OK);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i].thread, NULL, run_often, &threads[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].thread, NULL);
        assert_int_equal(threads[i].wrong, 0);
    }
    free_plan(plan);
    linear_call_free(c);
}

/* --- Refusals --------------------------------------------------------------------------------- */

enum { ROWS = 5, IN_DIM = 64, OUT_DIM = 20, ROOM = 4096, MARGIN = 1024 };

/* A plan, the data of a run, and all their memory except the workspace. A refused plan or run may
 * change none of this memory. */
struct memory_of_call {
    attnkit_linear_args args;
    attnkit_linear_data data;
    attnkit_exec exec;
    _Alignas(16) char plan[PLAN_BYTES];
    float x[ROOM], y[ROOM], bias[ROOM];
    _Alignas(64) float packed[ROOM];
};

static _Alignas(64) char workspace[1 << 20];

static struct memory_of_call *good_plan(const char *isa)
{
    static struct memory_of_call c;
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    memset(&c, 0, sizeof c);
    c.args = (attnkit_linear_args){.size = sizeof c.args,
                                   .rows = ROWS,
                                   .in_dim = IN_DIM,
                                   .out_dim = OUT_DIM,
                                   .bias = ATTNKIT_LATER};
    c.data = (attnkit_linear_data){.size = sizeof c.data,
                                   .rows = ROWS,
                                   .x = c.x + MARGIN,
                                   .w = c.packed + MARGIN,
                                   .bias = c.bias + MARGIN,
                                   .y = c.y + MARGIN};
    c.exec = (attnkit_exec){.size = sizeof c.exec,
                            .workspace = workspace,
                            .workspace_size = sizeof workspace,
                            .isa = isa,
                            .threads = 2};
    expect_ok(attnkit_linear_plan(&c.args, &c.exec, c.plan, sizeof c.plan, message), message);
    c.exec.parallel_for = twice_and_backwards;
    return &c;
}

static void expect_right(const struct memory_of_call *c)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    expect_ok(attnkit_linear_run(c->plan, &c->data, &c->exec, message), message);
}

static void expect_run_refusal(const struct memory_of_call *c, const void *plan,
                               attnkit_status expected, const char *text)
{
    static struct memory_of_call before;
    memcpy(&before, c, sizeof before);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_linear_run(plan, &c->data, &c->exec, message);
    if (status != expected || !strstr(message, text))
        fail_msg("expected \"%s\": got %s, \"%s\"", text, attnkit_status_string(status), message);
    assert_int_equal(attnkit_linear_run(plan, &c->data, &c->exec, NULL), expected);
    assert_memory_equal(c, &before, sizeof before);
}

static void expect_plan_refusal(const struct memory_of_call *c, void *plan, size_t size,
                                attnkit_status expected, const char *text)
{
    static struct memory_of_call before;
    memcpy(&before, c, sizeof before);
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_linear_plan(&c->args, &c->exec, plan, size, message);
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

static struct memory_of_call *changed(const struct refusal *r, const char *isa)
{
    struct memory_of_call *const c = good_plan(isa);
    const int32_t narrow = (int32_t)r->value;
    memcpy((char *)c + r->field, r->size == 4 ? (const void *)&narrow : &r->value, r->size);
    return c;
}

static const attnkit_status bad = ATTNKIT_BAD_ARGUMENT;

static void bad_plans_are_refused(void **state)
{
    struct memory_of_call *const c = good_plan(*state);
    const size_t size = attnkit_linear_plan_size();
    expect_plan_refusal(c, NULL, size, bad, "plan is NULL");
    expect_plan_refusal(c, c->plan + 8, size, bad, "must be aligned to 16 bytes");
    expect_plan_refusal(c, c->plan, size - 1, bad, "plan_size is ");
    const struct refusal table[] = {
        {"attnkit_linear_args.size is 8", SET(args.size, 8), bad},
        {"rows is -1", SET(args.rows, -1), bad},
        {"in_dim is 0", SET(args.in_dim, 0), bad},
        {"x.type is 3", SET(args.x.type, 3), ATTNKIT_UNSUPPORTED},
        {"y.layout is 0x4", SET(args.y.layout, 4), ATTNKIT_UNSUPPORTED},
        {"x.strides[2] (row) is 256, but x.layout lacks", SET(args.x.strides[2], 256), bad},
        {"rows x in_dim is", SET(args.rows, INT64_MAX), ATTNKIT_OVERFLOW},
        {"exec.threads is -2", SET(exec.threads, -2), bad},
        {"workspace is ", SET(exec.threads, INT64_MAX / 2), ATTNKIT_OVERFLOW},
    };
    for (int64_t i = 0; i < COUNT(table); i++)
        expect_plan_refusal(changed(&table[i], *state), c->plan, size, table[i].status,
                            table[i].text);
    good_plan(*state)->exec.isa = "none";
    expect_plan_refusal(c, c->plan, size, ATTNKIT_BAD_ISA, "none");
    assert_int_equal(attnkit_linear_plan(NULL, NULL, c->plan, size, NULL), bad);
}

static void memory_without_a_plan_is_refused(void **state)
{
    static const char text[] = "is not what attnkit_linear_plan of this library wrote";
    struct memory_of_call *const c = good_plan(*state);
    _Alignas(16) static char other[PLAN_BYTES];
    size_t bytes = 12345;
    expect_run_refusal(c, NULL, bad, "plan is NULL");
    expect_run_refusal(c, other, bad, text);
    expect_run_refusal(c, c->plan + 8, bad, text);
    assert_int_equal(attnkit_linear_plan_workspace(other, &bytes, NULL), bad);
    assert_int_equal(attnkit_linear_plan_workspace(NULL, &bytes, NULL), bad);
    assert_int_equal(attnkit_linear_plan_workspace(c->plan, NULL, NULL), bad);
    assert_int_equal(bytes, 12345);
    /* The plan of an append is no plan of a linear map. */
    const attnkit_append_args args = {
        .size = sizeof args, .batch = 1, .heads = 1, .len = 1, .dim = 1, .capacity = 1};
    assert_int_equal(attnkit_append_plan(&args, &c->exec, other, sizeof other, NULL), ATTNKIT_OK);
    expect_run_refusal(c, other, bad, text);
    /* The first 12 bytes of a plan say which library wrote the plan, for which call and for which
     * unit. */
    for (int i = 0; i < 12; i++) {
        memcpy(other, c->plan, sizeof other);
        other[i] ^= 64;
        expect_run_refusal(c, other, bad, text);
    }
}

static void another_instruction_set_is_refused(void **state)
{
    struct memory_of_call *const c = good_plan(*state);
    expect_right(c); /* isa names the planned instruction set */
    c->exec.isa = NULL;
    expect_right(c);
    c->exec.isa = strcmp(*state, "scalar") == 0 ? "avx2" : "scalar";
    expect_run_refusal(c, c->plan, ATTNKIT_BAD_ISA, "the plan is for \"");
    c->exec.isa = "none";
    expect_run_refusal(c, c->plan, ATTNKIT_BAD_ISA, "exec.isa is \"none\"");
}

static void another_unit_is_refused(void **state)
{
    struct memory_of_call *const c = good_plan(*state);
    attnkit_isa_choice choice = {.size = sizeof choice};
    char without[64];
    assert_int_equal(attnkit_isa_choose(*state, &choice, NULL), ATTNKIT_OK);
    if (!choice.unit)
        return; /* a call that names only this instruction set uses no unit here */
    c->exec.isa = choice.unit;
    expect_right(c);
    snprintf(without, sizeof without, "%s+none", choice.prefill);
    c->exec.isa = without;
    expect_run_refusal(c, c->plan, ATTNKIT_BAD_ISA, choice.unit);
}

static void bad_runs_are_refused(void **state)
{
    const struct refusal table[] = {
        {"attnkit_linear_data.size is 0", SET(data.size, 0), bad},
        {"attnkit_linear_data.size is 4097", SET(data.size, 4097), bad},
        {"attnkit_exec.size is 7", SET(exec.size, 7), bad},
        {"rows is 6: must be between 0 and the planned value (5)", SET(data.rows, ROWS + 1), bad},
        {"rows is -1: must be between 0", SET(data.rows, -1), bad},
        {"exec.threads is 3: the plan is for at most 2", SET(exec.threads, 3), bad},
        {"exec.threads is -1", SET(exec.threads, -1), bad},
        {"x is NULL", SET(data.x, 0), bad},
        {"w is NULL", SET(data.w, 0), bad},
        {"y is NULL", SET(data.y, 0), bad},
        {"bias is NULL", SET(data.bias, 0), bad},
        {"exec.workspace is NULL", SET(exec.workspace, 0), ATTNKIT_BAD_WORKSPACE},
        {"exec.workspace_size is 10: ", SET(exec.workspace_size, 10), ATTNKIT_BAD_WORKSPACE},
    };
    for (int64_t i = 0; i < COUNT(table); i++) {
        struct memory_of_call *const c = changed(&table[i], *state);
        expect_run_refusal(c, c->plan, table[i].status, table[i].text);
    }
    struct memory_of_call *const c = good_plan(*state);
    assert_int_equal(attnkit_linear_run(c->plan, NULL, &c->exec, NULL), bad);
    assert_int_equal(attnkit_linear_run(c->plan, &c->data, NULL, NULL), ATTNKIT_BAD_WORKSPACE);
}

static void bad_addresses_of_a_run_are_refused(void **state)
{
    const char *const names[] = {"x", "w", "y", "bias"};
    for (int i = 0; i < 4; i++) {
        char text[40];
        struct memory_of_call *c = good_plan(*state);
        const void **const data[] = {&c->data.x, &c->data.w, (const void **)(uintptr_t)&c->data.y,
                                     (const void **)(uintptr_t)&c->data.bias};
        *data[i] = (const char *)*data[i] + 2;
        snprintf(text, sizeof text, "%s is 0x", names[i]);
        expect_run_refusal(c, c->plan, bad, text);
        c = good_plan(*state);
        *data[i] = workspace;
        snprintf(text, sizeof text, "overlaps %s", names[i]);
        expect_run_refusal(c, c->plan, ATTNKIT_BAD_WORKSPACE, text);
        if (i == 2)
            continue;
        c = good_plan(*state);
        c->data.y = (void *)(uintptr_t)*data[i];
        expect_run_refusal(c, c->plan, bad, text);
    }
}

static void a_bias_that_was_not_planned_is_refused(void **state)
{
    struct memory_of_call *const c = good_plan(*state);
    c->args.bias = NULL;
    c->exec.parallel_for = NULL;
    assert_int_equal(attnkit_linear_plan(&c->args, &c->exec, c->plan, sizeof c->plan, NULL),
                     ATTNKIT_OK);
    expect_run_refusal(c, c->plan, bad, "bias is given, but the plan has none");
    c->data.bias = NULL;
    expect_right(c);
}

static void without_rows_no_memory_is_needed(void **state)
{
    struct memory_of_call *const c = good_plan(*state);
    c->data = (attnkit_linear_data){.size = sizeof c->data};
    assert_int_equal(attnkit_linear_run(c->plan, &c->data, NULL, NULL), ATTNKIT_OK);
    c->args.rows = 0;
    size_t bytes = 1;
    assert_int_equal(attnkit_linear_plan(&c->args, NULL, c->plan, sizeof c->plan, NULL),
                     ATTNKIT_OK);
    assert_int_equal(attnkit_linear_plan_workspace(c->plan, &bytes, NULL), ATTNKIT_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(attnkit_linear_run(c->plan, &c->data, NULL, NULL), ATTNKIT_OK);
}

static void a_plan_has_the_workspace_of_the_call(void **state)
{
    struct memory_of_call *const c = good_plan(*state);
    size_t call, plan;
    assert_int_equal(attnkit_linear_workspace(&c->args, &c->exec, &call, NULL), ATTNKIT_OK);
    assert_int_equal(attnkit_linear_plan_workspace(c->plan, &plan, NULL), ATTNKIT_OK);
    assert_int_equal(call, plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest promises[] = {
        cmocka_unit_test(a_run_has_the_bits_of_a_call),
        cmocka_unit_test(rows_may_be_fewer),
        cmocka_unit_test(a_plan_serves_all_matrices_of_its_shape),
        cmocka_unit_test(a_plan_may_be_copied),
        cmocka_unit_test(threads_run_one_plan_at_the_same_time),
        cmocka_unit_test(bad_plans_are_refused),
        cmocka_unit_test(memory_without_a_plan_is_refused),
        cmocka_unit_test(another_instruction_set_is_refused),
        cmocka_unit_test(another_unit_is_refused),
        cmocka_unit_test(bad_runs_are_refused),
        cmocka_unit_test(bad_addresses_of_a_run_are_refused),
        cmocka_unit_test(a_bias_that_was_not_planned_is_refused),
        cmocka_unit_test(without_rows_no_memory_is_needed),
        cmocka_unit_test(a_plan_has_the_workspace_of_the_call),
    };
    const int failed = promises_main("linear_plan", promises, (int)COUNT(promises), argc, argv);
    memory_end();
    return failed;
}
