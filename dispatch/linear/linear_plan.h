/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a linear map: planning its shape, types and strides, binding memory to the plan, and
 * running. attnkit_linear does all three steps, attnkit_linear_plan the first step, and
 * attnkit_linear_run the other two. A layer plans its linear maps by attnkit_linear_plan_init. A
 * run of the layer first checks the memory of the whole layer (attnkit_bind_layer). Then it runs
 * the maps by attnkit_linear_execute, which checks nothing.
 */
#ifndef ATTNKIT_LINEAR_PLAN_H
#define ATTNKIT_LINEAR_PLAN_H

#include "dispatch/common/plan.h"
#include "dispatch/common/tensor.h"
#include "kernels/linear/linear.h"

/* The tensors of a linear map, outputs first. */
enum { LINEAR_Y, LINEAR_X, LINEAR_W, LINEAR_BIAS, LINEAR_TENSORS };

struct linear_plan {
    struct plan_header header;
    struct linear l; /* without addresses; rows is an upper bound for runs */
    bool has_bias;
    int64_t threads;     /* upper bound for runs */
    size_t scratch_size; /* bytes for each thread */
    struct tensor tensors[LINEAR_TENSORS];
};

/* Fills the plan. In the header, sets only workspace_size. `args` is a full struct of this version.
 * Reads nothing through the pointers of args. */
attnkit_status attnkit_linear_plan_init(const attnkit_linear_args *args, int64_t threads,
                                        const struct kernels *kernels, struct linear_plan *plan,
                                        char *message);

/* Checks the tensors of a run, but not its workspace, and fills `l` and `memory`. The run must have
 * at least one row. */
attnkit_status attnkit_linear_bind(const struct linear_plan *plan, const attnkit_linear_data *data,
                                   struct linear *l, struct memory memory[LINEAR_TENSORS],
                                   char *message);

/* Runs this thread's share or, with a parallel-for, all shares. `scratch` is the workspace, aligned
 * to 64 bytes: first a queue for each thread, then scratch_size bytes for each thread. */
void attnkit_linear_execute(const struct linear *l, size_t scratch_size,
                            const struct kernels *kernels, const attnkit_exec *exec, char *scratch);

#endif
