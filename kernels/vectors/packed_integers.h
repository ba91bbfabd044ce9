/* SPDX-License-Identifier: Apache-2.0
 *
 * The integers of ggml's blocks as signed bytes in a ymm, for AVX2 and AVX-512. A unit is UNIT
 * elements of a block (kernels/blocks.h). The blocks.c of each of the two instruction sets defines
 * subtract_16_if_clear, add_16_if_set and one_if_set, and then includes this file. The three
 * functions change or make each byte according to the byte's bit in the block.
 */
#ifndef ATTNKIT_VECTORS_PACKED_INTEGERS_H
#define ATTNKIT_VECTORS_PACKED_INTEGERS_H

#include "kernels/blocks.h"

/* Returns the 4-bit integers of a unit as bytes. */
static inline __m256i quads(const char *from)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)from);
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

/* Returns the 2-bit integers of a unit as bytes. Each byte of the unit has four integers. The byte
 * becomes the lowest of four bytes, and shifts bring its other three integers to the other three
 * bytes. */
static inline __m256i pairs(const char *from)
{
    const __m256i four = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
    const __m256i two = _mm256_or_si256(four, _mm256_slli_epi32(four, 12));
    const __m256i all = _mm256_or_si256(two, _mm256_slli_epi32(two, 6));
    return _mm256_and_si256(all, _mm256_set1_epi8(3));
}

/* Returns the integers of a unit, not yet scaled, as signed bytes. */
static inline __attribute__((always_inline)) __m256i integers(const enum type type,
                                                              const char *block, int64_t unit)
{
    const char *const from = block + integers_at(type, unit);
    const __m256i values = _mm256_broadcastsi128_si256(_mm_setr_epi8(IQ4_NL_VALUES));
    switch (type) {
    case TYPE_Q4_0:
        return _mm256_sub_epi8(quads(from), _mm256_set1_epi8(8));
    case TYPE_Q5_0:
        return subtract_16_if_clear(quads(from), block + fifth_bits_at(type));
    case TYPE_Q5_1:
        return add_16_if_set(quads(from), block + fifth_bits_at(type));
    case TYPE_IQ4_NL:
        return _mm256_shuffle_epi8(values, quads(from));
    case TYPE_Q1_0:
        return one_if_set(from);
    case TYPE_Q2_0:
        return _mm256_sub_epi8(pairs(from), _mm256_set1_epi8(1));
    default:
        return quads(from);
    }
}

static inline __attribute__((always_inline)) void
store_integers(const enum type type, const char *block, int64_t unit, char *to)
{
    _mm256_storeu_si256((__m256i *)to, integers(type, block, unit));
}

#endif
