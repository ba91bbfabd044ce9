/* SPDX-License-Identifier: Apache-2.0
 *
 * For the conversions of every instruction set (blocks.c and convert.c): the layout of ggml's
 * blocks with less than a byte for an element, and rules for scales. A block begins with a binary16
 * scale. Types with a minimum have a binary16 minimum next. Types with integers of 5 bits have 32
 * bits next: bit i is the fifth bit of element i. The integers, without fifth bits, come last.
 * Integers of 4 bits are in 16 bytes: the lower halves of the bytes have the first 16 elements, the
 * upper halves the last 16. Integers of 2 bits and of 1 bit are in the order of the elements, from
 * the lowest bits of a byte on.
 */
#ifndef ATTNKIT_BLOCKS_H
#define ATTNKIT_BLOCKS_H

#include "kernels/kernels.h"

enum { UNIT = 32 }; /* elements that are unpacked together: a block or a part of a block */

static inline bool has_minimum(const enum type type)
{
    return type == TYPE_Q4_1 || type == TYPE_Q5_1;
}

static inline bool has_fifth_bits(const enum type type)
{
    return type == TYPE_Q5_0 || type == TYPE_Q5_1;
}

/* Returns the number of bits of an integer, without the fifth bit. */
static inline int bits_of_integer(const enum type type)
{
    return type == TYPE_Q1_0 ? 1 : type == TYPE_Q2_0 ? 2 : 4;
}

enum { MINIMUM_AT = 2 };

static inline int64_t fifth_bits_at(const enum type type)
{
    return has_minimum(type) ? 4 : 2;
}

/* Returns the offset of the integers of unit `unit`. */
static inline int64_t integers_at(const enum type type, int64_t unit)
{
    return fifth_bits_at(type) + (has_fifth_bits(type) ? 4 : 0) +
           unit * UNIT * bits_of_integer(type) / 8;
}

/* What the integers 0 to 15 of TYPE_IQ4_NL mean. */
#define IQ4_NL_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

/* Returns whether there is a rule to convert binary32 to this type. The type may be one without
 * blocks. */
static inline bool can_be_written(enum type type)
{
    return !is_only_widened(type) || type == TYPE_Q4_0 || type == TYPE_Q5_0;
}

/* Returns the integer of TYPE_Q4_0 or TYPE_Q5_0 that means 0. Integer 0 means the element of the
 * largest magnitude. The largest integer is twice the result, minus 1. */
static inline int zero_integer(const enum type type)
{
    return type == TYPE_Q4_0 ? 8 : 16;
}

/* Returns the factor by which elements are multiplied before they are rounded: 1 / scale. The
 * factor is 0 if the scale is 0, too small or not finite, so that every element becomes 0. */
static inline float factor_of(float scale)
{
    const float factor = 1.0f / scale;
    return fabsf(factor) < INFINITY ? factor : 0.0f;
}

/* Returns whether a scale is finite, but too large to be multiplied by 2^8. Vector code first turns
 * an element of TYPE_F8_E4M3 into the binary16 number that is 2^-8 times as large, and then
 * multiplies by the scale times 2^8. With a scale that is too large, the binary16 number is
 * multiplied first by 2^8 and then by the scale. */
static inline bool is_too_large_for_e4m3(float scale)
{
    return fabsf(scale) < INFINITY && !(fabsf(scale) < 0x1p120f);
}

#endif
