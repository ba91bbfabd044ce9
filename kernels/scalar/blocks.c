/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions for the types of blocks whose integers have fewer bits than a byte. Rows of all these
 * types are converted to binary32. Rows of the types without a minimum are also converted to
 * TYPE_Q8_0. Rows of TYPE_Q4_0 and TYPE_Q5_0 are also made from binary32. One element is converted
 * at a time. The blocks.c of every other instruction set must give the same bits.
 */
#include "kernels/blocks.h"
#include "kernels/scalar/scalar.h"

static float half_at(const char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return float_from_f16(half);
}

static uint32_t word_at(const char *from)
{
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

/* Returns the bits of integer i of a unit, which is UNIT elements of a block. */
static inline int packed_integer(const enum type type, const char *block, int64_t unit, int i)
{
    const unsigned char *const bytes = (const unsigned char *)block + integers_at(type, unit);
    const int bits = bits_of_integer(type);
    if (bits < 4)
        return bytes[i * bits / 8] >> i * bits % 8 & ((1 << bits) - 1);
    const int low = bytes[i % 16] >> i / 16 * 4 & 15;
    const uint32_t fifth = has_fifth_bits(type) ? word_at(block + fifth_bits_at(type)) >> i & 1 : 0;
    return low | (int)fifth << 4;
}

/* Returns the integer that a packed integer means. */
static inline int integer(const enum type type, int packed)
{
    static const int8_t values[] = {IQ4_NL_VALUES};
    switch (type) {
    case TYPE_Q4_0:
    case TYPE_Q5_0:
        return packed - zero_integer(type);
    case TYPE_IQ4_NL:
        return values[packed];
    case TYPE_Q1_0:
        return packed ? 1 : -1;
    case TYPE_Q2_0:
        return packed - 1;
    default:
        return packed;
    }
}

static inline void widen_block(const enum type type, const char *block, float *out)
{
    const float scale = half_at(block), minimum = half_at(block + MINIMUM_AT);
    for (int64_t i = 0; i < block_elements(type); i++) {
        const int packed = packed_integer(type, block, i / UNIT, (int)(i % UNIT));
        const float q = (float)integer(type, packed);
        out[i] = has_minimum(type) ? fma_once(q, scale, minimum) : q * scale;
    }
}

static inline void widen(const enum type type, const char *block, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += block_elements(type), block += block_bytes(type))
        widen_block(type, block, out + i);
}

static inline void unpack_row(const enum type type, const char *row, int64_t n, char *to)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t in_block = i % block_elements(type);
        const char *const block = row + bytes_of(type, i - in_block);
        const int packed = packed_integer(type, block, in_block / UNIT, (int)(i % UNIT));
        char *const unit = to + i / UNIT * Q8_BLOCK_BYTES;
        memcpy(unit, block, sizeof(uint16_t));
        unit[sizeof(uint16_t) + i % UNIT] = (char)integer(type, packed);
    }
}

static inline void unpack(const enum type type, const struct rows *rows, int count, char *to)
{
    for (int r = 0; r < count; r++, to += bytes_of(TYPE_Q8_0, rows->dim))
        unpack_row(type, rows->first + r * rows->stride, rows->dim, to);
}

/* Returns the element with the largest magnitude, or the first of several. A NaN counts as larger
 * than any number. */
static float largest_of(const float *x)
{
    float largest = x[0];
    for (int i = 1; i < UNIT; i++)
        if ((bits_from_float(x[i]) & 0x7fffffff) > (bits_from_float(largest) & 0x7fffffff))
            largest = x[i];
    return largest;
}

static inline void narrow_block(const enum type type, const float *x, char *block)
{
    const int zero = zero_integer(type);
    const float scale = largest_of(x) / (float)-zero, factor = factor_of(scale);
    const uint16_t half = f16_from_float(plain_nan(scale));
    unsigned char packed[UNIT / 2] = {0};
    uint32_t fifth = 0;
    for (int i = 0; i < UNIT; i++) {
        const float shifted = factor == 0.0f ? (float)zero : x[i] * factor + ((float)zero + 0.5f);
        const uint32_t q =
            shifted < (float)(2 * zero) ? (uint32_t)shifted : 2u * (uint32_t)zero - 1;
        packed[i % 16] |= (unsigned char)((q & 15) << i / 16 * 4);
        fifth |= q >> 4 << i;
    }
    memcpy(block, &half, sizeof half);
    if (has_fifth_bits(type))
        memcpy(block + fifth_bits_at(type), &fifth, sizeof fifth);
    memcpy(block + integers_at(type, 0), packed, sizeof packed);
}

#include "kernels/blocks_by_type.h"
