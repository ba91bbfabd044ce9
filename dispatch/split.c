/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory is two states that are carried from wave to wave, one read and one written, then those of
 * the units of a wave.
 */
#include "split.h"

#include "../kernels/mask.h"

enum {
    LINE_FLOATS = 16,
    WAVE_BYTES = 1 << 16, /* for each thread, unless a state needs more */
    MANY_ITEMS = 8,       /* for each thread, that go round well enough whatever is left over */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t state_floats(const struct attention *a, const struct kernels *kernels,
                            const struct schedule *s)
{
    const int64_t rows = smaller(a->q_len * a->group, s->rows_per_item);
    const int64_t floats = attnkit_prefill_state(a, kernels, (int)rows) +
                           attnkit_decode_state(a, (int)smaller(rows, kernels->decode_rows));
    return (floats + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

struct split attnkit_split(const struct attention *a, const struct kernels *kernels,
                           const struct schedule *s, int64_t threads)
{
    struct split split = {.is_useful = false};
    split.chunks = (a->kv_len + CHUNK_KEYS - 1) / CHUNK_KEYS;
    if (threads == 1 || split.chunks <= 1 ||
        __builtin_mul_overflow(s->items, split.chunks, &split.units))
        return split;
    split.threads = smaller(threads, split.units);
    split.is_useful = s->heads_per_item == 1 && !a->kv_starts && s->items % threads != 0 &&
                      s->items / MANY_ITEMS < threads;
    split.state_floats = state_floats(a, kernels, s);
    const int64_t state_bytes = split.state_floats * (int64_t)sizeof(float);
    split.wave_units = larger(1, WAVE_BYTES / state_bytes) * split.threads;
    split.waves = (split.units + split.wave_units - 1) / split.wave_units;
    split.bytes = SIZE_MAX; /* refused where it is added up */
    int64_t bytes;
    if (!__builtin_mul_overflow(split.threads, larger(WAVE_BYTES, state_bytes), &bytes) &&
        !__builtin_add_overflow(bytes, 2 * state_bytes, &bytes))
        split.bytes = (size_t)bytes;
    return split;
}

/* How many of an item's chunks some row of it sees, and one if there are none. */
static int64_t chunks_of(const struct attention *a, const struct work_item *item)
{
    const int64_t rows = item->first_row + item->panel_rows + item->decode_rows;
    const int64_t end = rows ? visible_end(a, item->batch, (rows - 1) / a->group) : 0;
    return larger(1, (end + CHUNK_KEYS - 1) / CHUNK_KEYS);
}

static float *carried(const struct split *split, char *shared, int64_t wave)
{
    return (float *)shared + wave % 2 * split->state_floats;
}

static float *unit_state(const struct split *split, char *shared, int64_t unit)
{
    return (float *)shared + (2 + unit % split->wave_units) * split->state_floats;
}

/* A thread's part of n, for all threads the same to within one. */
static struct share part_of(int64_t n, int64_t threads, int64_t thread)
{
    const int64_t each = n / threads, more = n % threads;
    const int64_t first = thread * each + smaller(thread, more);
    return (struct share){first, first + each + (thread < more)};
}

/* The units of a wave. */
static struct share units_of(const struct split *split, int64_t wave)
{
    const int64_t first = wave * split->wave_units;
    return (struct share){first, smaller(first + split->wave_units, split->units)};
}

void attnkit_split_attend(const struct attention *a, const struct kernels *kernels,
                          const struct schedule *s, const struct split *split, int64_t wave,
                          int64_t thread, char *shared, char *scratch)
{
    const struct share units = units_of(split, wave);
    const struct share mine = part_of(units.end - units.first, split->threads, thread);
    for (int64_t unit = units.first + mine.first; unit < units.first + mine.end; unit++) {
        const struct work_item item = attnkit_work_item(a, s, unit / split->chunks);
        const int64_t chunk = unit % split->chunks;
        if (chunk >= chunks_of(a, &item) || item.panel_rows + item.decode_rows == 0)
            continue;
        float *const state = unit_state(split, shared, unit);
        const int64_t first = chunk * CHUNK_KEYS;
        if (item.panel_rows > 0)
            attnkit_prefill_chunk(a, kernels, item, first, state, scratch);
        if (item.decode_rows > 0)
            attnkit_decode_chunk(a, kernels, item, first,
                                 state + attnkit_prefill_state(a, kernels, item.panel_rows),
                                 scratch);
    }
}

/* The run of decode's states, which follow those of prefill. */
static struct chunk_run after_prefill(struct chunk_run run, int64_t offset)
{
    run.before = run.before ? run.before + offset : NULL;
    run.states += offset;
    run.after = run.after ? run.after + offset : NULL;
    return run;
}

static void join_item(const struct attention *a, const struct kernels *kernels,
                      const struct work_item *item, const struct chunk_run *run, char *scratch)
{
    if (item->panel_rows > 0)
        attnkit_prefill_join(a, kernels, *item, run, scratch);
    if (item->decode_rows > 0) {
        const struct chunk_run decode =
            after_prefill(*run, attnkit_prefill_state(a, kernels, item->panel_rows));
        attnkit_decode_join(a, kernels, *item, &decode, scratch);
    }
}

void attnkit_split_join(const struct attention *a, const struct kernels *kernels,
                        const struct schedule *s, const struct split *split, int64_t wave,
                        int64_t thread, char *shared, char *scratch)
{
    const struct share units = units_of(split, wave);
    const int64_t first_item = units.first / split->chunks;
    const int64_t items = (units.end - 1) / split->chunks + 1 - first_item;
    const struct share mine = part_of(items, split->threads, thread);
    for (int64_t i = first_item + mine.first; i < first_item + mine.end; i++) {
        const struct work_item item = attnkit_work_item(a, s, i);
        const int64_t all = chunks_of(a, &item), first_unit = i * split->chunks;
        const int64_t first = larger(0, units.first - first_unit);
        const int64_t end = smaller(all, units.end - first_unit);
        if (first >= end)
            continue; /* an earlier wave has finished it */
        const struct chunk_run run = {
            .before = first > 0 ? carried(split, shared, wave) : NULL,
            .states = unit_state(split, shared, first_unit + first),
            .step = split->state_floats,
            .first_chunk = first,
            .count = (int)(end - first),
            .after = end < all ? carried(split, shared, wave + 1) : NULL,
        };
        join_item(a, kernels, &item, &run, scratch);
    }
}
