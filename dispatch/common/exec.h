/* SPDX-License-Identifier: Apache-2.0
 *
 * How a call is run: reading attnkit_exec, finding scratch in its workspace, running the shares of
 * its threads. Shared by all public calls that take one.
 */
#ifndef ATTNKIT_EXEC_H
#define ATTNKIT_EXEC_H

#include "attnkit.h"

/* Checks `theirs` (NULL: one thread, no workspace) and fills in the defaults. */
attnkit_status attnkit_read_exec(const attnkit_exec *theirs, attnkit_exec *ours, char *message);

/* That a plan for so many threads serves as many as exec has. */
attnkit_status attnkit_check_planned_threads(const attnkit_exec *exec, int64_t planned,
                                             char *message);

/* Bytes of workspace for `shared` bytes and `scratch` bytes, a multiple of 64, for each thread,
 * with room to align whatever pointer the caller has. */
attnkit_status attnkit_workspace_bytes(size_t shared, size_t scratch, int64_t threads,
                                       size_t *bytes, char *message);

/* The first address in the workspace that is aligned to 64, once it is known to have `bytes`. */
attnkit_status attnkit_take_workspace(const attnkit_exec *exec, size_t bytes, char **scratch,
                                      char *message);

/* Runs task(arg, i): for every i < threads if there is a parallel_for, else for this thread's i. */
void attnkit_run_tasks(const attnkit_exec *exec, int64_t threads,
                       void (*task)(void *arg, int64_t i), void *arg);

/* The first of n parts that belongs to share i of `shares`: they differ by one part at most. */
static inline int64_t first_of_share(int64_t n, int64_t shares, int64_t i)
{
    const int64_t longer = n % shares;
    return n / shares * i + (i < longer ? i : longer);
}

#endif
