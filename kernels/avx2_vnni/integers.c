/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of decode that multiply integers, by VPDPWSSD of AVX-VNNI: one instruction adds two
 * products to each sum of 32 bits. If there are few sums, the tiles use VPMADDWD and an addition
 * (MANY_SUMS). No sum of these tiles overflows.
 */
#include "kernels/avx2/avx2.h"

/* A core of Alder Lake starts two VPDPWSSD in a cycle, and a sum is ready 5 cycles later. With
 * fewer vectors of sums than MANY_SUMS, VPMADDWD and an addition take less time, because additions
 * to the same sum can then follow each other after one cycle. */
enum { MANY_SUMS = 8 };

static inline __attribute__((always_inline)) __m256i dot(__m256i sum, __m256i a, __m256i b,
                                                         const int sums)
{
    sum = sums >= MANY_SUMS ? _mm256_dpwssd_avx_epi32(sum, a, b)
                            : _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    __asm__ volatile("" : "+x"(sum)); /* otherwise gcc changes the order, and spills products */
    return sum;
}

#include "kernels/avx2/integers/decode.h"

static void add(int32_t *sum, const int16_t *a, const int16_t *b)
{
    for (int i = 0; i < MAX_VECTOR; i += VECTOR) {
        __m256i *const sums = (__m256i *)(void *)(sum + i);
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(a + 2 * i));
        const __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(b + 2 * i));
        _mm256_storeu_si256(sums, dot(_mm256_loadu_si256(sums), x, y, MANY_SUMS));
    }
}

extern const struct integer_panel_kernels attnkit_avx2_vnni_integer_panel;
const struct integer_kernels attnkit_avx2_vnni_integers = {
    .round_row = round_row,
    .decode = decode,
    .panel = &attnkit_avx2_vnni_integer_panel,
    .add = add,
};
