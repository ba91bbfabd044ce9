/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor of a public call, in two steps. A plan has its shape and checked strides. A run brings
 * an address, and both together are memory that must overlap no output. All calls check their
 * tensors here, in the same words.
 */
#ifndef ATTNKIT_TENSOR_H
#define ATTNKIT_TENSOR_H

#include <stdbool.h>

#include "attnkit.h"
#include "dispatch/common/overlap.h"
#include "kernels/attention/attention.h"

/* Without an address. The caller of attnkit_plan_tensor fills in the fields above the strides. */
struct tensor {
    const char *name; /* of the public field */
    int64_t count[3]; /* batch entries or pages, heads, rows or tiles */
    int64_t row_bytes;
    int32_t alignment; /* bytes; the address and the strides are multiples of it */
    bool output;       /* no two of its rows may share a byte */
    bool paged;        /* count[0] are pages */
    bool tiled;        /* a row is a tile, as attnkit_lay_in_tiles makes it */
    int64_t stride[3]; /* bytes; 0 along a dimension of size 1 */
    int64_t below;     /* bytes before the address, */
    int64_t span;      /* and all bytes from the first to the end of the last; 0: no rows */
};

/* Makes a tensor of rows one of tiles: rows go together, the last ones with room for more. */
void attnkit_lay_in_tiles(struct tensor *t);

/* That layout has none but the bits `known`. */
attnkit_status attnkit_check_layout(const char *name, uint32_t layout, uint32_t known,
                                    char *message);

/* Sets the strides, which are the caller's if its layout says so, or those of a dense tensor. */
attnkit_status attnkit_plan_tensor(struct tensor *t, const attnkit_tensor *theirs, char *message);

/* The same for an array that is always dense. */
attnkit_status attnkit_plan_dense(struct tensor *t, char *message);

/* A tensor at an address, with as many rows as a run has. */
struct memory {
    const struct tensor *tensor;
    const void *data;
    int64_t count[3];
    uintptr_t first, end; /* of all its bytes; equal where there are none */
    /* This output may be the same tensor, row i of one being row i of the other; or NULL. */
    const struct memory *in_place;
};

/* Checks NULL, alignment and the end of the address space. With all rows that were planned, or with
 * as many as `count` says, which are at most as many. */
attnkit_status attnkit_bind(struct memory *m, const struct tensor *t, const void *data,
                            char *message);
attnkit_status attnkit_bind_part(struct memory *m, const struct tensor *t, const int64_t count[3],
                                 const void *data, char *message);

/* That outputs overlap nothing. They come first and are compared with all that follow them. */
attnkit_status attnkit_check_overlaps(const struct memory *memory, int n, char *message);

/* That the workspace has no byte of these. */
attnkit_status attnkit_check_workspace_apart(const struct memory *memory, int n,
                                             const void *workspace, size_t size, char *message);

/* Whether two tensors share a byte. */
bool attnkit_memory_overlaps(const struct memory *a, const struct memory *b);

static inline struct strides strides_of(const struct tensor *t)
{
    return (struct strides){t->stride[0], t->stride[1], t->stride[2]};
}

#endif
