/* SPDX-License-Identifier: Apache-2.0
 *
 * The roofs of AVX-512. A CPU begins up to 2 multiply-adds per cycle, and each takes 4 or 5 cycles.
 * So up to 10 multiply-adds are in flight, each with its own accumulator. 16 accumulators and two
 * operands take 18 of the 32 zmm registers.
 */
#include <immintrin.h>

#include "bench/roofs/roof.h"

enum { ACCUMULATORS = 16, VECTOR = 16, LOADS = 8, AHEAD = 4096 };

/* The pragmas unroll all loops over the accumulators, which keeps the accumulators in registers. */
static float fma_rounds(int64_t rounds)
{
    const __m512 factor = _mm512_set1_ps(roof_factor), term = _mm512_set1_ps(roof_term);
    __m512 acc[ACCUMULATORS];
#pragma GCC unroll 16
    for (int i = 0; i < ACCUMULATORS; i++)
        acc[i] = _mm512_set1_ps(roof_term);
    for (int64_t round = 0; round < rounds; round++)
#pragma GCC unroll 16
        for (int i = 0; i < ACCUMULATORS; i++)
            acc[i] = _mm512_fmadd_ps(acc[i], factor, term);
#pragma GCC unroll 16
    for (int i = 1; i < ACCUMULATORS; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    return _mm512_cvtss_f32(acc[0]);
}

static inline uint32_t read_with(const char *bytes, size_t count, bool ahead)
{
    __m512i acc[LOADS];
    for (int i = 0; i < LOADS; i++)
        acc[i] = _mm512_setzero_si512();
    for (const char *end = bytes + count; bytes < end; bytes += sizeof acc)
        for (int i = 0; i < LOADS; i++) {
            if (ahead)
                _mm_prefetch(bytes + AHEAD + i * (int)sizeof *acc, _MM_HINT_T0);
            acc[i] = _mm512_xor_si512(acc[i], _mm512_load_si512((const __m512i *)bytes + i));
        }
    for (int i = 1; i < LOADS; i++)
        acc[0] = _mm512_xor_si512(acc[0], acc[i]);
    return (uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(acc[0]));
}

static uint32_t read_bytes(const char *bytes, size_t count)
{
    return read_with(bytes, count, false);
}

static uint32_t read_ahead(const char *bytes, size_t count)
{
    return read_with(bytes, count, true);
}

const struct roof_loops roof_avx512 = {
    .isa = "avx512",
    .flops = 2.0 * ACCUMULATORS * VECTOR,
    .fma = fma_rounds,
    .read = read_bytes,
    .read_ahead = read_ahead,
};
