/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of an append: reading the caller's structs, planning (shapes, types and strides),
 * binding memory to the plan, and running. attnkit_append takes all these steps.
 * attnkit_append_plan ends with the plan. attnkit_append_run binds memory to a plan and runs the
 * plan. A layer plans once and binds all its parts before it runs the first part. The runs of the
 * parts make no checks.
 */
#ifndef ATTNKIT_APPEND_PLAN_H
#define ATTNKIT_APPEND_PLAN_H

#include "dispatch/common/plan.h"
#include "dispatch/common/tensor.h"
#include "kernels/cache/append.h"

/* The caller's structs as this version of the library knows them: copies if their sizes differ from
 * the sizes in this version. If the caller gives no pages, `pages` points to a struct whose fields
 * are all 0. If the caller gives no rotation, `rotation` points to a struct whose fields are all 0.
 */
struct append_request {
    const attnkit_append_args *args;
    const attnkit_pages *pages;
    const attnkit_rotation *rotation;
    attnkit_append_args args_copy;
    attnkit_pages pages_copy;
    attnkit_rotation rotation_copy;
};

/* Reads the rotation of an append or of a layer. If `theirs` is NULL, there is no rotation: all
 * fields of **rotation are 0. */
attnkit_status attnkit_read_rotation(const attnkit_rotation *theirs, attnkit_rotation *copy,
                                     const attnkit_rotation **rotation, char *message);

/* Checks a rotation for rows of `dim` elements. The check compares floating-point numbers, so it
 * must be made between fp_modes_begin and fp_modes_end. */
attnkit_status attnkit_check_rotation(const attnkit_rotation *rotation, int64_t dim, char *message);

attnkit_status attnkit_read_append(const attnkit_append_args *args, struct append_request *r,
                                   char *message);

/* The tensors and arrays that an append may have, outputs first. */
enum {
    APPEND_DST,
    APPEND_SCALES,
    APPEND_SRC,
    APPEND_COS,
    APPEND_SIN,
    APPEND_STARTS,
    APPEND_LENS,
    APPEND_POSITIONS,
    APPEND_BLOCK_TABLE,
    APPEND_TENSORS
};

struct append_plan {
    struct plan_header header;
    struct append a; /* without addresses; batch and len are upper bounds for runs */
    int64_t capacity, table_positions;
    bool empty;          /* no run has rows */
    int64_t threads;     /* upper bound for runs */
    size_t scratch_size; /* bytes for each thread */
    uint32_t given;      /* bit i: tensor i is present */
    struct tensor tensors[APPEND_TENSORS];
};

/* Fills the plan. In the header, sets only workspace_size: attnkit_begin_plan writes the other
 * fields of the header. Reads nothing through the pointers of args. For optional pointers it only
 * matters whether they are NULL. */
attnkit_status attnkit_append_plan_init(const struct append_request *r, int64_t threads,
                                        struct append_plan *plan, char *message);

/* Lengths and addresses of a run. */
struct append_input {
    int64_t batch, len;
    const void *data[APPEND_TENSORS];
};

/* Memory of a run, which the workspace must not overlap. */
struct append_memory {
    struct memory list[APPEND_TENSORS];
    int count;
};

/* Checks the inputs of a run, except its workspace, and fills `a`. The plan must not be empty. */
attnkit_status attnkit_append_bind(const struct append_plan *plan, const struct append_input *input,
                                   struct append *a, struct append_memory *memory, char *message);

/* Checks that the positions of batch entry b are not negative and fit 63 bits. If there are tables
 * of cos and sin, also checks that the positions are within the tables. If there is a rotation,
 * attnkit_append_bind makes this check, too. */
attnkit_status attnkit_check_append_positions(const struct append *a, int64_t table_positions,
                                              int64_t b, char *message);

/* Runs this thread's share of the rows or, with a parallel-for, all rows. `scratch` is the
 * workspace, aligned to 64 bytes, with scratch_size bytes for each thread. */
void attnkit_append_execute(const struct append *a, size_t scratch_size,
                            const struct kernels *kernels, const attnkit_exec *exec, char *scratch);

#endif
