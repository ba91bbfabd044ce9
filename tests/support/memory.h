/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the tensors of a test: plain arenas with room for gaps, and slots for single rows. A
 * slot is a page between two unmapped pages. If a row ends where its slot ends, an access to the
 * byte after the row faults. If a row begins where its slot begins, an access to the byte before
 * the row faults. Guarded memory is a piece of any size between unmapped pages.
 */
#ifndef ATTNKIT_TEST_MEMORY_H
#define ATTNKIT_TEST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SLOT_BYTES = 4096,      /* usable bytes of a slot, room for 1024 floats */
    SLOT_STRIDE = 2 * 4096, /* bytes from slot to slot */
    MAX_SLOTS = 28000,      /* a slot takes two of the 65530 mappings of a process (Linux) */
};

/* Returns arena `index`, one of 0 .. 7, with at least `size` bytes. If the arena must grow, its
 * contents are lost. */
char *memory_arena(int index, size_t size);

/* Maps `count` consecutive slots. Returns the address of slot `first`, the first of these slots. */
char *memory_slots(int first, int count);

/* Unmaps `count` slots from slot `first` on, until memory_slots maps these slots again. The
 * contents of the slots stay. */
void memory_hide_slots(int first, int count);

/* Frees all arenas and slots. */
void memory_end(void);

/* Memory between unmapped pages. The memory at `data` ends where an unmapped page begins, or begins
 * where an unmapped page ends. */
struct guarded {
    char *data;
    char *mapping;
    size_t mapping_size;
};

/* Allocates `size` bytes of guarded memory. If at_end is true, the memory ends where an unmapped
 * page begins. Else the memory begins where an unmapped page ends. The `beyond` bytes after the
 * unmapped page at the end are reserved, and stay unmapped, too. */
struct guarded memory_guarded(size_t size, size_t beyond, bool at_end);
void memory_unguard(struct guarded *memory);

#endif
