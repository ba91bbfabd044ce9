/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the public arguments of a linear map into its plan: checks shapes, types and strides, and
 * computes the size of the workspace. Planning costs some nanoseconds.
 */
#include "dispatch/linear/linear_plan.h"

#include "dispatch/cache/cache.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/message.h"
#include "dispatch/common/queue.h"
#include "dispatch/linear/matrix.h"

static attnkit_status check_dims(const attnkit_linear_args *args, char *message)
{
    const struct {
        const char *name;
        int64_t value, smallest;
    } dims[] = {
        {"rows", args->rows, 0}, {"in_dim", args->in_dim, 1}, {"out_dim", args->out_dim, 1}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < dims[i].smallest)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least %lld",
                          dims[i].name, (long long)dims[i].value, (long long)dims[i].smallest);
    return ATTNKIT_OK;
}

/* Refuses flags that are not known, a `reserved` that is not 0, and ATTNKIT_INTEGERS with a matrix
 * of another type than ATTNKIT_Q8_0. */
static attnkit_status check_flags(const attnkit_linear_args *args, char *message)
{
    const uint32_t known = ATTNKIT_INTEGERS;
    if (args->flags & ~known)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~known));
    if (args->reserved)
        return refuse(message, ATTNKIT_UNSUPPORTED, "reserved is 0x%x: must be 0",
                      (unsigned)args->reserved);
    if ((args->flags & ATTNKIT_INTEGERS) && args->w.type != ATTNKIT_Q8_0)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_INTEGERS, but w.type is %d: must be ATTNKIT_Q8_0 (4)",
                      (int)args->w.type);
    return ATTNKIT_OK;
}

static attnkit_status check_types(const attnkit_linear_args *args, char *message)
{
    attnkit_status status = attnkit_check_rounded("x.type", args->x.type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rounded("y.type", args->y.type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_matrix_type("w.type", args->w.type, "in_dim", args->in_dim, message);
    if (status == ATTNKIT_OK && args->w.layout != 0)
        status = refuse(message, ATTNKIT_UNSUPPORTED,
                        "w.layout is 0x%x: must be 0 for a matrix from attnkit_pack",
                        (unsigned)args->w.layout);
    return status;
}

static attnkit_status check_sizes(const attnkit_linear_args *args, char *message)
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

static attnkit_status plan_tensors(const attnkit_linear_args *args, struct linear_plan *plan,
                                   char *message)
{
    const struct linear *l = &plan->l;
    struct tensor *const y = &plan->tensors[LINEAR_Y], *const x = &plan->tensors[LINEAR_X];
    struct tensor *const w = &plan->tensors[LINEAR_W], *const bias = &plan->tensors[LINEAR_BIAS];
    attnkit_begin_matrix(y, "y", l->y_type, l->rows, l->out_dim);
    attnkit_begin_matrix(x, "x", l->x_type, l->rows, l->in_dim);
    attnkit_begin_matrix(w, "w", l->w_type, matrix_tiles(l->out_dim), 1);
    attnkit_begin_matrix(bias, "bias", TYPE_F32, args->bias ? 1 : 0, l->out_dim);
    y->output = true;
    w->row_bytes = matrix_tile_bytes(l->w_type, l->in_dim);
    w->alignment = MATRIX_ALIGNMENT;
    attnkit_status status = attnkit_plan_matrix(y, &args->y, message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_matrix(x, &args->x, message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_matrix(w, &args->w, message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_dense(bias, message);
    plan->l.x_stride = x->stride[2];
    plan->l.y_stride = y->stride[2];
    return status;
}

attnkit_status attnkit_linear_plan_init(const attnkit_linear_args *args, int64_t threads,
                                        const struct kernels *kernels, struct linear_plan *plan,
                                        char *message)
{
    attnkit_status status = check_dims(args, message);
    if (status == ATTNKIT_OK)
        status = check_types(args, message);
    if (status == ATTNKIT_OK)
        status = check_flags(args, message);
    if (status == ATTNKIT_OK)
        status = check_sizes(args, message);
    if (status != ATTNKIT_OK)
        return status;
    plan->l = (struct linear){
        .rows = args->rows,
        .in_dim = args->in_dim,
        .out_dim = args->out_dim,
        .integers = args->flags & ATTNKIT_INTEGERS,
        .x_type = (enum type)args->x.type,
        .w_type = (enum type)args->w.type,
        .y_type = (enum type)args->y.type,
    };
    plan->has_bias = args->bias;
    plan->threads = threads;
    plan->scratch_size = attnkit_linear_scratch(&plan->l, kernels);
    plan->header.workspace_size = 0;
    status = plan_tensors(args, plan, message);
    if (status != ATTNKIT_OK || args->rows == 0)
        return status;
    return attnkit_workspace_bytes(0, sizeof(struct queue) + plan->scratch_size, threads,
                                   &plan->header.workspace_size, message);
}
