/* SPDX-License-Identifier: Apache-2.0
 *
 * From masks, documents, slopes and dropout, as the caller has them, to sets of keys and lines of
 * numbers for a block of keys. In plain C: a row of a block takes some tens of nanoseconds here,
 * and some hundreds in the tiles.
 */
#include "kernels/attention/mask.h"

#include <math.h>
#include <string.h>

static struct key_set part_of_block(int64_t first, int64_t end, int64_t block)
{
    return key_set_of((int)clamp(first - block, 0, KEY_BLOCK),
                      (int)clamp(end - block, 0, KEY_BLOCK));
}

/* The keys whose byte is not 0. */
static struct key_set set_of_bytes(const struct kernels *kernels, const unsigned char *bytes)
{
    struct key_set s;
    kernels->nonzero(bytes, s.word);
    return s;
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
    ask_for_rows_after(m, row, KEY_BLOCK);
    if (columns == KEY_BLOCK)
        return let_through(m, set_of_bytes(kernels, (const unsigned char *)row), block);
    unsigned char bytes[KEY_BLOCK] = {0};
    if (columns > 0)
        memcpy(bytes, row, (size_t)columns);
    return let_through(m, set_of_bytes(kernels, bytes), block);
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

/* Which of n numbers are not -infinity, and whether any of those is not 0. */
static bool classify_f32(const uint32_t *x, int n, unsigned char *seen)
{
    const uint32_t minus_infinity = 0xff800000;
    uint32_t biased = 0;
    for (int i = 0; i < n; i++) {
        seen[i] = x[i] != minus_infinity;
        biased |= x[i] != minus_infinity ? x[i] << 1 : 0;
    }
    return biased != 0;
}

static bool classify_half(const uint16_t *x, int n, uint16_t minus_infinity, unsigned char *seen)
{
    uint16_t biased = 0;
    for (int i = 0; i < n; i++) {
        seen[i] = x[i] != minus_infinity;
        biased |= (uint16_t)(x[i] != minus_infinity ? x[i] << 1 : 0);
    }
    return biased != 0;
}

static const char *bias_row(const struct mask *m, const struct place *place, int64_t block)
{
    return m->first + place_offset(m->stride, *place) + bytes_of(m->type, block);
}

static struct seen seen_by_bias(const struct mask *m, const struct kernels *kernels,
                                const struct place *place, int64_t block)
{
    const int columns = columns_of(m, block);
    unsigned char bytes[KEY_BLOCK] = {0};
    struct seen s = {.biased = false};
    if (columns > 0) {
        const void *const row = bias_row(m, place, block);
        ask_for_rows_after(m, row, (int)bytes_of(m->type, KEY_BLOCK));
        if (m->type == TYPE_F32)
            s.biased = classify_f32(row, columns, bytes);
        else
            s.biased = classify_half(row, columns, m->type == TYPE_F16 ? 0xfc00 : 0xff80, bytes);
    }
    s.keys = set_of_bytes(kernels, bytes);
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
    unsigned char bytes[KEY_BLOCK] = {0};
    for (int i = 0; i < keys; i++)
        bytes[i] = docs[i] == own;
    return set_of_bytes(kernels, bytes);
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
        seen->biased |= by_bias.biased;
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
    return x->slopes || (x->bytes.first && x->bytes.stride.head != 0) ||
           (x->bits.first && x->bits.stride.head != 0) ||
           (x->bias.first && x->bias.stride.head != 0);
}

/* Adds the caller's numbers; those that would leave binary32 in log2 have a least value. */
static void add_bias(const struct mask *m, const struct kernels *kernels, const struct place *place,
                     int64_t block, float unit, float *line)
{
    const float least = -0x1p126f;
    const int columns = columns_of(m, block);
    if (columns > 0)
        kernels->widen(m->type, bias_row(m, place, block), NULL, 0, columns, line);
    for (int i = 0; i < columns; i++)
        line[i] = (line[i] < least ? least : line[i]) * unit;
}

/* Adds slope * (key - position). */
static void add_slope(float slope, int64_t position, int64_t block, float *line)
{
    enum { EXACT = 1 << 24 }; /* integers up to here are floats */
    const int64_t distance = saturated_sum(block, position == INT64_MIN ? INT64_MAX : -position);
    if (distance > -EXACT && distance < EXACT - KEY_BLOCK) {
        const int first = (int)distance;
        for (int i = 0; i < KEY_BLOCK; i++)
            line[i] += slope * (float)(first + i);
        return;
    }
    for (int i = 0; i < KEY_BLOCK; i++)
        line[i] += slope * (float)saturated_sum(distance, i);
}

static void mask_line(struct key_set seen, float *line)
{
    for (int i = 0; i < KEY_BLOCK / 64; i++)
        for (uint64_t hidden = ~seen.word[i]; hidden; hidden &= hidden - 1)
            line[64 * i + __builtin_ctzll(hidden)] = -INFINITY;
}

void attnkit_bias_line(const struct attention *a, const struct kernels *kernels, struct place place,
                       int64_t block, struct key_set seen, bool in_log2, float line[KEY_BLOCK])
{
    const struct extras *const x = &a->extras;
    memset(line, 0, KEY_BLOCK * sizeof *line);
    if (x->bias.first)
        add_bias(&x->bias, kernels, &place, block, in_log2 ? (float)LOG2_E : 1.0f, line);
    if (x->slopes) {
        const float slope = x->slopes[place.head];
        add_slope(in_log2 ? (float)((double)slope * LOG2_E) : slope,
                  q_offset(a, place.batch) + place.position, block, line);
        for (int i = 0; i < KEY_BLOCK; i++)
            line[i] = line[i] < -FLT_MAX ? -FLT_MAX : line[i];
    }
    mask_line(seen, line);
}

void attnkit_compact_line(struct key_set keys, float line[KEY_BLOCK])
{
    int count = 0;
    if (is_in_a_row(keys)) {
        memmove(line, line + first_of(keys), (size_t)count_of(keys) * sizeof *line);
        return;
    }
    for (int i = 0; i < KEY_BLOCK / 64; i++)
        for (uint64_t left = keys.word[i]; left; left &= left - 1)
            line[count++] = line[64 * i + __builtin_ctzll(left)];
}

/* --- Dropout --------------------------------------------------------------------------------- */

enum {
    WORDS = 4,                    /* of a counter, and that it becomes */
    COUNTERS = KEY_BLOCK / WORDS, /* of a block */
};

/* Word i of each counter of a block, so that compilers see vectors. */
struct counters {
    uint32_t word[WORDS][COUNTERS];
};

/* Philox4x32-10 of Salmon, Moraes, Dror and Shaw (2011): ten rounds, of which each multiplies two
 * words and exchanges the halves of their products. */
static void philox(struct counters *c, uint64_t seed)
{
    enum { ROUNDS = 10 };
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < ROUNDS; round++, key_0 += 0x9e3779b9, key_1 += 0xbb67ae85)
        for (int i = 0; i < COUNTERS; i++) {
            const uint64_t product_0 = UINT64_C(0xd2511f53) * c->word[0][i],
                           product_1 = UINT64_C(0xcd9e8d57) * c->word[2][i];
            c->word[0][i] = (uint32_t)(product_1 >> 32) ^ c->word[1][i] ^ key_0;
            c->word[1][i] = (uint32_t)product_1;
            c->word[2][i] = (uint32_t)(product_0 >> 32) ^ c->word[3][i] ^ key_1;
            c->word[3][i] = (uint32_t)product_0;
        }
}

void attnkit_keep_line(const struct attention *a, struct place place, int64_t block,
                       float line[KEY_BLOCK])
{
    const struct extras *const x = &a->extras;
    const uint64_t position = (uint64_t)(a->first_key + q_offset(a, place.batch) + place.position);
    const uint64_t four = (uint64_t)(a->first_key + block) / WORDS;
    struct counters c;
    for (int i = 0; i < COUNTERS; i++) {
        c.word[0][i] = (uint32_t)(four + (uint64_t)i);
        c.word[1][i] = (uint32_t)position;
        c.word[2][i] = (uint32_t)place.head;
        c.word[3][i] = (uint32_t)((four + (uint64_t)i) >> 32 & 0xffff) |
                       (uint32_t)(position >> 32 & 0xffff) << 16;
    }
    philox(&c, x->seeds[place.batch]);
    /* By bits, because nobody can foresee which way a condition would go. */
    uint32_t factor, kept[KEY_BLOCK];
    memcpy(&factor, &x->keep_factor, sizeof factor);
    for (int j = 0; j < WORDS; j++)
        for (int i = 0; i < COUNTERS; i++)
            kept[i * WORDS + j] = factor & -(uint32_t)(c.word[j][i] >= x->dropped);
    memcpy(line, kept, sizeof kept);
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
