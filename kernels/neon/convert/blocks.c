/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions for the types whose blocks have less than a byte for an element. Rows of all these
 * types are converted to binary32. Rows of the types without a minimum are also converted to
 * TYPE_Q8_0. Rows of TYPE_Q4_0 and TYPE_Q5_0 are also made from binary32. A step of the conversion
 * to binary32 takes some 40 instructions for 32 elements. A shift, a table or a test of bits turns
 * the integers of the elements into signed bytes in two vectors. The bytes then become eight
 * vectors of binary32. The eight conversions and the eight stores limit the speed. Ten vectors and
 * the constants are live at a time. The conversion to TYPE_Q8_0 stores the signed bytes as they
 * are: some 10 instructions.
 */
#include "kernels/blocks.h"
#include "kernels/neon/neon.h"

typedef float unit_scale;

static inline float half_everywhere(const char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return vgetq_lane_f32(vcvt_f32_f16(vcreate_f16(half)), 0);
}

/* Returns a vector of bytes. If bit i of the 2 bytes at `from` is set, byte i has all bits set.
 * Else byte i is 0. */
static inline uint8x16_t bytes_from_bits(const uint8_t *from)
{
    const uint8x8_t bit = vcreate_u8(0x8040201008040201);
    const uint8x16_t spread = vcombine_u8(vdup_n_u8(from[0]), vdup_n_u8(from[1]));
    return vtstq_u8(spread, vcombine_u8(bit, bit));
}

/* Returns the 4-bit integers of half a unit (16 of UNIT elements) as bytes. */
static inline __attribute__((always_inline)) uint8x16_t quads(const uint8_t *from, int half)
{
    const uint8x16_t bytes = vld1q_u8(from);
    return half ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15));
}

/* Returns the 2-bit integers of half a unit (16 of UNIT elements) as bytes. Each of 4 bytes is
 * copied to 4 bytes, and each copy is shifted by a different number of bits. */
static inline uint8x16_t pairs(const uint8_t *from)
{
    const uint8x16_t own =
        vcombine_u8(vcreate_u8(0x0101010100000000), vcreate_u8(0x0303030302020202));
    const int8x8_t shift = vcreate_s8(0xfafcfe00fafcfe00); /* 0, -2, -4, -6 */
    uint32_t four;
    memcpy(&four, from, sizeof four);
    const uint8x16_t spread = vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(four)), own);
    return vandq_u8(vshlq_u8(spread, vcombine_s8(shift, shift)), vdupq_n_u8(3));
}

/* Returns the integers of half a unit (16 of UNIT elements), not yet scaled. */
static inline __attribute__((always_inline)) int8x16_t
integers(const enum type type, const char *block, int64_t unit, int half)
{
    static const int8_t values[] = {IQ4_NL_VALUES};
    const uint8_t *const from = (const uint8_t *)block + integers_at(type, unit);
    const uint8_t *const fifth = (const uint8_t *)block + fifth_bits_at(type) + 2 * half;
    uint8x16_t q;
    switch (type) {
    case TYPE_Q4_0:
        return vsubq_s8(vreinterpretq_s8_u8(quads(from, half)), vdupq_n_s8(8));
    case TYPE_Q5_0: /* q - 16: the low four bits, and if the fifth bit is 0, 0xf0 */
        q = vorrq_u8(quads(from, half), vbicq_u8(vdupq_n_u8(0xf0), bytes_from_bits(fifth)));
        return vreinterpretq_s8_u8(q);
    case TYPE_Q5_1:
        q = vorrq_u8(quads(from, half), vandq_u8(vdupq_n_u8(16), bytes_from_bits(fifth)));
        return vreinterpretq_s8_u8(q);
    case TYPE_IQ4_NL:
        return vqtbl1q_s8(vld1q_s8(values), quads(from, half));
    case TYPE_Q1_0: /* 1 where the bit is set, -1 where it is not */
        q = vorrq_u8(vmvnq_u8(bytes_from_bits(from + 2 * half)), vdupq_n_u8(1));
        return vreinterpretq_s8_u8(q);
    case TYPE_Q2_0:
        return vsubq_s8(vreinterpretq_s8_u8(pairs(from + 4 * half)), vdupq_n_s8(1));
    default:
        return vreinterpretq_s8_u8(quads(from, half));
    }
}

static inline __attribute__((always_inline)) void
widen_bytes(const enum type type, int8x16_t bytes, float scale, float minimum, float *out)
{
    const int16x8_t halves[] = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
    for (int i = 0; i < 4; i++) {
        const int16x8_t half = halves[i / 2];
        const int32x4_t q = i % 2 ? vmovl_high_s16(half) : vmovl_s16(vget_low_s16(half));
        const float32x4_t wide = vcvtq_f32_s32(q);
        const float32x4_t x = has_minimum(type) ? vfmaq_n_f32(vdupq_n_f32(minimum), wide, scale)
                                                : vmulq_n_f32(wide, scale);
        vst1q_f32(out + i * VECTOR, x);
    }
}

static inline __attribute__((always_inline)) void widen_unit(const enum type type,
                                                             const char *block, int64_t unit,
                                                             float scale, float minimum, float *out)
{
    for (int half = 0; half < 2; half++)
        widen_bytes(type, integers(type, block, unit, half), scale, minimum, out + half * UNIT / 2);
}

static inline __attribute__((always_inline)) void
store_integers(const enum type type, const char *block, int64_t unit, char *to)
{
    for (int half = 0; half < 2; half++)
        vst1q_s8((int8_t *)to + half * UNIT / 2, integers(type, block, unit, half));
}

/* Returns the element with the largest magnitude. If several elements have this magnitude, returns
 * the first of them. The bits of magnitudes, compared as integers, have the order of the
 * magnitudes, and NaN comes last. In each lane the search goes from the last element to the first,
 * so that the first of several elements with this magnitude is found last and remains. */
static inline float largest_of(const float *x)
{
    enum { PARTS = UNIT / VECTOR };
    const uint32x4_t lane = vcombine_u32(vcreate_u32(0x100000000), vcreate_u32(0x300000002));
    uint32x4_t magnitude[PARTS], most = vdupq_n_u32(0), first = vdupq_n_u32(UNIT);
    for (int i = 0; i < PARTS; i++) {
        magnitude[i] = vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i * VECTOR)));
        most = vmaxq_u32(most, magnitude[i]);
    }
    most = vdupq_n_u32(vmaxvq_u32(most));
    for (int i = PARTS - 1; i >= 0; i--) {
        const uint32x4_t index = vaddq_u32(lane, vdupq_n_u32((uint32_t)(i * VECTOR)));
        first = vbslq_u32(vceqq_u32(magnitude[i], most), index, first);
    }
    return x[vminvq_u32(first)];
}

/* Returns the integers of VECTOR elements. */
static inline __attribute__((always_inline)) uint16x4_t integers_from(const enum type type,
                                                                      const float *x, float factor)
{
    const float zero = (float)zero_integer(type);
    /* If the factor is 0, nothing is multiplied, because infinity * 0 would be NaN. */
    const float32x4_t product =
        factor == 0.0f ? vdupq_n_f32(0.0f) : vmulq_n_f32(vld1q_f32(x), factor);
    const uint32x4_t q = vcvtq_u32_f32(vaddq_f32(product, vdupq_n_f32(zero + 0.5f)));
    return vmovn_u32(vminq_u32(q, vdupq_n_u32(2 * (uint32_t)zero_integer(type) - 1)));
}

/* Returns the integers of 16 elements as bytes. */
static inline __attribute__((always_inline)) uint8x16_t bytes_from(const enum type type,
                                                                   const float *x, float factor)
{
    uint8x8_t bytes[2];
    for (int i = 0; i < 2; i++, x += 2 * VECTOR)
        bytes[i] = vmovn_u16(
            vcombine_u16(integers_from(type, x, factor), integers_from(type, x + VECTOR, factor)));
    return vcombine_u8(bytes[0], bytes[1]);
}

/* Returns bit 4 of byte i as bit i. Byte i of each 8 bytes becomes 2^i if its bit 4 is set, else 0.
 * The sum of these 8 bytes then has all 8 bits. */
static inline uint32_t fifth_bits(uint8x16_t bytes)
{
    const uint8x8_t bit = vcreate_u8(0x8040201008040201);
    const uint8x16_t is_set = vtstq_u8(bytes, vdupq_n_u8(16));
    return (uint32_t)vaddv_u8(vand_u8(vget_low_u8(is_set), bit)) |
           (uint32_t)vaddv_u8(vand_u8(vget_high_u8(is_set), bit)) << 8;
}

static inline __attribute__((always_inline)) void narrow_block(const enum type type, const float *x,
                                                               char *block)
{
    const float scale = largest_of(x) / (float)-zero_integer(type), factor = factor_of(scale);
    const uint8x16_t low = bytes_from(type, x, factor);
    const uint8x16_t high = bytes_from(type, x + UNIT / 2, factor);
    const uint8x16_t packed = vsliq_n_u8(low, high, 4); /* low is in the lower 4 bits */
    const float plain = isnan(scale) ? NAN : scale;
    const uint16x4_t halves = vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(plain)));
    const uint16_t bits = vget_lane_u16(halves, 0);
    memcpy(block, &bits, sizeof bits);
    if (has_fifth_bits(type)) {
        const uint32_t fifth = fifth_bits(low) | fifth_bits(high) << UNIT / 2;
        memcpy(block + fifth_bits_at(type), &fifth, sizeof fifth);
    }
    vst1q_u8((uint8_t *)block + integers_at(type, 0), packed);
}

/* Defines attnkit_neon_widen_blocks, attnkit_neon_unpack and attnkit_neon_narrow_blocks. */
#include "kernels/vectors/blocks.h"
