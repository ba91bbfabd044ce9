/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a mask to bits: which of those of a block of keys are not 0. mask.c of the parent folder
 * calls it for each query row and block. Bound by loads.
 */
#include "kernels/avx2/avx2.h"

static uint64_t zeros(const unsigned char *bytes)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)bytes);
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, _mm256_setzero_si256()));
}

void attnkit_avx2_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64])
{
    for (int i = 0; i < KEY_BLOCK / 64; i++)
        words[i] = ~(zeros(bytes + 64 * i) | zeros(bytes + 64 * i + 32) << 32);
}
