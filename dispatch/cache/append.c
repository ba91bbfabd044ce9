/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of an append: plan, run, and a single call that does both.
 */
#include "dispatch/cache/append_plan.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/planned.h"
#include "dispatch/common/versioned.h"

static const struct version data_version = VERSION_OF(attnkit_append_data, sin);

/* A single call and its plan. */
struct single_append {
    struct append_request request;
    attnkit_exec exec;
    const struct kernels *kernels;
    struct append_plan plan;
};

static attnkit_status make_plan(const attnkit_append_args *args, const attnkit_exec *exec,
                                struct single_append *call, char *message)
{
    attnkit_status status = attnkit_read_append(args, &call->request, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &call->exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_begin_plan(&call->plan.header, PLAN_OF_APPEND, call->exec.isa,
                                    &call->kernels, message);
    if (status == ATTNKIT_OK)
        status = attnkit_append_plan_init(&call->request, call->exec.threads, &call->plan, message);
    return status;
}

static attnkit_status run(const struct append_plan *plan, const struct kernels *kernels,
                          const struct append_input *input, const attnkit_exec *exec, char *message)
{
    struct append a;
    struct append_memory memory;
    char *scratch;
    attnkit_status status = attnkit_check_planned_threads(exec, plan->threads, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_planned_length("batch", input->batch, plan->a.batch, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_planned_length("len", input->len, plan->a.len, message);
    if (status != ATTNKIT_OK)
        return status;
    if (plan->empty || input->batch == 0 || input->len == 0)
        return accept(message);
    status = attnkit_append_bind(plan, input, &a, &memory, message);
    if (status == ATTNKIT_OK)
        status = attnkit_take_workspace(exec, plan->header.workspace_size, &scratch, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_workspace_apart(memory.list, memory.count, exec->workspace,
                                               plan->header.workspace_size, message);
    if (status != ATTNKIT_OK)
        return status;
    attnkit_append_execute(&a, plan->scratch_size, kernels, exec, scratch);
    return accept(message);
}

attnkit_status attnkit_append(const attnkit_append_args *args, const attnkit_exec *exec,
                              char *message)
{
    struct single_append call;
    const attnkit_status status = make_plan(args, exec, &call, message);
    if (status != ATTNKIT_OK)
        return status;
    const attnkit_append_args *const ours = call.request.args;
    const attnkit_rotation *const rotation = call.request.rotation;
    const struct append_input input = {
        .batch = ours->batch,
        .len = ours->len,
        .data = {[APPEND_DST] = ours->dst.data,
                 [APPEND_SCALES] = ours->dst_scales.data,
                 [APPEND_SRC] = ours->src.data,
                 [APPEND_COS] = rotation->cos,
                 [APPEND_SIN] = rotation->sin,
                 [APPEND_STARTS] = ours->starts.data,
                 [APPEND_LENS] = ours->lens.data,
                 [APPEND_POSITIONS] = rotation->positions.data,
                 [APPEND_BLOCK_TABLE] = call.request.pages->block_table},
    };
    return run(&call.plan, call.kernels, &input, &call.exec, message);
}

attnkit_status attnkit_append_workspace(const attnkit_append_args *args, const attnkit_exec *exec,
                                        size_t *bytes, char *message)
{
    struct single_append call;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    const attnkit_status status = make_plan(args, exec, &call, message);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = call.plan.header.workspace_size;
    return accept(message);
}

size_t attnkit_append_plan_size(void)
{
    return sizeof(struct append_plan);
}

attnkit_status attnkit_append_plan(const attnkit_append_args *args, const attnkit_exec *exec,
                                   void *plan, size_t plan_size, char *message)
{
    struct single_append call;
    attnkit_status status = attnkit_check_plan_memory(plan, plan_size, sizeof call.plan, message);
    memset(&call.plan, 0, sizeof call.plan); /* so that equal plans have equal bytes */
    if (status == ATTNKIT_OK)
        status = make_plan(args, exec, &call, message);
    if (status != ATTNKIT_OK)
        return status;
    memcpy(plan, &call.plan, sizeof call.plan);
    return accept(message);
}

attnkit_status attnkit_append_plan_workspace(const void *plan, size_t *bytes, char *message)
{
    return attnkit_planned_workspace(plan, PLAN_OF_APPEND, bytes, message);
}

static struct append_input input_of_run(const attnkit_append_data *data)
{
    return (struct append_input){
        .batch = data->batch,
        .len = data->len,
        .data = {[APPEND_DST] = data->dst,
                 [APPEND_SCALES] = data->dst_scales,
                 [APPEND_SRC] = data->src,
                 [APPEND_COS] = data->cos,
                 [APPEND_SIN] = data->sin,
                 [APPEND_STARTS] = data->starts,
                 [APPEND_LENS] = data->lens,
                 [APPEND_POSITIONS] = data->positions,
                 [APPEND_BLOCK_TABLE] = data->block_table},
    };
}

attnkit_status attnkit_append_run(const void *plan, const attnkit_append_data *data,
                                  const attnkit_exec *exec, char *message)
{
    const struct kernels *kernels;
    attnkit_append_data copy;
    const void *read;
    attnkit_exec ours;
    attnkit_status status = attnkit_read_exec(exec, &ours, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_plan(plan, PLAN_OF_APPEND, ours.isa, &kernels, message);
    if (status != ATTNKIT_OK)
        return status;
    if (!data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "data is NULL");
    status = read_struct(&data_version, data, &copy, &read, message);
    if (status != ATTNKIT_OK)
        return status;
    const struct append_input input = input_of_run(read);
    return run(plan, kernels, &input, &ours, message);
}
