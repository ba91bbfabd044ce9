/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks as bits, one bit for each key of a block. `nonzero` sets the bit if the byte of the key is
 * not 0. same_ids sets the bit if the id of the key is the id of the row. `unmasked` sets the bit
 * if the bias does not mask the key. mask.c of kernels/attention calls these functions for a query
 * row and a block of keys, if the call has a mask of bytes, segment ids or a bias. cells.c calls
 * same_ids, too, to find keys without a cell. Loads limit the speed.
 */
#include "kernels/avx2/avx2.h"

static inline __m256i load(const void *from)
{
    return _mm256_loadu_si256(from);
}

static uint64_t zeros(const unsigned char *bytes)
{
    const __m256i zero = _mm256_cmpeq_epi8(load(bytes), _mm256_setzero_si256());
    return (uint32_t)_mm256_movemask_epi8(zero);
}

void attnkit_avx2_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64])
{
    for (int i = 0; i < KEY_BLOCK / 64; i++)
        words[i] = ~(zeros(bytes + 64 * i) | zeros(bytes + 64 * i + 32) << 32);
}

/* Returns a bit for each 32-bit element, set if the element is all ones. Elements are 0 or all
 * ones. */
static inline uint64_t bits_of(__m256i x)
{
    return (uint64_t)_mm256_movemask_ps(_mm256_castsi256_ps(x));
}

void attnkit_avx2_same_ids(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64])
{
    const __m256i wanted = _mm256_set1_epi32(own);
    for (int i = 0; i < KEY_BLOCK / 64; i++, ids += 64) {
        words[i] = 0;
        for (int j = 0; j < 64; j += VECTOR)
            words[i] |= bits_of(_mm256_cmpeq_epi32(load(ids + j), wanted)) << j;
    }
}

static bool unmasked_f32(const float *numbers, uint64_t words[KEY_BLOCK / 64])
{
    const __m256i minus_infinity = _mm256_set1_epi32((int)0xff800000);
    __m256i any = _mm256_setzero_si256();
    for (int i = 0; i < KEY_BLOCK / 64; i++, numbers += 64) {
        uint64_t masked = 0;
        for (int j = 0; j < 64; j += VECTOR) {
            const __m256i x = load(numbers + j), is_masked = _mm256_cmpeq_epi32(x, minus_infinity);
            masked |= bits_of(is_masked) << j;
            any = _mm256_or_si256(any, _mm256_andnot_si256(is_masked, _mm256_slli_epi32(x, 1)));
        }
        words[i] = ~masked;
    }
    return !_mm256_testz_si256(any, any);
}

/* Does the work of `unmasked` for numbers of 16 bits, two vectors at a time: sets the bits, and
 * returns whether any number other than -inf is nonzero. -0 counts as 0. */
static bool unmasked_half(const uint16_t *numbers, int minus_infinity,
                          uint64_t words[KEY_BLOCK / 64])
{
    const __m256i infinity = _mm256_set1_epi16((short)minus_infinity);
    __m256i any = _mm256_setzero_si256();
    for (int i = 0; i < KEY_BLOCK / 64; i++, numbers += 64) {
        uint64_t masked = 0;
        for (int j = 0; j < 64; j += 32) {
            const __m256i a = load(numbers + j), b = load(numbers + j + 16);
            const __m256i a_masked = _mm256_cmpeq_epi16(a, infinity);
            const __m256i b_masked = _mm256_cmpeq_epi16(b, infinity);
            const __m256i bytes =
                _mm256_permute4x64_epi64(_mm256_packs_epi16(a_masked, b_masked), 0xd8);
            masked |= (uint64_t)(uint32_t)_mm256_movemask_epi8(bytes) << j;
            any = _mm256_or_si256(any, _mm256_andnot_si256(a_masked, _mm256_slli_epi16(a, 1)));
            any = _mm256_or_si256(any, _mm256_andnot_si256(b_masked, _mm256_slli_epi16(b, 1)));
        }
        words[i] = ~masked;
    }
    return !_mm256_testz_si256(any, any);
}

bool attnkit_avx2_unmasked(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64])
{
    if (type == TYPE_F32)
        return unmasked_f32(numbers, words);
    return unmasked_half(numbers, type == TYPE_F16 ? 0xfc00 : 0xff80, words);
}
