/* SPDX-License-Identifier: Apache-2.0
 *
 * NEON: the shape of a panel, the inline helpers that several tiles use, and the prototypes of the
 * entries. kernels/vectors/table.h lists all entries. Among the helpers are loads and stores of 1
 * to 4 floats, because NEON has no loads and stores with a mask.
 */
#ifndef ATTNKIT_NEON_H
#define ATTNKIT_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

#define KERNEL(entry) attnkit_neon_##entry
#define KERNEL_TABLE attnkit_neon
#define KERNEL_NAME "neon"

enum {
    VECTOR = 4,  /* floats in a vector */
    VECTORS = 3, /* vectors of query rows in a panel */
    LANES = VECTORS * VECTOR,
    FULL = 8, /* keys or value columns in a register tile: at most 24 sums, 3 vectors of q or p, and
                 1 or 2 of K or V */
    MAX_HEIGHT = 16, /* keys or value columns if the panel is a single vector: 16 sums keep 4 pipes
                        with a latency of 4 busy */
    DECODE_ROWS = 8,
    F32_DECODE_ROWS = 8,
    FAR_REST_ROWS = VECTOR / 2,
    F32_FAR_REST_ROWS = VECTOR / 2,
    NEAR_REST_BYTES = 1 << 20, /* no effect: the limits beyond are half a vector, too */
    COPIES_ROWS = false,       /* not measured */
    MATRIX_ROWS = 6,           /* most rows of few_product: 24 sums with the 4 vectors of a tile */
    F32_MATRIX_ROWS = MATRIX_ROWS,
};

/* --- Operations under the names that kernels/vectors uses ------------------------------------- */

typedef float32x4_t floats;
typedef uint32x4_t lane_mask;

static inline floats broadcast(float x)
{
    return vdupq_n_f32(x);
}

static inline floats broadcast_from(const float *from)
{
    return vdupq_n_f32(*from);
}

static inline floats load_floats(const float *from)
{
    return vld1q_f32(from);
}

static inline void store_floats(float *to, floats x)
{
    vst1q_f32(to, x);
}

static inline floats load_aligned(const float *from)
{
    return vld1q_f32(from);
}

static inline void store_aligned(float *to, floats x)
{
    vst1q_f32(to, x);
}

/* Returns a * b + c with one rounding. fnma_v returns c - a * b, and fms_v a * b - c. */
static inline floats fma_v(floats a, floats b, floats c)
{
    return vfmaq_f32(c, a, b);
}

static inline floats fnma_v(floats a, floats b, floats c)
{
    return vfmsq_f32(c, a, b);
}

static inline floats fms_v(floats a, floats b, floats c)
{
    return vfmaq_f32(vnegq_f32(c), a, b);
}

/* Returns the maximum of x and y, or y where x is NaN. y is not NaN. */
static inline floats max_without_nan(floats x, floats y)
{
    return vmaxnmq_f32(x, y);
}

/* Returns the maximum of x and y, or NaN where x is NaN. y is not NaN. */
static inline floats max_with_nan(floats x, floats y)
{
    return vmaxq_f32(x, y);
}

static inline floats ceil_v(floats x)
{
    return vrndpq_f32(x);
}

static inline lane_mask equal_v(floats x, floats y)
{
    return vceqq_f32(x, y);
}

static inline lane_mask less_v(floats x, floats y)
{
    return vcltq_f32(x, y);
}

/* Returns for each lane whether it sees a key: whether visible[lane] > key. */
static inline lane_mask seen_v(const int32_t *visible, int key)
{
    return vcgtq_s32(vld1q_s32(visible), vdupq_n_s32(key));
}

/* Returns x where the mask is set, else y. */
static inline floats select_v(lane_mask mask, floats x, floats y)
{
    return vbslq_f32(mask, x, y);
}

/* Splits x into 2^e m with 0.75 <= m < 1.5, the range that log_v needs. Returns m. */
static inline floats split_exponent(floats x, floats *e)
{
    const uint32x4_t larger = vreinterpretq_u32_f32(x * broadcast(1.0f / 0.75f));
    const int32x4_t exponent =
        vsubq_s32(vreinterpretq_s32_u32(vshrq_n_u32(larger, 23)), vdupq_n_s32(127));
    *e = vcvtq_f32_s32(exponent);
    return vreinterpretq_f32_s32(vsubq_s32(vreinterpretq_s32_f32(x), vshlq_n_s32(exponent, 23)));
}

enum {
    SIDE_BY_SIDE = 4, /* the best number of vectors for exp2_vectors: enough to hide the latency of
                         the instructions */
};

/* Returns 2^(n - POWER_HEADROOM), or +0 for n = LEAST_POWER - 1. */
static inline float32x4_t shrunk_power_of_two(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127 - POWER_HEADROOM)), 23));
}

/* Sets x[i] to 2^x[i], or to +0 if x[i] rounds to less than LEAST_POWER. n is at most SIDE_BY_SIDE.
 * x[i] is <= 0 or NaN. NaN stays NaN. The results have the bits of SLEEF's u10 exp2f in its FMA
 * form. The polynomial in x - round(x) is SLEEF's, times 2^POWER_HEADROOM. This factor changes only
 * exponents. The function is inline, because a call would spill the vectors of its caller. Each
 * stage of the computation runs on all n vectors before the next stage begins. If one vector after
 * the other went through all stages, the pipes would wait for results. */
static inline __attribute__((always_inline)) void exp2_vectors(float32x4_t *x, const int n)
{
    static const float coefficients[] = {0.1339262701e-2f, 0.9618384764e-2f, 0.5550347269e-1f,
                                         0.2402264476e+0f, 0.6931471825e+0f, 1.0f};
    const float unit = (float)(1 << POWER_HEADROOM);
    float32x4_t p[SIDE_BY_SIDE];
    int32x4_t power[SIDE_BY_SIDE];
    for (int i = 0; i < n; i++) {
        /* This maximum keeps a NaN. */
        x[i] = vmaxq_f32(x[i], vdupq_n_f32(LEAST_POWER - 1));
        const float32x4_t rounded = vrndnq_f32(x[i]);
        power[i] = vcvtq_s32_f32(rounded);
        x[i] = vsubq_f32(x[i], rounded);
        p[i] = vdupq_n_f32(0.1535920892e-3f * unit);
    }
    for (int k = 0; k < 6; k++)
        for (int i = 0; i < n; i++)
            p[i] = vfmaq_f32(vdupq_n_f32(coefficients[k] * unit), p[i], x[i]);
    for (int i = 0; i < n; i++)
        x[i] = vmulq_f32(p[i], shrunk_power_of_two(power[i]));
}

/* Returns the number that is subtracted from scores: the maximum, or 0 where the maximum is -inf. A
 * maximum is -inf only in rows without a finite score. */
static inline float32x4_t finite_max(float32x4_t row_max)
{
    const uint32x4_t none = vceqq_f32(row_max, vdupq_n_f32(-INFINITY));
    return vbslq_f32(none, vdupq_n_f32(0.0f), row_max);
}

/* Returns acc + x * y[lane]. `lane` is a constant once the caller's loop is unrolled. */
static inline __attribute__((always_inline)) float32x4_t fma_lane(float32x4_t acc, float32x4_t x,
                                                                  float32x4_t y, int lane)
{
    switch (lane) {
    case 0:
        return vfmaq_laneq_f32(acc, x, y, 0);
    case 1:
        return vfmaq_laneq_f32(acc, x, y, 1);
    case 2:
        return vfmaq_laneq_f32(acc, x, y, 2);
    default:
        return vfmaq_laneq_f32(acc, x, y, 3);
    }
}

/* Returns *at in the first lane of a register. The empty statement keeps clang from loading *at
 * into all lanes of a vector, which takes a pipe that fmla needs. fmla reads the number from the
 * first lane. */
static inline float load_scalar(const float *at)
{
    float x = *at;
    __asm__("" : "+w"(x));
    return x;
}

/* Returns how many lanes, 1 to 4, of a vector at index `at` lie before index `end`. `end` is larger
 * than `at`. */
static inline int lanes_at(int64_t at, int64_t end)
{
    return end - at < 4 ? (int)(end - at) : 4;
}

/* Returns the height of the next tile in prefill, if `left` keys or columns are left. In a panel of
 * a single vector the height is MAX_HEIGHT if the number of keys or columns after the tile is 0 or
 * at least FULL. In all other cases the height is tile_height(left, FULL). */
static inline int panel_height(int64_t left, int vectors)
{
    if (vectors == 1 && (left == MAX_HEIGHT || left >= MAX_HEIGHT + FULL))
        return MAX_HEIGHT;
    return tile_height(left, FULL);
}

/* Returns the first n floats, n >= 1, with 0 in the other lanes. If n is larger than VECTOR,
 * returns the first VECTOR floats. No byte after the returned floats is read. */
static inline __attribute__((always_inline)) float32x4_t load_first(const float *from, int64_t n)
{
    if (n >= VECTOR)
        return vld1q_f32(from);
    float32x4_t x = vld1q_lane_f32(from, vdupq_n_f32(0.0f), 0);
    if (n > 1)
        x = vld1q_lane_f32(from + 1, x, 1);
    if (n > 2)
        x = vld1q_lane_f32(from + 2, x, 2);
    return x;
}

/* Stores the first n lanes, n >= 1, or all lanes if n is larger than VECTOR. Writes no byte after
 * the stored floats. */
static inline void store_first(float *to, int64_t n, float32x4_t x)
{
    if (n >= VECTOR) {
        vst1q_f32(to, x);
        return;
    }
    vst1q_lane_f32(to, x, 0);
    if (n > 1)
        vst1q_lane_f32(to + 1, x, 1);
    if (n > 2)
        vst1q_lane_f32(to + 2, x, 2);
}

/* Returns n elements of a row, 1 <= n <= 4, from element `at` on as binary32, with 0 in the other
 * lanes. No byte after the n elements is read. No scale is applied. For the bytes of a TYPE_Q8_0
 * block, type is TYPE_I8. */
static inline __attribute__((always_inline)) float32x4_t
load_as_f32(const enum type type, const void *row, int64_t at, int n)
{
    const char *const from = (const char *)row + bytes_of(type, at);
    if (type == TYPE_F32)
        return load_first((const float *)from, n);
    uint64_t narrow = 0;
    memcpy(&narrow, from, (size_t)bytes_of(type, n));
    if (type == TYPE_F16)
        return vcvt_f32_f16(vcreate_f16(narrow));
    if (type == TYPE_BF16)
        return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vcreate_u16(narrow)), 16));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(narrow)))));
}

/* Widens 8 elements to binary32. For TYPE_I8 the elements of x are integers of 16 bits. */
static inline __attribute__((always_inline)) void widen_halves(const enum type type, uint16x8_t x,
                                                               float32x4_t wide[2])
{
    if (type == TYPE_F16) {
        wide[0] = vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u16(x)));
        wide[1] = vcvt_high_f32_f16(vreinterpretq_f16_u16(x));
    } else if (type == TYPE_BF16) {
        wide[0] = vreinterpretq_f32_u16(vzip1q_u16(vdupq_n_u16(0), x));
        wide[1] = vreinterpretq_f32_u16(vzip2q_u16(vdupq_n_u16(0), x));
    } else {
        const int16x8_t integers = vreinterpretq_s16_u16(x);
        wide[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(integers)));
        wide[1] = vcvtq_f32_s32(vmovl_high_s16(integers));
    }
}

enum {
    TILE_VECTORS = TILE_KEYS / VECTOR, /* vectors of keys in a tile of K */
};

/* Loads a line of a tile, which is one element of all TILE_KEYS keys, as binary32. No scale is
 * applied for TYPE_I8. */
static inline __attribute__((always_inline)) void load_line(const enum type type, const void *from,
                                                            float32x4_t x[TILE_VECTORS])
{
    if (type == TYPE_F32) {
        for (int i = 0; i < TILE_VECTORS; i++)
            x[i] = vld1q_f32((const float *)from + i * VECTOR);
        return;
    }
    uint16x8_t halves[2];
    if (type == TYPE_I8) {
        const int8x16_t bytes = vld1q_s8(from);
        halves[0] = vreinterpretq_u16_s16(vmovl_s8(vget_low_s8(bytes)));
        halves[1] = vreinterpretq_u16_s16(vmovl_high_s8(bytes));
    } else {
        halves[0] = vld1q_u16(from);
        halves[1] = vld1q_u16((const uint16_t *)from + 8);
    }
    for (int i = 0; i < 2; i++)
        widen_halves(type, halves[i], x + 2 * i);
}

/* Transposes: x[i][j] becomes x[j][i]:
 *   a0 a1 a2 a3      a0 b0 a2 b2      a0 b0 c0 d0
 *   b0 b1 b2 b3  ->  a1 b1 a3 b3  ->  a1 b1 c1 d1
 *   c0 c1 c2 c3      c0 d0 c2 d2      a2 b2 c2 d2
 *   d0 d1 d2 d3      c1 d1 c3 d3      a3 b3 c3 d3 */
static inline __attribute__((always_inline)) void transpose(float32x4_t x[4])
{
    const float64x2_t ab02 = vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1]));
    const float64x2_t ab13 = vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1]));
    const float64x2_t cd02 = vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3]));
    const float64x2_t cd13 = vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3]));
    x[0] = vreinterpretq_f32_f64(vtrn1q_f64(ab02, cd02));
    x[1] = vreinterpretq_f32_f64(vtrn1q_f64(ab13, cd13));
    x[2] = vreinterpretq_f32_f64(vtrn2q_f64(ab02, cd02));
    x[3] = vreinterpretq_f32_f64(vtrn2q_f64(ab13, cd13));
}

/* Returns y with every NaN replaced by 0x7fc00000, because the sign and payload of a NaN depend on
 * the order of operands. */
static inline float32x4_t plain_nan(float32x4_t y)
{
    const float32x4_t nan = vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000));
    return vbslq_f32(vceqq_f32(y, y), y, nan);
}

/* Returns whether a lane is not finite. The maximum of a NaN and any number is NaN. */
static inline bool is_spoilt(float32x4_t spoilt)
{
    return !(vmaxvq_f32(vabsq_f32(spoilt)) < INFINITY);
}

#include "kernels/vectors/entries.h"
#include "kernels/vectors/floats.h"

#endif
