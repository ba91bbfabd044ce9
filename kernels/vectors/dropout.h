/* SPDX-License-Identifier: Apache-2.0
 *
 * The rounds of Philox for AVX2 and AVX-512. A word is the low half of 64 bits. The multiply
 * instruction reads words from low halves and ignores the upper halves. The low half of the product
 * is a word again. The dropout.c of each of the two instruction sets defines store_factors and the
 * operations on counters, and then includes this file.
 */
#ifndef ATTNKIT_VECTORS_DROPOUT_H
#define ATTNKIT_VECTORS_DROPOUT_H

#include "kernels/philox.h"

/* Computes the four words that each counter has after the first two rounds of Philox. At the call,
 * c0 holds word 0 of each counter. */
static inline void begin_words(const struct philox_start *start, struct words *w)
{
    const counters product_0 = products(w->c0, low_words(PHILOX_0));
    const counters c2 = high(product_0) ^ low_words(start->first_2);
    const counters product_1 = products(c2, low_words(PHILOX_1));
    w->c0 = high(product_1) ^ low_words(start->second_0);
    w->c1 = product_1;
    w->c2 = product_0 ^ low_words(start->second_2);
    w->c3 = low_words(start->second_3);
}

static inline void advance_words(struct words *w, counters key_0, counters key_1)
{
    const counters product_0 = products(w->c0, low_words(PHILOX_0));
    const counters product_1 = products(w->c2, low_words(PHILOX_1));
    w->c0 = xor_3(high(product_1), w->c1, key_0);
    w->c1 = product_1;
    w->c2 = xor_3(high(product_0), w->c3, key_1);
    w->c3 = product_0;
}

void KERNEL(keep_line)(const struct keep_line *what, float *line)
{
    const struct philox_start start = philox_start(what);
    for (int i = 0; i < PHILOX_COUNTERS; i += TOGETHER * COUNTERS) {
        struct words w[TOGETHER];
        for (int j = 0; j < TOGETHER; j++) {
            const uint32_t first = start.word_0 + (uint32_t)(i + j * COUNTERS);
            w[j].c0 = counters_from(first);
            begin_words(&start, &w[j]);
        }
        counters key_0 = low_words(start.key_0), key_1 = low_words(start.key_1);
        for (int round = 0; round < PHILOX_ROUNDS; round++) {
            for (int j = 0; j < TOGETHER; j++)
                advance_words(&w[j], key_0, key_1);
            key_0 = next_key(key_0, PHILOX_KEY_0);
            key_1 = next_key(key_1, PHILOX_KEY_1);
        }
        for (int j = 0; j < TOGETHER; j++)
            store_factors(&w[j], what, line + (i + j * COUNTERS) * PHILOX_WORDS);
    }
}

#endif
