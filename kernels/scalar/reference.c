/* SPDX-License-Identifier: Apache-2.0
 *
 * The canonical order of ../README.md as one straight program: a row at a time, with one visible
 * key after the other, without tiles and packing. The reference and the kernels share only the
 * description of the problem, the addresses of rows, conversions, elementary functions, the scales
 * of integers and the factors of dropout.
 */
#include "kernels/scalar/reference.h"

#include <stdlib.h>

#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"
#include "kernels/integers.h"
#include "kernels/scalar/scalar.h"

/* The buffers for one row. */
struct buffers {
    double *total;      /* [value_dim], o of the total, over the chunks that have been folded */
    double *exact;      /* [value_dim], o of a chunk, as it will be folded into the total */
    float *chunk;       /* [value_dim], o of a chunk */
    float *column_sums; /* [value_dim], sums of the block */
    float *q, *k, *v;   /* one row of each */
    float *halves; /* [2][value_dim], with groups of products: sums over keys of even index, and
                    * over keys of odd index */
    int64_t key[KEY_BLOCK];  /* the seen keys of the block */
    float p[KEY_BLOCK];      /* the weights of these keys, before dropout: the terms of l */
    float weight[KEY_BLOCK]; /* the weights of these keys, after dropout: the factors of V; with
                                groups of products the high parts of p */
};

static void new_buffers(const struct attention *a, struct buffers *b)
{
    b->total = calloc((size_t)(2 * a->value_dim), sizeof *b->total);
    b->exact = b->total + a->value_dim;
    b->chunk = calloc((size_t)(2 * a->head_dim + 5 * a->value_dim), sizeof *b->chunk);
    b->column_sums = b->chunk + a->value_dim;
    b->v = b->column_sums + a->value_dim;
    b->q = b->v + a->value_dim;
    b->k = b->q + a->head_dim;
    b->halves = b->k + a->head_dim;
}

static void free_buffers(const struct buffers *b)
{
    free(b->total);
    free(b->chunk);
}

static uint16_t half_at(const char *halves, int64_t i)
{
    uint16_t half;
    memcpy(&half, halves + i * (int64_t)sizeof half, sizeof half);
    return half;
}

static float float_at(const void *floats, int64_t i)
{
    float x;
    memcpy(&x, (const char *)floats + i * (int64_t)sizeof x, sizeof x);
    return x;
}

/* Returns element d of key i of a tile. */
static float element_in_tile(const struct cache *c, struct key_row tile, int64_t d, int64_t i)
{
    const int64_t at = d * TILE_KEYS + i;
    const char *const block = tile.data + d / Q8_BLOCK * TILE_KEYS * Q8_BLOCK_BYTES;
    const int64_t in_block = TILE_KEYS * (int64_t)sizeof(uint16_t) + at % (Q8_BLOCK * TILE_KEYS);
    switch (c->type) {
    case TYPE_F16:
        return float_from_f16(half_at(tile.data, at));
    case TYPE_BF16:
        return float_from_bf16(half_at(tile.data, at));
    case TYPE_I8:
        return (float)(int8_t)tile.data[at] *
               float_at(tile.scales, d / c->scale_group * TILE_KEYS + i);
    case TYPE_Q8_0:
        return (float)(int8_t)block[in_block] * float_from_f16(half_at(block, i));
    default:
        return float_at(tile.data, at);
    }
}

static void widen_key(const struct attention *a, const struct cache *c, int64_t batch,
                      int64_t kv_head, int64_t key, float *out)
{
    const struct key_row row = key_row(a, c, batch, kv_head, key);
    if (!c->tiled)
        attnkit_scalar_widen(c->type, row.data, row.scales, c->scale_group, c->dim, out);
    for (int64_t d = 0; d < c->dim && c->tiled; d++)
        out[d] = element_in_tile(c, row, d, key % TILE_KEYS);
}

static const char *mask_row(const struct mask *m, struct place place)
{
    return m->first + place_offset(m->stride, place);
}

static float bias_at(const struct mask *m, struct place place, int64_t column)
{
    const char *const row = mask_row(m, place);
    switch (m->type) {
    case TYPE_F16:
        return float_from_f16(half_at(row, column));
    case TYPE_BF16:
        return float_from_bf16(half_at(row, column));
    default:
        return float_at(row, column);
    }
}

static bool is_in_window(const struct extras *x, int64_t first_key, int64_t position, int64_t key)
{
    const __int128_t distance = (__int128_t)key - position;
    return first_key + key < x->keep_first || ((x->left == INT64_MAX || -distance <= x->left) &&
                                               (!x->has_right || distance <= x->right));
}

static bool is_same_document(const struct attention *a, struct place place, int64_t column)
{
    const int64_t first =
        a->kv_starts.data ? int_at(a->kv_starts, place.batch) : place.batch * a->kv_room;
    return a->extras.q_docs[place.outer * a->q_room + place.row] ==
           a->extras.kv_docs[first + column];
}

/* Returns the column of masks that belongs to a key, or a negative number if the key has no
 * cell. */
static int64_t column_of(const struct attention *a, int64_t key)
{
    return has_cells(a) ? a->cells.table->cell[key] : key;
}

/* Returns whether a row sees a key of its sequence. Checks everything that may hide the key, one
 * thing after the other. Lengths are not checked, because the caller asks only for keys within the
 * length of the sequence. */
static bool is_seen(const struct attention *a, struct place place, int64_t key)
{
    const struct extras *const x = &a->extras;
    const int64_t column = column_of(a, key);
    const int64_t position = q_offset(a, place.batch) + place.position;
    if (column < 0 || (a->causal && key > position))
        return false;
    if (x->window && !is_in_window(x, first_key_of(a, place.batch), position, key))
        return false;
    if (x->q_docs && !is_same_document(a, place, column))
        return false;
    if (x->bytes.first && (column >= x->bytes.columns ||
                           (mask_row(&x->bytes, place)[column] != 0) == x->bytes.ignores))
        return false;
    if (x->bits.first &&
        (column >= x->bits.columns ||
         (mask_row(&x->bits, place)[column / 8] >> column % 8 & 1) == x->bits.ignores))
        return false;
    return !x->bias.first ||
           (column < x->bias.columns && bias_at(&x->bias, place, column) != -INFINITY);
}

/* Returns the number that is added to a score. If in_log2, the factors of the head are multiplied
 * by log2 e.
 */
static float bias_of(const struct attention *a, struct place place, int64_t key, bool in_log2)
{
    const struct extras *const x = &a->extras;
    const __int128_t distance = (__int128_t)key - q_offset(a, place.batch) - place.position;
    float bias = 0.0f;
    if (x->bias.first) {
        const float scale = x->bias_scales ? x->bias_scales[place.head] : 1.0f;
        const float least = -0x1p126f * (in_log2 ? (float)LOG2_E : 1.0f);
        bias = bias_at(&x->bias, place, column_of(a, key)) *
               (in_log2 ? (float)(scale * LOG2_E) : scale);
        bias = bias < least ? least : bias;
    }
    if (x->slopes) {
        const float slope = x->slopes[place.head];
        bias += (in_log2 ? (float)(slope * LOG2_E) : slope) * (float)distance;
        bias = bias < -FLT_MAX ? -FLT_MAX : bias;
    }
    return bias;
}

/* --- Step 16: integers ---------------------------------------------------------------------- */

/* A group of numbers as integers with a common scale. */
struct integer_group {
    int32_t n[KEY_BLOCK];
    float scale;
};

/* Rounds `count` numbers, at most KEY_BLOCK. */
static void round_numbers(const float *x, int count, struct integer_group *group)
{
    uint32_t largest = 0;
    for (int i = 0; i < count; i++)
        largest = magnitude_bits(x[i]) > largest ? magnitude_bits(x[i]) : largest;
    const struct integer_scale s = integer_scale_of(largest);
    group->scale = s.scale;
    for (int i = 0; i < count; i++)
        group->n[i] = isnan(s.scale) ? 0 : (int32_t)rintf(x[i] * s.inverse);
}

/* Copies the 32 integers of a key from element d on. Returns their scale. */
static float block_of_k(const struct attention *a, int64_t batch, int64_t kv_head, int64_t key,
                        int64_t d, int8_t integers[Q8_BLOCK])
{
    const struct cache *const c = &a->k;
    const struct key_row row = key_row(a, c, batch, kv_head, key);
    const int64_t keys = c->tiled ? TILE_KEYS : 1, at = c->tiled ? key % TILE_KEYS : 0;
    const bool is_i8 = c->type == TYPE_I8;
    const char *const block = row.data + keys * (is_i8 ? d : d / Q8_BLOCK * Q8_BLOCK_BYTES);
    const char *const bytes = block + (is_i8 ? 0 : keys * (int64_t)sizeof(uint16_t));
    for (int i = 0; i < Q8_BLOCK; i++)
        integers[i] = (int8_t)bytes[i * keys + at];
    return is_i8 ? float_at(row.scales, d / c->scale_group * keys + at)
                 : float_from_f16(half_at(block, at));
}

/* Returns the block of 32 integers of V that has element i of a row. Sets *scale to the scale of
 * the block. */
static const char *block_of_v(const struct attention *a, int64_t batch, int64_t kv_head,
                              int64_t key, int64_t i, float *scale)
{
    const struct key_row row = key_row(a, &a->v, batch, kv_head, key);
    if (a->v.type == TYPE_I8) {
        *scale = float_at(row.scales, i / a->v.scale_group);
        return row.data + i / Q8_BLOCK * Q8_BLOCK;
    }
    const char *const block = row.data + i / Q8_BLOCK * Q8_BLOCK_BYTES;
    *scale = float_from_f16(half_at(block, 0));
    return block + sizeof(uint16_t);
}

static float integer_dot(const struct attention *a, int64_t kv_head, struct place place,
                         int64_t key, const struct buffers *b)
{
    float s = 0.0f;
    for (int64_t d = 0; d < a->head_dim; d += Q8_BLOCK) {
        struct integer_group q;
        int8_t k[Q8_BLOCK];
        int64_t sum = 0;
        const float scale = block_of_k(a, place.batch, kv_head, key, d, k);
        round_numbers(b->q + d, Q8_BLOCK, &q);
        for (int i = 0; i < Q8_BLOCK; i++)
            sum += (int64_t)q.n[i] * k[i];
        s = fmaf((float)sum, q.scale * scale, s);
    }
    return s;
}

/* Sets b->column_sums to the weighted sums of V over the first `keys` keys of b->key. */
static void add_integers(const struct attention *a, int64_t batch, int64_t kv_head, int keys,
                         struct buffers *b)
{
    for (int64_t c = 0; c < a->value_dim; c++) {
        float weight[KEY_BLOCK], scale;
        struct integer_group w;
        int64_t sum = 0;
        for (int i = 0; i < keys; i++) {
            block_of_v(a, batch, kv_head, b->key[i], c, &scale);
            weight[i] = b->weight[i] * scale;
        }
        round_numbers(weight, keys, &w);
        for (int i = 0; i < keys; i++)
            sum += (int64_t)w.n[i] *
                   (int8_t)block_of_v(a, batch, kv_head, b->key[i], c, &scale)[c % Q8_BLOCK];
        b->column_sums[c] = (float)sum * w.scale;
    }
}

/* --- Step 17: groups of products of bf16 ------------------------------------------------------ */

static float large_or_0(float x)
{
    return fabsf(x) < LEAST_FACTOR ? 0.0f : x;
}

static float grouped_dot(const struct attention *a, int64_t kv_head, struct place place,
                         int64_t key, const struct buffers *b)
{
    float s = 0.0f;
    widen_key(a, &a->k, place.batch, kv_head, key, b->k);
    for (int64_t first = 0; first < a->head_dim; first += GROUP_PRODUCTS) {
        float half[2] = {0.0f, 0.0f};
        for (int64_t d = first; d < first + GROUP_PRODUCTS && d < a->head_dim; d++)
            half[d % 2] = fmaf(large_or_0(b->q[d]), large_or_0(b->k[d]), half[d % 2]);
        s += half[0] + half[1];
    }
    return s;
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

/* Returns the bf16 nearest to x. */
static float nearest_bf16(float x)
{
    return float_from_bf16(bf16_from_float(x));
}

/* Divides the weights of the block's keys by the largest weight, but at least by LEAST_PEAK and at
 * most by 1. Splits the quotients into parts: b->weight gets the high parts, and b->p the sums of
 * both parts. Returns the divisor. */
static float split_weights(const struct attention *a, int keys, struct buffers *b)
{
    float largest = LEAST_PEAK;
    for (int i = 0; i < keys; i++)
        largest = larger(b->p[i], largest);
    largest = largest < 1.0f ? largest : 1.0f;
    const float factor = 1.0f / largest;
    for (int i = 0; i < keys; i++) {
        const float quotient = b->p[i] * factor, p = quotient < LEAST_WEIGHT ? 0.0f : quotient;
        b->weight[i] = nearest_bf16(p);
        b->p[i] = b->weight[i] + (a->short_weights ? 0.0f : nearest_bf16(p - b->weight[i]));
    }
    return largest;
}

/* Adds the products of one part of the weights and V to b->column_sums, for the keys first .. end -
 * 1 of b->key, which are the seen keys of a group. */
static void add_group(const struct attention *a, int64_t batch, int64_t kv_head, int first, int end,
                      bool is_low, struct buffers *b)
{
    memset(b->halves, 0, (size_t)(2 * a->value_dim) * sizeof *b->halves);
    for (int i = first; i < end; i++) {
        float *const half = b->halves + b->key[i] % 2 * a->value_dim;
        const float part = is_low ? b->p[i] - b->weight[i] : b->weight[i];
        widen_key(a, &a->v, batch, kv_head, b->key[i], b->v);
        for (int64_t c = 0; c < a->value_dim; c++)
            half[c] = fmaf(part, large_or_0(b->v[c]), half[c]);
    }
    for (int64_t c = 0; c < a->value_dim; c++)
        b->column_sums[c] += b->halves[c] + b->halves[a->value_dim + c];
}

/* Adds the weighted sums of V over the first `keys` keys of b->key to b->column_sums. */
static void add_groups(const struct attention *a, int64_t batch, int64_t kv_head, int keys,
                       struct buffers *b)
{
    for (int first = 0, end = 0; first < keys; first = end) {
        while (end < keys && b->key[end] / GROUP_PRODUCTS == b->key[first] / GROUP_PRODUCTS)
            end++;
        add_group(a, batch, kv_head, first, end, false, b);
        if (!a->short_weights)
            add_group(a, batch, kv_head, first, end, true, b);
    }
}

/* --- The row ---------------------------------------------------------------------------------- */

/* Computes the score s_j of step 2. */
static float dot(const struct attention *a, int64_t kv_head, struct place place, int64_t key,
                 const struct buffers *b)
{
    float s = 0.0f;
    if (a->integers)
        return integer_dot(a, kv_head, place, key, b);
    if (a->grouped)
        return grouped_dot(a, kv_head, place, key, b);
    widen_key(a, &a->k, place.batch, kv_head, key, b->k);
    for (int64_t d = 0; d < a->head_dim; d++)
        s = fmaf(b->q[d], b->k[d], s);
    return s;
}

/* Returns the t_j of step 3 for a key. s is the s_j of step 2. */
static float log2_score(const struct attention *a, struct place place, int64_t key, float s)
{
    const struct extras *const x = &a->extras;
    const float capped = x->adjust.capped ? scalar_tanh(s * x->adjust.to_cap) : s;
    const float factor = x->adjust.capped ? x->adjust.factor : a->scale_log2;
    if (!x->bias.first && !x->slopes)
        return capped * factor;
    return fmaf(capped, factor, bias_of(a, place, key, true));
}

static float keep_factor(const struct attention *a, struct place place, int64_t key)
{
    float line[KEY_BLOCK];
    attnkit_keep_line(a, &attnkit_scalar, place, key / KEY_BLOCK * KEY_BLOCK, line);
    return line[key % KEY_BLOCK];
}

/* M and l of a row. */
struct softmax {
    float max;
    double sum;
};

/* Returns the factor by which sums are multiplied when the maximum changes from `max` to new_max.
 * If `max` is the t of a key, the result is the weight of this key. */
static float factor_of(float max, float new_max)
{
    return scalar_exp2(max - finite_max(new_max));
}

/* Computes the weights of the visible keys among the keys first .. end - 1 of one block: steps 2 to
 * 6, and dropout. Returns the number of visible keys. Raises *row_max to the new maximum. */
static int weigh_block(const struct attention *a, int64_t kv_head, struct place place,
                       int64_t first, int64_t end, struct buffers *b, float *row_max)
{
    float t[KEY_BLOCK];
    int keys = 0;
    for (int64_t j = first; j < end; j++) {
        if (!is_seen(a, place, j))
            continue;
        b->key[keys] = j;
        t[keys] = log2_score(a, place, j, dot(a, kv_head, place, j, b));
        *row_max = larger(ceilf(t[keys]), *row_max);
        keys++;
    }
    for (int i = 0; i < keys; i++) {
        b->p[i] = factor_of(t[i], *row_max);
        b->weight[i] = a->extras.drops ? b->p[i] * keep_factor(a, place, b->key[i]) : b->p[i];
    }
    return keys;
}

/* Returns l, or an element of o, of a chunk after a block has been added. `before` is the value
 * before the block, and `sum` is the sum over the block. `largest` is the number by which the
 * block's weights were divided in step 17. */
static float moved_sum(const struct attention *a, float before, float rescale, float sum,
                       float largest)
{
    return a->grouped ? fmaf(sum, largest, before * rescale) : fmaf(before, rescale, sum);
}

/* Does steps 2 to 8 for a block. */
static void add_block(const struct attention *a, int64_t kv_head, struct place place, int64_t first,
                      int64_t end, struct buffers *b, float *row_max, float *row_sum)
{
    const float before = *row_max;
    const int keys = weigh_block(a, kv_head, place, first, end, b, row_max);
    const float rescale = factor_of(before, *row_max);
    const float largest = a->grouped ? split_weights(a, keys, b) : 1.0f;
    float sum = 0.0f;
    memset(b->column_sums, 0, (size_t)a->value_dim * sizeof *b->column_sums);
    for (int i = 0; i < keys; i++) {
        sum += b->p[i];
        if (a->integers || a->grouped)
            continue;
        widen_key(a, &a->v, place.batch, kv_head, b->key[i], b->v);
        for (int64_t c = 0; c < a->value_dim; c++)
            b->column_sums[c] = fmaf(b->weight[i], b->v[c], b->column_sums[c]);
    }
    if (a->integers)
        add_integers(a, place.batch, kv_head, keys, b);
    if (a->grouped)
        add_groups(a, place.batch, kv_head, keys, b);
    if (keys == 0)
        return;
    for (int64_t c = 0; c < a->value_dim; c++)
        b->chunk[c] = moved_sum(a, b->chunk[c], rescale, b->column_sums[c], largest);
    *row_sum = moved_sum(a, *row_sum, rescale, sum, largest);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Does steps 2 to 8 for the chunk that begins at key `first`. Returns l of the chunk, and sets
 * *row_max to M and b->chunk to o of the chunk. */
static float add_chunk(const struct attention *a, int64_t kv_head, struct place place,
                       int64_t first, int64_t end, struct buffers *b, float *row_max)
{
    float row_sum = 0.0f;
    *row_max = -INFINITY;
    memset(b->chunk, 0, (size_t)a->value_dim * sizeof *b->chunk);
    for (int64_t key = first; key < end; key += KEY_BLOCK)
        add_block(a, kv_head, place, key, smaller(key + KEY_BLOCK, end), b, row_max, &row_sum);
    return row_sum;
}

/* Computes P / W of step 9 for all columns of a chunk, in b->exact. */
static void exact_mean(const struct attention *a, int64_t kv_head, struct place place,
                       int64_t first, int64_t end, struct buffers *b)
{
    float row_max = -INFINITY;
    double sum = 0.0;
    memset(b->exact, 0, (size_t)a->value_dim * sizeof *b->exact);
    for (int64_t block = first; block < end; block += KEY_BLOCK) {
        const float before = row_max;
        const int keys =
            weigh_block(a, kv_head, place, block, smaller(block + KEY_BLOCK, end), b, &row_max);
        const double rescale = (double)factor_of(before, row_max);
        for (int64_t c = 0; c < a->value_dim && keys > 0; c++)
            b->exact[c] *= rescale;
        sum *= keys > 0 ? rescale : 1.0;
        for (int i = 0; i < keys; i++) {
            sum += (double)b->p[i];
            widen_key(a, &a->v, place.batch, kv_head, b->key[i], b->v);
            for (int64_t c = 0; c < a->value_dim; c++)
                b->exact[c] += (double)b->weight[i] * (double)b->v[c];
        }
    }
    for (int64_t c = 0; c < a->value_dim; c++)
        b->exact[c] /= sum;
}

/* Sets b->exact to o of a chunk, as it will be folded into the total. Elements of o that are not
 * finite are computed again in binary64, if l is finite and the call uses neither integers nor
 * groups of products. */
static void settle_chunk(const struct attention *a, int64_t kv_head, struct place place,
                         int64_t first, int64_t end, struct buffers *b, float row_sum)
{
    bool finite = true;
    for (int64_t c = 0; c < a->value_dim; c++)
        finite &= isfinite(b->chunk[c]) != 0;
    const bool is_exact = !finite && isfinite(row_sum) && !a->integers && !a->grouped;
    if (is_exact)
        exact_mean(a, kv_head, place, first, end, b);
    for (int64_t c = 0; c < a->value_dim; c++)
        if (isfinite(b->chunk[c]) || !is_exact)
            b->exact[c] = (double)b->chunk[c];
        else
            b->exact[c] *= (double)row_sum;
}

/* Folds a chunk, whose o is in b->exact, into the total by step 9. */
static void fold_chunk(struct softmax *total, float chunk_max, float chunk_sum, int64_t value_dim,
                       struct buffers *b)
{
    const float new_max = larger(chunk_max, total->max);
    const double own = (double)factor_of(total->max, new_max);
    const double of_chunk = (double)factor_of(chunk_max, new_max);
    total->sum = fma(total->sum, own, (double)chunk_sum * of_chunk);
    for (int64_t c = 0; c < value_dim; c++)
        b->total[c] = fma(b->total[c], own, b->exact[c] * of_chunk);
    total->max = new_max;
}

/* Folds the sink into the total after the last chunk. The sink is a state whose o is 0. */
static void fold_sink(const struct attention *a, struct place place, struct softmax *total,
                      struct buffers *b)
{
    const float t = (float)(a->extras.sinks[place.head] * LOG2_E);
    const bool counts = t < INFINITY; /* false for NaN */
    const float max = counts ? ceilf(t) : 0.0f;
    memset(b->exact, 0, (size_t)a->value_dim * sizeof *b->exact);
    fold_chunk(total, max, counts ? factor_of(t, max) : NAN, a->value_dim, b);
}

/* Does step 11 for a column. */
static float result_of(const struct attention *a, double o, double sum)
{
    const float quotient = (float)(o / (sum == 0.0 ? 1.0 : sum));
    if (isinf(quotient) && isfinite(o) && !a->extras.drops)
        return copysignf(FLT_MAX, quotient);
    return plain_nan(quotient + 0.0f);
}

/* Returns one element of the weights or scores that a call writes as its weights. */
static float weight_of(const struct attention *a, int64_t kv_head, struct place place, int64_t key,
                       struct softmax total, const struct buffers *b)
{
    const struct extras *const x = &a->extras;
    const bool seen = is_seen(a, place, key);
    const float divisor = total.sum == 0.0 ? 1.0f : (float)total.sum;
    if (x->weights_kind == WEIGHTS_SOFTMAX && !seen)
        return 0.0f;
    if (x->weights_kind == WEIGHTS_BIASED && !seen)
        return -INFINITY;
    const float s = dot(a, kv_head, place, key, b);
    if (x->weights_kind == WEIGHTS_SOFTMAX)
        return factor_of(log2_score(a, place, key, s), total.max) / divisor + 0.0f;
    const bool capped = x->adjust.capped && x->weights_kind != WEIGHTS_SCALED;
    const float value = capped ? scalar_tanh(s * x->adjust.to_cap) : s;
    const float factor = capped ? x->cap : x->scale;
    if (x->weights_kind == WEIGHTS_BIASED && (x->bias.first || x->slopes))
        return fmaf(value, factor, bias_of(a, place, key, false)) + 0.0f;
    return value * factor + 0.0f;
}

static void write_weights(const struct attention *a, int64_t kv_head, struct place place,
                          struct softmax total, const struct buffers *b)
{
    char *const row = a->extras.weights + place_offset(a->extras.weights_stride, place);
    const float none = a->extras.weights_kind == WEIGHTS_SOFTMAX ? 0.0f : -INFINITY;
    for (int64_t column = 0; column < a->kv_len; column++)
        memcpy(row + column * (int64_t)sizeof none, &none, sizeof none);
    for (int64_t key = 0; key < sequence_keys(a, place.batch); key++) {
        if (column_of(a, key) < 0)
            continue;
        const float weight = plain_nan(weight_of(a, kv_head, place, key, total, b));
        memcpy(row + column_of(a, key) * (int64_t)sizeof weight, &weight, sizeof weight);
    }
}

/* --- Cells ------------------------------------------------------------------------------------
 */

/* A copy of the problem with a table of the keys of one batch entry. free_listed frees the table.
 */
struct listed {
    struct attention a;
    struct cell_table table;
};

static void list_cells(const struct attention *a, int64_t batch, struct listed *listed)
{
    const int64_t cells = a->kv_lens.data ? int_at(a->kv_lens, batch) : a->kv_len;
    int64_t smallest = INT64_MAX, largest = -1;
    *listed = (struct listed){*a, {.spans = calloc((size_t)a->batch, sizeof(struct key_span))}};
    listed->a.cells.table = &listed->table;
    for (int64_t cell = 0; cell < cells; cell++) {
        const int64_t index = int_at(a->cells.index, batch * a->cells.stride + cell);
        smallest = index >= 0 && index < smallest ? index : smallest;
        largest = index > largest ? index : largest;
    }
    struct key_span *const span = &listed->table.spans[batch];
    if (largest >= 0)
        *span = (struct key_span){smallest - smallest % CHUNK_KEYS, 0};
    span->keys = largest + 1 - span->first_key;
    listed->table.cell = malloc((size_t)(span->keys + 1) * sizeof *listed->table.cell);
    for (int64_t key = 0; key < span->keys; key++)
        listed->table.cell[key] = -1;
    for (int64_t cell = 0; cell < cells; cell++) {
        const int64_t index = int_at(a->cells.index, batch * a->cells.stride + cell);
        if (index >= 0)
            listed->table.cell[index - span->first_key] = (int32_t)cell;
    }
}

static void free_listed(const struct listed *listed)
{
    free(listed->table.spans);
    free(listed->table.cell);
}

static void attend_row(const struct attention *a, int64_t batch, int64_t kv_head, int64_t row,
                       float *out, float *lse)
{
    const int64_t end = sequence_keys(a, batch);
    const struct place place = place_of_row(a, batch, kv_head, row);
    struct softmax total = {-INFINITY, 0.0};
    struct buffers b;
    new_buffers(a, &b);
    attnkit_scalar_widen(a->q_type, q_row(a, place), NULL, 0, a->head_dim, b.q);

    for (int64_t first = 0; first < end; first += CHUNK_KEYS) {
        const int64_t chunk_end = smaller(first + CHUNK_KEYS, end);
        float max;
        const float sum = add_chunk(a, kv_head, place, first, chunk_end, &b, &max);
        settle_chunk(a, kv_head, place, first, chunk_end, &b, sum);
        fold_chunk(&total, max, sum, a->value_dim, &b);
    }
    if (a->extras.sinks)
        fold_sink(a, place, &total, &b);
    for (int64_t c = 0; c < a->value_dim; c++)
        out[c] = result_of(a, b.total[c], total.sum);
    if (lse)
        *lse = scalar_lse(total.max, (float)total.sum);
    if (a->extras.weights)
        write_weights(a, kv_head, place, total, &b);
    free_buffers(&b);
}

void attnkit_reference_row(const struct attention *a, int64_t batch, int64_t kv_head, int64_t row,
                           float *out, float *lse)
{
    struct listed listed;
    if (!has_cells(a)) {
        attend_row(a, batch, kv_head, row, out, lse);
        return;
    }
    list_cells(a, batch, &listed);
    attend_row(&listed.a, batch, kv_head, row, out, lse);
    free_listed(&listed);
}

void attnkit_reference(const struct attention *a)
{
    float *out = malloc((size_t)a->value_dim * sizeof *out);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t g = 0; g < a->kv_heads; g++)
            for (int64_t r = 0; r < sequence_rows(a, b) * a->group; r++) {
                const struct place place = place_of_row(a, b, g, r);
                attnkit_reference_row(a, b, g, r, out, a->lse ? lse_row(a, place) : NULL);
                attnkit_scalar_narrow(a->out_type, out, a->value_dim, 0, out_row(a, place), NULL);
            }
    free(out);
}
