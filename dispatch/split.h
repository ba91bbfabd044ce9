/* SPDX-License-Identifier: Apache-2.0
 *
 * One item on several threads: where there are too few items to go round, threads share out the
 * chunks of their keys instead. That goes in waves of two phases: every thread works out the states
 * of some chunks, then these are joined in index order, item by item. So the bits are those of one
 * thread, and memory does not grow with the keys.
 */
#ifndef ATTNKIT_SPLIT_H
#define ATTNKIT_SPLIT_H

#include "schedule.h"

/* Units are (item, chunk), the chunks of an item next to each other. */
struct split {
    bool is_useful;
    int64_t chunks; /* of each item, whether a row sees them or not */
    int64_t units, wave_units;
    int64_t threads; /* that have something to do: at most the units */
    int64_t waves;
    int64_t state_floats; /* of an item over some chunks, rounded up to whole cache lines */
    size_t bytes;         /* of memory that the threads share; more rows need no less */
};

/* For a call on so many threads, of which the schedule may use fewer. */
struct split attnkit_split(const struct attention *a, const struct kernels *kernels,
                           const struct schedule *s, int64_t threads);

/* The two phases of a wave, a thread's part of each. Running it again gives the same. `shared` is
 * split->bytes for all threads, `scratch` s->scratch bytes for each of them. */
void attnkit_split_attend(const struct attention *a, const struct kernels *kernels,
                          const struct schedule *s, const struct split *split, int64_t wave,
                          int64_t thread, char *shared, char *scratch);
void attnkit_split_join(const struct attention *a, const struct kernels *kernels,
                        const struct schedule *s, const struct split *split, int64_t wave,
                        int64_t thread, char *shared, char *scratch);

#endif
