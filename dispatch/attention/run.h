/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a problem whose arguments have all been checked: on the caller's threads, in the caller's
 * workspace. Nothing can fail any more.
 */
#ifndef ATTNKIT_ATTENTION_RUN_H
#define ATTNKIT_ATTENTION_RUN_H

#include "dispatch/attention/plan.h"

/* A problem with what its threads work with. */
struct attention_run {
    const struct attention *a;
    const struct kernels *kernels;
    const struct schedule *schedule; /* the plan's; for other lengths or threads own_schedule */
    const struct steal *steal;
    struct schedule own_schedule;
    struct steal own_steal;
    char *shared;  /* aligned; plan->steal.bytes */
    char *cells;   /* after it; cell_bytes for each thread */
    char *scratch; /* after them; plan->schedule.scratch bytes for each thread */
    size_t cell_bytes;
};

/* Where in the workspace the table of cells of a thread is. */
char *attnkit_cells_of(const struct attention_plan *plan, char *workspace, int64_t thread);

/* The run of `a`, bound to the plan, in a workspace of plan->header.workspace_size bytes that is
 * aligned to a cache line, by so many threads. */
void attnkit_set_attention_run(const struct attention_plan *plan, const struct attention *a,
                               const struct kernels *kernels, int64_t threads, char *workspace,
                               struct attention_run *run);

/* Runs it, or this thread's share of it. */
void attnkit_run_attention(const struct attention_run *run, const attnkit_exec *exec);

#endif
