/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of rows whose blocks have less than a byte for an element, UNIT elements at a time.
 * The blocks.c of an instruction set defines unit_scale, half_everywhere, widen_unit and
 * narrow_block, and then includes this file. Before the #include, blocks.c also defines
 * store_integers, or includes packed_integers.h, which defines store_integers. store_integers
 * stores the integers of a unit as signed bytes.
 */
#ifndef ATTNKIT_VECTORS_BLOCKS_H
#define ATTNKIT_VECTORS_BLOCKS_H

#include "kernels/blocks.h"

static inline __attribute__((always_inline)) void widen(const enum type type, const char *block,
                                                        int64_t n, float *out)
{
    const int64_t units = block_elements(type) / UNIT;
    for (int64_t i = 0; i < n; i += units * UNIT, block += block_bytes(type)) {
        const unit_scale scale = half_everywhere(block);
        const unit_scale minimum = has_minimum(type) ? half_everywhere(block + MINIMUM_AT) : scale;
        for (int64_t unit = 0; unit < units; unit++)
            widen_unit(type, block, unit, scale, minimum, out + i + unit * UNIT);
    }
}

/* Writes the scale and the integers of each unit as a block of TYPE_Q8_0. Returns the address after
 * the last block, where the next row is to be written. */
static inline __attribute__((always_inline)) char *
unpack_row(const enum type type, const char *block, int64_t n, char *to)
{
    const int64_t units = block_elements(type) / UNIT;
    for (int64_t i = 0; i < n; i += units * UNIT, block += block_bytes(type))
        for (int64_t unit = 0; unit < units; unit++, to += Q8_BLOCK_BYTES) {
            memcpy(to, block, sizeof(uint16_t));
            store_integers(type, block, unit, to + sizeof(uint16_t));
        }
    return to;
}

static inline __attribute__((always_inline)) void
unpack(const enum type type, const struct rows *rows, int count, char *to)
{
    for (int r = 0; r < count; r++)
        to = unpack_row(type, rows->first + r * rows->stride, rows->dim, to);
}

#include "kernels/blocks_by_type.h"

#endif
