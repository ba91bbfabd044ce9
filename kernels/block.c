/* SPDX-License-Identifier: Apache-2.0
 *
 * From stored rows to rows that tiles take. Bound by memory: each element is read once, and written
 * to scratch that stays in the second cache.
 */
#include "block.h"

#include "keys.h"

bool attnkit_needs_wide(const struct attention *a)
{
    return a->q_type != TYPE_F32 || a->k.type != TYPE_F32 || a->v.type != TYPE_F32 ||
           a->out_type != TYPE_F32 || a->pages.table;
}

int64_t attnkit_wide_floats(const struct attention *a)
{
    return attnkit_needs_wide(a) ? KEY_BLOCK * (a->head_dim + a->value_dim) : 0;
}

struct wide attnkit_take_wide(const struct attention *a, float *scratch)
{
    if (!attnkit_needs_wide(a))
        return (struct wide){NULL, NULL};
    return (struct wide){scratch, scratch + KEY_BLOCK * a->head_dim};
}

static bool is_at_one_stride(const struct attention *a, const struct cache *c, int64_t first,
                             int keys)
{
    return c->type == TYPE_F32 &&
           (!a->pages.table || first / a->pages.size == (first + keys - 1) / a->pages.size);
}

static struct rows widen(const struct attention *a, const struct kernels *kernels,
                         const struct cache *c, int64_t batch, int64_t kv_head, int64_t first,
                         int keys, float *wide)
{
    for (int i = 0; i < keys; i++) {
        const struct key_row row = key_row(a, c, batch, kv_head, first + i);
        kernels->widen(c->type, row.data, row.scales, c->scale_group, c->dim, wide + i * c->dim);
    }
    return (struct rows){(const char *)wide, c->dim * (int64_t)sizeof *wide, c->dim};
}

static struct rows in_place(const struct attention *a, const struct cache *c, int64_t batch,
                            int64_t kv_head, int64_t first)
{
    return (struct rows){key_row(a, c, batch, kv_head, first).data, c->stride.row, c->dim};
}

struct block attnkit_block(const struct attention *a, const struct kernels *kernels, int64_t batch,
                           int64_t kv_head, int64_t first, int keys, struct wide wide)
{
    const bool k_in_place = is_at_one_stride(a, &a->k, first, keys);
    const bool v_in_place = is_at_one_stride(a, &a->v, first, keys);
    return (struct block){
        .k = k_in_place ? in_place(a, &a->k, batch, kv_head, first)
                        : widen(a, kernels, &a->k, batch, kv_head, first, keys, wide.k),
        .v = v_in_place ? in_place(a, &a->v, batch, kv_head, first)
                        : widen(a, kernels, &a->v, batch, kv_head, first, keys, wide.v),
        .in_place = k_in_place && v_in_place,
    };
}
