/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX512_BF16: the multiply-adds of pairs of bf16, and the prototypes of the tiles for pairs.
 * kernels.h says what a pair is, and has the contract of each tile.
 */
#ifndef ATTNKIT_AVX512_BF16_H
#define ATTNKIT_AVX512_BF16_H

#include "kernels/avx512/avx512.h"

#undef KERNEL
#define KERNEL(entry) attnkit_avx512_bf16_##entry
#undef KERNEL_TABLE
#define KERNEL_TABLE attnkit_avx512_bf16
#undef KERNEL_NAME
#define KERNEL_NAME "avx512+bf16"

/* Returns sum + x * w for pairs: VDPBF16PS adds the products of the high halves first. The function
 * is assembly for the same reason as multiply_add of avx512.h. */
static inline __attribute__((always_inline)) __m512 multiply_step(__m512 x, __m512 w, __m512 sum,
                                                                  const bool is_large)
{
    (void)is_large;
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
}

/* Returns sum + *x * w for a single pair *x, which the instruction reads and broadcasts. */
static inline __attribute__((always_inline)) __m512 multiply_step_one(const float *x, __m512 w,
                                                                      __m512 sum)
{
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*x));
    return sum;
}

uint32_t attnkit_avx512_bf16_pair(const void *row, int64_t n, uint32_t *words);
uint32_t attnkit_avx512_bf16_pair_matrix(const void *tile, int64_t n, uint32_t *words);
void attnkit_avx512_bf16_scores(const float *q_t, int lanes, const struct rows *k, int keys,
                                float *s, const struct rows *ahead);
void attnkit_avx512_bf16_product(const struct product *p);
void attnkit_avx512_bf16_add(float *sum, const float *x, const float *w);
void attnkit_avx512_bf16_add_one(float *sum, const float *x, const float *w);

extern const struct kernels attnkit_avx512_bf16;

#endif
