/* SPDX-License-Identifier: Apache-2.0
 *
 * The results of instructions for bf16 and bytes, in plain C: of a lane of 32 bits, or of a whole
 * product of small matrices. Numbers are their bits: an accumulator is a binary32 or an int32; a
 * factor is two bf16, four bytes or two int16, the first in the low bits. Integer sums wrap around.
 */
#ifndef ATTNKIT_TEST_UNITS_MODELS_H
#define ATTNKIT_TEST_UNITS_MODELS_H

#include <stdint.h>

enum {
    TILE_ROWS = 16,
    TILE_WORDS = 16, /* words of 32 bits in a row of a tile of AMX */
};

/* Computes a b + c, rounded once to nearest even. Subnormal inputs count as 0. A result below
 * 2^-126, after rounding without a limit of the exponent, is 0. a b has to be exact in binary64. */
uint32_t model_flushed_fma(uint32_t a, uint32_t b, uint32_t c);

/* VDPBF16PS: two fused multiply-adds, of the odd elements first, then of the even elements. */
uint32_t model_vdpbf16ps(uint32_t acc, uint32_t a, uint32_t b);

/* VPDPBUSD (a is unsigned, b signed), VPDPWSSD. */
uint32_t model_vpdpbusd(uint32_t acc, uint32_t a, uint32_t b);
uint32_t model_vpdpwssd(uint32_t acc, uint32_t a, uint32_t b);

/* BFDOT without EBF16: acc + (a0 b0 + a1 b1), each step rounded to odd, subnormal numbers count as
 * 0. */
uint32_t model_bfdot(uint32_t acc, uint32_t a, uint32_t b);

/* BFMLALB, BFMLALT: a fused multiply-add of the even or the odd element, subnormal numbers are
 * kept. */
uint32_t model_bfmlalb(uint32_t acc, uint32_t a, uint32_t b);
uint32_t model_bfmlalt(uint32_t acc, uint32_t a, uint32_t b);

/* SDOT, UDOT, USDOT. */
uint32_t model_sdot(uint32_t acc, uint32_t a, uint32_t b);
uint32_t model_udot(uint32_t acc, uint32_t a, uint32_t b);

/* AMX with full tiles, acc[m][n] += sum over k of a[m][k] * b[k][n]. TDPBF16PS: even and odd
 * elements have a chain each from +0 over all k; acc += even + odd, each sum rounded. */
void model_tdpbf16ps(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_tdpbssd(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_tdpbsud(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_tdpbusd(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_tdpbuud(uint32_t *acc, const uint32_t *a, const uint32_t *b);

/* BFMMLA, SMMLA, UMMLA, USMMLA: acc[2][2] += a[2][2 factors] * b[2][2 factors]', the first factor
 * first. */
void model_bfmmla(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_smmla(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_ummla(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_usmmla(uint32_t *acc, const uint32_t *a, const uint32_t *b);

#endif
