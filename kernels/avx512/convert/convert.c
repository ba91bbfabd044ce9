/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts rows of the 16-bit types, of TYPE_I8 and of TYPE_Q8_0 to binary32 and back, by whole
 * vectors. Rows of TYPE_F8_E4M3 and tiles of K are converted only to binary32. Loads and stores
 * limit the speed, except in narrowing to bytes, which takes a division for each element. Types
 * with scales have functions of their own, so that the functions for other types need not save
 * registers.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/blocks.h"

static inline float float_from_f16(uint16_t half)
{
    return _mm512_cvtss_f32(_mm512_cvtph_ps(_mm256_set1_epi16((short)half)));
}

static inline uint16_t f16_from_float(float x)
{
    return (uint16_t)_mm256_extract_epi16(
        _mm512_cvtps_ph(_mm512_set1_ps(x), _MM_FROUND_TO_NEAREST_INT), 0);
}

/* Converts bytes of TYPE_F8_E4M3 to binary16 numbers that are 2^-8 times as large. The biases of
 * the exponents differ by 8, and both types have subnormal numbers. The NaN of E4M3 has all bits
 * set except the sign. The sum below carries into bit 14 only for this NaN. The carry sets bit 14
 * of the result, which makes the result a NaN of binary16. */
static inline __m512i f16_from_e4m3(__m256i bytes)
{
    enum { A_OR_NOT_B_WHERE_C = 0x72 }; /* a where c is 0, ~b where c is 1 */
    const __m512i wide = _mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7); /* bit 14: the sign */
    const __m512i ones = _mm512_or_si512(wide, _mm512_set1_epi16((short)0xc000));
    const __m512i carried = _mm512_add_epi16(ones, _mm512_set1_epi16(0x80));
    return _mm512_ternarylogic_epi32(wide, carried, _mm512_set1_epi16(0x4000), A_OR_NOT_B_WHERE_C);
}

static inline __m512 product(__m256i halves, float scale, const bool apart)
{
    const __m512 x = _mm512_cvtph_ps(halves);
    const __m512 whole = apart ? _mm512_mul_ps(x, _mm512_set1_ps(256.0f)) : x;
    return _mm512_mul_ps(whole, _mm512_set1_ps(scale));
}

/* Widens n elements. If `apart`, the factor 2^8 is a multiplication of its own; else `scale`
 * includes this factor. */
static inline __attribute__((always_inline)) void
widen_e4m3(const char *row, float scale, const bool apart, int64_t n, float *out)
{
    enum { BOTH = 2 * VECTOR };
    int64_t i = 0;
    for (; i + BOTH <= n; i += BOTH) {
        const __m512i half = f16_from_e4m3(_mm256_loadu_si256((const __m256i *)(row + i)));
        const __m256i high = _mm512_extracti64x4_epi64(half, 1);
        _mm512_storeu_ps(out + i, product(_mm512_castsi512_si256(half), scale, apart));
        _mm512_storeu_ps(out + i + VECTOR, product(high, scale, apart));
    }
    for (; i < n; i += VECTOR) {
        const __m128i bytes = _mm_maskz_loadu_epi8(first_mask(n - i), row + i);
        const __m512i half = f16_from_e4m3(_mm256_castsi128_si256(bytes));
        store_first(out + i, n - i, product(_mm512_castsi512_si256(half), scale, apart));
    }
}

/* Returns max |x| / 127. The bits of magnitudes, compared as integers, have the order of the
 * magnitudes, and NaN comes last. */
static float scale_of(const float *x, int64_t n)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i most = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += VECTOR) {
        const __m512i bits = _mm512_castps_si512(load_first(x + i, n - i));
        most = _mm512_max_epi32(most, _mm512_and_si512(bits, magnitude));
    }
    const __m128i largest = _mm_cvtsi32_si128(_mm512_reduce_max_epi32(most));
    return _mm_cvtss_f32(_mm_castsi128_ps(largest)) / 127.0f;
}

static inline __m256i bf16_from_f32(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), is_odd);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i half = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(half, 16));
}

/* Rounds each element to the nearest integer, in -127 .. 127. */
static inline __m256i bytes_from_f32(__m512 x)
{
    const __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x));
    return _mm256_castsi128_si256(_mm_max_epi8(bytes, _mm_set1_epi8(-127)));
}

static inline __m256i narrowed(const enum type type, __m512 x, float scale)
{
    switch (type) {
    case TYPE_F16:
        return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    case TYPE_BF16:
        return bf16_from_f32(x);
    default:
        return bytes_from_f32(_mm512_div_ps(x, _mm512_set1_ps(scale)));
    }
}

/* Stores the first n of `elements` in a row, from element `at` on, and writes no byte after them.
 */
static inline __attribute__((always_inline)) void
store_elements(const enum type type, void *row, int64_t at, int64_t n, __m256i elements)
{
    char *const to = (char *)row + bytes_of(type, at);
    if (type == TYPE_I8)
        _mm_mask_storeu_epi8(to, first_mask(n), _mm256_castsi256_si128(elements));
    else
        _mm256_mask_storeu_epi16(to, first_mask(n), elements);
}

#include "kernels/vectors/widen_tile.h"
/* Defines attnkit_avx512_widen, attnkit_avx512_widen_tile and attnkit_avx512_narrow. */
#include "kernels/vectors/convert.h"
