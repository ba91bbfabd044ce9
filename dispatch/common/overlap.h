/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the bytes of a strided tensor lie, and whether two of them share one.
 */
#ifndef ATTNKIT_OVERLAP_H
#define ATTNKIT_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

/* Rows of `row_bytes` at first + sum of index[i] * stride[i], 0 <= index[i] < count[i]. */
struct layout {
    uintptr_t first;
    int64_t row_bytes; /* 0: no bytes at all */
    int dims;          /* of count and stride that are used */
    int64_t count[3];
    int64_t stride[3]; /* after attnkit_layout: positive, ascending */
    int64_t span;      /* bytes from the first to the end of the last */
};

/* Brings a tensor of 3 dimensions into that form: no dimension of count 1 or stride 0, none that
 * only continues the row. Returns false if its bytes do not fit the address space. `repeats` is
 * false only if no two rows share a byte and no dimension's rows reach into the next one's stride:
 * rows that interleave without meeting count as repeats, which no layout in use does. */
bool attnkit_layout(struct layout *layout, const void *data, const int64_t count[3],
                    const int64_t stride[3], int64_t row_bytes, bool *repeats);

/* Exact, also where the rows of one lie in the gaps of the other; where those have no common
 * period it costs a step for each row of the one that has fewer. */
bool attnkit_layouts_overlap(const struct layout *a, const struct layout *b);

#endif
