/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a point. Each copy of each side sets up the call for itself; so that they all read
 * and write the same places, as one library would be called again and again, a block of one is at
 * the address of a block of another that is as large and has the same bytes. Those that differ,
 * such as matrices that two revisions pack in other ways, or a plan with pointers into its library,
 * are apart.
 *
 * Which blocks are alike is found out first: both sides set up the call alone, twice each, by
 * arena_record. Then come the set-ups that are measured, by arena_place.
 */
#ifndef ATTNKIT_COMPARE_ARENA_H
#define ATTNKIT_COMPARE_ARENA_H

#include <stdbool.h>

#include "bench/worker/worker.h"

enum { ARENA_SIDES = 2, ARENA_RECORDS = 2 };

/* Address space. False: there is none. */
bool arena_make(void);

/* For a set-up of a side that is alone: all memory is empty and zero, and blocks are taken down. */
const struct worker_memory *arena_record(int side, int record);

/* The set-up is done: takes down what is in its blocks. */
void arena_seal(void);

/* All has been recorded: says which blocks are alike. The memory is empty again. */
void arena_match(void);

/* For a set-up of a side beside those that were made since arena_match. */
const struct worker_memory *arena_place(int side);

/* The number of the call that is made next; worker_memory.turn. */
extern uint64_t arena_turn;

#endif
