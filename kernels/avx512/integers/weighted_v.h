/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of decode with integers: o[r][c] = fma(o[r][c], rescale[r], scale[r] * (sum over keys
 * of n[r][key] * v[key][c])). n[r] are 16-bit integers, and scale[r] is their scale: for each block
 * of columns, rounding.h rounds the products of the weights of row r and the scales of V. A file
 * defines the function dot (see pairs.h), then includes this header, and calls weigh_integers.
 *
 * A tile is two blocks of columns of V, that is 64 columns. Four keys at a time are interleaved
 * byte by byte. For a block, interleaving takes 4 loads or inserts and 4 shuffles. Then 4 other
 * instructions make 4 vectors of pairs. Each row takes 2 broadcasts and 4 calls of dot. All lanes
 * of a vector belong to one block, so that weights are broadcast by loads, and the ports of
 * shuffles stay free for V. Registers: 16 sums, 4 vectors of pairs, 2 of weights and 3 constants
 * take 25 of 32 zmm.
 */
#ifndef ATTNKIT_AVX512_INTEGER_WEIGHTED_V_H
#define ATTNKIT_AVX512_INTEGER_WEIGHTED_V_H

#include "kernels/avx512/integers/rounding.h"

enum {
    COLUMNS = 2 * Q8_BLOCK,   /* columns of a tile */
    HALF = Q8_BLOCK / VECTOR, /* vectors of sums of a row and a block */
    SUMS = COLUMNS / VECTOR,  /* vectors of sums of a row */
};

/* Returns a block of columns of two keys, one key in each half of a vector. */
static inline __m512i two_keys(const char *low, const char *high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)low)),
                              _mm256_loadu_si256((const __m256i *)high), 1);
}

/* Interleaves the bytes of four keys, for the block at `at` in their rows. Each 32 bits of u hold
 * one column of the four keys. u[0] has columns 0 to 7 and 16 to 23 of the block, u[1] has columns
 * 8 to 15 and 24 to 31. */
static inline __attribute__((always_inline)) void interleave_keys(const char *const *row,
                                                                  int64_t at, __m512i u[HALF])
{
    const __m512i order = _mm512_setr_epi32(
        16 << 16, 17 << 16 | 1, 18 << 16 | 2, 19 << 16 | 3, 20 << 16 | 4, 21 << 16 | 5,
        22 << 16 | 6, 23 << 16 | 7, 24 << 16 | 8, 25 << 16 | 9, 26 << 16 | 10, 27 << 16 | 11,
        28 << 16 | 12, 29 << 16 | 13, 30 << 16 | 14, 31 << 16 | 15);
    const __m512i keys_02 = two_keys(row[0] + at, row[2] + at);
    const __m512i keys_13 = two_keys(row[1] + at, row[3] + at);
    u[0] = _mm512_permutexvar_epi16(order, _mm512_unpacklo_epi8(keys_02, keys_13));
    u[1] = _mm512_permutexvar_epi16(order, _mm512_unpackhi_epi8(keys_02, keys_13));
}

/* Adds the products of four keys and a block of columns to the sums of each row, from vector
 * `first` on. n[r] has the integers of row r for these keys. */
static inline __attribute__((always_inline)) void add_four_keys(const int16_t *const n[PANEL_ROWS],
                                                                const __m512i u[HALF],
                                                                __m512i sum[][SUMS],
                                                                const int first, const int rows)
{
    __m512i even[HALF], odd[HALF];
    for (int i = 0; i < HALF; i++) {
        even[i] = even_bytes(u[i]);
        odd[i] = odd_bytes(u[i]);
    }
    for (int r = 0; r < rows; r++) {
        const __m512i of_even = broadcast_pair(n[r]), of_odd = broadcast_pair(n[r] + 2);
        for (int i = 0; i < HALF; i++)
            sum[r][first + i] = dot(dot(sum[r][first + i], even[i], of_even), odd[i], of_odd);
    }
}

/* Multiplies a block of columns of o by `rescale`, and adds the block's sums times `scale`. */
static inline __attribute__((always_inline)) void add_to_out(float *o, float rescale, float scale,
                                                             const __m512i sum[HALF])
{
    __m512 x[HALF];
    for (int i = 0; i < HALF; i++)
        x[i] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i]), _mm512_set1_ps(scale));
    const __m512 low = _mm512_shuffle_f32x4(x[0], x[1], 0x44);
    const __m512 high = _mm512_shuffle_f32x4(x[0], x[1], 0xee);
    const __m512 factor = _mm512_set1_ps(rescale);
    _mm512_storeu_ps(o, _mm512_fmadd_ps(_mm512_loadu_ps(o), factor, low));
    _mm512_storeu_ps(o + VECTOR, _mm512_fmadd_ps(_mm512_loadu_ps(o + VECTOR), factor, high));
}

/* Computes the columns of a tile, from column `column` on. places->at[2 * tile] and the number
 * after it are the places of the tile's blocks. */
static inline __attribute__((always_inline)) void
weigh_tile(const struct panel *panel, const float *rescale, const struct rounded_weights *w,
           const struct block_places *places, int64_t column, int tile, struct ahead *ahead,
           const int rows)
{
    const int64_t dim = panel->block->v.dim;
    const int blocks = dim - column < COLUMNS ? 1 : 2;
    __m512i sum[PANEL_ROWS][SUMS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < SUMS; i++)
            sum[r][i] = _mm512_set1_epi32(w->beginnings[tile][r][2 * (i / HALF)]);
    for (int key = 0; key < panel->most; key += FOUR) {
#pragma GCC unroll 2
        for (int b = 0; b < 2; b++) {
            const int16_t *n[PANEL_ROWS];
            __m512i u[HALF];
            prefetch_ahead(ahead, false);
            for (int r = 0; r < rows; r++)
                n[r] = w->n[tile][r][key / FOUR][b];
            interleave_keys(panel->block->v.row + key, places->at[2 * tile + b], u);
            add_four_keys(n, u, sum, HALF * b, rows);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float *const o = panel->block->st->out + (panel->first + r) * dim + column;
        const float *const scale = w->scale + BLOCKS * r + 2 * tile;
        for (int i = 0; i < SUMS; i++)
            __asm__("" : "+v"(sum[r][i])); /* otherwise gcc stores the sums in the loop above */
        if (r >= panel->rows)
            continue;
        add_to_out(o, rescale[r], scale[0], sum[r]);
        if (blocks == 2)
            add_to_out(o + Q8_BLOCK, rescale[r], scale[1], sum[r] + HALF);
    }
}

static inline __attribute__((always_inline)) void
weigh_rows(const struct panel *panel, const struct weights *weights, const int rows)
{
    const struct decode_block *const block = panel->block;
    const int64_t dim = block->v.dim, rounds = (dim + BLOCKS * Q8_BLOCK - 1) / (BLOCKS * Q8_BLOCK);
    const int64_t fours = (panel->most + FOUR - 1) / FOUR;
    struct ahead ahead = ask_for(panel, &block->k, block->next_k, panel->far ? block->next_keys : 0,
                                 rounds * asks_of_rounding(panel, rows) +
                                     2 * ((dim + COLUMNS - 1) / COLUMNS * fours));
    struct weight_lines lines;
    struct rounded_weights w;
    take_weights(panel, weights, &lines);
    for (int64_t c = 0; c < dim; c += BLOCKS * Q8_BLOCK) {
        const int tiles = dim - c > COLUMNS ? TILES : 1;
        struct block_places places;
        for (int b = 0; b < BLOCKS; b++) {
            const int64_t column = c + b * Q8_BLOCK;
            places.at[b] = integers_in_row(block->v.type, column < dim ? column : dim - Q8_BLOCK);
        }
        round_weights(panel, &places, &lines, &w, &ahead, tiles, rows);
        for (int tile = 0; tile < tiles; tile++)
            weigh_tile(panel, weights->rescale, &w, &places, c + tile * COLUMNS, tile, &ahead,
                       rows);
    }
}

static inline __attribute__((always_inline)) void weigh_integers(const struct panel *panel,
                                                                 const struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        weigh_rows(panel, weights, 1);
        break;
    case 2:
        weigh_rows(panel, weights, 2);
        break;
    default:
        weigh_rows(panel, weights, PANEL_ROWS);
    }
}

#endif
