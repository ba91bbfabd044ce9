/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of linear maps y = x Wᵀ + bias with a packed matrix: plan, run, and a single
 * call that does both.
 */
#include "dispatch/common/exec.h"
#include "dispatch/common/planned.h"
#include "dispatch/common/versioned.h"
#include "dispatch/linear/linear_plan.h"

static const struct version args_version = VERSION_OF(attnkit_linear_args, bias);
static const struct version data_version = VERSION_OF(attnkit_linear_data, y);

/* The arguments of a single call or of planning, and the plan that is made from them. */
struct planned_linear {
    const attnkit_linear_args *args; /* the caller's struct, or `copy` */
    attnkit_linear_args copy;
    attnkit_exec exec;
    const struct kernels *kernels;
    struct linear_plan plan;
};

static attnkit_status make_plan(const attnkit_linear_args *args, const attnkit_exec *exec,
                                struct planned_linear *call, char *message)
{
    const void *read;
    if (!args)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    attnkit_status status = read_struct(&args_version, args, &call->copy, &read, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &call->exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_begin_plan(&call->plan.header, PLAN_OF_LINEAR, call->exec.isa,
                                    &call->kernels, message);
    if (status != ATTNKIT_OK)
        return status;
    call->args = read;
    return attnkit_linear_plan_init(call->args, call->exec.threads, call->kernels, &call->plan,
                                    message);
}

static attnkit_status run(const struct linear_plan *plan, const struct kernels *kernels,
                          const attnkit_linear_data *data, const attnkit_exec *exec, char *message)
{
    struct linear l;
    struct memory memory[LINEAR_TENSORS];
    char *scratch;
    attnkit_status status = attnkit_check_planned_threads(exec, plan->threads, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_planned_length("rows", data->rows, plan->l.rows, message);
    if (status != ATTNKIT_OK)
        return status;
    if (data->rows == 0)
        return accept(message);
    status = attnkit_linear_bind(plan, data, &l, memory, message);
    if (status == ATTNKIT_OK)
        status = attnkit_take_workspace(exec, plan->header.workspace_size, &scratch, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_workspace_apart(memory, LINEAR_TENSORS, exec->workspace,
                                               plan->header.workspace_size, message);
    if (status != ATTNKIT_OK)
        return status;
    attnkit_linear_execute(&l, plan->scratch_size, kernels, exec, scratch);
    return accept(message);
}

attnkit_status attnkit_linear(const attnkit_linear_args *args, const attnkit_exec *exec,
                              char *message)
{
    struct planned_linear call;
    const attnkit_status status = make_plan(args, exec, &call, message);
    if (status != ATTNKIT_OK)
        return status;
    const attnkit_linear_data data = {
        .size = sizeof data,
        .rows = call.args->rows,
        .x = call.args->x.data,
        .w = call.args->w.data,
        .bias = call.args->bias,
        .y = (void *)(uintptr_t)call.args->y.data,
    };
    return run(&call.plan, call.kernels, &data, &call.exec, message);
}

attnkit_status attnkit_linear_workspace(const attnkit_linear_args *args, const attnkit_exec *exec,
                                        size_t *bytes, char *message)
{
    struct planned_linear call;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    const attnkit_status status = make_plan(args, exec, &call, message);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = call.plan.header.workspace_size;
    return accept(message);
}

size_t attnkit_linear_plan_size(void)
{
    return sizeof(struct linear_plan);
}

attnkit_status attnkit_linear_plan(const attnkit_linear_args *args, const attnkit_exec *exec,
                                   void *plan, size_t plan_size, char *message)
{
    struct planned_linear call;
    attnkit_status status = attnkit_check_plan_memory(plan, plan_size, sizeof call.plan, message);
    memset(&call.plan, 0, sizeof call.plan); /* so that equal plans have equal bytes */
    if (status == ATTNKIT_OK)
        status = make_plan(args, exec, &call, message);
    if (status != ATTNKIT_OK)
        return status;
    memcpy(plan, &call.plan, sizeof call.plan);
    return accept(message);
}

attnkit_status attnkit_linear_plan_workspace(const void *plan, size_t *bytes, char *message)
{
    return attnkit_planned_workspace(plan, PLAN_OF_LINEAR, bytes, message);
}

attnkit_status attnkit_linear_run(const void *plan, const attnkit_linear_data *data,
                                  const attnkit_exec *exec, char *message)
{
    const struct kernels *kernels;
    attnkit_linear_data copy;
    const void *read;
    attnkit_exec ours;
    attnkit_status status = attnkit_read_exec(exec, &ours, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_plan(plan, PLAN_OF_LINEAR, ours.isa, &kernels, message);
    if (status != ATTNKIT_OK)
        return status;
    if (!data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "data is NULL");
    status = read_struct(&data_version, data, &copy, &read, message);
    return status == ATTNKIT_OK ? run(plan, kernels, read, &ours, message) : status;
}
