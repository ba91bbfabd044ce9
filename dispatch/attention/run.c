/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a bound call on one thread, on threads of the caller, or in the caller's parallel-for.
 */
#include "dispatch/attention/run.h"

#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "kernels/attention/cells.h"

static char *scratch_of(const struct attention_run *run, int64_t thread)
{
    return run->scratch + (size_t)thread * run->schedule->scratch;
}

char *attnkit_cells_of(const struct attention_plan *plan, char *workspace, int64_t thread)
{
    return workspace + plan->steal.bytes + (size_t)thread * plan->cell_bytes;
}

/* Returns struct attention for one thread. With cells, every thread has its own table. Binding
 * has filled the table of one thread, and this thread uses run->a itself. Every other thread gets a
 * copy of run->a in `own`, with an empty table that shares the spans of the filled table. */
static const struct attention *problem_of(const struct attention_run *run, int64_t thread,
                                          struct attention *own)
{
    char *const cells = run->cells + (size_t)thread * run->cell_bytes;
    const struct cell_table *const bound = run->a->cells.table;
    if (!has_cells(run->a) || (const void *)bound == cells)
        return run->a;
    *own = *run->a;
    own->cells.table = attnkit_begin_cells(run->a, cells);
    own->cells.table->spans = bound->spans;
    return own;
}

/* Runs one thread's share. Running the share again gives the same result. */
static void run_share(void *arg, int64_t thread)
{
    const struct attention_run *const run = arg;
    if (thread < 0 || thread >= run->schedule->threads)
        return;
    const fp_modes callers = fp_modes_begin();
    struct attention own;
    const struct attention *const a = problem_of(run, thread, &own);
    const struct range share = attnkit_share(a, run->schedule, thread);
    attnkit_run_items(a, run->kernels, run->schedule, share, scratch_of(run, thread));
    fp_modes_end(callers);
}

static void run_stealing(void *arg, int64_t thread)
{
    const struct attention_run *const run = arg;
    if (thread < 0 || thread >= run->steal->threads)
        return;
    const fp_modes callers = fp_modes_begin();
    struct attention own;
    attnkit_steal_run(problem_of(run, thread, &own), run->kernels, run->schedule, run->steal,
                      thread, run->shared, scratch_of(run, thread));
    fp_modes_end(callers);
}

/* For threads of the caller with a barrier, returns whether work stealing pays for its two
 * barriers. */
static bool is_worth_meeting(const struct attention_run *run)
{
    const fp_modes callers = fp_modes_begin();
    const bool goes_round = attnkit_goes_round(run->a, run->schedule, run->steal);
    fp_modes_end(callers);
    return run->steal->splits && !goes_round;
}

static void begin_stealing(const struct attention_run *run)
{
    const fp_modes callers = fp_modes_begin();
    attnkit_steal_begin(run->a, run->kernels, run->schedule, run->steal, run->shared);
    fp_modes_end(callers);
}

void attnkit_set_attention_run(const struct attention_plan *plan, const struct attention *a,
                               const struct kernels *kernels, int64_t threads, char *workspace,
                               struct attention_run *run)
{
    run->a = a;
    run->kernels = kernels;
    run->schedule = &plan->schedule;
    run->steal = &plan->steal;
    run->shared = workspace;
    run->cells = attnkit_cells_of(plan, workspace, 0);
    run->cell_bytes = plan->cell_bytes;
    run->scratch = attnkit_cells_of(plan, workspace, plan->threads);
    if (threads == plan->threads && a->batch == plan->a.batch && a->q_len == plan->a.q_len &&
        a->kv_len == plan->a.kv_len)
        return;
    run->own_schedule = attnkit_schedule(a, kernels, threads);
    run->own_schedule.scratch = plan->schedule.scratch;
    run->own_steal = attnkit_steal(a, kernels, &run->own_schedule, threads);
    run->schedule = &run->own_schedule;
    run->steal = &run->own_steal;
}

void attnkit_run_attention(const struct attention_run *run, const attnkit_exec *exec)
{
    void *const arg = (void *)run;
    if (exec->threads == 1) {
        attnkit_run_tasks(exec, 1, run_share, arg);
    } else if (exec->parallel_for) {
        begin_stealing(run);
        attnkit_run_tasks(exec, run->steal->threads, run_stealing, arg);
    } else if (exec->barrier && is_worth_meeting(run)) {
        if (exec->thread == 0)
            begin_stealing(run);
        exec->barrier(exec->pool);
        run_stealing(arg, exec->thread);
        exec->barrier(exec->pool);
    } else {
        run_share(arg, exec->thread);
    }
}
