/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging: each part of a row becomes a softmax state, M = ceil t, l = 2^(t - M), o = out_i * l
 * with t = lse_i / ln 2, and the states are folded and finished as those of chunks of keys are. A
 * tile of rows at a time, and of a wide row some columns, so that the states stay on the stack.
 * Bound by reading the parts.
 */
#include "kernels/attention/merge.h"

#include <math.h>
#include <string.h>

enum {
    STATE_FLOATS = 2048, /* rows x columns of a tile: two states are 16 KiB, half of an L1 cache */
};

/* Some consecutive rows. Offsets are in bytes, from the first row of any part. */
struct tile {
    int rows;
    int64_t part_out[MAX_DECODE_ROWS], part_lse[MAX_DECODE_ROWS];
    char *out[MAX_DECODE_ROWS];
    float *lse[MAX_DECODE_ROWS];
};

/* Adjacent columns of a value row. */
struct columns {
    int64_t first, count;
};

struct place {
    int64_t batch, head, row;
};

static struct place place_of_row(const struct merge *m, int64_t row)
{
    const int64_t head = row / m->q_len;
    return (struct place){head / m->heads, head % m->heads, row % m->q_len};
}

static struct place next_place(const struct merge *m, struct place p)
{
    p.row++;
    if (p.row == m->q_len) {
        p.row = 0;
        p.head++;
    }
    if (p.head == m->heads) {
        p.head = 0;
        p.batch++;
    }
    return p;
}

static int64_t offset_of(struct strides s, struct place p)
{
    return p.batch * s.batch + p.head * s.head + p.row * s.row;
}

/* Divides once for a tile, not for every row. */
static void place_tile(const struct merge *m, int64_t first, struct tile *tile)
{
    struct place p = place_of_row(m, first);
    for (int r = 0; r < tile->rows; r++, p = next_place(m, p)) {
        tile->part_out[r] = offset_of(m->part_out_stride, p);
        tile->part_lse[r] = offset_of(m->part_lse_stride, p);
        tile->out[r] = m->out + offset_of(m->out_stride, p);
        tile->lse[r] = m->lse ? (float *)(m->lse + offset_of(m->lse_stride, p)) : NULL;
    }
}

/* Splits t into *row_max = ceil t and what it returns, t - ceil t, for exp2. In binary64, so that
 * only the difference is rounded to an extent that can be seen. From 2^24 on, where whole numbers
 * have gaps in binary32, the difference means nothing and is 0. */
static float split_lse(float lse, float *row_max)
{
    const double t = (double)lse * LOG2_E;
    const float ceiling = (float)ceil(t);
    if (!(ceiling < INFINITY)) {
        *row_max = 0.0f; /* any number: the sum is NaN, and with it the row */
        return NAN;
    }
    *row_max = ceiling;
    if (ceiling == -INFINITY)
        return -INFINITY;
    return fabs(t) < 0x1p24 ? (float)(t - ceiling) : 0.0f;
}

/* These columns of a part as a state. */
static void take_part(const struct merge *m, const struct kernels *kernels, const struct tile *tile,
                      struct columns columns, int64_t part, const struct state *st)
{
    const char *const lse = (const char *)m->part_lses[part];
    const char *const out = (const char *)(m->part_outs[part] + columns.first);
    float exponent[MAX_DECODE_ROWS];
    for (int r = 0; r < tile->rows; r++)
        exponent[r] = split_lse(*(const float *)(lse + tile->part_lse[r]), &st->row_max[r]);
    kernels->exp2(exponent, st->row_sum, (size_t)tile->rows);
    for (int r = 0; r < tile->rows; r++) {
        float *const o = st->out + r * columns.count;
        if (st->row_max[r] == -INFINITY) /* a row that is absent may hold anything */
            memset(o, 0, (size_t)columns.count * sizeof *o);
        else
            kernels->part_state((const float *)(out + tile->part_out[r]), st->row_sum[r],
                                columns.count, o);
    }
}

/* What no part at all comes to. */
static void take_nothing(const struct tile *tile, struct columns columns, const struct state *st)
{
    for (int r = 0; r < tile->rows; r++)
        st->row_max[r] = -INFINITY;
    memset(st->row_sum, 0, (size_t)tile->rows * sizeof(float));
    memset(st->out, 0, (size_t)(tile->rows * columns.count) * sizeof(float));
}

/* A result of another type than binary32 is made in the state first, and rounded from there. */
static void finish_columns(const struct merge *m, const struct kernels *kernels,
                           const struct tile *tile, struct columns columns, const struct state *st)
{
    float *out[MAX_DECODE_ROWS] = {NULL};
    const bool last = columns.first + columns.count == m->value_dim;
    const bool rounded = m->out_type != TYPE_F32;
    char *rows[MAX_DECODE_ROWS];
    for (int r = 0; r < tile->rows; r++) {
        rows[r] = tile->out[r] + bytes_of(m->out_type, columns.first);
        out[r] = rounded ? st->out + r * columns.count : (float *)rows[r];
    }
    kernels->decode_finish(st, tile->rows, columns.count, out, m->lse && last ? tile->lse : NULL);
    for (int r = 0; r < tile->rows && rounded; r++)
        kernels->narrow(m->out_type, out[r], columns.count, 0, rows[r], NULL);
}

/* An lse is written with the last columns, because it may lie where that of a part is read. */
static void merge_columns(const struct merge *m, const struct kernels *kernels,
                          const struct tile *tile, struct columns columns)
{
    float row_max[2][MAX_DECODE_ROWS] = {{0}}, row_sum[2][MAX_DECODE_ROWS] = {{0}};
    float o[2][STATE_FLOATS];
    const struct state total = {row_max[0], row_sum[0], o[0]};
    const struct state chunk = {row_max[1], row_sum[1], o[1]};
    if (m->parts > 0)
        take_part(m, kernels, tile, columns, 0, &total);
    else
        take_nothing(tile, columns, &total);
    for (int64_t part = 1; part < m->parts; part++) {
        take_part(m, kernels, tile, columns, part, &chunk);
        kernels->decode_fold(&total, &chunk, tile->rows, columns.count);
    }
    finish_columns(m, kernels, tile, columns, &total);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void attnkit_merge_rows(const struct merge *m, const struct kernels *kernels, int64_t first,
                        int64_t end)
{
    const int64_t width = smaller(m->value_dim, STATE_FLOATS);
    const int64_t height = smaller(STATE_FLOATS / width, MAX_DECODE_ROWS);
    struct tile tile;
    for (int64_t row = first; row < end; row += tile.rows) {
        tile.rows = (int)smaller(end - row, height);
        place_tile(m, row, &tile);
        for (int64_t c = 0; c < m->value_dim; c += width)
            merge_columns(m, kernels, &tile, (struct columns){c, smaller(m->value_dim - c, width)});
    }
}
