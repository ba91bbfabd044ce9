/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of decode: o[r][c] = fma(o[r][c], rescale[r], chain over keys of fma(p[key][r],
 * v[key][c])), for V of any type, which is widened on the way. Called by decode.c.
 *
 * Lanes are value columns, 4 vectors of them. Registers: at most 16 sums, 4 weights, 1 of V and its
 * scale are 22 of 32 zmm. Bound by FMA, of which a quantised element takes one more, or by memory.
 */
#include "decode.h"

enum {
    STEP = 2, /* keys between prefetches */
};

/* What a tile has of V: where its elements and their scales are in a row. */
struct columns {
    int64_t first, width; /* width: elements of the last vector */
    int64_t place[MAX_COLUMNS];
};

static inline __attribute__((always_inline)) void
add_key(const enum type type, const struct key_row *row, const struct columns *columns,
        const float *weights, __m512 sum[][MAX_COLUMNS], const int vectors, const int first_row,
        const int rows)
{
    __m512 p[PANEL_ROWS], scale = _mm512_setzero_ps();
    for (int r = first_row; r < first_row + rows; r++)
        p[r] = _mm512_set1_ps(weights[r]);
    for (int j = 0; j < vectors; j++) {
        if (j % 2 == 0 || type == TYPE_I8)
            scale = load_scale(type, row, columns->place[j]);
        const __m512 x = load_scaled(type, row, columns->first + j * VECTOR, columns->width,
                                     columns->place[j], scale);
        for (int r = first_row; r < first_row + rows; r++)
            sum[r][j] = _mm512_fmadd_ps(p[r], x, sum[r][j]);
    }
}

/* `vectors` vectors of value columns. A row leaves alone the keys that only other rows see: 0 times
 * their V might be NaN. */
static inline __attribute__((always_inline)) void
v_tile(const enum type type, const struct panel *panel, const struct weights *weights,
       int64_t first, int64_t width, struct ahead *ahead, const int vectors, const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    struct columns columns = {.first = first, .width = width};
    for (int j = 0; j < vectors; j++)
        columns.place[j] = scale_place(type, v->scale_group, first + j * VECTOR);
    __m512 sum[PANEL_ROWS][MAX_COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = _mm512_setzero_ps();
    int key = 0;
    for (; key + STEP <= panel->fewest; key += STEP) {
        if (ahead)
            work_on(type, ahead, STEP);
        for (int i = 0; i < STEP; i++)
            add_key(type, v->row + key + i, &columns, weights->p[key + i], sum, vectors, 0, rows);
    }
    for (; key < panel->fewest; key++)
        add_key(type, v->row + key, &columns, weights->p[key], sum, vectors, 0, rows);
    for (; key < panel->most; key++)
        for (int r = 0; r < rows; r++)
            if (key < panel->visible[r])
                add_key(type, v->row + key, &columns, weights->p[key], sum, vectors, r, 1);
    for (int r = 0; r < rows && r < panel->rows; r++)
        for (int j = 0; j < vectors; j++) {
            float *o = panel->block->st->out + (panel->first + r) * v->dim + first + j * VECTOR;
            const __m512 factor = _mm512_set1_ps(weights->rescale[r]);
            store_first(o, width, _mm512_fmadd_ps(load_first(o, width), factor, sum[r][j]));
        }
}

static inline __attribute__((always_inline)) void weigh_columns(const enum type type,
                                                                const struct panel *panel,
                                                                const struct weights *weights,
                                                                const int rows)
{
    const int vectors = MAX_COLUMNS;
    const int64_t dim = panel->block->v.dim;
    const struct key_rows *const k = &panel->block->k;
    const struct decode_block *const block = panel->block;
    struct ahead asked = {.row = block->next_k,
                          .end = block->next_k + block->next_keys,
                          .bytes = bytes_of(k->type, k->dim),
                          .cost = (dim + vectors * VECTOR - 1) / (vectors * VECTOR)};
    struct ahead *const ahead = panel->far && block->next_keys ? &asked : NULL;
    int64_t c = 0;
    for (; c + vectors * VECTOR <= dim; c += vectors * VECTOR)
        v_tile(type, panel, weights, c, VECTOR, ahead, vectors, rows);
    for (; c + VECTOR <= dim; c += VECTOR)
        v_tile(type, panel, weights, c, VECTOR, ahead, 1, rows);
    if (c < dim)
        v_tile(type, panel, weights, c, dim - c, ahead, 1, rows);
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

void attnkit_avx512_decode_v(const struct panel *panel, const struct weights *weights)
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
