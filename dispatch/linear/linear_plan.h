/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a linear map: a plan of its shape, types and strides, memory bound to the plan, and
 * the run. The public calls make all three; a layer plans once, binds everything before it runs
 * anything, and then runs without a check.
 */
#ifndef ATTNKIT_LINEAR_PLAN_H
#define ATTNKIT_LINEAR_PLAN_H

#include "dispatch/common/plan.h"
#include "dispatch/common/tensor.h"
#include "kernels/linear/linear.h"

/* Outputs first. */
enum { LINEAR_Y, LINEAR_X, LINEAR_W, LINEAR_BIAS, LINEAR_TENSORS };

struct linear_plan {
    struct plan_header header;
    struct linear l; /* without addresses; rows are the most of a run */
    bool has_bias;
    int64_t threads;     /* the most of a run */
    size_t scratch_size; /* bytes for each thread */
    struct tensor tensors[LINEAR_TENSORS];
};

/* Plans all but the header. `args` is a full struct of this version; nothing is read through its
 * pointers. */
attnkit_status attnkit_linear_plan_init(const attnkit_linear_args *args, int64_t threads,
                                        const struct kernels *kernels, struct linear_plan *plan,
                                        char *message);

/* Checks everything that a run brings but its workspace, and makes the problem of it. There is at
 * least one row. */
attnkit_status attnkit_linear_bind(const struct linear_plan *plan, const attnkit_linear_data *data,
                                   struct linear *l, struct memory memory[LINEAR_TENSORS],
                                   char *message);

/* Runs this thread's share, or all of them in a parallel-for. `scratch` is the workspace, aligned
 * to 64, with so many bytes for each thread beside its queue. */
void attnkit_linear_execute(const struct linear *l, size_t scratch_size,
                            const struct kernels *kernels, const attnkit_exec *exec, char *scratch);

#endif
