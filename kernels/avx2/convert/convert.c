/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts rows of 16-bit types, TYPE_I8 and TYPE_Q8_0 to binary32 and back, 8 elements at a time.
 * Rows of TYPE_F8_E4M3 are converted only to binary32, 16 elements at a time. Tiles of K are
 * converted to binary32 by kernels/vectors/widen_tile.h. Loads and stores limit the speed, except
 * in narrowing to bytes, which takes a division for each element. Types with scales have functions
 * of their own, so that the functions for other types need not save registers on the stack.
 */
#include "kernels/avx2/avx2.h"
#include "kernels/blocks.h"

static inline float float_from_f16(uint16_t half)
{
    return _cvtsh_ss(half);
}

static inline uint16_t f16_from_float(float x)
{
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

/* Converts bytes of TYPE_F8_E4M3 to binary16 numbers that are 2^-8 times as large. The biases of
 * the exponents differ by 8, and both types have subnormal numbers. In a NaN of E4M3 all bits are
 * set, except that the sign may be clear. The sum below carries into bit 14 only for a NaN. The
 * carry sets bit 14 of the result, which makes the result a NaN of binary16. */
static inline __m256i f16_from_e4m3(__m128i bytes)
{
    /* The sign is in bits 14 and 15. */
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    const __m256i ones = _mm256_or_si256(wide, _mm256_set1_epi16((short)0xc000));
    const __m256i carried = _mm256_add_epi16(ones, _mm256_set1_epi16(0x80));
    const __m256i is_nan = _mm256_andnot_si256(carried, _mm256_set1_epi16(0x4000));
    return _mm256_or_si256(_mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff)), is_nan);
}

static inline __m256 product(__m128i halves, float scale, const bool apart)
{
    const __m256 x = _mm256_cvtph_ps(halves);
    const __m256 whole = apart ? _mm256_mul_ps(x, _mm256_set1_ps(256.0f)) : x;
    return _mm256_mul_ps(whole, _mm256_set1_ps(scale));
}

/* Widens n elements. If `apart`, the factor 2^8 is a multiplication of its own; else `scale`
 * includes this factor. */
static inline __attribute__((always_inline)) void
widen_e4m3(const char *row, float scale, const bool apart, int64_t n, float *out)
{
    enum { BOTH = 2 * VECTOR };
    int64_t i = 0;
    for (; i + BOTH <= n; i += BOTH) {
        const __m256i half = f16_from_e4m3(_mm_loadu_si128((const __m128i *)(row + i)));
        const __m128i high = _mm256_extracti128_si256(half, 1);
        _mm256_storeu_ps(out + i, product(_mm256_castsi256_si128(half), scale, apart));
        _mm256_storeu_ps(out + i + VECTOR, product(high, scale, apart));
    }
    for (; i < n; i += VECTOR) {
        __m128i bytes = _mm_setzero_si128();
        memcpy(&bytes, row + i, (size_t)(n - i < VECTOR ? n - i : VECTOR));
        const __m256i half = f16_from_e4m3(bytes);
        store_first(out + i, n - i, product(_mm256_castsi256_si128(half), scale, apart));
    }
}

/* Returns max |x| / 127. The bits of magnitudes, compared as integers, have the order of the
 * magnitudes, and NaN comes last. */
static float scale_of(const float *x, int64_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i += VECTOR) {
        const __m256i bits = _mm256_castps_si256(load_first(x + i, n - i));
        most = _mm256_max_epi32(most, _mm256_and_si256(bits, magnitude));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtss_f32(_mm_castsi128_ps(m)) / 127.0f;
}

static inline __m128i bf16_from_f32(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), is_odd);
    const __m256i quiet_nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i half = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet_nan, is_nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Rounds each element to the nearest integer, in -127 .. 127. */
static inline __m128i bytes_from_f32(__m256 x)
{
    const __m256i i32 = _mm256_cvtps_epi32(x);
    const __m128i i16 =
        _mm_packs_epi32(_mm256_castsi256_si128(i32), _mm256_extracti128_si256(i32, 1));
    return _mm_max_epi8(_mm_packs_epi16(i16, i16), _mm_set1_epi8(-127));
}

static inline __m128i narrowed(const enum type type, __m256 x, float scale)
{
    switch (type) {
    case TYPE_F16:
        return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    case TYPE_BF16:
        return bf16_from_f32(x);
    default:
        return bytes_from_f32(_mm256_div_ps(x, _mm256_set1_ps(scale)));
    }
}

/* Stores the first n of `elements` in a row, from element `at` on, and writes no byte after them.
 */
static inline __attribute__((always_inline)) void
store_elements(const enum type type, void *row, int64_t at, int64_t n, __m128i elements)
{
    char *const to = (char *)row + bytes_of(type, at);
    if (n < VECTOR)
        memcpy(to, &elements, (size_t)bytes_of(type, n));
    else if (type == TYPE_I8)
        _mm_storel_epi64((__m128i *)to, elements);
    else
        _mm_storeu_si128((__m128i *)to, elements);
}

#include "kernels/vectors/widen_tile.h"
/* Defines attnkit_avx2_widen, attnkit_avx2_widen_tile and attnkit_avx2_narrow. */
#include "kernels/vectors/convert.h"
