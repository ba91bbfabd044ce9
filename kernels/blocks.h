/* SPDX-License-Identifier: Apache-2.0
 *
 * What is where in the blocks of ggml with less than a byte for an element, for the blocks.c of
 * every instruction set. A block is a binary16 scale; with a minimum, a binary16 minimum; where
 * integers have 5 bits, 32 bits that are the fifth ones, that of element i in bit i; and the
 * integers. Integers of 4 bits are in 16 bytes, those of the first 16 elements in the lower halves.
 * Integers of 2 bits and of 1 are in the order of the elements, from the lowest bits of a byte on.
 */
#ifndef ATTNKIT_BLOCKS_H
#define ATTNKIT_BLOCKS_H

#include "kernels/kernels.h"

enum { UNIT = 32 }; /* elements that are unpacked together: a block, or a part of it */

static inline bool has_minimum(const enum type type)
{
    return type == TYPE_Q4_1 || type == TYPE_Q5_1;
}

static inline bool has_fifth_bits(const enum type type)
{
    return type == TYPE_Q5_0 || type == TYPE_Q5_1;
}

/* Bits of an integer without the fifth. */
static inline int bits_of_integer(const enum type type)
{
    return type == TYPE_Q1_0 ? 1 : type == TYPE_Q2_0 ? 2 : 4;
}

enum { MINIMUM_AT = 2 };

static inline int64_t fifth_bits_at(const enum type type)
{
    return has_minimum(type) ? 4 : 2;
}

/* The offset of the integers of unit `unit`. */
static inline int64_t integers_at(const enum type type, int64_t unit)
{
    return fifth_bits_at(type) + (has_fifth_bits(type) ? 4 : 0) +
           unit * UNIT * bits_of_integer(type) / 8;
}

/* The values of the 16 integers of TYPE_IQ4_NL. */
#define IQ4_NL_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

/* Whether there is a rule by which binary32 becomes this type, blocks or not. */
static inline bool can_be_written(enum type type)
{
    return !is_only_widened(type) || type == TYPE_Q4_0 || type == TYPE_Q5_0;
}

/* The integer of TYPE_Q4_0 or TYPE_Q5_0 that means 0. Integer 0 means the largest magnitude. The
 * largest integer is twice the result, less 1. */
static inline int zero_integer(const enum type type)
{
    return type == TYPE_Q4_0 ? 8 : 16;
}

/* The factor of elements before they are rounded: 1 / scale. It is 0 where the scale is 0, too
 * small or not finite, so that every integer becomes 0. */
static inline float factor_of(float scale)
{
    const float factor = 1.0f / scale;
    return fabsf(factor) < INFINITY ? factor : 0.0f;
}

/* Vectors make binary16 of TYPE_F8_E4M3 first, which is 2^-8 times the number: whether a scale
 * cannot be multiplied by 2^8, so that this takes a product of its own. */
static inline bool is_too_large_for_e4m3(float scale)
{
    return fabsf(scale) < INFINITY && !(fabsf(scale) < 0x1p120f);
}

#endif
