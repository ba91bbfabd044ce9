/* SPDX-License-Identifier: Apache-2.0
 *
 * The three elementary functions of the canonical order in portable C, the conversions of a number
 * to and from 16 bits, and the scalar tiles. Algorithm, coefficients and order of roundings are
 * those of SLEEF 3.5.1's xexp2f, xlogf_u1 and xtanhf in their FMA form, so the bits are SLEEF's;
 * tests/kernels/elementary.c compares every argument that an attention can come upon.
 */
#ifndef ATTNKIT_SCALAR_H
#define ATTNKIT_SCALAR_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/kernels.h"

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

/* A NaN's sign and payload depend on the order of operands: every NaN becomes the same. */
static inline float plain_nan(float x)
{
    return isnan(x) ? float_from_bits(0x7fc00000) : x;
}

/* 2^n for -126 <= n <= 127. */
static inline float power_of_two(int n)
{
    return float_from_bits((uint32_t)(n + 127) << 23);
}

/* 2^x for x <= 0, within 1.0 ulp: 2^round(x) times a polynomial of degree 6 in x - round(x). Or +0
 * where round(x) is below LEAST_POWER. */
static inline float scalar_exp2(float x)
{
    const float n = rintf(x);
    if (!(n >= LEAST_POWER))
        return n < LEAST_POWER ? 0.0f : x;
    const float f = x - n;
    float p = 0.1535920892e-3f;
    p = fmaf(p, f, 0.1339262701e-2f);
    p = fmaf(p, f, 0.9618384764e-2f);
    p = fmaf(p, f, 0.5550347269e-1f);
    p = fmaf(p, f, 0.2402264476e+0f);
    p = fmaf(p, f, 0.6931471825e+0f);
    p = fmaf(p, f, 1.0f);
    return p * power_of_two((int)n);
}

/* A number as an unevaluated sum hi + lo. */
struct pair {
    float hi, lo;
};

static inline struct pair pair_sum(float a, float b)
{
    const float hi = a + b, v = hi - a;
    return (struct pair){hi, (a - (hi - v)) + (b - v)};
}

static inline struct pair pair_quotient(struct pair n, struct pair d)
{
    const float t = 1.0f / d.hi;
    const float q = n.hi * t;
    const float e = fmaf(t, n.hi, -q);
    float u = fmaf(-d.lo, t, fmaf(-d.hi, t, 1.0f));
    u = fmaf(q, u, fmaf(n.lo, t, e));
    return (struct pair){q, u};
}

/* log x for x = 0, NaN, +inf or a normal x > 0, within 1.0 ulp: with x = 2^e m, 0.75 <= m < 1.5,
 * e ln 2 + 2 atanh((m - 1) / (m + 1)), the larger parts in pairs. */
static inline float scalar_log(float x)
{
    if (x == 0.0f)
        return -INFINITY;
    if (!(x < INFINITY))
        return x;
    const int e = (int)(bits_from_float(x * (1.0f / 0.75f)) >> 23) - 127;
    const float m = x * power_of_two(-e / 2) * power_of_two(-e - -e / 2);

    const struct pair y = pair_quotient(pair_sum(-1.0f, m), pair_sum(1.0f, m));
    const float y2 = y.hi * y.hi;
    float p = 0.3027294874e+0f;
    p = fmaf(p, y2, 0.3996108174e+0f);
    p = fmaf(p, y2, 0.6666694880e+0f);

    const float ln2_hi = 0.69314718246459960938f, ln2_lo = -1.904654323148236017e-09f;
    struct pair s = {ln2_hi * (float)e, 0.0f};
    s.lo = fmaf(ln2_hi, (float)e, -s.hi);
    s.lo = fmaf(ln2_lo, (float)e, s.lo);
    const struct pair twice = {y.hi * 2.0f, y.lo * 2.0f};
    const float hi = s.hi + twice.hi;
    s = (struct pair){hi, ((s.hi - hi) + twice.hi) + s.lo + twice.lo};
    const float cube = y2 * y.hi * p;
    const float sum = s.hi + cube;
    return sum + (((s.hi - sum) + cube) + s.lo);
}

static inline struct pair pairs_sum(struct pair a, struct pair b)
{
    const struct pair s = pair_sum(a.hi, b.hi);
    return (struct pair){s.hi, s.lo + (a.lo + b.lo)};
}

/* Where a is not the smaller one. */
static inline struct pair ordered_sum(struct pair a, struct pair b)
{
    const float hi = a.hi + b.hi;
    return (struct pair){hi, (a.hi - hi) + b.hi + a.lo + b.lo};
}

static inline struct pair opposite(struct pair a)
{
    return (struct pair){-a.hi, -a.lo};
}

static inline struct pair pair_product(struct pair a, struct pair b)
{
    const float hi = a.hi * b.hi;
    return (struct pair){hi, fmaf(a.hi, b.lo, fmaf(a.lo, b.hi, fmaf(a.hi, b.hi, -hi)))};
}

static inline struct pair pair_square(struct pair a)
{
    const float hi = a.hi * a.hi;
    return (struct pair){hi, fmaf(a.hi + a.hi, a.lo, fmaf(a.hi, a.hi, -hi))};
}

static inline struct pair pair_reciprocal(struct pair d)
{
    const float t = 1.0f / d.hi;
    return (struct pair){t, t * fmaf(-d.lo, t, fmaf(-d.hi, t, 1.0f))};
}

/* e^x for 0 <= x < 10: 2^n times the series of e^s to degree 7 in s = x - n ln 2, its first three
 * terms in pairs. */
static inline struct pair pair_exp(float x)
{
    const float n = rintf(x * 0x1.715476p+0f);
    struct pair s = pair_sum(x, n * -0x1.62e4p-1f);
    const struct pair rest = pair_sum(s.hi, n * -0x1.7f7d1cp-20f);
    s = (struct pair){rest.hi, rest.lo + s.lo};
    float p = 0.1980960224e-3f;
    p = fmaf(p, s.hi, 0.1394256484e-2f);
    p = fmaf(p, s.hi, 0.8333456703e-2f);
    p = fmaf(p, s.hi, 0.4166637361e-1f);
    struct pair t = pair_product(s, (struct pair){p, 0.0f});
    t = pairs_sum(t, (struct pair){0.16666665941423424f, 0.0f});
    t = pairs_sum(pair_product(s, t), (struct pair){0.5f, 0.0f});
    t = pairs_sum(s, pair_product(pair_square(s), t));
    t = ordered_sum((struct pair){1.0f, 0.0f}, t);
    const float power = power_of_two((int)n);
    return (struct pair){t.hi * power, t.lo * power};
}

/* tanh x, within 1.0000001 ulp: (e^x - e^-x) / (e^x + e^-x) in pairs, of |x|. */
static inline float scalar_tanh(float x)
{
    const float distance = fabsf(x);
    if (!(distance <= 8.664339742f)) /* from here on it rounds to 1 */
        return isnan(x) ? x : copysignf(1.0f, x);
    const struct pair grown = pair_exp(distance), shrunk = pair_reciprocal(grown);
    const struct pair y =
        pair_quotient(ordered_sum(grown, opposite(shrunk)), ordered_sum(grown, shrunk));
    return copysignf(y.hi + y.lo, x);
}

/* What is subtracted for a maximum of -inf, which only rows without a finite score have. */
static inline float finite_max(float row_max)
{
    return row_max == -INFINITY ? 0.0f : row_max;
}

static inline float scalar_lse(float row_max, float row_sum)
{
    return plain_nan(fmaf(row_max, LN2_HI, fmaf(row_max, LN2_LO, scalar_log(row_sum))));
}

/* A binary16 number, exact; a NaN becomes a quiet one with the same payload. */
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

/* To nearest even; a NaN becomes a quiet one with the upper bits of its payload. */
static inline uint16_t f16_from_float(float x)
{
    const uint32_t bits = bits_from_float(x), magnitude = bits & 0x7fffffff;
    const uint32_t sign = bits >> 16 & 0x8000;
    uint32_t half;
    if (magnitude > 0x7f800000)
        half = 0x7e00 | (magnitude >> 13 & 0x3ff);
    else if (magnitude >= 0x47800000) /* 2^16 */
        half = 0x7c00;
    else if (magnitude < 0x38800000) /* 2^-14; the sum has the unit of a subnormal, 2^-24 */
        half = bits_from_float(float_from_bits(magnitude) + 0.5f) - 0x3f000000;
    else
        half = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    return (uint16_t)(sign | half);
}

/* The upper half of a binary32 number, exact whatever it is. */
static inline float float_from_bf16(uint16_t half)
{
    return float_from_bits((uint32_t)half << 16);
}

/* To nearest even; a NaN becomes a quiet one with the upper bits of its payload. */
static inline uint16_t bf16_from_float(float x)
{
    const uint32_t bits = bits_from_float(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Element d of key `key` of a tile of K, see struct key_rows, as binary32. */
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
void attnkit_scalar_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line);
void attnkit_scalar_spread_line(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                                const uint64_t own[KEY_BLOCK / 64], float none, float *line);
void attnkit_scalar_mean(const struct rows *rows, int64_t count, float *mean);
void attnkit_scalar_widen_matrix(enum type type, const void *tile, int64_t n, float *out);
void attnkit_scalar_product(const struct product *p);
void attnkit_scalar_few_product(const struct few_product *p);

extern const struct kernels attnkit_scalar;

#endif
