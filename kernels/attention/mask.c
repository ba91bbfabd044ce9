/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the caller's masks, bias, segment ids, slopes and dropout into sets of keys and lines of
 * numbers for a block of keys. Also makes the states of sinks. The tiles do most of the work for
 * each key. This file finds the rows of the masks and fills in the structs from which the tiles
 * make lines. If cells are out of order, this file gathers the elements of a mask one by one, which
 * takes about a cycle for each element.
 */
#include "kernels/attention/mask.h"

#include <math.h>
#include <string.h>

static struct key_set part_of_block(int64_t first, int64_t end, int64_t block)
{
    return key_set_of((int)clamp(first - block, 0, KEY_BLOCK),
                      (int)clamp(end - block, 0, KEY_BLOCK));
}

/* `row` is the address of a column in a row of a mask. Prefetches `bytes` bytes from the same
 * column on, in the row that comes ROWS rows later. Rows of a mask are far apart, and the hardware
 * prefetcher does not foresee them. The later row need not exist, because a prefetch never faults.
 * The function is always inlined, because gcc drops calls of a function that does nothing but
 * prefetch. */
static inline __attribute__((always_inline)) void ask_for_rows_after(const struct mask *m,
                                                                     const char *row, int bytes)
{
    enum { ROWS = 8, LINE = 64 };
    const uintptr_t later = (uintptr_t)row + ROWS * (uintptr_t)m->stride.row;
    for (int at = 0; at < bytes; at += LINE)
        __builtin_prefetch((const void *)(later + (uintptr_t)at));
    __builtin_prefetch((const void *)(later + (uintptr_t)(bytes - 1))); /* the cache line of the
                                                                         * last byte */
}

/* --- Columns ----------------------------------------------------------------------------------
 *
 * A column of a mask belongs to a key or, if the call has cells, to a cell.
 */

enum { LARGEST_ELEMENT = sizeof(float) };

/* The elements of a row of a mask, or the segment ids, for the keys of a block. */
struct block_columns {
    const char *first;
    struct key_set keys; /* the keys that have an element */
};

/* Returns the number of columns of the mask in the block, for calls without cells. */
static int columns_of(const struct mask *m, int64_t block)
{
    return (int)clamp(m->columns - block, 0, KEY_BLOCK);
}

/* Returns the column of a cell, or 0 if the cell has no column. `cell` is -1 for a key without a
 * cell, and the result is 0. */
static inline int64_t column_of(int32_t cell, int64_t columns)
{
    return (uint32_t)cell < (uint64_t)columns ? cell : 0;
}

/* Returns the keys of a block whose cell has a column. The result may include keys without a
 * cell. */
static struct key_set have_columns(const int32_t *cell, int64_t columns, int64_t cells)
{
    struct key_set s = key_set_of(0, KEY_BLOCK);
    for (int i = 0; columns < cells && i < KEY_BLOCK; i++)
        if (cell[i] >= columns)
            s.word[i / 64] &= ~(UINT64_C(1) << i % 64);
    return s;
}

static inline void gather(const int32_t *cell, const char *row, int64_t columns, const int bytes,
                          char *line)
{
    for (int i = 0; i < KEY_BLOCK; i++)
        memcpy(line + i * bytes, row + column_of(cell[i], columns) * bytes, (size_t)bytes);
}

static void gather_elements(const int32_t *cell, const char *row, int64_t columns, int bytes,
                            char *line)
{
    if (bytes == 1)
        gather(cell, row, columns, 1, line);
    else if (bytes == 2)
        gather(cell, row, columns, 2, line);
    else
        gather(cell, row, columns, 4, line);
}

/* Returns whether the elements of all keys of a block lie side by side. */
static bool lie_in_order(const struct attention *a, int64_t block, int64_t columns)
{
    return cell_block_of(a, block)->in_order == KEY_BLOCK &&
           *cells_from(a, block) + KEY_BLOCK <= columns;
}

/* Returns the columns of the cells of a block, in place or gathered in `line`. The function is not
 * inlined, so that calls without cells execute fewer bytes of code. */
static __attribute__((noinline)) struct block_columns
columns_of_cells(const struct attention *a, const char *row, int64_t columns, int64_t block,
                 int bytes, char line[KEY_BLOCK * LARGEST_ELEMENT])
{
    const int32_t *const cell = cells_from(a, block);
    if (lie_in_order(a, block, columns))
        return (struct block_columns){row + cell[0] * (int64_t)bytes, key_set_of(0, KEY_BLOCK)};
    gather_elements(cell, row, columns, bytes, line);
    return (struct block_columns){line, have_columns(cell, columns, a->kv_len)};
}

/* Returns the columns of a block, in place or copied to `line`. The row has `columns` columns of
 * `bytes` bytes each: 1, 2 or 4. */
static inline struct block_columns columns_at(const struct attention *a, const char *row,
                                              int64_t columns, int64_t block, const int bytes,
                                              char line[KEY_BLOCK * LARGEST_ELEMENT])
{
    if (has_cells(a))
        return columns_of_cells(a, row, columns, block, bytes, line);
    if (columns - block >= KEY_BLOCK)
        return (struct block_columns){row + block * bytes, {{UINT64_MAX, UINT64_MAX}}};
    const int count = (int)clamp(columns - block, 0, KEY_BLOCK);
    memset(line, 0, (size_t)(KEY_BLOCK * bytes));
    if (count > 0)
        memcpy(line, row + block * bytes, (size_t)(count * bytes));
    return (struct block_columns){line, key_set_of(0, count)};
}

static const char *mask_row(const struct mask *m, const struct place *place)
{
    return m->first + place_offset(m->stride, *place);
}

/* --- Keys a row sees --------------------------------------------------------------------------
 */

/* Returns the keys that a mask lets through, among `keys`. `said` has the keys whose elements are
 * true. A mask lets the keys of `said` through or, if m->ignores, all other keys. */
static struct key_set let_through(const struct mask *m, struct key_set said, struct key_set keys)
{
    if (m->ignores)
        said = (struct key_set){{~said.word[0], ~said.word[1]}};
    return intersection_of(said, keys);
}

static struct key_set seen_by_bytes(const struct attention *a, const struct kernels *kernels,
                                    const struct place *place, int64_t block)
{
    const struct mask *const m = &a->extras.bytes;
    char line[KEY_BLOCK * LARGEST_ELEMENT];
    uint64_t words[KEY_BLOCK / 64];
    const struct block_columns c = columns_at(a, mask_row(m, place), m->columns, block, 1, line);
    if (c.first != line)
        ask_for_rows_after(m, c.first, KEY_BLOCK);
    kernels->nonzero((const unsigned char *)c.first, words);
    return let_through(m, just_stored(words), c.keys);
}

/* Returns KEY_BLOCK bits of a row of a mask, from column `first` on. */
static struct key_set bits_from(const unsigned char *row, int64_t first)
{
    enum { WORD = 8 }; /* bytes */
    const int shift = first % 8;
    unsigned char bytes[KEY_BLOCK / 8 + WORD] = {0};
    uint64_t word[KEY_BLOCK / 64 + 1] = {0};
    memcpy(bytes, row + first / 8, KEY_BLOCK / 8 + (shift > 0));
    for (int i = 0; i < KEY_BLOCK / 8 + 1; i++)
        word[i / WORD] |= (uint64_t)bytes[i] << 8 * (i % WORD);
    if (shift == 0)
        return (struct key_set){{word[0], word[1]}};
    return (struct key_set){
        {word[0] >> shift | word[1] << (64 - shift), word[1] >> shift | word[2] << (64 - shift)}};
}

static struct key_set bits_of_cells(const struct attention *a, const unsigned char *row,
                                    int64_t columns, int64_t block)
{
    const int32_t *const cell = cells_from(a, block);
    struct key_set s = {{0, 0}};
    if (lie_in_order(a, block, columns))
        return bits_from(row, cell[0]);
    for (int i = 0; i < KEY_BLOCK; i++) {
        const int64_t at = column_of(cell[i], columns);
        s.word[i / 64] |= (uint64_t)(row[at / 8] >> at % 8 & 1) << i % 64;
    }
    return s;
}

static struct key_set seen_by_bits(const struct attention *a, const struct place *place,
                                   int64_t block)
{
    const struct mask *const m = &a->extras.bits;
    const int columns = columns_of(m, block);
    const unsigned char *const row = (const unsigned char *)mask_row(m, place);
    unsigned char bytes[KEY_BLOCK / 8] = {0};
    struct key_set s = {{0, 0}};
    if (has_cells(a))
        return let_through(m, bits_of_cells(a, row, m->columns, block),
                           have_columns(cells_from(a, block), m->columns, a->kv_len));
    if (columns > 0)
        memcpy(bytes, row + block / 8, (size_t)(columns + 7) / 8);
    for (int i = 0; i < KEY_BLOCK / 8; i++)
        s.word[i / 8] |= (uint64_t)bytes[i] << 8 * (i % 8);
    return let_through(m, s, key_set_of(0, columns));
}

/* Returns the keys that the bias does not mask. Sets *biased to whether the bias of any of these
 * keys is not 0. */
static struct key_set seen_by_bias(const struct attention *a, const struct kernels *kernels,
                                   const struct place *place, int64_t block, bool *biased)
{
    const struct mask *const m = &a->extras.bias;
    _Alignas(LARGEST_ELEMENT) char line[KEY_BLOCK * LARGEST_ELEMENT];
    uint64_t words[KEY_BLOCK / 64];
    const struct block_columns c =
        columns_at(a, mask_row(m, place), m->columns, block, (int)bytes_of(m->type, 1), line);
    *biased = false;
    if (is_empty(c.keys))
        return c.keys;
    if (c.first != line)
        ask_for_rows_after(m, c.first, (int)bytes_of(m->type, KEY_BLOCK));
    *biased = kernels->unmasked(m->type, c.first, words);
    return intersection_of(just_stored(words), c.keys);
}

/* Returns the keys whose segment id is the segment id of the row. */
static struct key_set seen_by_document(const struct attention *a, const struct kernels *kernels,
                                       const struct place *place, int64_t block, int64_t end)
{
    const struct extras *const x = &a->extras;
    const int64_t first =
        a->kv_starts.data ? int_at(a->kv_starts, place->batch) : place->batch * a->kv_room;
    const int32_t own = x->q_docs[place->outer * a->q_room + place->row];
    _Alignas(LARGEST_ELEMENT) char line[KEY_BLOCK * LARGEST_ELEMENT];
    uint64_t words[KEY_BLOCK / 64];
    const struct block_columns c =
        columns_at(a, (const char *)(x->kv_docs + first), has_cells(a) ? a->kv_len : end, block,
                   (int)sizeof own, line);
    kernels->same_ids((const int32_t *)(const void *)c.first, own, words);
    return intersection_of(just_stored(words), c.keys);
}

void attnkit_see(const struct attention *a, const struct kernels *kernels,
                 const struct place *place, int64_t block, struct seen *seen)
{
    const struct extras *const x = &a->extras;
    const struct visible v = visible_keys(a, place->batch, place->position);
    struct key_set keys =
        union_of(part_of_block(0, v.keep, block), part_of_block(v.first, v.end, block));
    if (has_cells(a))
        keys = intersection_of(keys, cell_block_of(a, block)->there);
    seen->biased = x->slopes;
    if (x->q_docs && !is_empty(keys))
        keys = intersection_of(
            keys, seen_by_document(a, kernels, place, block, v.end > v.keep ? v.end : v.keep));
    if (x->bytes.first && !is_empty(keys))
        keys = intersection_of(keys, seen_by_bytes(a, kernels, place, block));
    if (x->bits.first && !is_empty(keys))
        keys = intersection_of(keys, seen_by_bits(a, place, block));
    if (x->bias.first && !is_empty(keys)) {
        bool biased;
        keys = intersection_of(keys, seen_by_bias(a, kernels, place, block, &biased));
        seen->biased |= biased || x->has_huge_scale;
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

/* Returns x times log2 e if in_log2, else x. x is a number that is added to scores, or a factor of
 * numbers that are added to scores. in_log2 says whether these scores are multiplied by log2 e,
 * too. */
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
    _Alignas(LARGEST_ELEMENT) char line_of_cells[KEY_BLOCK * LARGEST_ELEMENT];
    if (x->bias.first) {
        const struct mask *const m = &x->bias;
        const char *const row = mask_row(m, &place);
        what.type = m->type;
        what.numbers = row + bytes_of(m->type, block);
        what.count = columns_of(m, block);
        if (has_cells(a)) {
            what.numbers =
                columns_at(a, row, m->columns, block, (int)bytes_of(m->type, 1), line_of_cells)
                    .first;
            what.count = KEY_BLOCK;
        }
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
        .position =
            (uint64_t)(first_key_of(a, place.batch) + q_offset(a, place.batch) + place.position),
        .first_key = (uint64_t)(first_key_of(a, place.batch) + block),
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
