/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/formats.h"

#include <math.h>
#include <string.h>

#include "tests/support/blocks.h"

const struct format formats[FORMATS] = {
    {"f16", TYPE_F16, 10, -24, 0x7c00},
    {"bf16", TYPE_BF16, 7, -133, 0x7f80},
};

const struct format *format_of(enum type type)
{
    return type == TYPE_F16 ? &formats[0] : &formats[1];
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* --- Numbers of 16 bits ---------------------------------------------------------------------- */

double magnitude_of(const struct format *f, uint16_t half)
{
    const int exponent = (half & 0x7fff) >> f->fraction_bits;
    const int hidden = 1 << f->fraction_bits, fraction = half & (hidden - 1);
    if (exponent == 0)
        return ldexp(fraction, f->smallest);
    return ldexp(hidden + fraction, f->smallest + exponent - 1);
}

bool is_nan(const struct format *f, uint16_t half)
{
    return (half & 0x7fff) > f->infinity;
}

uint32_t widened_bits(const struct format *f, uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t fraction = (uint32_t)half << (23 - f->fraction_bits) & 0x7fffff;
    if (is_nan(f, half))
        return sign | 0x7f800000 | fraction | (f->type == TYPE_F16 ? 0x400000 : 0);
    if ((half & 0x7fff) == f->infinity)
        return sign | 0x7f800000;
    return sign | bits_of((float)magnitude_of(f, half));
}

bool is_narrowed(const struct format *f, float x, uint16_t half)
{
    const uint16_t magnitude = half & 0x7fff;
    if (isnan(x)) {
        const uint32_t quiet = bits_of(x) | 0x400000;
        const uint32_t fraction = (quiet & 0x7fffff) >> (23 - f->fraction_bits);
        return half == (uint16_t)((quiet >> 16 & 0x8000) | f->infinity | fraction);
    }
    if ((signbit(x) != 0) != half >> 15 || magnitude > f->infinity)
        return false;
    if (isinf(x))
        return magnitude == f->infinity;
    const double error = fabs(fabs((double)x) - magnitude_of(f, half));
    const bool is_odd = half & 1;
    const int highest = f->infinity;
    for (int other = magnitude - 1; other <= magnitude + 1; other += 2) {
        if (other < 0 || other > highest)
            continue;
        const double others = fabs(fabs((double)x) - magnitude_of(f, (uint16_t)other));
        if (others < error || (others == error && is_odd))
            return false;
    }
    return true;
}

bool is_narrowed_row(enum type type, const float *expected, const char *row, int64_t n)
{
    if (type == TYPE_F32)
        return memcmp(row, expected, (size_t)n * sizeof *expected) == 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, row + 2 * i, sizeof half);
        if (!is_narrowed(format_of(type), expected[i], half))
            return false;
    }
    return true;
}

/* --- Rows ------------------------------------------------------------------------------------ */

/* Multiplies a byte by a scale. The product is exact in binary64. Only the result is rounded. */
static float scaled(int8_t byte, float scale)
{
    return (float)((double)byte * (double)scale);
}

static float half_at(const struct format *f, const char *bytes)
{
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    const uint32_t bits = widened_bits(f, half);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns the scale by which element() multiplies element i. Returns 1 for the types for which
 * element() ignores its argument `scale`. */
static float scale_of(enum type type, const char *row, const float *scales, int64_t group,
                      int64_t i)
{
    if (has_scales(type))
        return scales[i / group];
    return type == TYPE_Q8_0 ? half_at(&formats[0], row + i / Q8_BLOCK * Q8_BLOCK_BYTES) : 1.0f;
}

static float element(enum type type, const char *row, float scale, int64_t i)
{
    const struct block_format *const f = block_format_of(type);
    if (f)
        return block_element(f, row + i / f->elements * f->bytes, (int)(i % f->elements));
    float x;
    switch (type) {
    case TYPE_F16:
    case TYPE_BF16:
        return half_at(format_of(type), row + 2 * i);
    case TYPE_I8:
        return scaled((int8_t)row[i], scale);
    case TYPE_Q8_0:
        return scaled((int8_t)row[i / Q8_BLOCK * Q8_BLOCK_BYTES + 2 + i % Q8_BLOCK], scale);
    case TYPE_F8_E4M3:
        return (float)((double)e4m3_value((uint8_t)row[i]) * (double)scale);
    default:
        memcpy(&x, row + 4 * i, sizeof x);
        return x;
    }
}

void widen_row(enum type type, const void *row, const float *scales, int64_t group, int64_t n,
               float *out)
{
    const int64_t scaled_by_one = has_scales(type) ? group : Q8_BLOCK;
    float scale = 1.0f;
    for (int64_t i = 0; i < n; i++) {
        if (i % scaled_by_one == 0)
            scale = scale_of(type, row, scales, group, i);
        const float x = element(type, row, scale, i);
        memcpy(&out[i], &x, sizeof x);
    }
}

int64_t byte_in_tile(enum type type, int64_t n, int64_t key)
{
    const int64_t in_block = n % Q8_BLOCK_BYTES - 2;
    const int64_t size = type == TYPE_F32 ? 4 : type == TYPE_I8 ? 1 : 2;
    if (type == TYPE_Q8_0)
        return n / Q8_BLOCK_BYTES * Q8_BLOCK_BYTES * TILE_KEYS +
               (in_block < 0 ? key * 2 + in_block + 2 : TILE_KEYS * 2 + in_block * TILE_KEYS + key);
    return (n / size * TILE_KEYS + key) * size + n % size;
}
