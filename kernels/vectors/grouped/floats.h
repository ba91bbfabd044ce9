/* SPDX-License-Identifier: Apache-2.0
 *
 * Words that hold one element each, as binary32. The tiles of struct grouped_kernels in avx2/,
 * avx512/ and neon/ read these words. The grouped.c of an instruction set includes this file before
 * tiles.h.
 */
#ifndef ATTNKIT_VECTORS_GROUPED_FLOATS_H
#define ATTNKIT_VECTORS_GROUPED_FLOATS_H

#include "kernels/vectors/entries.h"

enum { ELEMENTS = 1 };

/* Returns x, with 0 in place of elements whose magnitude is less than LEAST_FACTOR. A NaN stays
 * NaN. */
static inline floats without_small(floats x)
{
    const floats zero = broadcast(0.0f);
    const floats or_zero = select_v(less_v(broadcast(-LEAST_FACTOR), x), zero, x);
    return select_v(less_v(x, broadcast(LEAST_FACTOR)), or_zero, x);
}

static void widen_large(const void *row, int64_t n, float *words)
{
    KERNEL(widen)(TYPE_BF16, row, NULL, 0, n, words);
    for (int64_t i = 0; i < n; i += VECTOR)
        store_first(words + i, n - i, without_small(load_first(words + i, n - i)));
}

static void pack_row(const void *row, int64_t n, float *words)
{
    require_built(TYPE_BF16);
    widen_large(row, n, words);
    for (int64_t i = n; i < whole_quads(n); i++)
        words[i] = 0.0f;
}

static void pack_group(const void *const row[GROUP_PRODUCTS], int keys, int64_t n, float *words)
{
    require_built(TYPE_BF16);
    for (int i = 0; i < keys; i++, words += n)
        if (row[i])
            widen_large(row[i], n, words);
        else
            memset(words, 0, (size_t)n * sizeof *words);
}

/* Rounds the elements of a quad to bf16. Sets `rounded` to the rounded elements as binary32, and
 * stores them as words. x and `rounded` may be the same array. */
static inline void round_quad(const floats x[QUAD_ELEMENTS], floats rounded[QUAD_ELEMENTS],
                              float *words, int lanes)
{
    for (int i = 0; i < QUAD_ELEMENTS; i++) {
        rounded[i] = to_bf16(x[i]);
        store_aligned(words + i * lanes, rounded[i]);
    }
}

#endif
