/* SPDX-License-Identifier: Apache-2.0
 *
 * The canonical order of ../README.md as one straight program: a row at a time, its visible keys
 * from the first to the last, no tiles, no masks, no packing. It shares with the kernels nothing
 * but the description of the problem and the two elementary functions.
 */
#include "reference.h"

#include <stdlib.h>

#include "../keys.h"
#include "../mask.h"
#include "scalar.h"

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

/* Steps 2 to 7 for the `keys` visible keys from `first` on, those of one block. */
static void add_block(const struct attention *a, int64_t batch, int64_t kv_head, int64_t first,
                      int keys, const struct buffers *b, float *row_max, float *row_sum)
{
    float t[KEY_BLOCK];
    float new_max = *row_max;
    for (int j = 0; j < keys; j++) {
        float s = 0.0f;
        widen_key(a, &a->k, batch, kv_head, first + j, b->k);
        for (int64_t d = 0; d < a->head_dim; d++)
            s = fmaf(b->q[d], b->k[d], s);
        t[j] = s * a->scale_log2;
        if (ceilf(t[j]) > new_max)
            new_max = ceilf(t[j]);
    }
    float sum = 0.0f;
    memset(b->column_sums, 0, (size_t)a->value_dim * sizeof *b->column_sums);
    for (int j = 0; j < keys; j++) {
        const float p = scalar_exp2(t[j] - finite_max(new_max));
        sum += p;
        widen_key(a, &a->v, batch, kv_head, first + j, b->v);
        for (int64_t c = 0; c < a->value_dim; c++)
            b->column_sums[c] = fmaf(p, b->v[c], b->column_sums[c]);
    }
    const float rescale = scalar_exp2(*row_max - finite_max(new_max));
    for (int64_t c = 0; c < a->value_dim; c++)
        b->chunk[c] = fmaf(b->chunk[c], rescale, b->column_sums[c]);
    *row_sum = fmaf(*row_sum, rescale, sum);
    *row_max = new_max;
}

/* Step 8: chunk into total. */
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

void attnkit_reference_row(const struct attention *a, int64_t batch, int64_t kv_head, int64_t row,
                           float *out, float *lse)
{
    const int64_t end = visible_end(a, batch, row / a->group);
    const struct buffers b = new_buffers(a);
    float total_max = -INFINITY, total_sum = 0.0f, chunk_max, chunk_sum;
    const struct state total = {&total_max, &total_sum, b.total};
    const struct state chunk = {&chunk_max, &chunk_sum, b.chunk};
    attnkit_scalar_widen(a->q_type, q_row(a, place_of_row(a, batch, kv_head, row)), NULL, 0,
                         a->head_dim, b.q);

    for (int64_t first = 0; first < end; first += CHUNK_KEYS) {
        chunk_max = -INFINITY;
        chunk_sum = 0.0f;
        memset(b.chunk, 0, (size_t)a->value_dim * sizeof *b.chunk);
        const int64_t chunk_end = smaller(first + CHUNK_KEYS, end);
        for (int64_t key = first; key < chunk_end; key += KEY_BLOCK)
            add_block(a, batch, kv_head, key, (int)smaller(KEY_BLOCK, end - key), &b, &chunk_max,
                      &chunk_sum);
        fold_chunk(total, chunk, a->value_dim);
    }
    for (int64_t c = 0; c < a->value_dim; c++)
        out[c] = b.total[c] / (total_sum == 0.0f ? 1.0f : total_sum) + 0.0f;
    if (lse)
        *lse = scalar_lse(total_max, total_sum);
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
