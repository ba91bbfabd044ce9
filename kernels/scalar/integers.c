/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill with integers in plain C: the entries of struct integer_panel_kernels. Each word has two
 * integers of 16 bits, as in kernels/vectors/integers/panel_pairs.h. These functions are built
 * without auto-vectorization, like tiles.c.
 */
#include "kernels/integers.h"
#include "kernels/scalar/scalar.h"

enum { PAIRS = KEY_BLOCK / 2 };

static void pack_q(const float *const *rounded, int lanes, int64_t dim, float *q_t)
{
    for (int64_t i = 0; i < rounded_row_floats(dim); i++)
        for (int lane = 0; lane < lanes; lane++)
            memcpy(&q_t[i * lanes + lane], &rounded[lane][i], sizeof *q_t);
}

/* Returns the scale of the Q8_BLOCK elements of row i that begin at element d. */
static float scale_of(const struct key_rows *rows, int i, int64_t d)
{
    uint16_t half;
    if (is_i8(rows->type))
        return rows->scales[i][d / rows->scale_group];
    memcpy(&half, rows->row[i] + bytes_of(TYPE_Q8_0, d), sizeof half);
    return float_from_f16(half);
}

/* Stores a word of two integers. */
static void store_word(float *to, int low, int high)
{
    const uint32_t bits = (uint32_t)high << 16 | (uint16_t)low;
    memcpy(to, &bits, sizeof bits);
}

static int16_t low_of(const float *word)
{
    return (int16_t)bits_from_float(*word);
}

static int16_t high_of(const float *word)
{
    return (int16_t)(bits_from_float(*word) >> 16);
}

/* Makes the words of Q8_BLOCK elements of a row of K, in the order of round_row. */
static void widen_block(const int8_t *bytes, float *words)
{
    for (int i = 0; i < Q8_BLOCK; i += 4, words += 2) {
        store_word(words, bytes[i], bytes[i + 2]);
        store_word(words + 1, bytes[i + 1], bytes[i + 3]);
    }
}

static void pack_k(const struct key_rows *k, int first, int count, float *words)
{
    const int64_t blocks = k->dim / Q8_BLOCK;
    float *to = words + first * rounded_row_floats(k->dim);
    for (int i = first; i < first + count; i++, to += rounded_row_floats(k->dim))
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t d = b * Q8_BLOCK;
            to[b] = scale_of(k, i, d);
            widen_block((const int8_t *)k->row[i] + integers_in_row(k->type, d),
                        to + 2 * blocks + b * (Q8_BLOCK / 2));
        }
}

/* Returns the integer of column c of row i, or 0 if i is not less than `count`. */
static int byte_at(const struct key_rows *v, int i, int count, int64_t c)
{
    const int64_t in_block = c % Q8_BLOCK, at = integers_in_row(v->type, c - in_block) + in_block;
    return i < count ? (int8_t)v->row[i][at] : 0;
}

static void pack_v(const struct key_rows *v, int first, int count, float *words)
{
    float *const scales = words + PAIRS * v->dim;
    for (int i = first; i < first + count; i++)
        for (int64_t c = 0; c < v->dim; c += Q8_BLOCK)
            scales[c / Q8_BLOCK * KEY_BLOCK + i] = scale_of(v, i, c);
    for (int i = first; i < first + count; i += 2)
        for (int64_t c = 0; c < v->dim; c++)
            store_word(words + i / 2 * v->dim + c, byte_at(v, i, first + count, c),
                       byte_at(v, i + 1, first + count, c));
}

static void scores(const float *q_t, int lanes, const float *k, int keys, int64_t dim, float *s)
{
    require_built_integers();
    const int64_t blocks = dim / Q8_BLOCK;
    for (int key = 0; key < keys; key++, k += rounded_row_floats(dim))
        for (int lane = 0; lane < lanes; lane++) {
            const float *w = k + 2 * blocks, *q = q_t + 2 * blocks * lanes + lane;
            float score = 0.0f;
            for (int64_t b = 0; b < blocks; b++) {
                int32_t sum = 0;
                for (int i = 0; i < Q8_BLOCK / 2; i++, w++, q += lanes)
                    sum += low_of(q) * low_of(w) + high_of(q) * high_of(w);
                score = fma_once((float)sum, q_t[b * lanes + lane] * k[b], score);
            }
            s[key * lanes + lane] = score;
        }
}

/* Multiplies the weights of a lane by `scales`, and rounds these products to integers. `scales` has
 * the scale of each key for a block of columns. Returns the scale of the integers. */
static float round_weights(const float *p, int lanes, const float *scales, int keys, int32_t *n)
{
    uint32_t largest = 0;
    for (int key = 0; key < keys; key++) {
        const uint32_t bits = magnitude_bits(p[key * lanes] * scales[key]);
        largest = bits > largest ? bits : largest;
    }
    const struct integer_scale s = integer_scale_of(largest);
    for (int key = 0; key < keys; key++) {
        const float weight = p[key * lanes] * scales[key];
        n[key] = isnan(s.scale) ? 0 : (int32_t)rintf(weight * s.inverse);
    }
    return s.scale;
}

/* Returns the sum of the products of the integers `n` and a column of V. n[i] belongs to key
 * `first` + i of the words of V. */
static int32_t column_sum(const int32_t *n, const float *column, int64_t dim, int first, int keys)
{
    int32_t sum = 0;
    for (int key = 0; key < keys; key++) {
        const float *const word = column + (first + key) / 2 * dim;
        sum += n[key] * ((first + key) % 2 ? high_of(word) : low_of(word));
    }
    return sum;
}

static void weighted_v(const float *p, int lanes, const float *rescale, const float *v, int64_t dim,
                       int first, int keys, float *o, float *parts)
{
    require_built_integers();
    (void)parts;
    for (int lane = 0; lane < lanes; lane++)
        for (int64_t c = 0; c < dim; c += Q8_BLOCK) {
            const float *const scales = v + PAIRS * dim + c / Q8_BLOCK * KEY_BLOCK + first;
            int32_t n[KEY_BLOCK];
            const float scale = round_weights(p + lane, lanes, scales, keys, n);
            for (int64_t i = c; i < c + Q8_BLOCK; i++) {
                const float x = (float)column_sum(n, v + i, dim, first, keys) * scale;
                float *const to = o + i * lanes + lane;
                *to = rescale ? fma_once(*to, rescale[lane], x) : x;
            }
        }
}

const struct integer_panel_kernels attnkit_scalar_integer_panel = {
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .scores = scores,
    .weighted_v = weighted_v,
};
