/* SPDX-License-Identifier: Apache-2.0
 *
 * Assigns addresses to the blocks of memory that the set-ups of a call allocate (arena.h). Equal
 * blocks of all copies of the libraries share one address. A block is temporary if the set-up frees
 * it before the call is ready. A temporary block never shares an address with a block of the other
 * side, whatever its content. The n-th blocks of the set-ups of a side share one address if they
 * are temporary and have the same size.
 */
#include "bench/compare/measure/arena.h"

#include <string.h>
#include <sys/mman.h>

enum { MAX_BLOCKS = 64, MAX_PLACES = ARENA_SIDES * MAX_BLOCKS, LINE = 64, NOWHERE = -1 };

/* A block that a set-up has allocated. */
struct block {
    char *at;
    size_t bytes;
    uint64_t hash; /* hash of its contents; 0 if temporary */
    bool is_live;  /* still allocated when the call is ready */
};

/* The blocks of a set-up, in the order in which the set-up has allocated the blocks. */
struct record {
    struct block blocks[MAX_BLOCKS];
    int count;
};

/* The address that equal blocks share. It is NULL until the first of these blocks takes memory. */
struct shared_place {
    char *at;
    size_t bytes;
};

static struct {
    char *start, *next, *end;
    struct record records[ARENA_SIDES][ARENA_RECORDS];
    struct record *now; /* the record in progress; NULL once it is sealed */
    struct shared_place places[MAX_PLACES];
    int place_count;
    int place_of[ARENA_SIDES][MAX_BLOCKS]; /* [side][block]: index in places, or NOWHERE */
    int side, index;                       /* side and index of the next block that is placed */
} arena;

uint64_t arena_turn;

bool arena_make(void)
{
    const size_t most = (size_t)1 << 36, least = (size_t)1 << 28;
    for (size_t bytes = most; bytes >= least; bytes /= 2) {
        void *const start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED)
            continue;
        arena.start = arena.next = start;
        arena.end = arena.start + bytes;
        return true;
    }
    return false;
}

static void clear(void)
{
    madvise(arena.start, (size_t)(arena.next - arena.start), MADV_DONTNEED);
    arena.next = arena.start;
}

/* Takes memory for a block, and leaves a cache line free after the block. Without this gap, blocks
 * of whole pages would all begin at the same offset in a page, and a store to one block would delay
 * loads from other blocks (4K aliasing). */
static char *take(size_t bytes)
{
    char *const at = arena.next;
    const size_t left = (size_t)(arena.end - at);
    if (bytes > left || left - bytes < 2 * LINE)
        return NULL;
    arena.next += (bytes + LINE - 1) / LINE * LINE + LINE;
    return at;
}

static bool is_ours(const char *block)
{
    return block >= arena.start && block < arena.end;
}

/* ---------------------------------------------------------------------------------- recording */

static void *take_recorded(void *owner, size_t bytes)
{
    struct record *const record = owner;
    if (record->count == MAX_BLOCKS)
        return NULL;
    char *const at = take(bytes);
    if (at)
        record->blocks[record->count++] = (struct block){.at = at, .bytes = bytes, .is_live = true};
    return at;
}

/* Marks a block as temporary if the record is not yet sealed. Returns whether the block lies in the
 * arena. */
static bool drop_recorded(void *owner, void *block)
{
    struct record *const record = owner;
    for (int i = 0; arena.now && i < record->count; i++)
        if (record->blocks[i].at == block)
            record->blocks[i].is_live = false;
    return is_ours(block);
}

const struct worker_memory *arena_record(int side, int record)
{
    static struct worker_memory memory = {take_recorded, drop_recorded, NULL, &arena_turn};
    clear();
    arena.now = &arena.records[side][record];
    arena.now->count = 0;
    memory.owner = arena.now;
    return &memory;
}

static uint64_t hash_of(const char *bytes, size_t count)
{
    uint64_t hash = count;
    for (size_t i = 0; i < count; i += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, count - i < sizeof word ? count - i : sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

void arena_seal(void)
{
    for (int i = 0; i < arena.now->count; i++) {
        struct block *const block = &arena.now->blocks[i];
        block->hash = block->is_live ? hash_of(block->at, block->bytes) : 0;
    }
    arena.now = NULL;
}

/* ----------------------------------------------------------------------------------- matching */

static bool alike(const struct block *a, const struct block *b)
{
    return a->bytes == b->bytes && a->hash == b->hash && a->is_live == b->is_live;
}

/* Returns whether block number `block` is alike in both records of a side. Two copies of the
 * library made these records, so a block that contains addresses of the library is not alike. */
static bool is_steady(int side, int block)
{
    const struct record *const records = arena.records[side];
    return records[0].count == records[1].count &&
           alike(&records[0].blocks[block], &records[1].blocks[block]);
}

/* Returns the place of a block. A block of HEAD that is not temporary gets the place of an equal
 * block of BASE, if such a place exists and no earlier block of HEAD has taken it. Any other block
 * gets a new place. */
static int find_place(int side, int block, bool taken[MAX_BLOCKS])
{
    const struct record *const mine = &arena.records[side][0], *const base = &arena.records[0][0];
    for (int i = 0; side > 0 && mine->blocks[block].is_live && i < base->count; i++)
        if (!taken[i] && arena.place_of[0][i] != NOWHERE &&
            alike(&base->blocks[i], &mine->blocks[block])) {
            taken[i] = true;
            return arena.place_of[0][i];
        }
    arena.places[arena.place_count] = (struct shared_place){NULL, 0};
    return arena.place_count++;
}

void arena_match(void)
{
    arena.place_count = 0;
    for (int side = 0; side < ARENA_SIDES; side++) {
        bool taken[MAX_BLOCKS] = {false};
        for (int i = 0; i < arena.records[side][0].count; i++)
            arena.place_of[side][i] = is_steady(side, i) ? find_place(side, i, taken) : NOWHERE;
    }
    clear();
}

/* ------------------------------------------------------------------------------------ placing */

/* Returns the address of the next block's place. The block gets new memory if it has no place, or
 * if its size is not the size of the first block at this place. */
static void *take_placed(void *owner, size_t bytes)
{
    (void)owner;
    const int index = arena.index++;
    const bool is_known = index < arena.records[arena.side][0].count;
    const int number = is_known ? arena.place_of[arena.side][index] : NOWHERE;
    if (number == NOWHERE)
        return take(bytes);
    struct shared_place *const place = &arena.places[number];
    if (!place->at)
        *place = (struct shared_place){take(bytes), bytes};
    return place->bytes == bytes ? place->at : take(bytes);
}

static bool keep_placed(void *owner, void *block)
{
    (void)owner;
    return is_ours(block);
}

const struct worker_memory *arena_place(int side)
{
    static const struct worker_memory memory = {take_placed, keep_placed, NULL, &arena_turn};
    arena.side = side;
    arena.index = 0;
    return &memory;
}
