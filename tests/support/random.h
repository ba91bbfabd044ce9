/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers with the same bits on every machine. The numbers come from splitmix64 (Steele,
 * Lea, Flood 2014), which is integer arithmetic. The conversion to a float is exact.
 */
#ifndef ATTNKIT_TEST_RANDOM_H
#define ATTNKIT_TEST_RANDOM_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Returns a random integer from 0 to n - 1. */
static inline int64_t random_below(uint64_t *state, int64_t n)
{
    return (int64_t)(random_bits(state) >> 33) % n;
}

/* Returns a random number in [-1, 1). It is a multiple of 2^-23. */
static inline float random_uniform(uint64_t *state)
{
    return (float)((int32_t)(random_bits(state) >> 40) - (1 << 23)) * 0x1p-23f;
}

/* Returns a random number with mean 0 and variance 1: a sum of 12 uniform numbers. It is a multiple
 * of 2^-20, and its magnitude is at most 6. */
static inline float random_normal(uint64_t *state)
{
    int32_t sum = 0;
    for (int i = 0; i < 4; i++) {
        const uint64_t bits = random_bits(state);
        sum += (int32_t)(bits & 0xfffff) + (int32_t)(bits >> 20 & 0xfffff) +
               (int32_t)(bits >> 40 & 0xfffff);
    }
    return (float)(sum - 6 * 0xfffff) * 0x1p-20f;
}

/* Returns a random number. Most numbers come from random_normal, but NaN, infinities, zeros, and
 * large and tiny numbers occur. */
static inline float random_number(uint64_t *state)
{
    static const float special[] = {0.0f,    -0.0f,  INFINITY,   -INFINITY, NAN,
                                    FLT_MAX, 1e-41f, -0x1p-149f, 0x1p-126f, -65504.0f};
    switch (random_below(state, 40)) {
    case 0:
        return special[random_below(state, 10)];
    case 1: {
        const uint32_t bits = (uint32_t)random_bits(state);
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    default:
        return random_normal(state);
    }
}

#endif
