/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers for AVX-512 with and without VNNI: the operations that panel.h and
 * panel_pairs.h of kernels/vectors/integers need, except dot. A file includes this header, then
 * defines dot, and then includes panel_pairs.h.
 */
#ifndef ATTNKIT_AVX512_INTEGER_PANEL_H
#define ATTNKIT_AVX512_INTEGER_PANEL_H

#include "kernels/avx512/avx512.h"

enum { MOST_HEIGHT = 8 };

typedef __m512i sums_v;
typedef __m512i lane_words;
typedef __m512i word;

static inline __m512i no_sums(void)
{
    return _mm512_setzero_si512();
}

static inline __m512 sums_as_floats(__m512i sum)
{
    return _mm512_cvtepi32_ps(sum);
}

static inline __m512i load_words(const float *from)
{
    return _mm512_load_si512(from);
}

static inline __m512i load_word(const float *from)
{
    return _mm512_castps_si512(_mm512_set1_ps(*from));
}

static inline float half_as_float(uint16_t bits)
{
    const __m256i half = _mm256_castsi128_si256(_mm_cvtsi32_si128(bits));
    return _mm512_cvtss_f32(_mm512_cvtph_ps(half));
}

/* Elements 1 and 2 of each four swap places, as in round_row. */
static inline void widen_block(const char *bytes, float *words)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)bytes);
    _mm512_storeu_si512(words, _mm512_cvtepi8_epi16(_mm256_shuffle_epi8(x, order)));
}

static inline void pair_block(const char *one, const char *two, float *words)
{
    for (int i = 0; i < Q8_BLOCK; i += VECTOR) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(one + i));
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(two + i));
        const __m256i pairs = _mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b));
        _mm512_storeu_si512(words + i, _mm512_cvtepi8_epi16(pairs));
    }
}

static inline __m512 larger_bits(__m512 a, __m512 b)
{
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

static inline void store_pair(float *to, __m512 low, __m512 high)
{
    const __m512i upper = _mm512_slli_epi32(_mm512_cvtps_epi32(high), 16);
    _mm512_store_si512(to, _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_cvtps_epi32(low), upper));
}

/* A tile of scores is smaller than a tile of columns, because the tile of scores holds a score
 * beside each integer sum. A tile of columns holds only integer sums. */
static inline int score_height(int vectors)
{
    return vectors == 4 ? 3 : 4;
}

static inline int column_height(int vectors)
{
    return vectors == 4 ? 4 : 8;
}

#endif
