/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of decode: o[r][c] = fma(o[r][c], rescale[r], chain over keys of p[key][r] *
 * v[key][c]). V may have any type of struct key_rows, and is widened in registers. decode.c of this
 * folder calls decode_v.
 *
 * Lanes are value columns. A tile has at most 2 vectors of columns for 4 rows, and at most 4
 * vectors for 1 or 2 rows. Registers: at most 8 sums, 4 vectors of V, their scale, a weight and the
 * constants that widen bytes take 16 ymm. FMA or memory limits the speed. A quantised element takes
 * one more multiplication, by its scale. 8 sums are just enough to keep the FMA ports busy, so any
 * other work of these ports delays the sums.
 */
#include "kernels/avx2/decode.h"

enum {
    STEP = 4, /* keys between prefetches */
};

/* The columns of V in a tile. */
struct columns {
    int64_t offset; /* bytes from the start of a row to the columns */
    int64_t
        scale; /* TYPE_I8: index of the scale; TYPE_Q8_0: its place in bytes relative to `offset` */
};

static inline struct columns columns_at(const enum type type, const struct key_rows *v,
                                        int64_t first)
{
    if (type == TYPE_Q8_0) {
        const int64_t in_block = first % Q8_BLOCK;
        return (struct columns){bytes_of(type, first - in_block) + 2 + in_block, -2 - in_block};
    }
    return (struct columns){bytes_of(type, first), type == TYPE_I8 ? first / v->scale_group : 0};
}

/* The scale of each key for a group of columns, and for TYPE_Q8_0 the numbers that are subtracted
 * after the multiplication. */
struct group_scales {
    _Alignas(32) float scale[KEY_BLOCK];
    _Alignas(32) float zero[KEY_BLOCK];
};

/* Collects the scales of column c of all keys. Returns false if a scale of TYPE_Q8_0 is not finite.
 * The scales are collected once for all tiles of the group, because the scales lie far from each
 * other, and scales of TYPE_Q8_0 have to be widened. */
static inline __attribute__((always_inline)) bool collect_scales(const enum type type,
                                                                 const struct panel *panel,
                                                                 int64_t c,
                                                                 struct group_scales *scales)
{
    const struct key_rows *const v = &panel->block->v;
    const int begin = type == TYPE_Q8_0 ? first_key(panel) : 0;
    const char *const *const row = v->row + begin;
    bool exact = true;
    for (int key = 0; key < panel->most - begin; key += VECTOR) {
        const __m256 scale = scales_at(type, v, row + key, c);
        _mm256_store_ps(scales->scale + key, scale);
        if (type == TYPE_Q8_0) {
            const __m256 zero = _mm256_mul_ps(scale, _mm256_set1_ps(LARGE));
            _mm256_store_ps(scales->zero + key, zero);
            exact &= is_finite(zero);
        }
    }
    return exact;
}

/* Returns the address of the columns in a row. The assembly hides where the row's address comes
 * from, so that the compiler uses the offset as the index of loads. Otherwise the compiler would
 * keep, in a register for each vector, the offset plus the vector's distance from the first column.
 * There are too few registers for this. */
static inline const char *columns_of(const char *const *row, const struct columns *columns)
{
    const char *data = *row;
    __asm__("" : "+r"(data));
    return data + columns->offset;
}

static inline __attribute__((always_inline)) __m256
load_scale(const enum type type, const struct key_rows *v, int key, const char *data, int64_t place)
{
    if (type == TYPE_I8)
        return _mm256_set1_ps(v->scales[key][place]);
    if (type != TYPE_Q8_0)
        return _mm256_setzero_ps();
    return _mm256_cvtph_ps(_mm_broadcastw_epi16(scale_bits(data + place)));
}

/* Loads pairs of vectors of TYPE_BF16: the first vector of a pair has the even columns, the second
 * vector has the odd columns. */
static inline __attribute__((always_inline)) void load_even_odd(const char *data, __m256 x[],
                                                                const int vectors)
{
    for (int j = 0; j < vectors; j += 2) {
        const char *const from = data + bytes_of(TYPE_BF16, j * VECTOR);
        const __m256i bits = _mm256_loadu_si256((const __m256i *)from);
        x[j] = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
        x[j + 1] = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32((int)0xffff0000)));
    }
}

/* Brings the columns of a pair into the order of memory. */
static inline __attribute__((always_inline)) void order_pair(__m256 x[2])
{
    const __m256 low = _mm256_unpacklo_ps(x[0], x[1]), high = _mm256_unpackhi_ps(x[0], x[1]);
    x[0] = _mm256_permute2f128_ps(low, high, 0x20);
    x[1] = _mm256_permute2f128_ps(low, high, 0x31);
}

/* Loads two vectors or more of the columns of a key. Vectors of TYPE_BF16 are in the order of
 * load_even_odd. */
static inline __attribute__((always_inline)) void
load_pairs(const enum type type, const char *const *row, int key, const struct columns *columns,
           const struct group_scales *scales, __m256 x[], const int vectors)
{
    row += key;
    if (type == TYPE_I8 || type == TYPE_Q8_0) {
        const char *const data = columns_of(row, columns);
        const __m256 scale = _mm256_set1_ps(scales->scale[key]);
        const __m256 zero =
            type == TYPE_Q8_0 ? _mm256_set1_ps(scales->zero[key]) : _mm256_setzero_ps();
        for (int j = 0; j < vectors; j++)
            x[j] = type == TYPE_Q8_0 ? _mm256_fmsub_ps(add_large(data + j * VECTOR), scale, zero)
                                     : _mm256_mul_ps(load_bytes(data + j * VECTOR, j), scale);
    } else if (type == TYPE_BF16) {
        load_even_odd(*row + columns->offset, x, vectors);
    } else {
        const char *const data = columns_of(row, columns);
        for (int j = 0; j < vectors; j++)
            x[j] = load_as_f32(type, data, j * VECTOR, VECTOR);
    }
}

/* Loads one vector of columns. */
static inline __attribute__((always_inline)) __m256 load_single(const enum type type,
                                                                const struct key_rows *v,
                                                                const char *const *row, int key,
                                                                const struct columns *columns)
{
    const bool scaled = type == TYPE_I8 || type == TYPE_Q8_0;
    const char *const data = columns_of(row + key, columns);
    const __m256 x = load_as_f32(scaled ? TYPE_I8 : type, data, 0, VECTOR);
    return scaled ? _mm256_mul_ps(x, load_scale(type, v, key, data, columns->scale)) : x;
}

/* What add_key multiplies for each key: V with its scales, and the weights. */
struct terms {
    const struct key_rows *v;
    const char *const *row; /* the row of V of key 0 */
    const struct group_scales *scales;
    const float (*p)[PANEL_ROWS]; /* the weights of key 0 */
};

static inline __attribute__((always_inline)) void
add_key(const enum type type, const struct terms *terms, int key, const struct columns *columns,
        __m256 sum[][MAX_COLUMNS], const int vectors, const int first_row, const int rows)
{
    __m256 x[MAX_COLUMNS];
    if (vectors == 1)
        x[0] = load_single(type, terms->v, terms->row, key, columns);
    else
        load_pairs(type, terms->row, key, columns, terms->scales, x, vectors);
    for (int r = first_row; r < first_row + rows; r++) {
        const __m256 p = _mm256_set1_ps(terms->p[key][r]);
        for (int j = 0; j < vectors; j++)
            sum[r][j] = multiply_add(p, x[j], sum[r][j], rows * vectors >= LARGE_TILE);
    }
}

/* Returns whether a tile may compute its block in several turns (struct turn). The arguments are
 * constants, so that the compiler leaves out the code of turns in the tiles that have none. Turns
 * of TYPE_F32 have their own function (attnkit_avx2_decode_v_turn). */
static inline bool can_turn(const enum type type, const int vectors)
{
    return type == TYPE_Q8_0 || ((type == TYPE_F16 || type == TYPE_BF16) && vectors > 1);
}

/* load_sums continues with the sums of an earlier turn, which store_sums has stored. A row of
 * turn->sums has `dim` columns. */
static inline __attribute__((always_inline)) void load_sums(const float *sums, int64_t dim,
                                                            __m256 sum[][MAX_COLUMNS],
                                                            const int vectors, const int rows)
{
    for (int r = 0; r < rows; r++, sums += dim)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = load_floats(sums + j * VECTOR);
}

static inline __attribute__((always_inline)) void
store_sums(float *sums, int64_t dim, __m256 sum[][MAX_COLUMNS], const int vectors, const int rows)
{
    for (int r = 0; r < rows; r++, sums += dim)
        for (int j = 0; j < vectors; j++)
            store_floats(sums + j * VECTOR, sum[r][j]);
}

/* Computes `vectors` vectors of value columns. If the type has scales, these columns share a scale
 * in each row of V. A query row skips the keys that only other query rows see, because 0 times V of
 * these keys might be NaN. in_turn says whether the tile has only the keys of panel->turn. */
static inline __attribute__((always_inline)) void
v_tile(const enum type type, const struct panel *panel, const struct weights *weights,
       const struct group_scales *scales, int64_t first, struct ahead *ahead, const int vectors,
       const int rows, const bool in_turn)
{
    const struct key_rows *const v = &panel->block->v;
    const int begin = in_turn ? panel->turn->begin : 0;
    const struct terms terms = {v, v->row + begin, scales, weights->p + begin};
    const struct columns columns = columns_at(type, v, first);
    const int fewest = panel->fewest - begin, most = panel->most - begin;
    __m256 sum[PANEL_ROWS][MAX_COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = _mm256_setzero_ps();
    begin_tile(ahead);
    if (begin > 0)
        load_sums(panel->turn->sums + first, v->dim, sum, vectors, rows);
    int key = 0;
    for (; key + STEP <= fewest; key += STEP) {
        prefetch_ahead(ahead, type);
        for (int i = 0; i < STEP; i++)
            add_key(type, &terms, key + i, &columns, sum, vectors, 0, rows);
    }
    /* A turn has a multiple of STEP keys, and all rows see them. */
    for (const int64_t end = in_turn ? key : unbounded(fewest); key < end; key++)
        add_key(type, &terms, key, &columns, sum, vectors, 0, rows);
    for (; !in_turn && rows > 1 && key < most; key++)
        for (int r = 0; r < rows; r++)
            if (unbounded(key) < panel->visible[r])
                add_key(type, &terms, key, &columns, sum, vectors, r, 1);
    if (in_turn && panel->turn->end < KEY_BLOCK) {
        store_sums(panel->turn->sums + first, v->dim, sum, vectors, rows);
        return;
    }
    for (int r = 0; r < rows && r < panel->rows; r++) {
        for (int j = 0; j + 1 < vectors && type == TYPE_BF16; j += 2)
            order_pair(sum[r] + j);
        for (int j = 0; j < vectors; j++) {
            float *o = panel->block->st->out + (panel->first + r) * v->dim + first + j * VECTOR;
            const __m256 factor = _mm256_set1_ps(weights->rescale[r]);
            store_floats(o, _mm256_fmadd_ps(load_floats(o), factor, sum[r][j]));
        }
    }
}

/* Computes the last columns, which fill less than a vector. */
static inline __attribute__((always_inline)) void
part_tile(const struct panel *panel, const struct weights *weights, int64_t first, const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    const int64_t width = v->dim - first;
    __m256 sum[PANEL_ROWS];
    for (int r = 0; r < rows; r++)
        sum[r] = _mm256_setzero_ps();
    for (int key = 0; key < panel->most; key++) {
        /* The usual number of last columns is four. If the number is a constant, load_part calls no
         * memcpy. */
        const __m256 x = width == 4 ? load_part(v, v->row + key, first, 4)
                                    : load_part(v, v->row + key, first, width);
        for (int r = 0; r < rows; r++)
            if (key < panel->visible[r])
                sum[r] = _mm256_fmadd_ps(_mm256_set1_ps(weights->p[key][r]), x, sum[r]);
    }
    for (int r = 0; r < rows && r < panel->rows; r++) {
        float *const o = panel->block->st->out + (panel->first + r) * v->dim + first;
        const __m256 factor = _mm256_set1_ps(weights->rescale[r]);
        store_first(o, width, _mm256_fmadd_ps(load_first(o, width), factor, sum[r]));
    }
}

/* Does the work of part_tile for any number of rows. All types share this function, because it is
 * seldom called: value_dim is a multiple of VECTOR in almost all models. To save code, 2 rows are
 * computed as 4. */
static __attribute__((noinline)) void weigh_part(const struct panel *panel,
                                                 const struct weights *weights, int64_t first)
{
    if (panel->rows == 1)
        part_tile(panel, weights, first, 1);
    else
        part_tile(panel, weights, first, PANEL_ROWS);
}

/* Returns how many columns from c on have the same scale, or how many columns are left if the type
 * has no scales. */
static inline int64_t group_left(const enum type type, const struct key_rows *v, int64_t c)
{
    const int64_t left = v->dim - c, group = type == TYPE_I8     ? v->scale_group
                                             : type == TYPE_Q8_0 ? (int64_t)Q8_BLOCK
                                                                 : left;
    return group - c % group < left ? group - c % group : left;
}

/* Returns the number of vectors in the next tile of columns: `most`, 2 or 1. */
static inline int tile_vectors(int64_t left, const int most)
{
    return left >= most * VECTOR ? most : left >= 2 * VECTOR ? 2 : 1;
}

/* Returns what to prefetch while V is read, in `tiles` tiles with `times` calls of prefetch_ahead
 * each: the next rows of K, or in a turn its pieces of memory. The function is called only once for
 * each block or turn, so short code matters more than time. */
static __attribute__((noinline)) struct ahead ahead_of_v(const struct panel *panel, int64_t tiles,
                                                         int64_t times)
{
    const struct decode_block *const block = panel->block;
    if (panel->turn)
        return ask_in_turn(panel->turn, tiles, times);
    return ask_for(block->next_k, panel->far ? block->next_keys : 0,
                   bytes_of(block->k.type, block->k.dim), tiles, times);
}

static inline __attribute__((always_inline)) void weigh_rows(const enum type type,
                                                             const struct panel *panel,
                                                             const struct weights *weights,
                                                             const int rows)
{
    const int most = rows < 4 ? MAX_COLUMNS : 2;
    const struct key_rows *const v = &panel->block->v;
    const int64_t whole = v->dim - v->dim % VECTOR; /* columns in whole vectors */
    const int64_t tiles = whole > 0 ? (whole + most * VECTOR - 1) / (most * VECTOR) : 1;
    const int64_t steps = (panel->most - first_key(panel) + STEP - 1) / STEP;
    const bool scaled = type == TYPE_I8 || type == TYPE_Q8_0;
    struct ahead ahead = ahead_of_v(panel, tiles, steps);
    struct group_scales scales;
    bool exact = true;
    /* A group of TYPE_Q8_0 fills whole tiles, so this type needs no tile of 2 vectors beside 4. */
    for (int64_t c = 0, group_end = 0, vectors; c < whole; c += vectors * VECTOR) {
        if (c >= group_end) {
            group_end = c + group_left(type, v, c);
            if (scaled)
                exact = collect_scales(type, panel, c, &scales);
        }
        vectors = exact ? tile_vectors(group_end - c, most) : 1;
        if (vectors == most)
            v_tile(type, panel, weights, &scales, c, &ahead, most, rows,
                   can_turn(type, most) && panel->turn);
        else if (most > 2 && type != TYPE_Q8_0 && vectors == 2)
            v_tile(type, panel, weights, &scales, c, &ahead, 2, rows,
                   can_turn(type, 2) && panel->turn);
        else
            v_tile(type, panel, weights, &scales, c, &ahead, 1, rows,
                   can_turn(type, 1) && panel->turn);
    }
    if (whole < v->dim)
        weigh_part(panel, weights, whole);
}

#include "kernels/vectors/decode/weigh_by_type.h"

void attnkit_avx2_decode_v(const struct panel *panel, const struct weights *weights)
{
    weigh_by_type(panel, weights);
}

/* Computes a turn of TYPE_F32, with the number of rows as a constant. */
static inline __attribute__((always_inline)) void
weigh_turn_of(const struct panel *panel, const struct weights *weights, const int rows)
{
    const int64_t dim = panel->block->v.dim, tiles = dim / (2 * VECTOR);
    const int64_t steps = (panel->most - first_key(panel) + STEP - 1) / STEP;
    struct ahead ahead = ahead_of_v(panel, tiles, steps);
    for (int64_t c = 0; c < dim; c += 2 * VECTOR)
        v_tile(TYPE_F32, panel, weights, NULL, c, &ahead, 2, rows, true);
}

/* Computes a turn of TYPE_F32. The number of columns is a multiple of 2 * VECTOR, because it is a
 * multiple of MAX_VECTOR (attnkit_avx2_together_rows). The turns have their own function, because
 * with tiles that can take turns, decoding without turns would take 1.01 to 1.03 of its time. */
void attnkit_avx2_decode_v_turn(const struct panel *panel, const struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        weigh_turn_of(panel, weights, 1);
        break;
    case 2:
        weigh_turn_of(panel, weights, 2);
        break;
    default:
        weigh_turn_of(panel, weights, PANEL_ROWS);
    }
}
