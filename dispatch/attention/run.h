/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a call whose arguments have all been checked, on the caller's threads and in the caller's
 * workspace. A run cannot fail.
 */
#ifndef ATTNKIT_ATTENTION_RUN_H
#define ATTNKIT_ATTENTION_RUN_H

#include "dispatch/attention/plan.h"

/* A bound call, its schedule and the parts of its workspace. */
struct attention_run {
    const struct attention *a;
    const struct kernels *kernels;
    /* `schedule` and `steal` point into the plan if the run has the planned lengths and threads.
     * Else they point to own_schedule and own_steal. */
    const struct schedule *schedule;
    const struct steal *steal;
    struct schedule own_schedule;
    struct steal own_steal;
    char *shared;  /* plan->steal.bytes bytes, aligned to a cache line */
    char *cells;   /* after `shared`: cell_bytes for each thread */
    char *scratch; /* after `cells`: plan->schedule.scratch bytes for each thread */
    size_t cell_bytes;
};

/* Returns the place in the workspace for a thread's table of cells. */
char *attnkit_cells_of(const struct attention_plan *plan, char *workspace, int64_t thread);

/* Sets up the run of `a`, which has been bound to the plan. `workspace` is
 * plan->header.workspace_size bytes, aligned to a cache line. `threads` may be fewer than planned.
 */
void attnkit_set_attention_run(const struct attention_plan *plan, const struct attention *a,
                               const struct kernels *kernels, int64_t threads, char *workspace,
                               struct attention_run *run);

/* Runs this thread's part of the work or, with a parallel-for, all of the work. */
void attnkit_run_attention(const struct attention_run *run, const attnkit_exec *exec);

#endif
