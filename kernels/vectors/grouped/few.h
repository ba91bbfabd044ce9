/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores and weighted V in groups of 32 products for a panel of few query rows, as in a decoding
 * step. In tiles.h a lane is a query row, so a panel of few rows would leave most lanes spare. In
 * this file a lane is a key for scores, and a column of V for weighted V. The results are
 * transposed, so that their lanes are query rows again. tiles.h includes this file.
 *
 * A register tile has ROWS_AT_ONCE rows x FEW_VECTORS vectors, or 1 x FEW_VECTORS for a panel of
 * one row. The chains over words of even index come first. The sums of these chains wait, in memory
 * or in free registers, until the chains over words of odd index are done. With AVX2 and AVX-512, a
 * tile of ROWS_AT_ONCE rows takes 8 accumulators, 2 vectors of words and 1 broadcast: 11 of 16 ymm
 * or of 32 zmm registers. A word of each lane and each row of the tile takes 6 loads and 8
 * multiply-adds in all. The multiply-adds limit the speed.
 */
#ifndef ATTNKIT_VECTORS_GROUPED_FEW_H
#define ATTNKIT_VECTORS_GROUPED_FEW_H

#include "kernels/kernels.h"

enum {
    FEW_ROWS = VECTOR / 2, /* a panel with at most this many query rows has few rows */
    ROWS_AT_ONCE = VECTOR < 8 ? 2 : 4,
    FEW_VECTORS = 2,
    FEW_LANES = FEW_VECTORS * VECTOR
};

/* The words of a group for FEW_LANES keys or columns. The words with index w, one for each lane,
 * begin at first + w * by_word. */
struct line_words {
    const float *first;
    int64_t by_word; /* floats */
    int count;       /* words of a lane: even, at most GROUP_WORDS */
};

/* Computes half[row][vector] = the chain over every second word of a group, from x->first and from
 * row_words on. Word w of row i is at row_words[w * lanes + i]. */
static inline __attribute__((always_inline)) void
chain_of_rows(const float *row_words, int lanes, const struct line_words *x,
              floats half[ROWS_AT_ONCE][FEW_VECTORS], const int rows)
{
    const float *line = x->first;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < FEW_VECTORS; j++)
            half[i][j] = broadcast(0.0f);
    for (int w = 0; w < x->count; w += 2, line += 2 * x->by_word, row_words += 2 * lanes) {
        floats word[FEW_VECTORS];
        for (int j = 0; j < FEW_VECTORS; j++)
            word[j] = load_floats(line + j * VECTOR);
        for (int i = 0; i < rows; i++) {
            const floats own = broadcast_from(row_words + i);
            for (int j = 0; j < FEW_VECTORS; j++)
                half[i][j] = grouped_step(own, word[j], half[i][j]);
        }
    }
}

/* Adds the sums of a group to sums[row][lane], for at most ROWS_AT_ONCE rows. */
static inline __attribute__((always_inline)) void add_group_of_rows(const float *row_words,
                                                                    int lanes,
                                                                    const struct line_words *x,
                                                                    float *sums, const int rows)
{
    const struct line_words odd_words = {x->first + x->by_word, x->by_word, x->count};
    floats even[ROWS_AT_ONCE][FEW_VECTORS], odd[ROWS_AT_ONCE][FEW_VECTORS];
    chain_of_rows(row_words, lanes, x, even, rows);
    chain_of_rows(row_words + lanes, lanes, &odd_words, odd, rows);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < FEW_VECTORS; j++) {
            float *const to = sums + i * FEW_LANES + j * VECTOR;
            store_aligned(to, load_aligned(to) + (even[i][j] + odd[i][j]));
        }
}

/* Adds the sums of a group to sums[row][lane], for all rows. */
static inline __attribute__((always_inline)) void add_group_of_few(const float *row_words,
                                                                   int lanes,
                                                                   const struct line_words *x,
                                                                   float *sums, int rows)
{
    if (rows == 1) {
        add_group_of_rows(row_words, lanes, x, sums, 1);
        return;
    }
    for (int row = 0; row < rows; row += ROWS_AT_ONCE)
        add_group_of_rows(row_words + row, lanes, x, sums + row * FEW_LANES, ROWS_AT_ONCE);
}

/* Loads vector j of the sums of each row, and transposes these vectors: lane r of x[i] is lane i of
 * the vector of row r, or 0 if there is no row r. */
static inline __attribute__((always_inline)) void load_rows(const float *sums, int rows, int j,
                                                            floats x[VECTOR])
{
    for (int i = 0; i < VECTOR; i++)
        x[i] = broadcast(0.0f);
    for (int i = 0; i < FEW_ROWS && i < rows; i++)
        x[i] = load_aligned(sums + i * FEW_LANES + j * VECTOR);
    transpose(x);
}

/* Stores the words of the group that begins at word `at` of the rows of K, as words[word][key], for
 * FEW_LANES keys from `key` on. Keys from `keys` on get the words of the last key. If a row of K
 * ends before the group ends, the words after the end of the row come from the memory after the
 * row. The sums leave these words out. */
static inline __attribute__((always_inline)) void transpose_keys(const struct rows *k, int64_t at,
                                                                 int key, int keys, float *words)
{
    for (int j = 0; j < FEW_VECTORS; j++)
        for (int w = 0; w < GROUP_WORDS; w += VECTOR) {
            floats x[VECTOR];
            for (int i = 0; i < VECTOR; i++) {
                const int own = key + j * VECTOR + i, row = own < keys ? own : keys - 1;
                x[i] =
                    load_floats((const float *)(const void *)(k->first + row * k->stride) + at + w);
            }
            transpose(x);
            for (int i = 0; i < VECTOR; i++)
                store_aligned(words + (w + i) * FEW_LANES + j * VECTOR, x[i]);
        }
}

static __attribute__((noinline)) void scores_of_few(const float *q_t, int lanes, int rows,
                                                    const struct rows *k, int keys, float *s)
{
    _Alignas(MAX_VECTOR * sizeof(float)) float words[GROUP_WORDS * FEW_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float sums[FEW_ROWS * FEW_LANES];
    for (int key = 0; key < keys; key += FEW_LANES) {
        memset(sums, 0, sizeof sums);
        for (int64_t w = 0; w < k->dim; w += GROUP_WORDS) {
            const struct line_words x = {words, FEW_LANES, words_of_group(k->dim - w)};
            transpose_keys(k, w, key, keys, words);
            add_group_of_few(q_t + w * lanes, lanes, &x, sums, rows);
        }
        for (int j = 0; j < FEW_VECTORS; j++) {
            floats x[VECTOR];
            load_rows(sums, rows, j, x);
            for (int i = 0; i < VECTOR && key + j * VECTOR + i < keys; i++)
                store_aligned(s + (key + j * VECTOR + i) * lanes, x[i]);
        }
    }
}

/* Multiplies up to FEW_LANES columns of o by rescale, and adds the sums times `largest`. If rescale
 * is NULL, the old o counts as 0. */
static inline __attribute__((always_inline)) void add_sums_of_few(const float *sums, int rows,
                                                                  const float *largest,
                                                                  const float *rescale,
                                                                  int64_t columns, float *o)
{
    const floats factor = load_aligned(largest);
    for (int j = 0; j < FEW_VECTORS; j++) {
        floats x[VECTOR];
        load_rows(sums, rows, j, x);
        for (int i = 0; i < VECTOR && j * VECTOR + i < columns; i++) {
            float *const to = o + (j * VECTOR + i) * VECTOR;
            floats moved = broadcast(0.0f);
            if (rescale)
                moved = load_aligned(to) * load_aligned(rescale);
            store_aligned(to, fma_v(x[i], factor, moved));
        }
    }
}

/* Copies `words` words, from word `first` on, of the columns of V from column c on. These columns
 * are fewer than FEW_LANES. Zeros take the place of the missing columns. */
static inline void copy_columns(const struct rows *v, int64_t c, int first, int words, float *copy)
{
    for (int w = 0; w < words; w++) {
        const float *const row = (const float *)(const void *)(v->first + (first + w) * v->stride);
        for (int j = 0; j < FEW_VECTORS; j++) {
            const int64_t left = v->dim - c - j * VECTOR;
            store_aligned(copy + w * FEW_LANES + j * VECTOR,
                          left > 0 ? load_first(row + c + j * VECTOR, left) : broadcast(0.0f));
        }
    }
}

/* Adds the products of the parts of the weights (softmax.h) and the last columns of V, from c on,
 * to sums[row][lane]. */
static __attribute__((noinline)) void add_last_columns(const float *parts, int rows,
                                                       const struct rows *v, int64_t c, int words,
                                                       bool is_short, float *sums)
{
    _Alignas(MAX_VECTOR * sizeof(float)) float copy[GROUP_WORDS * FEW_LANES];
    const float *const low = parts + KEY_BLOCK / ELEMENTS * VECTOR;
    for (int w = 0; w < words; w += GROUP_WORDS) {
        const struct line_words x = {copy, FEW_LANES, words_of_group(words - w)};
        copy_columns(v, c, w, x.count, copy);
        add_group_of_few(parts + w * VECTOR, VECTOR, &x, sums, rows);
        if (!is_short)
            add_group_of_few(low + w * VECTOR, VECTOR, &x, sums, rows);
    }
}

/* Adds the products of the parts of the weights (softmax.h) and FEW_LANES columns of V, from c on,
 * to sums[row][lane]. */
static inline __attribute__((always_inline)) void add_columns(const float *parts, int rows,
                                                              const struct rows *v, int64_t c,
                                                              int words, bool is_short, float *sums)
{
    const float *const low = parts + KEY_BLOCK / ELEMENTS * VECTOR;
    struct line_words x = {(const float *)(const void *)v->first + c,
                           v->stride / (ptrdiff_t)sizeof(float), 0};
    for (int w = 0; w < words; w += GROUP_WORDS, x.first += GROUP_WORDS * x.by_word) {
        x.count = words_of_group(words - w);
        add_group_of_few(parts + w * VECTOR, VECTOR, &x, sums, rows);
        if (!is_short)
            add_group_of_few(low + w * VECTOR, VECTOR, &x, sums, rows);
    }
}

static __attribute__((noinline)) void weighted_v_of_few(const float *parts, int rows,
                                                        const float *largest, const float *rescale,
                                                        const struct rows *v, int keys,
                                                        bool is_short, float *o)
{
    _Alignas(MAX_VECTOR * sizeof(float)) float sums[FEW_ROWS * FEW_LANES];
    const int words = (int)whole_quads(keys) / ELEMENTS;
    for (int64_t c = 0; c < v->dim; c += FEW_LANES) {
        memset(sums, 0, sizeof sums);
        if (v->dim - c < FEW_LANES)
            add_last_columns(parts, rows, v, c, words, is_short, sums);
        else
            add_columns(parts, rows, v, c, words, is_short, sums);
        add_sums_of_few(sums, rows, largest, rescale, v->dim - c, o + c * VECTOR);
    }
}

#endif
