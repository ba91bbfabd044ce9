/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of integers for the tiles of decode that multiply integers (step 16 of ../../README.md).
 * The file that includes the tiles defines a function dot(sum, a, b). dot multiplies the 16-bit
 * integers of a and b, and adds the two products of each 32 bits to the 32-bit integers of sum.
 * AVX-512 BW takes two instructions for dot, and the unit VNNI takes one instruction.
 */
#ifndef ATTNKIT_AVX512_PAIRS_H
#define ATTNKIT_AVX512_PAIRS_H

#include "kernels/avx512/avx512.h"
#include "kernels/integers.h"

/* Returns the bytes 0 and 2 of each 32 bits, plus EVEN_OFFSET, as integers of 16 bits. */
static inline __m512i even_bytes(__m512i bytes)
{
    return _mm512_ternarylogic_epi32(bytes, _mm512_set1_epi16(EVEN_OFFSET), _mm512_set1_epi16(0xff),
                                     0x28); /* (bytes ^ EVEN_OFFSET) & 0xff */
}

/* Returns the bytes 1 and 3 of each 32 bits as integers of 16 bits. */
static inline __m512i odd_bytes(__m512i bytes)
{
    return _mm512_srai_epi16(bytes, 8);
}

/* Returns the two integers at `pair` in each 32 bits. */
static inline __m512i broadcast_pair(const int16_t *pair)
{
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return _mm512_set1_epi32(bits);
}

#endif
