/* SPDX-License-Identifier: Apache-2.0
 *
 * The canonical order of ../README.md as one straight program: a row at a time, its visible keys
 * from the first to the last, each looked at by itself, no tiles, no packing. It shares with the
 * kernels nothing but the description of the problem, the elementary functions and the random words
 * of dropout.
 */
#include "kernels/scalar/reference.h"

#include <stdlib.h>

#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"
#include "kernels/scalar/scalar.h"

/* What a row is worked out with, in floats of one piece of memory. */
struct buffers {
    float *total, *chunk; /* [value_dim], of the states */
    float *column_sums;   /* [value_dim], of the block */
    float *q, *k, *v;     /* one row each */
};

static struct buffers new_buffers(const struct attention *a)
{
    struct buffers b;
    b.total = calloc((size_t)(2 * a->head_dim + 4 * a->value_dim), sizeof *b.total);
    b.chunk = b.total + a->value_dim;
    b.column_sums = b.chunk + a->value_dim;
    b.v = b.column_sums + a->value_dim;
    b.q = b.v + a->value_dim;
    b.k = b.q + a->head_dim;
    return b;
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

/* Element d of key i of a tile. */
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

static float bias_at(const struct mask *m, struct place place, int64_t key)
{
    const char *const row = mask_row(m, place);
    switch (m->type) {
    case TYPE_F16:
        return float_from_f16(half_at(row, key));
    case TYPE_BF16:
        return float_from_bf16(half_at(row, key));
    default:
        return float_at(row, key);
    }
}

static bool is_in_window(const struct extras *x, int64_t first_key, int64_t position, int64_t key)
{
    const __int128_t distance = (__int128_t)key - position;
    return first_key + key < x->keep_first || ((x->left == INT64_MAX || -distance <= x->left) &&
                                               (!x->has_right || distance <= x->right));
}

static bool is_same_document(const struct attention *a, struct place place, int64_t key)
{
    const int64_t first =
        a->kv_starts.data ? int_at(a->kv_starts, place.batch) : place.batch * a->kv_room;
    return a->extras.q_docs[place.outer * a->q_room + place.row] == a->extras.kv_docs[first + key];
}

/* Whether a row sees a key: all that may keep it from that, one after the other. */
static bool is_seen(const struct attention *a, struct place place, int64_t key)
{
    const struct extras *const x = &a->extras;
    const int64_t position = q_offset(a, place.batch) + place.position;
    if (a->causal && key > position)
        return false;
    if (x->window && !is_in_window(x, a->first_key, position, key))
        return false;
    if (x->q_docs && !is_same_document(a, place, key))
        return false;
    if (x->bytes.first &&
        (key >= x->bytes.columns || (mask_row(&x->bytes, place)[key] != 0) == x->bytes.ignores))
        return false;
    if (x->bits.first && (key >= x->bits.columns ||
                          (mask_row(&x->bits, place)[key / 8] >> key % 8 & 1) == x->bits.ignores))
        return false;
    return !x->bias.first || (key < x->bias.columns && bias_at(&x->bias, place, key) != -INFINITY);
}

/* What is added to a score: in log2 unit and slope are what they are times log2 e. */
static float bias_of(const struct attention *a, struct place place, int64_t key, bool in_log2)
{
    const struct extras *const x = &a->extras;
    const __int128_t distance = (__int128_t)key - q_offset(a, place.batch) - place.position;
    float bias = 0.0f;
    if (x->bias.first) {
        const float given = bias_at(&x->bias, place, key);
        bias = (given < -0x1p126f ? -0x1p126f : given) * (in_log2 ? (float)LOG2_E : 1.0f);
    }
    if (x->slopes) {
        const float slope = x->slopes[place.head];
        bias += (in_log2 ? (float)(slope * LOG2_E) : slope) * (float)distance;
        bias = bias < -FLT_MAX ? -FLT_MAX : bias;
    }
    return bias;
}

/* Step 2. */
static float dot(const struct attention *a, int64_t kv_head, struct place place, int64_t key,
                 const struct buffers *b)
{
    float s = 0.0f;
    widen_key(a, &a->k, place.batch, kv_head, key, b->k);
    for (int64_t d = 0; d < a->head_dim; d++)
        s = fmaf(b->q[d], b->k[d], s);
    return s;
}

/* The score of a key as the softmax takes it, in log2. */
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

/* Steps 2 to 8 for the visible keys from `first` to `end`, of one block. */
static void add_block(const struct attention *a, int64_t kv_head, struct place place, int64_t first,
                      int64_t end, const struct buffers *b, float *row_max, float *row_sum)
{
    int64_t key[KEY_BLOCK];
    float t[KEY_BLOCK];
    float new_max = *row_max;
    int keys = 0;
    for (int64_t j = first; j < end; j++) {
        if (!is_seen(a, place, j))
            continue;
        key[keys] = j;
        t[keys] = log2_score(a, place, j, dot(a, kv_head, place, j, b));
        if (ceilf(t[keys]) > new_max)
            new_max = ceilf(t[keys]);
        keys++;
    }
    float sum = 0.0f;
    memset(b->column_sums, 0, (size_t)a->value_dim * sizeof *b->column_sums);
    for (int i = 0; i < keys; i++) {
        const float p = scalar_exp2(t[i] - finite_max(new_max));
        const float weight = a->extras.drops ? p * keep_factor(a, place, key[i]) : p;
        sum += p;
        widen_key(a, &a->v, place.batch, kv_head, key[i], b->v);
        for (int64_t c = 0; c < a->value_dim; c++)
            b->column_sums[c] = fmaf(weight, b->v[c], b->column_sums[c]);
    }
    const float rescale = scalar_exp2(*row_max - finite_max(new_max));
    for (int64_t c = 0; c < a->value_dim && keys > 0; c++)
        b->chunk[c] = fmaf(b->chunk[c], rescale, b->column_sums[c]);
    if (keys > 0)
        *row_sum = fmaf(*row_sum, rescale, sum);
    *row_max = new_max;
}

/* Step 9: chunk into total. */
static void fold_chunk(struct state total, struct state chunk, int64_t value_dim)
{
    const float new_max = *chunk.row_max > *total.row_max ? *chunk.row_max : *total.row_max;
    const float a = scalar_exp2(*total.row_max - finite_max(new_max));
    const float b = scalar_exp2(*chunk.row_max - finite_max(new_max));
    *total.row_sum = fmaf(*total.row_sum, a, *chunk.row_sum * b);
    for (int64_t c = 0; c < value_dim; c++)
        total.out[c] = fmaf(total.out[c], a, chunk.out[c] * b);
    *total.row_max = new_max;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The sink as a state of no columns, folded in last. */
static void fold_sink(const struct attention *a, struct place place, struct state total,
                      struct state chunk)
{
    const float t = (float)(a->extras.sinks[place.head] * LOG2_E);
    const bool counts = t < INFINITY; /* NaN does not */
    *chunk.row_max = counts ? ceilf(t) : 0.0f;
    *chunk.row_sum = counts ? scalar_exp2(t - finite_max(*chunk.row_max)) : NAN;
    memset(chunk.out, 0, (size_t)a->value_dim * sizeof *chunk.out);
    fold_chunk(total, chunk, a->value_dim);
}

/* One entry of weights out. */
static float weight_of(const struct attention *a, int64_t kv_head, struct place place, int64_t key,
                       struct state total, const struct buffers *b)
{
    const struct extras *const x = &a->extras;
    const bool seen = key < sequence_keys(a, place.batch) && is_seen(a, place, key);
    const float divisor = *total.row_sum == 0.0f ? 1.0f : *total.row_sum;
    if (x->weights_kind == WEIGHTS_SOFTMAX && !seen)
        return 0.0f;
    if (key >= sequence_keys(a, place.batch) || (x->weights_kind == WEIGHTS_BIASED && !seen))
        return -INFINITY;
    const float s = dot(a, kv_head, place, key, b);
    if (x->weights_kind == WEIGHTS_SOFTMAX)
        return scalar_exp2(log2_score(a, place, key, s) - finite_max(*total.row_max)) / divisor +
               0.0f;
    const bool capped = x->adjust.capped && x->weights_kind != WEIGHTS_SCALED;
    const float value = capped ? scalar_tanh(s * x->adjust.to_cap) : s;
    const float factor = capped ? x->cap : x->scale;
    if (x->weights_kind == WEIGHTS_BIASED && (x->bias.first || x->slopes))
        return fmaf(value, factor, bias_of(a, place, key, false)) + 0.0f;
    return value * factor + 0.0f;
}

static void write_weights(const struct attention *a, int64_t kv_head, struct place place,
                          struct state total, const struct buffers *b)
{
    char *const row = a->extras.weights + place_offset(a->extras.weights_stride, place);
    for (int64_t key = 0; key < a->kv_len; key++) {
        const float weight = weight_of(a, kv_head, place, key, total, b);
        memcpy(row + key * (int64_t)sizeof weight, &weight, sizeof weight);
    }
}

void attnkit_reference_row(const struct attention *a, int64_t batch, int64_t kv_head, int64_t row,
                           float *out, float *lse)
{
    const int64_t end = sequence_keys(a, batch);
    const struct place place = place_of_row(a, batch, kv_head, row);
    const struct buffers b = new_buffers(a);
    float total_max = -INFINITY, total_sum = 0.0f, chunk_max, chunk_sum;
    const struct state total = {&total_max, &total_sum, b.total};
    const struct state chunk = {&chunk_max, &chunk_sum, b.chunk};
    attnkit_scalar_widen(a->q_type, q_row(a, place), NULL, 0, a->head_dim, b.q);

    for (int64_t first = 0; first < end; first += CHUNK_KEYS) {
        chunk_max = -INFINITY;
        chunk_sum = 0.0f;
        memset(b.chunk, 0, (size_t)a->value_dim * sizeof *b.chunk);
        const int64_t chunk_end = smaller(first + CHUNK_KEYS, end);
        for (int64_t key = first; key < chunk_end; key += KEY_BLOCK)
            add_block(a, kv_head, place, key, smaller(key + KEY_BLOCK, end), &b, &chunk_max,
                      &chunk_sum);
        fold_chunk(total, chunk, a->value_dim);
    }
    if (a->extras.sinks)
        fold_sink(a, place, total, chunk);
    for (int64_t c = 0; c < a->value_dim; c++)
        out[c] = b.total[c] / (total_sum == 0.0f ? 1.0f : total_sum) + 0.0f;
    if (lse)
        *lse = scalar_lse(total_max, total_sum);
    if (a->extras.weights)
        write_weights(a, kv_head, place, total, &b);
    free(b.total);
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
