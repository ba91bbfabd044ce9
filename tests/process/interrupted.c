/* SPDX-License-Identifier: Apache-2.0
 *
 * Interrupted calls. A signal handler makes another call on the same thread. A fork happens in the
 * middle of a call, or while another thread is in a call. All calls have the bits that they have
 * without interruption.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/call.h"
#include "tests/support/sample.h"

enum {
    INTERRUPTIONS = 60, /* calls that the handler makes for a shape, at least; fewer if sampled */
    FORKS = 20,
    TASKS = 3,
};

/* A prefill whose rows do not fill the last panel of the kernels, and a decoding step. */
static const struct shape shapes[] = {
    {.batch = 2,
     .kv_heads = 2,
     .group = 2,
     .q_len = 70,
     .kv_len = 150,
     .head_dim = 40,
     .value_dim = 24},
    {.batch = 2,
     .kv_heads = 2,
     .group = 2,
     .q_len = 1,
     .kv_len = 1100,
     .head_dim = 40,
     .value_dim = 24},
};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* A call, its workspace and its expected result. The workspace is allocated in advance, because a
 * signal handler must not allocate. */
struct ready {
    struct call *call;
    attnkit_exec exec;
    float *expected; /* the expected out */
    size_t bytes;    /* bytes of out */
};

static bool run(const struct ready *r)
{
    memset(r->call->out, 0xa5, r->bytes);
    return attnkit_attention(&r->call->args, &r->exec, NULL) == ATTNKIT_OK &&
           memcmp(r->call->out, r->expected, r->bytes) == 0;
}

static struct ready ready_new(const struct shape *shape, const char *isa)
{
    struct ready r = {.call = call_new(*shape), .exec = {.size = sizeof r.exec, .isa = isa}};
    const int64_t rows = shape->batch * shape->kv_heads * shape->group * shape->q_len;
    r.bytes = (size_t)(rows * shape->value_dim) * sizeof(float);
    call_run(r.call, isa);
    r.expected = malloc(r.bytes);
    memcpy(r.expected, r.call->out, r.bytes);
    assert_int_equal(
        attnkit_attention_workspace(&r.call->args, &r.exec, &r.exec.workspace_size, NULL),
        ATTNKIT_OK);
    r.exec.workspace = malloc(r.exec.workspace_size);
    return r;
}

static void ready_free(struct ready *r)
{
    free(r->exec.workspace);
    free(r->expected);
    call_free(r->call);
}

/* --- Signals ---------------------------------------------------------------------------------- */

static struct {
    const struct ready *call; /* call that the handler makes */
    atomic_bool in_call;      /* the thread is in the call that is to be interrupted */
    atomic_bool sent;         /* a signal was sent and is not handled yet */
    atomic_bool stop;
    atomic_int calls, wrong; /* calls that the handler has made; of these, calls with wrong bits */
    pthread_t target;
} signals;

static void handle(int number)
{
    (void)number;
    if (atomic_load(&signals.in_call)) {
        if (!run(signals.call))
            atomic_fetch_add(&signals.wrong, 1);
        atomic_fetch_add(&signals.calls, 1);
    }
    atomic_store(&signals.sent, false);
}

static void *send_signals(void *arg)
{
    while (!atomic_load(&signals.stop)) {
        if (!atomic_exchange(&signals.sent, true))
            pthread_kill(signals.target, SIGUSR1);
        sched_yield();
    }
    return arg;
}

static void interrupt(const struct ready *outer, const struct ready *inner)
{
    pthread_t sender;
    const int enough = sampled(INTERRUPTIONS, 10);
    int wrong = 0;
    signals.call = inner;
    signals.target = pthread_self();
    atomic_store(&signals.calls, 0);
    atomic_store(&signals.wrong, 0);
    atomic_store(&signals.stop, false);
    assert_int_equal(pthread_create(&sender, NULL, send_signals, NULL), 0);
    while (atomic_load(&signals.calls) < enough) {
        atomic_store(&signals.in_call, true);
        const bool same = run(outer);
        atomic_store(&signals.in_call, false);
        wrong += !same;
    }
    atomic_store(&signals.stop, true);
    pthread_join(sender, NULL);
    assert_int_equal(wrong, 0);
    assert_int_equal(atomic_load(&signals.wrong), 0);
}

static void a_handler_may_call_in_the_middle_of_a_call(void **state)
{
    const struct sigaction action = {.sa_handler = handle};
    struct sigaction before;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    for (int i = 0; i < SHAPES; i++) {
        struct ready outer = ready_new(&shapes[i], *state);
        struct ready inner = ready_new(&shapes[SHAPES - 1 - i], *state);
        interrupt(&outer, &inner);
        ready_free(&outer);
        ready_free(&inner);
    }
    sigaction(SIGUSR1, &before, NULL);
}

/* --- Forks ------------------------------------------------------------------------------------ */

static void expect_success(pid_t child)
{
    int how;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static struct {
    const struct ready *call;
    atomic_bool stop;
    atomic_int begun, wrong;
} other;

static void *call_again_and_again(void *arg)
{
    while (!atomic_load(&other.stop)) {
        atomic_fetch_add(&other.begun, 1);
        if (!run(other.call))
            atomic_fetch_add(&other.wrong, 1);
    }
    return arg;
}

/* Forks just after the other thread has begun a call. */
static pid_t fork_in_a_call(void)
{
    const int begun = atomic_load(&other.begun);
    while (atomic_load(&other.begun) == begun)
        sched_yield();
    return fork();
}

static void a_child_may_call_though_another_thread_was_in_a_call(void **state)
{
    struct ready theirs = ready_new(&shapes[0], *state), ours = ready_new(&shapes[1], *state);
    pthread_t thread;
    other.call = &theirs;
    atomic_store(&other.stop, false);
    atomic_store(&other.wrong, 0);
    assert_int_equal(pthread_create(&thread, NULL, call_again_and_again, NULL), 0);
    for (int i = 0; i < sampled(FORKS, 5); i++) {
        const pid_t child = fork_in_a_call();
        if (child == 0)
            _exit(run(&ours) && run(&theirs)
                      ? 0
                      : 1); /* the child has no other thread that uses this memory */
        expect_success(child);
    }
    atomic_store(&other.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&other.wrong), 0);
    ready_free(&theirs);
    ready_free(&ours);
}

/* A parallel-for that forks before the second task, and sets *pool to what fork returns. Both
 * processes finish the call. */
static void fork_between_tasks(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    for (int64_t i = 0; i < n; i++) {
        if (i == 1)
            *(pid_t *)pool = fork();
        task(arg, i);
    }
}

static void a_call_goes_on_in_both_processes_of_a_fork(void **state)
{
    for (int i = 0; i < SHAPES; i++) {
        struct ready r = ready_new(&shapes[i], *state);
        pid_t child = -1;
        r.exec.threads = TASKS;
        r.exec.parallel_for = fork_between_tasks;
        r.exec.pool = &child;
        assert_int_equal(
            attnkit_attention_workspace(&r.call->args, &r.exec, &r.exec.workspace_size, NULL),
            ATTNKIT_OK);
        free(r.exec.workspace);
        r.exec.workspace = malloc(r.exec.workspace_size);
        const bool same = run(&r);
        if (child == 0)
            _exit(same ? 0 : 1);
        expect_success(child);
        assert_true(same);
        ready_free(&r);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(a_handler_may_call_in_the_middle_of_a_call),
        cmocka_unit_test(a_child_may_call_though_another_thread_was_in_a_call),
        cmocka_unit_test(a_call_goes_on_in_both_processes_of_a_fork),
    };
    return promises_main("interrupted", promises, sizeof promises / sizeof promises[0], argc, argv);
}
