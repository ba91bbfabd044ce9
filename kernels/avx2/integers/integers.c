/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of decode that multiply integers (step 16 of ../../README.md), for AVX2.
 *
 * n[r] are the 16-bit integers of row r: of q for scores, of the weights for weighted V.
 * Scores: s[r][key] = chain over the blocks of d of fma(sum of n[r][d] * k[key][d], scale of the
 * block of q * scale of the block of K, s[r][key]). Lanes are keys. A unit of 4 bytes of 8 keys
 * takes 3 instructions that make pairs of integers, and 2 vpmaddwd and 2 additions for each row.
 * Weighted V: o[r][c] = fma(o[r][c], rescale[r], scale of the weights * sum over keys of n[r][key]
 * * v[key][c]). Lanes are columns. A tile is half a block of columns. The bytes of 4 keys are
 * interleaved, which takes 4 shuffles and 6 other instructions for 16 columns.
 *
 * Registers: 8 sums, 4 pairs, 2 broadcasts and a product take 15 of 16 ymm. Units of K and scores
 * stay in memory.
 */
#include "kernels/avx2/steps.h"
#include "kernels/integers.h"

enum {
    FOUR = 4,                  /* keys that are interleaved */
    SUMS = 2,                  /* vectors of sums of a row, in scores and in weighted V */
    HALF_BLOCK = Q8_BLOCK / 2, /* columns of a tile of weighted V */
};

/* Returns the bytes 0 and 2 of each 32 bits, plus EVEN_OFFSET, as integers of 16 bits. */
static inline __m256i even_bytes(__m256i bytes)
{
    return _mm256_xor_si256(_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)),
                            _mm256_set1_epi16(EVEN_OFFSET));
}

/* Returns the bytes 1 and 3 of each 32 bits as integers of 16 bits. */
static inline __m256i odd_bytes(__m256i bytes)
{
    return _mm256_srai_epi16(bytes, 8);
}

/* Adds the sum of the two products of each 32 bits. */
static inline __m256i dot(__m256i sum, __m256i a, __m256i b)
{
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    __asm__("" : "+x"(sum)); /* otherwise gcc adds products first, and spills them */
    return sum;
}

static inline __m256i broadcast_pair(const int16_t *pair)
{
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return _mm256_set1_epi32(bits);
}

/* Adds the products of the four integers of each row at `q` and 4 bytes of each lane. */
static inline __attribute__((always_inline)) void add_unit(const int16_t *const q[PANEL_ROWS],
                                                           const __m256i unit[SUMS],
                                                           __m256i sum[][SUMS], const int vectors,
                                                           const int rows)
{
    __m256i even[SUMS], odd[SUMS];
    for (int j = 0; j < vectors; j++) {
        even[j] = even_bytes(unit[j]);
        odd[j] = odd_bytes(unit[j]);
    }
    for (int r = 0; r < rows; r++) {
        const __m256i first = broadcast_pair(q[r]), second = broadcast_pair(q[r] + 2);
        for (int j = 0; j < vectors; j++)
            sum[r][j] = dot(dot(sum[r][j], even[j], first), odd[j], second);
    }
}

/* Returns the scales of VECTOR rows for the block at element d. */
static inline __attribute__((always_inline)) __m256
scales_of_block(const struct key_rows *rows, const char *const *key, int64_t d)
{
    return is_i8(rows->type) ? scales_at(TYPE_I8, rows, key, d)
                             : scales_at(TYPE_Q8_0, rows, key, d);
}

/* ------------------------------------------------------------------------------------ scores */

/* Loads and transposes STEP bytes of each key. */
static inline __attribute__((always_inline)) void take_units(const char *const *key, int64_t at,
                                                             struct units *units, const int vectors)
{
    for (int j = 0; j < vectors; j++) {
        __m256 unit[UNITS];
        load_units(TYPE_I8, key + j * VECTOR, at, unit);
        for (int i = 0; i < UNITS; i++)
            units->unit[i][j] = _mm256_castps_si256(unit[i]);
    }
    __asm__("" : "+m"(*units));
}

/* Adds the products of the block at element d to the scores. */
static inline __attribute__((always_inline)) void add_block(const struct panel *panel,
                                                            const char *const *key, int64_t d,
                                                            __m256 s[][SUMS], struct ahead *ahead,
                                                            const int vectors, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    __m256i sum[PANEL_ROWS][SUMS];
    const int16_t *q[PANEL_ROWS];
    for (int r = 0; r < rows; r++) {
        q[r] = integers_of(panel->q[r], k->dim) + d;
        for (int j = 0; j < vectors; j++)
            sum[r][j] = _mm256_set1_epi32(beginnings_of(panel->q[r], k->dim)[d / Q8_BLOCK]);
    }
    for (int64_t at = integers_in_row(k->type, d), end = at + Q8_BLOCK; at < end; at += STEP) {
        struct units units;
        prefetch_ahead(ahead, TYPE_Q8_0);
        take_units(key, at, &units, vectors);
        for (int i = 0; i < UNITS; i++) {
            add_unit(q, units.unit[i], sum, vectors, rows);
            for (int r = 0; r < rows; r++)
                q[r] += 4;
        }
    }
    for (int j = 0; j < vectors; j++) {
        const __m256 scale = scales_of_block(k, key + j * VECTOR, d);
        for (int r = 0; r < rows; r++) {
            const __m256 both = _mm256_mul_ps(_mm256_set1_ps(panel->q[r][d / Q8_BLOCK]), scale);
            s[r][j] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][j]), both, s[r][j]);
        }
    }
}

static inline __attribute__((always_inline)) void score_tile(const struct panel *panel, int first,
                                                             struct scores *scores,
                                                             struct ahead *ahead, const int vectors,
                                                             const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    __m256 s[PANEL_ROWS][SUMS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            s[r][j] = _mm256_setzero_ps();
    for (int64_t d = 0; d < k->dim; d += Q8_BLOCK)
        add_block(panel, k->row + first, d, s, ahead, vectors, rows);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            _mm256_store_ps(scores->s[r] + first + j * VECTOR, s[r][j]);
}

static inline __attribute__((always_inline)) void score_rows(const struct panel *panel,
                                                             struct scores *scores, const int rows)
{
    const int keys = SUMS * VECTOR; /* keys of a tile */
    struct ahead ahead =
        v_ahead(panel, (panel->most + keys - 1) / keys, panel->block->k.dim / STEP);
    int key = 0;
    for (; key + VECTOR < panel->most; key += keys)
        score_tile(panel, key, scores, &ahead, SUMS, rows);
    for (; key < panel->most; key += VECTOR)
        score_tile(panel, key, scores, &ahead, 1, rows);
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

enum { BLOCKS = 2 }; /* blocks of columns of V that are rounded together */
_Static_assert(PANEL_ROWS *BLOCKS == VECTOR, "the scales of all rows and blocks are one vector");

/* The weights of a panel and the scales of V, in lines of keys. */
struct weight_lines {
    _Alignas(32) float p[PANEL_ROWS][KEY_BLOCK];
    _Alignas(32) float scales[BLOCKS][KEY_BLOCK];
    _Alignas(32) float seen[PANEL_ROWS][KEY_BLOCK]; /* all bits set if the row sees the key */
};

/* Rounded weights: for each block and row the integers of each four keys, in the order of keys 0,
 * 2, 1 and 3. The scale of row r and block b is at BLOCKS * r + b. The sums of a block and row
 * begin with `beginning`, which takes back the EVEN_OFFSET that even_bytes adds. */
struct rounded_weights {
    _Alignas(32) int16_t n[BLOCKS][PANEL_ROWS][KEY_BLOCK / FOUR][FOUR];
    _Alignas(32) float scale[VECTOR], inverse[VECTOR];
    int32_t beginning[BLOCKS][PANEL_ROWS];
};

/* Returns panel->most rounded up to whole pairs of vectors. */
static inline int whole_pairs(const struct panel *panel)
{
    return (panel->most + 2 * VECTOR - 1) / (2 * VECTOR) * (2 * VECTOR);
}

/* Sets lines->p to the transposed weights, and lines->seen. */
static inline __attribute__((always_inline)) void
take_weights(const struct panel *panel, const struct weights *weights, struct weight_lines *lines)
{
    for (int key = 0; key < whole_pairs(panel); key += VECTOR) {
        __m256 x[PANEL_ROWS];
        for (int i = 0; i < PANEL_ROWS; i++)
            x[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_load_ps(weights->p[key + i])),
                                        _mm_load_ps(weights->p[key + i + 4]), 1);
        transpose_4(x);
        for (int r = 0; r < PANEL_ROWS; r++) {
            _mm256_store_ps(lines->p[r] + key, x[r]);
            _mm256_store_ps(lines->seen[r] + key,
                            _mm256_castsi256_ps(first_mask(panel->visible[r] - key)));
        }
    }
}

/* Returns the weights of VECTOR keys of a row times the scales of a block of V, and 0 for keys that
 * the row does not see. */
static inline __m256 scaled_weights(const struct weight_lines *lines, int r, int b, int key)
{
    const __m256 product =
        _mm256_mul_ps(_mm256_load_ps(lines->p[r] + key), _mm256_load_ps(lines->scales[b] + key));
    return _mm256_and_ps(product, _mm256_load_ps(lines->seen[r] + key));
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
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 largest[VECTOR];
    for (int i = 0; i < VECTOR; i++)
        largest[i] = _mm256_setzero_ps();
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < BLOCKS; b++) {
            __m256i most = _mm256_setzero_si256();
            for (int key = 0; key < panel->most; key += VECTOR) {
                const __m256i bits = _mm256_castps_si256(scaled_weights(lines, r, b, key));
                most = _mm256_max_epu32(most, _mm256_and_si256(bits, magnitude));
            }
            largest[BLOCKS * r + b] = _mm256_castsi256_ps(most);
        }
    transpose(largest);
    __m256i all = _mm256_setzero_si256();
    for (int i = 0; i < VECTOR; i++)
        all = _mm256_max_epu32(all, _mm256_castps_si256(largest[i]));
    set_scales(all, w);
}

static inline __attribute__((always_inline)) __m256i
round_vector(const struct weight_lines *lines, int r, int b, int key, __m256 inverse)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(scaled_weights(lines, r, b, key), inverse));
}

/* Rounds the weights of row r for block b. */
static inline __attribute__((always_inline)) void
round_row_of_block(const struct panel *panel, const struct weight_lines *lines, int b, int r,
                   struct rounded_weights *w)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    const __m256 inverse = _mm256_set1_ps(w->inverse[BLOCKS * r + b]);
    __m256i sum = _mm256_setzero_si256();
    for (int key = 0; key < panel->most; key += 2 * VECTOR) {
        const __m256i low = round_vector(lines, r, b, key, inverse);
        const __m256i high = round_vector(lines, r, b, key + VECTOR, inverse);
        const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
        const __m256i ordered = _mm256_shuffle_epi8(both, order);
        sum = dot(sum, ordered, _mm256_set1_epi16(1));
        _mm256_store_si256((__m256i *)w->n[b][r][key / FOUR], ordered);
    }
    /* Lanes 0 and 2 of each 128 bits have the sums of keys 0 and 2 of each four keys. */
    const __m128i half =
        _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    w->beginning[b][r] = -EVEN_OFFSET * (_mm_cvtsi128_si32(half) + _mm_extract_epi32(half, 2));
}

/* Rounds the weights for the blocks of columns from column c on. If fewer than BLOCKS blocks are
 * left, the last block is repeated. */
static inline __attribute__((always_inline)) void
round_weights(const struct panel *panel, int64_t c, struct weight_lines *lines,
              struct rounded_weights *w, const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    for (int b = 0; b < BLOCKS; b++) {
        const int64_t column = c + b * Q8_BLOCK < v->dim ? c + b * Q8_BLOCK : v->dim - Q8_BLOCK;
        for (int key = 0; key < whole_pairs(panel); key += VECTOR)
            _mm256_store_ps(lines->scales[b] + key, scales_of_block(v, v->row + key, column));
    }
    find_scales(panel, lines, w, rows);
    for (int b = 0; b < BLOCKS; b++)
        for (int r = 0; r < rows; r++)
            round_row_of_block(panel, lines, b, r, w);
}

/* -------------------------------------------------------------------------------------- sums */

/* For half of the columns of a block, interleaves the bytes of four keys: 32 bits of u[i] are one
 * column of the four keys. u[i] has the columns 4 i to 4 i + 3 and 16 + 4 i to 16 + 4 i + 3,
 * counted from column 8 of the block if `upper`, else from column 0. */
static inline __attribute__((always_inline)) void
interleave_keys(const char *const *row, int64_t at, const bool upper, __m256i u[SUMS])
{
    __m256i x[FOUR];
    for (int i = 0; i < FOUR; i++)
        x[i] = _mm256_loadu_si256((const __m256i *)(row[i] + at));
    const __m256i keys_01 =
        upper ? _mm256_unpackhi_epi8(x[0], x[1]) : _mm256_unpacklo_epi8(x[0], x[1]);
    const __m256i keys_23 =
        upper ? _mm256_unpackhi_epi8(x[2], x[3]) : _mm256_unpacklo_epi8(x[2], x[3]);
    u[0] = _mm256_unpacklo_epi16(keys_01, keys_23);
    u[1] = _mm256_unpackhi_epi16(keys_01, keys_23);
}

/* Adds the sums of row r to o, from column `first` on. */
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
    float *const after = o + HALF_BLOCK;
    _mm256_storeu_ps(after, _mm256_fmadd_ps(_mm256_loadu_ps(after), rescale, high));
}

/* Computes the lower or upper half of each HALF_BLOCK columns of a block. The block begins at
 * column `first`, and is block b of w. */
static inline __attribute__((always_inline)) void weigh_half(const struct panel *panel,
                                                             const struct weights *weights,
                                                             const struct rounded_weights *w, int b,
                                                             int64_t first, struct ahead *ahead,
                                                             const bool upper, const int rows)
{
    const char *const *const row = panel->block->v.row;
    const int64_t at = integers_in_row(panel->block->v.type, first);
    __m256i sum[PANEL_ROWS][SUMS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < SUMS; i++)
            sum[r][i] = _mm256_set1_epi32(w->beginning[b][r]);
    begin_tile(ahead);
    for (int key = 0; key < panel->most; key += FOUR) {
        const int16_t *n[PANEL_ROWS];
        __m256i u[SUMS];
        for (int r = 0; r < rows; r++)
            n[r] = w->n[b][r][key / FOUR];
        prefetch_ahead(ahead, TYPE_Q8_0);
        interleave_keys(row + key, at, upper, u);
        add_unit(n, u, sum, SUMS, rows);
    }
    const int64_t column = first + (upper ? HALF_BLOCK / 2 : 0);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        if (r < panel->rows)
            add_to_out(panel, weights, w->scale[BLOCKS * r + b], r, column, sum[r]);
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
            weigh_half(panel, weights, &w, b, c + b * Q8_BLOCK, &ahead, false, rows);
            weigh_half(panel, weights, &w, b, c + b * Q8_BLOCK, &ahead, true, rows);
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

extern const struct integer_panel_kernels attnkit_avx2_integer_panel;
const struct integer_kernels attnkit_avx2_integers = {
    .round_row = round_row,
    .decode = decode,
    .panel = &attnkit_avx2_integer_panel,
};
