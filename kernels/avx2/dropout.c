/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout: which weights are kept, by the random words of Philox, and the product of weights and
 * their factors. prefill.c and decode.c call the one for each query row and block, prefill.c the
 * other for each panel. Bound by the issue of instructions, 8 for a round of 4 counters.
 *
 * A word is the low half of 64 bits, where a product takes it from and leaves it whatever the upper
 * half is, so that none is ever moved but by the shift that brings the high half of a product down.
 */
#include "kernels/avx2/avx2.h"
#include "kernels/philox.h"

enum {
    COUNTERS = VECTOR / 2, /* in a vector */
    TOGETHER = 4,          /* vectors, to hide the latency of products */
};

static inline __m256i low_words(uint32_t x)
{
    return _mm256_set1_epi64x((int64_t)x);
}

static inline __m256i xor_3(__m256i a, __m256i b, __m256i c)
{
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}

static inline __m256i high(__m256i product)
{
    return _mm256_srli_epi64(product, 32);
}

/* The words of some counters, each vector by itself. */
struct words {
    __m256i c0, c1, c2, c3;
};

/* c0: the first words, to be exchanged for all four. */
static inline void begin(const struct philox_start *start, struct words *w)
{
    const __m256i product_0 = _mm256_mul_epu32(w->c0, low_words(PHILOX_0));
    const __m256i c2 = _mm256_xor_si256(high(product_0), low_words(start->first_2));
    const __m256i product_1 = _mm256_mul_epu32(c2, low_words(PHILOX_1));
    w->c0 = _mm256_xor_si256(high(product_1), low_words(start->second_0));
    w->c1 = product_1;
    w->c2 = _mm256_xor_si256(product_0, low_words(start->second_2));
    w->c3 = low_words(start->second_3);
}

static inline void advance(struct words *w, __m256i key_0, __m256i key_1)
{
    const __m256i product_0 = _mm256_mul_epu32(w->c0, low_words(PHILOX_0));
    const __m256i product_1 = _mm256_mul_epu32(w->c2, low_words(PHILOX_1));
    w->c0 = xor_3(high(product_1), w->c1, key_0);
    w->c1 = product_1;
    w->c2 = xor_3(high(product_0), w->c3, key_1);
    w->c3 = product_0;
}

/* The low halves of a and b in turns. */
static inline __m256i pair(__m256i a, __m256i b)
{
    return _mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xaa);
}

/* The factors for the keys of a vector of counters. Words are compared as numbers with a sign,
 * which takes turning that of both. */
static inline void store(const struct words *w, const struct keep_line *what, float *line)
{
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);
    const __m256i most_dropped =
        _mm256_xor_si256(_mm256_set1_epi32((int)(uint32_t)(what->dropped - 1)), sign);
    const __m256i low = pair(w->c0, w->c1), upper = pair(w->c2, w->c3);
    const __m256i words[2] = {_mm256_unpacklo_epi64(low, upper), _mm256_unpackhi_epi64(low, upper)};
    for (int i = 0; i < 2; i++) {
        const __m256i kept = _mm256_cmpgt_epi32(_mm256_xor_si256(words[i], sign), most_dropped);
        _mm256_storeu_ps(line + i * VECTOR,
                         _mm256_and_ps(_mm256_castsi256_ps(kept), _mm256_set1_ps(what->factor)));
    }
}

void attnkit_avx2_keep_line(const struct keep_line *what, float *line)
{
    const struct philox_start start = philox_start(what);
    /* So that unpacking has all counters of its low halves before those of the high ones. */
    const __m256i order = _mm256_setr_epi64x(0, 2, 1, 3);
    for (int i = 0; i < PHILOX_COUNTERS; i += TOGETHER * COUNTERS) {
        struct words w[TOGETHER];
        for (int j = 0; j < TOGETHER; j++) {
            const uint32_t first = start.word_0 + (uint32_t)(i + j * COUNTERS);
            w[j].c0 = _mm256_add_epi64(low_words(first), order);
            begin(&start, &w[j]);
        }
        __m256i key_0 = low_words(start.key_0), key_1 = low_words(start.key_1);
        for (int round = 0; round < PHILOX_ROUNDS; round++) {
            for (int j = 0; j < TOGETHER; j++)
                advance(&w[j], key_0, key_1);
            key_0 = _mm256_add_epi32(key_0, low_words(PHILOX_KEY_0));
            key_1 = _mm256_add_epi32(key_1, low_words(PHILOX_KEY_1));
        }
        for (int j = 0; j < TOGETHER; j++)
            store(&w[j], what, line + (i + j * COUNTERS) * PHILOX_WORDS);
    }
}
