/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles for many heads with few query rows and few keys. head_scores computes scores with heads in
 * the lanes. head_out computes the result of one head, out = (chain over keys of p * v) / divisor +
 * 0, with value columns in the lanes. p and divisor are fields of struct head_weights, and v is an
 * element of V. heads.c of kernels/attention calls both functions. The heads.c of an instruction
 * set includes this file.
 */
#ifndef ATTNKIT_VECTORS_HEADS_H
#define ATTNKIT_VECTORS_HEADS_H

#include "kernels/kernels.h"

enum {
    MAX_SIDE = LANES / VECTOR, /* most rows, and most keys, of a tile */
    MAX_COLUMNS = 4,           /* most vectors of value columns in a tile */
};

static inline __attribute__((always_inline)) void head_score_tile(const float *q_t,
                                                                  const float *k_t,
                                                                  int64_t head_dim, float *s,
                                                                  const int rows, const int keys)
{
    floats sum[MAX_SIDE][MAX_SIDE];
    for (int key = 0; key < keys; key++)
        for (int r = 0; r < rows; r++)
            sum[key][r] = broadcast(0.0f);
    for (int64_t d = 0; d < head_dim; d++, q_t += rows * VECTOR, k_t += keys * VECTOR)
        for (int key = 0; key < keys; key++)
            for (int r = 0; r < rows; r++)
                sum[key][r] = fma_v(load_aligned(k_t + key * VECTOR),
                                    load_aligned(q_t + r * VECTOR), sum[key][r]);
    for (int key = 0; key < keys; key++)
        for (int r = 0; r < rows; r++)
            store_aligned(s + (key * rows + r) * VECTOR, sum[key][r]);
}

static inline __attribute__((always_inline)) void head_score_rows(const float *q_t,
                                                                  const float *k_t, int keys,
                                                                  int64_t head_dim, float *s,
                                                                  const int rows)
{
    if (keys == 1)
        head_score_tile(q_t, k_t, head_dim, s, rows, 1);
    else if (keys == 2)
        head_score_tile(q_t, k_t, head_dim, s, rows, 2);
    else if (MAX_SIDE > 3 && keys == 3)
        head_score_tile(q_t, k_t, head_dim, s, rows, 3);
    else
        head_score_tile(q_t, k_t, head_dim, s, rows, MAX_SIDE);
}

void KERNEL(head_scores)(const float *q_t, const float *k_t, int rows, int keys, int64_t head_dim,
                         float *s)
{
    if (rows == 1)
        head_score_rows(q_t, k_t, keys, head_dim, s, 1);
    else if (rows == 2)
        head_score_rows(q_t, k_t, keys, head_dim, s, 2);
    else if (MAX_SIDE > 3 && rows == 3)
        head_score_rows(q_t, k_t, keys, head_dim, s, 3);
    else
        head_score_rows(q_t, k_t, keys, head_dim, s, MAX_SIDE);
}

/* Computes `vectors` vectors of value columns of the result, from column c on. Every vector has
 * `width` floats. `width` is less than VECTOR only for the last columns. A query row skips the keys
 * that only other query rows see, because 0 times V of these keys might be NaN. If a value of out
 * is not finite, a lane of `spoilt` becomes infinite or NaN (see unspoilt in floats.h). */
static inline __attribute__((always_inline)) void
head_out_tile(const struct head_weights *weights, struct rows v, int64_t c, int64_t width,
              float *const *out, const int vectors, const int rows, floats spoilt[2])
{
    floats sum[MAX_SIDE][MAX_COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = broadcast(0.0f);
    const float *p = weights->p;
    const int fewest = weights->visible[0];
    for (int key = 0; key < fewest; key++, p += weights->lanes)
        for (int j = 0; j < vectors; j++) {
            const floats x = load_first(row_at(v, key) + c + j * VECTOR, width);
            for (int r = 0; r < rows; r++)
                sum[r][j] = fma_v(broadcast_from(p + r * VECTOR), x, sum[r][j]);
        }
    for (int key = fewest; key < weights->visible[(rows - 1) * VECTOR]; key++, p += weights->lanes)
        for (int r = 1; r < rows; r++)
            if (key < weights->visible[r * VECTOR])
                for (int j = 0; j < vectors; j++)
                    sum[r][j] =
                        fma_v(broadcast_from(p + r * VECTOR),
                              load_first(row_at(v, key) + c + j * VECTOR, width), sum[r][j]);
    for (int r = 0; r < rows; r++) {
        const floats l = broadcast_from(weights->divisor + r * VECTOR);
        float *const to = out[r] + c;
        for (int j = 0; j < vectors; j++) {
            sum[r][j] = result(sum[r][j], l);
            store_first(to + j * VECTOR, width, sum[r][j]);
        }
        for (int j = 0; j < vectors; j += 2)
            spoilt[j / 2 % 2] =
                spoil(spoilt[j / 2 % 2], sum[r][j], sum[r][j + 1 < vectors ? j + 1 : j]);
    }
}

static inline __attribute__((always_inline)) uint64_t
head_out_rows(const struct head_weights *weights, struct rows v, float *const *out, const int rows)
{
    floats spoilt[2] = {unspoilt(), unspoilt()};
    int64_t c = 0;
    for (; c + MAX_COLUMNS * VECTOR <= v.dim; c += MAX_COLUMNS * VECTOR)
        head_out_tile(weights, v, c, VECTOR, out, MAX_COLUMNS, rows, spoilt);
    for (; c + VECTOR <= v.dim; c += VECTOR)
        head_out_tile(weights, v, c, VECTOR, out, 1, rows, spoilt);
    if (c < v.dim)
        head_out_tile(weights, v, c, v.dim - c, out, 1, rows, spoilt);
    const bool found = is_spoilt(spoilt[0] + spoilt[1]);
    return found ? KERNEL(settle)(rows, v.dim, out) : 0;
}

uint64_t KERNEL(head_out)(const struct head_weights *weights, const struct rows *v, int rows,
                          float *const *out)
{
    if (rows == 1)
        return head_out_rows(weights, *v, out, 1);
    if (rows == 2)
        return head_out_rows(weights, *v, out, 2);
    if (MAX_SIDE > 3 && rows == 3)
        return head_out_rows(weights, *v, out, 3);
    return head_out_rows(weights, *v, out, MAX_SIDE);
}

#endif
