/* SPDX-License-Identifier: Apache-2.0
 *
 * In plain C: the entries of kernels.h for masks, lines of numbers and dropout, and the entries
 * fill_pointers and mean.
 */
#include "kernels/philox.h"
#include "kernels/scalar/scalar.h"

/* --- Masks to bits ---------------------------------------------------------------------------- */

/* Shifts a bit into a word from above: after 64 calls the first bit is bit 0. */
static inline uint64_t shift_in(uint64_t word, bool bit)
{
    return word >> 1 | (uint64_t)bit << 63;
}

void attnkit_scalar_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64])
{
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        uint64_t word = 0;
        for (int j = 0; j < 64; j++)
            word = shift_in(word, *bytes++ != 0);
        words[i] = word;
    }
}

void attnkit_scalar_same_ids(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64])
{
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        uint64_t word = 0;
        for (int j = 0; j < 64; j++)
            word = shift_in(word, *ids++ == own);
        words[i] = word;
    }
}

/* Tests numbers by their bits. `any` collects the bits of all numbers that are not -inf. */
static bool unmasked_f32(const uint32_t *bits, uint64_t words[KEY_BLOCK / 64])
{
    uint32_t any = 0;
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        uint64_t word = 0;
        for (int j = 0; j < 64; j++, bits++) {
            const bool seen = *bits != 0xff800000;
            word = shift_in(word, seen);
            any |= *bits & -(uint32_t)seen;
        }
        words[i] = word;
    }
    return any << 1 != 0; /* the sign does not count */
}

static bool unmasked_half(const uint16_t *bits, uint16_t minus_infinity,
                          uint64_t words[KEY_BLOCK / 64])
{
    uint32_t any = 0;
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        uint64_t word = 0;
        for (int j = 0; j < 64; j++, bits++) {
            const bool seen = *bits != minus_infinity;
            word = shift_in(word, seen);
            any |= *bits & -(uint32_t)seen;
        }
        words[i] = word;
    }
    return any << 17 != 0;
}

bool attnkit_scalar_unmasked(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64])
{
    if (type == TYPE_F32)
        return unmasked_f32(numbers, words);
    return unmasked_half(numbers, type == TYPE_F16 ? 0xfc00 : 0xff80, words);
}

/* --- What is added to scores ------------------------------------------------------------------ */

static float at_least(float least, float x)
{
    return x < least ? least : x;
}

static void add_slope(const struct bias_line *what, float *line)
{
    const int first = (int)what->distance;
    if (has_near_keys(what)) {
        for (int i = 0; i < KEY_BLOCK; i++)
            line[i] = at_least(-FLT_MAX, line[i] + what->slope * (float)(first + i));
        return;
    }
    for (int i = 0; i < KEY_BLOCK; i++)
        line[i] = at_least(-FLT_MAX, line[i] + what->slope * key_distance(what, i));
}

void attnkit_scalar_bias_line(const struct bias_line *what, float *line)
{
    const float unit = what->unit, least = what->least;
    memset(line, 0, KEY_BLOCK * sizeof *line);
    if (what->numbers)
        attnkit_scalar_widen(what->type, what->numbers, NULL, 0, what->count, line);
    for (int i = 0; what->numbers && i < what->count; i++)
        line[i] = at_least(least, line[i] * unit);
    if (what->sloped)
        add_slope(what, line);
    for (int i = 0; i < KEY_BLOCK / 64; i++)
        for (uint64_t hidden = ~what->seen[i]; hidden; hidden &= hidden - 1)
            line[64 * i + __builtin_ctzll(hidden)] = -INFINITY;
}

/* --- Dropout ---------------------------------------------------------------------------------- */

/* Computes the random words of the counter whose first word is `word_0`. */
static void philox(const struct philox_start *start, uint32_t word_0, uint32_t words[PHILOX_WORDS])
{
    uint64_t product_0 = (uint64_t)PHILOX_0 * word_0;
    uint64_t product_1 = (uint64_t)PHILOX_1 * (philox_high(product_0) ^ start->first_2);
    uint32_t c0 = philox_high(product_1) ^ start->second_0, c1 = philox_low(product_1);
    uint32_t c2 = philox_low(product_0) ^ start->second_2, c3 = start->second_3;
    uint32_t key_0 = start->key_0, key_1 = start->key_1;
#pragma GCC unroll 8
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        product_0 = (uint64_t)PHILOX_0 * c0;
        product_1 = (uint64_t)PHILOX_1 * c2;
        c0 = philox_high(product_1) ^ c1 ^ key_0;
        c1 = philox_low(product_1);
        c2 = philox_high(product_0) ^ c3 ^ key_1;
        c3 = philox_low(product_0);
        key_0 += PHILOX_KEY_0;
        key_1 += PHILOX_KEY_1;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

void attnkit_scalar_keep_line(const struct keep_line *what, float *line)
{
    const struct philox_start start = philox_start(what);
    const uint32_t factor = bits_from_float(what->factor);
    for (int i = 0; i < PHILOX_COUNTERS; i++) {
        uint32_t words[PHILOX_WORDS];
        philox(&start, start.word_0 + (uint32_t)i, words);
        /* Selects by bits, because a branch would often be mispredicted. */
        for (int j = 0; j < PHILOX_WORDS; j++)
            line[i * PHILOX_WORDS + j] =
                float_from_bits(factor & -(uint32_t)(words[j] >= what->dropped));
    }
}

/* --- Some keys only --------------------------------------------------------------------------- */

void attnkit_scalar_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line)
{
    const float *from = line;
    for (int i = 0; i < KEY_BLOCK / 64; i++, from += 64)
        for (uint64_t bits = keys[i]; bits; bits &= bits - 1)
            *line++ = from[__builtin_ctzll(bits)];
}

void attnkit_scalar_spread_line(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                                const uint64_t own[KEY_BLOCK / 64], float none, float *line)
{
    for (int i = 0; i < KEY_BLOCK; i++)
        line[i] = none;
    for (int i = 0; i < KEY_BLOCK / 64; i++, line += 64)
        for (uint64_t bits = keys[i]; bits; bits &= bits - 1, numbers++)
            if (own[i] & bits & -bits)
                line[__builtin_ctzll(bits)] = *numbers;
}

/* --- Rows ------------------------------------------------------------------------------------- */

void attnkit_scalar_fill_pointers(const void *first, ptrdiff_t bytes, int count, void *pointers)
{
    char *to = pointers;
    for (int i = 0; i < count; i++, to += sizeof(void *)) {
        const char *const at = (const char *)((uintptr_t)first + (uintptr_t)i * (uintptr_t)bytes);
        memcpy(to, &at, sizeof at);
    }
}

void attnkit_scalar_mean(const struct rows *rows, int64_t count, float *mean)
{
    for (int64_t i = 0; i < rows->dim; i++) {
        const char *row = rows->first;
        float sum = 0.0f;
        for (int64_t r = 0; r < count; r++, row += rows->stride)
            sum += ((const float *)row)[i];
        mean[i] = plain_nan(sum / (float)count);
    }
}
