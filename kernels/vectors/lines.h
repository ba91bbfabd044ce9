/* SPDX-License-Identifier: Apache-2.0
 *
 * bias_line makes a line of the numbers that are added to scores, one number for each key of a
 * block. mask.c of kernels/attention calls bias_line for a query row and a block. `mean` computes
 * the mean of several rows for weights.c. The lines.c of an instruction set defines mask_of_keys
 * and numbers_from, and then includes this file.
 */
#ifndef ATTNKIT_VECTORS_LINES_H
#define ATTNKIT_VECTORS_LINES_H

#include "kernels/kernels.h"

/* Returns the distances of VECTOR keys from the position of the row, converted to binary32. The
 * first of these keys is `key`. `near` says that the distances fit 32 bits (has_near_keys). */
static inline floats distances(const struct bias_line *what, int key, const bool near)
{
    if (near)
        return numbers_from((int)what->distance + key);
    float x[VECTOR];
    for (int i = 0; i < VECTOR; i++)
        x[i] = key_distance(what, key + i);
    return load_floats(x);
}

/* Fills the line by the formula of struct bias_line. If what->numbers is not NULL, the line already
 * holds these numbers in binary32. */
static inline __attribute__((always_inline)) void
fill_bias_line(const struct bias_line *what, float *line, const bool sloped, const bool near)
{
    const bool given = what->numbers;
    const floats unit = broadcast(what->unit), slope = broadcast(what->slope);
    const floats least = broadcast(what->least);
    for (int key = 0; key < KEY_BLOCK; key += VECTOR) {
        floats b = broadcast(0.0f);
        if (given)
            b = max_with_nan(load_floats(line + key) * unit, least);
        if (sloped) {
            b = b + slope * distances(what, key, near);
            b = max_with_nan(b, broadcast(-FLT_MAX));
        }
        const lane_mask seen = mask_of_keys(what->seen, key);
        store_floats(line + key, select_v(seen, b, minus_infinity()));
    }
}

void KERNEL(bias_line)(const struct bias_line *what, float *line)
{
    if (what->numbers) {
        memset(line + what->count, 0, (size_t)(KEY_BLOCK - what->count) * sizeof *line);
        KERNEL(widen)(what->type, what->numbers, NULL, 0, what->count, line);
    }
    if (!what->sloped)
        fill_bias_line(what, line, false, true);
    else if (has_near_keys(what))
        fill_bias_line(what, line, true, true);
    else
        fill_bias_line(what, line, true, false);
}

void KERNEL(mean)(const struct rows *rows, int64_t count, float *mean)
{
    const floats divisor = broadcast((float)count);
    for (int64_t i = 0; i < rows->dim; i += VECTOR) {
        const int64_t left = rows->dim - i;
        const char *row = rows->first + i * (int64_t)sizeof *mean;
        floats sum = broadcast(0.0f);
        for (int64_t r = 0; r < count; r++, row += rows->stride)
            sum = sum + load_first((const float *)row, left);
        store_first(mean + i, left, plain_nan(sum / divisor));
    }
}

#endif
