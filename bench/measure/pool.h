/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of threads that start once and then spin while they wait for work. So the time of a call
 * does not include the 20 us that a thread takes to start. After some time without work, the
 * threads yield their processors to other programs.
 */
#ifndef ATTNKIT_POOL_H
#define ATTNKIT_POOL_H

#include <stdint.h>

struct pool;

/* Starts `threads` - 1 threads. The caller's thread is the first thread of the pool. Returns NULL
 * if there is no memory or a thread cannot start. */
struct pool *pool_start(int threads);

/* Calls task(arg, i) for i in 0 .. n-1, spread over the threads, and returns when all tasks are
 * done. attnkit_exec.parallel_for can point to this function. */
void pool_for(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

/* Ends the threads and frees the pool. */
void pool_stop(struct pool *pool);

/* In the next two functions, pool may be NULL. The caller's thread is then the only thread. */
int pool_threads(const struct pool *pool);
double pool_cpu_seconds(const struct pool *pool); /* of all threads, spinning included */

/* Returns the number of processors that this process may use. */
int pool_processors(void);

#endif
