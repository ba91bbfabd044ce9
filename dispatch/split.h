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

/* Units are (item, chunk) for the chunks of which a row of the item sees a key, or the first if
 * there are none; those of an item are next to each other. */
struct split {
    bool is_useful;
    int64_t wave_units;   /* most in a wave */
    int64_t threads;      /* that have something to do: at most the units there can be */
    int64_t state_floats; /* of an item over some chunks, rounded up to whole cache lines */
    size_t bytes;         /* of memory that the threads share; more rows or keys need no less */
    int64_t units, waves; /* by attnkit_count_units */
};

/* For a call on so many threads, of which the schedule may use fewer. Of the lengths of sequences
 * nothing is known here: `is_useful` says that there may be more units than items. */
struct split attnkit_split(const struct attention *a, const struct kernels *kernels,
                           const struct schedule *s, int64_t threads);

/* Sets what depends on the lengths, once they have been checked. */
void attnkit_count_units(const struct attention *a, const struct schedule *s, struct split *split);

/* The two phases of a wave, a thread's part of each. Running it again gives the same. `shared` is
 * split->bytes for all threads, `scratch` s->scratch bytes for each of them. */
void attnkit_split_attend(const struct attention *a, const struct kernels *kernels,
                          const struct schedule *s, const struct split *split, int64_t wave,
                          int64_t thread, char *shared, char *scratch);
void attnkit_split_join(const struct attention *a, const struct kernels *kernels,
                        const struct schedule *s, const struct split *split, int64_t wave,
                        int64_t thread, char *shared, char *scratch);

#endif
