/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of decode that multiply integers (step 16 of ../../README.md), for AVX2 with and
 * without the unit AVX-VNNI. A file defines dot and MANY_SUMS, includes this header, and puts
 * `decode` into its table. dot adds two products to each sum of 32 bits. Its parameter `sums` is
 * the number of vectors of sums to which a loop adds in turn. If there are few vectors of sums, the
 * latency of dot matters. For scores of K in rows the latency does not matter, because each sum
 * gets only 4 vectors of products before the loop turns to other sums. So `sums` is MANY_SUMS for
 * these scores.
 *
 * n[r] are 16-bit integers. In scores they are the rounded elements of row r of q. In weighted V
 * they are the rounded products of the weights of row r and the scales of V, and each block of
 * columns has its own n[r].
 * Scores: s[r][key] = chain over the blocks of d of fma(sum of n[r][d] * k[key][d], scale of the
 * block of q * scale of the block of K, s[r][key]). A vector has 8 elements of each of two keys, so
 * K need not be transposed. Blocks of 32 elements of 8 keys take 32 instructions that interleave
 * and widen bytes, and for each row 4 vpmaddwd and 12 calls of dot. Then 9 more instructions for
 * each row add up the 4 sums of each key.
 * Weighted V: o[r][c] = fma(o[r][c], rescale[r], scale of n[r] * sum over keys of n[r][key] *
 * v[key][c]). Lanes are columns. A tile is half a block of columns. Two keys take 4 instructions
 * that widen and interleave bytes, and for each row a broadcast and 2 calls of dot.
 *
 * The additions of products wait for each other. To give the CPU other work meanwhile, the next
 * bytes are widened before the current bytes are multiplied. Without this order, decoding took 1.1
 * times as long on a Zen 4. Registers: in scores of 4 rows, 4 sums of a pair of keys, 4 vectors of
 * K and a product take 9 of 16 ymm. The sums of the previous pair, and the added sums of the two
 * pairs before it, take up to 8 more. So with vpmaddwd one vector has to be in memory. Integers of
 * q are in memory. In weighted V 8 sums, 4 vectors of V, a broadcast and a product take 14.
 */
#ifndef ATTNKIT_AVX2_INTEGER_DECODE_H
#define ATTNKIT_AVX2_INTEGER_DECODE_H

#include "kernels/avx2/steps.h"
#include "kernels/integers.h"

enum {
    FOUR = 4,                  /* keys of a loop body of weighted V */
    SUMS = 2,                  /* vectors of sums of a row in weighted V */
    HALF_BLOCK = Q8_BLOCK / 2, /* columns of a tile of weighted V; bytes of a load */
};

static inline __m256i widen_bytes(__m128i bytes)
{
    return _mm256_cvtepi8_epi16(bytes);
}

static inline __m128i load_half(const char *bytes)
{
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

static inline __m256i broadcast_pair(const int16_t *pair)
{
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return _mm256_set1_epi32(bits);
}

/* ------------------------------------------------------------------------------------ scores */

enum {
    EIGHT = 8,                  /* elements of a key in a vector */
    EIGHTS = Q8_BLOCK / EIGHT,  /* vectors that hold a block of each of two keys */
    PAIRS = VECTOR / 2,         /* pairs of keys of a vector of scores: keys i and i + 4 */
    STEPS = PAIRS * EIGHTS / 2, /* steps of a block; a step: HALF_BLOCK bytes of each of two keys */
    HALF_STEPS = STEPS / 2,     /* steps of two pairs */
    STEPS_OF_PAIR = STEPS / PAIRS,
};

/* A block of the rounded rows of q, in the order of the elements, each 8 elements twice. */
struct doubled_q {
    _Alignas(32) int16_t n[PANEL_ROWS][EIGHTS][2 * EIGHT];
};

/* Doubles the block at element d. round_row has swapped elements 1 and 2 of each four, and this
 * function swaps them back. */
static inline __attribute__((always_inline)) void double_q(const struct panel *panel, int64_t d,
                                                           struct doubled_q *q, const int rows)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < EIGHTS; i++) {
            const int16_t *const n = integers_of(panel->q[r], panel->block->k.dim) + d + i * EIGHT;
            const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)n);
            const __m128i ordered = _mm_shufflehi_epi16(_mm_shufflelo_epi16(x, 0xd8), 0xd8);
            _mm256_store_si256((__m256i *)(void *)q->n[r][i], _mm256_broadcastsi128_si256(ordered));
        }
}

/* HALF_BLOCK elements of each of two keys. k[0] has elements 0 to 7 of one key and then elements 0
 * to 7 of the other key. k[1] has elements 8 to 15 of both keys, in the same order. */
struct widened_pair {
    __m256i k[2];
};

/* Widens step number `step` of the block whose bytes begin at `at`. */
static inline __attribute__((always_inline)) struct widened_pair
widen_step(const char *const *key, int64_t at, const int step)
{
    const int pair = step / STEPS_OF_PAIR;
    const int64_t from = at + step % STEPS_OF_PAIR * HALF_BLOCK;
    const __m128i one = load_half(key[pair] + from), other = load_half(key[pair + PAIRS] + from);
    struct widened_pair w = {
        {widen_bytes(_mm_unpacklo_epi64(one, other)), widen_bytes(_mm_unpackhi_epi64(one, other))}};
    __asm__ volatile("" : "+x"(w.k[0]), "+x"(w.k[1])); /* widens here, and not later */
    return w;
}

/* Adds the products of a step to `sum`. The first step of a pair of keys begins the sums. sum[r]
 * has 4 sums of one key and then 4 sums of the other key. */
static inline __attribute__((always_inline)) void multiply_step(const struct widened_pair *w,
                                                                const struct doubled_q *q,
                                                                __m256i sum[PANEL_ROWS],
                                                                const int step, const int rows)
{
    const int first = step % STEPS_OF_PAIR * 2;
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < rows; r++) {
            const __m256i *const n = (const __m256i *)(const void *)q->n[r][first + i];
            if (first + i == 0)
                sum[r] = _mm256_madd_epi16(w->k[i], _mm256_load_si256(n));
            else
                sum[r] = dot(sum[r], w->k[i], _mm256_load_si256(n), MANY_SUMS);
        }
}

/* Adds neighbouring lanes. In each half of the result, the sums of a come first. */
static inline __m256i add_neighbours(__m256i a, __m256i b)
{
    const __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    return _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
                            _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)));
}

/* Computes the sums of a block for VECTOR keys. The bytes of the block begin at `at` in each row.
 */
static inline __attribute__((always_inline)) void sum_products(const char *const *key, int64_t at,
                                                               const struct doubled_q *q,
                                                               __m256i sum[PANEL_ROWS],
                                                               const int rows)
{
    __m256i part[PAIRS][PANEL_ROWS], half[2][PANEL_ROWS];
    struct widened_pair next = widen_step(key, at, 0);
#pragma GCC unroll 8
    for (int step = 0; step < STEPS; step++) {
        const struct widened_pair now = next;
        const int pair = step / STEPS_OF_PAIR, to = step / HALF_STEPS;
        if (step + 1 < STEPS)
            next = widen_step(key, at, step + 1);
        multiply_step(&now, q, part[pair], step, rows);
        if (step % HALF_STEPS + 1 == HALF_STEPS)
            for (int r = 0; r < rows; r++)
                half[to][r] = add_neighbours(part[pair - 1][r], part[pair][r]);
    }
    for (int r = 0; r < rows; r++)
        sum[r] = add_neighbours(half[0][r], half[1][r]);
}

/* Adds the products of the block at element d to the scores of VECTOR keys. */
static inline __attribute__((always_inline)) void
add_block(const enum type type, const struct panel *panel, const struct doubled_q *q, int key,
          int64_t d, struct scores *scores, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    __m256i sum[PANEL_ROWS];
    sum_products(k->row + key, integers_in_row(type, d), q, sum, rows);
    const __m256 scale = scales_at(type, k, k->row + key, d);
    for (int r = 0; r < rows; r++) {
        float *const s = scores->s[r] + key;
        const __m256 both = _mm256_mul_ps(_mm256_set1_ps(panel->q[r][d / Q8_BLOCK]), scale);
        const __m256 before = d == 0 ? _mm256_setzero_ps() : _mm256_load_ps(s);
        _mm256_store_ps(s, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), both, before));
    }
}

/* Adds the products of the block at element d to the scores of all keys. The type is a constant,
 * because a branch for each vector of keys would take some 2 % of the time. */
static inline __attribute__((always_inline)) void add_blocks(const enum type type,
                                                             const struct panel *panel, int64_t d,
                                                             struct scores *scores,
                                                             struct ahead *ahead, const int rows)
{
    struct doubled_q q;
    double_q(panel, d, &q, rows);
    begin_tile(ahead);
    for (int key = 0; key < panel->most; key += VECTOR) {
        prefetch_ahead(ahead, TYPE_Q8_0);
        add_block(type, panel, &q, key, d, scores, rows);
    }
}

static inline __attribute__((always_inline)) void score_rows(const struct panel *panel,
                                                             struct scores *scores, const int rows)
{
    const int64_t dim = panel->block->k.dim;
    struct ahead ahead = v_ahead(panel, dim / Q8_BLOCK, (panel->most + VECTOR - 1) / VECTOR);
    for (int64_t d = 0; d < dim; d += Q8_BLOCK)
        if (is_i8(panel->block->k.type))
            add_blocks(TYPE_I8, panel, d, scores, &ahead, rows);
        else
            add_blocks(TYPE_Q8_0, panel, d, scores, &ahead, rows);
}

#include "kernels/avx2/integers/tiled_scores.h"

static void score_rows_of_any_number(const struct panel *panel, struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_rows(panel, scores, 1);
        break;
    case 2:
        score_rows(panel, scores, 2);
        break;
    default:
        score_rows(panel, scores, PANEL_ROWS);
    }
}

static void score(const struct panel *panel, struct scores *scores)
{
    if (panel->block->k.tiled)
        score_tiled(panel, scores);
    else
        score_rows_of_any_number(panel, scores);
}

/* ---------------------------------------------------------------------------------- rounding */

enum {
    BLOCKS = 2, /* blocks of columns of V whose weights are rounded together */
    STEP_KEYS = 2 * VECTOR,
};
_Static_assert(PANEL_ROWS *BLOCKS == VECTOR, "the scales of all rows and blocks are one vector");

/* Scales of a block of columns, and their magnitudes. */
struct scale_lines {
    _Alignas(32) float scale[KEY_BLOCK], magnitude[KEY_BLOCK];
};

/* The weights of each row of a panel and the scales of BLOCKS blocks of columns of V, in lines: a
 * number for each key. Each STEP_KEYS keys are in the order 0 to 3, 8 to 11, 4 to 7 and 12 to 15,
 * so that the instruction that packs their integers restores the order of the keys. */
struct weight_lines {
    _Alignas(32) float p[PANEL_ROWS][KEY_BLOCK];
    struct scale_lines scales[BLOCKS];
};

/* Rounded weights: for each block and row the integers of the keys. The scale of row r and block b
 * is at BLOCKS * r + b. */
struct rounded_weights {
    _Alignas(32) int16_t n[BLOCKS][PANEL_ROWS][KEY_BLOCK];
    _Alignas(32) float scale[VECTOR], inverse[VECTOR];
};

/* Returns panel->most rounded up to a multiple of STEP_KEYS. */
static inline int whole_steps(const struct panel *panel)
{
    return (panel->most + STEP_KEYS - 1) / STEP_KEYS * STEP_KEYS;
}

/* Returns the weights of two keys that lie VECTOR keys apart. Weights have been computed for whole
 * vectors of keys up to panel->most. If the second key comes after these vectors, the function
 * takes zeros for it. */
static inline __m256 two_weights(const struct panel *panel, const struct weights *weights, int key)
{
    const bool has_second = key / VECTOR * VECTOR + VECTOR < panel->most;
    const __m128 second = has_second ? _mm_load_ps(weights->p[key + VECTOR]) : _mm_setzero_ps();
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_load_ps(weights->p[key])), second, 1);
}

/* Sets lines->p to the transposed weights. */
static inline __attribute__((always_inline)) void
take_weights(const struct panel *panel, const struct weights *weights, struct weight_lines *lines)
{
    for (int key = 0; key < whole_steps(panel); key += STEP_KEYS)
        for (int i = 0; i < 2; i++) {
            __m256 x[PANEL_ROWS];
            for (int j = 0; j < PANEL_ROWS; j++)
                x[j] = two_weights(panel, weights, key + PANEL_ROWS * i + j);
            transpose_4(x);
            for (int r = 0; r < PANEL_ROWS; r++)
                _mm256_store_ps(lines->p[r] + key + VECTOR * i, x[r]);
        }
}

/* Returns the scales of 8 keys for the block at column c: of four keys from `key` on, and of the
 * four keys that lie VECTOR keys later. */
static inline __attribute__((always_inline)) __m256
scales_apart(const enum type type, const struct key_rows *v, int key, int64_t c)
{
    const char *const *const row = v->row + key;
    if (type == TYPE_I8) {
        const int64_t at = c / v->scale_group;
        const float *const *const s = v->scales + key;
        return _mm256_setr_ps(s[0][at], s[1][at], s[2][at], s[3][at], s[VECTOR][at],
                              s[VECTOR + 1][at], s[VECTOR + 2][at], s[VECTOR + 3][at]);
    }
    const int64_t at = bytes_of(TYPE_Q8_0, c);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(four_scales(row, at), four_scales(row + VECTOR, at)));
}

/* Sets the lines to the scales of the block at `column`. Returns whether all scales are finite. */
static inline __attribute__((always_inline)) bool take_scales_of(const enum type type,
                                                                 const struct panel *panel,
                                                                 int64_t column,
                                                                 struct scale_lines *lines)
{
    __m256i most = _mm256_setzero_si256();
    for (int key = 0; key < whole_steps(panel); key += VECTOR) {
        const int first = key / STEP_KEYS * STEP_KEYS + key % STEP_KEYS / 2;
        const __m256 scale = scales_apart(type, &panel->block->v, first, column);
        const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), scale);
        most = _mm256_max_epi32(most, _mm256_castps_si256(magnitude));
        _mm256_store_ps(lines->scale + key, scale);
        _mm256_store_ps(lines->magnitude + key, magnitude);
    }
    return is_finite(_mm256_castsi256_ps(most));
}

static inline __attribute__((always_inline)) bool
take_scales(const struct panel *panel, int64_t column, struct scale_lines *lines)
{
    return is_i8(panel->block->v.type) ? take_scales_of(TYPE_I8, panel, column, lines)
                                       : take_scales_of(TYPE_Q8_0, panel, column, lines);
}

/* Replaces scales that are not finite by 0. A row that does not see the key of a replaced scale has
 * the weight 0 for this key, and 0 * 0 is 0. Returns the first key whose scale has been replaced,
 * or KEY_BLOCK if no scale has been replaced. */
static __attribute__((noinline)) int clean_scales(const struct panel *panel,
                                                  struct scale_lines *lines)
{
    static const int order[STEP_KEYS] = {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15};
    int first = KEY_BLOCK;
    for (int i = 0; i < whole_steps(panel); i++) {
        const int key = i / STEP_KEYS * STEP_KEYS + order[i % STEP_KEYS];
        if (isfinite(lines->scale[i]))
            continue;
        lines->scale[i] = lines->magnitude[i] = 0.0f;
        first = key < first ? key : first;
    }
    return first;
}

/* For each block b of columns, makes the scale of the weights NaN in the rows that see key
 * first_bad[b]. */
static void spoil_rows(const struct panel *panel, const int first_bad[BLOCKS],
                       struct rounded_weights *w)
{
    for (int r = 0; r < PANEL_ROWS; r++)
        for (int b = 0; b < BLOCKS; b++)
            if (first_bad[b] < panel->visible[r]) {
                w->scale[BLOCKS * r + b] = NAN;
                w->inverse[BLOCKS * r + b] = 0.0f;
            }
}

/* Computes the scales and their inverses from the bits of the largest magnitudes, as
 * integer_scale_of does. */
static inline void set_scales(__m256i bits, struct rounded_weights *w)
{
    const __m256 largest = _mm256_castsi256_ps(bits);
    const __m256 is_finite = _mm256_cmp_ps(largest, _mm256_set1_ps(FLT_MAX), _CMP_LE_OQ);
    const __m256 counts = _mm256_cmp_ps(largest, _mm256_set1_ps(LEAST_LARGEST), _CMP_GE_OQ);
    const __m256 scale =
        _mm256_and_ps(_mm256_mul_ps(largest, _mm256_set1_ps(1.0f / MOST_INTEGER)), counts);
    const __m256 inverse = _mm256_div_ps(_mm256_set1_ps(MOST_INTEGER), largest);
    _mm256_store_ps(w->scale, _mm256_blendv_ps(_mm256_set1_ps(NAN), scale, is_finite));
    _mm256_store_ps(w->inverse, _mm256_and_ps(inverse, _mm256_and_ps(counts, is_finite)));
}

static inline __attribute__((always_inline)) void find_scales(const struct panel *panel,
                                                              const struct weight_lines *lines,
                                                              struct rounded_weights *w,
                                                              const int rows)
{
    __m256 largest[VECTOR];
    for (int i = 0; i < VECTOR; i++)
        largest[i] = _mm256_setzero_ps();
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < BLOCKS; b++) {
            const float *const p = lines->p[r], *const magnitude = lines->scales[b].magnitude;
            __m256i most[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
            for (int key = 0; key < whole_steps(panel); key += STEP_KEYS)
                for (int i = 0; i < 2; i++) {
                    const __m256 x = _mm256_mul_ps(_mm256_load_ps(p + key + i * VECTOR),
                                                   _mm256_load_ps(magnitude + key + i * VECTOR));
                    most[i] = _mm256_max_epu32(most[i], _mm256_castps_si256(x));
                }
            largest[BLOCKS * r + b] = _mm256_castsi256_ps(_mm256_max_epu32(most[0], most[1]));
        }
    transpose(largest);
    __m256i all = _mm256_setzero_si256();
    for (int i = 0; i < VECTOR; i++)
        all = _mm256_max_epu32(all, _mm256_castps_si256(largest[i]));
    set_scales(all, w);
}

static inline __m256i round_vector(const float *p, const float *scale, __m256 inverse)
{
    const __m256 x = _mm256_mul_ps(_mm256_load_ps(p), _mm256_load_ps(scale));
    return _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));
}

/* Rounds the weights of row r for block b. */
static inline __attribute__((always_inline)) void
round_row_of_block(const struct panel *panel, const struct weight_lines *lines, int b, int r,
                   struct rounded_weights *w)
{
    const __m256 inverse = _mm256_set1_ps(w->inverse[BLOCKS * r + b]);
    const float *const p = lines->p[r], *const scale = lines->scales[b].scale;
    for (int key = 0; key < panel->most; key += STEP_KEYS) {
        const __m256i low = round_vector(p + key, scale + key, inverse);
        const __m256i high = round_vector(p + key + VECTOR, scale + key + VECTOR, inverse);
        _mm256_store_si256((__m256i *)(void *)(w->n[b][r] + key), _mm256_packs_epi32(low, high));
    }
}

/* Rounds the weights for BLOCKS blocks of columns, from column c on. If only one block is left,
 * this block is repeated. */
static inline __attribute__((always_inline)) void
round_weights(const struct panel *panel, int64_t c, struct weight_lines *lines,
              struct rounded_weights *w, const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    int first_bad[BLOCKS] = {KEY_BLOCK, KEY_BLOCK};
    for (int b = 0; b < BLOCKS; b++) {
        const int64_t column = c + b * Q8_BLOCK < v->dim ? c + b * Q8_BLOCK : v->dim - Q8_BLOCK;
        if (!take_scales(panel, column, &lines->scales[b]))
            first_bad[b] = clean_scales(panel, &lines->scales[b]);
    }
    find_scales(panel, lines, w, rows);
    if (first_bad[0] < KEY_BLOCK || first_bad[1] < KEY_BLOCK)
        spoil_rows(panel, first_bad, w);
    for (int b = 0; b < BLOCKS; b++)
        for (int r = 0; r < rows; r++)
            round_row_of_block(panel, lines, b, r, w);
}

/* -------------------------------------------------------------------------------------- sums */

/* HALF_BLOCK columns of two keys: each 32 bits have a column of both keys. x[0] has columns 0 to 3
 * and 8 to 11, x[1] has the other columns. */
struct column_words {
    __m256i x[SUMS];
};

static inline __attribute__((always_inline)) struct column_words pair_keys(const char *const *row,
                                                                           int64_t at)
{
    const __m256i one = widen_bytes(load_half(row[0] + at));
    const __m256i two = widen_bytes(load_half(row[1] + at));
    struct column_words w = {{_mm256_unpacklo_epi16(one, two), _mm256_unpackhi_epi16(one, two)}};
    __asm__ volatile("" : "+x"(w.x[0]), "+x"(w.x[1])); /* widens here, and not later */
    return w;
}

/* Multiplies HALF_BLOCK columns of o of row r by rescale[r], and adds the sums of the row times
 * `scale`. The first of these columns is `first`. */
static inline __attribute__((always_inline)) void add_to_out(const struct panel *panel,
                                                             const struct weights *weights,
                                                             float scale, int r, int64_t first,
                                                             const __m256i sum[SUMS])
{
    const __m256 rescale = _mm256_set1_ps(weights->rescale[r]);
    float *const o = panel->block->st->out + (panel->first + r) * panel->block->v.dim + first;
    __m256 x[SUMS];
    for (int i = 0; i < SUMS; i++)
        x[i] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i]), _mm256_set1_ps(scale));
    const __m256 low = _mm256_permute2f128_ps(x[0], x[1], 0x20);
    const __m256 high = _mm256_permute2f128_ps(x[0], x[1], 0x31);
    _mm256_storeu_ps(o, _mm256_fmadd_ps(_mm256_loadu_ps(o), rescale, low));
    _mm256_storeu_ps(o + VECTOR, _mm256_fmadd_ps(_mm256_loadu_ps(o + VECTOR), rescale, high));
}

/* Adds the products of two keys. n has the integers of row 0 for these keys. */
static inline __attribute__((always_inline)) void
add_pair(const struct column_words *v, const int16_t *n, __m256i sum[][SUMS], const int rows)
{
    for (int r = 0; r < rows; r++) {
        const __m256i own = broadcast_pair(n + r * KEY_BLOCK);
        for (int i = 0; i < SUMS; i++)
            sum[r][i] = dot(sum[r][i], v->x[i], own, rows * SUMS);
    }
}

/* Computes HALF_BLOCK columns from column `first` on. The rounded weights for these columns are in
 * block b of w. */
static inline __attribute__((always_inline)) void weigh_half(const struct panel *panel,
                                                             const struct weights *weights,
                                                             const struct rounded_weights *w, int b,
                                                             int64_t first, struct ahead *ahead,
                                                             const int rows)
{
    const char *const *row = panel->block->v.row;
    const char *const *const end = row + (panel->most + FOUR - 1) / FOUR * FOUR;
    const int64_t at = integers_in_row(panel->block->v.type, first);
    const int16_t *n = w->n[b][0];
    __m256i sum[PANEL_ROWS][SUMS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < SUMS; i++)
            sum[r][i] = _mm256_setzero_si256();
    begin_tile(ahead);
    struct column_words v = pair_keys(row, at);
    for (; row < end; row += FOUR, n += FOUR) {
        prefetch_ahead(ahead, TYPE_Q8_0);
        const struct column_words second = pair_keys(row + 2, at);
        add_pair(&v, n, sum, rows);
        v = pair_keys(row + FOUR < end ? row + FOUR : row, at);
        add_pair(&second, n + 2, sum, rows);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        if (r < panel->rows)
            add_to_out(panel, weights, w->scale[BLOCKS * r + b], r, first, sum[r]);
}

static inline __attribute__((always_inline)) void
weigh_rows(const struct panel *panel, const struct weights *weights, const int rows)
{
    const struct decode_block *const block = panel->block;
    const struct key_rows *const v = &block->v;
    struct ahead ahead = ask_for(block->next_k, panel->far ? block->next_keys : 0,
                                 bytes_of(block->k.type, block->k.dim), v->dim / HALF_BLOCK,
                                 (panel->most + FOUR - 1) / FOUR);
    struct weight_lines lines;
    struct rounded_weights w;
    take_weights(panel, weights, &lines);
    for (int64_t c = 0; c < v->dim; c += BLOCKS * Q8_BLOCK) {
        round_weights(panel, c, &lines, &w, rows);
        for (int b = 0; b < BLOCKS && c + b * Q8_BLOCK < v->dim; b++) {
            weigh_half(panel, weights, &w, b, c + b * Q8_BLOCK, &ahead, rows);
            weigh_half(panel, weights, &w, b, c + b * Q8_BLOCK + HALF_BLOCK, &ahead, rows);
        }
    }
}

static void weigh(const struct panel *panel, const struct weights *weights)
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

static void decode(const struct decode_block *block, int rows, float scale_log2)
{
    static const struct decode_parts parts = {score, weigh};
    require_built_integers();
    attnkit_avx2_decode_by(&parts, block, rows, scale_log2);
}

#endif
