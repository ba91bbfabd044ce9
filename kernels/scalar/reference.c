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

static const float *row_of(struct rows rows, int64_t key)
{
    return (const float *)(rows.first + key * rows.stride);
}

/* Steps 2 to 7 for the `keys` visible keys of one block. */
static void add_block(const float *q, struct rows k, struct rows v, int keys, float scale_log2,
                      float *row_max, float *row_sum, float *o)
{
    float t[KEY_BLOCK], p[KEY_BLOCK];
    float new_max = *row_max;
    for (int j = 0; j < keys; j++) {
        float s = 0.0f;
        for (int64_t d = 0; d < k.dim; d++)
            s = fmaf(q[d], row_of(k, j)[d], s);
        t[j] = s * scale_log2;
        if (ceilf(t[j]) > new_max)
            new_max = ceilf(t[j]);
    }
    float sum = 0.0f;
    for (int j = 0; j < keys; j++) {
        p[j] = scalar_exp2(t[j] - finite_max(new_max));
        sum += p[j];
    }
    const float rescale = scalar_exp2(*row_max - finite_max(new_max));
    for (int64_t c = 0; c < v.dim; c++) {
        float column = 0.0f;
        for (int j = 0; j < keys; j++)
            column = fmaf(p[j], row_of(v, j)[c], column);
        o[c] = fmaf(o[c], rescale, column);
    }
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
    const float *q = q_row(a, place_of_row(a, batch, kv_head, row));
    const int64_t end = visible_end(a, batch, row / a->group);
    float *o = calloc(2 * (size_t)a->value_dim, sizeof *o);
    float total_max = -INFINITY, total_sum = 0.0f, chunk_max, chunk_sum;
    const struct state total = {&total_max, &total_sum, o};
    const struct state chunk = {&chunk_max, &chunk_sum, o + a->value_dim};

    for (int64_t first = 0; first < end; first += CHUNK_KEYS) {
        chunk_max = -INFINITY;
        chunk_sum = 0.0f;
        memset(chunk.out, 0, (size_t)a->value_dim * sizeof *o);
        const int64_t chunk_end = smaller(first + CHUNK_KEYS, end);
        for (int64_t key = first; key < chunk_end; key += KEY_BLOCK)
            add_block(q, k_rows(a, batch, kv_head, key), v_rows(a, batch, kv_head, key),
                      (int)smaller(KEY_BLOCK, end - key), a->scale_log2, &chunk_max, &chunk_sum,
                      chunk.out);
        fold_chunk(total, chunk, a->value_dim);
    }
    for (int64_t c = 0; c < a->value_dim; c++)
        out[c] = o[c] / (total_sum == 0.0f ? 1.0f : total_sum) + 0.0f;
    if (lse)
        *lse = scalar_lse(total_max, total_sum);
    free(o);
}

void attnkit_reference(const struct attention *a)
{
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t g = 0; g < a->kv_heads; g++)
            for (int64_t r = 0; r < a->q_len * a->group; r++)
                attnkit_reference_row(a, b, g, r, out_row(a, place_of_row(a, b, g, r)),
                                      a->lse ? lse_row(a, place_of_row(a, b, g, r)) : NULL);
}
