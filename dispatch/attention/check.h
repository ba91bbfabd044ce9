/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks whether the options, shapes and groups of an attention call fit each other. Of an address,
 * these checks only need to know whether it is NULL. plan.c turns a checked request into a plan.
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

/* Returns whether the outputs have no rows. */
static inline bool has_no_rows(const struct request *r)
{
    return r->core->batch == 0 || r->core->q_heads == 0 || r->core->q_len == 0;
}

/* Returns the number of columns of a mask or of a bias: the caller's number, or kv_len if the
 * caller's number is 0. */
static inline int64_t columns_or_keys(const struct request *r, int64_t columns)
{
    return columns ? columns : r->core->kv_len;
}

attnkit_status attnkit_check_request(const struct request *r, char *message);

/* Checks visibility, score mods and weights. The function is in check_groups.c. */
attnkit_status attnkit_check_groups(const struct request *r, char *message);

#endif
