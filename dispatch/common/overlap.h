/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the bytes of a strided tensor lie, and whether two tensors share a byte.
 */
#ifndef ATTNKIT_OVERLAP_H
#define ATTNKIT_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

/* The rows of a tensor. Each row has row_bytes bytes and lies at first + the sum of index[i] *
 * stride[i], with 0 <= index[i] < count[i]. */
struct layout {
    uintptr_t first;
    int64_t row_bytes; /* 0: no bytes at all */
    int dims;          /* number of elements of count and stride in use */
    int64_t count[3];
    int64_t stride[3]; /* bytes; attnkit_layout makes them positive and ascending */
    int64_t span;      /* bytes from the first row to the end of the last row */
};

/* Sets *layout to the layout of a tensor of 3 dimensions. Leaves out dimensions of count 1 or
 * stride 0, and dimensions that only continue the row. Returns false if the tensor does not fit the
 * address space. Sets *repeats to false if each stride is at least as long as a row together with
 * all dimensions of smaller strides. Then no two rows share a byte. Else sets *repeats to true:
 * rows may share bytes. Strides of dimensions of count 1 do not count here. tensor.c refuses an
 * output for which *repeats is true. */
bool attnkit_layout(struct layout *layout, const void *data, const int64_t count[3],
                    const int64_t stride[3], int64_t row_bytes, bool *repeats);

/* Returns whether two tensors share a byte. The answer is exact, also if the rows of one tensor lie
 * in the gaps of the other. If the strides do not settle the answer, the time grows with the rows
 * of the tensor that has fewer rows. */
bool attnkit_layouts_overlap(const struct layout *a, const struct layout *b);

#endif
