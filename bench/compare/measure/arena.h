/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a point. Each side is loaded as several copies of its library (sides.h). Each copy
 * sets up the point's call itself. All copies should read and write the same addresses, as if one
 * library were called repeatedly. So blocks of different copies share one address if they have the
 * same size and the same bytes. Blocks that differ have separate addresses, for example matrices
 * that two revisions pack differently, or a plan with pointers into its library. Temporary blocks
 * follow another rule (arena.c).
 *
 * To find equal blocks, each side first sets up the call alone, twice, with arena_record. Then the
 * measured set-ups follow, with arena_place.
 */
#ifndef ATTNKIT_COMPARE_ARENA_H
#define ATTNKIT_COMPARE_ARENA_H

#include <stdbool.h>

#include "bench/worker/worker.h"

enum { ARENA_SIDES = 2, ARENA_RECORDS = 2 };

/* Reserves address space for the arena, up to 64 GiB. Returns false if the system does not give at
 * least 256 MiB. */
bool arena_make(void);

/* Returns the memory for a set-up of one side alone. The memory is empty and zeroed. Its blocks are
 * recorded in record 0 or 1 of the side. */
const struct worker_memory *arena_record(int side, int record);

/* Ends the record of arena_record when the call is ready: hashes the contents of the blocks that
 * are not temporary (arena.c). */
void arena_seal(void);

/* Finds the equal blocks of all records and empties the memory. */
void arena_match(void);

/* Returns the memory for a measured set-up of a side. A block stays in this memory until the next
 * arena_record, even if it is freed. */
const struct worker_memory *arena_place(int side);

/* The number of the next call. worker_memory.turn points to it. */
extern uint64_t arena_turn;

#endif
