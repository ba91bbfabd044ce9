/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies a row to the places of its key in a tile. Appends and the packing of matrices use these
 * functions. The functions are in a header, because a build may leave out appends or linear maps.
 */
#ifndef ATTNKIT_SPREAD_H
#define ATTNKIT_SPREAD_H

#include <string.h>

#include "kernels/kernels.h"

/* Copies n elements of `bytes` bytes each to the places of one key in a tile. `tile` is the first
 * of these places. */
static inline void spread(const char *row, int64_t n, const size_t bytes, char *tile)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(tile, row, bytes);
        row += bytes;
        tile += TILE_KEYS * bytes;
    }
}

static inline void spread_blocks(const char *row, int64_t n, int64_t key, char *tile)
{
    enum { SCALE = 2 }; /* bytes */
    for (int64_t i = 0; i < n; i += Q8_BLOCK) {
        spread(row, 1, SCALE, tile + key * SCALE);
        spread(row + SCALE, Q8_BLOCK, 1, tile + TILE_KEYS * SCALE + key);
        row += Q8_BLOCK_BYTES;
        tile += TILE_KEYS * Q8_BLOCK_BYTES;
    }
}

/* Copies a row of n elements to the places of key `key` in a tile. Writes no other byte of the
 * tile. The function is not inlined. If it were inlined, an append to a cache without tiles would
 * have to save the registers that only this function uses. */
static __attribute__((noinline)) void spread_row(enum type type, const char *row, int64_t n,
                                                 int64_t key, char *tile)
{
    switch (type) {
    case TYPE_F32:
        spread(row, n, 4, tile + key * 4);
        break;
    case TYPE_F16:
    case TYPE_BF16:
        spread(row, n, 2, tile + key * 2);
        break;
    case TYPE_I8:
        spread(row, n, 1, tile + key);
        break;
    case TYPE_Q8_0:
        spread_blocks(row, n, key, tile);
        break;
    default:
        __builtin_trap(); /* there are no tiles of other types */
    }
}

#endif
