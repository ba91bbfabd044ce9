/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers, by VPMADDWD and an addition of AVX2. The loops are in
 * kernels/vectors/integers/panel.h.
 *
 * A register tile has 2 keys or columns x 3 vectors: 6 sums, 6 scores of keys, 3 vectors of words
 * and a product take all 16 ymm. A word of 6 sums takes 6 VPMADDWD, 6 additions and 5 loads.
 */
#include "kernels/avx2/avx2.h"

enum { MOST_HEIGHT = 8 };

typedef __m256i sums_v;
typedef __m256i lane_words;
typedef __m256i word;

static inline __m256i no_sums(void)
{
    return _mm256_setzero_si256();
}

static inline __m256 sums_as_floats(__m256i sum)
{
    return _mm256_cvtepi32_ps(sum);
}

static inline __m256i load_words(const float *from)
{
    return _mm256_load_si256((const __m256i *)(const void *)from);
}

static inline __m256i load_word(const float *from)
{
    return _mm256_castps_si256(_mm256_broadcast_ss(from));
}

static inline __m256i dot(__m256i sum, __m256i x, __m256i w)
{
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
    __asm__("" : "+x"(sum)); /* otherwise gcc adds products first, and spills them */
    return sum;
}

static inline float half_as_float(uint16_t bits)
{
    return _cvtsh_ss(bits);
}

/* Elements 1 and 2 of each four swap places, as in round_row. */
static inline void widen_block(const char *bytes, float *words)
{
    const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    for (int i = 0; i < Q8_BLOCK; i += 2 * VECTOR) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(bytes + i));
        _mm256_storeu_si256((__m256i *)(void *)(words + i / 2),
                            _mm256_cvtepi8_epi16(_mm_shuffle_epi8(x, order)));
    }
}

static inline void pair_block(const char *one, const char *two, float *words)
{
    for (int i = 0; i < Q8_BLOCK; i += 2 * VECTOR) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(one + i));
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(two + i));
        _mm256_storeu_si256((__m256i *)(void *)(words + i),
                            _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)));
        _mm256_storeu_si256((__m256i *)(void *)(words + i + VECTOR),
                            _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b)));
    }
}

static inline __m256 larger_bits(__m256 a, __m256 b)
{
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}

static inline void store_pair(float *to, __m256 low, __m256 high)
{
    const __m256i upper = _mm256_slli_epi32(_mm256_cvtps_epi32(high), 16);
    _mm256_store_si256((__m256i *)(void *)to,
                       _mm256_blend_epi16(_mm256_cvtps_epi32(low), upper, 0xaa));
}

/* A tile of scores has its scores in registers beside its sums, a tile of columns does not. */
static inline int score_height(int vectors)
{
    return vectors == 3 ? 3 : 4;
}

static inline int column_height(int vectors)
{
    return vectors == 1 ? 8 : 4;
}

#include "kernels/vectors/integers/panel.h"

extern const struct integer_panel_kernels attnkit_avx2_integer_panel;
const struct integer_panel_kernels attnkit_avx2_integer_panel = {
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .scores = scores,
    .weighted_v = weighted_v,
};
