/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode with integers: s[r][key] = chain over the blocks of d of fma(sum of n[r][d]
 * * k[key][d], scale of the block of q * scale of the block of K, s[r][key]). n[r] are the 16-bit
 * integers of row r of q. A file defines the function dot (see pairs.h), then includes this header,
 * and calls score_integers.
 *
 * A tile has the 16 keys of a vector. A block has 32 elements of each key. 4 elements of each key
 * take 3 shuffles (as in decode_k.c), 2 instructions that make pairs, and 2 calls of dot for each
 * row. A block then takes a conversion, a product of scales, an addition and an FMA for each row.
 * The shuffles of the next block lie between the calls of dot, because the calls of dot of one
 * block fill the queues of the CPU. prefetch_ahead is called once for 4 elements of the 16 keys,
 * which are 64 bytes of K. If there were many prefetches at once, the CPU would drop some of them.
 * Registers: at most 13 vectors of this block and the next block, 8 integer sums, 4 scores, 2
 * pairs, 2 vectors of scales and 2 constants take 31 of 32 zmm.
 */
#ifndef ATTNKIT_AVX512_INTEGER_SCORES_H
#define ATTNKIT_AVX512_INTEGER_SCORES_H

#include "kernels/avx512/integers/pairs.h"
#include "kernels/avx512/steps.h"

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

/* Loads the bytes of keys k and k + 4 into x[i], with k = i % 4 + i / 4 * 8. */
static inline __attribute__((always_inline)) void load_keys(struct step_place place,
                                                            __m512i x[UNITS], const int i)
{
    const char *const *const low = place.key + i % 4 + i / 4 * 8;
    x[i] = load_two(low, low + 4, place.at);
}

/* Interleaves x[i] with x[i + apart] and x[j] with x[j + apart]. */
static inline __attribute__((always_inline)) void
interleave_two(const int bits, __m512i x[UNITS], const int i, const int j, const int apart)
{
    interleave(bits, x + i, x + i + apart);
    interleave(bits, x + j, x + j + apart);
}

/* Joins x[i] and x[i + 4] to units u and u + 4. u has the two bits of i in reverse order. */
static inline __attribute__((always_inline)) void join_units(const __m512i x[UNITS],
                                                             __m512i unit[UNITS], const int i)
{
    const int u = i / 2 + i % 2 * 2;
    unit[u] = _mm512_shuffle_i64x2(x[i], x[i + 4], 0x88);
    unit[u + 4] = _mm512_shuffle_i64x2(x[i], x[i + 4], 0xdd);
}

/* Does part `part` of the transposition of a block of VECTOR keys. There are UNITS parts. After the
 * last part, unit[i] has bytes 4 i to 4 i + 3 of each key. x passes the vectors of a part to the
 * next parts. */
static inline __attribute__((always_inline)) void transpose_part_of_block(struct step_place place,
                                                                          __m512i x[UNITS],
                                                                          __m512i unit[UNITS],
                                                                          const int part)
{
    switch (part) {
    case 2:
        interleave_two(32, x, 0, 2, 1);
        break;
    case 3:
        interleave_two(64, x, 0, 1, 2);
        break;
    case 4:
        interleave_two(32, x, 4, 6, 1);
        break;
    case 5:
        interleave_two(64, x, 4, 5, 2);
        break;
    case 6:
        join_units(x, unit, 0);
        join_units(x, unit, 1);
        break;
    case 7:
        join_units(x, unit, 2);
        join_units(x, unit, 3);
        break;
    default:
        break;
    }
    if (part < 4) {
        load_keys(place, x, 2 * part);
        load_keys(place, x, 2 * part + 1);
    }
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

/* Loads the scales of the keys 2 i and 2 i + 1 of a vector, for a block of TYPE_Q8_0, as binary16.
 * half[0] gets the scales of the first 8 keys, and half[1] the scales of the other keys. */
static inline __attribute__((always_inline)) void load_two_scales(struct step_place place,
                                                                  __m128i half[2], const int i)
{
    __m128i *const x = half + i / 4;
    *x = with_half(*x, f16_at(place.key + 2 * i, place.at - 2), 2 * i % 8);
    *x = with_half(*x, f16_at(place.key + 2 * i + 1, place.at - 2), 2 * i % 8 + 1);
}

/* VECTOR keys, and the keys whose first block is transposed during the last block of these keys. */
struct integer_tile {
    const struct panel *panel;
    const char *const *key, *const *next; /* the first keys of this tile and of the next tile */
};

/* Adds the products of the block at element d, which is transposed in `unit`, to the scores.
 * Meanwhile transposes the next block, which replaces `unit`. After the last block of a tile, the
 * next block is the first block of the next tile. */
static inline __attribute__((always_inline)) void
add_integer_block(const struct integer_tile *tile, int64_t d, __m512i unit[UNITS],
                  struct scales *scales, __m512 s[][MAX_TILE], struct ahead *ahead, const int rows)
{
    const struct panel *const panel = tile->panel;
    const struct key_rows *const k = &panel->block->k;
    const struct step_place here = {tile->key, integers_in_row(k->type, d)};
    const struct step_place place = block_after(k, tile->key, tile->next, d);
    const int16_t *q[PANEL_ROWS];
    __m512i x[UNITS], next[UNITS], sum[PANEL_ROWS][MAX_TILE], odd_sum[PANEL_ROWS];
    __m128i half[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
    for (int r = 0; r < rows; r++) {
        q[r] = integers_of(panel->q[r], k->dim) + d;
        sum[r][0] = _mm512_set1_epi32(beginnings_of(panel->q[r], k->dim)[d / Q8_BLOCK]);
        odd_sum[r] = _mm512_setzero_si512();
    }
#pragma GCC unroll 8
    for (int i = 0; i < UNITS; i++) {
        prefetch_ahead(ahead, false);
        if (!is_i8(k->type))
            load_two_scales(here, half, i);
        transpose_part_of_block(place, x, next, i);
        const __m512i even = even_bytes(unit[i]), odd = odd_bytes(unit[i]);
        for (int r = 0; r < rows; r++) {
            sum[r][0] = dot(sum[r][0], even, broadcast_pair(q[r] + 4 * i));
            odd_sum[r] = dot(odd_sum[r], odd, broadcast_pair(q[r] + 4 * i + 2));
        }
    }
    if (!is_i8(k->type))
        scales->of[0] = _mm512_cvtph_ps(_mm256_set_m128i(half[1], half[0]));
    else if (d == scales->next)
        take_group(k, tile->key, d, scales, 1);
    for (int r = 0; r < rows; r++)
        sum[r][0] = _mm512_add_epi32(sum[r][0], odd_sum[r]);
    add_block(panel, d, scales, sum, s, 1, rows);
    for (int i = 0; i < UNITS; i++)
        unit[i] = next[i];
}

static inline __attribute__((always_inline)) void
score_integer_tile(const struct integer_tile *tile, int first, __m512i unit[UNITS],
                   struct scores *scores, struct ahead *ahead, const int rows)
{
    struct scales scales = {.next = 0};
    __m512 s[PANEL_ROWS][MAX_TILE];
    for (int r = 0; r < rows; r++)
        s[r][0] = _mm512_setzero_ps();
    for (int64_t d = 0; d < tile->panel->block->k.dim; d += Q8_BLOCK)
        add_integer_block(tile, d, unit, &scales, s, ahead, rows);
    for (int r = 0; r < rows; r++)
        _mm512_store_ps(scores->s[r] + first, s[r][0]);
}

static inline __attribute__((always_inline)) void
score_integer_keys(const struct panel *panel, struct scores *scores, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const int tiles = (panel->most + VECTOR - 1) / VECTOR;
    struct ahead ahead = v_ahead(panel, 1 + k->dim / Q8_BLOCK * UNITS * tiles);
    const char *const *key = k->row;
    __m512i x[UNITS], unit[UNITS];
#pragma GCC unroll 8
    for (int i = 0; i < UNITS; i++)
        transpose_part_of_block((struct step_place){key, integers_in_row(k->type, 0)}, x, unit, i);
    for (int first = 0; first < panel->most; first += VECTOR, key += VECTOR) {
        /* After the last tile there is no next tile, and any keys may take its place. */
        const char *const *const next = key + (first + VECTOR < panel->most ? VECTOR : 0);
        const struct integer_tile tile = {panel, key, next};
        score_integer_tile(&tile, first, unit, scores, &ahead, rows);
    }
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
