/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout: the factors of weights, from the random words of Philox. mask.c of kernels/attention
 * calls keep_line for each query row and block with dropout. The number of instructions limits the
 * speed: a round of 4 counters takes 8 instructions.
 *
 * A word of Philox is the low half of a 64-bit lane. The multiply instruction reads only low
 * halves, so the upper halves need not be cleared. The only moves of words in a round are the
 * shifts that bring the high halves of products down.
 */
#include "kernels/avx2/avx2.h"
#include "kernels/philox.h"

enum {
    COUNTERS = VECTOR / 2, /* counters in a vector */
    TOGETHER = 4,          /* vectors that are computed together, to hide the latency of products */
};

typedef __m256i counters;

static inline counters low_words(uint32_t x)
{
    return _mm256_set1_epi64x((int64_t)x);
}

static inline counters xor_3(counters a, counters b, counters c)
{
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}

/* Returns the products of the low halves. */
static inline counters products(counters a, counters b)
{
    return _mm256_mul_epu32(a, b);
}

static inline counters next_key(counters key, uint32_t step)
{
    return _mm256_add_epi32(key, low_words(step));
}

/* Returns word 0 of each of COUNTERS counters: the numbers from `first` on, in the order first,
 * first + 2, first + 1, first + 3. With this order, the unpack instructions of store_factors put
 * the words in the order of the keys. */
static inline counters counters_from(uint32_t first)
{
    return _mm256_add_epi64(low_words(first), _mm256_setr_epi64x(0, 2, 1, 3));
}

static inline counters high(counters product)
{
    return _mm256_srli_epi64(product, 32);
}

/* The four words of some counters, a vector for each word. */
struct words {
    counters c0, c1, c2, c3;
};

/* Returns the low halves of a and b, alternately. */
static inline __m256i pair(__m256i a, __m256i b)
{
    return _mm256_blend_epi32(a, _mm256_slli_epi64(b, 32), 0xaa);
}

/* Stores the factors for the keys of a vector of counters. The comparison is signed, so the sign
 * bits of both sides are flipped before it. */
static inline void store_factors(const struct words *w, const struct keep_line *what, float *line)
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

/* Defines attnkit_avx2_keep_line. */
#include "kernels/vectors/dropout.h"
