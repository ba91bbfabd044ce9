/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that are started once and then wait for work by spinning, so that a call on several of
 * them is timed without the 20 us it takes to start one. They give way after a while: a machine
 * that has other work to do gets its processors.
 */
#ifndef ATTNKIT_POOL_H
#define ATTNKIT_POOL_H

#include <stdint.h>

struct pool;

/* So many threads, the caller's among them. NULL: they cannot be had. */
struct pool *pool_start(int threads);

/* Calls task(arg, i) for i in 0 .. n-1, spread over the threads, and returns when all are done: of
 * the form attnkit_exec.parallel_for takes. */
void pool_for(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

void pool_stop(struct pool *pool);

/* The pool may be NULL in these: the caller's thread is all there is. */
int pool_threads(const struct pool *pool);
double pool_cpu_seconds(const struct pool *pool); /* what all its threads have run, or spun */

/* Processors that this process may use. */
int pool_processors(void);

#endif
