/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of stored elements, computed in binary64 from the definitions of the formats, without
 * code of the library. Tests of conversions, and tests of calls on tensors of every type, compare
 * results with these values.
 */
#ifndef ATTNKIT_TEST_FORMATS_H
#define ATTNKIT_TEST_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* A format of 16 bits: sign, exponent, fraction. */
struct format {
    const char *name;
    enum type type;
    int fraction_bits;
    int smallest; /* the smallest positive number is 2 to this power */
    uint16_t infinity;
};

enum { FORMATS = 2 };

extern const struct format formats[FORMATS]; /* binary16, bfloat16 */

/* Returns the format of TYPE_F16 or TYPE_BF16. */
const struct format *format_of(enum type type);

/* Returns the magnitude of a number that is not NaN. Infinity counts as the power of two after the
 * largest finite number. */
double magnitude_of(const struct format *f, uint16_t half);

bool is_nan(const struct format *f, uint16_t half);

/* Returns the bits of the binary32 number that `half` widens to. A binary16 NaN becomes quiet. A
 * bfloat16 NaN keeps its bits. */
uint32_t widened_bits(const struct format *f, uint16_t half);

/* Returns whether `half` is x narrowed: `half` has the sign of x, and no neighbouring 16-bit number
 * is nearer to x. If a neighbour is equally near, `half` must be the even one of the two. A NaN
 * must keep its sign and the upper bits of its payload, and be quiet. */
bool is_narrowed(const struct format *f, float x, uint16_t half);

/* Returns whether a row of TYPE_F32, TYPE_F16 or TYPE_BF16 holds the n expected values, narrowed to
 * the type of the row. The bits of a NaN count, too. */
bool is_narrowed_row(enum type type, const float *expected, const char *row, int64_t n);

/* Widens a row of n elements of any type to binary32. If has_scales(type), each `group` elements
 * share one of `scales`. Other types do not use `scales` and `group`. */
void widen_row(enum type type, const void *row, const float *scales, int64_t group, int64_t n,
               float *out);

/* Returns the offset in a tile of K, in bytes, of byte n of the row of key `key`. `key` is the
 * place of the key in the tile, from 0 to TILE_KEYS - 1. The type is a type that tiles can have.
 * A tile of a packed matrix has the same form, with outputs in place of keys. */
int64_t byte_in_tile(enum type type, int64_t n, int64_t key);

#endif
