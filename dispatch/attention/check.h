/* SPDX-License-Identifier: Apache-2.0
 *
 * From public arguments to a problem the kernels can trust.
 */
#ifndef ATTNKIT_CHECK_H
#define ATTNKIT_CHECK_H

#include "kernels/attention/attention.h"
#include "attnkit.h"
#include "dispatch/common/overlap.h"

enum { EXTRA_TENSORS = 9 }; /* at most: weights, 3 masks, 2 of documents, slopes, sinks, seeds */

/* A checked problem and where its tensors lie, for the check of the workspace. */
struct problem {
    struct attention a;
    bool empty; /* there is no output: nothing is to be done */
    struct layout q, k, v, out, lse, k_scales, v_scales;
    struct strides before_strides[3], after_strides[3];
    struct layout before[3], after[3]; /* states: row_max, row_sum, out */
    int extra_tensors;                 /* that the call has */
    const char *extra_names[EXTRA_TENSORS];
    struct strides array_strides[EXTRA_TENSORS]; /* of those that are arrays */
    struct layout extras[EXTRA_TENSORS];
};

/* Sizes, flags and options; neither tensors nor arrays are looked at. */
attnkit_status attnkit_check_shape(const attnkit_attention_args *args, struct problem *problem,
                                   char *message);

/* All of the above, and the tensors and arrays. */
attnkit_status attnkit_check(const attnkit_attention_args *args, struct problem *problem,
                             char *message);

/* That the workspace lies in no tensor. */
attnkit_status attnkit_check_workspace(const struct problem *problem, const void *workspace,
                                       size_t size, char *message);

#endif
