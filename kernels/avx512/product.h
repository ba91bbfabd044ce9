/* SPDX-License-Identifier: Apache-2.0
 *
 * The product of many rows for AVX-512: its register tile of 8 rows x 3 tiles of the matrix, and
 * the order of the register tiles. linear.c of this folder and product.c of kernels/avx512_bf16
 * include this file. Before this include, linear.c defines multiply_step and multiply_step_one.
 * product.c includes avx512_bf16.h, which defines these two functions. multiply_step(x, w, sum,
 * is_large) adds x * w to sum, and returns the result. is_large changes no bit: see multiply_add in
 * avx512.h. multiply_step_one(x, w, sum) broadcasts *x, adds *x * w to sum, and returns the result.
 * A step multiplies an element of each row, or a pair of elements.
 */
#ifndef ATTNKIT_AVX512_PRODUCT_H
#define ATTNKIT_AVX512_PRODUCT_H

#include "kernels/avx512/avx512.h"
#include "kernels/linear/ahead.h"

enum { WIDTH = 3 /* vectors of outputs of a full register tile, which has ROW_GROUP rows */ };

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

/* Returns whether a sum is NaN. Lanes after the last output are tested, too. If a sum of any tile
 * is NaN, the last step of the entry `product` goes through all of y and makes every NaN the same.
 */
static inline __attribute__((always_inline)) bool has_nan(__m512 acc[ROW_GROUP][WIDTH],
                                                          const int rows, const int vectors)
{
    const int last = rows * vectors - 1;
    __mmask16 ordered[] = {0xffff, 0xffff, 0xffff}; /* three, so that comparisons overlap */
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

/* Adds the products of step d, for a group of rows. In large tiles, the multiply-adds of half of
 * the rows broadcast x anew for each vector. These rows need no separate broadcast instruction, and
 * there are cycles left for the additional loads. */
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
            acc[i][j] = multiply_step(x_d, w_d[j], acc[i][j], is_large);
    }
    for (int i = broadcasts; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            acc[i][j] = multiply_step_one(x + d * ROW_GROUP + i, w_d[j], acc[i][j]);
}

/* Computes the outputs of `vectors` tiles of the matrix, from output `out` on, for the group of
 * rows at x. The first row of the group is `first`. Returns has_nan of the sums. */
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

/* Computes all outputs of a group of rows. The group stays in L1. Returns whether a sum is NaN. */
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

void KERNEL(product)(const struct product *p)
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

#endif
