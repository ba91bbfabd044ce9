/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox4x32-10 of Salmon, Moraes, Dror and Shaw (2011): the part that does not depend on the
 * instruction set. A round turns a counter (c0, c1, c2, c3) into
 *   (high1 ^ c1 ^ key0, low1, high0 ^ c3 ^ key1, low0).
 * high0 and low0 are the halves of the product of c0 and PHILOX_0, high1 and low1 the halves of the
 * product of c2 and PHILOX_1. Each round adds PHILOX_KEY_0 and PHILOX_KEY_1 to the halves of the
 * key. Vector tiles run the rounds on vectors of counters.
 */
#ifndef ATTNKIT_PHILOX_H
#define ATTNKIT_PHILOX_H

#include "kernels/kernels.h"

#define PHILOX_0 UINT32_C(0xd2511f53)
#define PHILOX_1 UINT32_C(0xcd9e8d57)
#define PHILOX_KEY_0 UINT32_C(0x9e3779b9) /* added to the halves of the key after a round */
#define PHILOX_KEY_1 UINT32_C(0xbb67ae85)

enum {
    PHILOX_WORDS = 4, /* words of a counter; the rounds turn each word into the random word of one
                       * key of attention */
    PHILOX_COUNTERS = KEY_BLOCK / PHILOX_WORDS,
    PHILOX_ROUNDS = 8, /* rounds after the two rounds of philox_start */
};

/* The counters of a line differ only in word 0, which grows by 1 from counter to counter. So in
 * each of the first two rounds, one of the two products is the same for all counters of a line. A
 * counter with word 0 = c gets from the first round
 *   word 2 = high(PHILOX_0 * c) ^ first_2, word 3 = low(PHILOX_0 * c),
 * and from these two words in the second round
 *   word 0 = high(PHILOX_1 * word 2) ^ second_0, word 1 = low(PHILOX_1 * word 2),
 *   word 2 = word 3 ^ second_2, word 3 = second_3. */
struct philox_start {
    uint32_t word_0; /* word 0 of the first counter */
    uint32_t first_2, second_0, second_2, second_3;
    uint32_t key_0, key_1; /* the key of the third round */
};

static inline uint32_t philox_low(uint64_t product)
{
    return (uint32_t)product;
}

static inline uint32_t philox_high(uint64_t product)
{
    return (uint32_t)(product >> 32);
}

static inline struct philox_start philox_start(const struct keep_line *what)
{
    const uint32_t key_0 = (uint32_t)what->seed, key_1 = (uint32_t)(what->seed >> 32);
    const uint64_t counter = what->first_key / PHILOX_WORDS;
    const uint32_t word_3 =
        (uint32_t)(counter >> 32 & 0xffff) | (uint32_t)(what->position >> 32 & 0xffff) << 16;
    const uint64_t first = (uint64_t)PHILOX_1 * what->head;
    const uint32_t next_0 = philox_high(first) ^ (uint32_t)what->position ^ key_0;
    const uint64_t second = (uint64_t)PHILOX_0 * next_0;
    return (struct philox_start){
        .word_0 = (uint32_t)counter,
        .first_2 = word_3 ^ key_1,
        .second_0 = philox_low(first) ^ (key_0 + PHILOX_KEY_0),
        .second_2 = philox_high(second) ^ (key_1 + PHILOX_KEY_1),
        .second_3 = philox_low(second),
        .key_0 = key_0 + 2 * PHILOX_KEY_0,
        .key_1 = key_1 + 2 * PHILOX_KEY_1,
    };
}

#endif
