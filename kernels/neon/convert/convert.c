/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of rows between binary32 and 16-bit types, TYPE_I8 and TYPE_Q8_0, in both
 * directions. A step converts 4 elements. Rows of TYPE_F8_E4M3 are converted only to binary32, 8
 * elements in a step. Tiles of K are converted to binary32, 4 elements of 16 keys at a time. Loads
 * and stores limit the speed, except in narrowing to bytes, which takes a division for each
 * element. The loops for types with scales are functions of their own. So `widen` and `narrow` need
 * not save registers for types without scales.
 */
#include "kernels/blocks.h"
#include "kernels/neon/neon.h"
#include "kernels/vectors/tile_reader.h"

static inline float float_from_f16(uint16_t half)
{
    return vgetq_lane_f32(vcvt_f32_f16(vcreate_f16(half)), 0);
}

static inline uint16_t f16_from_float(float x)
{
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}

/* Converts bytes of TYPE_F8_E4M3 to binary16 numbers that are 2^-8 times as large. The biases of
 * the exponents differ by 8, and both types have subnormal numbers. In a NaN of E4M3 all bits are
 * set, apart from the sign, which may be 0 or 1. The sum below carries into bit 14 only for a NaN.
 * The carry clears bit 14 of the sum. Bit 14 of the result is the inverse of this bit. So only for
 * a NaN are all exponent bits of the result set, which makes the result a NaN of binary16. */
static inline float16x8_t f16_from_e4m3(int8x8_t bytes)
{
    const uint16x8_t wide = vreinterpretq_u16_s16(vshll_n_s8(bytes, 7)); /* bits 14, 15: sign */
    const uint16x8_t ones = vorrq_u16(wide, vdupq_n_u16(0xc000));
    const uint16x8_t carried = vaddq_u16(ones, vdupq_n_u16(0x80));
    return vreinterpretq_f16_u16(vbslq_u16(vdupq_n_u16(0x4000), vmvnq_u16(carried), wide));
}

static inline float32x4_t product(float32x4_t x, float scale, const bool apart)
{
    return vmulq_n_f32(apart ? vmulq_n_f32(x, 256.0f) : x, scale);
}

/* Widens n elements. If `apart`, the factor 2^8 is a multiplication of its own; else `scale`
 * includes this factor. */
static inline __attribute__((always_inline)) void
widen_e4m3(const char *row, float scale, const bool apart, int64_t n, float *out)
{
    enum { BOTH = 2 * VECTOR };
    for (int64_t i = 0; i < n; i += BOTH) {
        const int left = n - i < BOTH ? (int)(n - i) : BOTH;
        uint64_t bytes = 0;
        memcpy(&bytes, row + i, (size_t)left);
        const float16x8_t half = f16_from_e4m3(vcreate_s8(bytes));
        store_first(out + i, left < VECTOR ? left : VECTOR,
                    product(vcvt_f32_f16(vget_low_f16(half)), scale, apart));
        if (left > VECTOR)
            store_first(out + i + VECTOR, left - VECTOR,
                        product(vcvt_high_f32_f16(half), scale, apart));
    }
}

/* Widens and transposes `lines` elements of the TILE_KEYS keys of a tile: element i of key j
 * becomes out[j * n + i]. `lines` is 1 .. 4. `line` has element 0 of all keys, then element 1, and
 * so on. If `scale` is not NULL, elements are multiplied by the scale of their key. */
static inline __attribute__((always_inline)) void widen_columns(const enum type type,
                                                                const char *line,
                                                                const float32x4_t *scale, int lines,
                                                                int64_t n, float *out)
{
    float32x4_t x[4][TILE_VECTORS];
    for (int i = 0; i < 4; i++)
        load_line(type, line + bytes_of(type, i < lines ? i * TILE_KEYS : 0), x[i]);
    for (int j = 0; j < TILE_VECTORS; j++) {
        float32x4_t key[4];
        for (int i = 0; i < 4; i++)
            key[i] = scale ? vmulq_f32(x[i][j], scale[j]) : x[i][j];
        transpose(key);
        for (int i = 0; i < 4; i++)
            store_first(out + (j * VECTOR + i) * n, lines, key[i]);
    }
}

static inline __attribute__((always_inline)) void widen_lines(const enum type type,
                                                              const char *line,
                                                              const float32x4_t *scale,
                                                              int64_t count, int64_t n, float *out)
{
    int64_t d = 0;
    for (; d + 4 <= count; d += 4)
        widen_columns(type, line + bytes_of(type, d * TILE_KEYS), scale, 4, n, out + d);
    if (d < count)
        widen_columns(type, line + bytes_of(type, d * TILE_KEYS), scale, lanes_at(d, count), n,
                      out + d);
}

static inline __attribute__((always_inline)) void widen_tile(const enum type type, const void *data,
                                                             const float *scales, int64_t group,
                                                             int64_t n, float *out)
{
    require_built(type);
    const enum type stored = type == TYPE_Q8_0 ? TYPE_I8 : type;
    const int64_t count = elements_of_scale(type, group, n);
    struct tile_reader tile = {.data = data, .scales = scales};
    for (int64_t d = 0; d < n; d += count) {
        next_scales(type, &tile);
        widen_lines(stored, tile.data, is_scaled(type) ? tile.scale : NULL, count, n, out + d);
        tile.data += bytes_of(stored, count * TILE_KEYS);
    }
}

/* Returns max |x| / 127. The bits of magnitudes, compared as integers, have the order of the
 * magnitudes, and NaN comes last. */
static float scale_of(const float *x, int64_t n)
{
    uint32x4_t most = vdupq_n_u32(0);
    for (int64_t i = 0; i < n; i += VECTOR)
        most = vmaxq_u32(most, vreinterpretq_u32_f32(vabsq_f32(load_first(x + i, lanes_at(i, n)))));
    const uint32x4_t largest = vdupq_n_u32(vmaxvq_u32(most));
    return vgetq_lane_f32(vreinterpretq_f32_u32(largest), 0) / 127.0f;
}

static inline uint16x4_t bf16_from_f32(float32x4_t x)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t is_odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), is_odd);
    const uint32x4_t quiet_nan = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet_nan), 16);
}

/* Rounds each element to the nearest integer, in -127 .. 127. */
static inline int8x8_t bytes_from_f32(float32x4_t x)
{
    const int16x4_t i16 = vqmovn_s32(vcvtnq_s32_f32(x));
    return vmax_s8(vqmovn_s16(vcombine_s16(i16, i16)), vdup_n_s8(-127));
}

/* Returns the narrowed elements of all lanes, in the low bytes of 64 bits. */
static inline uint64x1_t narrowed(const enum type type, float32x4_t x, float scale)
{
    switch (type) {
    case TYPE_F16:
        return vreinterpret_u64_f16(vcvt_f16_f32(x));
    case TYPE_BF16:
        return vreinterpret_u64_u16(bf16_from_f32(x));
    default:
        return vreinterpret_u64_s8(bytes_from_f32(vdivq_f32(x, vdupq_n_f32(scale))));
    }
}

/* Stores the first n of `elements` in a row, from element `at` on, and writes no byte after them.
 */
static inline __attribute__((always_inline)) void
store_elements(const enum type type, void *row, int64_t at, int n, uint64x1_t elements)
{
    memcpy((char *)row + bytes_of(type, at), &elements, (size_t)bytes_of(type, n));
}

/* Defines attnkit_neon_widen, attnkit_neon_widen_tile and attnkit_neon_narrow. */
#include "kernels/vectors/convert.h"
