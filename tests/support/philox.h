/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox4x32-10 as Salmon, Moraes, Dror and Shaw (2011) define it, for tests of dropout. A round
 * multiplies the words c0 and c2 of the counter by two constants. The product of c0 has the words
 * high0 and low0, the product of c2 has the words high1 and low1. With the key (k0, k1), the words
 * (c0, c1, c2, c3) then become (high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0). At the end of a
 * round, two constants are added to k0 and k1.
 */
#ifndef ATTNKIT_TEST_PHILOX_H
#define ATTNKIT_TEST_PHILOX_H

#include <stdint.h>
#include <string.h>

static inline void philox4x32_10(const uint32_t counter[4], uint32_t k0, uint32_t k1,
                                 uint32_t words[4])
{
    memcpy(words, counter, 4 * sizeof *words);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)words[0] * UINT32_C(0xd2511f53);
        const uint64_t p1 = (uint64_t)words[2] * UINT32_C(0xcd9e8d57);
        const uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ words[1] ^ k0, (uint32_t)p1,
                                  (uint32_t)(p0 >> 32) ^ words[3] ^ k1, (uint32_t)p0};
        memcpy(words, next, sizeof next);
        k0 += UINT32_C(0x9e3779b9);
        k1 += UINT32_C(0xbb67ae85);
    }
}

#endif
