/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of decode: o[r][c] = fma(o[r][c], rescale[r], chain over keys of p[key][r] *
 * v[key][c]). V may have any type of struct key_rows, and is widened in registers. decode.c of this
 * folder calls decode_v.
 *
 * Lanes are value columns. A tile has 4, 2 or 1 vectors of columns. Registers: at most 16 sums, 4
 * vectors of V and the scale of V take 21 of 32 zmm. The FMA broadcasts the weight. FMA or memory
 * limits the speed. A quantised element takes one more multiplication, by its scale.
 */
#include "kernels/avx512/decode.h"

enum {
    MAX_STEP = 4,   /* most keys of a step */
    MAX_SCALES = 2, /* TYPE_Q8_0: most scales of each key in a tile */
    NEAR = 24,      /* prefetches into L1 are this many keys ahead of the loads */
};

/* When a tile prefetches the next rows of K to L2. SELDOM: once in each step of keys. OFTEN: with
 * each cache line of V. OFTEN_IN_TURN: the same, in a turn of TYPE_F32. V_NEAR: once in each step
 * of keys, and the tile also prefetches V to L1. */
enum hints { SELDOM, OFTEN, OFTEN_IN_TURN, V_NEAR };

static inline bool is_often(const enum hints hints)
{
    return hints == OFTEN || hints == OFTEN_IN_TURN;
}

/* Returns the number of keys in a step. The scales of TYPE_Q8_0 of these keys are widened
 * together. */
static inline int keys_of_step(const enum type type)
{
    return type == TYPE_Q8_0 ? MAX_STEP : 2;
}

/* Returns how many vectors of columns of a key are between two prefetches of a tile that prefetches
 * OFTEN: about a cache line. */
static inline int vectors_of_line(const enum type type)
{
    return type == TYPE_F32 ? 1 : 2;
}

/* The columns of V in a tile. */
struct columns {
    int64_t offset; /* bytes from the start of a row to the elements of the columns */
    int64_t scale;  /* TYPE_I8: index of the scale */
    int64_t width;  /* elements of each vector; less than VECTOR only where there is one vector */
};

static inline struct columns columns_at(const enum type type, const struct key_rows *v,
                                        int64_t first, int64_t width)
{
    if (type == TYPE_Q8_0)
        return (struct columns){bytes_of(type, first) + 2, 0, width};
    return (struct columns){bytes_of(type, first), type == TYPE_I8 ? first / v->scale_group : 0,
                            width};
}

/* Returns the address of the columns in a row. The assembly hides where the address comes from.
 * Otherwise the compiler would keep, in a register for each vector, the offset plus the vector's
 * distance from the first column. There are too few registers for this. */
static inline const char *columns_of(const char *const *row, const struct columns *columns)
{
    const char *data = *row + columns->offset;
    __asm__("" : "+r"(data));
    return data;
}

/* The scales of TYPE_Q8_0: as binary32 for the keys of a step, and as binary16 for the keys of the
 * next step. The next scales are collected in memory, because moving a binary16 number into a
 * vector takes an FMA port. The next scales are collected long before they are needed, because the
 * load of all scales waits until each store has reached the cache. */
struct scales {
    _Alignas(32) float of[MAX_STEP][MAX_SCALES];
    _Alignas(16) uint16_t next[MAX_STEP][MAX_SCALES];
};

static inline __attribute__((always_inline)) void load_scales(const char *const *row,
                                                              const struct columns *columns,
                                                              struct scales *scales,
                                                              const int vectors)
{
    for (int i = 0; i < MAX_STEP; i++) {
        const char *const data = columns_of(row + i, columns);
        for (int b = 0; b < (vectors + 1) / 2; b++)
            memcpy(&scales->next[i][b], data + b * Q8_BLOCK_BYTES - 2, sizeof(uint16_t));
    }
    __asm__("" : "+m"(scales->next));
}

static inline __attribute__((always_inline)) void widen_scales(struct scales *scales)
{
    const __m128i halves = _mm_load_si128((const __m128i *)scales->next);
    _mm256_store_ps(scales->of[0], _mm256_maskz_cvtph_ps(0xff, halves));
    __asm__("" : "+m"(scales->of));
}

/* Returns vector j of the tile's columns of a row. */
static inline __attribute__((always_inline)) __m512
load_columns(const enum type type, const char *data, int64_t width, const __m512 scale, const int j)
{
    if (type == TYPE_Q8_0)
        data += j / 2 * Q8_BLOCK_BYTES + j % 2 * VECTOR;
    else
        data += bytes_of(type, j * VECTOR);
    const __m512 x = load_as_f32(type, data, 0, width);
    return type == TYPE_I8 || type == TYPE_Q8_0 ? _mm512_mul_ps(x, scale) : x;
}

/* Loads vectors j and j + 1 of TYPE_BF16 as the even elements and the odd elements. This takes one
 * operation for each vector. `interleave` restores the order of memory. */
static inline __attribute__((always_inline)) void load_pair(const char *data, const int j,
                                                            __m512 pair[2])
{
    const __m512i bits = _mm512_loadu_si512(data + bytes_of(TYPE_BF16, j * VECTOR));
    pair[0] = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    pair[1] = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
}

static inline void interleave(__m512 pair[2])
{
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(VECTOR / 2));
    const __m512 even = pair[0], odd = pair[1];
    pair[0] = _mm512_permutex2var_ps(even, first, odd);
    pair[1] = _mm512_permutex2var_ps(even, last, odd);
}

/* Returns the address of the scales of a key for the tile's columns. TYPE_I8 has one scale. The
 * scales of TYPE_Q8_0 are in `widened`. */
static inline const float *key_scales(const enum type type, const struct key_rows *v, int key,
                                      const struct columns *columns, const float *widened)
{
    return type == TYPE_I8 ? v->scales[key] + columns->scale : widened;
}

/* A key of V. */
struct v_key {
    const char *const *row;
    const float *scales;  /* the result of key_scales */
    const float *weights; /* of the query rows */
};

/* Adds the products of a key. If `sees` is NULL, adds the products for all rows, else only for the
 * rows that see the key. */
static inline __attribute__((always_inline)) void
add_key(const enum type type, const struct v_key key, const struct columns *columns,
        const __mmask16 *sees, __m512 sum[][MAX_COLUMNS], struct ahead *ahead,
        const enum hints hints, const int vectors, const int rows)
{
    const char *const data = columns_of(key.row, columns);
    __m512 x[MAX_COLUMNS], scale = _mm512_setzero_ps();
    if (type == TYPE_I8)
        scale = _mm512_set1_ps(*key.scales);
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) {
        if (is_often(hints) && !sees && j % vectors_of_line(type) == 0)
            prefetch_ahead(ahead, false);
        if (type == TYPE_Q8_0 && j % 2 == 0)
            scale = _mm512_set1_ps(key.scales[j / 2]);
        if (type == TYPE_BF16 && vectors > 1 && j % 2 == 0)
            load_pair(data, j, x + j);
        else if (type != TYPE_BF16 || vectors == 1)
            x[j] = load_columns(type, data, columns->width, scale, j);
        for (int r = 0; r < rows; r++)
            sum[r][j] = sees ? _mm512_mask3_fmadd_ps(_mm512_set1_ps(key.weights[r]), x[j],
                                                     sum[r][j], sees[r])
                             : multiply_add_one(key.weights + r, x[j], sum[r][j]);
    }
}

/* Returns whether to prefetch V into L1. The hardware prefetcher does not foresee loads of rows
 * with gaps between them, and a load from L2 waits behind cache lines that come from memory. Only
 * rows of 16-bit types gain. */
static inline bool gains_by_near(const enum type type, const struct panel *panel)
{
    const struct key_rows *const v = &panel->block->v;
    return (type == TYPE_F16 || type == TYPE_BF16) && panel->far && panel->block->large &&
           panel->fewest >= 2 && v->row[1] != v->row[0] + bytes_of(type, v->dim);
}

/* Prefetches the columns of `count` keys into L1. */
static inline __attribute__((always_inline)) void bring_near(const char *const *row,
                                                             const int count,
                                                             const struct columns *columns,
                                                             const int vectors)
{
    const int line = LINE * sizeof(float), bytes = vectors * VECTOR * (int)sizeof(uint16_t);
    for (int i = 0; i < count; i++)
        for (int at = 0; at < bytes; at += line)
            _mm_prefetch(row[i] + columns->offset + at, _MM_HINT_T0);
}

/* Returns whether a panel may compute its block in several turns (struct turn). The arguments are
 * constants, so that the compiler leaves out the code of turns in the tiles that have none. */
static inline bool can_turn(const enum type type, const enum hints hints)
{
    return takes_turns(type) && hints == (type == TYPE_F32 ? OFTEN_IN_TURN : SELDOM);
}

/* load_sums continues with the sums of an earlier turn, which store_sums has stored. A row of
 * turn->sums has `dim` columns. */
static inline __attribute__((always_inline)) void load_sums(const struct turn *turn, int64_t dim,
                                                            int64_t first, int64_t width,
                                                            __m512 sum[][MAX_COLUMNS],
                                                            const int vectors, const int rows)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = load_first(turn->sums + r * dim + first + j * VECTOR, width);
}

static inline __attribute__((always_inline)) void store_sums(const struct turn *turn, int64_t dim,
                                                             int64_t first, int64_t width,
                                                             __m512 sum[][MAX_COLUMNS],
                                                             const int vectors, const int rows)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            store_first(turn->sums + r * dim + first + j * VECTOR, width, sum[r][j]);
}

/* Computes `vectors` vectors of value columns. In a row of TYPE_I8 these columns share a scale. A
 * query row skips the keys that only other query rows see, because 0 times V of these keys might be
 * NaN. */
static inline __attribute__((always_inline)) void
v_tile(const enum type type, const struct panel *panel, const struct weights *weights,
       int64_t first, int64_t width, struct ahead *ahead, const enum hints hints, const int vectors,
       const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    const char *const *const row = v->row;
    const struct columns columns = columns_at(type, v, first, width);
    const int step = keys_of_step(type);
    const int fewest = panel->fewest / step * step, most = panel->most;
    const bool in_turn = can_turn(type, hints) && panel->turn;
    int key = in_turn ? panel->turn->begin : 0;
    struct scales scales;
    __m512 sum[PANEL_ROWS][MAX_COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = _mm512_setzero_ps();
    if (in_turn && key > 0)
        load_sums(panel->turn, v->dim, first, width, sum, vectors, rows);
    if (type == TYPE_Q8_0 && key < fewest) {
        load_scales(row + key, &columns, &scales, vectors);
        widen_scales(&scales);
    }
    for (; key < fewest; key += step) {
        if (!is_often(hints))
            prefetch_ahead(ahead, false);
        if (hints == V_NEAR)
            bring_near(row + (key + NEAR < fewest ? key + NEAR : key), step, &columns, vectors);
        if (type == TYPE_Q8_0)
            load_scales(row + (key + step < fewest ? key + step : key), &columns, &scales, vectors);
        for (int i = 0; i < step; i++) {
            const float *const of_key = key_scales(type, v, key + i, &columns, scales.of[i]);
            add_key(type, (struct v_key){row + key + i, of_key, weights->p[key + i]}, &columns,
                    NULL, sum, ahead, hints, vectors, rows);
        }
        if (type == TYPE_Q8_0)
            widen_scales(&scales);
    }
    for (; key < most; key++) {
        __mmask16 sees[PANEL_ROWS];
        for (int r = 0; r < rows; r++)
            sees[r] = key < panel->visible[r] ? 0xffff : 0;
        if (type == TYPE_Q8_0 && key % step == 0) {
            load_scales(row + key, &columns, &scales, vectors);
            widen_scales(&scales);
        }
        const float *const of_key = key_scales(type, v, key, &columns, scales.of[key % step]);
        add_key(type, (struct v_key){row + key, of_key, weights->p[key]}, &columns, sees, sum,
                ahead, hints, vectors, rows);
    }
    if (in_turn && panel->turn->end < KEY_BLOCK) {
        store_sums(panel->turn, v->dim, first, width, sum, vectors, rows);
        return;
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j + 1 < vectors && type == TYPE_BF16; j += 2)
            interleave(sum[r] + j);
    for (int r = 0; r < rows && r < panel->rows; r++)
        for (int j = 0; j < vectors; j++) {
            float *o = panel->block->st->out + (panel->first + r) * v->dim + first + j * VECTOR;
            const __m512 factor = _mm512_set1_ps(weights->rescale[r]);
            store_first(o, width, _mm512_fmadd_ps(load_first(o, width), factor, sum[r][j]));
        }
}

/* Returns the number of vectors in the next tile of columns: 4, 2 or 1. The columns fill all
 * vectors, except perhaps the vector of a tile with a single vector. In a row of TYPE_I8 the
 * columns of a tile share a scale. */
static inline int tile_vectors(const enum type type, const struct key_rows *v, int64_t c)
{
    int64_t left = v->dim - c;
    if (type == TYPE_I8 && v->scale_group - c % v->scale_group < left)
        left = v->scale_group - c % v->scale_group;
    return left >= 4 * VECTOR ? 4 : left >= 2 * VECTOR ? 2 : 1;
}

static inline __attribute__((always_inline)) void
weigh_columns(const enum type type, const struct panel *panel, const struct weights *weights,
              struct ahead *ahead, const enum hints hints, const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    for (int64_t c = 0, vectors; c < v->dim; c += vectors * VECTOR) {
        vectors = tile_vectors(type, v, c);
        if (vectors == 4)
            v_tile(type, panel, weights, c, VECTOR, ahead, hints, 4, rows);
        else if (vectors == 2)
            v_tile(type, panel, weights, c, VECTOR, ahead, hints, 2, rows);
        else
            v_tile(type, panel, weights, c, v->dim - c < VECTOR ? v->dim - c : VECTOR, ahead, hints,
                   1, rows);
    }
}

/* Returns about how often the tiles call prefetch_ahead. */
static inline int64_t asks_of_tiles(const enum type type, const struct panel *panel,
                                    const enum hints hints)
{
    const int64_t vectors = (panel->block->v.dim + VECTOR - 1) / VECTOR;
    const int line = vectors_of_line(type), step = keys_of_step(type);
    const int keys = panel->most - first_key(panel);
    if (is_often(hints))
        return (vectors + line - 1) / line * keys;
    return (vectors + MAX_COLUMNS - 1) / MAX_COLUMNS * ((keys + step - 1) / step);
}

static inline __attribute__((always_inline)) void
weigh_with_hints(const enum type type, const struct panel *panel, const struct weights *weights,
                 const enum hints hints, const int rows)
{
    const struct decode_block *const block = panel->block;
    const int64_t asks = asks_of_tiles(type, panel, hints);
    struct ahead ahead = panel->turn ? ask_in_turn(panel->turn, asks)
                                     : ask_for(panel, &block->k, block->next_k,
                                               panel->far ? block->next_keys : 0, asks);
    weigh_columns(type, panel, weights, &ahead, hints, rows);
}

static inline __attribute__((always_inline)) void weigh_rows(const enum type type,
                                                             const struct panel *panel,
                                                             const struct weights *weights,
                                                             const int rows)
{
    if (gains_by_near(type, panel))
        weigh_with_hints(type, panel, weights, V_NEAR, rows);
    else
        weigh_with_hints(type, panel, weights, SELDOM, rows);
}

#include "kernels/vectors/decode/weigh_by_type.h"

/* --- Tiles that prefetch OFTEN ---------------------------------------------------------------- */

static bool are_adjacent(const char *const *row, enum type type, int64_t dim)
{
    return row[1] == row[0] + bytes_of(type, dim);
}

/* Returns whether to prefetch K with each cache line of V. Many prefetches at once fill the queue
 * of cache lines that come from memory, and the CPU then drops prefetches. On a Zen 4, decode with
 * evenly spread prefetches takes 0.74 to 0.94 of the time of decode with a burst in each step. With
 * 4 rows of a 16-bit type, the additional instructions cost as much time as the even spread saves.
 * With gaps between rows, the even spread saves no time. Turns are not decided here. */
static bool gains_by_often(const struct panel *panel)
{
    const struct decode_block *const block = panel->block;
    const struct key_rows *const k = &block->k, *const v = &block->v;
    const bool half = v->type == TYPE_F16 || v->type == TYPE_BF16;
    return (v->type == TYPE_F32 || (half && computed_rows(panel) <= 2)) && panel->far &&
           block->large && !panel->turn && block->next_keys >= 2 && panel->fewest >= 2 &&
           are_adjacent(block->next_k, k->type, k->dim) && are_adjacent(v->row, v->type, v->dim);
}

/* These functions are separate from weigh_f32, weigh_f16 and weigh_bf16. In one function with both
 * kinds of tiles, the compiler orders the instructions of the SELDOM and V_NEAR tiles less well. */
static __attribute__((noinline)) void weigh_f32_often(const struct panel *panel,
                                                      const struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        weigh_with_hints(TYPE_F32, panel, weights, OFTEN, 1);
        break;
    case 2:
        weigh_with_hints(TYPE_F32, panel, weights, OFTEN, 2);
        break;
    default:
        weigh_with_hints(TYPE_F32, panel, weights, OFTEN, PANEL_ROWS);
    }
}

static __attribute__((noinline)) void weigh_f16_often(const struct panel *panel,
                                                      const struct weights *weights)
{
    if (computed_rows(panel) == 1)
        weigh_with_hints(TYPE_F16, panel, weights, OFTEN, 1);
    else
        weigh_with_hints(TYPE_F16, panel, weights, OFTEN, 2);
}

static __attribute__((noinline)) void weigh_bf16_often(const struct panel *panel,
                                                       const struct weights *weights)
{
    if (computed_rows(panel) == 1)
        weigh_with_hints(TYPE_BF16, panel, weights, OFTEN, 1);
    else
        weigh_with_hints(TYPE_BF16, panel, weights, OFTEN, 2);
}

static void weigh_often(const struct panel *panel, const struct weights *weights)
{
    switch (panel->block->v.type) {
    case TYPE_F32:
        weigh_f32_often(panel, weights);
        break;
    case TYPE_F16:
        require_built(TYPE_F16);
        weigh_f16_often(panel, weights);
        break;
    default:
        require_built(TYPE_BF16);
        weigh_bf16_often(panel, weights);
    }
}

/* The function is separate from weigh_f32_often, because the branches for the sums of earlier turns
 * would slow down the other tiles: up to 5 % if V is in L3. */
static __attribute__((noinline)) void weigh_f32_in_turn(const struct panel *panel,
                                                        const struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        weigh_with_hints(TYPE_F32, panel, weights, OFTEN_IN_TURN, 1);
        break;
    case 2:
        weigh_with_hints(TYPE_F32, panel, weights, OFTEN_IN_TURN, 2);
        break;
    default:
        weigh_with_hints(TYPE_F32, panel, weights, OFTEN_IN_TURN, PANEL_ROWS);
    }
}

void attnkit_avx512_decode_v(const struct panel *panel, const struct weights *weights)
{
    if (panel->turn && panel->block->v.type == TYPE_F32)
        weigh_f32_in_turn(panel, weights);
    else if (gains_by_often(panel))
        weigh_often(panel, weights);
    else
        weigh_by_type(panel, weights);
}
