/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions for the types whose blocks have less than a byte for an element. Rows of all these
 * types are converted to binary32. Rows of the types without a minimum are also converted to
 * TYPE_Q8_0. Rows of TYPE_Q4_0 and TYPE_Q5_0 are also made from binary32. The conversion of 32
 * elements to binary32 takes some 25 instructions. A shift, a table or a comparison of bits turns
 * the integers of the elements into signed bytes in a ymm. The bytes then become four ymm of
 * binary32. The four conversions, each of which needs a shuffle, and the four stores limit the
 * speed. Four ymm and the constants are live at a time. For TYPE_Q8_0 the signed bytes are stored
 * as they are, in some 9 instructions.
 */
#include "kernels/avx2/avx2.h"
#include "kernels/blocks.h"

typedef floats unit_scale;

static inline floats half_everywhere(const char *from)
{
    short half;
    memcpy(&half, from, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16(half));
}

/* Returns a vector of bytes. If bit i of the 4 bytes at `from` is set, byte i has all bits set.
 * Else byte i is 0. */
static inline __m256i bytes_from_bits(const char *from)
{
    int bits;
    memcpy(&bits, from, sizeof bits);
    /* Byte i of `own` is the number of the byte that has bit i. */
    const __m256i own =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), own);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
}

/* Subtracts 16 from each byte of q whose bit is clear. Each byte is below 16, so subtracting 16
 * sets its upper four bits. */
static inline __m256i subtract_16_if_clear(__m256i q, const char *bits)
{
    return _mm256_or_si256(q, _mm256_andnot_si256(bytes_from_bits(bits), _mm256_set1_epi8(-16)));
}

static inline __m256i add_16_if_set(__m256i q, const char *bits)
{
    return _mm256_or_si256(q, _mm256_and_si256(bytes_from_bits(bits), _mm256_set1_epi8(16)));
}

/* Returns a byte for each bit: 1 if the bit is set, else -1. */
static inline __m256i one_if_set(const char *bits)
{
    return _mm256_or_si256(_mm256_andnot_si256(bytes_from_bits(bits), _mm256_set1_epi8(-1)),
                           _mm256_set1_epi8(1));
}

#include "kernels/vectors/packed_integers.h"

static inline __attribute__((always_inline)) void widen_unit(const enum type type,
                                                             const char *block, int64_t unit,
                                                             floats scale, floats minimum,
                                                             float *out)
{
    const __m256i bytes = integers(type, block, unit);
    const __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);
    const __m128i eighths[] = {low, _mm_srli_si128(low, VECTOR), high,
                               _mm_srli_si128(high, VECTOR)};
    for (int i = 0; i < UNIT / VECTOR; i++) {
        const __m256 q = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eighths[i]));
        const __m256 x =
            has_minimum(type) ? _mm256_fmadd_ps(q, scale, minimum) : _mm256_mul_ps(q, scale);
        _mm256_storeu_ps(out + i * VECTOR, x);
    }
}

/* Returns the element with the largest magnitude among UNIT elements. If several elements have this
 * magnitude, returns the first of them. The bits of magnitudes, compared as integers, have the
 * order of the magnitudes, and NaN comes last. */
static inline float largest_of(const float *x)
{
    enum { PARTS = UNIT / VECTOR };
    __m256i magnitude[PARTS], most = _mm256_setzero_si256();
    for (int i = 0; i < PARTS; i++) {
        const __m256i bits = _mm256_loadu_si256((const __m256i *)(x + i * VECTOR));
        magnitude[i] = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
        most = _mm256_max_epi32(most, magnitude[i]);
    }
    most = _mm256_max_epi32(most, _mm256_permute2x128_si256(most, most, 1));
    most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, _MM_SHUFFLE(1, 0, 3, 2)));
    most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, _MM_SHUFFLE(2, 3, 0, 1)));
    uint32_t is_largest = 0;
    for (int i = 0; i < PARTS; i++) {
        const __m256 equal = _mm256_castsi256_ps(_mm256_cmpeq_epi32(magnitude[i], most));
        is_largest |= (uint32_t)_mm256_movemask_ps(equal) << i * VECTOR;
    }
    return x[__builtin_ctz(is_largest)];
}

/* Returns the integers of VECTOR elements. */
static inline __attribute__((always_inline)) __m256i integers_from(const enum type type,
                                                                   const float *x, float factor)
{
    const float zero = (float)zero_integer(type);
    /* If the factor is 0, nothing is multiplied, because infinity * 0 would be NaN. */
    const __m256 product = factor == 0.0f
                               ? _mm256_setzero_ps()
                               : _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(factor));
    const __m256i q = _mm256_cvttps_epi32(_mm256_add_ps(product, _mm256_set1_ps(zero + 0.5f)));
    return _mm256_min_epi32(q, _mm256_set1_epi32(2 * zero_integer(type) - 1));
}

/* Returns the integers of 16 elements as bytes. */
static inline __attribute__((always_inline)) __m128i bytes_from(const enum type type,
                                                                const float *x, float factor)
{
    const __m256i a = integers_from(type, x, factor);
    const __m256i b = integers_from(type, x + VECTOR, factor);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* Returns bit 4 of byte i as bit i. */
static inline uint32_t fifth_bits(__m128i bytes)
{
    return (uint32_t)_mm_movemask_epi8(_mm_slli_epi16(bytes, 3));
}

static inline __attribute__((always_inline)) void narrow_block(const enum type type, const float *x,
                                                               char *block)
{
    const float scale = largest_of(x) / (float)-zero_integer(type), factor = factor_of(scale);
    const __m128i low = bytes_from(type, x, factor);
    const __m128i high = bytes_from(type, x + UNIT / 2, factor);
    const __m128i four = _mm_set1_epi8(15);
    const __m128i packed =
        _mm_or_si128(_mm_and_si128(low, four), _mm_slli_epi16(_mm_and_si128(high, four), 4));
    const float plain = isnan(scale) ? NAN : scale;
    const __m128i half = _mm256_cvtps_ph(_mm256_set1_ps(plain), _MM_FROUND_TO_NEAREST_INT);
    const uint16_t bits = (uint16_t)_mm_extract_epi16(half, 0);
    memcpy(block, &bits, sizeof bits);
    if (has_fifth_bits(type)) {
        const uint32_t fifth = fifth_bits(low) | fifth_bits(high) << UNIT / 2;
        memcpy(block + fifth_bits_at(type), &fifth, sizeof fifth);
    }
    _mm_storeu_si128((__m128i *)(block + integers_at(type, 0)), packed);
}

/* Defines attnkit_avx2_widen_blocks, attnkit_avx2_unpack and attnkit_avx2_narrow_blocks. */
#include "kernels/vectors/blocks.h"
