/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of an append: check once, choose the kernels, run a share of the rows.
 */
#include "attnkit.h"

#include "dispatch/cache/check_append.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/common/message.h"

/* What a call comes to once it has been checked. */
struct plan {
    struct append_problem problem;
    attnkit_exec exec;
    const struct kernels *kernels;
    int64_t rows;          /* of all batch entries; in a query the most there can be */
    int64_t threads;       /* of which some may have no row */
    size_t scratch_size;   /* bytes for each of them */
    size_t workspace_size; /* 0 where the problem is empty */
    char *scratch;         /* aligned */
};

typedef attnkit_status (*checker)(const attnkit_append_args *args, struct append_problem *problem,
                                  char *message);

static size_t whole_lines(size_t bytes)
{
    const size_t line = 64;
    return (bytes + line - 1) / line * line;
}

static attnkit_status make_plan(checker check, const attnkit_append_args *args,
                                const attnkit_exec *exec, struct plan *plan, char *message)
{
    struct isa_choice choice;
    attnkit_status status = check(args, &plan->problem, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &plan->exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(plan->exec.isa, &choice, message);
    plan->workspace_size = 0;
    if (status != ATTNKIT_OK || plan->problem.empty)
        return status;
    const struct append *a = &plan->problem.a;
    const int64_t rows = a->batch * a->len;
    plan->kernels = choice.isa->kernels;
    plan->threads = plan->exec.threads < rows ? plan->exec.threads : rows;
    plan->scratch_size = whole_lines(attnkit_append_scratch(a));
    return attnkit_workspace_bytes(0, plan->scratch_size, plan->threads, &plan->workspace_size,
                                   message);
}

attnkit_status attnkit_append_workspace(const attnkit_append_args *args, const attnkit_exec *exec,
                                        size_t *bytes, char *message)
{
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    struct plan plan;
    const fp_modes callers = fp_modes_begin();
    const attnkit_status status = make_plan(attnkit_check_append_shape, args, exec, &plan, message);
    fp_modes_end(callers);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = plan.workspace_size;
    return accept(message);
}

static attnkit_status take_workspace(struct plan *plan, char *message)
{
    const attnkit_status status =
        attnkit_take_workspace(&plan->exec, plan->workspace_size, &plan->scratch, message);
    if (status != ATTNKIT_OK)
        return status;
    return attnkit_check_append_workspace(&plan->problem, plan->exec.workspace,
                                          plan->workspace_size, message);
}

static int64_t count_rows(const struct append *a)
{
    int64_t rows = 0;
    for (int64_t b = 0; b < a->batch; b++)
        rows += append_len(a, b);
    return rows;
}

/* The first row of a thread's share: shares differ by one row at most. */
static int64_t share_start(const struct plan *plan, int64_t thread)
{
    const int64_t each = plan->rows / plan->threads, rest = plan->rows % plan->threads;
    return each * thread + (thread < rest ? thread : rest);
}

static void run_share(void *arg, int64_t thread)
{
    const struct plan *plan = arg;
    if (thread < 0 || thread >= plan->threads)
        return;
    const fp_modes callers = fp_modes_begin();
    attnkit_append_rows(&plan->problem.a, plan->kernels, share_start(plan, thread),
                        share_start(plan, thread + 1),
                        plan->scratch + (size_t)thread * plan->scratch_size);
    fp_modes_end(callers);
}

attnkit_status attnkit_append(const attnkit_append_args *args, const attnkit_exec *exec,
                              char *message)
{
    struct plan plan;
    const fp_modes callers = fp_modes_begin();
    attnkit_status status = make_plan(attnkit_check_append, args, exec, &plan, message);
    if (status == ATTNKIT_OK && !plan.problem.empty)
        status = take_workspace(&plan, message);
    fp_modes_end(callers);
    if (status != ATTNKIT_OK)
        return status;
    if (plan.problem.empty)
        return accept(message);
    plan.rows = count_rows(&plan.problem.a);
    attnkit_run_tasks(&plan.exec, plan.threads, run_share, &plan);
    return accept(message);
}
