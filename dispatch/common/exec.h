/* SPDX-License-Identifier: Apache-2.0
 *
 * How a call is run. This file reads the caller's attnkit_exec, finds scratch in the workspace, and
 * runs the shares of the threads. All public calls that take an attnkit_exec use this file.
 */
#ifndef ATTNKIT_EXEC_H
#define ATTNKIT_EXEC_H

#include "attnkit.h"

/* Checks `theirs` and copies it to *ours with defaults filled in. NULL means one thread and no
 * workspace. */
attnkit_status attnkit_read_exec(const attnkit_exec *theirs, attnkit_exec *ours, char *message);

/* Checks that a plan for `planned` threads is enough for exec->threads. */
attnkit_status attnkit_check_planned_threads(const attnkit_exec *exec, int64_t planned,
                                             char *message);

/* Sets *bytes to the size of a workspace with `shared` bytes for all threads together and `scratch`
 * bytes for each thread. Both numbers are multiples of 64. The size includes room to align the
 * workspace to 64 bytes. */
attnkit_status attnkit_workspace_bytes(size_t shared, size_t scratch, int64_t threads,
                                       size_t *bytes, char *message);

/* Checks that the workspace has `bytes` bytes, and sets *scratch to the first address in the
 * workspace that is aligned to 64 bytes. */
attnkit_status attnkit_take_workspace(const attnkit_exec *exec, size_t bytes, char **scratch,
                                      char *message);

/* Runs task(arg, i) for every i < threads if the exec has a parallel_for, else for i =
 * exec->thread. */
void attnkit_run_tasks(const attnkit_exec *exec, int64_t threads,
                       void (*task)(void *arg, int64_t i), void *arg);

/* Divides pieces 0 .. n - 1 of some work into shares whose sizes differ by at most 1. Returns the
 * first piece of share i, or n if i is `shares`. */
static inline int64_t first_of_share(int64_t n, int64_t shares, int64_t i)
{
    const int64_t longer = n % shares;
    return n / shares * i + (i < longer ? i : longer);
}

#endif
