/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions for the types whose blocks have less than a byte for an element. Rows of all these
 * types are converted to binary32. Rows of the types without a minimum are also converted to
 * TYPE_Q8_0. Rows of TYPE_Q4_0 and TYPE_Q5_0 are also made from binary32. A step of the conversion
 * to binary32 takes some 17 instructions for 32 elements. A shift, a table or masks of bits turn
 * the integers of the elements into signed bytes in a ymm. The bytes then become two zmm of
 * binary32. The conversions of integers to binary32 and the stores of these two zmm limit the
 * speed. Two zmm and the constants are live at a time. The conversion to TYPE_Q8_0 stores the
 * signed bytes as they are, in some 9 instructions.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/blocks.h"

typedef floats unit_scale;

static inline floats half_everywhere(const char *from)
{
    short half;
    memcpy(&half, from, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
}

static inline __mmask32 mask_at(const char *from)
{
    uint32_t bits;
    memcpy(&bits, from, sizeof bits);
    return bits;
}

/* Subtracts 16 from the bytes whose bit is clear. */
static inline __m256i subtract_16_if_clear(__m256i q, const char *bits)
{
    return _mm256_mask_sub_epi8(q, ~mask_at(bits), q, _mm256_set1_epi8(16));
}

static inline __m256i add_16_if_set(__m256i q, const char *bits)
{
    return _mm256_mask_add_epi8(q, mask_at(bits), q, _mm256_set1_epi8(16));
}

/* Returns a byte for each bit: 1 if the bit is set, else -1. */
static inline __m256i one_if_set(const char *bits)
{
    return _mm256_mask_blend_epi8(mask_at(bits), _mm256_set1_epi8(-1), _mm256_set1_epi8(1));
}

#include "kernels/vectors/packed_integers.h"

static inline __attribute__((always_inline)) void widen_unit(const enum type type,
                                                             const char *block, int64_t unit,
                                                             floats scale, floats minimum,
                                                             float *out)
{
    const __m256i bytes = integers(type, block, unit);
    const __m128i halves[] = {_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)};
    for (int i = 0; i < UNIT / VECTOR; i++) {
        const __m512 q = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(halves[i]));
        const __m512 x =
            has_minimum(type) ? _mm512_fmadd_ps(q, scale, minimum) : _mm512_mul_ps(q, scale);
        _mm512_storeu_ps(out + i * VECTOR, x);
    }
}

/* Returns the element with the largest magnitude. If several elements have this magnitude, returns
 * the first of them. The bits of magnitudes, compared as integers, have the order of the
 * magnitudes, and NaN comes last. */
static inline float largest_of(const float *x)
{
    __m512i magnitude[UNIT / VECTOR];
    for (int i = 0; i < UNIT / VECTOR; i++)
        magnitude[i] =
            _mm512_and_si512(_mm512_loadu_si512(x + i * VECTOR), _mm512_set1_epi32(0x7fffffff));
    const int most = _mm512_reduce_max_epi32(_mm512_max_epi32(magnitude[0], magnitude[1]));
    const uint32_t low = _mm512_cmpeq_epi32_mask(magnitude[0], _mm512_set1_epi32(most));
    const uint32_t high = _mm512_cmpeq_epi32_mask(magnitude[1], _mm512_set1_epi32(most));
    return x[__builtin_ctz(low | high << VECTOR)];
}

/* Returns the integers of VECTOR elements. */
static inline __attribute__((always_inline)) __m512i integers_from(const enum type type,
                                                                   const float *x, float factor)
{
    const float zero = (float)zero_integer(type);
    /* If the factor is 0, nothing is multiplied, because infinity * 0 would be NaN. */
    const __mmask16 is_told = factor == 0.0f ? 0 : 0xffff;
    const __m512 product = _mm512_maskz_mul_ps(is_told, _mm512_loadu_ps(x), _mm512_set1_ps(factor));
    const __m512i q = _mm512_cvttps_epi32(_mm512_add_ps(product, _mm512_set1_ps(zero + 0.5f)));
    return _mm512_min_epi32(q, _mm512_set1_epi32(2 * zero_integer(type) - 1));
}

static inline __attribute__((always_inline)) void narrow_block(const enum type type, const float *x,
                                                               char *block)
{
    const float scale = largest_of(x) / (float)-zero_integer(type), factor = factor_of(scale);
    const __m512i low = integers_from(type, x, factor);
    const __m512i high = integers_from(type, x + VECTOR, factor);
    const __m512i four = _mm512_set1_epi32(15);
    const __m512i packed = _mm512_or_si512(_mm512_and_si512(low, four),
                                           _mm512_slli_epi32(_mm512_and_si512(high, four), 4));
    const float plain = isnan(scale) ? NAN : scale;
    const __m256i half = _mm512_cvtps_ph(_mm512_set1_ps(plain), _MM_FROUND_TO_NEAREST_INT);
    const uint16_t bits = (uint16_t)_mm256_extract_epi16(half, 0);
    memcpy(block, &bits, sizeof bits);
    if (has_fifth_bits(type)) {
        const __m512i fifth = _mm512_set1_epi32(16);
        const uint32_t mask = (uint32_t)_mm512_test_epi32_mask(low, fifth) |
                              (uint32_t)_mm512_test_epi32_mask(high, fifth) << VECTOR;
        memcpy(block + fifth_bits_at(type), &mask, sizeof mask);
    }
    _mm_storeu_si128((__m128i *)(block + integers_at(type, 0)), _mm512_cvtepi32_epi8(packed));
}

/* Defines attnkit_avx512_widen_blocks, attnkit_avx512_unpack and attnkit_avx512_narrow_blocks. */
#include "kernels/vectors/blocks.h"
