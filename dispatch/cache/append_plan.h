/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of an append: the caller's structs read, a plan of shapes, types and strides, memory
 * bound to the plan, and the run. The public calls make all of them; a layer plans once, binds
 * everything before it runs anything, and then runs without a check.
 */
#ifndef ATTNKIT_APPEND_PLAN_H
#define ATTNKIT_APPEND_PLAN_H

#include "dispatch/common/plan.h"
#include "dispatch/common/tensor.h"
#include "kernels/cache/append.h"

/* The caller's structs as this version of the library knows them, copied where they have another
 * size. Pages and a rotation that there are not ask for nothing. */
struct append_request {
    const attnkit_append_args *args;
    const attnkit_pages *pages;
    const attnkit_rotation *rotation;
    attnkit_append_args args_copy;
    attnkit_pages pages_copy;
    attnkit_rotation rotation_copy;
};

/* Reads a rotation, which layers have as well; NULL asks for none. */
attnkit_status attnkit_read_rotation(const attnkit_rotation *theirs, attnkit_rotation *copy,
                                     const attnkit_rotation **rotation, char *message);

/* Checks it for rows of so many elements. Compares numbers: not in the caller's modes. */
attnkit_status attnkit_check_rotation(const attnkit_rotation *rotation, int64_t dim, char *message);

attnkit_status attnkit_read_append(const attnkit_append_args *args, struct append_request *r,
                                   char *message);

/* All memory that an append may have, outputs first. */
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
    struct append a; /* without addresses; batch and len are the most of a run */
    int64_t capacity, table_positions;
    bool empty;          /* every run is */
    int64_t threads;     /* the most of a run */
    size_t scratch_size; /* bytes for each thread */
    uint32_t given;      /* bit i: there is tensor i */
    struct tensor tensors[APPEND_TENSORS];
};

/* Plans all but the header. Nothing is read through the pointers of args, and it only matters which
 * of the optional ones are NULL. */
attnkit_status attnkit_append_plan_init(const struct append_request *r, int64_t threads,
                                        struct append_plan *plan, char *message);

/* What a run brings. */
struct append_input {
    int64_t batch, len;
    const void *data[APPEND_TENSORS];
};

/* Memory of a run, for the check of its workspace. */
struct append_memory {
    struct memory list[APPEND_TENSORS];
    int count;
};

/* Checks everything that a run brings but its workspace, and makes the problem of it. It is not
 * empty. */
attnkit_status attnkit_append_bind(const struct append_plan *plan, const struct append_input *input,
                                   struct append *a, struct append_memory *memory, char *message);

/* The part of it that looks at the positions of entry b of a rotation: that they are some, and in
 * the tables of so many. */
attnkit_status attnkit_check_append_positions(const struct append *a, int64_t table_positions,
                                              int64_t b, char *message);

/* Runs this thread's share of the rows, or all of them in a parallel-for. `scratch` is the
 * workspace, aligned to 64, of so many bytes for each thread. */
void attnkit_append_execute(const struct append *a, size_t scratch_size,
                            const struct kernels *kernels, const attnkit_exec *exec, char *scratch);

#endif
