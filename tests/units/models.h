/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of instructions for bf16, bytes and int16: C functions that imitate the instructions. A
 * model computes a 32-bit lane, or a whole product of small matrices. Numbers are passed as bits.
 * An accumulator is a binary32 or an int32. A factor is two bf16, four bytes or two int16, with the
 * first element in the low bits. Integer sums wrap around.
 */
#ifndef ATTNKIT_TEST_UNITS_MODELS_H
#define ATTNKIT_TEST_UNITS_MODELS_H

#include <stdint.h>

enum {
    TILE_ROWS = 16,
    TILE_WORDS = 16, /* number of 32-bit words in a row of an AMX tile */
};

/* Computes a b + c, rounded once to nearest even. Subnormal inputs count as 0. The sum is rounded
 * to 24 bits as if its exponent had no limit. If the rounded magnitude is below 2^-126, the result
 * is 0. */
uint32_t model_flushed_fma(uint32_t a, uint32_t b, uint32_t c);

/* VDPBF16PS: two fused multiply-adds, first with the odd elements, then with the even elements. */
uint32_t model_vdpbf16ps(uint32_t acc, uint32_t a, uint32_t b);

/* VPDPBUSD multiplies unsigned bytes of a by signed bytes of b. VPDPWSSD multiplies int16. */
uint32_t model_vpdpbusd(uint32_t acc, uint32_t a, uint32_t b);
uint32_t model_vpdpwssd(uint32_t acc, uint32_t a, uint32_t b);

/* BFDOT without EBF16: acc + (a0 b0 + a1 b1). Each product and each sum is rounded to odd.
 * Subnormal inputs and results count as 0. */
uint32_t model_bfdot(uint32_t acc, uint32_t a, uint32_t b);

/* BFMLALB and BFMLALT: a fused multiply-add with the even or the odd element. Subnormal numbers are
 * kept. */
uint32_t model_bfmlalb(uint32_t acc, uint32_t a, uint32_t b);
uint32_t model_bfmlalt(uint32_t acc, uint32_t a, uint32_t b);

/* SDOT and UDOT. The model of USDOT is model_vpdpbusd. */
uint32_t model_sdot(uint32_t acc, uint32_t a, uint32_t b);
uint32_t model_udot(uint32_t acc, uint32_t a, uint32_t b);

/* AMX with full tiles: acc[m][n] += sum over k of a[m][k] * b[k][n]. TDPBF16PS has one sum for the
 * products of even elements and one for the products of odd elements. Each of these sums begins
 * with +0 and takes its products over all k by fused multiply-adds. Then the two sums are added,
 * and the total is added to acc. Both additions round. */
void model_tdpbf16ps(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_tdpbssd(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_tdpbsud(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_tdpbusd(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_tdpbuud(uint32_t *acc, const uint32_t *a, const uint32_t *b);

/* BFMMLA, SMMLA, UMMLA and USMMLA: acc[2][2] += a * transpose of b. a and b have two rows of two
 * factors. The products of the first factors of the rows are added before the products of the
 * second factors. */
void model_bfmmla(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_smmla(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_ummla(uint32_t *acc, const uint32_t *a, const uint32_t *b);
void model_usmmla(uint32_t *acc, const uint32_t *a, const uint32_t *b);

#endif
