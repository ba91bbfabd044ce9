/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode: s[r][key] = chain over d of q[r][d] * k[key][d]. K may have any
 * type of struct key_rows, and is widened in registers. decode.c of this folder calls decode_k.
 *
 * Lanes are keys, so that a score stays one chain over d. K is transposed in registers: a step
 * takes 16 bytes of each of 8 keys as 4 vectors of 32-bit units, with 1, 2 or 4 elements in a unit.
 * Each step costs 4 loads, 4 inserts from memory, and 8 shuffles. Then each element is widened for
 * all 8 keys at once (by three instructions for a byte), and multiplied by one FMA for each row. A
 * tile is 2 vectors of keys, or 1 vector for the last keys. With 2 vectors and 4 query rows there
 * are enough chains for the FMA ports. A broadcast of q serves both vectors. Registers: 8 units, at
 * most 8 sums and a broadcast are more than the 16 ymm, so some units are on the stack.
 *
 * TYPE_F16 is different: a step takes 32 bytes of each of 8 keys as 8 vectors of 16-bit elements.
 * This costs 8 loads and 24 shuffles. The vectors are stored, so that each conversion loads an
 * element of 8 keys.
 *
 * Rows of TYPE_F32 that share sets of L1 are copied (gains_by_copies), a cache line of each of 16
 * keys at a time. The copies of the next lines are spread over the steps of the present lines.
 *
 * If K is binary32 and there are few query rows, memory limits the speed. For types of 8 or 16
 * bits, shuffles and FMA together limit the speed. Prefetches are spread evenly and go through one
 * row after the other. Prefetches in bursts, or of one cache line of each row in turn, would delay
 * the loads.
 */
#include "kernels/avx2/steps.h"

/* A signed byte becomes a float in two stages. First a shuffle moves the byte to its place in 32
 * bits. Then the second stage turns these 32 bits into a float. For TYPE_I8 the place is the
 * uppermost byte. The second stage is a conversion, which gives UPPER_BYTE times the number. So the
 * scale is divided by UPPER_BYTE. For TYPE_Q8_0 the place is the second byte. The second stage is
 * an exclusive or, which gives the number + BYTE_ZERO. A multiply-add with the scale later
 * subtracts BYTE_ZERO * scale. BYTE_ZERO * scale is exact if the scale is finite, because BYTE_ZERO
 * has 9 significant bits and the scale has 11. */
#define UPPER_BYTE 0x1p24f
#define BYTE_ZERO 0x1.01p15f

enum {
    HALVES = STEP / 2, /* elements of TYPE_F16 in half a step */
    LINE_BYTES = LINE * (int)sizeof(float),
    STEPS = LINE_BYTES / STEP, /* steps of TYPE_F32 in a cache line */
};

/* Returns the indices of the first stage's shuffle for 32 bits: byte i goes to its place, and the
 * other bytes become 0. */
static inline __attribute__((always_inline)) int place_byte(const enum type type, const int i)
{
    return type == TYPE_Q8_0 ? (int)0x80800080 | i << 8 : 0x00808080 | i << 24;
}

/* Does the second stage, on bytes in their places. */
static inline __attribute__((always_inline)) __m256 number_of_byte(const enum type type,
                                                                   __m256i placed)
{
    if (type != TYPE_Q8_0)
        return _mm256_cvtepi32_ps(placed);
    const __m256i byte_zero = _mm256_castps_si256(_mm256_set1_ps(BYTE_ZERO));
    return _mm256_castsi256_ps(_mm256_xor_si256(placed, byte_zero));
}

/* Multiplies the result of the second stage by its scale. For TYPE_Q8_0 also subtracts `zero`, in
 * the same multiply-add. */
static inline __attribute__((always_inline)) __m256 scale_number(const enum type type, __m256 x,
                                                                 __m256 scale, __m256 zero)
{
    return type == TYPE_Q8_0 ? _mm256_fmsub_ps(x, scale, zero) : _mm256_mul_ps(x, scale);
}

/* Returns byte i of each unit after both stages, for scale_number. */
static inline __attribute__((always_inline)) __m256 unit_byte(const enum type type, __m256i units,
                                                              const int i)
{
    const __m128i places = _mm_setr_epi32(place_byte(type, i), place_byte(type, i + 4),
                                          place_byte(type, i + 8), place_byte(type, i + 12));
    const __m256i placed = _mm256_shuffle_epi8(units, _mm256_broadcastsi128_si256(places));
    return number_of_byte(type, placed);
}

/* Sets k[i] to element i of the unit of each key. A unit has 1 element of TYPE_F32, or 2 elements
 * of TYPE_BF16. */
static inline __attribute__((always_inline)) void widen_unit(const enum type type, __m256 unit,
                                                             __m256 k[2])
{
    const __m256i bits = _mm256_castps_si256(unit);
    if (type == TYPE_F32) {
        k[0] = unit;
        return;
    }
    k[0] = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    k[1] = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32((int)0xffff0000)));
}

/* Adds the products of element d of q and of all keys to s. multiply_add says what `is_large` does.
 * `is_large` is false for bytes: with true, gcc would spill more registers in the long loop bodies
 * for bytes. */
static inline __attribute__((always_inline)) void
add_element(const struct panel *panel, int64_t d, const __m256 x[MAX_TILE], __m256 s[][MAX_TILE],
            const int vectors, const int rows, const bool is_large)
{
    for (int r = 0; r < rows; r++) {
        const __m256 q = _mm256_broadcast_ss(panel->q[r] + d);
        for (int j = 0; j < vectors; j++)
            s[r][j] = multiply_add(q, x[j], s[r][j], is_large);
    }
}

/* Adds the products of q and of STEP bytes of each key to s. key[i] + at is the address of these
 * bytes of key i. The first element in these bytes is element d. `type` is TYPE_F32 or
 * TYPE_BF16. */
static inline __attribute__((always_inline)) void
add_step(const enum type type, const struct panel *panel, const char *const *key, int64_t at,
         int64_t d, __m256 s[][MAX_TILE], const int vectors, const int rows)
{
    const int in_unit = type == TYPE_F32 ? 1 : 2;
    __m256 unit[MAX_TILE][UNITS];
    for (int j = 0; j < vectors; j++)
        load_units(key + j * VECTOR, at, unit[j]);
    for (int i = 0; i < UNITS; i++) {
        __m256 element[MAX_TILE][2];
        for (int j = 0; j < vectors; j++)
            widen_unit(type, unit[j][i], element[j]);
        for (int e = 0; e < in_unit; e++) {
            __m256 x[MAX_TILE];
            for (int j = 0; j < vectors; j++)
                x[j] = element[j][e];
            add_element(panel, d + i * in_unit + e, x, s, vectors, rows,
                        vectors * rows >= LARGE_TILE);
        }
    }
}

/* A step of TYPE_F16. element[j][i] has elements i (lower 128 bits) and i + HALVES (upper 128 bits)
 * of the 8 keys of vector j. */
struct halves {
    __m256i element[MAX_TILE][HALVES];
};

/* Transposes 16-bit elements: in each 128 bits, element i of x[j] becomes element j of x[i]. */
static inline __attribute__((always_inline)) void transpose_halves(__m256i x[HALVES])
{
    __m256i two[HALVES], four[HALVES]; /* elements of two x, and of four x, side by side */
    for (int i = 0; i < HALVES; i += 2) {
        two[i] = _mm256_unpacklo_epi16(x[i], x[i + 1]);
        two[i + 1] = _mm256_unpackhi_epi16(x[i], x[i + 1]);
    }
    for (int i = 0; i < HALVES; i += 4)
        for (int j = 0; j < 2; j++) {
            four[i + 2 * j] = _mm256_unpacklo_epi32(two[i + j], two[i + j + 2]);
            four[i + 2 * j + 1] = _mm256_unpackhi_epi32(two[i + j], two[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        x[2 * i] = _mm256_unpacklo_epi64(four[i], four[i + 4]);
        x[2 * i + 1] = _mm256_unpackhi_epi64(four[i], four[i + 4]);
    }
}

/* Loads and transposes a step of one vector of keys. */
static inline __attribute__((always_inline)) void take_halves(const char *const *key, int64_t at,
                                                              __m256i element[HALVES])
{
    __m256i x[HALVES];
    for (int i = 0; i < HALVES; i++)
        x[i] = _mm256_loadu_si256((const __m256i *)(key[i] + at));
    transpose_halves(x);
    for (int i = 0; i < HALVES; i++)
        element[i] = x[i];
}

/* Adds the products of q and of the lower or upper elements of a step to s. `from` is the address
 * of the first of them, element d of 8 keys. */
static inline __attribute__((always_inline)) void add_halves(const struct panel *panel,
                                                             const __m128i *from, int64_t d,
                                                             __m256 s[][MAX_TILE],
                                                             const int vectors, const int rows)
{
    for (int i = 0; i < HALVES; i++) {
        __m256 x[MAX_TILE];
        for (int j = 0; j < vectors; j++)
            x[j] = _mm256_cvtph_ps(_mm_load_si128(from + 2 * (j * HALVES + i)));
        add_element(panel, d + i, x, s, vectors, rows, vectors * rows >= LARGE_TILE);
    }
}

/* Adds the products of q and of the rows of TYPE_F16 to s, up to the last multiple of HALVES
 * elements. Returns the number of these elements, or 0 if a row is shorter than a step. If the
 * number is not a multiple of 2 * HALVES, the last two steps overlap, and only the upper half of
 * the last step is added. Each step is transposed while the previous step is multiplied. If a step
 * were multiplied right after it is transposed, the multiply-adds would wait for the stored
 * elements: on a Zen 3, the scores of a block would take 1.15 to 1.3 times as long. */
static inline __attribute__((always_inline)) int64_t
score_halves(const struct panel *panel, const char *const *key, struct ahead *ahead,
             __m256 s[][MAX_TILE], const int vectors, const int rows)
{
    enum { WHOLE = 2 * HALVES };
    const int64_t dim = panel->block->k.dim, end = dim < WHOLE ? 0 : dim / HALVES * HALVES;
    struct halves halves[2];
    if (end > 0)
        for (int j = 0; j < vectors; j++)
            take_halves(key + j * VECTOR, 0, halves[0].element[j]);
    int now = 0;
    for (int64_t d = 0; d < end; now ^= 1) {
        const int64_t next = d + WHOLE, last = end - WHOLE;
        if (next < end)
            for (int j = 0; j < vectors; j++)
                take_halves(key + j * VECTOR, bytes_of(TYPE_F16, next < last ? next : last),
                            halves[now ^ 1].element[j]);
        __asm__("" : "+m"(halves));
#pragma GCC unroll 1
        for (int half = next > end; half < 2; half++, d += HALVES) {
            prefetch_ahead(ahead, TYPE_F16);
            add_halves(panel, (const __m128i *)&halves[now] + half, d, s, vectors, rows);
        }
    }
    return end;
}

/* The arguments of scale_number for each vector of keys. */
struct byte_scales {
    __m256 scale[MAX_TILE], zero[MAX_TILE];
};

/* Sets the arguments of scale_number for vector j and the group of elements that begins at element
 * d. key[i] is the row of key i of the vector. Returns false if scale_number would give wrong
 * products, because a scale of TYPE_I8 is too small or a scale of TYPE_Q8_0 is not finite. */
static inline __attribute__((always_inline)) bool
take_scales(const enum type type, const struct key_rows *rows, const char *const *key, int64_t d,
            struct byte_scales *scales, const int j)
{
    const __m256 given = scales_at(type, rows, key, d);
    if (type == TYPE_Q8_0) {
        scales->scale[j] = given;
        scales->zero[j] = _mm256_mul_ps(given, _mm256_set1_ps(BYTE_ZERO));
        return is_finite(scales->zero[j]);
    }
    scales->scale[j] = _mm256_mul_ps(given, _mm256_set1_ps(1.0f / UPPER_BYTE));
    scales->zero[j] = _mm256_setzero_ps();
    const __m256 back = _mm256_mul_ps(scales->scale[j], _mm256_set1_ps(UPPER_BYTE));
    return _mm256_movemask_ps(_mm256_cmp_ps(back, given, _CMP_NEQ_OQ)) == 0;
}

/* Does the work of add_step for bytes, which have a scale for each key. The units are stored in
 * memory, and each unit is loaded once. Otherwise gcc would keep all units in registers and the
 * sums in memory. */
static inline __attribute__((always_inline)) void
add_bytes(const enum type type, const struct panel *panel, const char *const *key, int64_t at,
          int64_t d, const struct byte_scales *scales, __m256 s[][MAX_TILE], const int vectors,
          const int rows)
{
    struct units units;
    for (int j = 0; j < vectors; j++) {
        __m256 unit[UNITS];
        load_units(key + j * VECTOR, at, unit);
        for (int i = 0; i < UNITS; i++)
            units.unit[i][j] = _mm256_castps_si256(unit[i]);
    }
    __asm__("" : "+m"(units));
#pragma GCC unroll 4
    for (int i = 0; i < UNITS; i++) {
        __m256i unit[MAX_TILE];
        for (int j = 0; j < vectors; j++) {
            __m256i in_register = units.unit[i][j];
            __asm__("" : "+x"(in_register));
            unit[j] = in_register;
        }
        for (int e = 0; e < 4; e++) {
            __m256 x[MAX_TILE];
            for (int j = 0; j < vectors; j++)
                x[j] = scale_number(type, unit_byte(type, unit[j], e), scales->scale[j],
                                    scales->zero[j]);
            add_element(panel, d + i * 4 + e, x, s, vectors, rows, false);
        }
    }
}

/* Continues the chains of the tile's scores from element d on. If the whole tile is recomputed, d
 * is 0. Else less than STEP bytes are left, or less than 2 * STEP bytes of TYPE_F16. */
static __attribute__((noinline)) void add_last_dims(const struct panel *panel, int first, int keys,
                                                    int64_t d, struct scores *scores)
{
    const struct key_rows *const k = &panel->block->k;
    for (; d < k->dim; d += VECTOR) {
        const int64_t left = k->dim - d < VECTOR ? k->dim - d : VECTOR;
        for (int key = first; key < first + keys; key += VECTOR) {
            __m256 k_t[VECTOR];
            for (int i = 0; i < VECTOR; i++)
                k_t[i] = load_part(k, k->row + key + i, d, left);
            transpose(k_t);
            for (int r = 0; r < computed_rows(panel); r++) {
                __m256 s = _mm256_load_ps(scores->s[r] + key);
                for (int i = 0; i < left; i++)
                    s = _mm256_fmadd_ps(_mm256_set1_ps(panel->q[r][d + i]), k_t[i], s);
                _mm256_store_ps(scores->s[r] + key, s);
            }
        }
    }
}

/* Computes the scores of `vectors` vectors of keys from `first` on. */
static inline __attribute__((always_inline)) void
score_tile(const enum type type, const struct panel *panel, int first, struct scores *scores,
           struct ahead *ahead, const int vectors, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const int step = type == TYPE_F32 ? 4 : type == TYPE_BF16 ? 8 : 16;
    __m256 s[PANEL_ROWS][MAX_TILE];
    struct byte_scales scales = {0};
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            s[r][j] = _mm256_setzero_ps();
    int64_t d = type == TYPE_F16 ? score_halves(panel, k->row + first, ahead, s, vectors, rows) : 0;
    const int64_t group = type == TYPE_I8     ? k->scale_group
                          : type == TYPE_Q8_0 ? (int64_t)Q8_BLOCK
                                              : k->dim;
    const bool scaled = type == TYPE_I8 || type == TYPE_Q8_0;
    bool exact = true;
    while (type != TYPE_F16 && d + step <= k->dim) {
        int64_t at = bytes_of(type, d) + (type == TYPE_Q8_0 ? 2 : 0);
        const int64_t end = d + group;
        for (int j = 0; j < vectors && scaled; j++)
            exact &= take_scales(type, k, k->row + first + j * VECTOR, d, &scales, j);
        for (; d + step <= end; d += step, at += STEP) {
            prefetch_ahead(ahead, type);
            if (scaled)
                add_bytes(type, panel, k->row + first, at, d, &scales, s, vectors, rows);
            else
                add_step(type, panel, k->row + first, at, d, s, vectors, rows);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            _mm256_store_ps(scores->s[r] + first + j * VECTOR,
                            exact ? s[r][j] : _mm256_setzero_ps());
    if (!exact)
        d = 0;
    if (d < k->dim)
        add_last_dims(panel, first, vectors * VECTOR, d, scores);
}

/* Returns what to prefetch while the scores are computed, in `tiles` tiles with `times` calls of
 * prefetch_ahead each: the rows of V, or in a turn its pieces of memory. can_turn is a constant, so
 * that the compiler leaves out the code of turns where there are none. */
static inline __attribute__((always_inline)) struct ahead
ahead_of_scores(const struct panel *panel, int64_t tiles, int64_t times, const bool can_turn)
{
    if (can_turn && __builtin_expect(panel->turn != NULL, false))
        return ask_in_turn(panel->turn, tiles, times);
    return v_ahead(panel, tiles, times);
}

static inline __attribute__((always_inline)) void
score_keys(const enum type type, const struct panel *panel, struct scores *scores, const int rows)
{
    const enum type stored = type == TYPE_Q8_0 ? TYPE_I8 : type;
    const int64_t steps = (bytes_of(stored, panel->block->k.dim) + STEP - 1) / STEP;
    struct ahead ahead = ahead_of_scores(panel, (panel->most + 2 * VECTOR - 1) / (2 * VECTOR),
                                         steps, takes_turns(type));
    int key = 0;
    for (; key + VECTOR < panel->most; key += 2 * VECTOR)
        score_tile(type, panel, key, scores, &ahead, 2, rows);
    for (; key < panel->most; key += VECTOR)
        score_tile(type, panel, key, scores, &ahead, 1, rows);
}

#include "kernels/vectors/decode/score_by_type.h"

/* Returns whether to copy rows before they are multiplied. Only rows of TYPE_F32 that are whole
 * cache lines are copied. If such rows share sets of L1, copies save time: while the rows are
 * multiplied in place, L1 loses cache lines before all of a line has been read. With f16 and bf16,
 * copies save no time. */
static inline bool gains_by_copies(const struct panel *panel)
{
    const struct key_rows *const k = &panel->block->k;
    return k->type == TYPE_F32 && panel->most > VECTOR &&
           bytes_of(TYPE_F32, k->dim) % LINE_BYTES == 0 && share_sets(k->row);
}

/* Copies of a cache line of each key of a tile, and of the cache lines that are multiplied next. */
struct copies {
    _Alignas(32) char line[2][MAX_TILE * VECTOR][LINE_BYTES];
    int now; /* index of the lines that add_lines multiplies when it is called next */
};

enum { COPIED_KEYS = MAX_TILE * VECTOR / STEPS /* keys whose lines are copied in a step */ };

/* Copies the lines of COPIED_KEYS keys. */
static inline __attribute__((always_inline)) void copy_lines(const char *const *row, int64_t at,
                                                             char (*line)[LINE_BYTES])
{
    for (int i = 0; i < COPIED_KEYS; i++)
        for (int b = 0; b < LINE_BYTES; b += (int)sizeof(__m256i))
            _mm256_store_si256((__m256i *)(line[i] + b),
                               _mm256_loadu_si256((const __m256i *)(row[i] + at + b)));
}

/* Does the work of add_step for copied lines. The step begins at byte `at` of the lines. */
static inline __attribute__((always_inline)) void
add_copied_step(const struct panel *panel, const char (*line)[LINE_BYTES], int64_t at, int64_t d,
                __m256 s[][MAX_TILE], const int rows)
{
    __m256 unit[MAX_TILE][UNITS];
    for (int j = 0; j < MAX_TILE; j++, line += VECTOR) {
        for (int i = 0; i < UNITS; i++)
            unit[j][i] = load_two(line[i] + at, line[i + 4] + at);
        transpose_4(unit[j]);
    }
    for (int i = 0; i < UNITS; i++) {
        const __m256 x[MAX_TILE] = {unit[0][i], unit[1][i]};
        add_element(panel, d + i, x, s, MAX_TILE, rows, MAX_TILE * rows >= LARGE_TILE);
    }
}

/* Adds the products of q and of the present lines to s. Meanwhile copies the next lines, which are
 * at byte `at` of the rows `next`. The first element of the present lines is element d. The loop is
 * not unrolled: this would take 6 to 14 KB more code and would save no time. */
static inline __attribute__((always_inline)) void
add_lines(const struct panel *panel, int64_t d, const char *const *next, int64_t at,
          struct copies *copies, struct ahead *ahead, __m256 s[][MAX_TILE], const int rows)
{
    const char(*const present)[LINE_BYTES] = (const char(*)[LINE_BYTES])copies->line[copies->now];
    copies->now ^= 1;
    char(*to)[LINE_BYTES] = copies->line[copies->now];
#pragma GCC unroll 1
    for (int64_t step = 0; step < LINE_BYTES; step += STEP, d += UNITS) {
        prefetch_over_rows(ahead);
        add_copied_step(panel, present, step, d, s, rows);
        copy_lines(next, at, to);
        next += COPIED_KEYS;
        to += COPIED_KEYS;
    }
}

/* Computes the scores of a tile, whose first lines have been copied. Copies the first lines of the
 * rows `then`. */
static inline __attribute__((always_inline)) void
score_copied_tile(const struct panel *panel, int first, const char *const *then,
                  struct copies *copies, struct scores *scores, struct ahead *ahead, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const int64_t bytes = bytes_of(TYPE_F32, k->dim);
    __m256 s[PANEL_ROWS][MAX_TILE];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < MAX_TILE; j++)
            s[r][j] = _mm256_setzero_ps();
    for (int64_t at = 0; at < bytes; at += LINE_BYTES) {
        const int64_t next = at + LINE_BYTES;
        add_lines(panel, at / (int64_t)sizeof(float), next < bytes ? k->row + first : then,
                  next < bytes ? next : 0, copies, ahead, s, rows);
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < MAX_TILE; j++)
            _mm256_store_ps(scores->s[r] + first + j * VECTOR, s[r][j]);
}

/* Computes the scores of copied rows, always for two vectors of keys. With the last tile, the
 * first lines of this tile are copied once more. */
static inline __attribute__((always_inline)) void
score_copied_rows(const struct panel *panel, struct scores *scores, const int rows)
{
    enum { TILE = MAX_TILE * VECTOR };
    const struct key_rows *const k = &panel->block->k;
    const int64_t steps = k->dim * (int64_t)sizeof(float) / STEP;
    struct ahead ahead = ahead_of_scores(panel, (panel->most + TILE - 1) / TILE, steps, true);
    struct copies copies;
    copies.now = 0;
    for (int key = 0; key < TILE; key += COPIED_KEYS)
        copy_lines(k->row + key, 0, copies.line[0] + key);
    for (int key = 0; key < panel->most; key += TILE)
        score_copied_tile(panel, key, k->row + (key + TILE < panel->most ? key + TILE : key),
                          &copies, scores, &ahead, rows);
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

static void score_rows(const struct panel *panel, struct scores *scores)
{
    if (gains_by_copies(panel))
        score_copies(panel, scores);
    else
        score_keys_of_any_type(panel, scores);
}

/* Computes the scores of a turn as the scores of a block that has only the keys of the turn. So
 * whole blocks and turns share the code. */
static __attribute__((noinline)) void score_turn(const struct panel *panel, struct scores *scores)
{
    const int begin = panel->turn->begin;
    struct decode_block block = *panel->block;
    struct panel own = *panel;
    struct scores turn;
    block.k.row += begin;
    own.block = &block;
    own.fewest = own.most = panel->turn->end - begin;
    score_rows(&own, &turn);
    for (int r = 0; r < computed_rows(panel); r++)
        memcpy(scores->s[r] + begin, turn.s[r], (size_t)own.most * sizeof(float));
}

void attnkit_avx2_decode_k(const struct panel *panel, struct scores *scores)
{
    if (panel->turn)
        score_turn(panel, scores);
    else
        score_rows(panel, scores);
}
