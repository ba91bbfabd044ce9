/* SPDX-License-Identifier: Apache-2.0
 *
 * A parallel-for on threads of this process, for attnkit_exec.parallel_for.
 */
#ifndef ATTNKIT_PARALLEL_H
#define ATTNKIT_PARALLEL_H

#include <stdint.h>

enum { PARALLEL_MAX = 256 };

/* Calls task(arg, i) for i in 0 .. n-1, and returns when all tasks are done. n is at most
 * PARALLEL_MAX. Task 0 runs on the caller's thread, and every other task on a thread of its own. If
 * the thread of a task cannot be started, the caller's thread runs this task. pool is not used. */
void parallel_for(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

#endif
