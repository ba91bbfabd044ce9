/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of 32 products of bf16 in plain C: the entries of struct grouped_kernels, with words that
 * are binary32. These functions are built without auto-vectorization, like tiles.c.
 */
#include "kernels/scalar/scalar.h"

/* Returns element i of a row as binary32, or 0 if its magnitude is less than LEAST_FACTOR. */
static float large_element(const void *row, int64_t i)
{
    const float x = float_from_bf16(((const uint16_t *)row)[i]);
    return fabsf(x) < LEAST_FACTOR ? 0.0f : x;
}

static void pack_row(const void *row, int64_t n, float *words)
{
    require_built(TYPE_BF16);
    for (int64_t i = 0; i < whole_quads(n); i++)
        words[i] = i < n ? large_element(row, i) : 0.0f;
}

static void pack_group(const void *const row[GROUP_PRODUCTS], int keys, int64_t n, float *words)
{
    require_built(TYPE_BF16);
    for (int i = 0; i < keys; i++)
        for (int64_t c = 0; c < n; c++)
            words[i * n + c] = row[i] ? large_element(row[i], c) : 0.0f;
}

/* Returns the sum of a group of `count` products of x and y. The words of x are x_stride floats
 * apart. The words of y are y_stride floats apart. */
static float group_sum(const float *x, int64_t x_stride, const float *y, int64_t y_stride,
                       int64_t count)
{
    float even = 0.0f, odd = 0.0f;
    for (int64_t i = 0; i < count; i += 2) {
        even = fma_once(x[i * x_stride], y[i * y_stride], even);
        odd = fma_once(x[(i + 1) * x_stride], y[(i + 1) * y_stride], odd);
    }
    return even + odd;
}

static int64_t count_of_group(int64_t left)
{
    return left < GROUP_PRODUCTS ? left : GROUP_PRODUCTS;
}

static void scale(float *s, int lanes, int keys, const struct scaling *scaling)
{
    const int32_t *const visible = scaling->visible;
    require_built(TYPE_BF16);
    for (int lane = 0; lane < lanes; lane++) {
        float most = -INFINITY;
        for (int key = 0; key < keys; key++) {
            float *const t = s + key * lanes + lane;
            *t = !visible || key < visible[lane] ? *t * scaling->scale_log2 : -INFINITY;
            most = *t > most ? *t : most;
        }
        scaling->maxima[lane] = most;
    }
}

static void scores(const float *q_t, int lanes, int rows, const struct rows *k, int keys,
                   const struct scaling *scaling, float *s)
{
    require_built(TYPE_BF16);
    (void)rows;
    for (int key = 0; key < keys; key++) {
        const float *const row = (const float *)(const void *)(k->first + key * k->stride);
        for (int lane = 0; lane < lanes; lane++) {
            float sum = 0.0f;
            for (int64_t d = 0; d < k->dim; d += GROUP_PRODUCTS)
                sum += group_sum(q_t + d * lanes + lane, lanes, row + d, 1,
                                 count_of_group(k->dim - d));
            s[key * lanes + lane] = sum;
        }
    }
    if (scaling)
        scale(s, lanes, keys, scaling);
}

/* Returns the largest weight of a lane, at least LEAST_PEAK and at most 1. A NaN does not count. */
static float largest_of(const float *p, int lanes, int keys)
{
    float largest = LEAST_PEAK;
    for (int key = 0; key < keys; key++)
        largest = p[key * lanes] > largest ? p[key * lanes] : largest;
    return largest < 1.0f ? largest : 1.0f;
}

/* Splits p, a weight divided by the largest weight, into two parts. If is_short, makes only the
 * high part. Returns the sum of the parts. */
static float split_weight(float p, bool is_short, float *high, float *low)
{
    p = p < LEAST_WEIGHT ? 0.0f : p;
    *high = float_from_bf16(bf16_from_float(p));
    if (is_short)
        return *high;
    *low = float_from_bf16(bf16_from_float(p - *high));
    return *high + *low;
}

/* Divides the weights p of each lane by the number that largest_of returns. Writes this number and
 * the parts of the quotients into *to. Updates row_sum. */
static void split_weights(const float *p, int lanes, int keys, bool is_short, const float *rescale,
                          float *row_sum, const struct weight_parts *to)
{
    float *const high = to->words, *const low = high + KEY_BLOCK * lanes;
    for (int lane = 0; lane < lanes; lane++) {
        const float largest = largest_of(p + lane, lanes, keys), factor = 1.0f / largest;
        float sum = 0.0f;
        for (int at = lane; at < keys * lanes; at += lanes)
            sum += split_weight(p[at] * factor, is_short, &high[at], &low[at]);
        for (int at = keys * lanes + lane; at < whole_quads(keys) * lanes; at += lanes) {
            high[at] = 0.0f;
            low[at] = 0.0f;
        }
        to->largest[lane] = largest;
        row_sum[lane] = fma_once(sum, largest, row_sum[lane] * rescale[lane]);
    }
}

static void softmax(float *t, int lanes, int keys, const float *maxima, const struct state *st,
                    bool is_short, float *rescale, const struct weight_parts *to)
{
    float unused[MAX_LANES] = {0.0f};
    const struct state weighed = {.row_max = st->row_max, .row_sum = unused};
    require_built(TYPE_BF16);
    (void)maxima; /* attnkit_scalar.softmax computes the maxima itself */
    attnkit_scalar.softmax(t, lanes, keys, NULL, 1.0f, &weighed, rescale);
    split_weights(t, lanes, keys, is_short, rescale, st->row_sum, to);
}

/* Returns the sum over the keys of the products of one lane of `parts` and one column of V. */
static float column_sum(const float *parts, int lanes, const struct rows *v, int64_t c, int keys,
                        bool is_short)
{
    const int64_t v_stride = v->stride / (ptrdiff_t)sizeof(float);
    const float *const column = (const float *)(const void *)v->first + c;
    const float *const low = parts + KEY_BLOCK * lanes;
    float sum = 0.0f;
    for (int key = 0; key < keys; key += GROUP_PRODUCTS) {
        const int64_t count = count_of_group(whole_quads(keys) - key);
        const float *const values = column + key * v_stride;
        sum += group_sum(parts + key * lanes, lanes, values, v_stride, count);
        if (!is_short)
            sum += group_sum(low + key * lanes, lanes, values, v_stride, count);
    }
    return sum;
}

static void weighted_v(const float *parts, int lanes, int rows, const float *largest,
                       const float *rescale, const struct rows *v, int keys, bool is_short,
                       float *o)
{
    require_built(TYPE_BF16);
    (void)rows;
    for (int64_t c = 0; c < v->dim; c++)
        for (int lane = 0; lane < lanes; lane++) {
            const float sum = column_sum(parts + lane, lanes, v, c, keys, is_short);
            float *const to = o + c * lanes + lane;
            *to = fma_once(sum, largest[lane], rescale ? *to * rescale[lane] : 0.0f);
        }
}

const struct grouped_kernels attnkit_scalar_grouped = {
    .elements = 1,
    .pack_row = pack_row,
    .pack_group = pack_group,
    .scores = scores,
    .scale = scale,
    .softmax = softmax,
    .weighted_v = weighted_v,
};
