/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores and weighted V of a panel in groups of 32 products, and the table of struct
 * grouped_kernels. The grouped.c of AVX2, of AVX-512, of NEON and of the unit avx512+bf16 includes
 * this file. Before the #include, grouped.c defines pack_row, pack_group, ELEMENTS, SUMS,
 * grouped_step and round_quad, or includes files that define them.
 *
 * A register tile has up to SUMS pairs of accumulators. In each group, one accumulator of a pair
 * takes the words of even index, and the other accumulator takes the words of odd index. After each
 * group the sum of both accumulators is added to a sum in memory, because a third accumulator would
 * make the tile smaller.
 */
#ifndef ATTNKIT_VECTORS_GROUPED_TILES_H
#define ATTNKIT_VECTORS_GROUPED_TILES_H

#include "kernels/vectors/grouped/softmax.h"

enum { GROUP_WORDS = GROUP_PRODUCTS / ELEMENTS };

static int words_of_group(int64_t left)
{
    return left < GROUP_WORDS ? (int)left : GROUP_WORDS;
}

#include "kernels/vectors/grouped/few.h"

/* Words of up to SUMS lines, which are keys of K or columns of V. Word w of line i is at
 * first + w * by_word + i * by_line. */
struct tile_words {
    const char *first;
    ptrdiff_t by_word, by_line; /* bytes */
    int count;                  /* words of a line: even, at most GROUP_WORDS */
};

/* Multiplies a word of each line by a word of each lane, and adds the products to `sum`. */
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

/* Adds the sum of a group to sums[line][lane]. If is_first, sets sums[line][lane] to this sum. */
static inline __attribute__((always_inline)) void add_lines(const float *lane_words,
                                                            const struct tile_words *words,
                                                            float *sums, bool is_first,
                                                            const int lines, const int vectors)
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
                                                               const struct tile_words *words,
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

/* Does the work of add_lines. The function is not inlined, so that scores and weighted_v share its
 * code. The function call takes little time compared with the products of a group. */
static __attribute__((noinline)) void add_group(const float *lane_words,
                                                const struct tile_words *words, float *sums,
                                                bool is_first, int lines, int vectors)
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

static void sum_scores(const float *q_t, int lanes, int rows, const struct rows *k, int keys,
                       float *s)
{
    const int vectors = lanes / VECTOR;
    int lines;
    if (rows <= FEW_ROWS) {
        scores_of_few(q_t, lanes, rows, k, keys, s);
        return;
    }
    for (int key = 0; key < keys; key += lines) {
        lines = lines_of(keys - key, vectors);
        for (int64_t w = 0; w < k->dim; w += GROUP_WORDS) {
            const struct tile_words words = {k->first + key * k->stride +
                                                 w * (ptrdiff_t)sizeof(float),
                                             sizeof(float), k->stride, words_of_group(k->dim - w)};
            add_group(q_t + w * lanes, &words, s + key * lanes, w == 0, lines, vectors);
        }
    }
}

static void scores(const float *q_t, int lanes, int rows, const struct rows *k, int keys,
                   const struct scaling *scaling, float *s)
{
    require_built(TYPE_BF16);
    sum_scores(q_t, lanes, rows, k, keys, s);
    if (scaling)
        scale(s, lanes, keys, scaling);
}

/* Sets sums[line][lane] to the sum of the products of the parts of the weights (softmax.h) and a
 * column of V, for `lines` columns from column c on. `words` is the number of words of a column. */
static void sum_columns(const float *parts, int vectors, const struct rows *v, int64_t c, int words,
                        bool is_short, float *sums, int lines)
{
    const int lanes = vectors * VECTOR;
    const float *const low = parts + KEY_BLOCK / ELEMENTS * lanes;
    for (int w = 0; w < words; w += GROUP_WORDS) {
        const struct tile_words group = {v->first + c * (ptrdiff_t)sizeof(float) + w * v->stride,
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

extern const struct grouped_kernels KERNEL(grouped);
const struct grouped_kernels KERNEL(grouped) = {
    .elements = ELEMENTS,
    .pack_row = pack_row,
    .pack_group = pack_group,
    .scores = scores,
    .scale = scale,
    .softmax = softmax,
    .weighted_v = weighted_v,
};

#endif
