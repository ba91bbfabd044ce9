/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers: the entries pack_q, pack_k and scores of struct integer_panel_kernels, and
 * the loops of weighted_v. A file of an instruction set or unit defines the names in the list
 * below, includes this header, and puts the entries into a struct integer_panel_kernels.
 *   MOST_HEIGHT            no score_height and no column_height is larger
 *   sums_v                 the integer sums of VECTOR lanes
 *   lane_words             a word of each of VECTOR lanes
 *   word                   a word of K or V for all lanes
 *   no_sums                returns sums of 0
 *   sums_as_floats         converts sums to binary32
 *   load_words, load_word  load lane_words or a word
 *   dot(sum, x, w, part)   adds to the sum of each lane the products of the lane's word of x and
 *                          the word w, and returns the sums. `part` is the index of the word modulo
 *                          2, for tiles that multiply words of even and of odd index in different
 *                          ways. Other tiles ignore `part`
 *   widen_block            makes the Q8_BLOCK / 2 words of Q8_BLOCK elements of a row of K
 *   half_as_float          converts a binary16 to binary32
 *   larger_bits            returns, for each lane, the larger of two floats. Their bits are
 *                          compared as unsigned integers
 *   score_height           returns the height of a register tile of scores with `vectors` vectors
 *   column_height          returns the height of a register tile of weighted V with `vectors`
 *                          vectors
 *
 * A lane is a query row. A word of q or of K belongs to several elements of one row. A word of
 * weights or of V belongs to several keys, and to one lane or one column. If a word has two
 * integers of 16 bits, panel_pairs.h has the other entries. Words of K and V are made once, and all
 * rows of an item share them. Words of weights are made again for each Q8_BLOCK columns of V.
 */
#ifndef ATTNKIT_VECTORS_INTEGER_PANEL_H
#define ATTNKIT_VECTORS_INTEGER_PANEL_H

#include "kernels/integers.h"

enum {
    BLOCK_WORDS = Q8_BLOCK / 2, /* words of Q8_BLOCK elements of a row of q or K */
    PAIRS = KEY_BLOCK / 2,      /* pairs of keys of a block of KEY_BLOCK keys */
    UNROLL = 4, /* words in a loop body, so that pointers and the loop test cost little */
};

/* Returns the scale of the Q8_BLOCK elements of row i that begin at element d. */
static inline float scale_of(const struct key_rows *rows, int i, int64_t d)
{
    uint16_t bits;
    if (is_i8(rows->type))
        return rows->scales[i][d / rows->scale_group];
    memcpy(&bits, rows->row[i] + bytes_of(TYPE_Q8_0, d), sizeof bits);
    return half_as_float(bits);
}

/* -------------------------------------------------------------------------------- q, K and V */

static inline void pack_q(const float *const *rounded, int lanes, int64_t dim, float *q_t)
{
    KERNEL(pack_q)(rounded, lanes, rounded_row_floats(dim), q_t);
}

/* For each key, stores a scale for each Q8_BLOCK elements, the same number of unused floats, and
 * then the words. So the words lie where the integers lie in a row that round_row has written. */
static void pack_k(const struct key_rows *k, int first, int count, float *words)
{
    const int64_t blocks = k->dim / Q8_BLOCK;
    float *to = words + first * rounded_row_floats(k->dim);
    for (int i = first; i < first + count; i++, to += rounded_row_floats(k->dim))
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t d = b * Q8_BLOCK;
            to[b] = scale_of(k, i, d);
            widen_block(k->row[i] + integers_in_row(k->type, d), to + 2 * blocks + b * BLOCK_WORDS);
        }
}

/* Returns the address, in the words of V, of the scales of the Q8_BLOCK columns from c on:
 * KEY_BLOCK scales, and then the magnitudes of these scales. The words of all KEY_BLOCK keys come
 * before all scales. */
static inline float *scales_of_columns(float *v, int64_t dim, int64_t c)
{
    return v + PAIRS * dim + c / Q8_BLOCK * (2 * KEY_BLOCK);
}

/* ------------------------------------------------------------------------------------ scores */

/* Multiplies the words of all lanes, from x on, by the words of `height` keys or columns of V, from
 * w on. Adds the products to the sums. The word of the next key or column lies `stride` floats
 * further on. */
static inline __attribute__((always_inline)) void add_word(const float *x, const float *w,
                                                           int64_t stride, sums_v sum[][VECTORS],
                                                           const int height, const int vectors,
                                                           const int part)
{
    lane_words lanes[VECTORS];
    for (int j = 0; j < vectors; j++)
        lanes[j] = load_words(x + j * VECTOR);
    for (int i = 0; i < height; i++) {
        const word own = load_word(w + i * stride);
        for (int j = 0; j < vectors; j++)
            sum[i][j] = dot(sum[i][j], lanes[j], own, part);
    }
}

static inline __attribute__((always_inline)) void clear_sums(sums_v sum[][VECTORS],
                                                             const int height, const int vectors)
{
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = no_sums();
}

/* Computes the scores of `height` keys. */
static inline __attribute__((always_inline)) void score_tile(const float *q_t, const float *k,
                                                             int64_t dim, float *s,
                                                             const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    const int64_t blocks = dim / Q8_BLOCK, stride = rounded_row_floats(dim);
    const float *q = q_t + 2 * blocks * lanes, *w = k + 2 * blocks;
    floats score[MOST_HEIGHT][VECTORS];
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            score[i][j] = broadcast(0.0f);
    for (int64_t b = 0; b < blocks; b++, q_t += lanes, k++) {
        sums_v sum[MOST_HEIGHT][VECTORS];
        clear_sums(sum, height, vectors);
        for (int i = 0; i < BLOCK_WORDS; i += UNROLL, q += UNROLL * lanes, w += UNROLL) {
            add_word(q, w, stride, sum, height, vectors, 0);
            add_word(q + lanes, w + 1, stride, sum, height, vectors, 1);
            add_word(q + 2 * lanes, w + 2, stride, sum, height, vectors, 0);
            add_word(q + 3 * lanes, w + 3, stride, sum, height, vectors, 1);
        }
        for (int i = 0; i < height; i++) {
            const floats scale = broadcast_from(k + i * stride);
            for (int j = 0; j < vectors; j++)
                score[i][j] = fma_v(sums_as_floats(sum[i][j]),
                                    load_aligned(q_t + j * VECTOR) * scale, score[i][j]);
        }
    }
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++)
            store_aligned(s + i * lanes + j * VECTOR, score[i][j]);
}

static inline __attribute__((always_inline)) void
score_keys(const float *q_t, const float *k, int keys, int64_t dim, float *s, const int vectors)
{
    const int lanes = vectors * VECTOR, most = score_height(vectors);
    const int64_t stride = rounded_row_floats(dim);
    int key = 0;
    for (; key + most <= keys; key += most)
        score_tile(q_t, k + key * stride, dim, s + key * lanes, most, vectors);
    for (; key < keys; key++)
        score_tile(q_t, k + key * stride, dim, s + key * lanes, 1, vectors);
}

static void scores(const float *q_t, int lanes, const float *k, int keys, int64_t dim, float *s)
{
    require_built_integers();
    switch (lanes / VECTOR) {
    case 4:
        if (VECTORS == 4)
            score_keys(q_t, k, keys, dim, s, VECTORS);
        break;
    case 3:
        score_keys(q_t, k, keys, dim, s, 3);
        break;
    case 2:
        score_keys(q_t, k, keys, dim, s, 2);
        break;
    default:
        score_keys(q_t, k, keys, dim, s, 1);
    }
}

/* ----------------------------------------------------------------------------------- weights */

/* The weights of `count` keys, and the scales of Q8_BLOCK columns of V. The first of these keys is
 * key `first` of the words of V. */
struct scaled_keys {
    const float *p;      /* [count][lanes] */
    const float *scales; /* of KEY_BLOCK keys, and then the magnitudes of these scales */
    int first, count;
};

/* Sets scale and inverse of each lane as integer_scale_of does, from the largest product of a
 * weight and the magnitude of a scale. */
static inline __attribute__((always_inline)) void find_scales(const struct scaled_keys *keys,
                                                              floats scale[VECTORS],
                                                              floats inverse[VECTORS],
                                                              const int vectors)
{
    const floats zero = broadcast(0.0f), infinity = broadcast(INFINITY);
    const float *p = keys->p, *const magnitudes = keys->scales + KEY_BLOCK + keys->first;
    floats most[VECTORS];
    for (int j = 0; j < vectors; j++)
        most[j] = zero;
    for (int i = 0; i < keys->count; i++, p += vectors * VECTOR) {
        const floats magnitude = broadcast_from(magnitudes + i);
        for (int j = 0; j < vectors; j++)
            most[j] = larger_bits(most[j], load_aligned(p + j * VECTOR) * magnitude);
    }
    for (int j = 0; j < vectors; j++) {
        const lane_mask is_small = less_v(most[j], broadcast(LEAST_LARGEST));
        const lane_mask is_finite = less_v(most[j], infinity);
        const floats own = most[j] * broadcast(1.0f / MOST_INTEGER);
        const floats factor = broadcast(MOST_INTEGER) / most[j];
        scale[j] = select_v(is_finite, select_v(is_small, zero, own), broadcast(NAN));
        inverse[j] = select_v(is_finite, select_v(is_small, zero, factor), zero);
    }
}

/* Returns weight * scale * inverse for key i and VECTOR lanes from `lane` on. Each of the two
 * products is rounded. */
static inline __attribute__((always_inline)) floats
scaled_weight(const struct scaled_keys *keys, int i, int lanes, int lane, floats inverse)
{
    const floats p = load_aligned(keys->p + i * lanes + lane);
    return p * broadcast_from(keys->scales + keys->first + i) * inverse;
}

/* -------------------------------------------------------------------------------- weighted V */

/* Multiplies o by rescale, and adds the scaled sums of a tile of columns. If rescale is NULL, sets
 * o to the scaled sums. */
static inline __attribute__((always_inline)) void add_to_out(sums_v sum[][VECTORS],
                                                             const floats scale[VECTORS],
                                                             const float *rescale, float *o,
                                                             const int height, const int vectors)
{
    for (int i = 0; i < height; i++)
        for (int j = 0; j < vectors; j++) {
            float *const to = o + (i * vectors + j) * VECTOR;
            floats x = sums_as_floats(sum[i][j]) * scale[j];
            if (rescale)
                x = fma_v(load_aligned(to), load_aligned(rescale + j * VECTOR), x);
            store_aligned(to, x);
        }
}

/* Returns v + dim. The empty assembly keeps gcc from using an index register for each column. */
static inline __attribute__((always_inline)) const float *row_after(const float *v, int64_t dim)
{
    v += dim;
    __asm__("" : "+r"(v));
    return v;
}

/* Sets `sum` to the sums of the products of weights and V, for `height` columns. `pairs` is the
 * number of words of a lane. */
static inline __attribute__((always_inline)) void column_tile(const float *parts, const float *v,
                                                              int64_t dim, int pairs,
                                                              sums_v sum[][VECTORS],
                                                              const int height, const int vectors)
{
    const int lanes = vectors * VECTOR;
    clear_sums(sum, height, vectors);
    int i = 0;
    for (; i + UNROLL <= pairs; i += UNROLL, parts += UNROLL * lanes) {
        add_word(parts, v, 1, sum, height, vectors, 0);
        v = row_after(v, dim);
        add_word(parts + lanes, v, 1, sum, height, vectors, 1);
        v = row_after(v, dim);
        add_word(parts + 2 * lanes, v, 1, sum, height, vectors, 0);
        v = row_after(v, dim);
        add_word(parts + 3 * lanes, v, 1, sum, height, vectors, 1);
        v = row_after(v, dim);
    }
    for (; i < pairs; i++, parts += lanes, v += dim)
        add_word(parts, v, 1, sum, height, vectors, 0);
}

/* The arguments of weighted_v, except for `lanes`. */
struct weighing {
    const float *p, *rescale, *v;
    int64_t dim;
    int first, keys;
    float *o, *parts;
};

/* Rounds the products of the weights and scales of `keys` to integers, and writes the words of
 * these integers to `parts`. A word may also belong to keys that are not among `keys`. Such keys
 * get the weight 0. Returns the number of words of a lane: a multiple of UNROLL if `dot` depends on
 * `part`. */
typedef int rounding(const struct scaled_keys *keys, const floats inverse[VECTORS], float *parts,
                     const int vectors);

/* Does the work of weighted_v for `vectors` vectors of lanes. In a lane, each group of `group` keys
 * has group / 2 words. The index of the first key of a group is a multiple of `group`. */
static inline __attribute__((always_inline)) void
weigh_columns(const struct weighing *w, const int vectors, rounding *const round, const int group)
{
    const int lanes = vectors * VECTOR, height = column_height(vectors);
    const int64_t dim = w->dim;
    const float *const words = w->v + w->first / group * (group / 2) * dim;
    for (int64_t c = 0; c < dim; c += Q8_BLOCK) {
        const float *const scales = w->v + PAIRS * dim + c / Q8_BLOCK * (2 * KEY_BLOCK);
        const struct scaled_keys keys = {w->p, scales, w->first, w->keys};
        floats scale[VECTORS], inverse[VECTORS];
        find_scales(&keys, scale, inverse, vectors);
        const int count = round(&keys, inverse, w->parts, vectors);
        for (int64_t i = c; i < c + Q8_BLOCK; i += height) {
            sums_v sum[MOST_HEIGHT][VECTORS];
            column_tile(w->parts, words + i, dim, count, sum, height, vectors);
            add_to_out(sum, scale, w->rescale, w->o + i * lanes, height, vectors);
        }
    }
}

static inline __attribute__((always_inline)) void weigh(const struct weighing *w, int lanes,
                                                        rounding *const round, const int group)
{
    require_built_integers();
    switch (lanes / VECTOR) {
    case 4:
        if (VECTORS == 4)
            weigh_columns(w, VECTORS, round, group);
        break;
    case 3:
        weigh_columns(w, 3, round, group);
        break;
    case 2:
        weigh_columns(w, 2, round, group);
        break;
    default:
        weigh_columns(w, 1, round, group);
    }
}

#endif
