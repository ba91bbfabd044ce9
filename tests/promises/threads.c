/* SPDX-License-Identifier: Apache-2.0
 *
 * The result is the same however the work is divided and run. Each item is in one share, and each
 * row is in one item. Threads of the caller, and parallel-fors that run tasks in unusual orders,
 * give the bits of one thread. A call can be made on a small stack, in a signal handler, in a
 * forked process, and inside another call.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/attention/schedule.h"
#include "tests/support/groups.h"
#include "tests/support/linear_call.h"
#include "tests/support/random.h"

enum {
    MOST_THREADS = 64,
    MOST_BATCH = 5,
    HEAD_DIM = 16,
    VALUE_DIM = 12,
};

/* Size of the small stack in bytes. With AddressSanitizer, every array of every inlined tile has
 * its own stack memory, and a decode tile takes more than 90 KiB of stack. Without
 * AddressSanitizer, a decode tile takes 8 KiB. */
#ifdef __SANITIZE_ADDRESS__
enum { SMALL_STACK = 256 * 1024 };
#else
enum { SMALL_STACK = 64 * 1024 };
#endif

static const int thread_counts[] = {1, 2, 3, 7, MOST_THREADS};

enum lengths { NO_LENGTHS, ZEROS_AMONG_LENGTHS, ALL_LENGTHS_ZERO };

struct shape {
    int batch, q_heads, kv_heads, q_len, kv_len;
    bool causal;
    enum lengths lengths;
};

static const struct shape shapes[] = {
    {2, 4, 2, 300, 300, true, NO_LENGTHS},         /* prefill, two items for each head */
    {1, 3, 3, 40, 600, false, NO_LENGTHS},         /* two chunks of keys */
    {MOST_BATCH, 4, 2, 1, 700, false, NO_LENGTHS}, /* decode */
    {MOST_BATCH, 4, 2, 1, 700, true, ZEROS_AMONG_LENGTHS},
    {2, 4, 2, 150, 150, true, ZEROS_AMONG_LENGTHS},
    {2, 2, 1, 200, 30, true, ALL_LENGTHS_ZERO},
    {1, 1, 1, 300, 0, false, NO_LENGTHS},
    {1, 1, 1, 1, 5, false, NO_LENGTHS}, /* less work than threads */
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* --- Calls ------------------------------------------------------------------------------- */

/* A call and the memory of its tensors. */
struct call {
    attnkit_attention_args args;
    struct groups groups;
    attnkit_exec exec;
    int64_t kv_lens[MOST_BATCH];
    void *out, *lse; /* the outputs of args */
    size_t out_bytes, lse_bytes;
};

static float *random_floats(int64_t count, uint64_t seed)
{
    float *x = malloc((size_t)count * sizeof *x + 1);
    for (int64_t i = 0; i < count; i++)
        x[i] = random_uniform(&seed);
    return x;
}

static void set_lengths(struct call *c, enum lengths lengths)
{
    if (lengths == NO_LENGTHS)
        return;
    for (int b = 0; b < c->args.batch; b++)
        c->kv_lens[b] = lengths == ALL_LENGTHS_ZERO || b % 2 == 0 ? 0 : c->args.kv_len - b;
    c->groups.visibility.kv_lens.data = c->kv_lens;
}

static struct call *call_new(const struct shape *s, const char *isa)
{
    struct call *c = calloc(1, sizeof *c);
    const int64_t rows = (int64_t)s->batch * s->q_heads * s->q_len;
    const int64_t keys = (int64_t)s->batch * s->kv_heads * s->kv_len;
    c->out_bytes = (size_t)rows * VALUE_DIM * sizeof(float);
    c->lse_bytes = (size_t)rows * sizeof(float);
    c->out = calloc(1, c->out_bytes);
    c->lse = calloc(1, c->lse_bytes);
    c->args = (attnkit_attention_args){
        .size = sizeof c->args,
        .flags = s->causal ? ATTNKIT_CAUSAL : 0,
        .align = s->causal ? ATTNKIT_ALIGN_BOTTOM_RIGHT : ATTNKIT_ALIGN_NONE,
        .batch = s->batch,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .q_len = s->q_len,
        .kv_len = s->kv_len,
        .head_dim = HEAD_DIM,
        .value_dim = VALUE_DIM,
        .q = {.data = random_floats(rows * HEAD_DIM, 1)},
        .k = {.data = random_floats(keys * HEAD_DIM, 2)},
        .v = {.data = random_floats(keys * VALUE_DIM, 3)},
        .out = {.data = c->out},
        .lse = {.data = c->lse},
    };
    groups_init(&c->groups);
    groups_hang(&c->args, &c->groups);
    set_lengths(c, s->lengths);
    c->exec = (attnkit_exec){.size = sizeof c->exec, .isa = isa};
    return c;
}

static void call_free(struct call *c)
{
    free((void *)(uintptr_t)c->args.q.data);
    free((void *)(uintptr_t)c->args.k.data);
    free((void *)(uintptr_t)c->args.v.data);
    free(c->out);
    free(c->lse);
    free(c->exec.workspace);
    free(c);
}

/* Lets the call run on `threads` threads, and allocates the workspace for them. */
static void set_threads(struct call *c, int threads)
{
    c->exec.threads = threads;
    const attnkit_status status =
        attnkit_attention_workspace(&c->args, &c->exec, &c->exec.workspace_size, NULL);
    assert_int_equal(status, ATTNKIT_OK);
    free(c->exec.workspace);
    c->exec.workspace = malloc(c->exec.workspace_size + 1);
}

static void clear_result(struct call *c)
{
    memset(c->out, 0xa5, c->out_bytes);
    memset(c->lse, 0xa5, c->lse_bytes);
}

static bool same_result(const struct call *a, const struct call *b)
{
    return memcmp(a->out, b->out, a->out_bytes) == 0 && memcmp(a->lse, b->lse, a->lse_bytes) == 0;
}

static attnkit_status run(struct call *c)
{
    return attnkit_attention(&c->args, &c->exec, NULL);
}

/* Makes a call and runs it on one thread. */
static struct call *done_call(const struct shape *s, const char *isa)
{
    struct call *c = call_new(s, isa);
    set_threads(c, 1);
    assert_int_equal(run(c), ATTNKIT_OK);
    return c;
}

/* Calls `test` for every instruction set that can run here and every shape. */
static void for_each_isa_and_shape(void (*test)(const struct isa *isa, const struct shape *shape))
{
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t s = 0; attnkit_isa_can_run(&isas[i]) && s < COUNT(shapes); s++)
            test(&isas[i], &shapes[s]);
}

/* --- The cut into shares ----------------------------------------------------------------- */

static void expect_every_item_in_one_share(const struct attention *a, const struct schedule *s)
{
    int64_t next = 0;
    for (int64_t thread = 0; thread < s->threads; thread++) {
        const struct range share = attnkit_share(a, s, thread);
        if (share.first == share.end)
            continue;
        assert_int_equal(share.first, next);
        assert_true(share.end > share.first);
        next = share.end;
    }
    assert_int_equal(next, s->items);
}

static void expect_every_row_in_one_item(const struct attention *a, const struct schedule *s)
{
    const int64_t head_rows = a->q_len * a->group, rows = a->batch * a->kv_heads * head_rows;
    const int64_t room = rows + ROW_BLOCK; /* the extra rows show an item that is too long */
    unsigned char *seen = calloc((size_t)room, 1);
    for (int64_t i = 0; i < s->items; i++) {
        const struct work_item item = attnkit_work_item(a, s, i);
        const int64_t head = item.batch * a->kv_heads + item.kv_head;
        for (int h = 0; h < item.heads; h++)
            for (int r = 0; r < item.panel_rows + item.decode_rows; r++)
                seen[(head + h) * head_rows + item.first_row + r]++;
    }
    int64_t wrong = 0;
    for (int64_t i = 0; i < room; i++)
        wrong += seen[i] != (i < rows);
    assert_int_equal(wrong, 0);
    free(seen);
}

static void check_cut(const struct isa *isa, const struct shape *shape)
{
    struct call *c = call_new(shape, isa->name);
    struct attention a;
    assert_int_equal(attnkit_attention_problem(&c->args, &a, NULL), ATTNKIT_OK);
    for (size_t t = 0; t < COUNT(thread_counts); t++) {
        const struct schedule s = attnkit_schedule(&a, isa->kernels, thread_counts[t]);
        assert_true(s.threads >= 1 && s.threads <= thread_counts[t]);
        expect_every_item_in_one_share(&a, &s);
    }
    call_free(c);
}

static void shares_hold_every_item_once(void **state)
{
    (void)state;
    for_each_isa_and_shape(check_cut);
}

static void items_hold_every_row_once_at_any_length(void **state)
{
    (void)state;
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (int64_t rows = 1; isas[i].kernels && rows <= 2 * ROW_BLOCK + 2; rows++)
            for (int64_t group = 1; group <= 3; group++) {
                const struct attention a = {
                    .batch = 1,
                    .kv_heads = 2,
                    .group = group,
                    .q_len = rows,
                    .kv_len = rows % 2 ? 10 : 1 << 20,
                    .head_dim = HEAD_DIM,
                    .value_dim = VALUE_DIM,
                    .k.dim = HEAD_DIM,
                    .v.dim = VALUE_DIM,
                };
                const struct schedule s = attnkit_schedule(&a, isas[i].kernels, 1);
                expect_every_row_in_one_item(&a, &s);
            }
}

/* --- Threads of the caller --------------------------------------------------------------- */

struct part {
    pthread_t pthread;
    attnkit_attention_args args;
    attnkit_exec exec;
    attnkit_status status;
};

static void *run_part(void *arg)
{
    struct part *part = arg;
    part->status = attnkit_attention(&part->args, &part->exec, NULL);
    return NULL;
}

static void run_on_own_threads(struct call *c)
{
    static struct part parts[MOST_THREADS];
    for (int64_t i = 0; i < c->exec.threads; i++) {
        parts[i] = (struct part){.args = c->args, .exec = c->exec};
        parts[i].exec.thread = i;
        assert_int_equal(pthread_create(&parts[i].pthread, NULL, run_part, &parts[i]), 0);
    }
    for (int64_t i = 0; i < c->exec.threads; i++) {
        pthread_join(parts[i].pthread, NULL);
        assert_int_equal(parts[i].status, ATTNKIT_OK);
    }
}

static void check_own_threads(const struct isa *isa, const struct shape *shape)
{
    struct call *expected = done_call(shape, isa->name), *c = call_new(shape, isa->name);
    for (size_t t = 0; t < COUNT(thread_counts); t++) {
        set_threads(c, thread_counts[t]);
        clear_result(c);
        run_on_own_threads(c);
        assert_true(same_result(c, expected));
    }
    call_free(expected);
    call_free(c);
}

static void threads_of_the_caller_give_the_bits_of_one_thread(void **state)
{
    (void)state;
    for_each_isa_and_shape(check_own_threads);
}

/* --- Parallel-for ------------------------------------------------------------------------ */

typedef void task_function(void *arg, int64_t i);

static void in_order(void *pool, int64_t n, task_function *task, void *arg)
{
    (void)pool;
    for (int64_t i = 0; i < n; i++)
        task(arg, i);
}

static void in_reverse(void *pool, int64_t n, task_function *task, void *arg)
{
    (void)pool;
    for (int64_t i = n - 1; i >= 0; i--)
        task(arg, i);
}

static void each_twice(void *pool, int64_t n, task_function *task, void *arg)
{
    (void)pool;
    for (int64_t i = 0; i < 2 * n; i++)
        task(arg, i / 2);
}

static void all_and_then_all_again(void *pool, int64_t n, task_function *task, void *arg)
{
    in_order(pool, n, task, arg);
    in_reverse(pool, n, task, arg);
}

/* Also runs tasks with numbers outside 0 .. n - 1, which must do nothing. */
static void with_numbers_out_of_range(void *pool, int64_t n, task_function *task, void *arg)
{
    task(arg, -1);
    task(arg, INT64_MIN);
    in_order(pool, n, task, arg);
    task(arg, n);
    task(arg, INT64_MAX);
}

static void check_parallel_for(const struct isa *isa, const struct shape *shape)
{
    void (*const ways[])(void *, int64_t, task_function *, void *) = {
        in_order, in_reverse, each_twice, all_and_then_all_again, with_numbers_out_of_range};
    struct call *expected = done_call(shape, isa->name), *c = call_new(shape, isa->name);
    for (size_t t = 0; t < COUNT(thread_counts); t++) {
        set_threads(c, thread_counts[t]);
        for (size_t way = 0; way < COUNT(ways); way++) {
            c->exec.parallel_for = ways[way];
            clear_result(c);
            assert_int_equal(run(c), ATTNKIT_OK);
            assert_true(same_result(c, expected));
        }
    }
    call_free(expected);
    call_free(c);
}

static void parallel_for_in_any_order_and_twice_gives_the_bits_of_one_thread(void **state)
{
    (void)state;
    for_each_isa_and_shape(check_parallel_for);
}

/* Runs the tasks, and then makes the call that `pool` points to, as a thread of a pool may do. The
 * calls must not deadlock. */
static void nested(void *pool, int64_t n, task_function *task, void *arg)
{
    in_order(NULL, n, task, arg);
    assert_int_equal(run(pool), ATTNKIT_OK);
}

static void a_call_inside_a_parallel_for_is_right(void **state)
{
    (void)state;
    struct call *expected = done_call(&shapes[0], NULL);
    struct call *outer = call_new(&shapes[0], NULL), *inner = call_new(&shapes[0], NULL);
    set_threads(outer, 3);
    set_threads(inner, 1);
    outer->exec.parallel_for = nested;
    outer->exec.pool = inner;
    assert_int_equal(run(outer), ATTNKIT_OK);
    assert_true(same_result(outer, expected));
    assert_true(same_result(inner, expected));
    call_free(expected);
    call_free(outer);
    call_free(inner);
}

/* --- Calls at the same time and in odd places -------------------------------------------- */

enum { CALLERS = 4, ROUNDS = 10 };

static void *run_rounds(void *arg)
{
    struct call *c = arg;
    for (int i = 0; i < ROUNDS; i++) {
        clear_result(c);
        if (run(c) != ATTNKIT_OK)
            return NULL;
    }
    return c;
}

static void calls_at_the_same_time_do_not_disturb_each_other(void **state)
{
    (void)state;
    for (int s = 0; s < 4; s += 2) {
        struct call *expected = done_call(&shapes[s], NULL), *calls[CALLERS];
        pthread_t threads[CALLERS];
        for (int i = 0; i < CALLERS; i++) {
            calls[i] = call_new(&shapes[s], NULL);
            set_threads(calls[i], 1);
            assert_int_equal(pthread_create(&threads[i], NULL, run_rounds, calls[i]), 0);
        }
        for (int i = 0; i < CALLERS; i++) {
            void *done;
            pthread_join(threads[i], &done);
            assert_non_null(done);
            assert_true(same_result(calls[i], expected));
            call_free(calls[i]);
        }
        call_free(expected);
    }
}

static void *run_and_be_refused(void *arg)
{
    struct call *c = arg;
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = c->exec;
    exec.isa = "none";
    const bool refused = attnkit_attention(&c->args, &exec, message) == ATTNKIT_BAD_ISA;
    return refused && run(c) == ATTNKIT_OK ? c : NULL;
}

/* Returns the size in bytes of the small stack: SMALL_STACK, or the least size that the system
 * allows if the least size is larger. On 64-bit ARM, the system allows no stack below 128 KiB. */
static size_t small_stack(void)
{
    const long least = sysconf(_SC_THREAD_STACK_MIN);
    return least > SMALL_STACK ? (size_t)least : SMALL_STACK;
}

static void check_small_stack(const struct isa *isa, const struct shape *shape)
{
    struct call *expected = done_call(shape, isa->name), *c = call_new(shape, isa->name);
    set_threads(c, 1);
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, small_stack()), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run_and_be_refused, c), 0);
    void *done;
    pthread_join(thread, &done);
    pthread_attr_destroy(&attributes);
    assert_non_null(done);
    assert_true(same_result(c, expected));
    call_free(expected);
    call_free(c);
}

static void a_stack_of_64_kib_is_enough(void **state)
{
    (void)state;
    for_each_isa_and_shape(check_small_stack);
}

/* volatile: a compiler may think that raise() changes nothing here. */
static struct call *volatile of_handler;
static volatile attnkit_status status_of_handler;

static void handle(int number)
{
    (void)number;
    status_of_handler = run(of_handler);
}

static void check_signal_handler(const struct isa *isa, const struct shape *shape)
{
    struct call *expected = done_call(shape, isa->name);
    of_handler = call_new(shape, isa->name);
    set_threads(of_handler, 1);
    status_of_handler = ATTNKIT_UNSUPPORTED;
    raise(SIGUSR1);
    assert_int_equal(status_of_handler, ATTNKIT_OK);
    assert_true(same_result(of_handler, expected));
    call_free(of_handler);
    call_free(expected);
}

static void a_signal_handler_on_a_stack_of_64_kib_may_call(void **state)
{
    (void)state;
    const stack_t stack = {.ss_sp = malloc(SMALL_STACK), .ss_size = SMALL_STACK};
    const struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    stack_t old_stack;
    struct sigaction old_action;
    assert_int_equal(sigaltstack(&stack, &old_stack), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &old_action), 0);
    for_each_isa_and_shape(check_signal_handler);
    sigaction(SIGUSR1, &old_action, NULL);
    sigaltstack(&old_stack, NULL);
    free(stack.ss_sp);
}

static void a_forked_process_may_call(void **state)
{
    (void)state;
    struct call *expected = done_call(&shapes[0], NULL), *c = call_new(&shapes[0], NULL);
    set_threads(c, 1);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(run(c) == ATTNKIT_OK && same_result(c, expected) ? 0 : 1);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    call_free(c);
    call_free(expected);
}

/* --- Linear maps ------------------------------------------------------------------------- */

struct linear_part {
    pthread_t pthread;
    const struct linear_call *c;
    attnkit_exec exec;
    attnkit_status status;
};

static void *pack_part(void *arg)
{
    struct linear_part *const part = arg;
    part->status = attnkit_pack(&part->c->pack, &part->exec, NULL);
    return NULL;
}

static void *map_part(void *arg)
{
    struct linear_part *const part = arg;
    part->status = attnkit_linear(&part->c->args, &part->exec, NULL);
    return NULL;
}

static void run_linear_parts(const struct linear_call *c, const attnkit_exec *exec,
                             void *(*run_it)(void *part))
{
    static struct linear_part parts[MOST_THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, small_stack()), 0);
    for (int64_t i = 0; i < exec->threads; i++) {
        parts[i] = (struct linear_part){.c = c, .exec = *exec};
        parts[i].exec.thread = i;
        assert_int_equal(pthread_create(&parts[i].pthread, &attributes, run_it, &parts[i]), 0);
    }
    for (int64_t i = 0; i < exec->threads; i++) {
        pthread_join(parts[i].pthread, NULL);
        assert_int_equal(parts[i].status, ATTNKIT_OK);
    }
    pthread_attr_destroy(&attributes);
}

static void only_the_last(void *pool, int64_t n, task_function *task, void *arg)
{
    (void)pool;
    task(arg, n - 1);
}

struct task {
    task_function *run;
    void *arg;
    int64_t i;
};

static void *run_task(void *arg)
{
    const struct task *const task = arg;
    task->run(task->arg, task->i);
    return NULL;
}

static void at_once(void *pool, int64_t n, task_function *task, void *arg)
{
    struct task tasks[MOST_THREADS];
    pthread_t pthreads[MOST_THREADS];
    (void)pool;
    for (int64_t i = 0; i < n; i++) {
        tasks[i] = (struct task){task, arg, i};
        assert_int_equal(pthread_create(&pthreads[i], NULL, run_task, &tasks[i]), 0);
    }
    for (int64_t i = 0; i < n; i++)
        pthread_join(pthreads[i], NULL);
}

/* A task also takes parts from the queues of other tasks, which need not have begun. So the last
 * task alone can do all the work of a map of at most 256 rows. In a larger map, a task that begins
 * on the queue of another task first puts the rows of the parts into its own scratch. Putting them
 * there takes as long as two parts. So the task begins only on a queue with more than two parts. */
static void check_linear_parallel_for(const struct linear_call *c, attnkit_exec exec,
                                      const char *expected, int64_t rows)
{
    void (*const ways[])(void *, int64_t, task_function *, void *) = {
        only_the_last, at_once, all_and_then_all_again, with_numbers_out_of_range};
    for (size_t way = rows > 256 ? 1 : 0; way < COUNT(ways); way++) {
        exec.parallel_for = ways[way];
        assert_int_equal(attnkit_linear(&c->args, &exec, NULL), ATTNKIT_OK);
        char *const y = linear_call_take(c);
        assert_true(y && linear_call_same(c, y, expected, rows));
        free(y);
    }
}

static void check_linear_threads(const struct isa *isa, const struct linear_shape *shape)
{
    const struct linear_kind kind = {.packed_type = ATTNKIT_F16, .bias = true, .layout = PADDED};
    struct linear_call *const c = linear_call_new(&kind, *shape, 1);
    char *const expected = linear_call_reference(c);
    for (size_t t = 0; t < COUNT(thread_counts); t++) {
        attnkit_exec exec = {.size = sizeof exec, .isa = isa->name, .threads = thread_counts[t]};
        assert_int_equal(attnkit_linear_workspace(&c->args, &exec, &exec.workspace_size, NULL),
                         ATTNKIT_OK);
        exec.workspace = malloc(exec.workspace_size);
        run_linear_parts(c, &exec, pack_part);
        run_linear_parts(c, &exec, map_part);
        char *const y = linear_call_take(c);
        assert_true(y && linear_call_same(c, y, expected, shape->rows));
        free(y);
        check_linear_parallel_for(c, exec, expected, shape->rows);
        free(exec.workspace);
    }
    free(expected);
    linear_call_free(c);
}

static void linear_maps_have_the_same_bits_on_threads_and_small_stacks(void **state)
{
    (void)state;
    static const struct linear_shape linear_shapes[] = {{300, 40, 200}, {2, 64, 500}, {1, 5, 3}};
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        for (size_t s = 0; attnkit_isa_can_run(&isas[i]) && s < COUNT(linear_shapes); s++)
            check_linear_threads(&isas[i], &linear_shapes[s]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_hold_every_item_once),
        cmocka_unit_test(items_hold_every_row_once_at_any_length),
        cmocka_unit_test(threads_of_the_caller_give_the_bits_of_one_thread),
        cmocka_unit_test(parallel_for_in_any_order_and_twice_gives_the_bits_of_one_thread),
        cmocka_unit_test(a_call_inside_a_parallel_for_is_right),
        cmocka_unit_test(calls_at_the_same_time_do_not_disturb_each_other),
        cmocka_unit_test(a_stack_of_64_kib_is_enough),
        cmocka_unit_test(a_signal_handler_on_a_stack_of_64_kib_may_call),
        cmocka_unit_test(a_forked_process_may_call),
        cmocka_unit_test(linear_maps_have_the_same_bits_on_threads_and_small_stacks),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    memory_end();
    return failed;
}
