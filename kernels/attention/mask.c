/* SPDX-License-Identifier: Apache-2.0
 *
 * From masks, documents, slopes and dropout, as the caller has them, to sets of keys and lines of
 * numbers for a block of keys. What there is to do for each key is done by the tiles: here it is
 * found where the masks lie, and what the lines are made of.
 */
#include "kernels/attention/mask.h"

#include <math.h>
#include <string.h>

static struct key_set part_of_block(int64_t first, int64_t end, int64_t block)
{
    return key_set_of((int)clamp(first - block, 0, KEY_BLOCK),
                      (int)clamp(end - block, 0, KEY_BLOCK));
}

/* Columns of the block that a mask has. */
static int columns_of(const struct mask *m, int64_t block)
{
    return (int)clamp(m->columns - block, 0, KEY_BLOCK);
}

/* Rows of a mask are far apart, and no stream that the hardware would see coming. They need not
 * exist: a prefetch never faults. Inlined always, because gcc drops calls of a function that does
 * nothing but prefetch. */
static inline __attribute__((always_inline)) void ask_for_rows_after(const struct mask *m,
                                                                     const char *row, int bytes)
{
    enum { ROWS = 8, LINE = 64 };
    const uintptr_t later = (uintptr_t)row + ROWS * (uintptr_t)m->stride.row;
    for (int at = 0; at < bytes; at += LINE)
        __builtin_prefetch((const void *)(later + (uintptr_t)at));
    __builtin_prefetch((const void *)(later + (uintptr_t)(bytes - 1))); /* lines begin anywhere */
}

/* What a mask lets through of what it says: all it has, or all but that. */
static struct key_set let_through(const struct mask *m, struct key_set said, int64_t block)
{
    if (m->ignores)
        said = (struct key_set){{~said.word[0], ~said.word[1]}};
    return intersection_of(said, key_set_of(0, columns_of(m, block)));
}

static struct key_set seen_by_bytes(const struct mask *m, const struct kernels *kernels,
                                    const struct place *place, int64_t block)
{
    const int columns = columns_of(m, block);
    const char *const row = m->first + place_offset(m->stride, *place) + block;
    struct key_set s;
    ask_for_rows_after(m, row, KEY_BLOCK);
    if (columns == KEY_BLOCK) {
        kernels->nonzero((const unsigned char *)row, s.word);
    } else {
        unsigned char bytes[KEY_BLOCK] = {0};
        if (columns > 0)
            memcpy(bytes, row, (size_t)columns);
        kernels->nonzero(bytes, s.word);
    }
    return let_through(m, s, block);
}

static struct key_set seen_by_bits(const struct mask *m, const struct place *place, int64_t block)
{
    const int columns = columns_of(m, block);
    const char *const row = m->first + place_offset(m->stride, *place) + block / 8;
    unsigned char bytes[KEY_BLOCK / 8] = {0};
    struct key_set s = {{0, 0}};
    if (columns > 0)
        memcpy(bytes, row, (size_t)(columns + 7) / 8);
    for (int i = 0; i < KEY_BLOCK / 8; i++)
        s.word[i / 8] |= (uint64_t)bytes[i] << 8 * (i % 8);
    return let_through(m, s, block);
}

static const char *bias_row(const struct mask *m, const struct place *place, int64_t block)
{
    return m->first + place_offset(m->stride, *place) + bytes_of(m->type, block);
}

static struct seen seen_by_bias(const struct mask *m, const struct kernels *kernels,
                                const struct place *place, int64_t block)
{
    const int columns = columns_of(m, block);
    const char *const row = bias_row(m, place, block);
    struct seen s = {.biased = false};
    if (columns == 0)
        return s;
    ask_for_rows_after(m, row, (int)bytes_of(m->type, KEY_BLOCK));
    if (columns == KEY_BLOCK) {
        s.biased = kernels->unmasked(m->type, row, s.keys.word);
    } else {
        float numbers[KEY_BLOCK] = {0};
        memcpy(numbers, row, (size_t)bytes_of(m->type, columns));
        s.biased = kernels->unmasked(m->type, numbers, s.keys.word);
        s.keys = intersection_of(s.keys, key_set_of(0, columns));
    }
    return s;
}

/* The keys up to `end` of the same document. */
static struct key_set seen_by_document(const struct attention *a, const struct kernels *kernels,
                                       const struct place *place, int64_t block, int64_t end)
{
    const struct extras *const x = &a->extras;
    const int64_t first =
        a->kv_starts.data ? int_at(a->kv_starts, place->batch) : place->batch * a->kv_room;
    const int32_t own = x->q_docs[place->outer * a->q_room + place->row];
    const int32_t *const docs = x->kv_docs + first + block;
    const int keys = (int)clamp(end - block, 0, KEY_BLOCK);
    struct key_set s;
    if (keys == KEY_BLOCK) {
        kernels->same_ids(docs, own, s.word);
        return s;
    }
    int32_t ids[KEY_BLOCK] = {0};
    memcpy(ids, docs, (size_t)keys * sizeof *ids);
    kernels->same_ids(ids, own, s.word);
    return intersection_of(s, key_set_of(0, keys));
}

void attnkit_see(const struct attention *a, const struct kernels *kernels,
                 const struct place *place, int64_t block, struct seen *seen)
{
    const struct extras *const x = &a->extras;
    const struct visible v = visible_keys(a, place->batch, place->position);
    struct key_set keys =
        union_of(part_of_block(0, v.keep, block), part_of_block(v.first, v.end, block));
    seen->biased = x->slopes;
    if (x->q_docs && !is_empty(keys))
        keys = intersection_of(
            keys, seen_by_document(a, kernels, place, block, v.end > v.keep ? v.end : v.keep));
    if (x->bytes.first && !is_empty(keys))
        keys = intersection_of(keys, seen_by_bytes(&x->bytes, kernels, place, block));
    if (x->bits.first && !is_empty(keys))
        keys = intersection_of(keys, seen_by_bits(&x->bits, place, block));
    if (x->bias.first && !is_empty(keys)) {
        const struct seen by_bias = seen_by_bias(&x->bias, kernels, place, block);
        keys = intersection_of(keys, by_bias.keys);
        seen->biased |= by_bias.biased || x->has_huge_scale;
    }
    seen->keys.word[0] = keys.word[0];
    seen->keys.word[1] = keys.word[1];
}

bool attnkit_rows_differ(const struct attention *a)
{
    const struct extras *const x = &a->extras;
    return attnkit_heads_differ(a) || a->causal || x->window || x->q_docs ||
           (x->bytes.first && x->bytes.stride.row != 0) ||
           (x->bits.first && x->bits.stride.row != 0) || (x->bias.first && x->bias.stride.row != 0);
}

bool attnkit_heads_differ(const struct attention *a)
{
    const struct extras *const x = &a->extras;
    return (x->bytes.first && x->bytes.stride.head != 0) ||
           (x->bits.first && x->bits.stride.head != 0) ||
           (x->bias.first && x->bias.stride.head != 0);
}

bool attnkit_bias_lines_differ(const struct attention *a)
{
    return a->extras.slopes || a->extras.bias_scales || attnkit_heads_differ(a);
}

/* A factor of a head with the unit of scores. */
static float with_unit(float x, bool in_log2)
{
    return in_log2 ? (float)((double)x * LOG2_E) : x;
}

void attnkit_bias_line(const struct attention *a, const struct kernels *kernels, struct place place,
                       int64_t block, struct key_set seen, bool in_log2, float line[KEY_BLOCK])
{
    const struct extras *const x = &a->extras;
    struct bias_line what = {
        .unit = with_unit(1.0f, in_log2),
        .least = with_unit(BIAS_FLOOR, in_log2),
        .seen = {seen.word[0], seen.word[1]},
    };
    if (x->bias_scales)
        what.unit = with_unit(x->bias_scales[place.head], in_log2);
    if (x->bias.first) {
        what.type = x->bias.type;
        what.numbers = bias_row(&x->bias, &place, block);
        what.count = columns_of(&x->bias, block);
    }
    if (x->slopes) {
        const int64_t position = q_offset(a, place.batch) + place.position;
        what.sloped = true;
        what.slope = with_unit(x->slopes[place.head], in_log2);
        what.distance = saturated_sum(block, position == INT64_MIN ? INT64_MAX : -position);
    }
    kernels->bias_line(&what, line);
}

void attnkit_keep_line(const struct attention *a, const struct kernels *kernels, struct place place,
                       int64_t block, float line[KEY_BLOCK])
{
    const struct extras *const x = &a->extras;
    const struct keep_line what = {
        .seed = x->seeds[place.batch],
        .position = (uint64_t)(a->first_key + q_offset(a, place.batch) + place.position),
        .first_key = (uint64_t)(a->first_key + block),
        .dropped = x->dropped,
        .head = (uint32_t)place.head,
        .factor = x->keep_factor,
    };
    kernels->keep_line(&what, line);
}

void attnkit_compact_line(const struct kernels *kernels, struct key_set keys, float line[KEY_BLOCK])
{
    const int first = first_of(keys);
    if (!is_in_a_row(keys))
        kernels->compact_line(keys.word, line);
    else if (first > 0)
        memmove(line, line + first, (size_t)(end_of(keys) - first) * sizeof *line);
}

/* --- Sinks ----------------------------------------------------------------------------------- */

void attnkit_sink(const struct attention *a, const struct kernels *kernels, int64_t head,
                  float *row_max, float *row_sum)
{
    const float t = (float)((double)a->extras.sinks[head] * LOG2_E);
    *row_max = t == -INFINITY ? t : ceilf(t);
    *row_sum = 0.0f;
    if (!(t < INFINITY)) {
        *row_max = 0.0f;
        *row_sum = NAN;
    } else if (t > -INFINITY) {
        const float fraction = t - *row_max;
        kernels->exp2(&fraction, row_sum, 1);
    }
}
