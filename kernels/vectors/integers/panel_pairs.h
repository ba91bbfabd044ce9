/* SPDX-License-Identifier: Apache-2.0
 *
 * The entries pack_v and weighted_v of struct integer_panel_kernels, for words of two integers of
 * 16 bits. panel.h has the other entries, and the loops of weighted_v. The two integers of a word
 * of q or K are elements of a row, in the order of round_row. The two integers of a word of weights
 * or V belong to two keys. A file of an instruction set or unit defines pair_block, store_pair and
 * the names that panel.h lists, and then includes this header. pair_block makes the words of
 * Q8_BLOCK columns of two keys. store_pair rounds the scaled weights of two keys to integers, and
 * stores the words of these integers.
 */
#ifndef ATTNKIT_VECTORS_INTEGER_PANEL_PAIRS_H
#define ATTNKIT_VECTORS_INTEGER_PANEL_PAIRS_H

#include "kernels/vectors/integers/panel.h"

/* If `count` is odd, the last row has no partner, and zeros take the place of the partner. */
static void pack_v(const struct key_rows *v, int first, int count, float *words)
{
    static const char zeros[Q8_BLOCK];
    for (int i = first; i < first + count; i += 2) {
        const bool has_two = i + 1 < first + count;
        for (int64_t c = 0; c < v->dim; c += Q8_BLOCK) {
            const int64_t at = integers_in_row(v->type, c);
            const char *const two = has_two ? v->row[i + 1] + at : zeros;
            float *const scales = scales_of_columns(words, v->dim, c) + i;
            scales[0] = scale_of(v, i, c);
            scales[1] = has_two ? scale_of(v, i + 1, c) : 0.0f;
            scales[KEY_BLOCK] = fabsf(scales[0]);
            scales[KEY_BLOCK + 1] = fabsf(scales[1]);
            pair_block(v->row[i] + at, two, words + i / 2 * v->dim + c);
        }
    }
}

/* Makes the words of all pairs of keys in which at least one key is among `keys`. A key that is not
 * among `keys` has the weight 0. Returns the number of pairs. */
static inline __attribute__((always_inline)) int round_weights(const struct scaled_keys *keys,
                                                               const floats inverse[VECTORS],
                                                               float *parts, const int vectors)
{
    const int lanes = vectors * VECTOR, odd = keys->first % 2, pairs = (odd + keys->count + 1) / 2;
    const floats zero = broadcast(0.0f);
    int i = 0;
    if (odd) {
        for (int j = 0; j < vectors; j++)
            store_pair(parts + j * VECTOR, zero,
                       scaled_weight(keys, 0, lanes, j * VECTOR, inverse[j]));
        parts += lanes;
        i = 1;
    }
    for (; i + 1 < keys->count; i += 2, parts += lanes)
        for (int j = 0; j < vectors; j++)
            store_pair(parts + j * VECTOR, scaled_weight(keys, i, lanes, j * VECTOR, inverse[j]),
                       scaled_weight(keys, i + 1, lanes, j * VECTOR, inverse[j]));
    for (int j = 0; j < vectors && i < keys->count; j++)
        store_pair(parts + j * VECTOR, scaled_weight(keys, i, lanes, j * VECTOR, inverse[j]), zero);
    return pairs;
}

static void weighted_v(const float *p, int lanes, const float *rescale, const float *v, int64_t dim,
                       int first, int keys, float *o, float *parts)
{
    const struct weighing w = {p, rescale, v, dim, first, keys, o, parts};
    weigh(&w, lanes, round_weights, 2);
}

#endif
