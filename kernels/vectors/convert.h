/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts rows of 16-bit types, TYPE_I8 and TYPE_Q8_0 to binary32 and back. Rows of TYPE_F8_E4M3
 * are converted only to binary32. Converts tiles of K to binary32. The convert.c of an instruction
 * set defines scale_of, narrowed, store_elements, widen_e4m3, float_from_f16 and f16_from_float,
 * and then includes this file. Before the #include, convert.c also defines widen_tile, or includes
 * widen_tile.h, which defines widen_tile. The loops for types with scales are functions of their
 * own. So `widen` and `narrow` need not save registers for types without scales.
 */
#ifndef ATTNKIT_VECTORS_CONVERT_H
#define ATTNKIT_VECTORS_CONVERT_H

#include "kernels/blocks.h"

static inline floats scaled(const enum type type, floats x, float scale)
{
    if (type == TYPE_I8)
        x = x * broadcast(scale);
    return x;
}

/* Widens n elements. Only elements of TYPE_I8 are multiplied by `scale`. */
static inline __attribute__((always_inline)) void
widen_elements(const enum type type, const void *row, float scale, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR)
        store_floats(out + i, scaled(type, load_as_f32(type, row, i, VECTOR), scale));
    if (i < n)
        store_first(out + i, n - i, scaled(type, load_as_f32(type, row, i, n - i), scale));
}

static __attribute__((noinline)) void widen_i8(const int8_t *row, const float *scales,
                                               int64_t group, int64_t n, float *out)
{
    require_built(TYPE_I8);
    for (int64_t i = 0; i < n; i += group)
        widen_elements(TYPE_I8, row + i, *scales++, group, out + i);
}

static __attribute__((noinline)) void widen_f8(const char *row, const float *scales, int64_t group,
                                               int64_t n, float *out)
{
    require_built(TYPE_F8_E4M3);
    for (int64_t i = 0; i < n; i += group) {
        const float scale = *scales++;
        if (is_too_large_for_e4m3(scale))
            widen_e4m3(row + i, scale, true, group, out + i);
        else
            widen_e4m3(row + i, scale * 256.0f, false, group, out + i);
    }
}

static __attribute__((noinline)) void widen_q8_0(const char *block, int64_t n, float *out)
{
    require_built(TYPE_Q8_0);
    for (int64_t i = 0; i < n; i += Q8_BLOCK, block += Q8_BLOCK_BYTES) {
        uint16_t scale;
        memcpy(&scale, block, sizeof scale);
        widen_elements(TYPE_I8, block + sizeof scale, float_from_f16(scale), Q8_BLOCK, out + i);
    }
}

void KERNEL(widen)(enum type type, const void *row, const float *scales, int64_t group, int64_t n,
                   float *out)
{
    switch (type) {
    case TYPE_F32:
        memcpy(out, row, (size_t)n * sizeof *out);
        break;
    case TYPE_F16:
        widen_elements(TYPE_F16, row, 1.0f, n, out);
        break;
    case TYPE_BF16:
        widen_elements(TYPE_BF16, row, 1.0f, n, out);
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
        KERNEL(widen_blocks)(type, row, n, out);
    }
}

void KERNEL(widen_tile)(enum type type, const void *tile, const float *scales, int64_t group,
                        int64_t n, float *out)
{
    switch (type) {
    case TYPE_F32:
        widen_tile(TYPE_F32, tile, scales, group, n, out);
        break;
    case TYPE_F16:
        widen_tile(TYPE_F16, tile, scales, group, n, out);
        break;
    case TYPE_BF16:
        widen_tile(TYPE_BF16, tile, scales, group, n, out);
        break;
    case TYPE_I8:
        widen_tile(TYPE_I8, tile, scales, group, n, out);
        break;
    case TYPE_Q8_0:
        widen_tile(TYPE_Q8_0, tile, scales, group, n, out);
        break;
    default:
        __builtin_trap();
    }
}

static inline __attribute__((always_inline)) void
narrow_elements(const enum type type, const float *x, float scale, int64_t n, void *row)
{
    int64_t i = 0;
    for (; i + VECTOR <= n; i += VECTOR)
        store_elements(type, row, i, VECTOR, narrowed(type, load_floats(x + i), scale));
    if (i < n)
        store_elements(type, row, i, n - i, narrowed(type, load_first(x + i, n - i), scale));
}

static bool is_usable(float scale)
{
    return scale > 0.0f && scale < INFINITY;
}

/* Sets the n elements to 0, for a scale that is not usable. Returns the scale to store: any NaN
 * becomes 0x7fc00000. */
static float zero_bytes(float scale, int64_t n, int8_t *bytes)
{
    for (int64_t i = 0; i < n; i++)
        bytes[i] = 0;
    return isnan(scale) ? NAN : scale;
}

static __attribute__((noinline)) void narrow_i8(const float *x, int64_t n, int64_t group,
                                                int8_t *row, float *scales)
{
    require_built(TYPE_I8);
    for (int64_t i = 0; i < n; i += group) {
        float scale = scale_of(x + i, group);
        if (is_usable(scale))
            narrow_elements(TYPE_I8, x + i, scale, group, row + i);
        else
            scale = zero_bytes(scale, group, row + i);
        *scales++ = scale;
    }
}

static __attribute__((noinline)) void narrow_q8_0(const float *x, int64_t n, char *block)
{
    require_built(TYPE_Q8_0);
    for (int64_t i = 0; i < n; i += Q8_BLOCK, block += Q8_BLOCK_BYTES) {
        uint16_t half = f16_from_float(scale_of(x + i, Q8_BLOCK));
        const float scale = float_from_f16(half);
        if (is_usable(scale))
            narrow_elements(TYPE_I8, x + i, scale, Q8_BLOCK, block + sizeof half);
        else
            half = f16_from_float(zero_bytes(scale, Q8_BLOCK, (int8_t *)block + sizeof half));
        memcpy(block, &half, sizeof half);
    }
}

void KERNEL(narrow)(enum type type, const float *x, int64_t n, int64_t group, void *row,
                    float *scales)
{
    switch (type) {
    case TYPE_F32:
        memcpy(row, x, (size_t)n * sizeof *x);
        break;
    case TYPE_F16:
        narrow_elements(TYPE_F16, x, 1.0f, n, row);
        break;
    case TYPE_BF16:
        narrow_elements(TYPE_BF16, x, 1.0f, n, row);
        break;
    case TYPE_I8:
        narrow_i8(x, n, group, row, scales);
        break;
    case TYPE_Q8_0:
        narrow_q8_0(x, n, row);
        break;
    default:
        KERNEL(narrow_blocks)(type, x, n, row);
    }
}

#endif
