/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides a call into work items, and the items into one share for each thread.
 */
#ifndef ATTNKIT_SCHEDULE_H
#define ATTNKIT_SCHEDULE_H

#include "kernels/attention/attention.h"

/* Returns n / size, rounded up, for n >= 0. */
static inline int64_t divide_up(int64_t n, int64_t size)
{
    return n / size + (n % size > 0);
}

struct schedule {
    const struct kernels *kernels;
    int most_rows;          /* no item has more rows than most_rows */
    int rows_per_item;      /* rows of each item of a head; the last item may have fewer */
    int64_t items_per_head; /* items of a batch entry and KV head; some have no rows if sequences
                             * are packed */
    int heads_per_item;     /* 1, or kernels->vector if rows and keys are few; the last item may
                             * have fewer heads; an item of several heads has all rows of these
                             * heads */
    int walks;              /* the largest number of decode items in a group: 1 or MAX_WALKS */
    int64_t items;
    size_t scratch;  /* bytes for each thread, a multiple of 64 */
    int64_t threads; /* threads with something to do, at most one for each item */
};

struct schedule attnkit_schedule(const struct attention *a, const struct kernels *kernels,
                                 int64_t threads);

struct work_item attnkit_work_item(const struct attention *a, const struct schedule *s,
                                   int64_t index);

struct range {
    int64_t first, end; /* items first .. end - 1, or units if the name of the range says so */
};

/* The progress of cutting items into shares. The shares of threads 0, 1 and so on are consecutive
 * and cost about the same. */
struct cut {
    double total, done; /* total: cost of all items, or 0 if there is one thread; done: cost of the
                         * items before `item` */
    int64_t item, thread;
};

struct cut attnkit_begin_cut(const struct attention *a, const struct schedule *s);
struct range attnkit_next_share(const struct attention *a, const struct schedule *s,
                                struct cut *cut);

/* Returns the items of one thread. */
struct range attnkit_share(const struct attention *a, const struct schedule *s, int64_t thread);

/* Returns the cost of the largest share divided by the cost of an equal share. The result is 1 if
 * all shares cost the same, and NaN if there is nothing to do. */
double attnkit_imbalance(const struct attention *a, const struct schedule *s);

/* Items that are worked on together: one item, or several decode items of one batch entry whose
 * heads share pages of virtual memory. A decode item has decode rows and no panel rows. */
struct group {
    struct work_item item[MAX_WALKS];
    int count;
};

/* Sets *group to the group that begins with the first of `items`. The group ends within `items`. */
void attnkit_group(const struct attention *a, const struct schedule *s, struct range items,
                   struct group *group);

/* attnkit_run_group runs a group. A thread must call attnkit_begin_items before its first group.
 * attnkit_run_items runs all groups of `items` one after the other, and needs no other call.
 * `scratch` is s->scratch bytes, aligned to 64 bytes. */
void attnkit_begin_items(const struct attention *a, const struct schedule *s, char *scratch);
void attnkit_run_group(const struct attention *a, const struct kernels *kernels,
                       const struct schedule *s, const struct group *group, char *scratch);
void attnkit_run_items(const struct attention *a, const struct kernels *kernels,
                       const struct schedule *s, struct range items, char *scratch);

#endif
