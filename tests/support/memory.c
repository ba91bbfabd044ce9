/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct {
    char *data;
    size_t size;
} arenas[8];

static char *slots; /* the first slot in the reserved region of all slots */
static bool slot_usable[MAX_SLOTS];

static void die(const char *what)
{
    perror(what);
    exit(99);
}

char *memory_arena(int index, size_t size)
{
    if (arenas[index].size < size) {
        free(arenas[index].data);
        arenas[index].data = malloc(size);
        arenas[index].size = size;
        if (!arenas[index].data)
            die("malloc");
    }
    return arenas[index].data;
}

static char *slot_at(int slot)
{
    return slots + (size_t)SLOT_STRIDE * (size_t)slot;
}

static void protect(int first, int count, bool usable)
{
    for (int slot = first; slot < first + count; slot++) {
        if (slot_usable[slot] == usable)
            continue;
        if (mprotect(slot_at(slot), SLOT_BYTES, usable ? PROT_READ | PROT_WRITE : PROT_NONE))
            die("mprotect");
        slot_usable[slot] = usable;
    }
}

char *memory_slots(int first, int count)
{
    if (!slots) {
        /* The first page of the region is the guard before the first slot. The region has one more
         * stride than there are slots, to make room for this page. */
        slots = mmap(NULL, (size_t)SLOT_STRIDE * (MAX_SLOTS + 1), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (slots == MAP_FAILED)
            die("mmap");
        slots += SLOT_STRIDE - SLOT_BYTES;
    }
    protect(first, count, true);
    return slot_at(first);
}

void memory_hide_slots(int first, int count)
{
    protect(first, count, false);
}

void memory_end(void)
{
    for (int i = 0; i < 8; i++) {
        free(arenas[i].data);
        arenas[i].data = NULL;
        arenas[i].size = 0;
    }
    if (slots)
        munmap(slots - (SLOT_STRIDE - SLOT_BYTES), (size_t)SLOT_STRIDE * (MAX_SLOTS + 1));
    slots = NULL;
    memset(slot_usable, 0, sizeof slot_usable);
}

struct guarded memory_guarded(size_t size, size_t beyond, bool at_end)
{
    const size_t page = SLOT_BYTES, usable = (size + page - 1) / page * page;
    struct guarded m = {.mapping_size = page + usable + page + beyond};
    m.mapping =
        mmap(NULL, m.mapping_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m.mapping == MAP_FAILED)
        die("mmap");
    if (usable > 0 && mprotect(m.mapping + page, usable, PROT_READ | PROT_WRITE))
        die("mprotect");
    m.data = m.mapping + page + (at_end ? usable - size : 0);
    return m;
}

void memory_unguard(struct guarded *memory)
{
    munmap(memory->mapping, memory->mapping_size);
}
