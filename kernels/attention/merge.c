/* SPDX-License-Identifier: Apache-2.0
 *
 * Merges results over parts of the keys. A row has a result out_i and a log-sum-exp lse_i for each
 * part i. out_i and lse_i give a softmax state. With t = lse_i * log2 e, the state is M = ceil t, l
 * = 2^(t - M) and o = out_i * l. The states fold into a total, as the states of chunks do. No state
 * is stored: o is computed from out_i while o is folded into the total. The loop merges a tile of
 * rows at a time, and some columns at a time if rows are long. So the total of a tile fits on the
 * stack. Reading the parts takes most of the time.
 */
#include "kernels/attention/merge.h"

#include <math.h>
#include <string.h>

#include "kernels/attention/total.h"

enum {
    TOTAL_DOUBLES = 2048, /* most rows x columns of a tile: 16 KiB, half of an L1 of 32 KiB */
};

/* Some consecutive rows. Offsets are in bytes, from the first row of a part to each row of the
 * tile. The offsets are the same in all parts. */
struct tile {
    int rows;
    int64_t part_out[MAX_DECODE_ROWS], part_lse[MAX_DECODE_ROWS];
    char *out[MAX_DECODE_ROWS];
    float *lse[MAX_DECODE_ROWS];
};

/* Adjacent columns of a value row. */
struct merged_columns {
    int64_t first, count;
};

struct merge_place {
    int64_t batch, head, row;
};

static struct merge_place place_of_row(const struct merge *m, int64_t row)
{
    const int64_t head = row / m->q_len;
    return (struct merge_place){head / m->heads, head % m->heads, row % m->q_len};
}

static struct merge_place next_place(const struct merge *m, struct merge_place p)
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

static int64_t offset_of(struct strides s, struct merge_place p)
{
    return p.batch * s.batch + p.head * s.head + p.row * s.row;
}

/* Finds the addresses of a tile's rows. Divides once for a tile, not for every row. */
static void place_tile(const struct merge *m, int64_t first, struct tile *tile)
{
    struct merge_place p = place_of_row(m, first);
    for (int r = 0; r < tile->rows; r++, p = next_place(m, p)) {
        tile->part_out[r] = offset_of(m->part_out_stride, p);
        tile->part_lse[r] = offset_of(m->part_lse_stride, p);
        tile->out[r] = m->out + offset_of(m->out_stride, p);
        tile->lse[r] = m->lse ? (float *)(m->lse + offset_of(m->lse_stride, p)) : NULL;
    }
}

/* Splits t = lse * log2 e into *row_max = ceil t and the result t - ceil t, for exp2. t is computed
 * in binary64, so that only the rounding of the difference to binary32 matters. For |t| >= 2^24,
 * binary32 cannot hold every integer, so ceil t is rounded. The difference of t and a rounded ceil
 * t means nothing, so the result is 0. */
static float split_lse(float lse, float *row_max)
{
    const double t = (double)lse * LOG2_E;
    const float ceiling = (float)ceil(t);
    if (!(ceiling < INFINITY)) {
        *row_max = 0.0f; /* any number is right here: the sum is NaN, and so is the row */
        return NAN;
    }
    *row_max = ceiling;
    if (ceiling == -INFINITY)
        return -INFINITY;
    return fabs(t) < 0x1p24 ? (float)(t - ceiling) : 0.0f;
}

/* Folds the columns `columns` of a part into the total. */
static void fold_part(const struct merge *m, const struct kernels *kernels, const struct tile *tile,
                      struct merged_columns columns, int64_t part, const struct total *total)
{
    const char *const lse = (const char *)m->part_lses[part];
    const char *const out = (const char *)(m->part_outs[part] + columns.first);
    float exponent[MAX_DECODE_ROWS], row_max[MAX_DECODE_ROWS], row_sum[MAX_DECODE_ROWS];
    for (int r = 0; r < tile->rows; r++)
        exponent[r] = split_lse(*(const float *)(lse + tile->part_lse[r]), &row_max[r]);
    kernels->exp2(exponent, row_sum, (size_t)tile->rows);
    for (int r = 0; r < tile->rows; r++) {
        if (row_max[r] == -INFINITY) /* the row has no keys: its `out` may hold anything */
            continue;
        const struct factors f =
            fold_sum(&total->row_max[r], &total->row_sum[r], row_max[r], row_sum[r]);
        kernels->fold_row(total->out + r * columns.count, (const float *)(out + tile->part_out[r]),
                          f.total, f.state * (double)row_sum[r], columns.count);
    }
}

/* Sets the total to the state of a row without keys. */
static void begin_total(const struct tile *tile, struct merged_columns columns,
                        const struct total *total)
{
    for (int r = 0; r < tile->rows; r++) {
        total->row_max[r] = -INFINITY;
        total->row_sum[r] = 0.0;
        memset(total->out + r * columns.count, 0, (size_t)columns.count * sizeof(double));
    }
}

/* Writes the results of some columns. A result that is not binary32 is first written to `line`, and
 * then rounded. */
static void finish_columns(const struct merge *m, const struct kernels *kernels,
                           const struct tile *tile, struct merged_columns columns,
                           const struct total *total, float *line)
{
    const bool rounded = m->out_type != TYPE_F32;
    for (int r = 0; r < tile->rows; r++) {
        char *const row = tile->out[r] + bytes_of(m->out_type, columns.first);
        float *const out = rounded ? line : (float *)row;
        const double *const o = total->out + r * columns.count;
        const double divisor = divisor_of(total->row_sum[r]);
        if (kernels->quotient_row(o, divisor, columns.count, out))
            divide_not_finite(o, divisor, columns.count, out);
        if (rounded)
            kernels->narrow(m->out_type, out, columns.count, 0, row, NULL);
    }
}

static void finish_lse(const struct kernels *kernels, const struct tile *tile,
                       const struct total *total)
{
    float row_sum[MAX_DECODE_ROWS] = {0}, *out[MAX_DECODE_ROWS] = {NULL};
    for (int r = 0; r < tile->rows; r++)
        row_sum[r] = (float)total->row_sum[r];
    const struct state st = {total->row_max, row_sum, NULL};
    kernels->decode_finish(&st, tile->rows, 0, out, tile->lse);
}

/* Merges some columns of a tile. The lse of the result may lie in the memory of the lse of a part,
 * and each call of this function for the tile reads the lse of all parts. Therefore lse is written
 * only with the last columns. */
static void merge_columns(const struct merge *m, const struct kernels *kernels,
                          const struct tile *tile, struct merged_columns columns)
{
    float row_max[MAX_DECODE_ROWS] = {0}, line[TOTAL_DOUBLES];
    double row_sum[MAX_DECODE_ROWS], o[TOTAL_DOUBLES];
    const struct total total = {row_max, row_sum, o};
    begin_total(tile, columns, &total);
    for (int64_t part = 0; part < m->parts; part++)
        fold_part(m, kernels, tile, columns, part, &total);
    finish_columns(m, kernels, tile, columns, &total, line);
    if (m->lse && columns.first + columns.count == m->value_dim)
        finish_lse(kernels, tile, &total);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void attnkit_merge_rows(const struct merge *m, const struct kernels *kernels, int64_t first,
                        int64_t end)
{
    const int64_t width = smaller(m->value_dim, TOTAL_DOUBLES);
    const int64_t height = smaller(TOTAL_DOUBLES / width, MAX_DECODE_ROWS);
    struct tile tile;
    for (int64_t row = first; row < end; row += tile.rows) {
        tile.rows = (int)smaller(end - row, height);
        place_tile(m, row, &tile);
        for (int64_t c = 0; c < m->value_dim; c += width)
            merge_columns(m, kernels, &tile,
                          (struct merged_columns){c, smaller(m->value_dim - c, width)});
    }
}
