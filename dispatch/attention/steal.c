/* SPDX-License-Identifier: Apache-2.0
 *
 * Work stealing. Each thread's share of the items is a queue. The items that are in no share are
 * the tail. Threads first claim groups of items from the queues. Then they claim units of the tail.
 * A unit is one chunk of the keys of a group. Units are claimed in order. The state of a unit waits
 * in a slot of a ring until all earlier units of its group have been joined. A thread that has
 * finished units joins the finished units of the group in order, up to the first unit that is not
 * finished. If another thread is joining units of the group at this moment, the other thread does
 * this work.
 *
 * The memory that all threads share holds, in this order: struct tail, the queues, the groups of
 * the tail, as many totals of groups as there are threads, the slots, and a number for each slot.
 * The number says what the slot holds (slot_word).
 */
#include "dispatch/attention/steal.h"

#include "kernels/attention/mask.h"
#include "dispatch/common/queue.h"

enum {
    CACHE_LINE = 64,
    LINE_FLOATS = CACHE_LINE / (int)sizeof(float),
    LINE_DOUBLES = CACHE_LINE / (int)sizeof(double),
    SLOT_BYTES = 1 << 16, /* bytes of slots for each thread, more if two states need more */
    MANY_ITEMS = 8,       /* no item is split if each thread has at least MANY_ITEMS items */
    CLAIMS = 2,           /* a claim has at most units left / threads / CLAIMS units, or 1 */
    MOST_LOOKS = 1 << 18, /* a thread leaves after so many looks without free memory: some 10 ms */
};

/* A group of the tail. Its items are worked on chunk by chunk. */
struct split_group {
    _Alignas(CACHE_LINE) _Atomic int64_t joined; /* the first unit that is not joined */
    _Atomic int64_t joining;                     /* 1 while a thread changes the total */
    struct range items, units;
};

struct tail {
    _Alignas(CACHE_LINE) _Atomic int64_t claimed; /* the first unit that is not claimed */
    _Alignas(CACHE_LINE) int64_t queues;
    int64_t groups, units, slots;
    int64_t state_floats, total_doubles; /* sizes of the state and the total of the largest group */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t whole_lines(int64_t n, int64_t line)
{
    return divide_up(n, line) * line;
}

/* Returns how many floats the state of an item with the given rows takes, rounded up to whole cache
 * lines. */
static int64_t item_floats(const struct attention *a, const struct kernels *kernels, int panel_rows,
                           int decode_rows)
{
    return whole_lines(attnkit_prefill_state(a, kernels, panel_rows) +
                           attnkit_decode_state(a, decode_rows),
                       LINE_FLOATS);
}

/* Returns how many doubles the total of an item with the given rows takes, rounded up to whole
 * cache lines. */
static int64_t item_doubles(const struct attention *a, const struct kernels *kernels,
                            int panel_rows, int decode_rows)
{
    return whole_lines(attnkit_prefill_total(a, kernels, panel_rows) +
                           attnkit_decode_total(a, decode_rows),
                       LINE_DOUBLES);
}

/* Upper bounds for the bytes of the state and the total of a group, however its rows are divided
 * into panel rows and decode rows. */
struct group_bytes {
    int64_t state, total;
};

static struct group_bytes most_bytes(const struct attention *a, const struct kernels *kernels,
                                     const struct schedule *s)
{
    const int rows = (int)smaller(a->q_len * a->group, s->most_rows);
    int64_t floats = item_floats(a, kernels, rows, 0), doubles = item_doubles(a, kernels, rows, 0);
    if (s->walks > 1) {
        floats = larger(floats, s->walks * item_floats(a, kernels, 0, MAX_DECODE_ROWS));
        doubles = larger(doubles, s->walks * item_doubles(a, kernels, 0, MAX_DECODE_ROWS));
    }
    return (struct group_bytes){floats * (int64_t)sizeof(float), doubles * (int64_t)sizeof(double)};
}

struct steal attnkit_steal(const struct attention *a, const struct kernels *kernels,
                           const struct schedule *s, int64_t threads)
{
    struct steal steal = {.threads = s->threads};
    const int64_t chunks = attnkit_most_keys(a) / CHUNK_KEYS;
    int64_t units, each = sizeof(struct queue), bytes;
    if (threads == 1)
        return steal;
    if (chunks > 1) {
        if (__builtin_mul_overflow(s->items, chunks, &units))
            units = INT64_MAX; /* more units than any number of threads */
        steal.threads = smaller(threads, units);
        steal.splits = s->items / MANY_ITEMS < threads;
        const struct group_bytes group = most_bytes(a, kernels, s);
        each += group.total + CACHE_LINE + larger(SLOT_BYTES, 2 * group.state);
        each += MANY_ITEMS * (int64_t)sizeof(struct split_group);
    }
    steal.bytes = SIZE_MAX; /* attnkit_workspace_bytes refuses this size */
    if (!__builtin_mul_overflow(steal.threads, each, &bytes) &&
        !__builtin_add_overflow(bytes, sizeof(struct tail), &bytes))
        steal.bytes = (size_t)bytes;
    return steal;
}

bool attnkit_goes_round(const struct attention *a, const struct schedule *s,
                        const struct steal *steal)
{
    const double even_enough = 1.25;
    return steal->threads == s->threads && !(attnkit_imbalance(a, s) >= even_enough);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* The arguments of a thread. */
struct thread {
    const struct attention *a;
    const struct kernels *kernels;
    const struct schedule *s;
    const struct steal *steal;
    struct tail *tail;
    char *scratch;
};

static struct queue *queues_of(const struct thread *t)
{
    return (struct queue *)(void *)(t->tail + 1);
}

static struct split_group *groups_of(const struct thread *t)
{
    return (struct split_group *)(void *)(queues_of(t) + t->steal->threads);
}

static double *totals_of(const struct thread *t)
{
    return (double *)(void *)(groups_of(t) + MANY_ITEMS * t->steal->threads);
}

/* Returns the memory for the total of a group. Group i uses the memory of group i - threads, whose
 * units have all been joined by then (can_begin). */
static double *total_of(const struct thread *t, int64_t group)
{
    return totals_of(t) + group % t->steal->threads * t->tail->total_doubles;
}

static float *slots_of(const struct thread *t)
{
    return (float *)(void *)(totals_of(t) + t->steal->threads * t->tail->total_doubles);
}

static float *slot_state(const struct thread *t, int64_t unit)
{
    return slots_of(t) + unit % t->tail->slots * t->tail->state_floats;
}

/* Returns the address of the number that says what the slot of a unit holds. This number is the
 * unit's own number while the slot is free for the unit, and ~(the unit's number) once the state of
 * the unit is in the slot. */
static _Atomic int64_t *slot_word(const struct thread *t, int64_t unit)
{
    float *const words = slots_of(t) + t->tail->slots * t->tail->state_floats;
    return (_Atomic int64_t *)(void *)words + unit % t->tail->slots;
}

static bool is_free(const struct thread *t, int64_t unit)
{
    return atomic_load(slot_word(t, unit)) == unit;
}

static bool is_there(const struct thread *t, int64_t unit)
{
    return atomic_load(slot_word(t, unit)) == ~unit;
}

/* --- Units ------------------------------------------------------------------------------------ */

/* The chunks of keys that some row of an item may see: chunks 0 .. keep - 1, and chunks first ..
 * end - 1 after them. */
struct chunks {
    int64_t keep, first, end;
};

static struct chunks chunks_of(const struct attention *a, const struct work_item *item)
{
    const int64_t last = (item->first_row + item->panel_rows + item->decode_rows - 1) / a->group;
    const struct visible v = all_visible(visible_keys(a, item->batch, item->first_row / a->group),
                                         visible_keys(a, item->batch, last));
    const int64_t keep = divide_up(v.keep, CHUNK_KEYS);
    const int64_t first = larger(keep, v.first / CHUNK_KEYS);
    return (struct chunks){keep, first, larger(first, divide_up(v.end, CHUNK_KEYS))};
}

/* Returns the number of units of an item: one for each of its chunks. An item with rows but without
 * chunks has one unit. */
static int64_t units_of(const struct attention *a, const struct work_item *item)
{
    if (item->panel_rows + item->decode_rows == 0)
        return 0;
    const struct chunks chunks = chunks_of(a, item);
    return larger(1, chunks.keep + chunks.end - chunks.first);
}

/* Returns the first key of unit i of an item. */
static int64_t key_of_unit(const struct attention *a, const struct work_item *item, int64_t i)
{
    const struct chunks chunks = chunks_of(a, item);
    return (i < chunks.keep ? i : chunks.first + i - chunks.keep) * CHUNK_KEYS;
}

/* --- Beginning -------------------------------------------------------------------------------- */

/* Returns the first item of the group whose last item is end - 1. */
static int64_t group_before(const struct thread *t, int64_t end)
{
    struct group group;
    for (int64_t first = end - smaller(end, t->s->walks); first < end - 1; first++) {
        attnkit_group(t->a, t->s, (struct range){first, end}, &group);
        if (first + group.count == end)
            return first;
    }
    return end - 1;
}

/* Returns the largest number of groups that the tail may have, 0 if no item is split. If there are
 * fewer items than threads, or if shares of whole items would differ much in cost, the tail has all
 * groups. Otherwise the tail has one group for each thread, so that other threads have work while
 * one thread is still at its own items. */
static int64_t groups_to_split(const struct thread *t)
{
    if (!t->steal->splits)
        return 0;
    return attnkit_goes_round(t->a, t->s, t->steal) ? t->steal->threads : t->s->items;
}

/* Puts the last groups that have rows into the tail. Returns the number of items for the queues:
 * the items before the tail. */
static int64_t begin_groups(const struct thread *t)
{
    struct tail *const tail = t->tail;
    const int64_t most = groups_to_split(t);
    int64_t first = t->s->items;
    for (int64_t end; first > 0 && tail->groups < most;) {
        end = first;
        first = group_before(t, end);
        const struct work_item item = attnkit_work_item(t->a, t->s, first);
        const int64_t units = units_of(t->a, &item),
                      floats = item_floats(t->a, t->kernels, item.panel_rows, item.decode_rows),
                      doubles = item_doubles(t->a, t->kernels, item.panel_rows, item.decode_rows);
        if (units == 0)
            continue;
        struct split_group *const g = groups_of(t) + tail->groups++;
        g->items = (struct range){first, end};
        g->units = (struct range){tail->units, tail->units + units};
        atomic_init(&g->joined, g->units.first);
        atomic_init(&g->joining, 0);
        tail->units += units;
        tail->state_floats = larger(tail->state_floats, (end - first) * floats);
        tail->total_doubles = larger(tail->total_doubles, (end - first) * doubles);
    }
    return first;
}

/* Makes as many slots as there is memory for, but not more than units. There is memory for at least
 * two slots for each thread.
 */
static void begin_slots(const struct thread *t, const char *shared)
{
    struct tail *const tail = t->tail;
    const int64_t used = (char *)slots_of(t) - shared,
                  slot = tail->state_floats * (int64_t)sizeof(float) + (int64_t)sizeof(int64_t);
    tail->slots = smaller(tail->units, ((int64_t)t->steal->bytes - used) / slot);
    for (int64_t unit = 0; unit < tail->slots; unit++)
        atomic_init(slot_word(t, unit), unit);
}

/* Fills the queues with the shares of the items before `end`. */
static void begin_queues(const struct thread *t, int64_t end)
{
    struct schedule before = *t->s;
    before.items = end;
    before.threads = t->tail->queues = smaller(t->steal->threads, end);
    if (end == 0)
        return;
    struct cut cut = attnkit_begin_cut(t->a, &before);
    for (int64_t i = 0; i < before.threads; i++) {
        const struct range share = attnkit_next_share(t->a, &before, &cut);
        atomic_init(&queues_of(t)[i].next, share.first);
        queues_of(t)[i].end = share.end;
    }
}

void attnkit_steal_begin(const struct attention *a, const struct kernels *kernels,
                         const struct schedule *s, const struct steal *steal, char *shared)
{
    struct tail *const tail = (struct tail *)(void *)shared;
    const struct thread t = {.a = a, .kernels = kernels, .s = s, .steal = steal, .tail = tail};
    atomic_init(&tail->claimed, 0);
    tail->groups = tail->units = tail->state_floats = tail->total_doubles = tail->slots = 0;
    begin_queues(&t, begin_groups(&t));
    if (tail->units > 0)
        begin_slots(&t, shared);
}

/* --- Whole groups ----------------------------------------------------------------------------- */

static bool claim_group(const struct thread *t, struct queue *queue, struct group *group)
{
    int64_t first = atomic_load(&queue->next);
    do {
        if (first >= queue->end)
            return false;
        attnkit_group(t->a, t->s, (struct range){first, queue->end}, group);
    } while (!atomic_compare_exchange_weak(&queue->next, &first, first + group->count));
    return true;
}

/* Runs groups from all queues, first from the thread's own queue. */
static void work_on_queues(const struct thread *t, int64_t thread)
{
    struct group group;
    attnkit_begin_items(t->a, t->s, t->scratch);
    for (int64_t i = 0; i < t->tail->queues; i++) {
        struct queue *const queue = &queues_of(t)[(thread + i) % t->tail->queues];
        while (claim_group(t, queue, &group))
            attnkit_run_group(t->a, t->kernels, t->s, &group, t->scratch);
    }
}

/* --- The tail --------------------------------------------------------------------------------- */

static int64_t group_of_unit(const struct thread *t, int64_t unit)
{
    int64_t i = 0;
    while (groups_of(t)[i].units.end <= unit)
        i++;
    return i;
}

/* Returns whether the memory for the total of a group is free. */
static bool can_begin(const struct thread *t, int64_t group)
{
    const int64_t before = group - t->steal->threads;
    return before < 0 ||
           atomic_load(&groups_of(t)[before].joined) == groups_of(t)[before].units.end;
}

/* Claims units of one group. Claims get smaller towards the end, so that threads finish at about
 * the same time. Returns an empty range if all units are claimed. Also returns an empty range if
 * the slot of the next unit, or the memory for the total of its group, is not free yet. */
static struct range claim_units(const struct thread *t)
{
    struct tail *const tail = t->tail;
    int64_t first = atomic_load(&tail->claimed), end;
    do {
        if (first >= tail->units)
            return (struct range){0, 0};
        const int64_t group = group_of_unit(t, first);
        if (!can_begin(t, group))
            return (struct range){0, 0};
        const int64_t at_hand = smaller(tail->units - first, tail->slots),
                      even = at_hand / (CLAIMS * t->steal->threads),
                      rest_of_group = groups_of(t)[group].units.end - first,
                      most = smaller(rest_of_group, larger(1, even));
        for (end = first; end < first + most && is_free(t, end);)
            end++;
        if (end == first)
            return (struct range){0, 0};
    } while (!atomic_compare_exchange_weak(&tail->claimed, &first, end));
    return (struct range){first, end};
}

static void attend_unit(const struct thread *t, const struct split_group *g,
                        const struct group *group, int64_t unit)
{
    const struct work_item *const item = group->item;
    const int64_t key = key_of_unit(t->a, item, unit - g->units.first),
                  panels = attnkit_prefill_state(t->a, t->kernels, item->panel_rows),
                  step = item_floats(t->a, t->kernels, item->panel_rows, item->decode_rows);
    float *const state = slot_state(t, unit);
    attnkit_take_cells(t->a, t->kernels, item->batch);
    if (item->panel_rows > 0)
        attnkit_prefill_chunk(t->a, t->kernels, item, key, state, t->scratch);
    if (item->decode_rows > 0)
        attnkit_decode_chunk(t->a, t->kernels, item, group->count, key, state + panels, step,
                             t->scratch);
    atomic_store(slot_word(t, unit), ~unit);
}

static void join_item(const struct thread *t, const struct work_item *item,
                      const struct chunk_run *run)
{
    attnkit_take_cells(t->a, t->kernels, item->batch);
    if (item->panel_rows > 0)
        attnkit_prefill_join(t->a, t->kernels, item, run, t->scratch);
    if (item->decode_rows > 0) {
        struct chunk_run decode = *run;
        decode.states += attnkit_prefill_state(t->a, t->kernels, item->panel_rows);
        decode.total += attnkit_prefill_total(t->a, t->kernels, item->panel_rows);
        attnkit_decode_join(t->a, t->kernels, item, &decode, t->scratch);
    }
}

static bool next_is_there(const struct thread *t, struct split_group *g)
{
    const int64_t next = atomic_load(&g->joined);
    return next < g->units.end && is_there(t, next);
}

/* Joins finished units of a group in order, from the first unit that has not been joined. Stops at
 * the end of the ring, because the states of a struct chunk_run must be consecutive in memory.
 * Writes the result after the last unit of the group. */
static void join_some(const struct thread *t, int64_t number, const struct group *group)
{
    struct split_group *const g = groups_of(t) + number;
    const struct work_item *const item = group->item;
    const int64_t first = atomic_load(&g->joined),
                  ring_end = first + t->tail->slots - first % t->tail->slots,
                  most = smaller(g->units.end, ring_end),
                  step = item_floats(t->a, t->kernels, item->panel_rows, item->decode_rows),
                  total = item_doubles(t->a, t->kernels, item->panel_rows, item->decode_rows);
    int64_t end = first;
    while (end < most && is_there(t, end))
        end++;
    for (int i = 0; i < group->count; i++) {
        const struct chunk_run run = {
            .total = total_of(t, number) + i * total,
            .states = slot_state(t, first) + i * step,
            .step = t->tail->state_floats,
            .first_chunk = first - g->units.first,
            .count = (int)(end - first),
            .begins = first == g->units.first,
            .ends = end == g->units.end,
        };
        join_item(t, item + i, &run);
    }
    atomic_store(&g->joined, end);
    for (int64_t unit = first; unit < end; unit++)
        atomic_store(slot_word(t, unit), unit + t->tail->slots);
}

/* Joins the finished units of a group, unless another thread is joining units of the group. The
 * other thread looks again after it has cleared `joining`, so it also finds the states of this
 * thread. */
static void join_units(const struct thread *t, int64_t number, const struct group *group)
{
    struct split_group *const g = groups_of(t) + number;
    while (next_is_there(t, g)) {
        if (atomic_exchange(&g->joining, 1))
            return;
        while (next_is_there(t, g))
            join_some(t, number, group);
        atomic_store(&g->joining, 0);
    }
}

/* Works on units until all are claimed. A thread that finds no free slot or no free total spins,
 * because the oldest unit is most likely nearly finished, and because a call makes no system calls.
 * After MOST_LOOKS looks without progress the thread leaves. The threads that are still working
 * free slots and totals, so the last of these threads finishes all units. */
static void work_on_tail(const struct thread *t)
{
    int64_t claimed = 0, before = 0;
    for (int looks = 0; looks < MOST_LOOKS; before = claimed) {
        claimed = atomic_load(&t->tail->claimed);
        if (claimed >= t->tail->units)
            return;
        const struct range units = claim_units(t);
        if (units.first == units.end) {
            looks = claimed == before ? looks + 1 : 0;
            continue;
        }
        const int64_t number = group_of_unit(t, units.first);
        const struct split_group *const g = groups_of(t) + number;
        struct group group;
        attnkit_group(t->a, t->s, g->items, &group);
        for (int64_t unit = units.first; unit < units.end; unit++)
            attend_unit(t, g, &group, unit);
        join_units(t, number, &group);
        looks = 0;
    }
}

void attnkit_steal_run(const struct attention *a, const struct kernels *kernels,
                       const struct schedule *s, const struct steal *steal, int64_t thread,
                       char *shared, char *scratch)
{
    const struct thread t = {.a = a,
                             .kernels = kernels,
                             .s = s,
                             .steal = steal,
                             .tail = (struct tail *)(void *)shared,
                             .scratch = scratch};
    work_on_queues(&t, thread);
    work_on_tail(&t);
}
