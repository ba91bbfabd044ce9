/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of elements in block types of less than a byte per element, and in 8-bit floating
 * point. The values are computed in binary64, without code of the library. The file also makes rows
 * of these types, even of types that the library does not write.
 */
#ifndef ATTNKIT_TEST_BLOCKS_H
#define ATTNKIT_TEST_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* The positions of a block's integers, and the numbers that they stand for. A block begins with a
 * scale of two bytes. */
struct block_format {
    const char *name;
    enum type type;
    int elements, bytes,
        bits; /* `bits` is the number of bits of an integer, without its fifth bit */
    int minimum_at, fifth_at; /* offsets in the block, in bytes; 0 if the block has no such field */
    int integers_at;
    int zero; /* the integer that stands for 0; not used for TYPE_IQ4_NL and TYPE_Q1_0 */
};

enum { BLOCK_FORMATS = 7 };

extern const struct block_format block_formats[BLOCK_FORMATS];

/* Returns the format of a type with less than a byte per element, or NULL for another type. */
const struct block_format *block_format_of(enum type type);

/* block_bits returns the bits of integer i. block_integer returns the number that these bits stand
 * for, which the scale multiplies. */
int block_bits(const struct block_format *f, const char *block, int i);
int block_integer(const struct block_format *f, int bits);

void block_put_bits(const struct block_format *f, char *block, int i, int bits);

/* Computes element i of a block: integer times scale plus minimum, rounded once. */
float block_element(const struct block_format *f, const char *block, int i);

float e4m3_value(uint8_t byte);

/* Stores x as a row of any type. If the library writes the type, the library's scalar code stores
 * the row. For any other type, all numbers of x must be finite. The scale of a block or group then
 * follows from the number of largest magnitude in it or, in types with a minimum, from the smallest
 * and the largest number in it. Each element of x is stored as the nearest number that the type has
 * with this scale and minimum.
 */
void store_row(enum type type, const float *x, int64_t n, int64_t group, void *row, float *scales);

/* Sets the scale of each block of a row, and its minimum if the type has one. The bits of each come
 * from a call of next(arg). Does nothing for a type that is not in block_formats. */
void block_put_halves(enum type type, void *row, int64_t n, uint16_t (*next)(void *arg), void *arg);

#endif
