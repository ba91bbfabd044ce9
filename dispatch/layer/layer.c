/* SPDX-License-Identifier: Apache-2.0
 *
 * The public call of the multi-head attention layer: one public call after the other, linear maps,
 * appends and attention, each shared out among the threads as it is alone, which meet after each.
 * What they hand on lies in the workspace. Everything is checked before the first one runs.
 */
#include "kernels/attention/weights.h"
#include "dispatch/layer/check_layer.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/linear/matrix.h"
#include "dispatch/common/message.h"

/* A layer call on its way. */
struct call {
    struct layer_plan plan;
    struct buffers buffers;
    attnkit_exec exec; /* of the layer */
    attnkit_exec part; /* of the calls in it: the same, in the rest of the workspace */
    size_t workspace_size;
    char *message; /* the caller's, or NULL */
};

/* -------------------------------------------------------------------------------- workspace */

static attnkit_status largest_linear(const struct mapped *map, const attnkit_exec *exec,
                                     size_t *bytes, char *message)
{
    size_t needed;
    const attnkit_status status = attnkit_linear_workspace(&map->linear, exec, &needed, message);
    if (status == ATTNKIT_OK && needed > *bytes)
        *bytes = needed;
    return status;
}

static attnkit_status largest_append(const attnkit_append_args *args, const attnkit_exec *exec,
                                     size_t *bytes, char *message)
{
    size_t needed;
    const attnkit_status status = attnkit_append_workspace(args, exec, &needed, message);
    if (status == ATTNKIT_OK && needed > *bytes)
        *bytes = needed;
    return status;
}

/* What the part with the largest workspace needs. */
static attnkit_status part_bytes(const struct layer_plan *p, const attnkit_exec *exec,
                                 size_t *bytes, char *message)
{
    attnkit_status status = attnkit_attention_workspace(&p->attention, exec, bytes, message);
    if (status == ATTNKIT_OK)
        status = largest_linear(&p->q, exec, bytes, message);
    if (status == ATTNKIT_OK)
        status = largest_linear(&p->o, exec, bytes, message);
    if (status == ATTNKIT_OK && p->has_keys)
        status = largest_linear(&p->k, exec, bytes, message);
    if (status == ATTNKIT_OK && p->has_keys)
        status = largest_linear(&p->v, exec, bytes, message);
    if (status == ATTNKIT_OK && p->rotates)
        status = largest_append(&p->append_q, exec, bytes, message);
    if (status == ATTNKIT_OK && p->keeps_cache)
        status = largest_append(&p->append_k, exec, bytes, message);
    if (status == ATTNKIT_OK && p->keeps_cache)
        status = largest_append(&p->append_v, exec, bytes, message);
    return status;
}

static attnkit_status make_plan(const attnkit_layer_args *args, const attnkit_exec *exec,
                                struct call *call, char *message)
{
    struct isa_choice choice;
    attnkit_status status = attnkit_read_exec(exec, &call->exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_layer(args, call->exec.threads, &call->plan, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(call->exec.isa, &choice, message);
    call->workspace_size = 0;
    if (status != ATTNKIT_OK || call->plan.empty)
        return status;
    call->part = call->exec;
    call->part.size = sizeof call->part;
    status = part_bytes(&call->plan, &call->part, &call->part.workspace_size, message);
    if (status != ATTNKIT_OK)
        return status;
    return attnkit_workspace_bytes((size_t)call->plan.shared_bytes, call->part.workspace_size, 1,
                                   &call->workspace_size, message);
}

attnkit_status attnkit_layer_workspace(const attnkit_layer_args *args, const attnkit_exec *exec,
                                       size_t *bytes, char *message)
{
    struct call call;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    const fp_modes callers = fp_modes_begin();
    const attnkit_status status = make_plan(args, exec, &call, message);
    fp_modes_end(callers);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = call.workspace_size;
    return accept(message);
}

static attnkit_status take_workspace(struct call *call)
{
    char *shared;
    const attnkit_exec *exec = &call->exec;
    const attnkit_status status =
        attnkit_take_workspace(exec, call->workspace_size, &shared, call->message);
    if (status != ATTNKIT_OK)
        return status;
    if (exec->threads > 1 && !exec->parallel_for && !exec->barrier)
        return refuse(call->message, ATTNKIT_BAD_ARGUMENT,
                      "exec.barrier is NULL: %lld threads of a layer have to meet",
                      (long long)exec->threads);
    call->part.workspace = shared + call->plan.shared_bytes;
    return attnkit_bind_layer(&call->plan, shared, exec->workspace, call->workspace_size,
                              exec->threads, exec->thread, &call->buffers, call->message);
}

/* --------------------------------------------------------------------------------- the parts */

/* After each part; a parallel-for has met already. */
static void meet(const struct call *call)
{
    if (call->exec.threads > 1 && !call->exec.parallel_for)
        call->exec.barrier(call->exec.pool);
}

static attnkit_status map(const struct call *call, const struct mapped *m)
{
    attnkit_linear_args args = m->linear;
    attnkit_status status = ATTNKIT_OK;
    for (int64_t i = 0; i < m->blocks && status == ATTNKIT_OK; i++) {
        args.x = (const char *)m->linear.x + i * m->x_step;
        args.y = (char *)m->linear.y + i * m->y_step;
        status = attnkit_linear(&args, &call->part, call->message);
        /* One workspace serves them all. */
        if (i + 1 < m->blocks)
            meet(call);
    }
    meet(call);
    return status;
}

static attnkit_status append(const struct call *call, const attnkit_append_args *all, bool by_entry)
{
    attnkit_status status = ATTNKIT_OK;
    if (!by_entry) {
        status = attnkit_append(all, &call->part, call->message);
        meet(call);
        return status;
    }
    for (int64_t b = 0; b < call->plan.args.batch && status == ATTNKIT_OK; b++) {
        const attnkit_append_args entry = attnkit_entry_append(&call->plan, all, b);
        status = attnkit_append(&entry, &call->part, call->message);
        meet(call);
    }
    return status;
}

static attnkit_status project(const struct call *call)
{
    const struct layer_plan *p = &call->plan;
    const bool by_entry = p->attention.q_starts;
    attnkit_status status = map(call, &p->q);
    if (status == ATTNKIT_OK && p->has_keys)
        status = map(call, &p->k);
    if (status == ATTNKIT_OK && p->has_keys)
        status = map(call, &p->v);
    if (status == ATTNKIT_OK && p->rotates)
        status = append(call, &p->append_q, by_entry);
    if (status == ATTNKIT_OK && p->has_keys && (p->rotates || p->keeps_cache))
        status = append(call, &p->append_k, by_entry);
    if (status == ATTNKIT_OK && p->keeps_cache)
        status = append(call, &p->append_v, false);
    return status;
}

/* A thread's rows of the mean. Running it again gives the same. */
static void average(void *arg, int64_t thread)
{
    const struct call *call = arg;
    const struct layer_plan *p = &call->plan;
    const attnkit_attention_args *a = &p->attention;
    const int64_t threads = call->exec.threads;
    if (thread < 0 || thread >= threads)
        return;
    const struct mean_weights mean = {
        .q_len = a->q_len,
        .heads = a->q_heads,
        .keys = a->kv_len,
        .weights = (const char *)a->weights,
        .stride = {a->q_starts ? 0 : a->weights_strides[0], a->weights_strides[1],
                   a->weights_strides[2]},
        .out = p->args.mean_weights,
    };
    const fp_modes callers = fp_modes_begin();
    attnkit_average_weights(&mean, first_of_share(p->q_rows, threads, thread),
                            first_of_share(p->q_rows, threads, thread + 1));
    fp_modes_end(callers);
}

attnkit_status attnkit_layer(const attnkit_layer_args *args, const attnkit_exec *exec,
                             char *message)
{
    struct call call = {.message = message};
    /* The scale of attention, which is checked with the rest, is arithmetic. */
    const fp_modes callers = fp_modes_begin();
    attnkit_status status = make_plan(args, exec, &call, message);
    if (status == ATTNKIT_OK && !call.plan.empty)
        status = take_workspace(&call);
    fp_modes_end(callers);
    if (status != ATTNKIT_OK)
        return status;
    if (call.plan.empty)
        return accept(message);
    status = project(&call);
    if (status == ATTNKIT_OK)
        status = attnkit_attention(&call.plan.attention, &call.part, message);
    if (status != ATTNKIT_OK)
        return status;
    meet(&call);
    if (call.plan.args.mean_weights)
        attnkit_run_tasks(&call.exec, call.exec.threads, average, &call);
    return map(&call, &call.plan.o);
}
