/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/odd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "tests/support/random.h"

uint32_t odd_bits(uint64_t *random)
{
    static const uint32_t fractions[] = {0, 0, 0x400000, 1, 0x200000, 0x3fffff, 0x7fffff, 0x2000};
    const uint32_t sign = random_below(random, 2) ? 0x80000000 : 0;
    const int64_t choice = random_below(random, 12);
    const uint32_t fraction =
        choice < 8 ? fractions[choice] : (uint32_t)random_bits(random) & 0x7fffff;
    return sign | 0x7f800000 | fraction;
}

/* Returns an infinity or NaN of 16 bits. The lowest `fraction_bits` bits are the fraction. The
 * number has the sign and the upper fraction bits of a number that odd_bits returns. A NaN stays a
 * NaN. */
static uint16_t odd_half(int fraction_bits, uint64_t *random)
{
    const uint32_t bits = odd_bits(random), fraction = (bits & 0x7fffff) >> (23 - fraction_bits);
    const uint32_t infinity = 0x7fff >> fraction_bits << fraction_bits;
    const uint32_t least = bits & 0x7fffff ? 1 : 0;
    return (uint16_t)((bits >> 16 & 0x8000) | infinity | (fraction ? fraction : least));
}

static void put_one(enum type type, char *element, uint64_t *random)
{
    const uint32_t bits = odd_bits(random);
    const uint16_t half = odd_half(type == TYPE_BF16 ? 7 : 10, random);
    if (type == TYPE_F32)
        memcpy(element, &bits, sizeof bits);
    else
        memcpy(element, &half, sizeof half);
}

void odd_put(enum type type, void *elements, int64_t count, int64_t rate, uint64_t *random)
{
    const int64_t step = type == TYPE_Q8_0 ? Q8_BLOCK : 1;
    for (int64_t i = 0; i < count && rate > 0; i += step)
        if (random_below(random, rate) == 0)
            put_one(type, (char *)elements + bytes_of(type, i), random);
}

static int64_t count_words(const char *what, const uint32_t *words, int64_t count)
{
    int64_t nans = 0;
    for (int64_t i = 0; i < count; i++) {
        if ((words[i] & 0x7fffffff) <= 0x7f800000)
            continue;
        nans++;
        if (words[i] != 0x7fc00000)
            fail_msg("%s: element %lld is %08x", what, (long long)i, (unsigned)words[i]);
    }
    return nans;
}

static int64_t count_halves(const char *what, const uint16_t *halves, int64_t count,
                            uint16_t infinity, uint16_t nan)
{
    int64_t nans = 0;
    for (int64_t i = 0; i < count; i++) {
        if ((halves[i] & 0x7fff) <= infinity)
            continue;
        nans++;
        if (halves[i] != nan)
            fail_msg("%s: element %lld is %04x", what, (long long)i, (unsigned)halves[i]);
    }
    return nans;
}

int64_t odd_count(const char *what, enum type type, const void *elements, int64_t count)
{
    if (type == TYPE_F32)
        return count_words(what, elements, count);
    if (type == TYPE_F16)
        return count_halves(what, elements, count, 0x7c00, 0x7e00);
    return count_halves(what, elements, count, 0x7f80, 0x7fc0);
}
