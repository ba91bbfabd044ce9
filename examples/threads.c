/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit starts no thread: it works on the threads of the program. This file shows four ways to
 * run a call: one thread, threads of one's own that meet at a barrier, a parallel-for on a small
 * pool, and a parallel-for by OpenMP. A program that is compiled without OpenMP leaves out the
 * fourth way. All ways give the same bits.
 */
#define _POSIX_C_SOURCE 200809L /* barriers */

#include <attnkit.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3 };
enum { Q_HEADS = 4, KV_HEADS = 2, TOKENS = 700, DIM = 64 };

static float q[Q_HEADS * TOKENS * DIM], k[KV_HEADS * TOKENS * DIM], v[KV_HEADS * TOKENS * DIM];

/* Describes a causal prompt, with the result in `out`. All ways use these arguments. */
static attnkit_attention_args describe(float *out)
{
    return (attnkit_attention_args){.size = sizeof(attnkit_attention_args),
                                    .flags = ATTNKIT_CAUSAL,
                                    .align = ATTNKIT_ALIGN_UPPER_LEFT,
                                    .batch = 1,
                                    .q_heads = Q_HEADS,
                                    .kv_heads = KV_HEADS,
                                    .q_len = TOKENS,
                                    .kv_len = TOKENS,
                                    .head_dim = DIM,
                                    .q = {.data = q},
                                    .k = {.data = k},
                                    .v = {.data = v},
                                    .out = {.data = out}};
}

static void expect_ok(attnkit_status status, const char *message)
{
    if (status == ATTNKIT_OK)
        return;
    fprintf(stderr, "%s: %s\n", attnkit_status_string(status), message);
    exit(1);
}

/* Allocates one workspace for all threads of a call. The size depends on exec->threads. */
static void take_workspace(const attnkit_attention_args *args, attnkit_exec *exec)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_ok(attnkit_attention_workspace(args, exec, &exec->workspace_size, message), message);
    exec->workspace = malloc(exec->workspace_size);
    if (!exec->workspace)
        exit(1);
}

static void attend(const attnkit_attention_args *args, const attnkit_exec *exec)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_ok(attnkit_attention(args, exec, message), message);
}

/* ------------------------------------------------------------------------- 1. one thread */

static void on_one_thread(float *out)
{
    const attnkit_attention_args args = describe(out);
    attnkit_exec exec = {.size = sizeof exec};
    take_workspace(&args, &exec);
    attend(&args, &exec);
    free(exec.workspace);
}

/* ------------------------------------------------------- 2. threads of one's own, a barrier */

/* Each thread makes the same call, with its own number in exec.thread. With a barrier, threads may
 * take work from each other. Without a barrier (NULL), some threads may have less work or no work,
 * and the result has the same bits. */
struct share {
    pthread_t thread;
    const attnkit_attention_args *args;
    attnkit_exec exec;
};

static void meet(void *pool)
{
    pthread_barrier_wait(pool);
}

static void *run_share(void *arg)
{
    const struct share *const share = arg;
    attend(share->args, &share->exec);
    return NULL;
}

static void on_own_threads(float *out)
{
    const attnkit_attention_args args = describe(out);
    struct share shares[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    attnkit_exec exec = {
        .size = sizeof exec, .threads = THREADS, .barrier = meet, .pool = &barrier};
    take_workspace(&args, &exec);
    for (int i = 0; i < THREADS; i++) {
        shares[i] = (struct share){.args = &args, .exec = exec};
        shares[i].exec.thread = i;
        if (pthread_create(&shares[i].thread, NULL, run_share, &shares[i]))
            exit(1);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(shares[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
    free(exec.workspace);
}

/* ------------------------------------------------------------ 3. a parallel-for on a pool */

/* Threads that wait for tasks. A runtime or a server has a pool like this. attnkit only needs a
 * function with the signature of pool_for. */
struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t threads[THREADS - 1]; /* the caller of pool_for is a further thread */
    void (*task)(void *arg, int64_t i);
    void *arg;
    int64_t next, count, running;
    bool stops;
};

/* Runs tasks until all tasks have begun. The caller holds the lock. */
static void run_tasks(struct pool *pool)
{
    while (pool->next < pool->count) {
        const int64_t i = pool->next++;
        pool->running++;
        pthread_mutex_unlock(&pool->lock);
        pool->task(pool->arg, i);
        pthread_mutex_lock(&pool->lock);
        pool->running--;
    }
    if (pool->running == 0)
        pthread_cond_signal(&pool->done);
}

static void *work(void *arg)
{
    struct pool *const pool = arg;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stops) {
        run_tasks(pool);
        pthread_cond_wait(&pool->work, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void pool_for(void *arg, int64_t n, void (*task)(void *arg, int64_t i), void *task_arg)
{
    struct pool *const pool = arg;
    pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->arg = task_arg;
    pool->next = 0;
    pool->count = n;
    pthread_cond_broadcast(&pool->work);
    run_tasks(pool);
    while (pool->running > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

static void pool_start(struct pool *pool)
{
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (int i = 0; i < THREADS - 1; i++)
        if (pthread_create(&pool->threads[i], NULL, work, pool))
            exit(1);
}

static void pool_stop(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stops = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < THREADS - 1; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
}

static void in_a_pool(float *out)
{
    const attnkit_attention_args args = describe(out);
    struct pool pool;
    pool_start(&pool);
    attnkit_exec exec = {
        .size = sizeof exec, .threads = THREADS, .parallel_for = pool_for, .pool = &pool};
    take_workspace(&args, &exec);
    attend(&args, &exec);
    pool_stop(&pool);
    free(exec.workspace);
}

/* ------------------------------------------------------------------------------ 4. OpenMP */

#ifdef _OPENMP
static void openmp_for(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
#pragma omp parallel for num_threads(THREADS) schedule(static, 1)
    for (int64_t i = 0; i < n; i++)
        task(arg, i);
}

static void by_openmp(float *out)
{
    const attnkit_attention_args args = describe(out);
    attnkit_exec exec = {.size = sizeof exec, .threads = THREADS, .parallel_for = openmp_for};
    take_workspace(&args, &exec);
    attend(&args, &exec);
    free(exec.workspace);
}
#endif

/* ------------------------------------------------------------------------------- the check */

static void fill(float *x, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
}

int main(void)
{
    static const struct {
        const char *name;
        void (*attend)(float *out);
    } ways[] = {
        {"one thread", on_one_thread},
        {"own threads with a barrier", on_own_threads},
        {"a parallel-for on a pool", in_a_pool},
#ifdef _OPENMP
        {"OpenMP", by_openmp},
#endif
    };
    static float wanted[Q_HEADS * TOKENS * DIM], out[Q_HEADS * TOKENS * DIM];
    bool ok = true;
    fill(q, sizeof q / sizeof *q, 1);
    fill(k, sizeof k / sizeof *k, 2);
    fill(v, sizeof v / sizeof *v, 3);
    on_one_thread(wanted);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        memset(out, 0xff, sizeof out);
        ways[i].attend(out);
        const bool same = !memcmp(out, wanted, sizeof out);
        printf("%s: %s bits\n", ways[i].name, same ? "the same" : "OTHER");
        ok = ok && same;
    }
    return ok ? 0 : 1;
}
