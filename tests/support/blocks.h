/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks with less than a byte for an element and bytes of 8 bit floating point mean, worked
 * out in binary64 from tables of their formats and from no code of the library; and rows of them
 * for tests, of types that the library does not write as well.
 */
#ifndef ATTNKIT_TEST_BLOCKS_H
#define ATTNKIT_TEST_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* Where the integers of a block are and what they stand for. Its first two bytes are a scale. */
struct block_format {
    const char *name;
    enum type type;
    int elements, bytes, bits; /* bits: of an integer, without a fifth one */
    int minimum_at, fifth_at;  /* bytes from the beginning; 0: there is none */
    int integers_at;
    int zero; /* the integer that is 0 */
};

enum { BLOCK_FORMATS = 7 };

extern const struct block_format block_formats[BLOCK_FORMATS];

/* Of a type with less than a byte for an element. */
const struct block_format *block_format_of(enum type type);

/* Integer i as its bits are, and as the number that is scaled. */
int block_bits(const struct block_format *f, const char *block, int i);
int block_integer(const struct block_format *f, int bits);

void block_put_bits(const struct block_format *f, char *block, int i, int bits);

/* Element i of a block: integer times scale, plus the minimum, rounded once. */
float block_element(const struct block_format *f, const char *block, int i);

float e4m3_value(uint8_t byte);

/* A row of any type, as the library writes it. Of the types that it does not write, numbers are
 * finite, each block or group gets a scale by its largest, and elements are as near as they can be.
 */
void store_row(enum type type, const float *x, int64_t n, int64_t group, void *row, float *scales);

/* Puts scale and, if there is one, minimum of each block of a row. */
void block_put_halves(enum type type, void *row, int64_t n, uint16_t (*next)(void *arg), void *arg);

#endif
