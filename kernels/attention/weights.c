/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes weights as a result of the call: 2^(t - M) / l for each key. t is the key's score after
 * the score mods, times log2 e. M and l are the final maximum and sum of the row. In place of the
 * weights the caller may ask for the scores at one of several stages. The loop walks over K once
 * more, in panels of query rows as in prefill.c. prefill.c and decode.c call attnkit_write_weights
 * when M and l of some rows are final.
 */
#include "kernels/attention/weights.h"

#include <math.h>
#include <string.h>

#include "kernels/attention/block.h"
#include "kernels/attention/mask.h"

enum { ALIGNMENT = 64 };

/* The data of one call of attnkit_write_weights. */
struct weights_writer {
    const struct attention *a;
    const struct kernels *kernels;
    struct place place[MAX_LANES];
    int rows, lanes;
    float *q_t;                                 /* [head_dim][lanes] */
    float *s;                                   /* [KEY_BLOCK][lanes] */
    float *bias;                                /* [KEY_BLOCK][lanes] */
    float *lines;                               /* [lanes][KEY_BLOCK] */
    float *wide;                                /* K of a block, or q */
    float *row_max, *row_sum, *spare, *rescale; /* [lanes]; spare: nothing reads the sums that
                                                 * the tile softmax writes here */
    struct key_set keys[MAX_LANES];             /* the keys of the block that get a value */
};

size_t attnkit_weights_scratch(const struct attention *a)
{
    if (!a->extras.weights)
        return 0;
    const int64_t floats = MAX_LANES * (a->head_dim + 3 * KEY_BLOCK + 4) + KEY_BLOCK * a->head_dim;
    return (size_t)floats * sizeof(float) + ALIGNMENT;
}

/* Returns whether keys that a row does not see get a value, too. */
static bool is_of_all_keys(const struct attention *a)
{
    return a->extras.weights_kind == WEIGHTS_CAPPED || a->extras.weights_kind == WEIGHTS_SCALED;
}

static float *take(char **scratch, int64_t lines, int64_t length)
{
    float *const taken = (float *)*scratch;
    *scratch += lines * length * (int64_t)sizeof(float);
    return taken;
}

static void pack_rows(const struct weights_writer *w)
{
    const struct attention *a = w->a;
    const float *rows[MAX_LANES];
    for (int lane = 0; lane < w->lanes; lane++) {
        rows[lane] = q_row(a, w->place[lane]);
        if (a->q_type != TYPE_F32) {
            float *const row = w->wide + lane * a->head_dim;
            w->kernels->widen(a->q_type, rows[lane], NULL, 0, a->head_dim, row);
            rows[lane] = row;
        }
    }
    w->kernels->pack_q(rows, w->lanes, a->head_dim, w->q_t);
}

static void begin(struct weights_writer *w, struct place place, const float *row_max,
                  const float *row_sum, char *scratch)
{
    const int vector = w->kernels->vector;
    w->lanes = (w->rows + vector - 1) / vector * vector;
    scratch += -(uintptr_t)scratch % ALIGNMENT;
    w->s = take(&scratch, KEY_BLOCK, w->lanes);
    w->bias = take(&scratch, KEY_BLOCK, w->lanes);
    w->q_t = take(&scratch, w->a->head_dim, w->lanes);
    w->row_max = take(&scratch, 1, w->lanes);
    w->row_sum = take(&scratch, 1, w->lanes);
    w->spare = take(&scratch, 1, w->lanes);
    w->rescale = take(&scratch, 1, w->lanes);
    w->lines = take(&scratch, KEY_BLOCK, w->lanes);
    w->wide = take(&scratch, KEY_BLOCK, w->a->head_dim);
    for (int lane = 0; lane < w->lanes; lane++) {
        const bool is_softmax = w->a->extras.weights_kind == WEIGHTS_SOFTMAX;
        const int row = lane < w->rows ? lane : w->rows - 1;
        w->place[lane] = place;
        w->row_max[lane] = row_max[row];
        w->row_sum[lane] = is_softmax ? row_sum[row] : 1.0f;
        w->spare[lane] = 0.0f;
        if (lane + 1 < w->rows)
            place = next_place(w->a, place);
    }
    pack_rows(w);
}

/* Finds for each row which keys of a block get a value. Returns the keys that get a value in at
 * least one row. */
static struct key_set look(struct weights_writer *w, int64_t block)
{
    const struct attention *a = w->a;
    const int64_t keys = sequence_keys(a, w->place->batch) - block;
    struct key_set all = key_set_of(0, (int)clamp(keys, 0, KEY_BLOCK));
    if (has_cells(a))
        all = intersection_of(all, cell_block_of(a, block)->there);
    struct key_set any = {{0, 0}};
    struct seen seen;
    for (int lane = 0; lane < w->lanes; lane++) {
        attnkit_see(a, w->kernels, &w->place[lane], block, &seen);
        w->keys[lane] = is_of_all_keys(a) ? all : seen.keys;
        any = union_of(any, w->keys[lane]);
    }
    return any;
}

/* Returns the struct adjust that turns scores into t for WEIGHTS_SOFTMAX, and into the result for
 * the other kinds of weights. */
static struct adjust adjust_of(const struct extras *x)
{
    if (x->weights_kind == WEIGHTS_SOFTMAX)
        return x->adjust;
    if (x->weights_kind == WEIGHTS_SCALED || !x->adjust.capped)
        return (struct adjust){.factor = x->scale};
    return (struct adjust){true, x->adjust.to_cap, x->cap};
}

static void adjust(const struct weights_writer *w, int64_t block, struct key_set any)
{
    const struct extras *const x = &w->a->extras;
    const struct adjust how = adjust_of(x);
    const int keys = count_of(any);
    const float *lines[MAX_LANES];
    for (int lane = 0; lane < w->lanes && !is_of_all_keys(w->a); lane++) {
        float *const line = w->lines + lane * KEY_BLOCK;
        attnkit_bias_line(w->a, w->kernels, w->place[lane], block, w->keys[lane],
                          x->weights_kind == WEIGHTS_SOFTMAX, line);
        attnkit_compact_line(w->kernels, any, line);
        lines[lane] = line;
    }
    if (!is_of_all_keys(w->a))
        w->kernels->pack_q(lines, w->lanes, keys, w->bias);
    w->kernels->adjust(&how, is_of_all_keys(w->a) ? NULL : w->bias, (size_t)(keys * w->lanes),
                       w->s);
}

/* Computes the values of the keys in `any`, as one line for each row. */
static void weigh_block(const struct weights_writer *w, int64_t block, struct key_set any)
{
    const struct attention *a = w->a;
    const int keys = count_of(any);
    const struct rows k = attnkit_rows(a, w->kernels, &a->k, w->place->batch,
                                       w->place->group_head / a->group, block, any, w->wide);
    float *lines[MAX_LANES];
    w->kernels->scores(w->q_t, w->lanes, &k, keys, w->s, NULL);
    adjust(w, block, any);
    if (a->extras.weights_kind == WEIGHTS_SOFTMAX) {
        const struct state st = {w->row_max, w->spare, NULL};
        w->kernels->softmax(w->s, w->lanes, keys, NULL, 1.0f, &st, w->rescale);
    }
    for (int lane = 0; lane < w->rows; lane++)
        lines[lane] = w->lines + lane * KEY_BLOCK;
    const struct state result = {w->row_max, w->row_sum, w->s};
    w->kernels->finish(&result, w->lanes, keys, w->rows, lines, NULL);
}

/* Returns the number that is written for a key that gets no value. */
static float no_value(const struct extras *x)
{
    return x->weights_kind == WEIGHTS_SOFTMAX ? 0.0f : -INFINITY;
}

static float *row_of(const struct weights_writer *w, int lane)
{
    const struct extras *const x = &w->a->extras;
    return (float *)(x->weights + place_offset(x->weights_stride, w->place[lane]));
}

/* Writes the values of a block to the columns of the block's cells. */
static void write_cells(const struct weights_writer *w, int lane, int64_t block, struct key_set any,
                        const float *line)
{
    const int32_t *const cell = cells_from(w->a, block);
    float *const row = row_of(w, lane);
    float values[KEY_BLOCK];
    w->kernels->spread_line(any.word, line, w->keys[lane].word, 0.0f, values);
    for (int i = 0; i < KEY_BLOCK; i++)
        if (has_key(w->keys[lane], i))
            row[cell[i]] = values[i];
}

/* Writes a block of a row of the result. `line` has the values of the keys in `any`. */
static void write_row(const struct weights_writer *w, int lane, int64_t block, struct key_set any,
                      const float *line)
{
    const float none = no_value(&w->a->extras);
    float *const row = row_of(w, lane) + block;
    const int64_t columns = w->a->kv_len - block;
    float last[KEY_BLOCK]; /* room for a whole block, if the row has fewer columns left */
    float *const whole = columns < KEY_BLOCK ? last : row;
    w->kernels->spread_line(any.word, line, w->keys[lane].word, none, whole);
    if (columns < KEY_BLOCK)
        memcpy(row, last, (size_t)columns * sizeof *row);
}

/* Sets all columns to the result of no_value. Afterwards write_cells writes only the columns of
 * cells whose keys get a value. */
static void clear_rows(const struct weights_writer *w)
{
    const float none = no_value(&w->a->extras);
    for (int lane = 0; lane < w->rows; lane++)
        for (int64_t column = 0; column < w->a->kv_len; column++)
            row_of(w, lane)[column] = none;
}

void attnkit_write_weights(const struct attention *a, const struct kernels *kernels,
                           struct place first, int rows, const float *row_max, const float *row_sum,
                           char *scratch)
{
    struct weights_writer w;
    w.a = a;
    w.kernels = kernels;
    w.rows = rows;
    begin(&w, first, row_max, row_sum, scratch);
    if (has_cells(a))
        clear_rows(&w);
    const int64_t end = has_cells(a) ? sequence_keys(a, first.batch) : a->kv_len;
    for (int64_t block = 0; block < end; block += KEY_BLOCK) {
        const struct key_set any = look(&w, block);
        if (!is_empty(any))
            weigh_block(&w, block, any);
        for (int lane = 0; lane < rows; lane++)
            if (has_cells(a))
                write_cells(&w, lane, block, any, w.lines + lane * KEY_BLOCK);
            else
                write_row(&w, lane, block, any, w.lines + lane * KEY_BLOCK);
    }
}
