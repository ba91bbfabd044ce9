/* SPDX-License-Identifier: Apache-2.0
 *
 * The models that models.h describes. The models of BFMLALB and BFMLALT call fmaf. The other models
 * for bf16 work in binary64. Products of two binary32 are exact in binary64. Each sum of two
 * numbers is rounded to odd in binary64. Rounding this sum to 24 bits then gives the same result as
 * rounding the exact sum. Numbers are rounded to 24 bits by integer arithmetic on their bits.
 */
#include "tests/units/models.h"

#include <math.h>
#include <string.h>

typedef uint32_t lane_model(uint32_t acc, uint32_t a, uint32_t b);

enum {
    BELOW = 29, /* fraction bits that a binary64 has, but a binary32 lacks */
    ELEMENTS = 2,
    BYTES = 4,
    HALF = 16,
};

static const uint32_t sign_bit = 0x80000000u, infinity = 0x7f800000u;

static float number(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t wide_bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double wide_number(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Turns a subnormal number into a zero of its sign. */
static uint32_t flushed(uint32_t bits)
{
    return bits & infinity ? bits : bits & sign_bit;
}

/* Returns a + b in binary64, rounded to odd. If the sum rounded to nearest is inexact and its last
 * bit is 0, the function moves the sum by one step towards the exact sum. */
static double odd_sum(double a, double b)
{
    const double sum = a + b;
    if (!isfinite(sum))
        return sum;
    const double part = sum - a, rest = (a - (sum - part)) + (b - part);
    const uint64_t bits = wide_bits_of(sum);
    if (rest == 0 || bits & 1)
        return sum;
    return wide_number((rest > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

/* Returns the bits of x as binary32. x has at most 24 significant bits. A magnitude below 2^-126
 * becomes 0, and a magnitude of 2^128 or more becomes infinite. The sign stays. */
static uint32_t narrowed(double x)
{
    const uint32_t sign = wide_bits_of(x) >> 63 ? sign_bit : 0;
    if (fabs(x) < 0x1p-126)
        return sign;
    return fabs(x) >= 0x1p128 ? sign | infinity : bits_of((float)x);
}

static double to_nearest_even(double x)
{
    const uint64_t bits = wide_bits_of(x), half = UINT64_C(1) << (BELOW - 1);
    const uint64_t rounded = bits + half - 1 + (bits >> BELOW & 1);
    return isfinite(x) ? wide_number(rounded >> BELOW << BELOW) : x;
}

static double to_odd(double x)
{
    const uint64_t bits = wide_bits_of(x), cut = bits >> BELOW << BELOW;
    return isfinite(x) && cut != bits ? wide_number(cut | UINT64_C(1) << BELOW) : x;
}

static uint32_t flushed_add(uint32_t a, uint32_t b)
{
    const double sum = odd_sum((double)number(flushed(a)), (double)number(flushed(b)));
    return narrowed(to_nearest_even(sum));
}

uint32_t model_flushed_fma(uint32_t a, uint32_t b, uint32_t c)
{
    const double product = (double)number(flushed(a)) * (double)number(flushed(b));
    return narrowed(to_nearest_even(odd_sum(product, (double)number(flushed(c)))));
}

/* Returns the bits of element i of a bf16 pair as binary32. Element 0 is the even element. */
static uint32_t element(uint32_t pair, int i)
{
    return i ? pair >> HALF << HALF : pair << HALF;
}

uint32_t model_vdpbf16ps(uint32_t acc, uint32_t a, uint32_t b)
{
    acc = model_flushed_fma(element(a, 1), element(b, 1), acc);
    return model_flushed_fma(element(a, 0), element(b, 0), acc);
}

static uint32_t odd_product(uint32_t a, uint32_t b)
{
    return narrowed(to_odd((double)number(flushed(a)) * (double)number(flushed(b))));
}

static uint32_t odd_add(uint32_t a, uint32_t b)
{
    return narrowed(to_odd(odd_sum((double)number(flushed(a)), (double)number(flushed(b)))));
}

uint32_t model_bfdot(uint32_t acc, uint32_t a, uint32_t b)
{
    const uint32_t even = odd_product(element(a, 0), element(b, 0));
    const uint32_t odd = odd_product(element(a, 1), element(b, 1));
    return odd_add(acc, odd_add(even, odd));
}

uint32_t model_bfmlalb(uint32_t acc, uint32_t a, uint32_t b)
{
    return bits_of(fmaf(number(element(a, 0)), number(element(b, 0)), number(acc)));
}

uint32_t model_bfmlalt(uint32_t acc, uint32_t a, uint32_t b)
{
    return bits_of(fmaf(number(element(a, 1)), number(element(b, 1)), number(acc)));
}

static int32_t byte(uint32_t word, int i, int is_signed)
{
    const uint32_t value = word >> 8 * i & 0xff;
    return (int32_t)value - (is_signed && value >= 0x80 ? 0x100 : 0);
}

static int32_t half(uint32_t word, int i)
{
    const uint32_t value = word >> HALF * i & 0xffff;
    return (int32_t)value - (value >= 0x8000 ? 0x10000 : 0);
}

static uint32_t dot_bytes(uint32_t acc, uint32_t a, uint32_t b, int a_signed, int b_signed)
{
    for (int i = 0; i < BYTES; i++)
        acc += (uint32_t)(byte(a, i, a_signed) * byte(b, i, b_signed));
    return acc;
}

uint32_t model_sdot(uint32_t acc, uint32_t a, uint32_t b)
{
    return dot_bytes(acc, a, b, 1, 1);
}

uint32_t model_udot(uint32_t acc, uint32_t a, uint32_t b)
{
    return dot_bytes(acc, a, b, 0, 0);
}

uint32_t model_vpdpbusd(uint32_t acc, uint32_t a, uint32_t b)
{
    return dot_bytes(acc, a, b, 0, 1);
}

static uint32_t dot_signed_unsigned(uint32_t acc, uint32_t a, uint32_t b)
{
    return dot_bytes(acc, a, b, 1, 0);
}

uint32_t model_vpdpwssd(uint32_t acc, uint32_t a, uint32_t b)
{
    for (int i = 0; i < ELEMENTS; i++) {
        const int64_t product = (int64_t)half(a, i) * half(b, i);
        acc += (uint32_t)product;
    }
    return acc;
}

static uint32_t tile_element(const uint32_t *a, const uint32_t *b, uint32_t acc)
{
    uint32_t sums[ELEMENTS] = {0};
    for (int k = 0; k < TILE_ROWS; k++)
        for (int i = 0; i < ELEMENTS; i++)
            sums[i] = model_flushed_fma(element(a[k], i), element(b[k * TILE_WORDS], i), sums[i]);
    return flushed_add(acc, flushed_add(sums[0], sums[1]));
}

void model_tdpbf16ps(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    for (int m = 0; m < TILE_ROWS; m++)
        for (int n = 0; n < TILE_WORDS; n++)
            acc[m * TILE_WORDS + n] =
                tile_element(a + m * TILE_WORDS, b + n, acc[m * TILE_WORDS + n]);
}

static void tiles(lane_model *dot, uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    for (int m = 0; m < TILE_ROWS; m++)
        for (int n = 0; n < TILE_WORDS; n++)
            for (int k = 0; k < TILE_ROWS; k++)
                acc[m * TILE_WORDS + n] =
                    dot(acc[m * TILE_WORDS + n], a[m * TILE_WORDS + k], b[k * TILE_WORDS + n]);
}

void model_tdpbssd(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    tiles(model_sdot, acc, a, b);
}

void model_tdpbsud(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    tiles(dot_signed_unsigned, acc, a, b);
}

void model_tdpbusd(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    tiles(model_vpdpbusd, acc, a, b);
}

void model_tdpbuud(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    tiles(model_udot, acc, a, b);
}

static void two_by_two(lane_model *dot, uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    for (int m = 0; m < 2; m++)
        for (int n = 0; n < 2; n++)
            for (int k = 0; k < 2; k++)
                acc[2 * m + n] = dot(acc[2 * m + n], a[2 * m + k], b[2 * n + k]);
}

void model_bfmmla(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    two_by_two(model_bfdot, acc, a, b);
}

void model_smmla(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    two_by_two(model_sdot, acc, a, b);
}

void model_ummla(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    two_by_two(model_udot, acc, a, b);
}

void model_usmmla(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    two_by_two(model_vpdpbusd, acc, a, b);
}
