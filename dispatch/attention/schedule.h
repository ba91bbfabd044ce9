/* SPDX-License-Identifier: Apache-2.0
 *
 * From a problem to work items, and from work items to the shares of threads.
 */
#ifndef ATTNKIT_SCHEDULE_H
#define ATTNKIT_SCHEDULE_H

#include "kernels/attention/attention.h"

/* n / size for n >= 0, rounded up. */
static inline int64_t divide_up(int64_t n, int64_t size)
{
    return n / size + (n % size > 0);
}

struct schedule {
    const struct kernels *kernels;
    int rows_per_item;
    int64_t items_per_head; /* for each batch entry and KV head; packed, some have no rows */
    int heads_per_item;     /* 1, or a vector of heads with all their rows, for few rows and keys */
    int walks;              /* items of decode rows that are worked on in turns: 1, or MAX_WALKS */
    int64_t items;
    size_t scratch;  /* bytes for each thread, a multiple of 64 */
    int64_t threads; /* that have something to do: at most the items */
};

struct schedule attnkit_schedule(const struct attention *a, const struct kernels *kernels,
                                 int64_t threads);

struct work_item attnkit_work_item(const struct attention *a, const struct schedule *s,
                                   int64_t index);

struct range {
    int64_t first, end; /* of items, if nothing else is said */
};

/* Shares are consecutive, with about the same number of (row, key) pairs each; in turn those of
 * thread 0, 1 and so on. */
struct cut {
    double total, done; /* of what items cost */
    int64_t item, thread;
};

struct cut attnkit_begin_cut(const struct attention *a, const struct schedule *s);
struct range attnkit_next_share(const struct attention *a, const struct schedule *s,
                                struct cut *cut);

/* The items of one thread. */
struct range attnkit_share(const struct attention *a, const struct schedule *s, int64_t thread);

/* How much more the busiest thread then has to do than each would have of equal shares: 1 is even,
 * NaN says that there is nothing to do. */
double attnkit_imbalance(const struct attention *a, const struct schedule *s);

/* Items that are worked on together: one, or those of decode rows of a batch entry whose heads
 * share pages of memory. */
struct group {
    struct work_item item[MAX_WALKS];
    int count;
};

/* The first of these items, and those that go with it. */
void attnkit_group(const struct attention *a, const struct schedule *s, struct range items,
                   struct group *group);

/* Runs a group, or these items, one after the other. `scratch` is s->scratch bytes, aligned to 64.
 */
void attnkit_run_group(const struct attention *a, const struct kernels *kernels,
                       const struct schedule *s, const struct group *group, char *scratch);
void attnkit_run_items(const struct attention *a, const struct kernels *kernels,
                       const struct schedule *s, struct range items, char *scratch);

#endif
