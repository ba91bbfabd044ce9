/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging: the results of attention over several parts of the keys become one result.
 * dispatch/attention/merge.c checks the caller's arguments and fills struct merge from them.
 * Strides are in bytes.
 */
#ifndef ATTNKIT_KERNELS_MERGE_H
#define ATTNKIT_KERNELS_MERGE_H

#include "kernels/attention/attention.h"

struct merge {
    int64_t parts, batch, heads, q_len, value_dim;
    const float *const *part_outs; /* [parts] addresses of first rows; an address may be `out` */
    const float *const *part_lses; /* [parts] addresses of first lse; an address may be `lse` */
    char *out, *lse;               /* lse may be NULL */
    enum type out_type;
    struct strides part_out_stride, part_lse_stride, out_stride, lse_stride;
};

/* Computes and writes the rows first .. end - 1 of the batch * heads * q_len rows. An element is
 * written after the same element of all parts has been read. No other row is touched. */
void attnkit_merge_rows(const struct merge *m, const struct kernels *kernels, int64_t first,
                        int64_t end);

#endif
