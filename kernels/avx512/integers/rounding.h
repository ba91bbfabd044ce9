/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiplies the weights of a panel by the scales of V, and rounds the products to integers (step
 * 16 of ../../README.md), for 4 blocks of columns of V together. Each row and block gets one scale
 * for its integers. The 16 scales of 4 rows and 4 blocks fill one vector, and their inverses take
 * one division. A file defines the function dot (see pairs.h), and then includes this header.
 *
 * For each row and block, a vector of 16 keys takes 3 instructions for the largest product, and
 * then 5 instructions for the integers.
 */
#ifndef ATTNKIT_AVX512_ROUNDING_H
#define ATTNKIT_AVX512_ROUNDING_H

#include "kernels/avx512/decode.h"
#include "kernels/avx512/integers/pairs.h"

enum {
    FOUR = 4,           /* keys whose integers lie together */
    BLOCKS = 4,         /* blocks of columns whose weights are rounded together */
    TILES = BLOCKS / 2, /* tiles of weighted V; a tile has two blocks */
    VECTORS_OF_KEYS = KEY_BLOCK / VECTOR,
};

/* The weights of each row of a panel and the scales of each block of V, in lines: a number for each
 * key. */
struct weight_lines {
    _Alignas(64) float p[PANEL_ROWS][KEY_BLOCK];
    _Alignas(64) float scales[BLOCKS][KEY_BLOCK];
    __mmask16 seen[PANEL_ROWS][VECTORS_OF_KEYS]; /* the keys that a row sees */
};

/* For each tile, row and four keys, `n` has first the integers for the first block of the tile,
 * then the integers for the second block. The integers of four keys are in the order of keys 0, 2,
 * 1 and 3. The scale of row r and block b is at BLOCKS * r + b. `beginnings` has two numbers for
 * each tile and row, at index 0 and 2. The sums of the two blocks of the tile begin with these
 * numbers, which take back the EVEN_OFFSET that even_bytes adds. */
struct rounded_weights {
    _Alignas(64) int16_t n[TILES][PANEL_ROWS][KEY_BLOCK / FOUR][2][FOUR];
    _Alignas(64) float scale[VECTOR];
    _Alignas(64) float inverse[VECTOR];
    _Alignas(16) int32_t beginnings[TILES][PANEL_ROWS][FOUR];
};
_Static_assert(PANEL_ROWS *BLOCKS == VECTOR, "the scales are one vector");

/* Sets lines->seen, and sets lines->p to the transposed weights. */
static inline __attribute__((always_inline)) void
take_weights(const struct panel *panel, const struct weights *weights, struct weight_lines *lines)
{
    const __m512i rows_01 =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i rows_23 = _mm512_add_epi32(rows_01, _mm512_set1_epi32(2));
    for (int key = 0; key < panel->most; key += VECTOR) {
        __m512 x[FOUR];
        for (int i = 0; i < FOUR; i++)
            x[i] = _mm512_load_ps(weights->p[key + FOUR * i]);
        const __m512 low_01 = _mm512_permutex2var_ps(x[0], rows_01, x[1]);
        const __m512 low_23 = _mm512_permutex2var_ps(x[0], rows_23, x[1]);
        const __m512 high_01 = _mm512_permutex2var_ps(x[2], rows_01, x[3]);
        const __m512 high_23 = _mm512_permutex2var_ps(x[2], rows_23, x[3]);
        _mm512_store_ps(lines->p[0] + key, _mm512_shuffle_f32x4(low_01, high_01, 0x44));
        _mm512_store_ps(lines->p[1] + key, _mm512_shuffle_f32x4(low_01, high_01, 0xee));
        _mm512_store_ps(lines->p[2] + key, _mm512_shuffle_f32x4(low_23, high_23, 0x44));
        _mm512_store_ps(lines->p[3] + key, _mm512_shuffle_f32x4(low_23, high_23, 0xee));
        for (int r = 0; r < PANEL_ROWS; r++)
            lines->seen[r][key / VECTOR] = first_mask(panel->visible[r] - key);
    }
}

/* The places of the integers of BLOCKS blocks in the rows of V, in bytes. If fewer than BLOCKS
 * blocks are left, the last block is repeated. */
struct block_places {
    int64_t at[BLOCKS];
};

/* Sets 16-bit number i of each x[b] to the scale of block b of a key of TYPE_Q8_0, as binary16. */
static inline __attribute__((always_inline)) void
load_scales(const char *key, const struct block_places *places, __m128i x[BLOCKS], const int i)
{
    __asm__ volatile("" : "+r"(key)); /* otherwise gcc keeps addresses in vectors */
    for (int b = 0; b < BLOCKS; b++) {
        short half;
        memcpy(&half, key + places->at[b] - sizeof half, sizeof half);
        x[b] = with_half(i == 0 ? _mm_setzero_si128() : x[b], half, i);
    }
}

/* Sets x[b] to the scales of block b of 8 keys. The loads write straight into vectors, on ports
 * that are idle here. The eight calls are not a loop, because gcc -O1 unrolls loops too late for
 * the switch of with_half to disappear. */
static inline __attribute__((always_inline)) void
load_eight(const char *const *row, const struct block_places *places, __m128i x[BLOCKS])
{
    load_scales(row[0], places, x, 0);
    load_scales(row[1], places, x, 1);
    load_scales(row[2], places, x, 2);
    load_scales(row[3], places, x, 3);
    load_scales(row[4], places, x, 4);
    load_scales(row[5], places, x, 5);
    load_scales(row[6], places, x, 6);
    load_scales(row[7], places, x, 7);
}

/* Sets scales[b] to the scales of block b of VECTOR keys, from `key` on. */
static inline __attribute__((always_inline)) void
scales_of_blocks(const struct key_rows *v, const struct block_places *places, int key,
                 __m512 scales[BLOCKS])
{
    __m128i low[BLOCKS], high[BLOCKS];
    if (is_i8(v->type)) {
        for (int b = 0; b < BLOCKS; b++)
            scales[b] = scales_at(v->scales + key, places->at[b] / v->scale_group);
        return;
    }
    load_eight(v->row + key, places, low);
    load_eight(v->row + key + VECTOR / 2, places, high);
    for (int b = 0; b < BLOCKS; b++)
        scales[b] = _mm512_cvtph_ps(_mm256_set_m128i(high[b], low[b]));
}

/* Prefetches the first two cache lines of the blocks of `count` keys to L1. BLOCKS blocks
 * take 2 to 4 lines. */
static inline __attribute__((always_inline)) void
bring_blocks_near(const char *const *row, const struct block_places *places, int count)
{
    for (int i = 0; i < count; i++) {
        _mm_prefetch(row[i] + places->at[0], _MM_HINT_T0);
        _mm_prefetch(row[i] + places->at[0] + LINE * sizeof(float), _MM_HINT_T0);
    }
}

/* Sets lines->scales to the scales of the blocks of each key. With TYPE_Q8_0 these loads are the
 * first loads of V. If K and V are far, the loads would wait for L2. So V of the next VECTOR keys
 * is prefetched to L1. */
static inline __attribute__((always_inline)) void take_scales(const struct panel *panel,
                                                              const struct block_places *places,
                                                              struct weight_lines *lines,
                                                              struct ahead *ahead)
{
    for (int key = 0; key < panel->most; key += VECTOR) {
        __m512 scales[BLOCKS];
        for (int i = 0; i < FOUR; i++)
            prefetch_ahead(ahead, false);
        if (panel->far && key + VECTOR < panel->most)
            bring_blocks_near(panel->block->v.row + key + VECTOR, places, VECTOR);
        scales_of_blocks(&panel->block->v, places, key, scales);
        for (int b = 0; b < BLOCKS; b++)
            _mm512_store_ps(lines->scales[b] + key, scales[b]);
    }
}

/* Returns the weights of VECTOR keys of a row times the scales of a block of V, and 0 for keys that
 * the row does not see. */
static inline __m512 scaled_weights(const struct weight_lines *lines, int r, int b, int key)
{
    return _mm512_maskz_mul_ps(lines->seen[r][key / VECTOR], _mm512_load_ps(lines->p[r] + key),
                               _mm512_load_ps(lines->scales[b] + key));
}

/* Computes the scales and their inverses from the bits of the largest magnitudes, as
 * integer_scale_of does. */
static inline void set_scales(__m512i bits, struct rounded_weights *w)
{
    const __m512 largest = _mm512_castsi512_ps(bits), most = _mm512_set1_ps(MOST_INTEGER);
    const __mmask16 is_finite = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(FLT_MAX), _CMP_LE_OQ);
    const __mmask16 counts = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(LEAST_LARGEST), _CMP_GE_OQ);
    const __m512 scale = _mm512_maskz_mul_ps(counts, largest, _mm512_set1_ps(1.0f / MOST_INTEGER));
    _mm512_store_ps(w->scale, _mm512_mask_blend_ps(is_finite, _mm512_set1_ps(NAN), scale));
    _mm512_store_ps(w->inverse, _mm512_maskz_div_ps(counts & is_finite, most, largest));
}

static inline __attribute__((always_inline)) void find_scales(const struct panel *panel,
                                                              const struct weight_lines *lines,
                                                              struct rounded_weights *w,
                                                              const int rows)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 largest[VECTOR];
    for (int i = 0; i < VECTOR; i++)
        largest[i] = _mm512_setzero_ps();
    for (int r = 0; r < rows; r++) {
        __m512i most[BLOCKS];
        for (int b = 0; b < BLOCKS; b++)
            most[b] = _mm512_setzero_si512();
        for (int key = 0; key < panel->most; key += VECTOR)
            for (int b = 0; b < BLOCKS; b++) {
                const __m512i bits = _mm512_castps_si512(scaled_weights(lines, r, b, key));
                most[b] = _mm512_max_epu32(most[b], _mm512_and_si512(bits, magnitude));
            }
        for (int b = 0; b < BLOCKS; b++)
            largest[BLOCKS * r + b] = _mm512_castsi512_ps(most[b]);
    }
    transpose(largest);
    __m512i all = _mm512_setzero_si512();
    for (int i = 0; i < VECTOR; i++)
        all = _mm512_max_epu32(all, _mm512_castps_si512(largest[i]));
    set_scales(all, w);
}

/* Rounds the weights of row r for a tile, and computes the beginnings of the sums of this row. */
static inline __attribute__((always_inline)) void
round_row_of_tile(const struct panel *panel, const struct weight_lines *lines, int tile, int r,
                  struct rounded_weights *w, struct ahead *ahead)
{
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    const __m512i ones = _mm512_set1_epi16(1);
    __m512i sum = _mm512_setzero_si512();
    for (int key = 0; key < panel->most; key += VECTOR) {
        __m512i n[2];
        if (key % (2 * VECTOR) == 0)
            prefetch_ahead(ahead, false);
        for (int b = 0; b < 2; b++) {
            const __m512 x = scaled_weights(lines, r, 2 * tile + b, key);
            n[b] = _mm512_cvtps_epi32(
                _mm512_mul_ps(x, _mm512_set1_ps(w->inverse[BLOCKS * r + 2 * tile + b])));
        }
        const __m512i both = _mm512_shuffle_epi8(_mm512_packs_epi32(n[0], n[1]), order);
        sum = dot(sum, both, ones);
        _mm512_store_si512(w->n[tile][r][key / FOUR], both);
    }
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    const __m128i all =
        _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    _mm_store_si128((__m128i *)w->beginnings[tile][r],
                    _mm_mullo_epi32(all, _mm_set1_epi32(-EVEN_OFFSET)));
}

/* Sets the scales for BLOCKS blocks of columns, and rounds the weights for the first `tiles` tiles
 * of these columns. */
static inline __attribute__((always_inline)) void
round_weights(const struct panel *panel, const struct block_places *places,
              struct weight_lines *lines, struct rounded_weights *w, struct ahead *ahead,
              const int tiles, const int rows)
{
    take_scales(panel, places, lines, ahead);
    find_scales(panel, lines, w, rows);
    for (int tile = 0; tile < tiles; tile++)
        for (int r = 0; r < rows; r++)
            round_row_of_tile(panel, lines, tile, r, w, ahead);
}

/* Returns how often round_weights calls prefetch_ahead if it rounds for TILES tiles. */
static inline int64_t asks_of_rounding(const struct panel *panel, int rows)
{
    const int vectors = (panel->most + VECTOR - 1) / VECTOR;
    return FOUR * vectors + TILES * rows * ((vectors + 1) / 2);
}

#endif
