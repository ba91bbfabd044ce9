/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks as bits, one bit for each key of a block. `nonzero` sets the bit if the byte of the key is
 * not 0. same_ids sets the bit if the id of the key is the id of the row. `unmasked` sets the bit
 * if the bias does not mask the key. mask.c of kernels/attention calls these functions for a query
 * row and a block of keys, if the call has a mask, segment ids or a bias. cells.c calls same_ids,
 * too, to find keys without a cell. Loads limit the speed.
 */
#include "kernels/avx512/avx512.h"

void attnkit_avx512_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64])
{
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        const __m512i x = _mm512_loadu_si512(bytes + 64 * i);
        words[i] = _mm512_test_epi8_mask(x, x);
    }
}

void attnkit_avx512_same_ids(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64])
{
    const __m512i wanted = _mm512_set1_epi32(own);
    for (int i = 0; i < KEY_BLOCK / 64; i++, ids += 64) {
        words[i] = 0;
        for (int j = 0; j < 64; j += VECTOR)
            words[i] |= (uint64_t)_mm512_cmpeq_epi32_mask(_mm512_loadu_si512(ids + j), wanted) << j;
    }
}

/* Does the work of `unmasked` for binary32: sets the bits, and returns whether any number other
 * than -inf is nonzero. -0 counts as 0. */
static bool unmasked_f32(const float *numbers, uint64_t words[KEY_BLOCK / 64])
{
    const __m512i minus_infinity = _mm512_set1_epi32((int)0xff800000);
    const __m512i magnitude = _mm512_set1_epi32(INT32_MAX);
    __mmask16 any = 0;
    for (int i = 0; i < KEY_BLOCK / 64; i++, numbers += 64) {
        words[i] = 0;
        for (int j = 0; j < 64; j += VECTOR) {
            const __m512i x = _mm512_loadu_si512(numbers + j);
            const __mmask16 seen = _mm512_cmpneq_epi32_mask(x, minus_infinity);
            words[i] |= (uint64_t)seen << j;
            any |= _mm512_mask_test_epi32_mask(seen, x, magnitude);
        }
    }
    return any != 0;
}

/* Does the work of `unmasked` for numbers of 16 bits. */
static bool unmasked_half(const uint16_t *numbers, int minus_infinity,
                          uint64_t words[KEY_BLOCK / 64])
{
    const __m512i infinity = _mm512_set1_epi16((short)minus_infinity);
    const __m512i magnitude = _mm512_set1_epi16(INT16_MAX);
    __mmask32 any = 0;
    for (int i = 0; i < KEY_BLOCK / 64; i++, numbers += 64) {
        words[i] = 0;
        for (int j = 0; j < 64; j += 2 * VECTOR) {
            const __m512i x = _mm512_loadu_si512(numbers + j);
            const __mmask32 seen = _mm512_cmpneq_epi16_mask(x, infinity);
            words[i] |= (uint64_t)seen << j;
            any |= _mm512_mask_test_epi16_mask(seen, x, magnitude);
        }
    }
    return any != 0;
}

bool attnkit_avx512_unmasked(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64])
{
    if (type == TYPE_F32)
        return unmasked_f32(numbers, words);
    return unmasked_half(numbers, type == TYPE_F16 ? 0xfc00 : 0xff80, words);
}
