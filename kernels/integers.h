/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding of numbers to integers with a common scale, by steps 16 and 18 of kernels/README.md. q
 * is rounded to 16 bits only once for each row, so this code needs no vectors. Vector tiles round
 * weights, and inputs of linear maps, by code of their own. round_bytes rounds inputs of linear
 * maps for the scalar tiles and the reference.
 */
#ifndef ATTNKIT_INTEGERS_H
#define ATTNKIT_INTEGERS_H

#include "kernels/kernels.h"

#define MOST_INTEGER 32512.0f   /* the largest integer: 127 * 256 */
#define MOST_BYTE 127.0f        /* the largest integer of 8 bits */
#define LEAST_LARGEST 0x1p-100f /* a group whose magnitudes are all smaller becomes zeros */

enum {
    EVEN_OFFSET = 128, /* some tiles add this to bytes 0 and 2 of each 4 bytes of K or V. The
                        * results are unsigned bytes: widening them takes fewer instructions than
                        * widening signed bytes */
};

/* How the numbers of a group become integers: a number times `inverse` is rounded to binary32, and
 * then to the nearest integer, ties to even. An integer stands for the number integer * scale. */
struct integer_scale {
    float scale, inverse;
};

/* Returns whether `type`, the type of rows of K or V that are multiplied as integers, is TYPE_I8.
 * The only other such type is TYPE_Q8_0. */
static inline bool is_i8(enum type type)
{
    return is_built(TYPE_I8) && (type == TYPE_I8 || !is_built(TYPE_Q8_0));
}

/* Ends the program if this build has no rows that are multiplied as integers. In such a build the
 * compiler drops the code after this call. */
static inline void require_built_integers(void)
{
    if (!is_built(TYPE_I8) && !is_built(TYPE_Q8_0))
        __builtin_trap();
}

/* Returns how many bytes after the beginning of a row of TYPE_Q8_0 or TYPE_I8 the integers of the
 * block at element d begin. Both types have a byte for an element, and TYPE_Q8_0 has a scale in
 * front of each block. In a tile of K this distance is TILE_KEYS times as large. */
static inline int64_t integers_in_row(enum type type, int64_t d)
{
    return d + (is_i8(type) ? 0 : (d / Q8_BLOCK + 1) * (int64_t)sizeof(uint16_t));
}

/* Returns the scale with which the largest magnitude of a group becomes the integer `most`. `bits`
 * are the bits of this magnitude. Compared as integers, the bits of a NaN are larger than the bits
 * of any number, so `bits` are a NaN's if the group has one. */
static inline __attribute__((always_inline)) struct integer_scale scale_of_most(uint32_t bits,
                                                                                const float most)
{
    const struct integer_scale none = {0.0f, 0.0f}, not_finite = {NAN, 0.0f};
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    if (!(largest <= FLT_MAX))
        return not_finite;
    if (largest < LEAST_LARGEST)
        return none;
    return (struct integer_scale){largest * (1.0f / most), most / largest};
}

static inline struct integer_scale integer_scale_of(uint32_t bits)
{
    return scale_of_most(bits, MOST_INTEGER);
}

/* Returns the scale with which inputs of a linear map become integers of 8 bits (step 18). */
static inline struct integer_scale byte_scale_of(uint32_t bits)
{
    return scale_of_most(bits, MOST_BYTE);
}

/* Returns the bits of |x|. */
static inline uint32_t magnitude_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* Rounds Q8_BLOCK numbers. If their scale is NaN, all integers are 0. Returns the scale. */
static inline float round_group(const float *x, int16_t *integers)
{
    uint32_t bits = 0;
    for (int i = 0; i < Q8_BLOCK; i++)
        bits = magnitude_bits(x[i]) > bits ? magnitude_bits(x[i]) : bits;
    const struct integer_scale s = integer_scale_of(bits);
    for (int i = 0; i < Q8_BLOCK; i++)
        integers[i] = isnan(s.scale) ? 0 : (int16_t)rintf(x[i] * s.inverse);
    return s.scale;
}

/* Rounds Q8_BLOCK inputs of a linear map to bytes. If their scale is NaN, all bytes are 0. Returns
 * the scale. */
static inline float round_bytes(const float *x, int8_t *bytes)
{
    uint32_t bits = 0;
    for (int i = 0; i < Q8_BLOCK; i++)
        bits = magnitude_bits(x[i]) > bits ? magnitude_bits(x[i]) : bits;
    const struct integer_scale s = byte_scale_of(bits);
    for (int i = 0; i < Q8_BLOCK; i++)
        bytes[i] = isnan(s.scale) ? 0 : (int8_t)rintf(x[i] * s.inverse);
    return s.scale;
}

/* In a row of n elements that integer_kernels.round_row has rounded, an int32_t for each Q8_BLOCK
 * elements follows the scales, and the integers come last. beginnings_of returns the address of the
 * first int32_t. integers_of returns the address of the first integer. */
static inline const int32_t *beginnings_of(const float *row, int64_t n)
{
    return (const int32_t *)(const void *)(row + n / Q8_BLOCK);
}

static inline const int16_t *integers_of(const float *row, int64_t n)
{
    return (const int16_t *)(const void *)(row + 2 * (n / Q8_BLOCK));
}

/* Rounds a row of n elements as struct integer_kernels says. */
static inline void round_row(const float *row, int64_t n, float *rounded)
{
    int32_t *const beginnings = (int32_t *)(void *)(rounded + n / Q8_BLOCK);
    int16_t *const integers = (int16_t *)(void *)(rounded + 2 * (n / Q8_BLOCK));
    for (int64_t d = 0; d < n; d += Q8_BLOCK) {
        int16_t group[Q8_BLOCK];
        int32_t even = 0;
        rounded[d / Q8_BLOCK] = round_group(row + d, group);
        for (int i = 0; i < Q8_BLOCK; i += 4) {
            const int16_t four[4] = {group[i], group[i + 2], group[i + 1], group[i + 3]};
            memcpy(integers + d + i, four, sizeof four);
            even += group[i] + group[i + 2];
        }
        beginnings[d / Q8_BLOCK] = -EVEN_OFFSET * even;
    }
}

#endif
