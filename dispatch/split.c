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
    const int64_t chunks = divide_up(a->kv_len, CHUNK_KEYS);
    int64_t units, bytes;
    if (threads == 1 || chunks <= 1)
        return split;
    if (__builtin_mul_overflow(s->items, chunks, &units))
        units = INT64_MAX; /* more than there are threads */
    split.is_useful =
        s->heads_per_item == 1 && s->items % threads != 0 && s->items / MANY_ITEMS < threads;
    split.threads = smaller(threads, units);
    split.state_floats = state_floats(a, kernels, s);
    const int64_t state_bytes = split.state_floats * (int64_t)sizeof(float);
    split.bytes = SIZE_MAX; /* refused where it is added up */
    if (__builtin_mul_overflow(split.threads, larger(WAVE_BYTES, state_bytes), &bytes) ||
        __builtin_add_overflow(bytes, 2 * state_bytes, &bytes))
        return split;
    split.bytes = (size_t)bytes;
    split.wave_units = larger(1, WAVE_BYTES / state_bytes) * split.threads;
    return split;
}

/* The chunks of an item's keys that a row of it may see: the first `keep`, and first .. end - 1,
 * which come later. */
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

/* How many they are, and one if there are none. */
static int64_t units_of_item(const struct attention *a, const struct work_item *item)
{
    if (item->panel_rows + item->decode_rows == 0)
        return 0;
    const struct chunks chunks = chunks_of(a, item);
    return larger(1, chunks.keep + chunks.end - chunks.first);
}

static int64_t chunk_of_unit(struct chunks chunks, int64_t unit)
{
    return unit < chunks.keep ? unit : chunks.first + unit - chunks.keep;
}

void attnkit_count_units(const struct attention *a, const struct schedule *s, struct split *split)
{
    split->units = 0;
    for (int64_t i = 0; i < s->items; i++) {
        const struct work_item item = attnkit_work_item(a, s, i);
        if (__builtin_add_overflow(split->units, units_of_item(a, &item), &split->units))
            split->units = INT64_MAX; /* nobody sees the end of these */
    }
    split->waves = divide_up(split->units, split->wave_units);
}

static float *carried(const struct split *split, char *shared, int64_t wave)
{
    return (float *)shared + wave % 2 * split->state_floats;
}

static float *unit_state(const struct split *split, char *shared, int64_t unit)
{
    return (float *)shared + (2 + unit % split->wave_units) * split->state_floats;
}

/* The units of a wave. */
static struct share units_of(const struct split *split, int64_t wave)
{
    const int64_t first = wave * split->wave_units;
    return (struct share){first, smaller(first + split->wave_units, split->units)};
}

/* Those of them that are a thread's. */
static struct share part_of(struct share units, int64_t threads, int64_t thread)
{
    const int64_t n = units.end - units.first, each = n / threads, more = n % threads;
    const int64_t first = units.first + thread * each + smaller(thread, more);
    return (struct share){first, first + each + (thread < more)};
}

static struct share overlap_of(struct share a, struct share b)
{
    return (struct share){larger(a.first, b.first), smaller(a.end, b.end)};
}

static void attend_unit(const struct attention *a, const struct kernels *kernels,
                        const struct work_item *item, int64_t chunk, float *state, char *scratch)
{
    const int64_t first = chunk * CHUNK_KEYS;
    if (item->panel_rows > 0)
        attnkit_prefill_chunk(a, kernels, *item, first, state, scratch);
    if (item->decode_rows > 0)
        attnkit_decode_chunk(a, kernels, *item, first,
                             state + attnkit_prefill_state(a, kernels, item->panel_rows), scratch);
}

void attnkit_split_attend(const struct attention *a, const struct kernels *kernels,
                          const struct schedule *s, const struct split *split, int64_t wave,
                          int64_t thread, char *shared, char *scratch)
{
    const struct share mine = part_of(units_of(split, wave), split->threads, thread);
    int64_t first_unit = 0; /* of the item */
    for (int64_t i = 0; first_unit < mine.end; i++) {
        const struct work_item item = attnkit_work_item(a, s, i);
        const struct share all = {first_unit, first_unit + units_of_item(a, &item)};
        const struct share here = overlap_of(mine, all);
        for (int64_t unit = here.first; unit < here.end; unit++)
            attend_unit(a, kernels, &item, chunk_of_unit(chunks_of(a, &item), unit - all.first),
                        unit_state(split, shared, unit), scratch);
        first_unit = all.end;
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

/* Items go round the threads one by one. */
void attnkit_split_join(const struct attention *a, const struct kernels *kernels,
                        const struct schedule *s, const struct split *split, int64_t wave,
                        int64_t thread, char *shared, char *scratch)
{
    const struct share units = units_of(split, wave);
    int64_t first_unit = 0, joined = 0;
    for (int64_t i = 0; first_unit < units.end; i++) {
        const struct work_item item = attnkit_work_item(a, s, i);
        const struct share all = {first_unit, first_unit + units_of_item(a, &item)};
        const struct share here = overlap_of(units, all);
        first_unit = all.end;
        if (here.first >= here.end || joined++ % split->threads != thread)
            continue;
        const struct chunk_run run = {
            .before = here.first > all.first ? carried(split, shared, wave) : NULL,
            .states = unit_state(split, shared, here.first),
            .step = split->state_floats,
            .first_chunk = here.first - all.first,
            .count = (int)(here.end - here.first),
            .after = here.end < all.end ? carried(split, shared, wave + 1) : NULL,
        };
        join_item(a, kernels, &item, &run, scratch);
    }
}
