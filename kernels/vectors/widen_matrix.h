/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts a tile of a matrix to binary32. The elements keep the order in which the tile stores
 * them. The linear.c of AVX2, of AVX-512 and of NEON includes this file.
 */
#ifndef ATTNKIT_VECTORS_WIDEN_MATRIX_H
#define ATTNKIT_VECTORS_WIDEN_MATRIX_H

#include "kernels/vectors/tile_reader.h"

void KERNEL(widen_matrix)(enum type type, const void *tile, int64_t n, float *out)
{
    struct tile_reader reader = {.data = tile};
    if (type != TYPE_Q8_0) {
        KERNEL(widen)(type, tile, NULL, 0, n * TILE_KEYS, out);
        return;
    }
    for (int64_t d = 0; d < n; d++, out += TILE_KEYS) {
        floats w[TILE_VECTORS];
        if (d % Q8_BLOCK == 0)
            next_scales(TYPE_Q8_0, &reader);
        next_line(TYPE_Q8_0, &reader, w);
        for (int j = 0; j < TILE_VECTORS; j++)
            store_floats(out + j * VECTOR, w[j]);
    }
}

#endif
