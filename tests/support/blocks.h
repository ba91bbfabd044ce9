/* SPDX-License-Identifier: Apache-2.0
 *
 * The meaning of blocks with less than a byte for an element, and of 8-bit floating point, worked
 * out in binary64 from tables of the formats, without code of the library. The file also makes rows
 * of these types, even of types that the library does not write.
 */
#ifndef ATTNKIT_TEST_BLOCKS_H
#define ATTNKIT_TEST_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* The place and the meaning of a block's integers. A block begins with a scale of two bytes. */
struct block_format {
    const char *name;
    enum type type;
    int elements, bytes, bits; /* bits: of an integer, without its fifth bit */
    int minimum_at, fifth_at;  /* bytes from the block's beginning; 0: none */
    int integers_at;
    int zero; /* the integer that is 0 */
};

enum { BLOCK_FORMATS = 7 };

extern const struct block_format block_formats[BLOCK_FORMATS];

/* Returns the format of a type with less than a byte for an element. */
const struct block_format *block_format_of(enum type type);

/* Returns the bits of integer i; and the number for these bits, which the scale multiplies. */
int block_bits(const struct block_format *f, const char *block, int i);
int block_integer(const struct block_format *f, int bits);

void block_put_bits(const struct block_format *f, char *block, int i, int bits);

/* Computes element i of a block: integer times scale, plus the minimum, rounded once. */
float block_element(const struct block_format *f, const char *block, int i);

float e4m3_value(uint8_t byte);

/* Stores a row of any type, as the library would. For types that the library does not write,
 * numbers must be finite, the scale of each block or group follows from its largest number, and
 * elements are the nearest.
 */
void store_row(enum type type, const float *x, int64_t n, int64_t group, void *row, float *scales);

/* Sets the scale and the minimum, if the type has one, of each block of a row. */
void block_put_halves(enum type type, void *row, int64_t n, uint16_t (*next)(void *arg), void *arg);

#endif
