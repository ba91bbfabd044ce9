/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a tile of K or of a matrix. A step reads one element of each key of a tile of K, or of each
 * output of a tile of a matrix, and widens these elements to binary32. If the type has scales, the
 * step also multiplies each element by its scale. struct key_rows and struct few_product describe
 * the tiles. The header of the instruction set has load_line.
 */
#ifndef ATTNKIT_VECTORS_TILE_READER_H
#define ATTNKIT_VECTORS_TILE_READER_H

#include "kernels/kernels.h"

/* A position in a tile. */
struct tile_reader {
    const char *data;           /* the next element of all keys */
    const float *scales;        /* the next scales; only for TYPE_I8 */
    floats scale[TILE_VECTORS]; /* the scales of the current elements */
};

/* Returns a reader of the tile of K whose first key is `key`. */
static inline __attribute__((always_inline)) struct tile_reader
read_tile(const enum type type, const struct key_rows *k, int key)
{
    return (struct tile_reader){.data = k->row[key],
                                .scales = type == TYPE_I8 ? k->scales[key] : NULL};
}

static inline bool is_scaled(const enum type type)
{
    return type == TYPE_I8 || type == TYPE_Q8_0;
}

/* Returns how many elements of a row share a scale, or `dim` for types without scales. `group` is
 * this number for TYPE_I8, and other types do not use it. */
static inline int64_t elements_of_scale(const enum type type, int64_t group, int64_t dim)
{
    return type == TYPE_I8 ? group : type == TYPE_Q8_0 ? (int64_t)Q8_BLOCK : dim;
}

/* Loads the scales of the elements that are read before the next call of next_scales. */
static inline __attribute__((always_inline)) void next_scales(const enum type type,
                                                              struct tile_reader *tile)
{
    if (type == TYPE_I8) {
        load_line(TYPE_F32, tile->scales, tile->scale);
        tile->scales += TILE_KEYS;
    }
    if (type == TYPE_Q8_0) {
        load_line(TYPE_F16, tile->data, tile->scale);
        tile->data += bytes_of(TYPE_F16, TILE_KEYS);
    }
}

/* Loads the next element of all keys. If the type has scales, multiplies each element by its scale.
 */
static inline __attribute__((always_inline)) void
next_line(const enum type type, struct tile_reader *tile, floats x[TILE_VECTORS])
{
    const enum type stored = type == TYPE_Q8_0 ? TYPE_I8 : type;
    load_line(stored, tile->data, x);
    tile->data += bytes_of(stored, TILE_KEYS);
    for (int j = 0; j < TILE_VECTORS && is_scaled(type); j++)
        x[j] = x[j] * tile->scale[j];
}

#endif
