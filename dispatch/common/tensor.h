/* SPDX-License-Identifier: Apache-2.0
 *
 * A tensor of a public call, from what the caller says of it (pointer, shape, strides) to strides
 * that kernels can trust and a layout that overlaps nothing it must not. Every call lists its
 * tensors and has them checked here, in the same words.
 */
#ifndef ATTNKIT_TENSOR_H
#define ATTNKIT_TENSOR_H

#include "kernels/attention/attention.h"
#include "attnkit.h"
#include "dispatch/common/overlap.h"

struct tensor {
    const char *name, *strides_name; /* as in the public struct */
    const void *data;
    int64_t count[3]; /* batch, heads, rows */
    int64_t row_bytes;
    int64_t alignment;       /* bytes; the pointer and the strides are multiples of it */
    const int64_t *strides;  /* the caller's, or NULL: always dense */
    struct strides *stride;  /* where the checked ones go */
    struct layout *layout;   /* where the bytes lie, for more checks */
    bool output;             /* no two of its rows may share a byte */
    bool paged;              /* count[0] are pages */
    bool is_mask;            /* ATTNKIT_MASK_STRIDED, too, makes its strides literal */
    const char *const *axes; /* their names, or NULL: batch, head and row */
    bool is_matrix;          /* only rows have a stride, which is not an array for the caller */
    bool tiled;              /* what is a row here is a tile, as attnkit_lay_in_tiles makes it */
    /* An input may be this output, row i of one being row i of the other; or NULL. */
    const struct tensor *in_place;
};

/* Makes a tensor of rows one of tiles: rows go together, the last ones with room for more. */
void attnkit_lay_in_tiles(struct tensor *t);

/* The caller's strides, taken literally if the call's flags say so, or those of a dense tensor. */
attnkit_status attnkit_set_strides(const struct tensor *t, uint32_t flags, char *message);

/* Pointers, alignment, layouts and overlaps of a call's n tensors, whose strides are set. Outputs
 * come first: they are compared with all that follow. */
attnkit_status attnkit_check_tensors(const struct tensor *tensors, int n, char *message);

/* That the workspace has no byte of this tensor. */
attnkit_status attnkit_check_apart(const void *workspace, size_t size, const char *name,
                                   const struct layout *layout, char *message);

#endif
