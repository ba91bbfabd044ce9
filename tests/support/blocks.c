/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/blocks.h"

#include <math.h>
#include <string.h>

#include "kernels/blocks.h"
#include "kernels/scalar/scalar.h"
#include "tests/support/formats.h"

const struct block_format block_formats[BLOCK_FORMATS] = {
    {"q4_0", TYPE_Q4_0, 32, 18, 4, 0, 0, 2, 8},     {"q4_1", TYPE_Q4_1, 32, 20, 4, 2, 0, 4, 0},
    {"q5_0", TYPE_Q5_0, 32, 22, 4, 0, 2, 6, 16},    {"q5_1", TYPE_Q5_1, 32, 24, 4, 2, 4, 8, 0},
    {"iq4_nl", TYPE_IQ4_NL, 32, 18, 4, 0, 0, 2, 0}, {"q1_0", TYPE_Q1_0, 128, 18, 1, 0, 0, 2, 0},
    {"q2_0", TYPE_Q2_0, 64, 18, 2, 0, 0, 2, 1},
};

const struct block_format *block_format_of(enum type type)
{
    for (int f = 0; f < BLOCK_FORMATS; f++)
        if (block_formats[f].type == type)
            return &block_formats[f];
    return NULL;
}

/* Returns the index of the byte of a block that holds integer i, without the integer's fifth bit.
 * Sets *bit to the position of the integer's lowest bit in this byte. */
static int byte_of(const struct block_format *f, int i, int *bit)
{
    if (f->bits ==
        4) { /* the upper four bits of each byte hold an integer of the second half of the block */
        *bit = i < 16 ? 0 : 4;
        return f->integers_at + i % 16;
    }
    *bit = i % (8 / f->bits) * f->bits;
    return f->integers_at + i / (8 / f->bits);
}

int block_bits(const struct block_format *f, const char *block, int i)
{
    int bit;
    const int byte = (unsigned char)block[byte_of(f, i, &bit)];
    const int low = byte / (1 << bit) % (1 << f->bits);
    const int fifth = f->fifth_at ? (unsigned char)block[f->fifth_at + i / 8] >> i % 8 & 1 : 0;
    return low + 16 * fifth;
}

void block_put_bits(const struct block_format *f, char *block, int i, int bits)
{
    int bit;
    char *const byte = block + byte_of(f, i, &bit);
    const int mask = ((1 << f->bits) - 1) << bit;
    *byte = (char)((*byte & ~mask) | (bits << bit & mask));
    if (f->fifth_at) {
        char *const fifth = block + f->fifth_at + i / 8;
        *fifth = (char)((*fifth & ~(1 << i % 8)) | (bits >> 4) << i % 8);
    }
}

int block_integer(const struct block_format *f, int bits)
{
    static const int values[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
    if (f->type == TYPE_IQ4_NL)
        return values[bits];
    return f->bits == 1 ? 2 * bits - 1 : bits - f->zero;
}

static float half_at(const char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    const uint32_t bits = widened_bits(format_of(TYPE_F16), half);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Computes the element of `block` whose integer has the bits `bits`. The product with the scale and
 * the sum with the minimum are exact in binary64. */
static float scaled(const struct block_format *f, const char *block, int bits)
{
    const double product = (double)block_integer(f, bits) * (double)half_at(block);
    return (float)(f->minimum_at ? product + (double)half_at(block + f->minimum_at) : product);
}

float block_element(const struct block_format *f, const char *block, int i)
{
    return scaled(f, block, block_bits(f, block, i));
}

float e4m3_value(uint8_t byte)
{
    const int exponent = byte / 8 % 16, fraction = byte % 8;
    const double magnitude = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    if (byte % 128 == 127)
        return copysignf(NAN, byte < 128 ? 1.0f : -1.0f);
    return (float)(byte < 128 ? magnitude : -magnitude);
}

static void store_block(const struct block_format *f, const float *x, char *block)
{
    const int count = 1 << (f->bits + (f->fifth_at ? 1 : 0)), highest = block_integer(f, count - 1);
    float least = x[0], most = x[0], largest = 0.0f;
    for (int i = 0; i < f->elements; i++) {
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    const float scale = f->minimum_at ? (most - least) / (float)highest : largest / (float)highest;
    const uint16_t halves[] = {f16_from_float(scale), f16_from_float(least)};
    memset(block, 0, (size_t)f->bytes);
    memcpy(block, &halves[0], sizeof halves[0]);
    if (f->minimum_at)
        memcpy(block + f->minimum_at, &halves[1], sizeof halves[1]);
    float values[32];
    for (int bits = 0; bits < count; bits++)
        values[bits] = scaled(f, block, bits);
    for (int i = 0; i < f->elements; i++) {
        int best = 0;
        for (int bits = 1; bits < count; bits++)
            if (fabsf(values[bits] - x[i]) < fabsf(values[best] - x[i]))
                best = bits;
        block_put_bits(f, block, i, best);
    }
}

/* Returns the byte of the E4M3 number nearest to x. x is not negative. */
static uint8_t nearest_e4m3(float x)
{
    int below = 0, above = 0x7e; /* 0x7e is 448 */
    while (above - below > 1) {
        const int middle = (below + above) / 2;
        if (e4m3_value((uint8_t)middle) <= x)
            below = middle;
        else
            above = middle;
    }
    return (uint8_t)(x - e4m3_value((uint8_t)below) < e4m3_value((uint8_t)above) - x ? below
                                                                                     : above);
}

static void store_e4m3(const float *x, int64_t n, float *scale, uint8_t *row)
{
    float largest = 0.0f;
    for (int64_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    *scale = largest > 0.0f ? largest / 448.0f : 1.0f;
    for (int64_t i = 0; i < n; i++)
        row[i] = (uint8_t)(nearest_e4m3(fabsf(x[i]) / *scale) | (x[i] < 0.0f ? 0x80 : 0));
}

void store_row(enum type type, const float *x, int64_t n, int64_t group, void *row, float *scales)
{
    const struct block_format *const f = block_format_of(type);
    if (type == TYPE_F8_E4M3) {
        for (int64_t i = 0; i < n; i += group)
            store_e4m3(x + i, group, &scales[i / group], (uint8_t *)row + i);
    } else if (f && !can_be_written(type)) {
        for (int64_t i = 0; i < n; i += f->elements)
            store_block(f, x + i, (char *)row + i / f->elements * f->bytes);
    } else {
        attnkit_scalar_narrow(type, x, n, group, row, scales);
    }
}

void block_put_halves(enum type type, void *row, int64_t n, uint16_t (*next)(void *arg), void *arg)
{
    const struct block_format *const f = block_format_of(type);
    for (int64_t i = 0; f && i < n; i += f->elements) {
        char *const block = (char *)row + i / f->elements * f->bytes;
        const uint16_t scale = next(arg), minimum = f->minimum_at ? next(arg) : 0;
        memcpy(block, &scale, sizeof scale);
        if (f->minimum_at)
            memcpy(block + f->minimum_at, &minimum, sizeof minimum);
    }
}
