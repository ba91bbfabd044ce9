/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of attention. A single call makes a plan on the stack and runs this plan once.
 * So single calls and planned runs share their checks (bind.h).
 */
#include "attnkit.h"

#include "dispatch/attention/attention.h"

#include "dispatch/attention/bind.h"
#include "dispatch/attention/bind_cells.h"
#include "dispatch/attention/check.h"
#include "dispatch/attention/run.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/common/message.h"

/* Checks the request, and makes its plan for the instruction set of exec and for at most
 * exec->threads threads. */
static attnkit_status make_plan(const struct request *r, const attnkit_exec *exec,
                                struct attention_plan *plan, const struct kernels **kernels,
                                char *message)
{
    attnkit_status status = attnkit_check_request(r, message);
    if (status == ATTNKIT_OK)
        status = attnkit_begin_plan(&plan->header, PLAN_OF_ATTENTION, exec->isa, kernels, message);
    if (status == ATTNKIT_OK)
        status = attnkit_make_attention_plan(r, *kernels, exec->threads, plan, message);
    return status;
}

/* Makes a plan from the caller's structs. Options such as scale need arithmetic, so the caller's
 * floating-point modes are set aside. */
static attnkit_status plan_of_args(const attnkit_attention_args *args, const attnkit_exec *theirs,
                                   struct attention_plan *plan, char *message)
{
    struct request r;
    attnkit_exec exec;
    const struct kernels *kernels;
    const fp_modes callers = fp_modes_begin();
    attnkit_status status = attnkit_read_request(args, &r, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(theirs, &exec, message);
    if (status == ATTNKIT_OK)
        status = make_plan(&r, &exec, plan, &kernels, message);
    fp_modes_end(callers);
    plan->single = false;
    return status;
}

attnkit_status attnkit_attention_workspace(const attnkit_attention_args *args,
                                           const attnkit_exec *exec, size_t *bytes, char *message)
{
    struct attention_plan plan;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    const attnkit_status status = plan_of_args(args, exec, &plan, message);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = plan.header.workspace_size;
    return accept(message);
}

size_t attnkit_attention_plan_size(void)
{
    return sizeof(struct attention_plan);
}

attnkit_status attnkit_attention_plan(const attnkit_attention_args *args, const attnkit_exec *exec,
                                      void *plan, size_t plan_size, char *message)
{
    struct attention_plan ours;
    attnkit_status status = attnkit_check_plan_memory(plan, plan_size, sizeof ours, message);
    if (status == ATTNKIT_OK)
        status = plan_of_args(args, exec, &ours, message);
    if (status != ATTNKIT_OK)
        return status;
    memcpy(plan, &ours, sizeof ours);
    return accept(message);
}

attnkit_status attnkit_attention_plan_workspace(const void *plan, size_t *bytes, char *message)
{
    return attnkit_planned_workspace(plan, PLAN_OF_ATTENTION, bytes, message);
}

/* Checks all inputs of a run, and writes lengths and addresses to `a`. `a` is a copy of plan->a, or
 * in a single call plan->a itself. Sets *workspace to the aligned workspace, or to NULL if there is
 * nothing to do. The function is not inlined, so that its locals have left the stack when kernels
 * run. */
static __attribute__((noinline)) attnkit_status bind(const struct attention_plan *plan,
                                                     const struct run_input *input,
                                                     const struct kernels *kernels,
                                                     const attnkit_exec *exec, struct attention *a,
                                                     char **workspace, char *message)
{
    struct bound bound;
    *workspace = NULL;
    if (plan->empty)
        return ATTNKIT_OK;
    attnkit_status status = attnkit_bind_attention(plan, input, a, &bound, message);
    if (status != ATTNKIT_OK || a->batch == 0 || a->q_len == 0)
        return status;
    status = attnkit_take_workspace(exec, plan->header.workspace_size, workspace, message);
    if (status != ATTNKIT_OK)
        return status;
    status = attnkit_check_workspace_apart(bound.memory, bound.count, exec->workspace,
                                           plan->header.workspace_size, message);
    if (status != ATTNKIT_OK || !has_cells(a))
        return status;
    return attnkit_bind_cells(a, kernels, attnkit_cells_of(plan, *workspace, exec->thread),
                              message);
}

static void run(const struct attention_plan *plan, const struct attention *a,
                const struct kernels *kernels, const attnkit_exec *exec, char *workspace)
{
    struct attention_run run;
    if (!workspace)
        return;
    attnkit_set_attention_run(plan, a, kernels, exec->threads, workspace, &run);
    attnkit_run_attention(&run, exec);
}

/* Checks the inputs of a run against the caller's plan. Sets *a to plan->a with the lengths and
 * addresses of the run. The function is not inlined, so that its locals have left the stack when
 * kernels run. */
static __attribute__((noinline)) attnkit_status
bind_data(const struct attention_plan *plan, const attnkit_attention_data *data,
          const struct kernels *kernels, const attnkit_exec *exec, struct attention *a,
          char **workspace, char *message)
{
    struct run_request r;
    struct run_input input;
    const attnkit_status status = attnkit_read_run_request(data, &r, message);
    if (status != ATTNKIT_OK)
        return status;
    attnkit_input_of_run(&r, &input);
    *a = plan->a;
    return bind(plan, &input, kernels, exec, a, workspace, message);
}

attnkit_status attnkit_attention_run(const void *planned, const attnkit_attention_data *data,
                                     const attnkit_exec *theirs, char *message)
{
    const struct attention_plan *const plan = planned;
    const struct kernels *kernels;
    struct attention a;
    attnkit_exec exec;
    char *workspace;
    attnkit_status status = attnkit_read_exec(theirs, &exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_plan(plan, PLAN_OF_ATTENTION, exec.isa, &kernels, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_planned_threads(&exec, plan->threads, message);
    if (status == ATTNKIT_OK)
        status = bind_data(plan, data, kernels, &exec, &a, &workspace, message);
    if (status != ATTNKIT_OK)
        return status;
    run(plan, &a, kernels, &exec, workspace);
    return accept(message);
}

/* Makes the plan of a single call and binds it to the memory of the call. The function is not
 * inlined, so that its locals have left the stack when kernels run. */
static __attribute__((noinline)) attnkit_status
bind_args(const attnkit_attention_args *args, const attnkit_exec *theirs, attnkit_exec *exec,
          struct attention_plan *plan, const struct kernels **kernels, char **workspace,
          char *message)
{
    struct request r;
    struct run_input input;
    const fp_modes callers = fp_modes_begin();
    attnkit_status status = attnkit_read_request(args, &r, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(theirs, exec, message);
    if (status == ATTNKIT_OK)
        status = make_plan(&r, exec, plan, kernels, message);
    fp_modes_end(callers);
    if (status != ATTNKIT_OK)
        return status;
    plan->single = true;
    attnkit_input_of_request(&r, &input);
    return bind(plan, &input, *kernels, exec, &plan->a, workspace, message);
}

attnkit_status attnkit_attention(const attnkit_attention_args *args, const attnkit_exec *theirs,
                                 char *message)
{
    struct attention_plan plan;
    attnkit_exec exec;
    const struct kernels *kernels;
    char *workspace;
    const attnkit_status status =
        bind_args(args, theirs, &exec, &plan, &kernels, &workspace, message);
    if (status != ATTNKIT_OK)
        return status;
    run(&plan, &plan.a, kernels, &exec, workspace);
    return accept(message);
}

attnkit_status attnkit_attention_problem(const attnkit_attention_args *args, struct attention *a,
                                         char *message)
{
    struct attention_plan plan;
    struct request r;
    struct run_input input;
    struct bound bound;
    const struct kernels *kernels;
    const attnkit_exec exec = {.threads = 1, .isa = "scalar"};
    attnkit_status status = attnkit_read_request(args, &r, message);
    if (status == ATTNKIT_OK)
        status = make_plan(&r, &exec, &plan, &kernels, message);
    if (status != ATTNKIT_OK)
        return status;
    plan.single = true;
    *a = plan.a;
    attnkit_input_of_request(&r, &input);
    return plan.empty ? ATTNKIT_OK : attnkit_bind_attention(&plan, &input, a, &bound, message);
}
