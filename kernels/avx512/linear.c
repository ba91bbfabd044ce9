/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps: y[i][o] = chain over d of x[i][d] * w[d][o], then + bias[o]. Lanes are outputs, and
 * x is broadcast. kernels/linear/linear.c calls `product` for each panel of the outputs and each
 * cut of the inputs, which is a range of at most 512 inputs.
 *
 * A register tile has 8 rows x 3 tiles of the matrix. 24 accumulators, 3 vectors of w and 1
 * broadcast take 28 of 32 zmm. Each d takes 24 FMA and 19 loads. The FMA ports are the bound: they
 * take 12 cycles for each d, in which 24 loads would fit. 12 of the loads are part of an FMA. Each
 * d takes 33 instructions in all. More instructions would cost time on a core that two threads
 * share, because it executes only 3 instructions in a cycle. A product of few rows reads each tile
 * of the matrix once, and memory limits its speed.
 */
#include "kernels/linear/ahead.h"
#include "kernels/avx512/avx512.h"
#include "kernels/vectors/tile_reader.h"

enum {
    WIDTH = 3,     /* vectors of outputs of a register tile, which has ROW_GROUP rows */
    FEW_ROWS = 6,  /* rows of a register tile of few_product */
    FEW_TILES = 4, /* tiles of the matrix that few rows read side by side */
    AHEAD = 384,   /* bytes: prefetches are six cache lines ahead in each tile; more was slower */
    SHORT_TILE = 8192, /* bytes; a tile that is not longer ends before a prefetch is of use */
};

/* Loads the sums over earlier inputs. Only the last vector may have fewer outputs than VECTOR. */
static inline __attribute__((always_inline)) void load_sums(const struct product *p, int first,
                                                            int64_t out, __mmask16 last,
                                                            const int rows, const int vectors,
                                                            __m512 acc[ROW_GROUP][WIDTH])
{
    const char *sums = (const char *)(p->sums + out) + first * p->sums_stride;
    for (int i = 0; i < rows; i++, sums += p->sums_stride)
        for (int j = 0; j < vectors; j++)
            acc[i][j] = _mm512_maskz_loadu_ps(j + 1 < vectors ? (__mmask16)0xffff : last,
                                              (const float *)sums + j * VECTOR);
}

static inline __attribute__((always_inline)) void add_bias(const float *bias, __mmask16 last,
                                                           const int rows, const int vectors,
                                                           __m512 acc[ROW_GROUP][WIDTH])
{
    for (int j = 0; j < vectors; j++) {
        const __m512 b =
            _mm512_maskz_loadu_ps(j + 1 < vectors ? (__mmask16)0xffff : last, bias + j * VECTOR);
        for (int i = 0; i < rows; i++)
            acc[i][j] = _mm512_add_ps(acc[i][j], b);
    }
}

static inline __attribute__((always_inline)) void store_y(const struct product *p, int first,
                                                          int64_t out, __mmask16 last,
                                                          const int rows, const int vectors,
                                                          __m512 acc[ROW_GROUP][WIDTH])
{
    char *y = (char *)(p->y + out) + first * p->y_stride;
    for (int i = 0; i < rows; i++, y += p->y_stride)
        for (int j = 0; j < vectors; j++)
            _mm512_mask_storeu_ps((float *)y + j * VECTOR,
                                  j + 1 < vectors ? (__mmask16)0xffff : last, acc[i][j]);
}

/* Returns whether a sum is NaN. Lanes behind the last output count, too. If a sum is NaN, the
 * caller goes through y again and makes every NaN the same. */
static inline __attribute__((always_inline)) bool has_nan(__m512 acc[ROW_GROUP][WIDTH],
                                                          const int rows, const int vectors)
{
    const int last = rows * vectors - 1;
    __mmask16 ordered[] = {0xffff, 0xffff, 0xffff}; /* three, as a comparison takes four cycles */
    for (int n = 0; n <= last; n += 2) {
        const int m = n < last ? n + 1 : n;
        __mmask16 *const mask = &ordered[n / 2 % 3];
        *mask = _mm512_mask_cmp_ps_mask(*mask, acc[n / vectors][n % vectors],
                                        acc[m / vectors][m % vectors], _CMP_ORD_Q);
    }
    return (ordered[0] & ordered[1] & ordered[2]) != 0xffff;
}

static __attribute__((cold, noinline)) void settle_y(const struct product *p)
{
    for (int i = 0; i < p->rows; i++) {
        float *const y = (float *)((char *)p->y + i * p->y_stride);
        attnkit_avx512_settle(1, p->outs, &y);
    }
}

/* Adds the products of input d of a group of rows. In large tiles, the FMAs of half of the rows
 * broadcast x anew for each vector. This saves the broadcast instruction, and there are cycles left
 * for the additional loads. */
static inline __attribute__((always_inline)) void multiply(const float *x, const float *const *w,
                                                           int64_t d, const int rows,
                                                           const int vectors,
                                                           __m512 acc[ROW_GROUP][WIDTH])
{
    __m512 w_d[WIDTH];
    for (int j = 0; j < vectors; j++)
        w_d[j] = _mm512_load_ps(w[j] + d * VECTOR);
    const bool is_large = rows * vectors >= LARGE_TILE;
    const int broadcasts = is_large ? (rows + 1) / 2 : rows;
    for (int i = 0; i < broadcasts; i++) {
        const __m512 x_d = _mm512_set1_ps(x[d * ROW_GROUP + i]);
        for (int j = 0; j < vectors; j++)
            acc[i][j] = multiply_add(x_d, w_d[j], acc[i][j], is_large);
    }
    for (int i = broadcasts; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            acc[i][j] = multiply_add_one(x + d * ROW_GROUP + i, w_d[j], acc[i][j]);
}

/* Computes the group of rows at x, whose first row is `first`, and `vectors` tiles of the matrix
 * from output `out` on. Returns has_nan of the sums. */
static inline __attribute__((always_inline)) bool
product_tile(const struct product *p, const float *x, int first, int64_t out,
             struct requests *requests, const int rows, const int vectors)
{
    const __mmask16 last = first_mask(p->outs - out - (vectors - 1) * VECTOR);
    __m512 acc[ROW_GROUP][WIDTH];
    const float *w[WIDTH];
    for (int j = 0; j < vectors; j++) {
        w[j] = matrix_at(p, out + j * VECTOR);
        for (int i = 0; i < rows; i++)
            acc[i][j] = _mm512_setzero_ps();
    }
    if (p->sums)
        load_sums(p, first, out, last, rows, vectors, acc);
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
        add_bias(p->bias + out, last, rows, vectors, acc);
    store_y(p, first, out, last, rows, vectors, acc);
    return has_nan(acc, rows, vectors);
}

/* Computes all outputs of a group of rows, which stays in L1. Returns whether a sum is NaN. */
static inline __attribute__((always_inline)) bool product_group(const struct product *p,
                                                                const float *x, int first,
                                                                struct requests *requests,
                                                                const int rows)
{
    bool nan = false;
    int64_t out = 0;
    for (; p->outs - out > 2 * VECTOR; out += 3 * VECTOR)
        nan |= product_tile(p, x, first, out, requests, rows, 3);
    if (p->outs - out > VECTOR)
        nan |= product_tile(p, x, first, out, requests, rows, 2);
    else if (p->outs > out)
        nan |= product_tile(p, x, first, out, requests, rows, 1);
    return nan;
}

void attnkit_avx512_product(const struct product *p)
{
    struct requests requests = product_requests(p, ROW_GROUP, WIDTH * VECTOR);
    const float *x = p->x;
    bool nan = false;
    int rows;
    for (int i = 0; i < p->rows; i += rows, x += p->dim * ROW_GROUP) {
        rows = tile_height(p->rows - i, ROW_GROUP);
        switch (rows) {
        case 8:
            nan |= product_group(p, x, i, &requests, 8);
            break;
        case 7:
            nan |= product_group(p, x, i, &requests, 7);
            break;
        case 6:
            nan |= product_group(p, x, i, &requests, 6);
            break;
        case 5:
            nan |= product_group(p, x, i, &requests, 5);
            break;
        case 4:
            nan |= product_group(p, x, i, &requests, 4);
            break;
        case 3:
            nan |= product_group(p, x, i, &requests, 3);
            break;
        case 2:
            nan |= product_group(p, x, i, &requests, 2);
            break;
        default:
            nan |= product_group(p, x, i, &requests, 1);
        }
    }
    if (nan)
        settle_y(p);
}

/* -------------------------------------------------------------------------------- few rows */

static inline __attribute__((always_inline)) void
add_input(const enum type type, struct tile_reader reader[FEW_TILES], const float *const *x,
          int64_t d, __m512 acc[FEW_ROWS][FEW_TILES], const int rows)
{
    for (int t = 0; t < FEW_TILES; t++) {
        __m512 w[TILE_VECTORS];
        next_line(type, &reader[t], w);
        for (int i = 0; i < rows; i++)
            acc[i][t] = _mm512_fmadd_ps(_mm512_set1_ps(x[i][d]), w[0], acc[i][t]);
    }
}

/* Returns whether a sum of few rows is NaN, like has_nan. */
static inline __attribute__((always_inline)) bool has_few_nan(__m512 acc[FEW_ROWS][FEW_TILES],
                                                              const int rows)
{
    __mmask16 ordered[] = {0xffff, 0xffff};
    for (int i = 0; i < rows; i++)
        for (int t = 0; t < FEW_TILES; t += 2) {
            __mmask16 *const mask = &ordered[t / 2 % 2];
            *mask = _mm512_mask_cmp_ps_mask(*mask, acc[i][t], acc[i][t + 1], _CMP_ORD_Q);
        }
    return (ordered[0] & ordered[1]) != 0xffff;
}

/* Computes FEW_TILES tiles of outputs, or as many as there are, beginning with the tile of output
 * `out`. Returns has_few_nan of the sums. */
static inline __attribute__((always_inline)) bool
few_tiles(const enum type type, const struct few_product *p, int64_t out, int first, const int rows)
{
    const int64_t step = bytes_of(type, p->dim) * TILE_KEYS, last = (p->outs - 1) / VECTOR;
    struct tile_reader reader[FEW_TILES];
    __m512 acc[FEW_ROWS][FEW_TILES];
    const float *x[FEW_ROWS];
    for (int i = 0; i < rows; i++) {
        x[i] = p->x[first + i];
        for (int t = 0; t < FEW_TILES; t++)
            acc[i][t] = _mm512_setzero_ps();
    }
    for (int t = 0; t < FEW_TILES; t++) {
        const int64_t tile = out / VECTOR + t;
        reader[t] = (struct tile_reader){.data = p->w + (tile < last ? tile : last) * step};
    }
    const int64_t block = elements_of_scale(type, 0, p->dim);
    const bool asks = step > SHORT_TILE;
    for (int64_t begin = 0; begin < p->dim; begin += block) {
        for (int t = 0; t < FEW_TILES; t++)
            next_scales(type, &reader[t]);
        int64_t d = begin;
        for (; asks && d + line_inputs(type) <= begin + block; d += line_inputs(type)) {
            /* For a single row of binary32 there is no prefetch if the matrix is in a cache: the
             * hardware prefetcher is then early enough. */
            for (int t = 0; t < FEW_TILES && (type != TYPE_F32 || rows > 1 || p->far); t++)
                _mm_prefetch(reader[t].data + AHEAD, _MM_HINT_T0);
            for (int e = 0; e < line_inputs(type); e++)
                add_input(type, reader, x, d + e, acc, rows);
        }
        for (; d < begin + block; d++)
            add_input(type, reader, x, d, acc, rows);
    }
    const int64_t outs = p->outs - out;
    if (p->bias)
        for (int t = 0; t < FEW_TILES; t++) {
            const __m512 b = load_first(p->bias + out + t * VECTOR, outs - t * VECTOR);
            for (int i = 0; i < rows; i++)
                acc[i][t] = _mm512_add_ps(acc[i][t], b);
        }
    const bool nan = has_few_nan(acc, rows);
    for (int t = 0; t < FEW_TILES; t++) {
        const __mmask16 mask = first_mask(outs - t * VECTOR);
        for (int i = 0; i < rows; i++)
            _mm512_mask_storeu_ps(p->y[first + i] + out + t * VECTOR, mask, acc[i][t]);
    }
    return nan;
}

/* Computes all outputs of `rows` rows from row `first` on. Returns whether a sum is NaN. */
static inline __attribute__((always_inline)) bool
few_rows(const enum type type, const struct few_product *p, int first, const int rows)
{
    bool nan = false;
    for (int64_t out = 0; out < p->outs; out += FEW_TILES * VECTOR)
        nan |= few_tiles(type, p, out, first, rows);
    return nan;
}

/* Returns the most rows of a register tile. If the type has scales, the tile is smaller, because
 * the scales take registers. */
static inline int few_height(const enum type type)
{
    return type == TYPE_Q8_0 ? 4 : FEW_ROWS;
}

static inline __attribute__((always_inline)) bool few(const enum type type,
                                                      const struct few_product *p)
{
    bool nan = false;
    int rows;
    for (int i = 0; i < p->rows; i += rows) {
        rows = tile_height(p->rows - i, few_height(type));
        switch (rows) {
        case 6:
            nan |= few_rows(type, p, i, 6);
            break;
        case 5:
            nan |= few_rows(type, p, i, 5);
            break;
        case 4:
            nan |= few_rows(type, p, i, 4);
            break;
        case 3:
            nan |= few_rows(type, p, i, 3);
            break;
        case 2:
            nan |= few_rows(type, p, i, 2);
            break;
        default:
            nan |= few_rows(type, p, i, 1);
        }
    }
    return nan;
}

void attnkit_avx512_few_product(const struct few_product *p)
{
    bool nan;
    switch (p->type) {
    case TYPE_F16:
        nan = few(TYPE_F16, p);
        break;
    case TYPE_BF16:
        nan = few(TYPE_BF16, p);
        break;
    case TYPE_Q8_0:
        nan = few(TYPE_Q8_0, p);
        break;
    default:
        nan = few(TYPE_F32, p);
    }
    if (nan)
        attnkit_avx512_settle(p->rows, p->outs, p->y);
}

/* Defines attnkit_avx512_widen_matrix. */
#include "kernels/vectors/widen_matrix.h"
