/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be said of an attention call without addresses: options, shapes and groups that fit each
 * other. plan.h turns what has passed into a plan.
 */
#ifndef ATTNKIT_CHECK_H
#define ATTNKIT_CHECK_H

#include "dispatch/attention/request.h"
#include "kernels/attention/attention.h"

static inline int64_t value_dim_of(const struct request *r)
{
    return r->core->value_dim ? r->core->value_dim : r->core->head_dim;
}

static inline struct pages pages_of(const struct request *r)
{
    return (struct pages){r->pages->block_table, r->pages->block_table_stride, r->pages->page_size,
                          r->pages->pages};
}

static inline bool is_tiled(const struct request *r)
{
    return r->core->k.layout & ATTNKIT_TILED;
}

/* Whether there are no outputs. */
static inline bool has_no_rows(const struct request *r)
{
    return r->core->batch == 0 || r->core->q_heads == 0 || r->core->q_len == 0;
}

/* Columns of a mask for which the caller said so many. */
static inline int64_t columns_or_keys(const struct request *r, int64_t columns)
{
    return columns ? columns : r->core->kv_len;
}

attnkit_status attnkit_check_request(const struct request *r, char *message);

/* The part of it in check_groups.c: visibility, score functions and weights. */
attnkit_status attnkit_check_groups(const struct request *r, char *message);

#endif
