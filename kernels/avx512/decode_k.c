/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode: s[r][key] = chain over d of q[r][d] * k[key][d]. K may have any type of
 * struct key_rows, and is widened in registers. decode.c of this folder calls decode_k.
 *
 * Lanes are keys, so that a score stays one chain over d. K is transposed in registers: a step
 * takes 32 bytes of each key of a tile. In a step, 16 keys become 8 vectors of 32-bit units, with
 * 1, 2 or 4 elements in a unit. This transposition takes 8 loads, 8 inserts from memory, and 24
 * shuffles. In addition, an element of 16 keys takes an FMA for each row, and the instructions that
 * widen the element. The FMA broadcasts q, because a separate broadcast took a tenth of the time. A
 * tile is 2 vectors of keys, because the sums of one vector are too few to keep the FMA ports busy.
 * If one vector is left at the end, it is a tile.
 *
 * Shuffles run only on one of the two ports that execute FMAs. If all shuffles of a step came
 * before its FMAs, the other port would be idle during the shuffles. Therefore the shuffles of the
 * next step are placed among the FMAs of a step, and the results of the shuffles are stored in
 * memory. binary32 is the exception (is_transposed_before). Registers: 8 vectors of the next step,
 * 8 sums, 2 scales and 2 elements take 20 of 32 zmm. Constants take the other registers. If
 * gains_by_lines returns true, whole cache lines of a 16-bit type are transposed, half of the keys
 * at a time. These transposes take 8 more registers. add_lines transposes whole cache lines of
 * binary32 of 16 keys, which takes 16 loads and 64 shuffles.
 *
 * For few rows of binary32, memory limits the speed. For types of 8 or 16 bits, shuffles and FMA
 * together limit the speed. Prefetches are spread evenly and go through one row after the other.
 * Prefetches in bursts, or of one cache line of each row in turn, would delay the loads. add_lines
 * loads in bursts of 16 lines, and prefetches a line with each load.
 *
 * A byte b of TYPE_Q8_0 becomes b * scale without a conversion: b + 128 is put into the mantissa of
 * 2^16 or 2^8, which makes x = b + c with c = 2^16 + 128 or 2^8 + 128. Then x * scale - c * scale
 * is one FMA. Nothing is rounded: b * scale takes 8 + 11 bits, c * scale takes 10 + 11 bits, and
 * both are normal or 0. The result equals the product b * scale, except perhaps in the sign of a
 * zero. In a chain that begins at +0, the sign of a zero element can only change the sign of a sum
 * that is zero. The sign of a zero sum does not reach a result (steps 3 and 11 of
 * kernels/README.md). A NaN scale gives NaN with and without the conversion. A byte of TYPE_I8 is
 * converted as the uppermost byte of 32 bits, and the scale is divided by 2^24. An infinite scale
 * of TYPE_Q8_0 would make NaN, and a very small scale of TYPE_I8 cannot be divided exactly. A tile
 * that has one of these scales is recomputed: each byte is converted and multiplied by its scale.
 */
#include "kernels/avx512/steps.h"

#define UPPER_BYTE 0x1p24f /* the value of 1 in the upper byte of 32 bits */

/* --------------------------------------------------------------------------------- scales */

/* Sets the scales to the scales of the TYPE_I8 group at element d, divided by UPPER_BYTE. */
static inline __attribute__((always_inline)) void take_group(const struct key_rows *k,
                                                             const char *const *key, int64_t d,
                                                             struct scales *scales,
                                                             const int vectors)
{
    const int64_t at = d / k->scale_group;
    const float *const *scale = k->scales + (key - k->row);
    for (int j = 0; j < vectors; j++, scale += VECTOR) {
        const __m512 given = scales_at(scale, at);
        scales->of[j] = _mm512_mul_ps(given, _mm512_set1_ps(1.0f / UPPER_BYTE));
        const __m512 back = _mm512_mul_ps(scales->of[j], _mm512_set1_ps(UPPER_BYTE));
        scales->exact &= _mm512_cmp_ps_mask(back, given, _CMP_NEQ_OQ) == 0;
    }
    scales->next = d + k->scale_group;
}

/* ------------------------------------------------------------------------------- widening */

/* Returns b + 128 + 2^16 for the byte b that begins at bit 7 of `bits`: keeps only this byte, flips
 * its sign bit, and sets the exponent of 2^16. */
static inline __m512 add_2_16(__m512i bits)
{
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        bits, _mm512_set1_epi32(0xff << 7), _mm512_set1_epi32(0x47800000 ^ 0x80 << 7), 0x6a));
}

/* Returns b + 128 + 2^8 for the byte b that begins at bit 15 of `bits`. */
static inline __m512 add_2_8(__m512i bits)
{
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        bits, _mm512_set1_epi32(0xff << 15), _mm512_set1_epi32(0x43800000 ^ 0x80 << 15), 0x6a));
}

/* Returns byte i of a unit of TYPE_Q8_0 times the scale. */
static inline __attribute__((always_inline)) __m512 widen_block(__m512i bits, const int i,
                                                                __m512 scale)
{
    const __m512i moved = i < 2 ? _mm512_slli_epi32(bits, 7) : _mm512_srli_epi32(bits, 9);
    if (i % 2 == 0)
        return _mm512_fmsub_ps(add_2_16(moved), scale,
                               _mm512_mul_ps(scale, _mm512_set1_ps(0x1p16f + 128)));
    return _mm512_fmsub_ps(add_2_8(moved), scale,
                           _mm512_mul_ps(scale, _mm512_set1_ps(0x1p8f + 128)));
}

/* Returns byte i of a unit of TYPE_I8 times UPPER_BYTE * scale; the caller has divided the scale by
 * UPPER_BYTE. The instructions that move the four bytes run on different ports. */
static inline __attribute__((always_inline)) __m512 widen_byte(__m512i bits, const int i,
                                                               __m512 scale)
{
    const int place = 0x00808080 | i << 24, next = 4 << 24; /* index 0x80 gives a byte of 0 */
    const __m512i moved =
        i == 0   ? _mm512_slli_epi32(bits, 24)
        : i == 3 ? _mm512_and_si512(bits, _mm512_set1_epi32((int)0xff000000))
                 : _mm512_shuffle_epi8(bits, _mm512_set4_epi32(place + 3 * next, place + 2 * next,
                                                               place + next, place));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(moved), scale);
}

/* Returns element e of unit i, of vector j of the keys. */
static inline __attribute__((always_inline)) __m512 widen_element(const enum type type,
                                                                  const struct step *step,
                                                                  const int i, const int e,
                                                                  const int j, __m512 scale)
{
    const __m512i bits = step->unit[i][j];
    if (type == TYPE_F32)
        return _mm512_castsi512_ps(bits);
    if (type == TYPE_BF16)
        return _mm512_castsi512_ps(
            e == 0 ? _mm512_slli_epi32(bits, 16)
                   : _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
    if (type == TYPE_F16) {
        const __m256i *const halves = (const __m256i *)&step->unit[i][j];
        return _mm512_cvtph_ps(_mm256_load_si256(halves + e));
    }
    return type == TYPE_Q8_0 ? widen_block(bits, e, scale) : widen_byte(bits, e, scale);
}

/* ------------------------------------------------------------------------------ prefetches */

/* The rows that are prefetched into L1. IN_LINES and IN_TURN prefetch none. */
enum hints {
    NOTHING_NEAR,
    K_NEAR,
    K_AND_V_NEAR,
    IN_LINES, /* TYPE_F32, read by add_lines */
    IN_TURN,  /* in a turn; TYPE_F32 is read by add_lines, which calls prefetch_line */
};

/* Returns whether to prefetch K into L1. A cache line of binary32 takes half the work of a line of
 * a 16-bit type, so the next line of binary32 is needed sooner. With prefetches into L1, 16-bit
 * types took up to 5 % longer if K was in a cache of the CPU already. So rows of 16-bit types are
 * prefetched into L1 only if K and V are larger than L2. Rows of TYPE_Q8_0 always gain, rows of
 * TYPE_I8 never. */
static inline bool gains_by_near(const enum type type, const struct panel *panel)
{
    const bool half = type == TYPE_F16 || type == TYPE_BF16;
    return type == TYPE_Q8_0 || (panel->far && (type == TYPE_F32 || (half && panel->block->large)));
}

/* Prefetches cache lines from L2 to L1, because loads from L2 would wait behind cache lines that
 * come from memory. A cache line has two steps, so each step prefetches the cache lines of every
 * second key. */
static inline __attribute__((always_inline)) void bring_near(struct step_place place, const int odd,
                                                             const int vectors)
{
    for (int i = odd; i < vectors * VECTOR; i += 2)
        _mm_prefetch(place.key[i] + place.at, _MM_HINT_T0);
}

/* Returns how often a step calls prefetch_ahead: once in 4 elements, or once in 8 elements of
 * binary32, because these take less work. */
static inline int asks_of_step(const enum type type)
{
    return type == TYPE_F32 ? 1 : elements_of_step(type) / 4;
}

/* ---------------------------------------------------------------------------------- tiles */

/* Returns whether a step is transposed during the FMAs of the step before it. binary32 is the
 * exception: with 1 or 2 rows, binary32 has more shuffles than FMAs, and its shuffles wait longer
 * for memory than the shuffles of smaller types. */
static inline bool is_transposed_before(const enum type type)
{
    return type != TYPE_F32;
}

/* Adds the products of a step, the elements from d on. If is_transposed_before, the next step is
 * transposed meanwhile. After the last step of a tile, the next step is the first step of the next
 * tile. */
static inline __attribute__((always_inline)) void
add_step(const enum type type, const struct scored_tile *tile, int64_t d, struct scales *scales,
         __m512 s[][MAX_TILE], struct ahead *ahead, const enum hints hints, const int vectors,
         const int rows)
{
    const int in_unit = elements_of_unit(type);
    const struct panel *const panel = tile->panel;
    const struct key_rows *const k = &panel->block->k;
    const struct step_place place = place_after(type, k, tile->key, tile->next, d, 1);
    const struct step *now = &tile->steps->step[tile->steps->now];
    struct step *next = &tile->steps->step[1 - tile->steps->now];
    /* For TYPE_F16 the compiler would keep an address for each half of a unit, most of them in
     * vector registers. Moving an address back takes an FMA port. The empty statement prevents
     * this. */
    if (type == TYPE_F16)
        __asm__("" : "+r"(now), "+r"(next));
    __m512i x[UNITS];
    struct step own;
    if (!is_transposed_before(type)) {
        struct step_place here = place_after(type, k, tile->key, tile->key, d, 0);
        __asm__("" : "+r"(here.key)); /* as above, for the address of each key */
        transpose_step(type, here, &own, vectors);
        now = &own;
    }
    if (type == TYPE_Q8_0)
        widen_scales(&tile->steps->halves[tile->steps->now], scales, vectors);
#pragma GCC unroll 8
    for (int i = 0; i < UNITS; i++) {
        if (i % (UNITS / asks_of_step(type)) == 0)
            prefetch_ahead(ahead, hints == K_AND_V_NEAR);
        if (type == TYPE_I8 && i % 4 == 0 && d + 4 * i == scales->next)
            take_group(k, tile->key, d + 4 * i, scales, vectors);
        if (is_transposed_before(type) && i / PARTS < vectors) {
            transpose_part(type, i % PARTS, place, x, next, i / PARTS);
            if (type == TYPE_Q8_0)
                collect_scales(i % PARTS, place, &tile->steps->halves[1 - tile->steps->now],
                               i / PARTS);
        }
        for (int e = 0; e < in_unit; e++) {
            __m512 element[MAX_TILE];
            for (int j = 0; j < vectors; j++)
                element[j] = widen_element(type, now, i, e, j, scales->of[j]);
            for (int r = 0; r < rows; r++) {
                const float *const q = panel->q[r] + d + i * in_unit + e;
                for (int j = 0; j < vectors; j++)
                    s[r][j] = multiply_add_one(q, element[j], s[r][j]);
            }
        }
    }
}

/* In a turn, prefetches the next cache line if one is left. This function takes fewer instructions
 * than prefetch_ahead: calls of 32 heads and 8 KV heads take 0.93 of the time (Zen 4). It is always
 * inlined, as prefetch_ahead is. */
static inline __attribute__((always_inline)) void prefetch_line(struct ahead *ahead)
{
    if (__builtin_expect(ahead->at >= ahead->row_end, false)) {
        if (ahead->row == ahead->end)
            return;
        ahead->at = *ahead->row++;
        ahead->row_end = ahead->at + ahead->bytes;
    }
    _mm_prefetch(ahead->at, _MM_HINT_T1);
    ahead->at += LINE * sizeof(float);
}

/* Loads a cache line of each of 16 keys. In a turn, a line is prefetched with each load, because a
 * head has about as many lines to prefetch as to load. */
static inline __attribute__((always_inline)) void load_lines(const char *const *key, int64_t at,
                                                             __m512i x[VECTOR], struct ahead *ahead,
                                                             const enum hints hints)
{
    __asm__("" : "+r"(key)); /* as in add_step */
#pragma GCC unroll 16
    for (int i = 0; i < VECTOR; i++) {
        x[i] = _mm512_loadu_si512(key[i] + at);
        if (hints == IN_TURN)
            prefetch_line(ahead);
    }
}

/* Transposes lines of 16 keys: column[i] gets element i of all keys. The columns are stored in
 * memory, because the registers have to hold the next lines. The value of x is lost. */
static inline __attribute__((always_inline)) void store_columns(__m512i x[VECTOR],
                                                                __m512i column[VECTOR])
{
#pragma GCC unroll 2
    for (int i = 0; i < VECTOR; i += UNITS) {
        interleave_pairs(32, x + i, 1);
        interleave_pairs(64, x + i, 2);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const int at = i / 2 + i % 2 * 2; /* the two bits of i in reverse order */
        const __m512i even_low = _mm512_shuffle_i64x2(x[i], x[i + 4], 0x88);
        const __m512i odd_low = _mm512_shuffle_i64x2(x[i], x[i + 4], 0xdd);
        const __m512i even_high = _mm512_shuffle_i64x2(x[i + 8], x[i + 12], 0x88);
        const __m512i odd_high = _mm512_shuffle_i64x2(x[i + 8], x[i + 12], 0xdd);
        column[at] = _mm512_shuffle_i64x2(even_low, even_high, 0x88);
        column[at + 4] = _mm512_shuffle_i64x2(odd_low, odd_high, 0x88);
        column[at + 8] = _mm512_shuffle_i64x2(even_low, even_high, 0xdd);
        column[at + 12] = _mm512_shuffle_i64x2(odd_low, odd_high, 0xdd);
    }
}

/* Adds the products of a line of vector j of the keys. `column` has the elements of the line, and q
 * points to the queries' elements. */
static inline __attribute__((always_inline)) void
add_columns(const __m512i *column, const float *const *q, __m512 s[][MAX_TILE], struct ahead *ahead,
            const enum hints hints, const int j, const int rows)
{
    __asm__("" : "+r"(column)::"memory"); /* so that gcc does not keep columns in registers */
#pragma GCC unroll 16
    for (int i = 0; i < VECTOR; i++) {
        if (hints != IN_TURN && i == 0)
            prefetch_ahead(ahead, false);
        const __m512 element = _mm512_castsi512_ps(column[i]);
        for (int r = 0; r < rows; r++)
            s[r][j] = multiply_add_one(q[r] + i, element, s[r][j]);
    }
}

/* Adds the products of all whole cache lines of rows of TYPE_F32, and reads each line only once.
 * Returns the number of elements of a row that are done. The next lines are loaded before the FMAs
 * of a line, so that the FMAs run while L2 answers. L1 has no lines of rows that share its sets.
 * The two vectors of keys take turns. Registers: 16 lines, 8 sums, an element, and temporary
 * registers of the transposition. After the last line of a tile, the first lines of the next tile
 * are loaded, but not used, because a branch would cost more. */
static inline __attribute__((always_inline)) int64_t
add_lines(const struct scored_tile *tile, __m512 s[][MAX_TILE], struct ahead *ahead,
          const enum hints hints, const int vectors, const int rows)
{
    const struct panel *const panel = tile->panel;
    const int64_t end = panel->block->k.dim / VECTOR * VECTOR;
    __m512i x[VECTOR], column[VECTOR];
    if (end == 0)
        return 0;
    load_lines(tile->key, 0, x, ahead, hints);
    for (int64_t d = 0; d < end; d += VECTOR) {
        const float *q[PANEL_ROWS];
        for (int r = 0; r < rows; r++) {
            q[r] = panel->q[r] + d;
            __asm__("" : "+r"(q[r])); /* as in add_step */
        }
        const bool last = d + VECTOR == end;
        const char *const *const next = last ? tile->next : tile->key;
        const int64_t then = last ? 0 : bytes_of(TYPE_F32, d + VECTOR);
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            store_columns(x, column);
            if (j + 1 < vectors)
                load_lines(tile->key + (j + 1) * VECTOR, bytes_of(TYPE_F32, d), x, ahead, hints);
            else
                load_lines(next, then, x, ahead, hints);
            add_columns(column, q, s, ahead, hints, j, rows);
        }
    }
    return end;
}

static __m512 load_any(const struct key_rows *k, const char *const *row, int64_t d, int64_t n)
{
    switch (k->type) {
    case TYPE_F32:
        return load_as_f32(TYPE_F32, *row, d, n);
    case TYPE_F16:
        return load_as_f32(TYPE_F16, *row, d, n);
    case TYPE_BF16:
        return load_as_f32(TYPE_BF16, *row, d, n);
    case TYPE_Q8_0: {
        const int64_t in_block = d % Q8_BLOCK, block = bytes_of(TYPE_Q8_0, d - in_block);
        const __m512 scale = _mm512_cvtph_ps(_mm256_set1_epi16(f16_at(row, block)));
        return _mm512_mul_ps(load_as_f32(TYPE_I8, *row + block + 2, in_block, n), scale);
    }
    default:
        return _mm512_mul_ps(load_as_f32(TYPE_I8, *row, d, n),
                             _mm512_set1_ps(scales_of_row(k, row)[d / k->scale_group]));
    }
}

/* Continues the chains of the tile's scores from element d on. If the whole tile is recomputed, d
 * is 0. Else element d is less than STEP bytes from the end of the row. */
static __attribute__((noinline)) void add_last_dims(const struct panel *panel, int first, int keys,
                                                    int64_t d, struct scores *scores)
{
    const struct key_rows *const k = &panel->block->k;
    for (; d < k->dim; d += VECTOR) {
        const int64_t left = k->dim - d < VECTOR ? k->dim - d : VECTOR;
        for (int key = first; key < first + keys; key += VECTOR) {
            __m512 k_t[VECTOR];
            for (int i = 0; i < VECTOR; i++)
                k_t[i] = load_any(k, k->row + key + i, d, left);
            transpose(k_t);
            for (int r = 0; r < computed_rows(panel); r++) {
                __m512 s = _mm512_load_ps(scores->s[r] + key);
                for (int i = 0; i < left; i++)
                    s = _mm512_fmadd_ps(_mm512_set1_ps(panel->q[r][d + i]), k_t[i], s);
                _mm512_store_ps(scores->s[r] + key, s);
            }
        }
    }
}

/* Computes the scores of a tile of `vectors` vectors of keys. If is_transposed_before, the first
 * step of the tile must be transposed before the call, and the call transposes the first step of
 * the next tile. */
static inline __attribute__((always_inline)) void
score_tile(const enum type type, const struct scored_tile *tile, struct scores *scores,
           struct ahead *ahead, const enum hints hints, const int vectors, const int rows)
{
    const struct key_rows *const k = &tile->panel->block->k;
    const int step = elements_of_step(type);
    struct scales scales;
    __m512 s[PANEL_ROWS][MAX_TILE];
    for (int j = 0; j < vectors; j++)
        scales.of[j] = _mm512_setzero_ps();
    scales.next = 0;
    scales.exact = true;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            s[r][j] = _mm512_setzero_ps();
    int64_t d = 0;
    if (type == TYPE_F32 && (hints == IN_LINES || hints == IN_TURN))
        d = add_lines(tile, s, ahead, hints, vectors, rows);
    for (; d + step <= k->dim; d += step) {
        if (hints == K_NEAR || hints == K_AND_V_NEAR)
            bring_near(place_after(type, k, tile->key, tile->next, d, 2), (int)(d / step % 2),
                       vectors);
        add_step(type, tile, d, &scales, s, ahead, hints, vectors, rows);
        tile->steps->now = 1 - tile->steps->now;
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            _mm512_store_ps(scores->s[r] + tile->first + j * VECTOR,
                            scales.exact ? s[r][j] : _mm512_setzero_ps());
    if (!scales.exact)
        d = 0;
    if (d < k->dim)
        add_last_dims(tile->panel, tile->first, vectors * VECTOR, d, scores);
}

/* Computes the scores from key `first` on, in tiles of `vectors` vectors. The last vector of each
 * tile has at least one key. Returns the key after the last tile. */
static inline __attribute__((always_inline)) int
score_tiles(const enum type type, const struct panel *panel, int first, struct scores *scores,
            struct ahead *ahead, const enum hints hints, const int vectors, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const int keys = vectors * VECTOR, last = panel->most - keys + VECTOR;
    struct steps steps;
    steps.now = 0;
    if (is_transposed_before(type) && first < last && k->dim >= elements_of_step(type)) {
        const struct step_place place = place_after(type, k, k->row + first, NULL, 0, 0);
        transpose_step(type, place, &steps.step[0], vectors);
        for (int i = 0; type == TYPE_Q8_0 && i < vectors * PARTS; i++)
            collect_scales(i % PARTS, place, &steps.halves[0], i / PARTS);
    }
    for (; first < last; first += keys) {
        /* After the last tile there is no next tile, and any keys may take its place. */
        const char *const *const next = k->row + first + (first + keys < last ? keys : 0);
        const struct scored_tile tile = {panel, panel->block->k.row + first, next, first, &steps};
        score_tile(type, &tile, scores, ahead, hints, vectors, rows);
    }
    return first;
}

/* Returns how often the code of the scores calls prefetch_ahead for all keys. The last tile counts
 * as a whole tile. */
static inline int64_t asks_of_keys(const enum type type, const struct panel *panel)
{
    const int keys = MAX_TILE * VECTOR; /* keys of a tile */
    const int64_t asks = panel->block->k.dim / elements_of_step(type) * asks_of_step(type);
    return asks * ((panel->most + keys - 1) / keys);
}

static inline __attribute__((always_inline)) void
score_keys(const enum type type, const struct panel *panel, struct scores *scores, const int rows)
{
    const int keys = MAX_TILE * VECTOR; /* keys of a tile */
    struct ahead ahead = v_ahead(panel, 1 + asks_of_keys(type, panel));
    int key = 0;
    if (gains_by_first(type, &ahead) && panel->most > keys)
        key = score_tiles(type, panel, key, scores, &ahead, K_AND_V_NEAR, MAX_TILE, rows);
    else if (gains_by_near(type, panel) && (type == TYPE_Q8_0 || panel->most > keys))
        key = score_tiles(type, panel, key, scores, &ahead, K_NEAR, MAX_TILE, rows);
    else
        key = score_tiles(type, panel, key, scores, &ahead, NOTHING_NEAR, MAX_TILE, rows);
    score_tiles(type, panel, key, scores, &ahead, NOTHING_NEAR, 1, rows);
    scores->v = ahead;
}

#include "kernels/vectors/decode/score_by_type.h"

/* ---------------------------------------------------------------------------------- turns */

/* Sets up the prefetches of a turn of `tiles` tiles. For TYPE_F32, the pace is 0, so that only
 * prefetch_line prefetches, and not prefetch_ahead in add_step. */
static inline struct ahead ahead_of_turn(const enum type type, const struct panel *panel, int tiles)
{
    const int64_t asks = panel->block->k.dim / elements_of_step(type) * asks_of_step(type);
    struct ahead ahead = ask_in_turn(panel->turn, 1 + asks * tiles);
    if (type == TYPE_F32)
        ahead.pace = 0;
    return ahead;
}

/* Computes the scores of the keys of a turn, which has only whole tiles of MAX_TILE vectors. Some
 * heads have more lines to prefetch than to load, for example if the number of heads does not
 * divide the number of keys. The rest is prefetched at the end. */
static inline __attribute__((always_inline)) void
score_turn(const enum type type, const struct panel *panel, struct scores *scores, const int rows)
{
    const struct turn *const turn = panel->turn;
    const int tiles = (turn->end - turn->begin) / (MAX_TILE * VECTOR);
    struct ahead ahead = ahead_of_turn(type, panel, tiles);
    score_tiles(type, panel, turn->begin, scores, &ahead, IN_TURN, MAX_TILE, rows);
    while (type == TYPE_F32 && (ahead.at < ahead.row_end || ahead.row != ahead.end))
        prefetch_line(&ahead);
}

static inline __attribute__((always_inline)) void
score_turn_of_type(const enum type type, const struct panel *panel, struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_turn(type, panel, scores, 1);
        break;
    case 2:
        score_turn(type, panel, scores, 2);
        break;
    default:
        score_turn(type, panel, scores, PANEL_ROWS);
    }
}

/* The three functions of turns are not inlined, so that gcc compiles the code of whole blocks as if
 * there were no turns. Turns have no rows of TYPE_I8 or TYPE_Q8_0. */
static __attribute__((noinline)) void score_turn_f32(const struct panel *panel,
                                                     struct scores *scores)
{
    score_turn_of_type(TYPE_F32, panel, scores);
}

static __attribute__((noinline)) void score_turn_f16(const struct panel *panel,
                                                     struct scores *scores)
{
    score_turn_of_type(TYPE_F16, panel, scores);
}

static __attribute__((noinline)) void score_turn_bf16(const struct panel *panel,
                                                      struct scores *scores)
{
    score_turn_of_type(TYPE_BF16, panel, scores);
}

static void score_turns(const struct panel *panel, struct scores *scores)
{
    switch (panel->block->k.type) {
    case TYPE_F32:
        score_turn_f32(panel, scores);
        break;
    case TYPE_F16:
        require_built(TYPE_F16);
        score_turn_f16(panel, scores);
        break;
    default:
        require_built(TYPE_BF16);
        score_turn_bf16(panel, scores);
    }
}

/* --------------------------------------------------------------------------------- copies */

enum { COPIED_DIM = 128 }; /* most elements of a copied row */

/* Copies of the rows of a tile. The rows are of TYPE_F32. */
struct copies {
    _Alignas(64) float floats[MAX_TILE * VECTOR][COPIED_DIM];
    const char *row[MAX_TILE * VECTOR];
};

/* Returns whether to copy rows before they are multiplied. If rows of TYPE_F32 share sets of L1,
 * copies save time. Reading the rows in place, add_step would read each cache line in two steps,
 * and L1 would lose the line between the steps. In a turn, add_lines saves more time than copies.
 */
static inline bool gains_by_copies(const struct panel *panel)
{
    const struct key_rows *const k = &panel->block->k;
    return k->type == TYPE_F32 && panel->most > VECTOR && share_sets(k->row) &&
           k->dim <= COPIED_DIM && k->dim % VECTOR == 0;
}

static inline void copy_rows(const struct key_rows *k, int first, struct copies *copies)
{
    for (int i = 0; i < MAX_TILE * VECTOR; i++) {
        const float *const from = (const float *)(const void *)k->row[first + i];
        for (int64_t d = 0; d < k->dim; d += VECTOR)
            store_aligned(copies->floats[i] + d, load_floats(from + d));
        copies->row[i] = (const char *)copies->floats[i];
    }
}

/* Computes the scores of copied rows. If a single vector of keys is left at the end, its rows are
 * not copied. */
static inline __attribute__((always_inline)) void
score_copied_rows(const struct panel *panel, struct scores *scores, const int rows)
{
    const int keys = MAX_TILE * VECTOR; /* keys of a tile */
    struct ahead ahead = v_ahead(panel, 1 + asks_of_keys(TYPE_F32, panel));
    struct copies copies;
    struct steps steps;
    steps.now = 0;
    int key = 0;
    for (; key + VECTOR < panel->most; key += keys) {
        copy_rows(&panel->block->k, key, &copies);
        const struct scored_tile tile = {panel, copies.row, copies.row, key, &steps};
        score_tile(TYPE_F32, &tile, scores, &ahead, NOTHING_NEAR, MAX_TILE, rows);
    }
    score_tiles(TYPE_F32, panel, key, scores, &ahead, NOTHING_NEAR, 1, rows);
    scores->v = ahead;
}

/* The function is not inlined, so that gcc compiles the code that reads rows in place as if there
 * were no copies. */
static __attribute__((noinline)) void score_copies(const struct panel *panel, struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_copied_rows(panel, scores, 1);
        break;
    case 2:
        score_copied_rows(panel, scores, 2);
        break;
    default:
        score_copied_rows(panel, scores, PANEL_ROWS);
    }
}

/* ---------------------------------------------------------------------- lines of binary32 */

/* Returns whether add_lines reads rows that are not copied. Rows that share sets of L1 save time.
 * Other rows are in L1 soon enough, and add_step takes less time with them, because the FMAs wait
 * longer while a whole line is transposed. */
static inline bool gains_by_whole_lines(const struct panel *panel)
{
    const struct key_rows *const k = &panel->block->k;
    return k->type == TYPE_F32 && panel->most > VECTOR && share_sets(k->row);
}

static inline __attribute__((always_inline)) void
score_rows_in_lines(const struct panel *panel, struct scores *scores, const int rows)
{
    struct ahead ahead = v_ahead(panel, 1 + asks_of_keys(TYPE_F32, panel));
    const int key = score_tiles(TYPE_F32, panel, 0, scores, &ahead, IN_LINES, MAX_TILE, rows);
    score_tiles(TYPE_F32, panel, key, scores, &ahead, NOTHING_NEAR, 1, rows);
    scores->v = ahead;
}

/* Like score_copies, the function is not inlined. */
static __attribute__((noinline)) void score_in_lines(const struct panel *panel,
                                                     struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_rows_in_lines(panel, scores, 1);
        break;
    case 2:
        score_rows_in_lines(panel, scores, 2);
        break;
    default:
        score_rows_in_lines(panel, scores, PANEL_ROWS);
    }
}

/* ------------------------------------------------------------------ lines of 16-bit types */

enum {
    LINE_BYTES = LINE * sizeof(float),
    FIRST_NEAR = 2, /* the first unit that prefetches into L1, after all loads of K */
    NEAR_KEYS = 3,  /* most prefetches into L1 during a unit */
};

/* A cache line of each key of a tile, transposed. */
struct line {
    struct step half[2];
};

/* A tile of keys, the line that is multiplied, and the line that is transposed meanwhile. */
struct lined_tile {
    const struct panel *panel;
    const char *const *key, *const *next; /* the first keys of this tile and of the next tile */
    int first;                            /* index of the tile's first key */
    struct line *now, *then;
};

/* Returns whether to transpose whole cache lines of 16 keys. If rows of a 16-bit type share sets of
 * L1, the lines of 16 keys fill their sets. If 32 keys were loaded half a line at a time, L1 would
 * lose each line before its second half is loaded. A single query row has too little arithmetic to
 * gain. */
static inline bool gains_by_lines(const struct panel *panel)
{
    const struct key_rows *const k = &panel->block->k;
    return (k->type == TYPE_F16 || k->type == TYPE_BF16) && panel->rows > 1 && panel->far &&
           panel->block->large && panel->most > VECTOR && share_sets(k->row) &&
           bytes_of(k->type, k->dim) % LINE_BYTES == 0;
}

/* Returns the place that is `lines` cache lines after the line at element d. After the last line of
 * a row, the place is in the next tile. */
static inline __attribute__((always_inline)) struct step_place
line_after(const enum type type, const struct lined_tile *tile, int64_t d, const int lines)
{
    const int64_t end = bytes_of(type, tile->panel->block->k.dim);
    const int64_t at = bytes_of(type, d) + lines * LINE_BYTES;
    return at < end ? (struct step_place){tile->key, at}
                    : (struct step_place){tile->next, at - end};
}

/* Does a part of the transposition of the line at `place`, for a vector of the keys, during unit i
 * of a step. The loads of the two halves of the line follow each other closely, so that L1 still
 * has the line. */
static inline __attribute__((always_inline)) void
transpose_line(const enum type type, const int i, struct step_place place, __m512i x[2][UNITS],
               struct line *line, const int vector)
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const struct step_place here = {place.key, place.at + half * STEP};
        if (i >= half && i < half + PARTS)
            transpose_part(type, i - half, here, x[half], &line->half[half], vector);
    }
}

/* Prefetches into L1 the lines at `place` of a vector of keys: during unit i of a step, the lines
 * of up to NEAR_KEYS of these keys. */
static inline __attribute__((always_inline)) void bring_line_near(struct step_place place,
                                                                  const int i)
{
    const int first = (i - FIRST_NEAR) * NEAR_KEYS;
    for (int key = first; first >= 0 && key < first + NEAR_KEYS && key < VECTOR; key++)
        _mm_prefetch(place.key[key] + place.at, _MM_HINT_T0);
}

/* Adds the products of half a line, the elements from d on. A tile has two vectors of keys.
 * Meanwhile the next line of one of these vectors is transposed: of the first vector if `half` is
 * 0, else of the second. The line that is transposed during the next half is prefetched into L1. */
static inline __attribute__((always_inline)) void add_half(const enum type type,
                                                           const struct lined_tile *tile, int64_t d,
                                                           const int half, __m512 s[][MAX_TILE],
                                                           struct ahead *ahead, const int rows)
{
    const int64_t line = d - half * elements_of_step(type);
    const struct step_place place = line_after(type, tile, line, 1);
    struct step_place near = half == 0 ? place : line_after(type, tile, line, 2);
    near.key += (1 - half) * VECTOR;
    const struct step *now = &tile->now->half[half];
    struct line *then = tile->then;
    if (type == TYPE_F16)
        __asm__("" : "+r"(now), "+r"(then)); /* as in add_step */
    __m512i x[2][UNITS];
#pragma GCC unroll 8
    for (int i = 0; i < UNITS; i++) {
        if (i % (UNITS / asks_of_step(type)) == 0)
            prefetch_ahead(ahead, false);
        transpose_line(type, i, place, x, then, half);
        bring_line_near(near, i);
        for (int e = 0; e < elements_of_unit(type); e++) {
            const int64_t at = d + i * elements_of_unit(type) + e;
            __m512 element[MAX_TILE];
            for (int j = 0; j < MAX_TILE; j++)
                element[j] = widen_element(type, now, i, e, j, _mm512_setzero_ps());
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < MAX_TILE; j++)
                    s[r][j] = multiply_add_one(tile->panel->q[r] + at, element[j], s[r][j]);
        }
    }
}

/* Computes the scores of a tile, whose first line has been transposed. Transposes the first line of
 * the next tile. */
static inline __attribute__((always_inline)) void
score_lined_tile(const enum type type, struct lined_tile *tile, struct scores *scores,
                 struct ahead *ahead, const int rows)
{
    const int step = elements_of_step(type);
    __m512 s[PANEL_ROWS][MAX_TILE];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < MAX_TILE; j++)
            s[r][j] = _mm512_setzero_ps();
    for (int64_t d = 0; d < tile->panel->block->k.dim; d += 2 * step) {
        struct line *const done = tile->now;
        add_half(type, tile, d, 0, s, ahead, rows);
        add_half(type, tile, d + step, 1, s, ahead, rows);
        tile->now = tile->then;
        tile->then = done;
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < MAX_TILE; j++)
            _mm512_store_ps(scores->s[r] + tile->first + j * VECTOR, s[r][j]);
}

/* Computes the scores of all tiles of two vectors of keys, and then of the last vector, if one is
 * left. */
static inline __attribute__((always_inline)) void score_lined_rows(const enum type type,
                                                                   const struct panel *panel,
                                                                   struct scores *scores,
                                                                   const int rows)
{
    const int keys = MAX_TILE * VECTOR; /* keys of a tile */
    const char *const *const row = panel->block->k.row;
    struct ahead ahead = v_ahead(panel, 1 + asks_of_keys(type, panel));
    struct line lines[2];
    struct lined_tile tile = {panel, row, row, 0, &lines[0], &lines[1]};
    for (int half = 0; half < 2; half++)
        transpose_step(type, (struct step_place){row, half * STEP}, &tile.now->half[half],
                       MAX_TILE);
    for (; tile.first + VECTOR < panel->most; tile.first += keys, tile.key += keys) {
        /* After the last tile there is no next tile, and any keys may take its place. */
        tile.next = tile.first + keys + VECTOR < panel->most ? tile.key + keys : row;
        score_lined_tile(type, &tile, scores, &ahead, rows);
    }
    score_tiles(type, panel, tile.first, scores, &ahead, NOTHING_NEAR, 1, rows);
    scores->v = ahead;
}

static inline __attribute__((always_inline)) void
score_lined_type(const enum type type, const struct panel *panel, struct scores *scores)
{
    if (computed_rows(panel) == 2)
        score_lined_rows(type, panel, scores, 2);
    else
        score_lined_rows(type, panel, scores, PANEL_ROWS);
}

/* Like score_copies, the two functions are not inlined, so that gcc compiles the other code as if
 * there were no whole lines. */
static __attribute__((noinline)) void score_lined_f16(const struct panel *panel,
                                                      struct scores *scores)
{
    score_lined_type(TYPE_F16, panel, scores);
}

static __attribute__((noinline)) void score_lined_bf16(const struct panel *panel,
                                                       struct scores *scores)
{
    score_lined_type(TYPE_BF16, panel, scores);
}

static void score_lines(const struct panel *panel, struct scores *scores)
{
    if (panel->block->k.type == TYPE_F16) {
        require_built(TYPE_F16);
        score_lined_f16(panel, scores);
    } else {
        require_built(TYPE_BF16);
        score_lined_bf16(panel, scores);
    }
}

void attnkit_avx512_decode_k(const struct panel *panel, struct scores *scores)
{
    if (panel->turn)
        score_turns(panel, scores);
    else if (gains_by_copies(panel))
        score_copies(panel, scores);
    else if (gains_by_whole_lines(panel))
        score_in_lines(panel, scores);
    else if (gains_by_lines(panel))
        score_lines(panel, scores);
    else
        score_keys_of_any_type(panel, scores);
}
