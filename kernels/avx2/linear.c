/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps: y[i][o] = chain over d of x[i][d] * w[d][o], then + bias[o]. Lanes are outputs, and
 * x is broadcast. kernels/linear/linear.c calls `product` for up to 256 rows, 48 outputs and 512
 * inputs at a time.
 *
 * A register tile has 4 rows x 3 vectors. 12 accumulators, 3 vectors of w and 1 broadcast take all
 * 16 ymm. Each d takes 12 FMA and 7 loads. The FMA ports limit the speed: they take 6 cycles for
 * each d. Other instructions are kept few, because a thread executes only 3 instructions in a cycle
 * while the other thread of its core is busy. A product of few rows reads each tile of the matrix
 * once for each register tile of rows, and memory limits the speed of the product.
 */
#include "kernels/linear/ahead.h"
#include "kernels/avx2/avx2.h"
#include "kernels/vectors/tile_reader.h"

enum {
    ROWS = 4,      /* most rows of a register tile: half of ROW_GROUP */
    WIDTH = 3,     /* most vectors of outputs of a register tile */
    FEW_ROWS = 4,  /* most rows of a register tile of few_product */
    FEW_TILES = 4, /* tiles of the matrix that a register tile of a single row reads side by side */
    AHEAD = 384,   /* bytes by which prefetches are ahead in a tile; more bytes were slower */
    SHORT_TILE = 8192, /* bytes; in a tile of at most this size, prefetches come too late */
};

static inline __m256 with_bias(__m256 y, const float *bias, int64_t out, int64_t outs)
{
    return bias ? _mm256_add_ps(y, load_first(bias + out, outs - out)) : y;
}

/* Loads the sums over earlier inputs, for the first `outs` outputs of the tile. */
static inline __attribute__((always_inline)) void load_sums(const struct product *p, int first,
                                                            int64_t out, int64_t outs,
                                                            const int rows, const int vectors,
                                                            __m256 acc[ROWS][WIDTH])
{
    const char *sums = (const char *)(p->sums + out) + first * p->sums_stride;
    for (int i = 0; i < rows; i++, sums += p->sums_stride)
        for (int j = 0; j < vectors; j++)
            acc[i][j] = load_first((const float *)sums + j * VECTOR, outs - j * VECTOR);
}

static inline __attribute__((always_inline)) void add_bias(const float *bias, int64_t outs,
                                                           const int rows, const int vectors,
                                                           __m256 acc[ROWS][WIDTH])
{
    for (int j = 0; j < vectors; j++) {
        const __m256 b = load_first(bias + j * VECTOR, outs - j * VECTOR);
        for (int i = 0; i < rows; i++)
            acc[i][j] = _mm256_add_ps(acc[i][j], b);
    }
}

static inline __attribute__((always_inline)) void store_y(const struct product *p, int first,
                                                          int64_t out, int64_t outs, const int rows,
                                                          const int vectors,
                                                          __m256 acc[ROWS][WIDTH])
{
    char *y = (char *)(p->y + out) + first * p->y_stride;
    for (int i = 0; i < rows; i++, y += p->y_stride)
        for (int j = 0; j < vectors; j++)
            store_first((float *)y + j * VECTOR, outs - j * VECTOR, acc[i][j]);
}

/* Returns whether a sum is NaN. Lanes after the last output are tested, too. If a sum is NaN, the
 * caller goes through y again and makes every NaN the same. */
static inline __attribute__((always_inline)) bool has_nan(__m256 acc[ROWS][WIDTH], const int rows,
                                                          const int vectors)
{
    const int last = rows * vectors - 1;
    __m256 nan = _mm256_setzero_ps();
    for (int n = 0; n <= last; n += 2) {
        const int m = n < last ? n + 1 : n;
        nan = _mm256_or_ps(nan, _mm256_cmp_ps(acc[n / vectors][n % vectors],
                                              acc[m / vectors][m % vectors], _CMP_UNORD_Q));
    }
    return !_mm256_testz_ps(nan, nan);
}

/* Makes every NaN in the results of a register tile the same. */
static __attribute__((cold, noinline)) void settle_tile(const struct product *p, int first,
                                                        int rows, int64_t out, int64_t outs)
{
    float *y[ROWS];
    for (int i = 0; i < rows; i++)
        y[i] = (float *)((char *)(p->y + out) + (first + i) * p->y_stride);
    attnkit_avx2_settle(rows, outs, y);
}

/* Adds the products of input d, for some rows of a group. */
static inline __attribute__((always_inline)) void multiply(const float *x, const float *const *w,
                                                           int64_t d, const int rows,
                                                           const int vectors,
                                                           __m256 acc[ROWS][WIDTH])
{
    __m256 w_d[WIDTH];
    for (int j = 0; j < vectors; j++)
        w_d[j] = _mm256_load_ps(w[j] + d * TILE_KEYS);
    for (int i = 0; i < rows; i++) {
        const __m256 x_d = _mm256_broadcast_ss(x + d * ROW_GROUP + i);
        for (int j = 0; j < vectors; j++)
            acc[i][j] = multiply_add(x_d, w_d[j], acc[i][j], rows * vectors >= LARGE_TILE);
    }
}

/* Computes a register tile: `rows` rows from row `first` on, and `vectors` vectors of outputs from
 * output `out` on. The elements of the rows are at x. The matrix elements of the outputs of vector
 * j begin at columns[j]. Stores only the first `outs` outputs. */
static inline __attribute__((always_inline)) void
product_tile(const struct product *p, const float *x, const float *const *columns, int first,
             int64_t out, int64_t outs, struct requests *requests, const int rows,
             const int vectors)
{
    __m256 acc[ROWS][WIDTH];
    const float *w[WIDTH];
    for (int j = 0; j < vectors; j++) {
        w[j] = columns[j];
        for (int i = 0; i < rows; i++)
            acc[i][j] = _mm256_setzero_ps();
    }
    if (p->sums)
        load_sums(p, first, out, outs, rows, vectors, acc);
    int64_t d = 0;
    for (; p->dim - d >= PACE; d += PACE) {
        prefetch_matrix(requests);
        for (int64_t e = d; e < d + PACE; e += 4) {
            multiply(x, w, e, rows, vectors, acc);
            multiply(x, w, e + 1, rows, vectors, acc);
            multiply(x, w, e + 2, rows, vectors, acc);
            multiply(x, w, e + 3, rows, vectors, acc);
        }
    }
    for (; d < p->dim; d++)
        multiply(x, w, d, rows, vectors, acc);
    if (p->bias)
        add_bias(p->bias + out, outs, rows, vectors, acc);
    store_y(p, first, out, outs, rows, vectors, acc);
    if (has_nan(acc, rows, vectors))
        settle_tile(p, first, rows, out, outs);
}

/* Computes one register tile: `rows` rows from row `first` on, and WIDTH vectors of outputs from
 * output `out` on. At the end of the outputs the tile has only the outputs that remain. */
static inline __attribute__((always_inline)) void
product_outs(const struct product *p, const float *x, const float *const *w, int first, int64_t out,
             struct requests *requests, const int rows)
{
    const int64_t outs = p->outs - out;
    if (outs >= 3 * VECTOR)
        product_tile(p, x, w, first, out, 3 * VECTOR, requests, rows, 3);
    else if (outs > 2 * VECTOR)
        product_tile(p, x, w, first, out, outs, requests, rows, 3);
    else if (outs > VECTOR)
        product_tile(p, x, w, first, out, outs, requests, rows, 2);
    else
        product_tile(p, x, w, first, out, outs, requests, rows, 1);
}

/* Computes a group of `group` rows from row `first` on, in register tiles one below the other. All
 * of these tiles begin at output `out`. */
static void product_group(const struct product *p, const float *x, const float *const *w, int first,
                          int group, int64_t out, struct requests *requests)
{
    for (int i = 0, rows; i < group; i += rows) {
        rows = tile_height(group - i, ROWS);
        switch (rows) {
        case 4:
            product_outs(p, x + i, w, first + i, out, requests, 4);
            break;
        case 3:
            product_outs(p, x + i, w, first + i, out, requests, 3);
            break;
        case 2:
            product_outs(p, x + i, w, first + i, out, requests, 2);
            break;
        default:
            product_outs(p, x + i, w, first + i, out, requests, 1);
        }
    }
}

/* The outer loop is over outputs, so that the matrix elements of a register tile stay in L1 or L2.
 */
void attnkit_avx2_product(const struct product *p)
{
    struct requests requests = product_requests(p, ROWS, WIDTH * VECTOR);
    for (int64_t out = 0; out < p->outs; out += WIDTH * VECTOR) {
        const float *x = p->x, *w[WIDTH];
        int rows;
        for (int j = 0; j < WIDTH; j++)
            w[j] = matrix_at(p, out + j * VECTOR < p->outs ? out + j * VECTOR : out);
        for (int i = 0; i < p->rows; i += rows, x += p->dim * ROW_GROUP) {
            rows = tile_height(p->rows - i, ROW_GROUP);
            product_group(p, x, w, i, rows, out, &requests);
        }
    }
}

/* -------------------------------------------------------------------------------- few rows */

static inline __attribute__((always_inline)) void
add_input(const enum type type, struct tile_reader reader[FEW_TILES], const float *const *x,
          int64_t d, __m256 acc[FEW_TILES][FEW_ROWS][TILE_VECTORS], const int rows, const int tiles)
{
    for (int t = 0; t < tiles; t++) {
        __m256 w[TILE_VECTORS];
        next_line(type, &reader[t], w);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < TILE_VECTORS; j++)
                acc[t][i][j] = _mm256_fmadd_ps(_mm256_broadcast_ss(x[i] + d), w[j], acc[t][i][j]);
    }
}

/* Returns whether a sum of few rows is NaN, as has_nan does for many rows. */
static inline __attribute__((always_inline)) bool
has_few_nan(__m256 acc[FEW_TILES][FEW_ROWS][TILE_VECTORS], const int rows, const int tiles)
{
    __m256 nan = _mm256_setzero_ps();
    for (int t = 0; t < tiles; t++)
        for (int i = 0; i < rows; i++)
            nan = _mm256_or_ps(nan, _mm256_cmp_ps(acc[t][i][0], acc[t][i][1], _CMP_UNORD_Q));
    return !_mm256_testz_ps(nan, nan);
}

static __attribute__((cold, noinline)) void settle_few(const struct few_product *p, int first,
                                                       int rows, int64_t out, int tiles)
{
    const int64_t outs = p->outs - out, most = tiles * TILE_KEYS;
    float *y[FEW_ROWS];
    for (int i = 0; i < rows; i++)
        y[i] = p->y[first + i] + out;
    attnkit_avx2_settle(rows, outs < most ? outs : most, y);
}

/* Computes `tiles` tiles of outputs for `rows` rows from row `first` on. The first tile begins at
 * output `out`. If fewer tiles are left, computes all of these. */
static inline __attribute__((always_inline)) void few_tiles(const enum type type,
                                                            const struct few_product *p,
                                                            int64_t out, int first, const int rows,
                                                            const int tiles)
{
    const int64_t step = bytes_of(type, p->dim) * TILE_KEYS, last = (p->outs - 1) / TILE_KEYS;
    struct tile_reader reader[FEW_TILES];
    __m256 acc[FEW_TILES][FEW_ROWS][TILE_VECTORS];
    const float *x[FEW_ROWS];
    for (int i = 0; i < rows; i++)
        x[i] = p->x[first + i];
    for (int t = 0; t < tiles; t++) {
        const int64_t tile = out / TILE_KEYS + t;
        reader[t] = (struct tile_reader){.data = p->w + (tile < last ? tile : last) * step};
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < TILE_VECTORS; j++)
                acc[t][i][j] = _mm256_setzero_ps();
    }
    const int64_t block = elements_of_scale(type, 0, p->dim);
    const bool asks = step > SHORT_TILE;
    for (int64_t begin = 0; begin < p->dim; begin += block) {
        for (int t = 0; t < tiles; t++)
            next_scales(type, &reader[t]);
        int64_t d = begin;
        for (; asks && d + line_inputs(type) <= begin + block; d += line_inputs(type)) {
            for (int t = 0; t < tiles; t++)
                _mm_prefetch(reader[t].data + AHEAD, _MM_HINT_T0);
            for (int e = 0; e < line_inputs(type); e++)
                add_input(type, reader, x, d + e, acc, rows, tiles);
        }
        for (; d < begin + block; d++)
            add_input(type, reader, x, d, acc, rows, tiles);
    }
    for (int t = 0; t < tiles; t++)
        for (int j = 0; j < TILE_VECTORS; j++) {
            const int64_t o = out + t * TILE_KEYS + j * VECTOR;
            for (int i = 0; i < rows && o < p->outs; i++) {
                acc[t][i][j] = with_bias(acc[t][i][j], p->bias, o, p->outs);
                store_first(p->y[first + i] + o, p->outs - o, acc[t][i][j]);
            }
        }
    if (has_few_nan(acc, rows, tiles))
        settle_few(p, first, rows, out, tiles);
}

/* Computes all outputs of `rows` rows from row `first` on. */
static inline __attribute__((always_inline)) void few_rows(const enum type type,
                                                           const struct few_product *p, int first,
                                                           const int rows, const int tiles)
{
    for (int64_t out = 0; out < p->outs; out += tiles * TILE_KEYS)
        few_tiles(type, p, out, first, rows, tiles);
}

static inline __attribute__((always_inline)) void few(const enum type type,
                                                      const struct few_product *p)
{
    int rows;
    for (int i = 0; i < p->rows; i += rows) {
        rows = tile_height(p->rows - i, FEW_ROWS);
        switch (rows) {
        case 4:
            few_rows(type, p, i, 4, 1);
            break;
        case 3:
            few_rows(type, p, i, 3, 1);
            break;
        case 2:
            few_rows(type, p, i, 2, 2);
            break;
        default:
            few_rows(type, p, i, 1, FEW_TILES);
        }
    }
}

void attnkit_avx2_few_product(const struct few_product *p)
{
    switch (p->type) {
    case TYPE_F16:
        few(TYPE_F16, p);
        break;
    case TYPE_BF16:
        few(TYPE_BF16, p);
        break;
    case TYPE_Q8_0:
        few(TYPE_Q8_0, p);
        break;
    default:
        few(TYPE_F32, p);
    }
}

/* Defines attnkit_avx2_widen_matrix. */
#include "kernels/vectors/widen_matrix.h"
