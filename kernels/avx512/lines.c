/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines have one number for each key of a block. bias_line makes a line that is added to scores:
 * mask.c of kernels/attention calls bias_line for a query row and a block. compact_line reduces a
 * line to some of the keys, and spread_line undoes the reduction. `mean` computes the mean of
 * several rows, and fill_pointers makes pointers to rows. The number of instructions limits the
 * speed: a vector of a bias with a slope takes eight instructions.
 */
#include "kernels/avx512/avx512.h"

/* Returns the bits of VECTOR keys from `key` on. */
static inline __mmask16 bits_at(const uint64_t words[KEY_BLOCK / 64], int key)
{
    return (__mmask16)(words[key / 64] >> key % 64);
}

/* Returns a mask that is set where the bit of a key is set, for VECTOR keys from `key` on. */
static inline lane_mask mask_of_keys(const uint64_t words[KEY_BLOCK / 64], int key)
{
    return bits_at(words, key);
}

/* Returns VECTOR consecutive integers from `first` on as binary32. */
static inline floats numbers_from(int first)
{
    const __m512i order = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_set1_epi32(first), order));
}

/* --- Some keys only --------------------------------------------------------------------------- */

void attnkit_avx512_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line)
{
    float *to = line; /* a store overwrites only numbers that have been read */
    for (int key = 0; key < KEY_BLOCK; key += VECTOR) {
        const __mmask16 bits = bits_at(keys, key);
        _mm512_storeu_ps(to, _mm512_maskz_compress_ps(bits, _mm512_loadu_ps(line + key)));
        to += __builtin_popcount(bits);
    }
}

void attnkit_avx512_spread_line(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                                const uint64_t own[KEY_BLOCK / 64], float none, float *line)
{
    for (int key = 0; key < KEY_BLOCK; key += VECTOR) {
        const __mmask16 bits = bits_at(keys, key);
        /* At most `key` numbers have been used before, so a whole vector lies within the KEY_BLOCK
         * floats of `numbers`. */
        const __m512 x = _mm512_maskz_expand_ps(bits, _mm512_loadu_ps(numbers));
        _mm512_storeu_ps(line + key,
                         _mm512_mask_mov_ps(_mm512_set1_ps(none), bits_at(own, key), x));
        numbers += __builtin_popcount(bits);
    }
}

/* --- Rows ------------------------------------------------------------------------------------- */

void attnkit_avx512_fill_pointers(const void *first, ptrdiff_t bytes, int count, void *pointers)
{
    enum { WIDTH = 8 };
    const __m512i order = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i step = _mm512_set1_epi64((int64_t)(WIDTH * (uint64_t)bytes));
    __m512i x = _mm512_add_epi64(_mm512_set1_epi64((intptr_t)first),
                                 _mm512_mullo_epi64(order, _mm512_set1_epi64(bytes)));
    char *to = pointers;
    for (; count >= WIDTH; count -= WIDTH, to += WIDTH * sizeof(void *)) {
        _mm512_storeu_si512(to, x);
        x = _mm512_add_epi64(x, step);
    }
    _mm512_mask_storeu_epi64(to, (__mmask8)((1 << count) - 1), x);
}

/* Defines attnkit_avx512_bias_line and attnkit_avx512_mean. */
#include "kernels/vectors/lines.h"
