/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the rows of a problem lie: query, output and log-sum-exp rows by their number in the
 * group (see attention.h), K and V rows by absolute key index.
 */
#ifndef ATTNKIT_KEYS_H
#define ATTNKIT_KEYS_H

#include "attention.h"

static inline ptrdiff_t row_offset(const struct attention *a, struct strides s, int64_t batch,
                                   int64_t kv_head, int64_t row)
{
    const int64_t head = kv_head * a->group + row % a->group;
    return batch * s.batch + head * s.head + row / a->group * s.row;
}

static inline const float *q_row(const struct attention *a, int64_t batch, int64_t kv_head,
                                 int64_t row)
{
    return (const float *)(a->q + row_offset(a, a->q_stride, batch, kv_head, row));
}

static inline float *out_row(const struct attention *a, int64_t batch, int64_t kv_head, int64_t row)
{
    return (float *)(a->out + row_offset(a, a->out_stride, batch, kv_head, row));
}

static inline float *lse_row(const struct attention *a, int64_t batch, int64_t kv_head, int64_t row)
{
    return (float *)(a->lse + row_offset(a, a->lse_stride, batch, kv_head, row));
}

static inline struct rows k_rows(const struct attention *a, int64_t batch, int64_t kv_head,
                                 int64_t key)
{
    const struct strides s = a->k_stride;
    return (struct rows){a->k + batch * s.batch + kv_head * s.head + key * s.row, s.row,
                         a->head_dim};
}

static inline struct rows v_rows(const struct attention *a, int64_t batch, int64_t kv_head,
                                 int64_t key)
{
    const struct strides s = a->v_stride;
    return (struct rows){a->v + batch * s.batch + kv_head * s.head + key * s.row, s.row,
                         a->value_dim};
}

#endif
