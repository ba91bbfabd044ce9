/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of decode with integers where K lies in tiles: decode.h has the formula, and includes
 * this header.
 *
 * A tile has 16 keys, in 2 vectors. 4 elements of all keys take 8 shuffles: the bytes of elements 0
 * and 2 are interleaved and widened, and so are the bytes of elements 1 and 3. For the same 4
 * elements, each row takes 2 broadcasts and 4 calls of dot. Registers: 8 sums, 4 vectors of pairs,
 * a broadcast and a product take 14 of 16 ymm. Scores stay in memory.
 */
#ifndef ATTNKIT_AVX2_INTEGER_TILED_SCORES_H
#define ATTNKIT_AVX2_INTEGER_TILED_SCORES_H

/* Sets pairs[j] to two elements of each key in vector j of a tile, as integers of 16 bits. `first`
 * and `second` point to these two elements of the 16 keys of the tile. */
static inline __attribute__((always_inline)) void load_pairs(const char *first, const char *second,
                                                             __m256i pairs[TILE_VECTORS])
{
    const __m128i a = _mm_loadu_si128((const __m128i *)first);
    const __m128i b = _mm_loadu_si128((const __m128i *)second);
    pairs[0] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b));
    pairs[1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b));
}

/* Returns the scales that the keys of vector j of a tile have for the block at element d. `key` is
 * the first key of the tile. */
static inline __m256 scales_of_tile(const struct key_rows *k, int key, int64_t d, int j)
{
    if (is_i8(k->type))
        return _mm256_loadu_ps(k->scales[key] + d / k->scale_group * TILE_KEYS + j * VECTOR);
    return load_as_f32(TYPE_F16, k->row[key] + bytes_of(TYPE_Q8_0, d) * TILE_KEYS, j * VECTOR,
                       VECTOR);
}

/* Adds the products of the block at element d to the scores of a tile. */
static inline __attribute__((always_inline)) void
add_block_of_tile(const struct panel *panel, int key, int64_t d, __m256 s[][TILE_VECTORS],
                  struct ahead *ahead, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const char *at = k->row[key] + TILE_KEYS * integers_in_row(k->type, d);
    __m256i sum[PANEL_ROWS][TILE_VECTORS];
    const int16_t *q[PANEL_ROWS];
    for (int r = 0; r < rows; r++) {
        q[r] = integers_of(panel->q[r], k->dim) + d;
        for (int j = 0; j < TILE_VECTORS; j++)
            sum[r][j] = _mm256_setzero_si256();
    }
    for (int i = 0; i < Q8_BLOCK; i += 4, at += 4 * TILE_KEYS) {
        __m256i before[TILE_VECTORS], after[TILE_VECTORS];
        if (i % STEP == 0)
            prefetch_ahead(ahead, TYPE_Q8_0);
        load_pairs(at, at + 2 * TILE_KEYS, before);
        load_pairs(at + TILE_KEYS, at + 3 * TILE_KEYS, after);
        for (int r = 0; r < rows; r++) {
            const __m256i first = broadcast_pair(q[r] + i), second = broadcast_pair(q[r] + i + 2);
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[r][j] = dot(dot(sum[r][j], before[j], first, rows * TILE_VECTORS), after[j],
                                second, rows * TILE_VECTORS);
        }
    }
    for (int j = 0; j < TILE_VECTORS; j++) {
        const __m256 scale = scales_of_tile(k, key, d, j);
        for (int r = 0; r < rows; r++) {
            const __m256 both = _mm256_mul_ps(_mm256_set1_ps(panel->q[r][d / Q8_BLOCK]), scale);
            s[r][j] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][j]), both, s[r][j]);
        }
    }
}

static inline __attribute__((always_inline)) void
score_tiled_keys(const struct panel *panel, struct scores *scores, const int rows)
{
    const int64_t dim = panel->block->k.dim;
    struct ahead ahead = v_ahead(panel, (panel->most + TILE_KEYS - 1) / TILE_KEYS, dim / STEP);
    for (int key = 0; key < panel->most; key += TILE_KEYS) {
        __m256 s[PANEL_ROWS][TILE_VECTORS];
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < TILE_VECTORS; j++)
                s[r][j] = _mm256_setzero_ps();
        for (int64_t d = 0; d < dim; d += Q8_BLOCK)
            add_block_of_tile(panel, key, d, s, &ahead, rows);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < TILE_VECTORS; j++)
                _mm256_store_ps(scores->s[r] + key + j * VECTOR, s[r][j]);
    }
}

static __attribute__((noinline)) void score_tiled(const struct panel *panel, struct scores *scores)
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
