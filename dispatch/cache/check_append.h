/* SPDX-License-Identifier: Apache-2.0
 *
 * From the public arguments of an append to a problem the loop can trust.
 */
#ifndef ATTNKIT_CHECK_APPEND_H
#define ATTNKIT_CHECK_APPEND_H

#include "kernels/cache/append.h"
#include "attnkit.h"
#include "dispatch/common/overlap.h"

/* A checked append and where its tensors lie, for the check of the workspace. */
struct append_problem {
    struct append a;
    bool empty; /* there are no rows: nothing is to be done */
    struct layout dst, dst_scales, src, cos, sin;
    struct strides table_stride; /* of cos and sin, which are dense */
};

/* Sizes, flags and options; neither tensors nor arrays are looked at. */
attnkit_status attnkit_check_append_shape(const attnkit_append_args *args,
                                          struct append_problem *problem, char *message);

/* All of the above, and the tensors and arrays. */
attnkit_status attnkit_check_append(const attnkit_append_args *args, struct append_problem *problem,
                                    char *message);

/* That the workspace lies in no tensor. */
attnkit_status attnkit_check_append_workspace(const struct append_problem *problem,
                                              const void *workspace, size_t size, char *message);

#endif
