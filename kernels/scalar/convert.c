/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts rows of 16-bit types, of TYPE_I8 and of TYPE_Q8_0 to binary32 and back, an element at a
 * time. Rows of TYPE_F8_E4M3 are converted only to binary32. Tiles of K, too, are converted only to
 * binary32. The convert.c of every other instruction set must give the same bits. blocks.c has the
 * other types of blocks.
 */
#include "kernels/scalar/scalar.h"

static void widen_f16(const uint16_t *row, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = float_from_f16(row[i]);
}

static void widen_bf16(const uint16_t *row, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = float_from_bf16(row[i]);
}

static void widen_bytes(const int8_t *bytes, float scale, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)bytes[i] * scale;
}

static void widen_i8(const int8_t *row, const float *scales, int64_t group, int64_t n, float *out)
{
    require_built(TYPE_I8);
    for (int64_t i = 0; i < n; i += group)
        widen_bytes(row + i, *scales++, group, out + i);
}

static float float_from_e4m3(uint8_t byte)
{
    const uint32_t sign = (uint32_t)(byte & 0x80) << 24, fraction = byte & 7;
    const uint32_t exponent = byte >> 3 & 15;
    if (exponent == 0)
        return float_from_bits(sign | bits_from_float((float)fraction * 0x1p-9f));
    if ((byte & 0x7f) == 0x7f)
        return float_from_bits(sign | 0x7ff00000);
    return float_from_bits(sign | (exponent + 120) << 23 | fraction << 20);
}

static void widen_f8(const uint8_t *row, const float *scales, int64_t group, int64_t n, float *out)
{
    require_built(TYPE_F8_E4M3);
    for (int64_t i = 0; i < n; i++)
        out[i] = float_from_e4m3(row[i]) * scales[i / group];
}

static void widen_q8_0(const char *block, int64_t n, float *out)
{
    require_built(TYPE_Q8_0);
    for (int64_t i = 0; i < n; i += Q8_BLOCK, block += Q8_BLOCK_BYTES) {
        uint16_t scale;
        memcpy(&scale, block, sizeof scale);
        widen_bytes((const int8_t *)block + sizeof scale, float_from_f16(scale), Q8_BLOCK, out + i);
    }
}

void attnkit_scalar_widen(enum type type, const void *row, const float *scales, int64_t group,
                          int64_t n, float *out)
{
    switch (type) {
    case TYPE_F32:
        memcpy(out, row, (size_t)n * sizeof *out);
        break;
    case TYPE_F16:
        widen_f16(row, n, out);
        break;
    case TYPE_BF16:
        widen_bf16(row, n, out);
        break;
    case TYPE_I8:
        widen_i8(row, scales, group, n, out);
        break;
    case TYPE_Q8_0:
        widen_q8_0(row, n, out);
        break;
    case TYPE_F8_E4M3:
        widen_f8(row, scales, group, n, out);
        break;
    default:
        attnkit_scalar_widen_blocks(type, row, n, out);
    }
}

static inline void widen_tile(const enum type type, struct key_row tile, int64_t group, int64_t n,
                              float *out)
{
    require_built(type);
    for (int key = 0; key < TILE_KEYS; key++)
        for (int64_t d = 0; d < n; d++)
            *out++ = tile_element(type, tile, group, key, d);
}

void attnkit_scalar_widen_tile(enum type type, const void *tile, const float *scales, int64_t group,
                               int64_t n, float *out)
{
    const struct key_row stored = {tile, scales};
    switch (type) {
    case TYPE_F32:
        widen_tile(TYPE_F32, stored, group, n, out);
        break;
    case TYPE_F16:
        widen_tile(TYPE_F16, stored, group, n, out);
        break;
    case TYPE_BF16:
        widen_tile(TYPE_BF16, stored, group, n, out);
        break;
    case TYPE_I8:
        widen_tile(TYPE_I8, stored, group, n, out);
        break;
    case TYPE_Q8_0:
        widen_tile(TYPE_Q8_0, stored, group, n, out);
        break;
    default:
        __builtin_trap();
    }
}

static void narrow_f16(const float *x, int64_t n, uint16_t *row)
{
    for (int64_t i = 0; i < n; i++)
        row[i] = f16_from_float(x[i]);
}

static void narrow_bf16(const float *x, int64_t n, uint16_t *row)
{
    for (int64_t i = 0; i < n; i++)
        row[i] = bf16_from_float(x[i]);
}

/* Returns max |x| / 127, or 0x7fc00000 if an element is NaN. The bits of magnitudes, compared as
 * integers, have the order of the magnitudes, and NaN comes last. */
static float scale_of(const float *x, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t magnitude = bits_from_float(x[i]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return plain_nan(float_from_bits(largest) / 127.0f);
}

/* Divides by the scale and rounds. A scale of 0, infinity or NaN makes every element 0. A scale
 * that was rounded down can make a quotient larger than 127, so rounded quotients are limited to
 * -127 .. 127. */
static void narrow_bytes(const float *x, int64_t n, float scale, int8_t *bytes)
{
    const bool usable = scale > 0.0f && scale < INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const float element = usable ? rintf(x[i] / scale) : 0.0f;
        bytes[i] = (int8_t)fmaxf(-127.0f, fminf(element, 127.0f));
    }
}

static void narrow_i8(const float *x, int64_t n, int64_t group, int8_t *row, float *scales)
{
    require_built(TYPE_I8);
    for (int64_t i = 0; i < n; i += group) {
        const float scale = scale_of(x + i, group);
        narrow_bytes(x + i, group, scale, row + i);
        *scales++ = scale;
    }
}

static void narrow_q8_0(const float *x, int64_t n, char *block)
{
    require_built(TYPE_Q8_0);
    for (int64_t i = 0; i < n; i += Q8_BLOCK, block += Q8_BLOCK_BYTES) {
        const uint16_t scale = f16_from_float(scale_of(x + i, Q8_BLOCK));
        memcpy(block, &scale, sizeof scale);
        narrow_bytes(x + i, Q8_BLOCK, float_from_f16(scale), (int8_t *)block + sizeof scale);
    }
}

void attnkit_scalar_narrow(enum type type, const float *x, int64_t n, int64_t group, void *row,
                           float *scales)
{
    switch (type) {
    case TYPE_F32:
        memcpy(row, x, (size_t)n * sizeof *x);
        break;
    case TYPE_F16:
        narrow_f16(x, n, row);
        break;
    case TYPE_BF16:
        narrow_bf16(x, n, row);
        break;
    case TYPE_I8:
        narrow_i8(x, n, group, row, scales);
        break;
    case TYPE_Q8_0:
        narrow_q8_0(x, n, row);
        break;
    default:
        attnkit_scalar_narrow_blocks(type, x, n, row);
    }
}
