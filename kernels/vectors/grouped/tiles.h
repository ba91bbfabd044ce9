/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores and weighted V of a panel in groups of 32 products, and the parts of weights: the entries
 * of struct grouped_kernels that work on lanes. The grouped.c of an instruction set includes this
 * file after it has defined ELEMENTS, SUMS, grouped_step, to_bf16 and store_quad.
 *
 * A register tile has up to SUMS pairs of accumulators. One accumulator of a pair takes the words
 * of even index of a group, the other the words of odd index. After each group their sum goes to a
 * sum in memory, because a third accumulator would make the tile smaller.
 */
#ifndef ATTNKIT_VECTORS_GROUPED_TILES_H
#define ATTNKIT_VECTORS_GROUPED_TILES_H

#include "kernels/kernels.h"

enum { GROUP_WORDS = GROUP_PRODUCTS / ELEMENTS };

static int words_of_group(int64_t left)
{
    return left < GROUP_WORDS ? (int)left : GROUP_WORDS;
}

#include "kernels/vectors/grouped/few.h"

/* Words of up to SUMS lines, which are keys of K or columns of V. Word w of line i is at first + w
 * * by_word + i * by_line. */
struct words {
    const char *first;
    ptrdiff_t by_word, by_line; /* bytes */
    int count;                  /* words of a line: even, at most GROUP_WORDS */
};

/* Multiplies a word of each line by a word of each lane. */
static inline __attribute__((always_inline)) void multiply_word(const float *lane_words,
                                                                const char *word, ptrdiff_t by_line,
                                                                floats sum[SUMS][VECTORS],
                                                                const int lines, const int vectors)
{
    floats x[VECTORS];
    for (int j = 0; j < vectors; j++)
        x[j] = load_aligned(lane_words + j * VECTOR);
    for (int i = 0; i < lines; i++) {
        const floats w = broadcast_from((const float *)(const void *)(word + i * by_line));
        for (int j = 0; j < vectors; j++)
            sum[i][j] = grouped_step(x[j], w, sum[i][j]);
    }
}

/* Computes sums[line][lane] = the sum of a group, which is added to sums[line][lane] unless
 * is_first. */
static inline __attribute__((always_inline)) void add_lines(const float *lane_words,
                                                            const struct words *words, float *sums,
                                                            bool is_first, const int lines,
                                                            const int vectors)
{
    const int lanes = vectors * VECTOR;
    const ptrdiff_t by_word = words->by_word, by_line = words->by_line;
    const char *word = words->first;
    const float *const end = lane_words + words->count * lanes;
    floats even[SUMS][VECTORS], odd[SUMS][VECTORS];
    for (int i = 0; i < lines; i++)
        for (int j = 0; j < vectors; j++)
            even[i][j] = odd[i][j] = broadcast(0.0f);
    for (; lane_words != end; lane_words += 2 * lanes, word += 2 * by_word) {
        multiply_word(lane_words, word, by_line, even, lines, vectors);
        multiply_word(lane_words + lanes, word + by_word, by_line, odd, lines, vectors);
    }
#pragma GCC unroll 12
    for (int i = 0; i < lines; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            float *const to = sums + i * lanes + j * VECTOR;
            floats sum = even[i][j] + odd[i][j];
            if (!is_first)
                sum = load_aligned(to) + sum;
            store_aligned(to, sum);
        }
}

/* Returns the number of lines of the next tile, if `left` lines are left. */
static inline int lines_of(int64_t left, int vectors)
{
    const int most = SUMS / vectors;
    if (left >= most)
        return most;
    if (left >= 6)
        return 6;
    return left >= 3 ? 3 : (int)left;
}

static inline __attribute__((always_inline)) void add_by_lines(const float *lane_words,
                                                               const struct words *words,
                                                               float *sums, bool is_first,
                                                               int lines, const int vectors)
{
    enum { FOR_1 = SUMS, FOR_2 = SUMS / 2, FOR_3 = SUMS / 3 };
    const int most = vectors == 1 ? FOR_1 : vectors == 2 ? FOR_2 : vectors == 3 ? FOR_3 : SUMS / 4;
    if (lines == most)
        add_lines(lane_words, words, sums, is_first, most, vectors);
    else if (most > 6 && lines == 6)
        add_lines(lane_words, words, sums, is_first, 6, vectors);
    else if (most > 3 && lines == 3)
        add_lines(lane_words, words, sums, is_first, 3, vectors);
    else if (most > 2 && lines == 2)
        add_lines(lane_words, words, sums, is_first, 2, vectors);
    else
        add_lines(lane_words, words, sums, is_first, 1, vectors);
}

/* Does the work of add_lines. Not inlined, because scores and weighted V share it, and a call takes
 * little time compared with a group. */
static __attribute__((noinline)) void add_group(const float *lane_words, const struct words *words,
                                                float *sums, bool is_first, int lines, int vectors)
{
    switch (vectors) {
    case 4:
        if (VECTORS == 4)
            add_by_lines(lane_words, words, sums, is_first, lines, VECTORS);
        break;
    case 3:
        add_by_lines(lane_words, words, sums, is_first, lines, 3);
        break;
    case 2:
        add_by_lines(lane_words, words, sums, is_first, lines, 2);
        break;
    default:
        add_by_lines(lane_words, words, sums, is_first, lines, 1);
    }
}

static void scores(const float *q_t, int lanes, int rows, const struct rows *k, int keys, float *s)
{
    require_built(TYPE_BF16);
    const int vectors = lanes / VECTOR;
    int lines;
    if (rows <= FEW_ROWS) {
        scores_of_few(q_t, lanes, rows, k, keys, s);
        return;
    }
    for (int key = 0; key < keys; key += lines) {
        lines = lines_of(keys - key, vectors);
        for (int64_t w = 0; w < k->dim; w += GROUP_WORDS) {
            const struct words words = {k->first + key * k->stride + w * (ptrdiff_t)sizeof(float),
                                        sizeof(float), k->stride, words_of_group(k->dim - w)};
            add_group(q_t + w * lanes, &words, s + key * lanes, w == 0, lines, vectors);
        }
    }
}

/* Computes the sums of `lines` columns, from column c on. */
static void sum_columns(const float *parts, int vectors, const struct rows *v, int64_t c, int words,
                        bool is_short, float *sums, int lines)
{
    const int lanes = vectors * VECTOR;
    const float *const low = parts + KEY_BLOCK / ELEMENTS * lanes;
    for (int w = 0; w < words; w += GROUP_WORDS) {
        const struct words group = {v->first + c * (ptrdiff_t)sizeof(float) + w * v->stride,
                                    v->stride, sizeof(float), words_of_group(words - w)};
        add_group(parts + w * lanes, &group, sums, w == 0, lines, vectors);
        if (!is_short)
            add_group(low + w * lanes, &group, sums, false, lines, vectors);
    }
}

static void weighted_v(const float *parts, int lanes, int rows, const float *largest,
                       const float *rescale, const struct rows *v, int keys, bool is_short,
                       float *o)
{
    require_built(TYPE_BF16);
    if (rows <= FEW_ROWS) {
        weighted_v_of_few(parts, rows, largest, rescale, v, keys, is_short, o);
        return;
    }
    const int vectors = lanes / VECTOR, words = (int)whole_quads(keys) / ELEMENTS;
    _Alignas(VECTOR * sizeof(float)) float sums[SUMS * VECTOR];
    int lines;
    for (int64_t c = 0; c < v->dim; c += lines) {
        lines = lines_of(v->dim - c, vectors);
        sum_columns(parts, vectors, v, c, words, is_short, sums, lines);
        for (int i = 0; i < lines; i++)
            for (int lane = 0; lane < lanes; lane += VECTOR) {
                float *const to = o + (c + i) * lanes + lane;
                const floats sum = load_aligned(sums + i * lanes + lane);
                floats moved = broadcast(0.0f);
                if (rescale)
                    moved = load_aligned(to) * load_aligned(rescale + lane);
                store_aligned(to, fma_v(sum, load_aligned(largest + lane), moved));
            }
    }
}

/* Returns the largest weight of each lane of a vector, from LEAST_PEAK to 1. A NaN does not
 * count. */
static inline __attribute__((always_inline)) floats largest_of(const float *p, int lanes, int keys)
{
    const floats one = broadcast(1.0f);
    floats largest = broadcast(LEAST_PEAK);
    for (int key = 0; key < keys; key++)
        largest = max_without_nan(load_aligned(p + key * lanes), largest);
    return select_v(less_v(largest, one), largest, one);
}

/* Splits the weights of one key into parts. Returns the sum of the parts. */
static inline __attribute__((always_inline)) floats split_weight(floats p, bool is_short,
                                                                 floats *high, floats *low)
{
    p = select_v(less_v(p, broadcast(LEAST_WEIGHT)), broadcast(0.0f), p);
    *high = to_bf16(p);
    *low = broadcast(0.0f);
    if (is_short)
        return *high;
    *low = to_bf16(p - *high);
    return *high + *low;
}

/* Makes the parts of a quad of keys for a vector of lanes. Returns `sum` with the parts of the
 * first `keys` keys added. */
static inline __attribute__((always_inline)) floats pack_lanes(const float *p, int lanes, int keys,
                                                               floats factor, bool is_short,
                                                               float *high_words, floats sum)
{
    floats high[QUAD_ELEMENTS], low[QUAD_ELEMENTS];
    for (int i = 0; i < QUAD_ELEMENTS; i++) {
        if (i >= keys) {
            high[i] = low[i] = broadcast(0.0f);
            continue;
        }
        sum = sum + split_weight(load_aligned(p + i * lanes) * factor, is_short, &high[i], &low[i]);
    }
    store_quad(high_words, lanes, high);
    if (!is_short)
        store_quad(high_words + KEY_BLOCK / ELEMENTS * lanes, lanes, low);
    return sum;
}

static inline __attribute__((always_inline)) void pack_panel(const float *p, int keys,
                                                             bool is_short, const float *rescale,
                                                             float *row_sum, float *largest,
                                                             float *parts, const int vectors)
{
    const int lanes = vectors * VECTOR;
    floats sum[VECTORS], factor[VECTORS];
    for (int j = 0; j < vectors; j++) {
        const floats most = largest_of(p + j * VECTOR, lanes, keys);
        store_aligned(largest + j * VECTOR, most);
        factor[j] = broadcast(1.0f) / most;
        sum[j] = broadcast(0.0f);
    }
    int key = 0;
    for (; key + QUAD_ELEMENTS <= keys; key += QUAD_ELEMENTS)
        for (int j = 0; j < vectors; j++)
            sum[j] = pack_lanes(p + key * lanes + j * VECTOR, lanes, QUAD_ELEMENTS, factor[j],
                                is_short, parts + key / ELEMENTS * lanes + j * VECTOR, sum[j]);
    for (int j = 0; j < vectors && key < keys; j++)
        sum[j] = pack_lanes(p + key * lanes + j * VECTOR, lanes, keys - key, factor[j], is_short,
                            parts + key / ELEMENTS * lanes + j * VECTOR, sum[j]);
    for (int j = 0; j < vectors; j++) {
        float *const to = row_sum + j * VECTOR;
        store_aligned(to, fma_v(sum[j], load_aligned(largest + j * VECTOR),
                                load_aligned(to) * load_aligned(rescale + j * VECTOR)));
    }
}

static void pack_weights(const float *p, int lanes, int keys, bool is_short, const float *rescale,
                         float *row_sum, float *largest, float *parts)
{
    require_built(TYPE_BF16);
    switch (lanes / VECTOR) {
    case 4:
        if (VECTORS == 4)
            pack_panel(p, keys, is_short, rescale, row_sum, largest, parts, VECTORS);
        break;
    case 3:
        pack_panel(p, keys, is_short, rescale, row_sum, largest, parts, 3);
        break;
    case 2:
        pack_panel(p, keys, is_short, rescale, row_sum, largest, parts, 2);
        break;
    default:
        pack_panel(p, keys, is_short, rescale, row_sum, largest, parts, 1);
    }
}

extern const struct grouped_kernels KERNEL(grouped);
const struct grouped_kernels KERNEL(grouped) = {
    .elements = ELEMENTS,
    .pack_row = pack_row,
    .pack_quad = pack_quad,
    .scores = scores,
    .pack_weights = pack_weights,
    .weighted_v = weighted_v,
};

#endif
