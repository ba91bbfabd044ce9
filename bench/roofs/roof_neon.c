/* SPDX-License-Identifier: Apache-2.0
 *
 * The roofs of NEON. A CPU begins up to 4 multiply-adds per cycle, and each takes 4 cycles. So up
 * to 16 multiply-adds are in flight, each with its own accumulator. 24 accumulators and two
 * operands take 26 of the 32 registers.
 */
#include <arm_neon.h>

#include "bench/roofs/roof.h"

enum { ACCUMULATORS = 24, VECTOR = 4, LOADS = 8, AHEAD = 4096, CACHE_LINE = 64 };

/* The pragmas unroll all loops over the accumulators, which keeps the accumulators in registers. */
static float fma_rounds(int64_t rounds)
{
    const float32x4_t factor = vdupq_n_f32(roof_factor), term = vdupq_n_f32(roof_term);
    float32x4_t acc[ACCUMULATORS];
#pragma GCC unroll 24
    for (int i = 0; i < ACCUMULATORS; i++)
        acc[i] = vdupq_n_f32(roof_term);
    for (int64_t round = 0; round < rounds; round++)
#pragma GCC unroll 24
        for (int i = 0; i < ACCUMULATORS; i++)
            acc[i] = vfmaq_f32(acc[i], factor, term);
#pragma GCC unroll 24
    for (int i = 1; i < ACCUMULATORS; i++)
        acc[0] = vaddq_f32(acc[0], acc[i]);
    return vgetq_lane_f32(acc[0], 0);
}

static inline uint32_t read_with(const char *bytes, size_t count, bool ahead)
{
    uint32x4_t acc[LOADS];
    for (int i = 0; i < LOADS; i++)
        acc[i] = vdupq_n_u32(0);
    for (const char *end = bytes + count; bytes < end; bytes += sizeof acc)
        for (int i = 0; i < LOADS; i++) {
            if (ahead && i * sizeof *acc % CACHE_LINE == 0)
                __builtin_prefetch(bytes + AHEAD + i * (int)sizeof *acc);
            acc[i] = veorq_u32(acc[i], vld1q_u32((const uint32_t *)bytes + i * VECTOR));
        }
    for (int i = 1; i < LOADS; i++)
        acc[0] = veorq_u32(acc[0], acc[i]);
    return vgetq_lane_u32(acc[0], 0);
}

static uint32_t read_bytes(const char *bytes, size_t count)
{
    return read_with(bytes, count, false);
}

static uint32_t read_ahead(const char *bytes, size_t count)
{
    return read_with(bytes, count, true);
}

const struct roof_loops roof_neon = {
    .isa = "neon",
    .flops = 2.0 * ACCUMULATORS * VECTOR,
    .fma = fma_rounds,
    .read = read_bytes,
    .read_ahead = read_ahead,
};
