/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout: the factors of weights, from the random words of Philox. mask.c of kernels/attention
 * calls keep_line for each query row and block with dropout. The vector ports limit the speed: a
 * round of 8 counters takes 6 instructions.
 *
 * A word of Philox is the low half of a 64-bit lane. The multiplication reads only the low halves,
 * so the upper halves need not be cleared. The only moves of words in a round are the shifts that
 * bring the high halves of products down.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/philox.h"

enum {
    COUNTERS = VECTOR / 2, /* counters in a vector */
    TOGETHER = 4,          /* vectors that are computed together, to hide the latency of products */
};

typedef __m512i counters;

static inline counters low_words(uint32_t x)
{
    return _mm512_set1_epi64((int64_t)x);
}

static inline counters xor_3(counters a, counters b, counters c)
{
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

/* Returns the products of the low halves. */
static inline counters products(counters a, counters b)
{
    return _mm512_mul_epu32(a, b);
}

static inline counters next_key(counters key, uint32_t step)
{
    return _mm512_add_epi32(key, low_words(step));
}

/* Returns word 0 of each of COUNTERS counters: the numbers from `first` on. With their order in the
 * vector, the unpack instructions of store_factors put the words in the order of the keys. */
static inline counters counters_from(uint32_t first)
{
    return _mm512_add_epi64(low_words(first), _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline counters high(counters product)
{
    return _mm512_srli_epi64(product, 32);
}

/* The four words of some counters, a vector for each word. */
struct words {
    counters c0, c1, c2, c3;
};

/* Returns the low halves of a and b, alternately. */
static inline __m512i pair(__m512i a, __m512i b)
{
    return _mm512_mask_mov_epi32(a, 0xaaaa, _mm512_slli_epi64(b, 32));
}

/* Stores the factors for the keys of a vector of counters. */
static inline void store_factors(const struct words *w, const struct keep_line *what, float *line)
{
    const __m512i most_dropped = _mm512_set1_epi32((int)(uint32_t)(what->dropped - 1));
    const __m512i low = pair(w->c0, w->c1), upper = pair(w->c2, w->c3);
    const __m512i words[2] = {_mm512_unpacklo_epi64(low, upper), _mm512_unpackhi_epi64(low, upper)};
    for (int i = 0; i < 2; i++) {
        const __mmask16 kept = _mm512_cmpgt_epu32_mask(words[i], most_dropped);
        _mm512_storeu_ps(line + i * VECTOR,
                         _mm512_maskz_mov_ps(kept, _mm512_set1_ps(what->factor)));
    }
}

/* Defines attnkit_avx512_keep_line. */
#include "kernels/vectors/dropout.h"
