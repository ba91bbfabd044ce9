/* SPDX-License-Identifier: Apache-2.0
 *
 * Work stealing: a thread that is through with its share of the items goes on with those of others,
 * because a processor may have less time for us than its neighbour, or be a slower one. The last
 * items, about one for each thread, or all where they do not go round, are nobody's: all threads
 * work on them chunk by chunk of their keys, whose states are then joined in index order. So the
 * bits are those of one thread, and there may be more threads than items.
 */
#ifndef ATTNKIT_STEAL_H
#define ATTNKIT_STEAL_H

#include "dispatch/attention/schedule.h"

struct steal {
    int64_t threads; /* that have something to do: at most the chunks there can be in all items */
    size_t bytes;    /* of memory that they share; more rows or keys need no less; 0 for one */
    bool splits;     /* whether items are worked on chunk by chunk */
};

struct steal attnkit_steal(const struct attention *a, const struct kernels *kernels,
                           const struct schedule *s, int64_t threads);

/* Whether whole items make even shares, more or less; that depends on the lengths of sequences. */
bool attnkit_goes_round(const struct attention *a, const struct schedule *s,
                        const struct steal *steal);

/* Before any thread begins, in steal->bytes of memory, aligned to a cache line. */
void attnkit_steal_begin(const struct attention *a, const struct kernels *kernels,
                         const struct schedule *s, const struct steal *steal, char *shared);

/* A thread's part, and whatever no other one has begun; `scratch` is s->scratch bytes of its own.
 * When all that have run have returned, all items are done. Running it again then does nothing. */
void attnkit_steal_run(const struct attention *a, const struct kernels *kernels,
                       const struct schedule *s, const struct steal *steal, int64_t thread,
                       char *shared, char *scratch);

#endif
