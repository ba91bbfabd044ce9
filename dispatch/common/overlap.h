/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the bytes of a strided tensor lie, and whether two tensors share a byte.
 */
#ifndef ATTNKIT_OVERLAP_H
#define ATTNKIT_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

/* Rows of `row_bytes` at first + sum of index[i] * stride[i], 0 <= index[i] < count[i]. */
struct layout {
    uintptr_t first;
    int64_t row_bytes; /* 0: no bytes at all */
    int dims;          /* used elements of count and stride */
    int64_t count[3];
    int64_t stride[3]; /* after attnkit_layout: positive, ascending */
    int64_t span;      /* bytes from the first row to the end of the last */
};

/* Brings a tensor of 3 dimensions into this form: without dimensions of count 1 or stride 0, and
 * without dimensions that only continue the row. Returns false if the tensor does not fit the
 * address space. Sets *repeats to false only if each dimension lies within one stride of the next,
 * so that no two rows share a byte. Rows that interleave without sharing a byte count as repeats;
 * no layout in use has them. */
bool attnkit_layout(struct layout *layout, const void *data, const int64_t count[3],
                    const int64_t stride[3], int64_t row_bytes, bool *repeats);

/* Whether two tensors share a byte. Exact, also if the rows of one lie in the gaps of the other. If
 * their strides settle nothing, it costs a step for each row of the tensor with fewer rows. */
bool attnkit_layouts_overlap(const struct layout *a, const struct layout *b);

#endif
