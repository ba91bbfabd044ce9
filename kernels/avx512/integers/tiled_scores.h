/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of decode with integers where K lies in tiles: scores.h has the formula. A file defines
 * dot (pairs.h), and then includes this header.
 *
 * A unit is 4 elements of the 16 keys of a tile, which are 64 adjacent bytes. 2 shuffles bring the
 * bytes of a key together, 2 instructions make pairs, and each row takes 2 broadcasts and 2 calls
 * of dot. A block takes a conversion, a product of scales and an FMA for each row. Registers: 8
 * scores, 8 integer sums, 4 pairs, 2 scales, a broadcast and 4 constants take 27 of 32 zmm.
 */
#ifndef ATTNKIT_AVX512_INTEGER_TILED_SCORES_H
#define ATTNKIT_AVX512_INTEGER_TILED_SCORES_H

#include "kernels/avx512/integers/scores.h"

enum {
    ASKS = 4, /* calls of prefetch_ahead in a block of one or two tiles */
};

/* Returns 4 elements of the keys of a tile, with 32 bits for each key. Dword 4 i + j of `elements`
 * has element i of the keys 4 j to 4 j + 3. */
static inline __m512i load_unit(const char *elements)
{
    const __m512i dwords = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i bytes =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(dwords, _mm512_loadu_si512(elements)),
                               bytes);
}

/* Returns the scales that the keys of a tile have for the block at element d. `key` is the first
 * key of the tile. */
static inline __m512 scales_of_tile(const struct key_rows *k, int key, int64_t d)
{
    if (is_i8(k->type))
        return _mm512_loadu_ps(k->scales[key] + d / k->scale_group * TILE_KEYS);
    const char *const block = k->row[key] + bytes_of(TYPE_Q8_0, d) * TILE_KEYS;
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)block));
}

/* Adds the products of the block at element d to the scores of `tiles` tiles. */
static inline __attribute__((always_inline)) void
add_block_of_tiles(const struct panel *panel, int first, int64_t d, __m512 s[][MAX_TILE],
                   struct ahead *ahead, const int tiles, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const int64_t at = TILE_KEYS * integers_in_row(k->type, d);
    struct scales scales;
    const int16_t *q[PANEL_ROWS];
    __m512i sum[PANEL_ROWS][MAX_TILE];
    for (int j = 0; j < tiles; j++)
        scales.of[j] = scales_of_tile(k, first + j * TILE_KEYS, d);
    for (int r = 0; r < rows; r++) {
        q[r] = integers_of(panel->q[r], k->dim) + d;
        for (int j = 0; j < tiles; j++)
            sum[r][j] = _mm512_set1_epi32(beginnings_of(panel->q[r], k->dim)[d / Q8_BLOCK]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < UNITS; i++) {
        __m512i even[MAX_TILE], odd[MAX_TILE];
        if (i % (UNITS / ASKS) == 0)
            prefetch_ahead(ahead, false);
        for (int j = 0; j < tiles; j++) {
            const __m512i unit = load_unit(k->row[first + j * TILE_KEYS] + at + i * 4 * TILE_KEYS);
            even[j] = even_bytes(unit);
            odd[j] = odd_bytes(unit);
        }
        for (int r = 0; r < rows; r++) {
            const __m512i before = broadcast_pair(q[r] + 4 * i);
            const __m512i after = broadcast_pair(q[r] + 4 * i + 2);
            for (int j = 0; j < tiles; j++)
                sum[r][j] = dot(dot(sum[r][j], even[j], before), odd[j], after);
        }
    }
    add_block(panel, d, &scales, sum, s, tiles, rows);
}

/* Computes the scores of `tiles` tiles from key `first` on. */
static inline __attribute__((always_inline)) void score_tiles(const struct panel *panel, int first,
                                                              struct scores *scores,
                                                              struct ahead *ahead, const int tiles,
                                                              const int rows)
{
    __m512 s[PANEL_ROWS][MAX_TILE];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < tiles; j++)
            s[r][j] = _mm512_setzero_ps();
    for (int64_t d = 0; d < panel->block->k.dim; d += Q8_BLOCK)
        add_block_of_tiles(panel, first, d, s, ahead, tiles, rows);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < tiles; j++)
            _mm512_store_ps(scores->s[r] + first + j * TILE_KEYS, s[r][j]);
}

static inline __attribute__((always_inline)) void
score_tiled_keys(const struct panel *panel, struct scores *scores, const int rows)
{
    const int keys = MAX_TILE * TILE_KEYS;
    const int64_t asks = panel->block->k.dim / Q8_BLOCK * ASKS;
    struct ahead ahead = v_ahead(panel, asks * ((panel->most + keys - 1) / keys));
    int key = 0;
    for (; key + TILE_KEYS < panel->most; key += keys)
        score_tiles(panel, key, scores, &ahead, MAX_TILE, rows);
    for (; key < panel->most; key += TILE_KEYS)
        score_tiles(panel, key, scores, &ahead, 1, rows);
    scores->v = ahead;
}

static inline __attribute__((always_inline)) void score_tiled_integers(const struct panel *panel,
                                                                       struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_tiled_keys(panel, scores, 1);
        break;
    case 2:
        score_tiled_keys(panel, scores, 2);
        break;
    default:
        score_tiled_keys(panel, scores, PANEL_ROWS);
    }
}

#endif
