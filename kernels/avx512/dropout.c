/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout: which weights are kept, by the random words of Philox, and the product of weights and
 * their factors. prefill.c and decode.c call the one for each query row and block, prefill.c the
 * other for each panel. Bound by the ports of vectors, 6 instructions for a round of 8 counters.
 *
 * A word is the low half of 64 bits, where a product takes it from and leaves it whatever the upper
 * half is, so that none is ever moved but by the shift that brings the high half of a product down.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/philox.h"

enum {
    COUNTERS = VECTOR / 2, /* in a vector */
    TOGETHER = 4,          /* vectors, to hide the latency of products: all there are */
};

static inline __m512i low_words(uint32_t x)
{
    return _mm512_set1_epi64((int64_t)x);
}

static inline __m512i xor_3(__m512i a, __m512i b, __m512i c)
{
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

static inline __m512i high(__m512i product)
{
    return _mm512_srli_epi64(product, 32);
}

/* The words of some counters, each vector by itself. */
struct words {
    __m512i c0, c1, c2, c3;
};

/* c0: the first words, to be exchanged for all four. */
static inline void begin(const struct philox_start *start, struct words *w)
{
    const __m512i product_0 = _mm512_mul_epu32(w->c0, low_words(PHILOX_0));
    const __m512i c2 = _mm512_xor_si512(high(product_0), low_words(start->first_2));
    const __m512i product_1 = _mm512_mul_epu32(c2, low_words(PHILOX_1));
    w->c0 = _mm512_xor_si512(high(product_1), low_words(start->second_0));
    w->c1 = product_1;
    w->c2 = _mm512_xor_si512(product_0, low_words(start->second_2));
    w->c3 = low_words(start->second_3);
}

static inline void advance(struct words *w, __m512i key_0, __m512i key_1)
{
    const __m512i product_0 = _mm512_mul_epu32(w->c0, low_words(PHILOX_0));
    const __m512i product_1 = _mm512_mul_epu32(w->c2, low_words(PHILOX_1));
    w->c0 = xor_3(high(product_1), w->c1, key_0);
    w->c1 = product_1;
    w->c2 = xor_3(high(product_0), w->c3, key_1);
    w->c3 = product_0;
}

/* The low halves of a and b in turns. */
static inline __m512i pair(__m512i a, __m512i b)
{
    return _mm512_mask_mov_epi32(a, 0xaaaa, _mm512_slli_epi64(b, 32));
}

/* The factors for the keys of a vector of counters. */
static inline void store(const struct words *w, const struct keep_line *what, float *line)
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

void attnkit_avx512_keep_line(const struct keep_line *what, float *line)
{
    const struct philox_start start = philox_start(what);
    /* So that unpacking has all counters of its low halves before those of the high ones. */
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    struct words w[TOGETHER];
    for (int i = 0; i < TOGETHER; i++) {
        const uint32_t first = start.word_0 + (uint32_t)(i * COUNTERS);
        w[i].c0 = _mm512_add_epi64(low_words(first), order);
        begin(&start, &w[i]);
    }
    __m512i key_0 = low_words(start.key_0), key_1 = low_words(start.key_1);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        for (int i = 0; i < TOGETHER; i++)
            advance(&w[i], key_0, key_1);
        key_0 = _mm512_add_epi32(key_0, low_words(PHILOX_KEY_0));
        key_1 = _mm512_add_epi32(key_1, low_words(PHILOX_KEY_1));
    }
    for (int i = 0; i < TOGETHER; i++)
        store(&w[i], what, line + i * COUNTERS * PHILOX_WORDS);
}
