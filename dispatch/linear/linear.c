/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of linear maps: packing a matrix, and y = x Wᵀ + bias with a packed one. Both
 * check once, choose the kernels and share out tiles, or parts, evenly. In a parallel-for, a thread
 * that is through with its parts goes on with those of others, as in
 * dispatch/attention/steal.h.
 */
#include "kernels/linear/linear.h"

#include "dispatch/cache/cache.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/linear/matrix.h"
#include "dispatch/common/queue.h"
#include "dispatch/common/versioned.h"

/* -------------------------------------------------------------------------------- packing */

/* A packing that has passed every check. */
struct pack_call {
    struct packing p;
    const struct kernels *kernels;
    int64_t tiles, shares;
    size_t bytes; /* of what is packed */
};

static attnkit_status check_pack_shape(const attnkit_pack_args *args, struct pack_call *call,
                                       char *message)
{
    if (args->flags & ~ATTNKIT_STRIDED)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~ATTNKIT_STRIDED));
    if (args->out_dim < 1 || args->in_dim < 1)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least 1",
                      args->out_dim < 1 ? "out_dim" : "in_dim",
                      (long long)(args->out_dim < 1 ? args->out_dim : args->in_dim));
    attnkit_status status =
        attnkit_check_matrix_type("w_type", args->w_type, "in_dim", args->in_dim, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_matrix_type("packed_type", args->packed_type, "in_dim", args->in_dim,
                                           message);
    if (status == ATTNKIT_OK)
        status =
            attnkit_check_matrix_size("out_dim", args->out_dim, "in_dim", args->in_dim, message);
    if (status != ATTNKIT_OK)
        return status;
    if (args->w_type == ATTNKIT_Q8_0 && args->packed_type != ATTNKIT_Q8_0)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "packed_type is %d: must be ATTNKIT_Q8_0 (4), as w_type is",
                      (int)args->packed_type);
    call->tiles = matrix_tiles(args->out_dim);
    call->bytes =
        (size_t)(call->tiles * matrix_tile_bytes((enum type)args->packed_type, args->in_dim));
    return ATTNKIT_OK;
}

static attnkit_status read_pack(const attnkit_pack_args *theirs, attnkit_pack_args *ours,
                                char *message)
{
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    return read_struct(ours, sizeof *ours, sizeof *ours, theirs, "attnkit_pack_args", message);
}

attnkit_status attnkit_packed_size(const attnkit_pack_args *args, size_t *bytes, char *message)
{
    attnkit_pack_args ours = {0};
    struct pack_call call;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    attnkit_status status = read_pack(args, &ours, message);
    if (status == ATTNKIT_OK)
        status = check_pack_shape(&ours, &call, message);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = call.bytes;
    return accept(message);
}

static attnkit_status check_pack_memory(const attnkit_pack_args *args, struct pack_call *call,
                                        char *message)
{
    struct matrix w, packed;
    attnkit_set_matrix(&packed, "packed", "packed", args->packed, TYPE_F32, 1, 1, 0);
    packed.tensor.row_bytes = (int64_t)call->bytes;
    packed.tensor.alignment = MATRIX_ALIGNMENT;
    packed.tensor.output = true;
    attnkit_set_matrix(&w, "w", "w_stride", args->w, (enum type)args->w_type, args->out_dim,
                       args->in_dim, args->w_stride);
    attnkit_status status = attnkit_set_strides(&w.tensor, args->flags, message);
    if (status == ATTNKIT_OK)
        status = attnkit_set_strides(&packed.tensor, 0, message);
    if (status != ATTNKIT_OK)
        return status;
    const struct tensor tensors[] = {packed.tensor, w.tensor};
    status = attnkit_check_tensors(tensors, 2, message);
    if (status != ATTNKIT_OK)
        return status;
    if (args->packed_size < call->bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "packed_size is %zu: %zu needed",
                      args->packed_size, call->bytes);
    call->p = (struct packing){
        .out_dim = args->out_dim,
        .in_dim = args->in_dim,
        .type = (enum type)args->w_type,
        .packed_type = (enum type)args->packed_type,
        .w = args->w,
        .stride = w.stride.row,
        .packed = args->packed,
    };
    return ATTNKIT_OK;
}

static void pack_share(void *arg, int64_t share)
{
    const struct pack_call *call = arg;
    if (share < 0 || share >= call->shares)
        return;
    const fp_modes callers = fp_modes_begin();
    attnkit_pack_tiles(&call->p, call->kernels, first_of_share(call->tiles, call->shares, share),
                       first_of_share(call->tiles, call->shares, share + 1));
    fp_modes_end(callers);
}

attnkit_status attnkit_pack(const attnkit_pack_args *args, const attnkit_exec *exec, char *message)
{
    attnkit_pack_args ours = {0};
    struct pack_call call;
    attnkit_exec ours_exec;
    struct isa_choice choice;
    attnkit_status status = read_pack(args, &ours, message);
    if (status == ATTNKIT_OK)
        status = check_pack_shape(&ours, &call, message);
    if (status == ATTNKIT_OK)
        status = check_pack_memory(&ours, &call, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &ours_exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(ours_exec.isa, &choice, message);
    if (status != ATTNKIT_OK)
        return status;
    call.kernels = choice.isa->kernels;
    call.shares = ours_exec.threads < call.tiles ? ours_exec.threads : call.tiles;
    attnkit_run_tasks(&ours_exec, call.shares, pack_share, &call);
    return accept(message);
}

/* ---------------------------------------------------------------------------- linear maps */

/* What a call comes to once it has been checked. */
struct plan {
    struct linear l;
    attnkit_exec exec;
    const struct kernels *kernels;
    int64_t parts, shares;
    size_t scratch_size;   /* bytes for each share */
    size_t workspace_size; /* 0 where there are no rows */
    bool takes_over;       /* threads do, parts of others; from queues [shares] in the workspace */
    struct queue *queues;
    char *scratch; /* aligned */
    struct matrix x, w, bias, y;
};

static attnkit_status check_linear_options(const attnkit_linear_args *args, char *message)
{
    const struct {
        const char *name;
        int64_t value, smallest;
    } dims[] = {
        {"rows", args->rows, 0}, {"in_dim", args->in_dim, 1}, {"out_dim", args->out_dim, 1}};
    if (args->flags & ~ATTNKIT_STRIDED)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~ATTNKIT_STRIDED));
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < dims[i].smallest)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least %lld",
                          dims[i].name, (long long)dims[i].value, (long long)dims[i].smallest);
    attnkit_status status = attnkit_check_rounded("x_type", args->x_type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rounded("y_type", args->y_type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_matrix_type("w_type", args->w_type, "in_dim", args->in_dim, message);
    return status;
}

static attnkit_status check_linear_sizes(const attnkit_linear_args *args, char *message)
{
    attnkit_status status =
        attnkit_check_matrix_size("rows", args->rows, "in_dim", args->in_dim, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_matrix_size("rows", args->rows, "out_dim", args->out_dim, message);
    if (status == ATTNKIT_OK)
        status =
            attnkit_check_matrix_size("out_dim", args->out_dim, "in_dim", args->in_dim, message);
    return status;
}

static attnkit_status set_tensors(const attnkit_linear_args *args, struct plan *plan, char *message)
{
    const struct linear *l = &plan->l;
    attnkit_set_matrix(&plan->y, "y", "y_stride", args->y, l->y_type, l->rows, l->out_dim,
                       args->y_stride);
    attnkit_set_matrix(&plan->x, "x", "x_stride", args->x, l->x_type, l->rows, l->in_dim,
                       args->x_stride);
    attnkit_set_matrix(&plan->bias, "bias", "bias", args->bias, TYPE_F32, args->bias ? 1 : 0,
                       l->out_dim, 0);
    attnkit_set_matrix(&plan->w, "w", "w", args->w, l->w_type, matrix_tiles(l->out_dim), 1, 0);
    plan->w.tensor.row_bytes = matrix_tile_bytes(l->w_type, l->in_dim);
    plan->w.tensor.alignment = MATRIX_ALIGNMENT;
    plan->y.tensor.output = true;
    attnkit_status status = attnkit_set_strides(&plan->y.tensor, args->flags, message);
    if (status == ATTNKIT_OK)
        status = attnkit_set_strides(&plan->x.tensor, args->flags, message);
    if (status == ATTNKIT_OK)
        status = attnkit_set_strides(&plan->w.tensor, 0, message);
    if (status == ATTNKIT_OK)
        status = attnkit_set_strides(&plan->bias.tensor, 0, message);
    plan->l.x_stride = plan->x.stride.row;
    plan->l.y_stride = plan->y.stride.row;
    return status;
}

static attnkit_status check_shape(const attnkit_linear_args *theirs, struct plan *plan,
                                  char *message)
{
    attnkit_linear_args args = {0};
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    attnkit_status status =
        read_struct(&args, sizeof args, sizeof args, theirs, "attnkit_linear_args", message);
    if (status == ATTNKIT_OK)
        status = check_linear_options(&args, message);
    if (status == ATTNKIT_OK)
        status = check_linear_sizes(&args, message);
    if (status != ATTNKIT_OK)
        return status;
    plan->l = (struct linear){
        .rows = args.rows,
        .in_dim = args.in_dim,
        .out_dim = args.out_dim,
        .x_type = (enum type)args.x_type,
        .w_type = (enum type)args.w_type,
        .y_type = (enum type)args.y_type,
        .x = args.x,
        .w = args.w,
        .bias = args.bias,
        .y = args.y,
    };
    return set_tensors(&args, plan, message);
}

static attnkit_status make_plan(const attnkit_linear_args *args, const attnkit_exec *exec,
                                struct plan *plan, char *message)
{
    struct isa_choice choice;
    attnkit_status status = check_shape(args, plan, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &plan->exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(plan->exec.isa, &choice, message);
    plan->workspace_size = 0;
    if (status != ATTNKIT_OK || plan->l.rows == 0)
        return status;
    plan->kernels = choice.isa->kernels;
    plan->parts = attnkit_linear_parts(&plan->l, plan->kernels);
    plan->shares = plan->exec.threads < plan->parts ? plan->exec.threads : plan->parts;
    plan->scratch_size = attnkit_linear_scratch(&plan->l, plan->kernels);
    return attnkit_workspace_bytes(0, sizeof(struct queue) + plan->scratch_size, plan->exec.threads,
                                   &plan->workspace_size, message);
}

attnkit_status attnkit_linear_workspace(const attnkit_linear_args *args, const attnkit_exec *exec,
                                        size_t *bytes, char *message)
{
    struct plan plan;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    const attnkit_status status = make_plan(args, exec, &plan, message);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = plan.workspace_size;
    return accept(message);
}

static attnkit_status check_memory(struct plan *plan, char *message)
{
    const struct tensor tensors[] = {plan->y.tensor, plan->x.tensor, plan->w.tensor,
                                     plan->bias.tensor};
    attnkit_status status = attnkit_check_tensors(tensors, 4, message);
    if (status == ATTNKIT_OK)
        status = attnkit_take_workspace(&plan->exec, plan->workspace_size, &plan->scratch, message);
    for (int i = 0; status == ATTNKIT_OK && i < 4; i++)
        status = attnkit_check_apart(plan->exec.workspace, plan->workspace_size, tensors[i].name,
                                     tensors[i].layout, message);
    return status;
}

/* Parts of a thread that knows of no other one. */
struct parts {
    int64_t next, end;
};

static int64_t next_part(void *arg)
{
    struct parts *const parts = arg;
    return parts->next < parts->end ? parts->next++ : -1;
}

/* Where a thread of a parallel-for takes parts from: its queue, and then those that come round
 * after it. */
struct taking {
    struct queue *queues;
    int64_t count, at, tried;
    int64_t least; /* parts that a queue must have left */
    int64_t least_of_others;
};

static int64_t take_part(void *arg)
{
    struct taking *const t = arg;
    for (; t->tried < t->count; t->tried++) {
        struct queue *const queue = &t->queues[t->at];
        if (queue->end - atomic_load(&queue->next) >= t->least) {
            const int64_t part = atomic_fetch_add(&queue->next, 1);
            t->least = 1;
            if (part < queue->end)
                return part;
        }
        t->at = (t->at + 1) % t->count;
        t->least = t->least_of_others;
    }
    return -1;
}

static struct parts parts_of(const struct plan *plan, int64_t share)
{
    return (struct parts){first_of_share(plan->parts, plan->shares, share),
                          first_of_share(plan->parts, plan->shares, share + 1)};
}

static void begin_queues(const struct plan *plan)
{
    for (int64_t i = 0; i < plan->shares; i++) {
        const struct parts parts = parts_of(plan, i);
        atomic_init(&plan->queues[i].next, parts.next);
        plan->queues[i].end = parts.end;
    }
}

static void run_share(void *arg, int64_t share)
{
    const struct plan *plan = arg;
    if (share < 0 || share >= plan->shares)
        return;
    char *const scratch = plan->scratch + (size_t)share * plan->scratch_size;
    const fp_modes callers = fp_modes_begin();
    if (plan->takes_over) {
        struct taking taking = {
            .queues = plan->queues,
            .count = plan->shares,
            .at = share,
            .least = 1,
            .least_of_others = 1 + attnkit_linear_parts_of_change(&plan->l, plan->kernels),
        };
        attnkit_linear_run(&plan->l, plan->kernels, take_part, &taking, scratch);
    } else {
        struct parts parts = parts_of(plan, share);
        attnkit_linear_run(&plan->l, plan->kernels, next_part, &parts, scratch);
    }
    fp_modes_end(callers);
}

attnkit_status attnkit_linear(const attnkit_linear_args *args, const attnkit_exec *exec,
                              char *message)
{
    struct plan plan;
    attnkit_status status = make_plan(args, exec, &plan, message);
    if (status != ATTNKIT_OK)
        return status;
    if (plan.l.rows == 0)
        return accept(message);
    status = check_memory(&plan, message);
    if (status != ATTNKIT_OK)
        return status;
    plan.queues = (struct queue *)(void *)plan.scratch;
    plan.scratch += (size_t)plan.exec.threads * sizeof *plan.queues;
    plan.takes_over = plan.exec.parallel_for && plan.shares > 1;
    if (plan.takes_over)
        begin_queues(&plan);
    attnkit_run_tasks(&plan.exec, plan.shares, run_share, &plan);
    return accept(message);
}
