/* SPDX-License-Identifier: Apache-2.0
 *
 * An item is a block of query rows of one batch entry and KV head, as many as share a walk over
 * the keys. The cut depends on the instruction set, the shares on the number of threads; the bits
 * of the result depend on neither.
 */
#include "schedule.h"

#include "../kernels/mask.h"

enum {
    CACHE_LINE = 64, /* bytes; scratch of two threads shares none */
};

static size_t round_up(size_t bytes)
{
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

struct schedule attnkit_schedule(const struct attention *a, const struct kernels *kernels,
                                 int64_t threads)
{
    struct schedule s;
    const int64_t rows = a->q_len * a->group;
    s.decode = rows <= kernels->decode_rows;
    s.rows_per_item = s.decode ? (int)rows : ROW_BLOCK / kernels->lanes * kernels->lanes;
    s.items_per_head = (rows - 1) / s.rows_per_item + 1;
    s.items = a->batch * a->kv_heads * s.items_per_head;
    s.scratch = round_up(s.decode ? attnkit_decode_scratch(a, (int)rows)
                                  : attnkit_prefill_scratch(a, kernels));
    s.threads = threads < s.items ? threads : s.items;
    return s;
}

struct work_item attnkit_work_item(const struct attention *a, const struct schedule *s,
                                   int64_t index)
{
    const int64_t head = index / s->items_per_head;
    const int64_t first_row = index % s->items_per_head * s->rows_per_item;
    const int64_t rows_left = a->q_len * a->group - first_row;
    return (struct work_item){
        .batch = head / a->kv_heads,
        .kv_head = head % a->kv_heads,
        .first_row = first_row,
        .rows = rows_left < s->rows_per_item ? (int)rows_left : s->rows_per_item,
    };
}

/* In (row, key) pairs; packing and writing a row costs about as much as this many keys. */
static double cost(const struct attention *a, struct work_item item)
{
    const double row_cost = 16;
    const int64_t keys = visible_end(a, item.batch, item.first_row + item.rows - 1);
    return item.rows * ((double)keys + row_cost);
}

struct share attnkit_share(const struct attention *a, const struct schedule *s, int64_t thread)
{
    if (s->threads == 1)
        return (struct share){0, s->items};
    double total = 0;
    for (int64_t i = 0; i < s->items; i++)
        total += cost(a, attnkit_work_item(a, s, i));
    /* An item belongs to the thread in whose part of the total its middle lies. Every thread adds
     * up the same numbers in the same order, so no item is done twice or never. */
    struct share share = {s->items, s->items};
    double done = 0;
    for (int64_t i = 0; i < s->items; i++) {
        const double item_cost = cost(a, attnkit_work_item(a, s, i));
        int64_t owner = (int64_t)((done + item_cost / 2) / total * (double)s->threads);
        if (owner >= s->threads) /* by rounding */
            owner = s->threads - 1;
        if (owner >= thread && share.first == s->items)
            share.first = i;
        if (owner > thread) {
            share.end = i;
            break;
        }
        done += item_cost;
    }
    return share;
}
