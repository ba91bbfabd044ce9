/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls that plan and run the multi-head attention layer. A single call makes a plan on
 * the stack and runs this plan once.
 */
#include <string.h>

#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/common/message.h"
#include "dispatch/common/versioned.h"
#include "dispatch/layer/layer_plan.h"

/* --- Planning --------------------------------------------------------------------------------- */

static attnkit_status make_plan(const struct layer_request *r, const attnkit_exec *exec,
                                struct layer_plan *plan, const struct kernels **kernels,
                                char *message)
{
    struct layer layer;
    attnkit_status status =
        attnkit_read_layer(r->core->packed, r->core->packed_size, &layer, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_layer(r, &layer, message);
    if (status == ATTNKIT_OK)
        status = attnkit_begin_plan(&plan->header, PLAN_OF_LAYER, exec->isa, kernels, message);
    if (status == ATTNKIT_OK)
        status = attnkit_make_layer_plan(r, &layer, *kernels, exec->threads, plan, message);
    return status;
}

static void input_of_request(const struct layer_request *r, struct layer_input *input)
{
    const attnkit_layer_args *const args = r->core;
    *input = (struct layer_input){
        .packed_size = args->packed_size,
        .batch = args->batch,
        .q_len = args->q_len,
        .kv_len = args->kv_len,
        .memory = {[OWN_OUT] = args->out.data,
                   [OWN_MEAN] = args->mean_weights,
                   [OWN_X] = args->x.data,
                   [OWN_KEY] = args->key.data,
                   [OWN_VALUE] = args->value.data,
                   [OWN_PACKED] = args->packed,
                   [OWN_COS] = r->rotation->cos,
                   [OWN_SIN] = r->rotation->sin,
                   [OWN_POSITIONS] = r->rotation->positions.data,
                   [OWN_CACHED] = args->cached.data},
    };
    attnkit_input_of_request(&r->attention, &input->attention);
}

/* Makes a plan from the caller's structs. Also makes the input of a single call, unless `input` is
 * NULL. Options such as scale need arithmetic, so the caller's floating-point modes are set aside.
 * The function is not inlined, so that copies of the structs have left the stack when kernels
 * run. */
static __attribute__((noinline)) attnkit_status
plan_args(const attnkit_layer_args *args, const attnkit_exec *exec, struct layer_plan *plan,
          struct layer_input *input, const struct kernels **kernels, char *message)
{
    struct layer_request r;
    const fp_modes callers = fp_modes_begin();
    plan->single = input;
    attnkit_status status = attnkit_read_layer_request(args, &r, message);
    if (status == ATTNKIT_OK)
        status = make_plan(&r, exec, plan, kernels, message);
    if (status == ATTNKIT_OK && input)
        input_of_request(&r, input);
    fp_modes_end(callers);
    return status;
}

/* Makes a plan for later runs. */
static attnkit_status plan_runs(const attnkit_layer_args *args, const attnkit_exec *theirs,
                                struct layer_plan *plan, char *message)
{
    attnkit_exec exec;
    const struct kernels *kernels;
    const attnkit_status status = attnkit_read_exec(theirs, &exec, message);
    return status == ATTNKIT_OK ? plan_args(args, &exec, plan, NULL, &kernels, message) : status;
}

attnkit_status attnkit_layer_workspace(const attnkit_layer_args *args, const attnkit_exec *exec,
                                       size_t *bytes, char *message)
{
    struct layer_plan plan;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    const attnkit_status status = plan_runs(args, exec, &plan, message);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = plan.header.workspace_size;
    return accept(message);
}

size_t attnkit_layer_plan_size(void)
{
    return sizeof(struct layer_plan);
}

attnkit_status attnkit_layer_plan(const attnkit_layer_args *args, const attnkit_exec *exec,
                                  void *plan, size_t plan_size, char *message)
{
    struct layer_plan ours;
    attnkit_status status = attnkit_check_plan_memory(plan, plan_size, sizeof ours, message);
    if (status == ATTNKIT_OK)
        status = plan_runs(args, exec, &ours, message);
    if (status != ATTNKIT_OK)
        return status;
    memcpy(plan, &ours, sizeof ours);
    return accept(message);
}

attnkit_status attnkit_layer_plan_workspace(const void *plan, size_t *bytes, char *message)
{
    return attnkit_planned_workspace(plan, PLAN_OF_LAYER, bytes, message);
}

/* --- Running ---------------------------------------------------------------------------------- */

/* Checks the arrays. If each thread of the caller makes the call, thread 0 checks the arrays, and
 * the other threads read its verdict after a barrier. */
static attnkit_status check_arrays(const struct layer_run *run, const attnkit_exec *exec,
                                   char *message)
{
    struct verdict *const verdict = run->buffers.verdict;
    if (exec->threads == 1 || exec->parallel_for)
        return attnkit_check_layer_arrays(run, exec, message);
    if (exec->thread == 0)
        verdict->status = attnkit_check_layer_arrays(run, exec, verdict->message);
    exec->barrier(exec->pool);
    const attnkit_status status = verdict->status;
    if (status != ATTNKIT_OK && message)
        memcpy(message, verdict->message, ATTNKIT_MESSAGE_SIZE);
    return status;
}

static attnkit_status bind_and_run(const struct layer_plan *plan, const struct layer_input *input,
                                   const attnkit_exec *exec, const struct kernels *kernels,
                                   char *message)
{
    struct layer_run run;
    run.kernels = kernels;
    attnkit_status status = attnkit_bind_layer(plan, input, exec, &run, message);
    if (status != ATTNKIT_OK || run.empty)
        return status;
    status = check_arrays(&run, exec, message);
    if (status == ATTNKIT_OK)
        attnkit_run_layer(&run, exec);
    return status;
}

attnkit_status attnkit_layer(const attnkit_layer_args *args, const attnkit_exec *theirs,
                             char *message)
{
    struct layer_plan plan;
    struct layer_input input;
    attnkit_exec exec;
    const struct kernels *kernels;
    attnkit_status status = attnkit_read_exec(theirs, &exec, message);
    if (status == ATTNKIT_OK)
        status = plan_args(args, &exec, &plan, &input, &kernels, message);
    if (status == ATTNKIT_OK)
        status = bind_and_run(&plan, &input, &exec, kernels, message);
    return status == ATTNKIT_OK ? accept(message) : status;
}

/* --- Running a plan --------------------------------------------------------------------------- */

static const struct version data_version = VERSION_OF(attnkit_layer_data, mean_weights);

/* Refuses batch and q_len of attention, because the layer has its own batch and q_len. */
static attnkit_status check_attention_lengths(const attnkit_attention_data *a, char *message)
{
    if (!a->batch && !a->q_len)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "attention->%s is given: the layer sets this field itself",
                  a->batch ? "batch" : "q_len");
}

static attnkit_status read_data(const attnkit_layer_data *theirs, struct layer_input *input,
                                char *message)
{
    const void *read;
    attnkit_layer_data copy;
    attnkit_attention_data none;
    struct run_request attention;
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "data is NULL");
    attnkit_status status = read_struct(&data_version, theirs, &copy, &read, message);
    if (status != ATTNKIT_OK)
        return status;
    const attnkit_layer_data *const data = read;
    attnkit_attention_data_init(&none);
    status =
        attnkit_read_run_request(data->attention ? data->attention : &none, &attention, message);
    if (status == ATTNKIT_OK)
        status = check_attention_lengths(attention.core, message);
    if (status != ATTNKIT_OK)
        return status;
    *input = (struct layer_input){
        .packed_size = data->packed_size,
        .batch = data->batch,
        .q_len = data->q_len,
        .kv_len = data->kv_len,
        .memory = {[OWN_OUT] = data->out,
                   [OWN_MEAN] = data->mean_weights,
                   [OWN_X] = data->x,
                   [OWN_KEY] = data->key,
                   [OWN_VALUE] = data->value,
                   [OWN_PACKED] = data->packed,
                   [OWN_COS] = data->cos,
                   [OWN_SIN] = data->sin,
                   [OWN_POSITIONS] = data->positions,
                   [OWN_CACHED] = data->cached},
    };
    attnkit_input_of_run(&attention, &input->attention);
    return ATTNKIT_OK;
}

static bool is_same_shape(const struct layer *a, const struct layer *b)
{
    if (a->q_heads != b->q_heads || a->kv_heads != b->kv_heads || a->head_dim != b->head_dim ||
        a->value_dim != b->value_dim || a->type != b->type)
        return false;
    for (int i = 0; i < PROJECTIONS; i++) {
        const struct projection_shape *const p = &a->projection[i], *const q = &b->projection[i];
        if (p->out_dim != q->out_dim || p->in_dim != q->in_dim || p->has_bias != q->has_bias)
            return false;
    }
    return true;
}

static attnkit_status check_packed(const struct layer_plan *plan, const struct layer_input *input,
                                   char *message)
{
    struct layer layer;
    const attnkit_status status =
        attnkit_read_layer(input->memory[OWN_PACKED], input->packed_size, &layer, message);
    if (status != ATTNKIT_OK || is_same_shape(&layer, &plan->layer))
        return status;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "packed (%p) is a layer of other shapes or types than the plan",
                  input->memory[OWN_PACKED]);
}

attnkit_status attnkit_layer_run(const void *planned, const attnkit_layer_data *data,
                                 const attnkit_exec *theirs, char *message)
{
    const struct layer_plan *const plan = planned;
    const struct kernels *kernels;
    struct layer_input input;
    attnkit_exec exec;
    attnkit_status status = attnkit_read_exec(theirs, &exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_plan(plan, PLAN_OF_LAYER, exec.isa, &kernels, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_planned_threads(&exec, plan->threads, message);
    if (status == ATTNKIT_OK)
        status = read_data(data, &input, message);
    if (status == ATTNKIT_OK)
        status = check_packed(plan, &input, message);
    if (status == ATTNKIT_OK)
        status = bind_and_run(plan, &input, &exec, kernels, message);
    return status == ATTNKIT_OK ? accept(message) : status;
}
