/* SPDX-License-Identifier: Apache-2.0
 *
 * Work items and the shares of threads. An item is a block of query rows of one batch entry and KV
 * head, or all query rows of several KV heads if rows and keys are few. In an item of one head, one
 * walk over the keys serves all panel rows, and another walk serves all decode rows. The size of
 * items depends on the instruction set, and the distribution of items depends on the number of
 * threads. The bits of the result depend neither on the size nor on the distribution of items.
 */
#include "dispatch/attention/schedule.h"

#include "kernels/attention/block.h"
#include "kernels/attention/mask.h"

enum {
    CACHE_LINE = 64, /* bytes; no two threads have scratch in the same line */
};

static size_t round_up(size_t bytes)
{
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns whether the call may put several heads into a vector if its rows and keys are few. */
static bool has_heads_to_join(const struct attention *a, const struct kernels *kernels)
{
    return !attnkit_needs_wide(a) && !a->before.out && !a->after.out && !a->q_starts.data &&
           !a->kv_starts.data && !has_cells(a) && !a->extras.any && !a->extras.sinks &&
           !a->extras.weights && a->batch * a->kv_heads > kernels->vector / 2;
}

/* Returns an upper bound for the rows of an item. If a head has fewer rows than a panel has lanes,
 * the bound is the number of lanes, because attnkit_most_panel_rows takes a division. */
static int most_rows(const struct attention *a, const struct kernels *kernels, int64_t rows)
{
    return rows < kernels->lanes ? kernels->lanes : attnkit_most_panel_rows(a, kernels);
}

/* Returns how many rows an item of a head has. The last item of a head may have fewer rows. The
 * rows of a head are divided into as few items as possible. If there are several items, they have
 * about the same number of rows, and all but the last have whole panels. */
static int rows_per_item(const struct kernels *kernels, int64_t rows, int most)
{
    if (rows <= most)
        return most;
    const int even = (int)divide_up(rows, divide_up(rows, most));
    return (int)divide_up(even, kernels->lanes) * kernels->lanes;
}

/* Returns the most rows after whole vectors of panel rows that decode computes. Decode reads K and
 * V again for these rows. If K and V of a head have more than near_rest_bytes (struct kernels),
 * decode may take longer than lanes of a panel. If the rows need a panel of their own (`is_panel`),
 * the panel costs more than free lanes of another panel. So for these rows the limit is twice
 * near_rest_bytes. */
static int most_rest_rows(const struct attention *a, const struct kernels *kernels, bool is_panel)
{
    const int64_t near_bytes = is_panel ? 2 * kernels->near_rest_bytes : kernels->near_rest_bytes;
    if (a->kv_len <= near_bytes / key_bytes(a))
        return kernels->vector / 2;
    return attnkit_needs_wide(a) ? kernels->far_rest_rows : kernels->f32_far_rest_rows;
}

/* The rows of a head's last item, if they are fewer than rows_per_item: first panel rows, then
 * decode rows. All other items have panel rows alone. With groups of products all rows are panel
 * rows. */
struct rest {
    int panel_rows, decode_rows;
};

static struct rest rest_of(const struct attention *a, const struct kernels *kernels, int64_t rows,
                           int rows_per_item)
{
    const int most = attnkit_needs_wide(a) ? kernels->decode_rows : kernels->f32_decode_rows;
    const int rest = (int)(rows % rows_per_item), part = rest % kernels->vector;
    if (is_grouped(a))
        return (struct rest){rest, 0};
    const bool is_panel = part == rest % kernels->lanes;
    int decode_rows = part <= most_rest_rows(a, kernels, is_panel) ? part : 0;
    if (rest <= most)
        decode_rows = rest;
    return (struct rest){rest - decode_rows, decode_rows};
}

static int64_t distance(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Returns whether the heads have more keys than a chunk, and share pages of virtual memory. Heads
 * share pages in token-major tensors without a block table, where the rows of all heads lie
 * together for each key. If one head were computed after the other, the pages would no longer be in
 * the TLB when the next head needs them. */
static bool heads_share_pages(const struct attention *a)
{
    const struct strides k = a->k.stride, v = a->v.stride;
    return a->kv_heads > 1 && a->kv_len > CHUNK_KEYS && !a->pages.table &&
           (distance(k.head) < distance(k.row) || distance(v.head) < distance(v.row));
}

/* Returns whether attnkit_prefill can use struct sights. The result does not depend on lengths. */
static bool has_sights(const struct attention *a)
{
    return HAS_SIGHTS && a->extras.any && a->kv_heads > 1;
}

/* Returns the number of bytes of scratch for each thread. The number never shrinks if a call gets
 * more rows or keys, so that a workspace for the longest call serves shorter calls. Therefore the
 * number has room for as many decode rows as any call with at most as many rows has. */
static size_t scratch_bytes(const struct attention *a, const struct kernels *kernels,
                            const struct schedule *s, struct rest rest)
{
    const int64_t rows = a->q_len * a->group;
    const int most = rows < kernels->decode_rows ? (int)rows : kernels->decode_rows;
    size_t bytes = attnkit_decode_scratch(a, kernels, is_grouped(a) ? 0 : most, 1);
    if (s->walks > 1 && !is_grouped(a))
        bytes = larger(bytes, attnkit_decode_scratch(a, kernels, most, s->walks));
    if (has_heads_to_join(a, kernels))
        bytes = larger(bytes, attnkit_heads_scratch(a, kernels));
    if (a->q_starts.data || s->items_per_head > 1 || rest.panel_rows > 0 || rest.decode_rows == 0)
        bytes = larger(bytes, attnkit_prefill_scratch(a, kernels));
    return round_up(bytes) + (has_sights(a) ? round_up(sizeof(struct sights)) : 0);
}

struct schedule attnkit_schedule(const struct attention *a, const struct kernels *kernels,
                                 int64_t threads)
{
    struct schedule s;
    const int64_t rows = a->q_len * a->group, heads = a->batch * a->kv_heads;
    s.kernels = kernels;
    s.most_rows = most_rows(a, kernels, rows);
    s.rows_per_item = rows_per_item(kernels, rows, s.most_rows);
    s.items_per_head = divide_up(rows, s.rows_per_item);
    s.heads_per_item = 1;
    if (a->kv_len <= FEW_KEYS && rows <= kernels->lanes / kernels->vector &&
        has_heads_to_join(a, kernels))
        s.heads_per_item = kernels->vector;
    s.walks = heads_share_pages(a) ? MAX_WALKS : 1;
    s.items = divide_up(heads, s.heads_per_item) * s.items_per_head;
    s.scratch = scratch_bytes(a, kernels, &s, rest_of(a, kernels, rows, s.rows_per_item));
    s.threads = threads < s.items ? threads : s.items;
    return s;
}

struct work_item attnkit_work_item(const struct attention *a, const struct schedule *s,
                                   int64_t index)
{
    struct work_item item = {0};
    int64_t head = 0;
    if (index > 0) { /* a small call has only item 0, and divisions take as long as a few keys */
        head = index / s->items_per_head * s->heads_per_item;
        item.batch = head / a->kv_heads;
        item.kv_head = head % a->kv_heads;
        item.first_row = index % s->items_per_head * s->rows_per_item;
    }
    const int64_t heads_left = a->batch * a->kv_heads - head;
    item.heads = heads_left < s->heads_per_item ? (int)heads_left : s->heads_per_item;
    const int64_t rows_left = sequence_rows(a, item.batch) * a->group - item.first_row;
    if (rows_left >= s->rows_per_item) {
        item.panel_rows = s->rows_per_item;
    } else if (rows_left > 0) {
        const struct rest rest = rest_of(a, s->kernels, rows_left, s->rows_per_item);
        item.panel_rows = rest.panel_rows;
        item.decode_rows = rest.decode_rows;
    }
    return item;
}

/* Returns the cost of an item in (row, key) pairs, or of one head if the item has several heads.
 * Packing and writing a row costs about as much as row_cost keys. */
static double cost(const struct attention *a, struct work_item item)
{
    const double row_cost = 16;
    const int rows = item.panel_rows + item.decode_rows;
    if (rows == 0)
        return 0;
    const struct visible v =
        all_visible(visible_keys(a, item.batch, item.first_row / a->group),
                    visible_keys(a, item.batch, (item.first_row + rows - 1) / a->group));
    const int64_t first = v.first > v.keep ? v.first : v.keep;
    const double keys = (double)v.keep + (v.end > first ? (double)(v.end - first) : 0);
    return rows * (keys + row_cost);
}

static double total_cost(const struct attention *a, const struct schedule *s)
{
    double total = 0;
    for (int64_t i = 0; i < s->items; i++)
        total += cost(a, attnkit_work_item(a, s, i));
    return total;
}

/* Returns the thread that gets an item. The total cost is divided into an equal part for each
 * thread, and the costs of the items follow each other through these parts. The item belongs to the
 * thread in whose part the middle of the item's cost lies. `done` is the cost of the items before
 * this item. Every thread adds up the same numbers in the same order, so each item has exactly one
 * owner. */
static int64_t owner_of(const struct schedule *s, double done, double item_cost, double total)
{
    if (total == 0) /* no item has rows */
        return 0;
    const int64_t owner = (int64_t)((done + item_cost / 2) / total * (double)s->threads);
    return owner < s->threads ? owner : s->threads - 1; /* rounding can give s->threads */
}

struct cut attnkit_begin_cut(const struct attention *a, const struct schedule *s)
{
    return (struct cut){.total = s->threads == 1 ? 0 : total_cost(a, s)};
}

struct range attnkit_next_share(const struct attention *a, const struct schedule *s,
                                struct cut *cut)
{
    struct range share = {cut->item, cut->item};
    if (cut->thread == s->threads - 1)
        share.end = s->items;
    for (; share.end < s->items; share.end++) {
        const double item_cost = cost(a, attnkit_work_item(a, s, share.end));
        if (owner_of(s, cut->done, item_cost, cut->total) > cut->thread)
            break;
        cut->done += item_cost;
    }
    cut->item = share.end;
    cut->thread++;
    return share;
}

struct range attnkit_share(const struct attention *a, const struct schedule *s, int64_t thread)
{
    struct cut cut = attnkit_begin_cut(a, s);
    struct range share = {0, 0};
    while (cut.thread <= thread)
        share = attnkit_next_share(a, s, &cut);
    return share;
}

double attnkit_imbalance(const struct attention *a, const struct schedule *s)
{
    const double total = total_cost(a, s);
    double done = 0, share = 0, largest = 0;
    int64_t thread = 0;
    for (int64_t i = 0; i < s->items; i++) {
        const double item_cost = cost(a, attnkit_work_item(a, s, i));
        const int64_t owner = owner_of(s, done, item_cost, total);
        share = owner == thread ? share + item_cost : item_cost;
        largest = share > largest ? share : largest;
        thread = owner;
        done += item_cost;
    }
    return largest / total * (double)s->threads;
}

/* Returns whether an item has rows, and all of them are decode rows. */
static bool is_decode(const struct work_item *item)
{
    return item->panel_rows == 0 && item->decode_rows > 0;
}

/* Runs an item of several heads. If the heads fill at most a quarter of a vector, running them one
 * by one is faster.
 */
static void run_heads(const struct attention *a, const struct kernels *kernels,
                      const struct work_item *item, char *scratch)
{
    if (item->heads > kernels->vector / 4) {
        attnkit_heads(a, kernels, item, scratch);
        return;
    }
    struct work_item one = *item;
    for (int left = item->heads; left > 0; left--) {
        attnkit_decode(a, kernels, &one, 1, scratch);
        if (++one.kv_head == a->kv_heads) {
            one.kv_head = 0;
            one.batch++;
        }
    }
}

/* Returns the struct sights at the end of a thread's scratch, or NULL if the call has no use for
 * it. */
static struct sights *sights_of(const struct attention *a, const struct schedule *s, char *scratch)
{
    if (!has_sights(a))
        return NULL;
    return (struct sights *)(void *)(scratch + s->scratch - round_up(sizeof(struct sights)));
}

void attnkit_begin_items(const struct attention *a, const struct schedule *s, char *scratch)
{
    struct sights *const sights = sights_of(a, s, scratch);
    if (sights)
        sights->batch = NO_BATCH;
}

void attnkit_group(const struct attention *a, const struct schedule *s, struct range items,
                   struct group *group)
{
    group->item[0] = attnkit_work_item(a, s, items.first);
    group->count = 1;
    if (s->walks == 1 || s->items_per_head > 1 || !is_decode(group->item))
        return;
    for (int64_t i = items.first + 1; i < items.end && group->count < s->walks; i++) {
        const struct work_item item = attnkit_work_item(a, s, i);
        if (!is_decode(&item) || item.batch != group->item->batch)
            break;
        group->item[group->count++] = item;
    }
}

void attnkit_run_group(const struct attention *a, const struct kernels *kernels,
                       const struct schedule *s, const struct group *group, char *scratch)
{
    const struct work_item *const item = group->item;
    attnkit_take_cells(a, kernels, item->batch);
    if (s->heads_per_item > 1) {
        run_heads(a, kernels, item, scratch);
        return;
    }
    if (item->panel_rows > 0)
        attnkit_prefill(a, kernels, item, sights_of(a, s, scratch), scratch);
    if (item->decode_rows > 0)
        attnkit_decode(a, kernels, item, group->count, scratch);
}

void attnkit_run_items(const struct attention *a, const struct kernels *kernels,
                       const struct schedule *s, struct range items, char *scratch)
{
    struct group group;
    attnkit_begin_items(a, s, scratch);
    while (items.first < items.end) {
        attnkit_group(a, s, items, &group);
        attnkit_run_group(a, kernels, s, &group, scratch);
        items.first += group.count;
    }
}
