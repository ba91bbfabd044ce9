/* SPDX-License-Identifier: Apache-2.0
 *
 * Work stealing. A thread that has finished its share of the items takes items from the shares of
 * other threads, because cores may differ in speed or be busy with other programs. A call is split
 * if it has fewer than 8 items for each thread, and keys for more than one chunk. Then some items
 * are in no share. Usually these items are the last items of the call: one group for each thread. A
 * group is usually one item (struct group of schedule.h). A split call has no item in a share if
 * shares of whole items would differ much in cost, or if there are fewer items than threads. All
 * threads work on the items outside the shares, one chunk of the keys at a time. The states of the
 * chunks are joined in index order, so the bits are the same as on one thread. There may be more
 * threads than items.
 */
#ifndef ATTNKIT_STEAL_H
#define ATTNKIT_STEAL_H

#include "dispatch/attention/schedule.h"

struct steal {
    int64_t threads; /* threads with something to do, at most one for each chunk of an item */
    size_t bytes;    /* bytes of the memory that all threads share; never smaller for more rows or
                      * keys; 0 if there is one thread */
    bool splits;     /* whether the last items are worked on chunk by chunk */
};

struct steal attnkit_steal(const struct attention *a, const struct kernels *kernels,
                           const struct schedule *s, int64_t threads);

/* Returns whether all threads can have shares of whole items that cost about the same. The answer
 * depends on the lengths of the sequences. */
bool attnkit_goes_round(const struct attention *a, const struct schedule *s,
                        const struct steal *steal);

/* Fills `shared`, before any thread calls attnkit_steal_run. `shared` has steal->bytes bytes,
 * aligned to a cache line. */
void attnkit_steal_begin(const struct attention *a, const struct kernels *kernels,
                         const struct schedule *s, const struct steal *steal, char *shared);

/* Runs a thread's share, and then work that no other thread has begun. `scratch` is s->scratch
 * bytes that only this thread uses. When all threads have returned, all items are done, and running
 * a thread again does nothing. */
void attnkit_steal_run(const struct attention *a, const struct kernels *kernels,
                       const struct schedule *s, const struct steal *steal, int64_t thread,
                       char *shared, char *scratch);

#endif
