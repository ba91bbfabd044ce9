/* SPDX-License-Identifier: Apache-2.0
 *
 * A linear map y = x Wᵀ + bias, and the packing of its matrix. dispatch/ fills the structs below
 * after its checks. The functions below do the work that the structs describe, part by part. A
 * packed matrix has tiles of TILE_KEYS outputs, without gaps between them. A tile is like a tile of
 * K, with outputs in place of keys: [inputs][TILE_KEYS]. Strides are in bytes.
 */
#ifndef ATTNKIT_KERNELS_LINEAR_H
#define ATTNKIT_KERNELS_LINEAR_H

#include "kernels/kernels.h"

struct linear {
    int64_t rows, in_dim, out_dim;
    bool integers; /* round x and multiply integers (step 18 of kernels/README.md); w_type is
                    * TYPE_Q8_0 */
    enum type x_type, w_type, y_type;
    const char *x;
    ptrdiff_t x_stride;
    const char *w;     /* packed */
    const float *bias; /* NULL: no bias */
    char *y;
    ptrdiff_t y_stride;
};

struct packing {
    int64_t out_dim, in_dim;
    enum type type, packed_type;
    const char *w;
    ptrdiff_t stride;
    char *packed;
};

/* Returns the number of bytes of a tile of in_dim inputs. */
static inline int64_t matrix_tile_bytes(enum type type, int64_t in_dim)
{
    return bytes_of(type, in_dim) * TILE_KEYS;
}

static inline int64_t matrix_tiles(int64_t out_dim)
{
    return out_dim / TILE_KEYS + (out_dim % TILE_KEYS > 0);
}

/* Packs tiles first .. end - 1. */
void attnkit_pack_tiles(const struct packing *p, const struct kernels *kernels, int64_t first,
                        int64_t end);

/* Returns the number of parts that threads share out. A part has at most 64 outputs of a block of
 * at most 256 rows. */
int64_t attnkit_linear_parts(const struct linear *l, const struct kernels *kernels);

/* Returns the number of bytes of scratch for each thread. More rows never need less scratch. */
size_t attnkit_linear_scratch(const struct linear *l, const struct kernels *kernels);

/* Returns about how long it takes to put one more block of rows into scratch. The unit is the time
 * of one part. Returns 0 if the map has a single block. */
int64_t attnkit_linear_parts_of_change(const struct linear *l, const struct kernels *kernels);

/* Computes, one after the other, the parts whose indices next(arg) returns. If no part is left,
 * next(arg) returns a negative number. `memory` is the scratch, aligned to 64 bytes. */
void attnkit_linear_run_parts(const struct linear *l, const struct kernels *kernels,
                              int64_t (*next)(void *arg), void *arg, char *memory);

#endif
