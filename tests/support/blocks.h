/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of elements in block types of less than a byte per element, and in 8-bit floating
 * point. The values are computed in binary64, without code of the library. store_row makes rows of
 * any type, also of types that the library does not write.
 */
#ifndef ATTNKIT_TEST_BLOCKS_H
#define ATTNKIT_TEST_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* The positions of a block's integers, and the numbers that the integers stand for. A block begins
 * with a scale of two bytes. `integers_at` is the offset of the integers in the block, in bytes. */
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

/* block_bits returns the bits of integer i of a block. block_integer returns the number that these
 * bits stand for. The scale multiplies this number. */
int block_bits(const struct block_format *f, const char *block, int i);
int block_integer(const struct block_format *f, int bits);

void block_put_bits(const struct block_format *f, char *block, int i, int bits);

/* Computes element i of a block: integer times scale plus minimum, rounded once. */
float block_element(const struct block_format *f, const char *block, int i);

float e4m3_value(uint8_t byte);

/* Stores the n numbers of x as a row of any type. If has_scales(type), each `group` elements share
 * one of `scales`. If the library writes the type, the library's scalar code stores the row. For
 * any other type, all numbers of x must be finite, and the function chooses the scale of each block
 * or group. In types with a minimum, the scale and the minimum follow from the smallest and the
 * largest number of the block. In other types, the scale follows from the largest magnitude. Each
 * element of x is stored as the nearest number that the type has with this scale and minimum. */
void store_row(enum type type, const float *x, int64_t n, int64_t group, void *row, float *scales);

/* Sets the scale of each block of a row, and its minimum if the type has one. The bits of each come
 * from a call of next(arg). Does nothing for a type that is not in block_formats. */
void block_put_halves(enum type type, void *row, int64_t n, uint16_t (*next)(void *arg), void *arg);

#endif
