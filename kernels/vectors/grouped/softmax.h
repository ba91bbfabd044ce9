/* SPDX-License-Identifier: Apache-2.0
 *
 * The entries scale and softmax of struct grouped_kernels. `scale` multiplies scores by a factor,
 * which gives t. `softmax` turns t into weights. It multiplies the weights of each row by 1 /
 * divisor, and splits each of these products into parts: one or two bf16. The divisor is the
 * largest weight of the row in the block (see peak_of). The grouped.c of an instruction set or unit
 * defines ELEMENTS and round_quad, or includes files that define them. Then grouped.c includes this
 * file, directly or by tiles.h. exp2 and the rounding limit the speed.
 *
 * The divisor must be known before the first product. So the divisor is at first the weight of the
 * largest score, which is almost always the largest weight. But exp2 rounds, so a smaller score may
 * get a weight that is larger by one unit in the last place. In this rare case the parts are made
 * again, with the largest weight as the divisor.
 */
#ifndef ATTNKIT_VECTORS_GROUPED_SOFTMAX_H
#define ATTNKIT_VECTORS_GROUPED_SOFTMAX_H

#include "kernels/vectors/softmax/scale.h"

_Static_assert((int)QUAD_ELEMENTS <= (int)SIDE_BY_SIDE, "exp2_vectors takes a quad");

/* The scores of a vector of lanes, and the numbers that are the same for all of its keys. */
struct scored {
    const float *t; /* scores times log2 e, or -inf: t of key i is at t + i * lanes */
    int lanes, keys;
    floats subtrahend; /* a weight is 2^(t - subtrahend) */
    floats divisor;    /* of the weights */
};

/* What a pass over the keys finds for a vector of lanes. */
struct summed {
    floats most; /* the largest weight */
    floats sum;  /* of the parts of all weights */
};

/* Returns the divisor for a largest weight: this weight, but at least LEAST_PEAK and at most 1. A
 * NaN becomes LEAST_PEAK. */
static inline floats peak_of(floats weight)
{
    const floats one = broadcast(1.0f);
    const floats peak = max_without_nan(weight, broadcast(LEAST_PEAK));
    return select_v(less_v(peak, one), peak, one);
}

/* Returns whether two finite vectors are equal. */
static inline bool are_equal(floats x, floats y)
{
    const floats zero = broadcast(0.0f);
    return !is_spoilt(select_v(equal_v(x, y), zero, broadcast(INFINITY)));
}

/* Multiplies the weights of a quad of keys by `factor`, makes the parts of the products, adds the
 * parts to of->sum, and updates of->most. Only the first `keys` keys of the quad exist. The other
 * keys count as keys of weight 0. */
static inline __attribute__((always_inline)) void split_quad(const struct scored *scored, int key,
                                                             floats factor, const int keys,
                                                             const bool is_short, float *high_words,
                                                             struct summed *of)
{
    const int lanes = scored->lanes;
    floats p[QUAD_ELEMENTS], high[QUAD_ELEMENTS], low[QUAD_ELEMENTS];
    for (int i = 0; i < QUAD_ELEMENTS; i++)
        if (i < keys)
            p[i] = load_aligned(scored->t + (key + i) * lanes) - scored->subtrahend;
        else
            p[i] = minus_infinity();
    exp2_vectors(p, QUAD_ELEMENTS);
    for (int i = 0; i < QUAD_ELEMENTS; i++) {
        of->most = max_without_nan(p[i], of->most);
        p[i] = p[i] * factor;
        p[i] = select_v(less_v(p[i], broadcast(LEAST_WEIGHT)), broadcast(0.0f), p[i]);
    }
    float *const words = high_words + key / ELEMENTS * lanes;
    round_quad(p, high, words, lanes);
    if (!is_short) {
        for (int i = 0; i < QUAD_ELEMENTS; i++)
            low[i] = p[i] - high[i];
        round_quad(low, low, words + KEY_BLOCK / ELEMENTS * lanes, lanes);
        for (int i = 0; i < QUAD_ELEMENTS; i++)
            high[i] = high[i] + low[i];
    }
    for (int i = 0; i < keys; i++)
        of->sum = of->sum + high[i];
}

static inline __attribute__((always_inline)) struct summed
split_keys(const struct scored *scored, float *words, const bool is_short)
{
    const floats factor = broadcast(1.0f) / scored->divisor;
    struct summed of = {broadcast(0.0f), broadcast(0.0f)};
    int key = 0;
    for (; key + QUAD_ELEMENTS <= scored->keys; key += QUAD_ELEMENTS)
        split_quad(scored, key, factor, QUAD_ELEMENTS, is_short, words, &of);
    for (; key < scored->keys; key += QUAD_ELEMENTS)
        split_quad(scored, key, factor, scored->keys - key, is_short, words, &of);
    return of;
}

/* Makes the parts of the weights of a vector of lanes, and sets scored->divisor to the divisor for
 * the largest weight (peak_of). Returns the sum of the parts. */
static __attribute__((noinline)) floats split_weights(struct scored *scored, float *words,
                                                      bool is_short)
{
    for (;;) {
        const struct summed of =
            is_short ? split_keys(scored, words, true) : split_keys(scored, words, false);
        const floats peak = peak_of(of.most);
        if (are_equal(peak, scored->divisor))
            return of.sum;
        scored->divisor = peak;
    }
}

/* Makes the parts of the weights for the vector of lanes that begins at `lane`. Updates the state,
 * and sets rescale and to->largest, for these lanes. */
static inline void softmax_lanes_in_groups(struct scored *scored, floats block_max,
                                           const struct state *st, int lane, bool is_short,
                                           float *rescale, const struct weight_parts *to)
{
    const floats old_max = load_aligned(st->row_max + lane);
    const floats new_max = max_without_nan(ceil_v(block_max), old_max);
    scored->subtrahend = finite_max(new_max);
    scored->divisor = peak_of(exp2_v(block_max - scored->subtrahend));
    const floats factor = exp2_v(old_max - scored->subtrahend);
    const floats sum = split_weights(scored, to->words + lane, is_short);
    const floats old_sum = load_aligned(st->row_sum + lane) * factor;
    store_aligned(st->row_max + lane, new_max);
    store_aligned(st->row_sum + lane, fma_v(sum, scored->divisor, old_sum));
    store_aligned(rescale + lane, factor);
    store_aligned(to->largest + lane, scored->divisor);
}

static inline __attribute__((always_inline)) void scale_lanes(float *s, int lanes, int keys,
                                                              const struct scaling *scaling,
                                                              floats block_max[VECTORS],
                                                              const bool masked)
{
    const int vectors = lanes / VECTOR;
    const int32_t *const visible = scaling->visible;
    const float scale_log2 = scaling->scale_log2;
    if (vectors == VECTORS)
        scale_panel(s, keys, visible, scale_log2, block_max, VECTORS, masked);
    else if (VECTORS > 3 && vectors == 3)
        scale_panel(s, keys, visible, scale_log2, block_max, 3, masked);
    else if (vectors == 2)
        scale_panel(s, keys, visible, scale_log2, block_max, 2, masked);
    else
        scale_panel(s, keys, visible, scale_log2, block_max, 1, masked);
}

static void scale(float *s, int lanes, int keys, const struct scaling *scaling)
{
    require_built(TYPE_BF16);
    floats block_max[VECTORS];
    if (scaling->visible)
        scale_lanes(s, lanes, keys, scaling, block_max, true);
    else
        scale_lanes(s, lanes, keys, scaling, block_max, false);
    for (int j = 0; j < lanes / VECTOR; j++)
        store_aligned(scaling->maxima + j * VECTOR, block_max[j]);
}

static void softmax(float *t, int lanes, int keys, const float *maxima, const struct state *st,
                    bool is_short, float *rescale, const struct weight_parts *to)
{
    require_built(TYPE_BF16);
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        struct scored scored = {.t = t + lane, .lanes = lanes, .keys = keys};
        softmax_lanes_in_groups(&scored, load_aligned(maxima + lane), st, lane, is_short, rescale,
                                to);
    }
}

#endif
