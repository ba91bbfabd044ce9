/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps: y[i][o] = chain over d of x[i][d] * w[d][o], then + bias[o]. Lanes are outputs.
 * kernels/linear/linear.c calls `product` for up to 256 rows, 48 outputs and 512 inputs at a time.
 * Types, numbers of rows and numbers of tiles are constants of the inlined functions.
 *
 * A register tile has a group of up to 8 rows x 2 vectors. The 2 vectors are half a tile of the
 * matrix. A register tile of 8 rows takes 20 of 32 registers: 16 sums, 2 vectors of w and 2 of x.
 * Each d then takes 16 fmla, which limit the speed, and 2 loads of two vectors each. A product of
 * few rows has register tiles of up to 6 rows x 4 vectors and reads the matrix once. For f16 and
 * bytes, the conversions limit the speed of this product. For a single row and a matrix of
 * binary32, 2 tiles are read side by side, because 4 sums are too few to hide the latency of fmla.
 */
#include "kernels/neon/neon.h"
#include "kernels/vectors/tile_reader.h"

enum {
    WIDTH = 2,     /* vectors of outputs of a register tile, which has ROW_GROUP rows */
    MAX_TILES = 2, /* most tiles of the matrix that few_product reads side by side */
};

static inline float *y_row(const struct product *p, int i)
{
    return (float *)((char *)p->y + i * p->y_stride);
}

static inline const float *sums_row(const struct product *p, int i)
{
    return (const float *)((const char *)p->sums + i * p->sums_stride);
}

/* Loads the sums over earlier inputs. Loading and zeroing the sums are two loops: in one loop, gcc
 * has too much to unroll and leaves the sums in memory. */
static inline __attribute__((always_inline)) void load_sums(const struct product *p, int first,
                                                            int64_t out, const int rows,
                                                            float32x4_t sum[ROW_GROUP][WIDTH])
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < WIDTH; j++)
            sum[i][j] = vld1q_f32(sums_row(p, first + i) + out + j * VECTOR);
}

static inline __attribute__((always_inline)) void add_bias(const float *bias, const int rows,
                                                           float32x4_t sum[ROW_GROUP][WIDTH])
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < WIDTH; j++)
            sum[i][j] = vaddq_f32(sum[i][j], vld1q_f32(bias + j * VECTOR));
}

/* Returns whether a sum is NaN. Each row has `vectors` vectors of sums. If a sum is NaN, the caller
 * goes through y again and makes every NaN the same. The maximum of a NaN and any number is NaN. */
static inline __attribute__((always_inline)) bool has_nan(const float32x4_t *sum, const int rows,
                                                          const int vectors)
{
    float32x4_t most = vdupq_n_f32(0.0f);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            most = vmaxq_f32(most, sum[i * vectors + j]);
    return isnan(vmaxvq_f32(most));
}

/* Makes every NaN in the results of a register tile the same. */
static __attribute__((cold, noinline)) void settle_tile(const struct product *p, int first,
                                                        int rows, int64_t out)
{
    float *y[ROW_GROUP];
    for (int i = 0; i < rows; i++)
        y[i] = y_row(p, first + i) + out;
    attnkit_neon_settle(rows, WIDTH * VECTOR, y);
}

/* Adds the products of one input to the sums, for a group of rows. */
static inline __attribute__((always_inline)) void
multiply(const float *x, const float *w, const int rows, float32x4_t sum[ROW_GROUP][WIDTH])
{
    float32x4_t x_d[ROW_GROUP / VECTOR], w_d[WIDTH];
    for (int i = 0; i < rows; i += VECTOR)
        x_d[i / VECTOR] = vld1q_f32(x + i);
    for (int j = 0; j < WIDTH; j++)
        w_d[j] = vld1q_f32(w + j * VECTOR);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < WIDTH; j++)
            sum[i][j] = vfmaq_n_f32(sum[i][j], w_d[j], x_d[i / VECTOR][i % VECTOR]);
}

/* Computes WIDTH vectors of outputs, from output `out` on, for the group of rows at x. The first
 * row of the group is `first`. */
static inline __attribute__((always_inline)) void
product_tile(const struct product *p, const float *x, int first, int64_t out, const int rows)
{
    const float *w = matrix_at(p, out);
    float32x4_t sum[ROW_GROUP][WIDTH];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < WIDTH; j++)
            sum[i][j] = vdupq_n_f32(0.0f);
    if (p->sums)
        load_sums(p, first, out, rows, sum);
    for (int64_t d = 0; d < p->dim; d++, x += ROW_GROUP, w += TILE_KEYS)
        multiply(x, w, rows, sum);
    if (p->bias)
        add_bias(p->bias + out, rows, sum);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < WIDTH; j++)
            vst1q_f32(y_row(p, first + i) + out + j * VECTOR, sum[i][j]);
    if (has_nan(sum[0], rows, WIDTH))
        settle_tile(p, first, rows, out);
}

/* Computes the outputs of all whole tiles, for a group of rows. The group stays in L1. */
static inline __attribute__((always_inline)) void
whole_tiles_of(const struct product *p, const float *x, int first, const int rows)
{
    const int64_t end = p->outs / TILE_KEYS * TILE_KEYS;
    for (int64_t out = 0; out < end; out += WIDTH * VECTOR)
        product_tile(p, x, first, out, rows);
}

static void whole_tiles(const struct product *p, const float *x, int first, int rows)
{
    switch (rows) {
    case 8:
        whole_tiles_of(p, x, first, 8);
        break;
    case 7:
        whole_tiles_of(p, x, first, 7);
        break;
    case 6:
        whole_tiles_of(p, x, first, 6);
        break;
    case 5:
        whole_tiles_of(p, x, first, 5);
        break;
    case 4:
        whole_tiles_of(p, x, first, 4);
        break;
    case 3:
        whole_tiles_of(p, x, first, 3);
        break;
    case 2:
        whole_tiles_of(p, x, first, 2);
        break;
    default:
        whole_tiles_of(p, x, first, 1);
    }
}

/* Copies `bytes` bytes of the bias, from output `out` on, into `copy`, which has room for a whole
 * tile. Returns `copy`, or NULL if there is no bias. */
static const float *padded(const float *bias, int64_t out, size_t bytes, float copy[TILE_KEYS])
{
    return bias ? memcpy(copy, bias + out, bytes) : NULL;
}

/* Computes the last tile, which begins at output `out` and has fewer outputs than a whole tile.
 * Uses buffers with room for a whole tile. */
static void last_tile(const struct product *p, const float *x, int first, int64_t out, int rows)
{
    float y[ROW_GROUP][TILE_KEYS] = {{0}}, bias[TILE_KEYS] = {0};
    const size_t bytes = (size_t)(p->outs - out) * sizeof(float);
    struct product whole = *p;
    whole.w = matrix_at(p, out);
    whole.sums = p->sums ? y[0] : NULL;
    whole.y = y[0];
    whole.sums_stride = whole.y_stride = sizeof y[0];
    whole.outs = TILE_KEYS;
    whole.bias = padded(p->bias, out, bytes, bias);
    for (int i = 0; i < rows && p->sums; i++)
        memcpy(y[i], sums_row(p, first + i) + out, bytes);
    whole_tiles(&whole, x, 0, rows);
    for (int i = 0; i < rows; i++)
        memcpy(y_row(p, first + i) + out, y[i], bytes);
}

void attnkit_neon_product(const struct product *p)
{
    const int64_t out = p->outs / TILE_KEYS * TILE_KEYS;
    const float *x = p->x;
    int rows;
    for (int i = 0; i < p->rows; i += rows, x += p->dim * ROW_GROUP) {
        rows = tile_height(p->rows - i, ROW_GROUP);
        whole_tiles(p, x, i, rows);
        if (out < p->outs)
            last_tile(p, x, i, out, rows);
    }
}

/* -------------------------------------------------------------------------------- few rows */

/* Makes the compiler finish the sums in `sum` before it loads another element of x. Without the
 * empty statement, compilers load the elements of all rows early, and more than 16 sums leave no
 * registers for these elements. */
static inline __attribute__((always_inline)) void add_first(int64_t *d,
                                                            float32x4_t sum[TILE_VECTORS])
{
    __asm__("" : "+r"(*d), "+w"(sum[0]), "+w"(sum[1]), "+w"(sum[2]), "+w"(sum[3]));
}

/* Adds the products of input d to the sums, for `rows` rows and a tile of the matrix. */
static inline __attribute__((always_inline)) void add_input(const float *const *x, int64_t d,
                                                            const float32x4_t w[TILE_VECTORS],
                                                            float32x4_t sum[][TILE_VECTORS],
                                                            const int rows)
{
    for (int i = 0; i < rows; i++) {
        const float x_d = load_scalar(x[i] + d);
        for (int j = 0; j < TILE_VECTORS; j++)
            sum[i][j] = vfmaq_n_f32(sum[i][j], w[j], x_d);
        if (rows * TILE_VECTORS > 16)
            add_first(&d, sum[i]);
    }
}

static __attribute__((cold, noinline)) void settle_few(float *const *rows_of_y, int64_t out,
                                                       int rows)
{
    float *y[MATRIX_ROWS];
    for (int i = 0; i < rows; i++)
        y[i] = rows_of_y[i] + out;
    attnkit_neon_settle(rows, TILE_KEYS, y);
}

/* Adds the bias, if there is one, and stores the sums in the rows of y, from output `out` on. */
static inline __attribute__((always_inline)) void store_sums(float32x4_t sum[][TILE_VECTORS],
                                                             const float *bias, float *const *y,
                                                             int64_t out, const int rows)
{
    if (bias)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[i][j] = vaddq_f32(sum[i][j], vld1q_f32(bias + out + j * VECTOR));
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < TILE_VECTORS; j++)
            vst1q_f32(y[i] + out + j * VECTOR, sum[i][j]);
    if (has_nan(sum[0], rows, TILE_VECTORS))
        settle_few(y, out, rows);
}

/* Computes all rows, for `tiles` whole tiles of the matrix from output `out` on. */
static inline __attribute__((always_inline)) void few_tiles(const enum type type,
                                                            const struct few_product *p,
                                                            int64_t out, const int rows,
                                                            const int tiles)
{
    const int64_t step = TILE_KEYS * bytes_of(type, p->dim);
    const float *x[MATRIX_ROWS];
    struct tile_reader reader[MAX_TILES];
    float32x4_t sum[MAX_TILES][MATRIX_ROWS][TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        x[i] = p->x[i];
    for (int at = 0; at < tiles; at++) {
        reader[at].data = p->w + (out / TILE_KEYS + at) * step;
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[at][i][j] = vdupq_n_f32(0.0f);
    }
    for (int64_t d = 0; d < p->dim;) {
        const int64_t end = d + elements_of_scale(type, 0, p->dim);
        for (int at = 0; at < tiles; at++)
            next_scales(type, &reader[at]);
        for (; d < end; d++)
            for (int at = 0; at < tiles; at++) {
                float32x4_t w[TILE_VECTORS];
                next_line(type, &reader[at], w);
                add_input(x, d, w, sum[at], rows);
            }
    }
    for (int at = 0; at < tiles; at++)
        store_sums(sum[at], p->bias, p->y, out + at * TILE_KEYS, rows);
}

/* Computes all whole tiles: `tiles` tiles side by side while at least as many are left, then one
 * tile at a time. */
static inline __attribute__((always_inline)) void
few_rows(const enum type type, const struct few_product *p, const int rows, const int tiles)
{
    int64_t out = 0;
    for (; p->outs - out >= tiles * TILE_KEYS; out += tiles * TILE_KEYS)
        few_tiles(type, p, out, rows, tiles);
    for (; tiles > 1 && p->outs - out >= TILE_KEYS; out += TILE_KEYS)
        few_tiles(type, p, out, rows, 1);
}

static inline __attribute__((always_inline)) void few(const enum type type,
                                                      const struct few_product *p)
{
    switch (p->rows) {
    case 6:
        few_rows(type, p, 6, 1);
        break;
    case 5:
        few_rows(type, p, 5, 1);
        break;
    case 4:
        few_rows(type, p, 4, 1);
        break;
    case 3:
        few_rows(type, p, 3, 1);
        break;
    case 2:
        few_rows(type, p, 2, 1);
        break;
    default:
        few_rows(type, p, 1, type == TYPE_F32 ? MAX_TILES : 1);
    }
}

static __attribute__((noinline)) void few_f32(const struct few_product *p)
{
    few(TYPE_F32, p);
}

static __attribute__((noinline)) void few_f16(const struct few_product *p)
{
    few(TYPE_F16, p);
}

static __attribute__((noinline)) void few_bf16(const struct few_product *p)
{
    few(TYPE_BF16, p);
}

static __attribute__((noinline)) void few_q8_0(const struct few_product *p)
{
    few(TYPE_Q8_0, p);
}

/* Computes all tiles, except a last tile with fewer outputs than a whole tile. */
static void few_whole_tiles(const struct few_product *p)
{
    switch (p->type) {
    case TYPE_F16:
        few_f16(p);
        break;
    case TYPE_BF16:
        few_bf16(p);
        break;
    case TYPE_Q8_0:
        few_q8_0(p);
        break;
    default:
        few_f32(p);
    }
}

void attnkit_neon_few_product(const struct few_product *p)
{
    const int64_t out = p->outs / TILE_KEYS * TILE_KEYS;
    const size_t bytes = (size_t)(p->outs - out) * sizeof(float);
    float y[MATRIX_ROWS][TILE_KEYS], bias[TILE_KEYS] = {0}, *y_rows[MATRIX_ROWS];
    struct few_product last = *p;
    few_whole_tiles(p);
    if (bytes == 0)
        return;
    last.w += out * bytes_of(p->type, p->dim);
    last.y = y_rows;
    last.outs = TILE_KEYS;
    last.bias = padded(p->bias, out, bytes, bias);
    for (int i = 0; i < p->rows; i++)
        y_rows[i] = y[i];
    few_whole_tiles(&last);
    for (int i = 0; i < p->rows; i++)
        memcpy(p->y[i] + out, y[i], bytes);
}

/* Defines attnkit_neon_widen_matrix. */
#include "kernels/vectors/widen_matrix.h"
