/* SPDX-License-Identifier: Apache-2.0
 *
 * exp2, log and tanh of the canonical order in portable C, the conversions of a number to and from
 * 16 bits, and the declarations of the scalar tiles. exp2 and log have the algorithms, coefficients
 * and order of roundings of SLEEF 3.5.1's xexp2f and xlogf_u1 in their FMA form, so they give the
 * bits of SLEEF. Only if x rounds to less than LEAST_POWER, exp2 returns +0 instead.
 * tests/kernels/elementary.c compares the bits.
 */
#ifndef ATTNKIT_SCALAR_H
#define ATTNKIT_SCALAR_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/scalar/fma.h"

#define KERNEL(entry) attnkit_scalar_##entry

static inline float float_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t bits_from_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Returns x, or 0x7fc00000 if x is any NaN, because the sign and payload of a NaN depend on the
 * order of operands. */
static inline float plain_nan(float x)
{
    return isnan(x) ? float_from_bits(0x7fc00000) : x;
}

/* Returns 2^n for -126 <= n <= 127. */
static inline float power_of_two(int n)
{
    return float_from_bits((uint32_t)(n + 127) << 23);
}

/* Returns 2^x for x <= 0, within 1.0 ulp: 2^round(x) times a polynomial of degree 6 in x -
 * round(x). Returns +0 if round(x) is below LEAST_POWER. NaN stays NaN. */
static inline float scalar_exp2(float x)
{
    const float n = rintf(x);
    if (!(n >= LEAST_POWER))
        return n < LEAST_POWER ? 0.0f : x;
    const float f = x - n;
    float p = 0.1535920892e-3f;
    p = fma_once(p, f, 0.1339262701e-2f);
    p = fma_once(p, f, 0.9618384764e-2f);
    p = fma_once(p, f, 0.5550347269e-1f);
    p = fma_once(p, f, 0.2402264476e+0f);
    p = fma_once(p, f, 0.6931471825e+0f);
    p = fma_once(p, f, 1.0f);
    return p * power_of_two((int)n);
}

/* Returns log x for x = 0, NaN, +inf or a normal x > 0, within 1.0 ulp. x is split into 2^e m with
 * 0.75 <= m < 1.5. The result is e ln 2 + 2 atanh(y) with y = (m - 1) / (m + 1). The larger terms
 * are kept as two numbers each: a rounded value and its rounding error. */
static inline float scalar_log(float x)
{
    if (x == 0.0f)
        return -INFINITY;
    if (!(x < INFINITY))
        return x;
    const uint32_t exponent = (bits_from_float(x * (1.0f / 0.75f)) >> 23) - 127;
    const float m = float_from_bits(bits_from_float(x) - (exponent << 23));
    const float e = (float)(int32_t)exponent;

    const float n = m - 1.0f, d = m + 1.0f, d_low = m - (d - 1.0f);
    const float t = 1.0f / d;
    const float y = n * t;
    const float off = fma_once(-d_low, t, fma_once(-d, t, 1.0f));
    const float y_low = fma_once(y, off, fma_once(t, n, -y));
    const float y2 = y * y;
    float p = 0.3027294874e+0f;
    p = fma_once(p, y2, 0.3996108174e+0f);
    p = fma_once(p, y2, 0.6666694880e+0f);

    const float ln2_hi = 0.69314718246459960938f, ln2_lo = -1.904654323148236017e-09f;
    const float whole = ln2_hi * e;
    const float whole_low = fma_once(ln2_lo, e, fma_once(ln2_hi, e, -whole));
    const float twice = y * 2.0f;
    const float hi = whole + twice;
    const float lo = ((whole - hi) + twice) + whole_low + y_low * 2.0f;
    const float cube = y2 * y * p;
    const float sum = hi + cube;
    return sum + (((hi - sum) + cube) + lo);
}

/* Returns tanh x, within 3 ulp: E / (E + 1) with 2 E = e^2a - 1. a is |x|, but at most 10: for a =
 * 10, E + 1 already rounds to E. Let 2a = n ln 2 + 2f with |f| < 0.174. A polynomial f + f^2 q(f)
 * gives h = (e^2f - 1) / 2. Then E = 2^n h + (2^n - 1) / 2 has a small relative error for a small
 * x, where n = 0. If tanh x is near 1, an error of E hardly changes the result. No step underflows
 * unless x is subnormal. */
static inline float scalar_tanh(float x)
{
    const float distance = fabsf(x), a = distance > 10.0f ? 10.0f : distance;
    const float magic = 0x1.8p23f; /* adding it to a number rounds the number to an integer */
    const float rounded = fma_once(a, 0x1.715476p+1f, magic);
    const float power = float_from_bits((bits_from_float(rounded) << 23) + (127u << 23));
    const float f = fma_once(rounded - magic, -0x1.62e43p-2f, a);
    float q = 0.0447224975f;
    q = fma_once(q, f, 0.133888692f);
    q = fma_once(q, f, 0.333329290f);
    q = fma_once(q, f, 0.666661263f);
    q = fma_once(q, f, 1.0f);
    const float h = fma_once(q * f, f, f);
    const float grown = fma_once(power, h, fma_once(power, 0.5f, -0.5f));
    return copysignf(grown / (grown + 1.0f), x);
}

/* Returns the number that is subtracted from scores: the maximum, or 0 if the maximum is -inf. A
 * maximum is -inf only in rows without a finite score. */
static inline float finite_max(float row_max)
{
    return row_max == -INFINITY ? 0.0f : row_max;
}

static inline float scalar_lse(float row_max, float row_sum)
{
    return plain_nan(fma_once(row_max, LN2_HI, fma_once(row_max, LN2_LO, scalar_log(row_sum))));
}

/* Converts a binary16 number, exactly. A NaN becomes a quiet NaN with the same payload. */
static inline float float_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 0)
        return float_from_bits(sign | bits_from_float((float)fraction * 0x1p-24f));
    if (exponent < 31)
        return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    const uint32_t quiet = fraction ? 0x400000 : 0;
    return float_from_bits(sign | 0x7f800000 | quiet | fraction << 13);
}

/* Rounds x to binary16, to nearest even. A NaN becomes a quiet NaN with the upper bits of its
 * payload. */
static inline uint16_t f16_from_float(float x)
{
    const uint32_t bits = bits_from_float(x), magnitude = bits & 0x7fffffff;
    const uint32_t sign = bits >> 16 & 0x8000;
    uint32_t half;
    if (magnitude > 0x7f800000)
        half = 0x7e00 | (magnitude >> 13 & 0x3ff);
    else if (magnitude >= 0x47800000) /* 2^16 */
        half = 0x7c00;
    else if (magnitude < 0x38800000) /* 2^-14; the last bit of the sum is worth 2^-24 */
        half = bits_from_float(float_from_bits(magnitude) + 0.5f) - 0x3f000000;
    else
        half = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    return (uint16_t)(sign | half);
}

/* Converts a bfloat16 number, exactly: `half` becomes the upper half of the bits of the result. */
static inline float float_from_bf16(uint16_t half)
{
    return float_from_bits((uint32_t)half << 16);
}

/* Rounds x to bfloat16, to nearest even. A NaN becomes a quiet NaN with the upper bits of its
 * payload. */
static inline uint16_t bf16_from_float(float x)
{
    const uint32_t bits = bits_from_float(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Returns element d of key `key` of a tile of K as binary32, see struct key_rows. */
static inline float tile_element(const enum type type, struct key_row tile, int64_t group, int key,
                                 int64_t d)
{
    const int64_t at = d * TILE_KEYS + key;
    const char *const block = tile.data + bytes_of(type, d / Q8_BLOCK * Q8_BLOCK * TILE_KEYS);
    uint16_t half;
    switch (type) {
    case TYPE_F32:
        return ((const float *)tile.data)[at];
    case TYPE_F16:
        return float_from_f16(((const uint16_t *)tile.data)[at]);
    case TYPE_BF16:
        return float_from_bf16(((const uint16_t *)tile.data)[at]);
    case TYPE_I8:
        return (float)(int8_t)tile.data[at] * tile.scales[d / group * TILE_KEYS + key];
    default:
        memcpy(&half, block + key * 2, sizeof half);
        return (float)(int8_t)block[2 * TILE_KEYS + at % (Q8_BLOCK * TILE_KEYS)] *
               float_from_f16(half);
    }
}

void attnkit_scalar_widen(enum type type, const void *row, const float *scales, int64_t group,
                          int64_t n, float *out);
void attnkit_scalar_widen_blocks(enum type type, const char *row, int64_t n, float *out);
void attnkit_scalar_unpack(enum type type, const struct rows *rows, int count, void *to);
void attnkit_scalar_narrow_blocks(enum type type, const float *x, int64_t n, char *row);
void attnkit_scalar_widen_tile(enum type type, const void *tile, const float *scales, int64_t group,
                               int64_t n, float *out);
void attnkit_scalar_narrow(enum type type, const float *x, int64_t n, int64_t group, void *row,
                           float *scales);
void attnkit_scalar_rotate(float *x, const float *cos, const float *sin, int64_t pairs,
                           bool interleaved);
void attnkit_scalar_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64]);
void attnkit_scalar_same_ids(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64]);
bool attnkit_scalar_unmasked(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64]);
void attnkit_scalar_bias_line(const struct bias_line *what, float *line);
void attnkit_scalar_keep_line(const struct keep_line *what, float *line);
void attnkit_scalar_fill_pointers(const void *first, ptrdiff_t bytes, int count, void *pointers);
void attnkit_scalar_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line);
void attnkit_scalar_spread_line(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                                const uint64_t own[KEY_BLOCK / 64], float none, float *line);
void attnkit_scalar_mean(const struct rows *rows, int64_t count, float *mean);
void attnkit_scalar_widen_matrix(enum type type, const void *tile, int64_t n, float *out);
void attnkit_scalar_product(const struct product *p);
void attnkit_scalar_few_product(const struct few_product *p);

extern const struct integer_panel_kernels attnkit_scalar_integer_panel;
extern const struct grouped_kernels attnkit_scalar_grouped;
extern const struct matrix_integer_kernels attnkit_scalar_matrix_integers;

extern const struct kernels attnkit_scalar;

#endif
