/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the tensors of a test: plain arenas with room for gaps, and slots for single rows. A
 * slot is a page between two unmapped pages. If a row ends (or begins) with its slot, the first
 * byte that is read or written outside the row faults. Guarded memory is a piece of any size
 * between unmapped pages.
 */
#ifndef ATTNKIT_TEST_MEMORY_H
#define ATTNKIT_TEST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SLOT_BYTES = 4096,      /* usable bytes of a slot; a row of 1024 floats */
    SLOT_STRIDE = 2 * 4096, /* bytes from slot to slot */
    MAX_SLOTS = 28000,      /* two mappings each, of the 65530 a process may have */
};

/* Returns at least `size` bytes that are kept until memory_end. There is one arena for each index 0
 * .. 7. */
char *memory_arena(int index, size_t size);

/* Returns the first of `count` consecutive slots, from number `first` on, ready to be used. */
char *memory_slots(int first, int count);

/* Unmaps slots, like the pages around them, until memory_slots asks for them again. */
void memory_hide_slots(int first, int count);

void memory_end(void);

/* Memory between unmapped pages. data ends at the page after it or begins behind the page before
 * it. */
struct guarded {
    char *data;
    char *mapping;
    size_t mapping_size;
};

/* Allocates guarded memory. `beyond` bytes after it stay unmapped, and no other memory takes
 * them. */
struct guarded memory_guarded(size_t size, size_t beyond, bool at_end);
void memory_unguard(struct guarded *memory);

#endif
