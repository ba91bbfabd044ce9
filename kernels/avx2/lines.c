/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines have one number for each key of a block. bias_line makes a line that is added to scores:
 * mask.c of kernels/attention calls bias_line for a query row and a block. compact_line reduces a
 * line to some of the keys, and spread_line undoes the reduction. `mean` computes the mean of
 * several rows, and fill_pointers makes pointers to rows. The number of instructions limits the
 * speed: a vector of a bias with a slope takes a dozen instructions.
 */
#include "kernels/avx2/avx2.h"

/* Returns a vector: all bits of lane i are set if bit i of `bits` is set, else lane i is 0. */
static inline __m256 lanes_of(uint64_t bits)
{
    const __m256i own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32((int)(uint32_t)bits), own);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, own));
}

/* Returns a mask that is set where the bit of a key is set, for VECTOR keys from `key` on. */
static inline lane_mask mask_of_keys(const uint64_t words[KEY_BLOCK / 64], int key)
{
    return lanes_of(words[key / 64] >> key % 64);
}

/* Returns VECTOR consecutive integers from `first` on as binary32. */
static inline floats numbers_from(int first)
{
    return _mm256_cvtepi32_ps(
        _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}

/* --- Some keys only --------------------------------------------------------------------------- */

void attnkit_avx2_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line)
{
    enum { QUAD = 4 };
    /* For each subset of the 4 keys of a quad: the lanes of the keys in the subset, a byte for each
     * lane. */
    static const uint32_t places[1 << QUAD] = {0x0,   0x0,     0x1,     0x100,    0x2,   0x200,
                                               0x201, 0x20100, 0x3,     0x300,    0x301, 0x30100,
                                               0x302, 0x30200, 0x30201, 0x3020100};
    float *to = line; /* a store overwrites only numbers that have been read */
    for (int key = 0; key < KEY_BLOCK; key += QUAD) {
        const unsigned quad = keys[key / 64] >> key % 64 & 0xf;
        const __m128i from = _mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)places[quad]));
        _mm_storeu_ps(to, _mm_permutevar_ps(_mm_loadu_ps(line + key), from));
        to += __builtin_popcount(quad);
    }
}

/* Moves the numbers, in their order, to the lanes whose bits are set. A lane stands for one of
 * eight keys. Lanes whose bits are not set get numbers without meaning. The place of a key's number
 * is the count of set bits before the key. To count them, the bits become bytes, and a
 * multiplication sums the bytes. */
static inline __m256 spread(__m256 numbers, uint64_t bits)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t each = bits * ones & UINT64_C(0x8040201008040201);
    const uint64_t before = ((each + ones * 0x7f) >> 7 & ones) * (ones << 8);
    const __m256i places = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)before));
    return _mm256_permutevar8x32_ps(numbers, places);
}

void attnkit_avx2_spread_line(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                              const uint64_t own[KEY_BLOCK / 64], float none, float *line)
{
    const __m256 nothing = _mm256_set1_ps(none);
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        uint64_t bits = keys[i], own_bits = own[i];
        for (int j = 0; j < 64; j += VECTOR, bits >>= VECTOR, own_bits >>= VECTOR) {
            const uint64_t these = bits & 0xff;
            /* At most 64 i + j numbers have been used before, so a whole vector lies within the
             * KEY_BLOCK floats of `numbers`. */
            __m256 x = _mm256_loadu_ps(numbers);
            if (these != 0xff)
                x = spread(x, these);
            _mm256_storeu_ps(line + 64 * i + j, _mm256_blendv_ps(nothing, x, lanes_of(own_bits)));
            numbers += __builtin_popcountll(these);
        }
    }
}

/* --- Rows ------------------------------------------------------------------------------------- */

void attnkit_avx2_fill_pointers(const void *first, ptrdiff_t bytes, int count, void *pointers)
{
    enum { WIDTH = 4 };
    const uint64_t at = (uintptr_t)first, by = (uint64_t)bytes;
    const __m256i step = _mm256_set1_epi64x((int64_t)(WIDTH * by));
    __m256i x = _mm256_setr_epi64x((int64_t)at, (int64_t)(at + by), (int64_t)(at + 2 * by),
                                   (int64_t)(at + 3 * by));
    char *to = pointers;
    for (; count >= WIDTH; count -= WIDTH, to += WIDTH * sizeof(void *)) {
        _mm256_storeu_si256((__m256i *)to, x);
        x = _mm256_add_epi64(x, step);
    }
    const __m256i left =
        _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
    _mm256_maskstore_epi64((long long *)(void *)to, left, x);
}

/* Defines attnkit_avx2_bias_line and attnkit_avx2_mean. */
#include "kernels/vectors/lines.h"
