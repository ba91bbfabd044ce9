/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks, score functions, dropout and weights: from the public arguments of an attention to the
 * extras of its problem. check.c calls these in turn; what all attentions have is there.
 */
#ifndef ATTNKIT_CHECK_MASKS_H
#define ATTNKIT_CHECK_MASKS_H

#include "dispatch/attention/check.h"
#include "dispatch/common/tensor.h"

/* What can be said without the scale and the tensors. The sizes in `args` are right. */
attnkit_status attnkit_check_masks(const attnkit_attention_args *args, char *message);

/* Fills a->extras, all 0 so far, but for the strides; `scale` is that of the scores, and
 * a->scale_log2 is set. */
attnkit_status attnkit_set_extras(const attnkit_attention_args *args, double scale,
                                  struct attention *a, char *message);

/* A tensor with a row of so many bytes for each query row, as all of these and others are. */
static inline struct tensor query_rows(const attnkit_attention_args *args, int64_t row_bytes,
                                       int64_t alignment)
{
    return (struct tensor){
        .count = {args->q_starts ? 1 : args->batch, args->q_heads, args->q_len},
        .row_bytes = row_bytes,
        .alignment = alignment,
    };
}

/* The tensor of weights, an output, and those of masks and arrays, if there are any. Each returns
 * how many there are. */
int attnkit_list_weights(const attnkit_attention_args *args, struct problem *p,
                         struct tensor *tensors);
int attnkit_list_masks(const attnkit_attention_args *args, struct problem *p,
                       struct tensor *tensors);

/* That the workspace lies in none of these. */
attnkit_status attnkit_check_masks_apart(const struct problem *p, const void *workspace,
                                         size_t size, char *message);

#endif
