/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of decode: o[r][c] = fma(o[r][c], rescale[r], chain over keys of fma(p[key][r],
 * v[key][c])), for V of any type, which is widened on the way. Called by decode.c.
 *
 * Lanes are value columns, 2 vectors of them for 4 rows, 4 for fewer. Registers: at most 8 sums, 4
 * weights, 1 of V and its scale are 14 of 16 ymm. Bound by FMA, of which a quantised element takes
 * one more, or by memory.
 */
#include "decode.h"

enum {
    STEP = 4, /* keys between prefetches */
};

/* What a tile has of V. */
struct columns {
    int64_t offset; /* of the bytes of a row that are its elements */
    int64_t scale;  /* TYPE_I8: the one; TYPE_Q8_0: where it is, in bytes after `offset` */
    int64_t width;  /* elements of the last vector */
};

static inline struct columns columns_at(const enum type type, const struct key_rows *v,
                                        int64_t first, int64_t width)
{
    if (type == TYPE_Q8_0) {
        const int64_t in_block = first % Q8_BLOCK;
        return (struct columns){bytes_of(type, first - in_block) + 2 + in_block, -2 - in_block,
                                width};
    }
    return (struct columns){bytes_of(type, first), type == TYPE_I8 ? first / v->scale_group : 0,
                            width};
}

/* The columns of a row, at an address that the compiler takes as it is: it would keep the sum of
 * the offset and each distance in a register of its own, and has too few. */
static inline const char *columns_of(const struct key_row *row, const struct columns *columns)
{
    const char *data = row->data + columns->offset;
    __asm__("" : "+r"(data));
    return data;
}

static inline __attribute__((always_inline)) __m256
load_scale(const enum type type, const struct key_row *row, const char *data, int64_t place)
{
    if (type == TYPE_I8)
        return _mm256_set1_ps(row->scales[place]);
    if (type != TYPE_Q8_0)
        return _mm256_setzero_ps();
    short bits;
    memcpy(&bits, data + place, sizeof bits);
    return _mm256_cvtph_ps(_mm_set1_epi16(bits));
}

static inline __attribute__((always_inline)) void
add_key(const enum type type, const struct key_row *row, const struct columns *columns,
        const float *weights, __m256 sum[][MAX_COLUMNS], const int vectors, const int first_row,
        const int rows)
{
    const enum type stored = type == TYPE_Q8_0 ? TYPE_I8 : type;
    const char *const data = columns_of(row, columns);
    const __m256 scale = load_scale(type, row, data, columns->scale);
    __m256 p[PANEL_ROWS];
    for (int r = first_row; r < first_row + rows; r++)
        p[r] = _mm256_set1_ps(weights[r]);
    for (int j = 0; j < vectors; j++) {
        __m256 x = load_as_f32(stored, data, j * VECTOR, columns->width);
        if (type == TYPE_I8 || type == TYPE_Q8_0)
            x = _mm256_mul_ps(x, scale);
        for (int r = first_row; r < first_row + rows; r++)
            sum[r][j] = multiply_add(p[r], x, sum[r][j], rows * vectors >= LARGE_TILE);
    }
}

/* `vectors` vectors of value columns, with one scale. A row leaves alone the keys that only other
 * rows see: 0 times their V might be NaN. */
static inline __attribute__((always_inline)) void
v_tile(const enum type type, const struct panel *panel, const struct weights *weights,
       int64_t first, int64_t width, struct ahead *ahead, const int vectors, const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    const struct key_row *const row = v->row;
    const struct columns columns = columns_at(type, v, first, width);
    const int fewest = panel->fewest, most = panel->most;
    __m256 sum[PANEL_ROWS][MAX_COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = _mm256_setzero_ps();
    int key = 0;
    for (; key + STEP <= fewest; key += STEP) {
        ask_ahead(ahead);
        for (int i = 0; i < STEP; i++)
            add_key(type, row + key + i, &columns, weights->p[key + i], sum, vectors, 0, rows);
    }
    for (; key < fewest; key++)
        add_key(type, row + key, &columns, weights->p[key], sum, vectors, 0, rows);
    for (; key < most; key++)
        for (int r = 0; r < rows; r++)
            if (key < panel->visible[r])
                add_key(type, row + key, &columns, weights->p[key], sum, vectors, r, 1);
    for (int r = 0; r < rows && r < panel->rows; r++)
        for (int j = 0; j < vectors; j++) {
            float *o = panel->block->st->out + (panel->first + r) * v->dim + first + j * VECTOR;
            const __m256 factor = _mm256_set1_ps(weights->rescale[r]);
            store_first(o, width, _mm256_fmadd_ps(load_first(o, width), factor, sum[r][j]));
        }
}

/* The vectors of the next tile of columns: `most`, or as many of 2 and 1 as there are whole ones
 * left, and have one scale. */
static inline int tile_vectors(const enum type type, const struct key_rows *v, int64_t c,
                               const int most)
{
    int64_t left = v->dim - c;
    if (type == TYPE_I8 && v->scale_group - c % v->scale_group < left)
        left = v->scale_group - c % v->scale_group;
    return left >= most * VECTOR ? most : left >= 2 * VECTOR ? 2 : 1;
}

static inline __attribute__((always_inline)) void weigh_columns(const enum type type,
                                                                const struct panel *panel,
                                                                const struct weights *weights,
                                                                const int rows)
{
    const int most = rows < 4 ? MAX_COLUMNS : 2;
    const struct key_rows *const v = &panel->block->v;
    const struct key_rows *const k = &panel->block->k;
    const struct decode_block *const block = panel->block;
    const int64_t tiles = (v->dim + most * VECTOR - 1) / (most * VECTOR);
    const int64_t steps = (panel->most + STEP - 1) / STEP;
    struct ahead ahead = ask_for(block->next_k, panel->far ? block->next_keys : 0,
                                 bytes_of(k->type, k->dim), tiles * steps);
    for (int64_t c = 0, vectors; c < v->dim; c += vectors * VECTOR) {
        vectors = tile_vectors(type, v, c, most);
        if (vectors == most)
            v_tile(type, panel, weights, c, VECTOR, &ahead, most, rows);
        else if (vectors == 2)
            v_tile(type, panel, weights, c, VECTOR, &ahead, 2, rows);
        else
            v_tile(type, panel, weights, c, v->dim - c < VECTOR ? v->dim - c : VECTOR, &ahead, 1,
                   rows);
    }
}

static inline __attribute__((always_inline)) void
weigh_type(const enum type type, const struct panel *panel, const struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        weigh_columns(type, panel, weights, 1);
        break;
    case 2:
        weigh_columns(type, panel, weights, 2);
        break;
    default:
        weigh_columns(type, panel, weights, PANEL_ROWS);
        break;
    }
}

static __attribute__((noinline)) void weigh_f32(const struct panel *panel,
                                                const struct weights *weights)
{
    weigh_type(TYPE_F32, panel, weights);
}

static __attribute__((noinline)) void weigh_f16(const struct panel *panel,
                                                const struct weights *weights)
{
    weigh_type(TYPE_F16, panel, weights);
}

static __attribute__((noinline)) void weigh_bf16(const struct panel *panel,
                                                 const struct weights *weights)
{
    weigh_type(TYPE_BF16, panel, weights);
}

static __attribute__((noinline)) void weigh_i8(const struct panel *panel,
                                               const struct weights *weights)
{
    weigh_type(TYPE_I8, panel, weights);
}

static __attribute__((noinline)) void weigh_q8_0(const struct panel *panel,
                                                 const struct weights *weights)
{
    weigh_type(TYPE_Q8_0, panel, weights);
}

void attnkit_avx2_decode_v(const struct panel *panel, const struct weights *weights)
{
    switch (panel->block->v.type) {
    case TYPE_F32:
        weigh_f32(panel, weights);
        break;
    case TYPE_F16:
        weigh_f16(panel, weights);
        break;
    case TYPE_BF16:
        weigh_bf16(panel, weights);
        break;
    case TYPE_I8:
        weigh_i8(panel, weights);
        break;
    case TYPE_Q8_0:
        weigh_q8_0(panel, weights);
        break;
    }
}
