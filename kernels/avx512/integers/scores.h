/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode with integers: s[r][key] = chain over the blocks of d of fma(sum of n[r][d]
 * * k[key][d], scale of the block of q * scale of the block of K, s[r][key]). n[r] are the 16-bit
 * integers of row r of q. A file defines the function dot (see pairs.h), then includes this header,
 * and calls score_integers.
 *
 * A step of K (steps.h) is a block of 32 elements of each key of a tile. A tile has 1 or 2 vectors
 * of 16 keys. In each vector, 4 bytes of each key take 3 shuffles as in decode_k.c, 2 instructions
 * that make pairs, and 2 calls of dot for each row. A block then takes a conversion, a product of
 * scales and an FMA for each row. Registers: 8 vectors of the next step, 8 integer sums, 4 pairs
 * and a broadcast take 21 of 32 zmm; the scores stay in memory.
 */
#ifndef ATTNKIT_AVX512_INTEGER_SCORES_H
#define ATTNKIT_AVX512_INTEGER_SCORES_H

#include "kernels/avx512/integers/pairs.h"
#include "kernels/avx512/steps.h"

enum {
    ASKS = 4,       /* calls of prefetch_ahead in a step */
    MAX_BLOCKS = 4, /* blocks of TYPE_Q8_0 whose scales are loaded together */
};

/* Scales of the next blocks of TYPE_Q8_0, as binary16. The scales of MAX_BLOCKS blocks are
 * collected together. decode_k.c collects the scales of each step by itself (collect_scales). For
 * integers on a Zen 4, collect_scales saves 4 % of the time of 4 query rows if K and V are in a
 * cache of the CPU. But if K and V come from memory, 1 and 2 query rows take 4 % longer with it. */
struct next_blocks {
    struct halves block[MAX_BLOCKS];
};

static inline __attribute__((always_inline)) void
copy_blocks(struct step_place place, struct halves scales[], const int keys, const int blocks)
{
    for (int i = 0; i < keys; i++)
        for (int b = 0; b < blocks; b++)
            scales[b].of[i] = f16_at(place.key + i, place.at - 2 + b * Q8_BLOCK_BYTES);
}

/* Loads the scales of the next blocks of TYPE_Q8_0: at most MAX_BLOCKS blocks, and only blocks
 * among the `elements` elements from `place` on. */
static inline __attribute__((always_inline)) void
load_blocks(struct step_place place, int64_t elements, struct next_blocks *next, const int vectors)
{
    if (elements >= MAX_BLOCKS * Q8_BLOCK)
        copy_blocks(place, next->block, vectors * VECTOR, MAX_BLOCKS);
    else
        for (int b = 0; b * Q8_BLOCK < elements; b++, place.at += Q8_BLOCK_BYTES)
            copy_blocks(place, next->block + b, vectors * VECTOR, 1);
}

/* Sets the scales to the scales of the TYPE_Q8_0 block at element d. The next block is at `place`.
 * If `next` has no more scales, loads scales from `place` on. */
static inline __attribute__((always_inline)) void
take_block(int64_t d, int64_t dim, struct step_place place, struct next_blocks *next,
           struct scales *scales, const int vectors)
{
    const int block = (int)(d / Q8_BLOCK % MAX_BLOCKS);
    widen_scales(&next->block[block], scales, vectors);
    const int64_t then = d + Q8_BLOCK < dim ? d + Q8_BLOCK : 0;
    if (then == 0 || block == MAX_BLOCKS - 1)
        load_blocks(place, dim - then, next, vectors);
}

/* Returns the place of the block after the block at element d. After the last block of a row, the
 * place is in the rows from `next` on. */
static inline struct step_place block_after(const struct key_rows *k, const char *const *key,
                                            const char *const *next, int64_t d)
{
    const int64_t then = d + Q8_BLOCK;
    if (then < k->dim)
        return (struct step_place){key, integers_in_row(k->type, then)};
    return (struct step_place){next, integers_in_row(k->type, 0)};
}

/* For TYPE_I8: sets the scales to the scales of the group of elements that begins at element d. */
static inline __attribute__((always_inline)) void take_group(const struct key_rows *k,
                                                             const char *const *key, int64_t d,
                                                             struct scales *scales,
                                                             const int vectors)
{
    const float *const *const scale = k->scales + (key - k->row);
    for (int j = 0; j < vectors; j++)
        scales->of[j] = scales_at(scale + j * VECTOR, d / k->scale_group);
    scales->next = d + k->scale_group;
}

/* Adds a block to the scores: the sums of its products times the scales of q and K. */
static inline __attribute__((always_inline)) void
add_block(const struct panel *panel, int64_t d, const struct scales *scales,
          __m512i sum[][MAX_TILE], __m512 s[][MAX_TILE], const int vectors, const int rows)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++) {
            const __m512 scale =
                _mm512_mul_ps(_mm512_set1_ps(panel->q[r][d / Q8_BLOCK]), scales->of[j]);
            s[r][j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][j]), scale, s[r][j]);
        }
}

/* Adds the products of the block at element d to the scores, and transposes the next step
 * meanwhile. After the last step of a tile, the next step is the first step of the next tile. */
static inline __attribute__((always_inline)) void
add_integer_step(const struct scored_tile *tile, int64_t d, struct next_blocks *blocks,
                 struct scales *scales, __m512 s[][MAX_TILE], struct ahead *ahead,
                 const int vectors, const int rows)
{
    const struct panel *const panel = tile->panel;
    const struct key_rows *const k = &panel->block->k;
    const struct step_place place = block_after(k, tile->key, tile->next, d);
    const struct step *const now = &tile->steps->step[tile->steps->now];
    struct step *const next = &tile->steps->step[1 - tile->steps->now];
    const int16_t *q[PANEL_ROWS];
    __m512i x[UNITS], sum[PANEL_ROWS][MAX_TILE];
    if (!is_i8(k->type))
        take_block(d, k->dim, place, blocks, scales, vectors);
    else if (d == scales->next)
        take_group(k, tile->key, d, scales, vectors);
    for (int r = 0; r < rows; r++) {
        q[r] = integers_of(panel->q[r], k->dim) + d;
        for (int j = 0; j < vectors; j++)
            sum[r][j] = _mm512_set1_epi32(beginnings_of(panel->q[r], k->dim)[d / Q8_BLOCK]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < UNITS; i++) {
        if (i % (UNITS / ASKS) == 0)
            prefetch_ahead(ahead, false);
        if (i / PARTS < vectors)
            transpose_part(TYPE_I8, i % PARTS, place, x, next, i / PARTS);
        __m512i even[MAX_TILE], odd[MAX_TILE];
        for (int j = 0; j < vectors; j++) {
            even[j] = even_bytes(now->unit[i][j]);
            odd[j] = odd_bytes(now->unit[i][j]);
        }
        for (int r = 0; r < rows; r++) {
            const __m512i first = broadcast_pair(q[r] + 4 * i);
            const __m512i second = broadcast_pair(q[r] + 4 * i + 2);
            for (int j = 0; j < vectors; j++)
                sum[r][j] = dot(dot(sum[r][j], even[j], first), odd[j], second);
        }
    }
    add_block(panel, d, scales, sum, s, vectors, rows);
}

static inline __attribute__((always_inline)) void
score_integer_tile(const struct scored_tile *tile, struct next_blocks *blocks,
                   struct scores *scores, struct ahead *ahead, const int vectors, const int rows)
{
    struct scales scales = {.exact = true};
    __m512 s[PANEL_ROWS][MAX_TILE];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            s[r][j] = _mm512_setzero_ps();
    for (int64_t d = 0; d < tile->panel->block->k.dim; d += Q8_BLOCK) {
        add_integer_step(tile, d, blocks, &scales, s, ahead, vectors, rows);
        tile->steps->now = 1 - tile->steps->now;
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            _mm512_store_ps(scores->s[r] + tile->first + j * VECTOR, s[r][j]);
}

/* Computes the scores from key `first` on, in tiles of `vectors` vectors. The last vector of each
 * tile has at least one key. Returns the key after the last tile. */
static inline __attribute__((always_inline)) int
score_integer_tiles(const struct panel *panel, int first, struct scores *scores,
                    struct ahead *ahead, const int vectors, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const int keys = vectors * VECTOR, last = panel->most - keys + VECTOR;
    struct steps steps;
    struct next_blocks blocks;
    steps.now = 0;
    if (first < last) {
        const struct step_place place = {k->row + first, integers_in_row(k->type, 0)};
        transpose_step(TYPE_I8, place, &steps.step[0], vectors);
        if (!is_i8(k->type))
            load_blocks(place, k->dim, &blocks, vectors);
    }
    for (; first < last; first += keys) {
        /* After the last tile there is no next tile, and any keys may take its place. */
        const char *const *const next = k->row + first + (first + keys < last ? keys : 0);
        const struct scored_tile tile = {panel, k->row + first, next, first, &steps};
        score_integer_tile(&tile, &blocks, scores, ahead, vectors, rows);
    }
    return first;
}

static inline __attribute__((always_inline)) void
score_integer_keys(const struct panel *panel, struct scores *scores, const int rows)
{
    const int keys = MAX_TILE * VECTOR; /* keys of a tile */
    const int64_t asks = panel->block->k.dim / Q8_BLOCK * ASKS;
    struct ahead ahead = v_ahead(panel, 1 + asks * ((panel->most + keys - 1) / keys));
    const int key = score_integer_tiles(panel, 0, scores, &ahead, MAX_TILE, rows);
    score_integer_tiles(panel, key, scores, &ahead, 1, rows);
    scores->v = ahead;
}

static inline __attribute__((always_inline)) void score_integers(const struct panel *panel,
                                                                 struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_integer_keys(panel, scores, 1);
        break;
    case 2:
        score_integer_keys(panel, scores, 2);
        break;
    default:
        score_integer_keys(panel, scores, PANEL_ROWS);
    }
}

#endif
