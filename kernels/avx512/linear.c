/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps: y[i][o] = chain over d of x[i][d] * w[d][o], then + bias[o]. Lanes are outputs, and
 * x is broadcast. For many rows, kernels/linear/linear.c calls `product` for each block of rows,
 * each panel of outputs and each cut of the inputs. A cut is a range of at most 512 inputs.
 *
 * A register tile has 8 rows x 3 tiles of the matrix. 24 accumulators, 3 vectors of w and 1
 * broadcast take 28 of 32 zmm. Each d takes 24 FMA and 19 loads. The FMA ports limit the speed:
 * they take 12 cycles for each d, in which 24 loads would fit. 12 of the loads are part of an FMA.
 * Each d takes 33 instructions in all. More instructions would cost time, because a thread executes
 * only 3 instructions in a cycle while the other thread of its core is busy. A product of few rows
 * reads each tile of the matrix once for each register tile of rows, and memory limits the speed of
 * the product.
 */
#include "kernels/linear/ahead.h"
#include "kernels/avx512/avx512.h"
#include "kernels/vectors/tile_reader.h"

enum {
    FEW_ROWS = 6,      /* most rows of a register tile of few_product */
    FEW_TILES = 4,     /* tiles of the matrix that few rows read side by side */
    AHEAD = 384,       /* bytes by which prefetches are ahead in a tile; more bytes were slower */
    SHORT_TILE = 8192, /* bytes; in a tile of at most this size, prefetches come too late */
};

static inline __attribute__((always_inline)) __m512 multiply_step(__m512 x, __m512 w, __m512 sum,
                                                                  const bool is_large)
{
    return multiply_add(x, w, sum, is_large);
}

static inline __attribute__((always_inline)) __m512 multiply_step_one(const float *x, __m512 w,
                                                                      __m512 sum)
{
    return multiply_add_one(x, w, sum);
}

/* Defines attnkit_avx512_product. */
#include "kernels/avx512/product.h"

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

/* Returns whether a sum of few rows is NaN, as has_nan does for many rows. */
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

/* Computes FEW_TILES tiles of outputs, or all tiles that are left if these are fewer, beginning
 * with the tile of output `out`. Returns has_few_nan of the sums. */
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
            /* For a single row of binary32 there is no prefetch if the matrix is in L1 or L2: the
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
