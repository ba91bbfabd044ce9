/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the tensors of a test: plain arenas with room for gaps, and slots for single rows. A
 * slot is a page between two unmapped pages. If a row ends (or begins) with its slot, an access to
 * the first byte after (or before) the row faults. Guarded memory is a piece of any size between
 * unmapped pages.
 */
#ifndef ATTNKIT_TEST_MEMORY_H
#define ATTNKIT_TEST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SLOT_BYTES = 4096,      /* usable bytes of a slot, room for 1024 floats */
    SLOT_STRIDE = 2 * 4096, /* bytes from slot to slot */
    MAX_SLOTS = 28000,      /* a slot takes two of the 65530 mappings that a process may have */
};

/* Returns arena `index`, one of 0 .. 7, with at least `size` bytes. memory_end frees all arenas. */
char *memory_arena(int index, size_t size);

/* Maps the `count` consecutive slots from number `first` on. Returns the address of the first
 * slot. */
char *memory_slots(int first, int count);

/* Unmaps slots. They stay unmapped until memory_slots maps them again. */
void memory_hide_slots(int first, int count);

void memory_end(void);

/* Memory between unmapped pages. The memory at `data` ends where the unmapped page after it begins,
 * or begins where the unmapped page before it ends. */
struct guarded {
    char *data;
    char *mapping;
    size_t mapping_size;
};

/* Allocates guarded memory. If at_end is true, the memory ends where the unmapped page after it
 * begins. Else the memory begins where the unmapped page before it ends. The `beyond` bytes after
 * the unmapped page at the end are reserved, and stay unmapped, too. */
struct guarded memory_guarded(size_t size, size_t beyond, bool at_end);
void memory_unguard(struct guarded *memory);

#endif
