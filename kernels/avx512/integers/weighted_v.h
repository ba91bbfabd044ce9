/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of decode with integers: o[r][c] = fma(o[r][c], rescale[r], scale of the weights * sum
 * over keys of n[r][key] * v[key][c]). A file includes this header after it has defined dot
 * (pairs.h), and calls weigh_integers.
 *
 * A tile is two blocks of columns of V, that is 64 columns. Four keys at a time are interleaved
 * byte by byte: 8 loads or inserts, 8 shuffles and 8 other instructions make 8 vectors of pairs.
 * Each row takes a load, 2 permutations and 8 dot. Registers: 16 sums, 8 vectors of pairs, 2
 * vectors of weights and 4 constants take 30 of 32 zmm.
 */
#ifndef ATTNKIT_AVX512_INTEGER_WEIGHTED_V_H
#define ATTNKIT_AVX512_INTEGER_WEIGHTED_V_H

#include "kernels/avx512/integers/rounding.h"

enum {
    COLUMNS = 2 * Q8_BLOCK,  /* columns of a tile */
    SUMS = COLUMNS / VECTOR, /* vectors of sums of a row */
};

/* Interleaves the bytes of four keys: each 32 bits of u[i] hold one column of the four keys. The
 * 128-bit lanes 0 and 1 have columns of the block at `first` in a row, lanes 2 and 3 of the block
 * at `second`. Lanes 0 and 2 of u[i] begin with column 4 i of their block, lanes 1 and 3 with
 * column 16 + 4 i. */
static inline __attribute__((always_inline)) void
interleave_keys(const char *const *row, int64_t first, int64_t second, __m512i u[SUMS])
{
    __m512i x[FOUR];
    for (int i = 0; i < FOUR; i++) {
        const __m256i *const low = (const __m256i *)(row[i] + first);
        const __m256i *const high = (const __m256i *)(row[i] + second);
        x[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(low)),
                                  _mm256_loadu_si256(high), 1);
    }
    const __m512i low_01 = _mm512_unpacklo_epi8(x[0], x[1]);
    const __m512i high_01 = _mm512_unpackhi_epi8(x[0], x[1]);
    const __m512i low_23 = _mm512_unpacklo_epi8(x[2], x[3]);
    const __m512i high_23 = _mm512_unpackhi_epi8(x[2], x[3]);
    u[0] = _mm512_unpacklo_epi16(low_01, low_23);
    u[1] = _mm512_unpackhi_epi16(low_01, low_23);
    u[2] = _mm512_unpacklo_epi16(high_01, high_23);
    u[3] = _mm512_unpackhi_epi16(high_01, high_23);
}

/* `four` points to four 32-bit numbers. Returns a vector whose lanes of the first block hold number
 * `at`, and whose lanes of the second block hold number at + 2. */
static inline __attribute__((always_inline)) __m512i for_blocks(const void *four, const int at)
{
    const __m512i from = _mm512_setr_epi32(at, at, at, at, at, at, at, at, at + 2, at + 2, at + 2,
                                           at + 2, at + 2, at + 2, at + 2, at + 2);
    const __m512i all = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)four));
    return _mm512_castps_si512(_mm512_permutevar_ps(_mm512_castsi512_ps(all), from));
}

/* Adds the products of four keys. n[r] has the integers of row r for these keys. */
static inline __attribute__((always_inline)) void
add_four_keys(const int16_t (*const n[PANEL_ROWS])[FOUR], const __m512i u[SUMS],
              __m512i sum[][SUMS], const int rows)
{
    __m512i even[SUMS], odd[SUMS];
    for (int i = 0; i < SUMS; i++) {
        even[i] = even_bytes(u[i]);
        odd[i] = odd_bytes(u[i]);
    }
    for (int r = 0; r < rows; r++) {
        const __m512i of_even = for_blocks(n[r], 0), of_odd = for_blocks(n[r], 1);
        for (int i = 0; i < SUMS; i++)
            sum[r][i] = dot(dot(sum[r][i], even[i], of_even), odd[i], of_odd);
    }
}

/* Brings the sums of a row into the order of columns. x[i] becomes the VECTOR columns from column i
 * * VECTOR on. */
static inline __attribute__((always_inline)) void order_columns(__m512 x[SUMS])
{
    const __m512 low_01 = _mm512_shuffle_f32x4(x[0], x[1], 0x44);
    const __m512 high_01 = _mm512_shuffle_f32x4(x[0], x[1], 0xee);
    const __m512 low_23 = _mm512_shuffle_f32x4(x[2], x[3], 0x44);
    const __m512 high_23 = _mm512_shuffle_f32x4(x[2], x[3], 0xee);
    x[0] = _mm512_shuffle_f32x4(low_01, low_23, 0x88);
    x[1] = _mm512_shuffle_f32x4(low_01, low_23, 0xdd);
    x[2] = _mm512_shuffle_f32x4(high_01, high_23, 0x88);
    x[3] = _mm512_shuffle_f32x4(high_01, high_23, 0xdd);
}

/* Adds the sums of row r to o, from column `first` on. scale[0] and scale[1] are for the two
 * blocks. */
static inline __attribute__((always_inline)) void add_to_out(const struct panel *panel,
                                                             float rescale, const float *scale,
                                                             int r, int64_t first,
                                                             const __m512i sum[SUMS])
{
    const int64_t dim = panel->block->v.dim;
    const __m512 scales = _mm512_insertf32x8(_mm512_set1_ps(scale[0]), _mm256_set1_ps(scale[1]), 1);
    float *const o = panel->block->st->out + (panel->first + r) * dim + first;
    const int vectors = dim - first < COLUMNS ? Q8_BLOCK / VECTOR : SUMS;
    __m512 x[SUMS];
    for (int i = 0; i < SUMS; i++)
        x[i] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i]), scales);
    order_columns(x);
    for (int i = 0; i < vectors; i++)
        _mm512_storeu_ps(o + i * VECTOR, _mm512_fmadd_ps(_mm512_loadu_ps(o + i * VECTOR),
                                                         _mm512_set1_ps(rescale), x[i]));
}

/* Computes the columns of a tile, from column `column` on. places->at has the blocks of the tile at
 * 2 * tile. */
static inline __attribute__((always_inline)) void
weigh_tile(const struct panel *panel, const float *rescale, const struct rounded_weights *w,
           const struct block_places *places, int64_t column, int tile, struct ahead *ahead,
           const int rows)
{
    const int64_t first = places->at[2 * tile] + 2, second = places->at[2 * tile + 1] + 2;
    __m512i sum[PANEL_ROWS][SUMS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < SUMS; i++)
            sum[r][i] = for_blocks(w->beginnings[tile][r], 0);
    for (int key = 0; key < panel->most; key += FOUR) {
        const int16_t(*n[PANEL_ROWS])[FOUR];
        __m512i u[SUMS];
        for (int r = 0; r < rows; r++)
            n[r] = w->n[tile][r][key / FOUR];
        prefetch_ahead(ahead, false);
        interleave_keys(panel->block->v.row + key, first, second, u);
        add_four_keys(n, u, sum, rows);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < SUMS; i++)
            __asm__("" : "+v"(sum[r][i])); /* otherwise gcc stores the sums in the loop above */
        if (r < panel->rows)
            add_to_out(panel, rescale[r], w->scale + BLOCKS * r + 2 * tile, r, column, sum[r]);
    }
}

static inline __attribute__((always_inline)) void
weigh_rows(const struct panel *panel, const struct weights *weights, const int rows)
{
    const struct decode_block *const block = panel->block;
    const int64_t dim = block->v.dim, rounds = (dim + BLOCKS * Q8_BLOCK - 1) / (BLOCKS * Q8_BLOCK);
    const int64_t fours = (panel->most + FOUR - 1) / FOUR;
    struct ahead ahead =
        ask_for(panel, &block->k, block->next_k, panel->far ? block->next_keys : 0,
                rounds * asks_of_rounding(panel, rows) + (dim + COLUMNS - 1) / COLUMNS * fours);
    struct weight_lines lines;
    struct rounded_weights w;
    take_weights(panel, weights, &lines);
    for (int64_t c = 0; c < dim; c += BLOCKS * Q8_BLOCK) {
        const int tiles = dim - c > COLUMNS ? TILES : 1;
        struct block_places places;
        for (int b = 0; b < BLOCKS; b++) {
            const int64_t column = c + b * Q8_BLOCK;
            places.at[b] = bytes_of(TYPE_Q8_0, column < dim ? column : dim - Q8_BLOCK);
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
