/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a mask to bits: which of those of a block of keys are not 0. mask.c of the parent folder
 * calls it for each query row and block. Bound by loads.
 */
#include "kernels/avx512/avx512.h"

void attnkit_avx512_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64])
{
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        const __m512i x = _mm512_loadu_si512(bytes + 64 * i);
        words[i] = _mm512_test_epi8_mask(x, x);
    }
}
