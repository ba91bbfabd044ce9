/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of public calls and their checks. A plan holds the shape and the checked strides of a
 * tensor. A run adds an address. Tensor and address together are called memory. An output shares no
 * byte with other memory, unless the call works in place. All calls share these checks and their
 * messages.
 */
#ifndef ATTNKIT_TENSOR_H
#define ATTNKIT_TENSOR_H

#include <stdbool.h>

#include "attnkit.h"
#include "dispatch/common/overlap.h"
#include "kernels/attention/attention.h"

/* A tensor without an address. The caller of attnkit_plan_tensor or attnkit_plan_dense fills in the
 * fields above stride. */
struct tensor {
    const char *name; /* name of the public field */
    int64_t count[3]; /* batch entries or pages, heads, rows or tiles */
    int64_t row_bytes;
    int32_t alignment; /* bytes; divides the address and the strides */
    bool output;       /* an output: no two of its rows may share a byte */
    bool paged;        /* count[0] is a number of pages */
    bool tiled;        /* a row is a tile, as attnkit_lay_in_tiles makes it */
    int64_t stride[3]; /* bytes; 0 along a dimension of size 0 or 1 */
    int64_t below;     /* bytes that lie before the address, because of negative strides */
    int64_t span;      /* bytes from the first row to the end of the last row; 0: no bytes */
};

/* Turns a tensor of rows into a tensor of tiles. The last tile is as large as the other tiles, even
 * if fewer rows are left for it. */
void attnkit_lay_in_tiles(struct tensor *t);

/* Checks that `layout` has no bits but the bits in `known`. */
attnkit_status attnkit_check_layout(const char *name, uint32_t layout, uint32_t known,
                                    char *message);

/* Sets stride, below and span. The strides are the caller's strides if the layout has
 * ATTNKIT_STRIDED, else dense strides. */
attnkit_status attnkit_plan_tensor(struct tensor *t, const attnkit_tensor *theirs, char *message);

/* Sets stride, below and span of an array, which is always dense. */
attnkit_status attnkit_plan_dense(struct tensor *t, char *message);

/* A tensor at an address, with the rows of a run. */
struct memory {
    const struct tensor *tensor;
    const void *data;
    int64_t count[3];
    uintptr_t first, end; /* bytes first .. end - 1; equal if there are no bytes */
    /* NULL, or an output whose rows may lie at the same addresses as the rows of this tensor. */
    const struct memory *in_place;
};

/* Bind a tensor to an address, and set in_place to NULL. The functions refuse NULL if there are
 * bytes to bind. They also refuse a wrong alignment, and a tensor that leaves the address space.
 * attnkit_bind binds all planned rows. attnkit_bind_part binds the dimensions in `count`, which are
 * at most the planned dimensions. */
attnkit_status attnkit_bind(struct memory *m, const struct tensor *t, const void *data,
                            char *message);
attnkit_status attnkit_bind_part(struct memory *m, const struct tensor *t, const int64_t count[3],
                                 const void *data, char *message);

/* Checks that outputs overlap no other tensor. The exception is an input whose `in_place` is the
 * output and whose rows lie exactly at the rows of the output. Outputs must come first in `memory`.
 * Each output is compared with all tensors after it. */
attnkit_status attnkit_check_overlaps(const struct memory *memory, int n, char *message);

/* Checks that the workspace shares no byte with these tensors. */
attnkit_status attnkit_check_workspace_apart(const struct memory *memory, int n,
                                             const void *workspace, size_t size, char *message);

static inline struct strides strides_of(const struct tensor *t)
{
    return (struct strides){t->stride[0], t->stride[1], t->stride[2]};
}

#endif
