/* SPDX-License-Identifier: Apache-2.0
 *
 * The roofs of plain C: one multiply-add and one 64-bit load at a time. If the file is compiled for
 * CPUs without FMA instructions, fmaf is a function call. The roof then includes this call, because
 * the scalar kernels make it, too.
 */
#include <math.h>

#include "bench/roofs/roof.h"

enum { ACCUMULATORS = 8, LOADS = 8, AHEAD = 4096 };

static float fma_rounds(int64_t rounds)
{
    const float factor = roof_factor, term = roof_term;
    float acc[ACCUMULATORS];
    for (int i = 0; i < ACCUMULATORS; i++)
        acc[i] = roof_term;
    for (int64_t round = 0; round < rounds; round++)
        for (int i = 0; i < ACCUMULATORS; i++)
            acc[i] = fmaf(acc[i], factor, term);
    for (int i = 1; i < ACCUMULATORS; i++)
        acc[0] += acc[i];
    return acc[0];
}

static inline uint32_t read_with(const char *bytes, size_t count, bool ahead)
{
    uint64_t acc[LOADS] = {0};
    for (const char *end = bytes + count; bytes < end; bytes += sizeof acc) {
        if (ahead)
            __builtin_prefetch(bytes + AHEAD);
        for (int i = 0; i < LOADS; i++)
            acc[i] ^= ((const uint64_t *)bytes)[i];
    }
    for (int i = 1; i < LOADS; i++)
        acc[0] ^= acc[i];
    return (uint32_t)acc[0];
}

static uint32_t read_bytes(const char *bytes, size_t count)
{
    return read_with(bytes, count, false);
}

static uint32_t read_ahead(const char *bytes, size_t count)
{
    return read_with(bytes, count, true);
}

const struct roof_loops roof_scalar = {
    .isa = "scalar",
    .flops = 2.0 * ACCUMULATORS,
    .fma = fma_rounds,
    .read = read_bytes,
    .read_ahead = read_ahead,
};
