/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of the benches. pool_for publishes a job by incrementing `job`. A thread of the pool
 * that sees the new number does its share of the job, and then decrements `busy`.
 */
#include "bench/measure/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "bench/measure/clock.h"

enum { SPINS = 10000 }; /* about 100 us, more than the time between two jobs of a row */

struct pool_worker {
    struct pool *pool;
    pthread_t thread;
    int index;
};

struct pool {
    int threads;
    _Atomic unsigned job; /* number of the last job */
    _Atomic int busy;     /* threads, besides the caller's, that have not finished the job */
    bool stopping;
    void (*task)(void *arg, int64_t i);
    void *arg;
    int64_t n;
    struct pool_worker workers[]; /* threads - 1 */
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wait_a_little(int *spins)
{
    if (++*spins < SPINS)
        relax();
    else
        sched_yield();
}

static void do_share(const struct pool *pool, int index)
{
    for (int64_t i = index; i < pool->n; i += pool->threads)
        pool->task(pool->arg, i);
}

static void *work(void *argument)
{
    const struct pool_worker *const worker = argument;
    struct pool *const pool = worker->pool;
    for (unsigned done = 0;; done++) {
        int spins = 0;
        while (atomic_load_explicit(&pool->job, memory_order_acquire) == done)
            wait_a_little(&spins);
        if (pool->stopping)
            return NULL;
        do_share(pool, worker->index);
        atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_release);
    }
}

static void publish(struct pool *pool)
{
    atomic_store_explicit(&pool->busy, pool->threads - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->job, 1, memory_order_release);
}

void pool_for(void *argument, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    struct pool *const pool = argument;
    pool->task = task;
    pool->arg = arg;
    pool->n = n;
    publish(pool);
    do_share(pool, 0);
    int spins = 0;
    while (atomic_load_explicit(&pool->busy, memory_order_acquire) > 0)
        wait_a_little(&spins);
}

struct pool *pool_start(int threads)
{
    struct pool *const pool =
        calloc(1, sizeof *pool + (size_t)(threads - 1) * sizeof *pool->workers);
    if (!pool)
        return NULL;
    pool->threads = 1;
    for (int i = 1; i < threads; i++) {
        struct pool_worker *const worker = &pool->workers[i - 1];
        worker->pool = pool;
        worker->index = i;
        if (pthread_create(&worker->thread, NULL, work, worker)) {
            pool_stop(pool);
            return NULL;
        }
        pool->threads++;
    }
    return pool;
}

void pool_stop(struct pool *pool)
{
    pool->stopping = true;
    publish(pool);
    for (int i = 1; i < pool->threads; i++)
        pthread_join(pool->workers[i - 1].thread, NULL);
    free(pool);
}

int pool_threads(const struct pool *pool)
{
    return pool ? pool->threads : 1;
}

/* Adds up the clocks of the threads, because the clock of the process lags behind running threads.
 */
double pool_cpu_seconds(const struct pool *pool)
{
    double seconds = clock_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 1; i < pool_threads(pool); i++) {
        clockid_t clock;
        if (!pthread_getcpuclockid(pool->workers[i - 1].thread, &clock))
            seconds += clock_seconds(clock);
    }
    return seconds;
}

int pool_processors(void)
{
    cpu_set_t usable;
    return sched_getaffinity(0, sizeof usable, &usable) ? 1 : CPU_COUNT(&usable);
}
