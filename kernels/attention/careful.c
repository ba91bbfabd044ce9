/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputes a row whose result is not finite. If elements of a chunk's weighted sum of V are not
 * finite, these elements are computed in binary64, by step 9 of ../README.md. With integers, or if
 * the chunk's sum of weights is NaN, these elements stay as they are. Rows are computed one at a
 * time. The lanes of `scores` are keys, and the lanes of fold_row are columns. decode.c, heads.c
 * and prefill.c call this file. With integers or groups of products, prefill.c does not call this
 * file. Calls are rare, unless V has infinities or NaN.
 */
#include <math.h>
#include <string.h>

#include "kernels/attention/block.h"
#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"
#include "kernels/attention/total.h"

enum { ALIGNMENT = 64 };

/* The computation of one row. Pointers to numbers point into scratch, but `q` may point to the
 * caller's row. */
struct careful {
    const struct attention *a;
    const struct kernels *kernels;
    const struct work_item *item;
    struct place place;
    float *k_t;         /* [head_dim][vector] */
    double *exact;      /* [value_dim]: o of the chunk, as it will be folded into the total */
    struct total total; /* total of the row */
    struct state chunk; /* state of the row in a chunk, laid out as in decode */
    const float *q;     /* the query row */
    float *k, *v;       /* scratch for rows not used in place: TILE_KEYS rows of K, one row of V */
    char *rest;         /* scratch of attnkit_decode_row_chunk */
};

/* The weights of a block's keys. */
struct careful_weights {
    struct key_set seen;
    bool biased;
    int keys;                              /* number of seen keys */
    float p[KEY_BLOCK], weight[KEY_BLOCK]; /* p: before dropout, for the sum W of step 9; weight:
                                              after dropout, for V */
};

/* --- Scratch ---------------------------------------------------------------------------------- */

static int64_t own_doubles(const struct attention *a)
{
    return 2 * a->value_dim + 3; /* o, l and M of the total, `exact`, and room to align w->rest */
}

static int64_t own_floats(const struct attention *a)
{
    return a->head_dim * (MAX_VECTOR + TILE_KEYS + 1) + a->value_dim + attnkit_decode_state(a, 1);
}

size_t attnkit_careful_scratch(const struct attention *a)
{
    return ALIGNMENT + (size_t)own_doubles(a) * sizeof(double) +
           (size_t)own_floats(a) * sizeof(float) + attnkit_decode_row_scratch(a);
}

static double *take_doubles(char **scratch, int64_t count)
{
    double *const taken = (double *)(void *)*scratch;
    *scratch += count * (int64_t)sizeof *taken;
    return taken;
}

static float *take(char **scratch, int64_t count)
{
    float *const taken = (float *)(void *)*scratch;
    *scratch += count * (int64_t)sizeof *taken;
    return taken;
}

/* Returns the query row as binary32, in place or in scratch. */
static const float *take_q(const struct careful *w, char **scratch)
{
    float *const q = take(scratch, w->a->head_dim);
    const void *const row = q_row(w->a, w->place);
    if (w->a->q_type == TYPE_F32)
        return row;
    w->kernels->widen(w->a->q_type, row, NULL, 0, w->a->head_dim, q);
    return q;
}

static void begin(struct careful *w, char *scratch)
{
    const struct attention *const a = w->a;
    w->place = place_of_row(a, w->item->batch, w->item->kv_head, w->item->first_row);
    scratch += -(uintptr_t)scratch % ALIGNMENT;
    w->k_t = take(&scratch, a->head_dim * MAX_VECTOR);
    w->exact = take_doubles(&scratch, a->value_dim);
    w->total.out = take_doubles(&scratch, a->value_dim);
    w->total.row_sum = take_doubles(&scratch, 1);
    w->total.row_max = take(&scratch, 2);
    w->chunk.row_max = take(&scratch, attnkit_decode_state(a, 1));
    w->chunk.row_sum = w->chunk.row_max + MAX_DECODE_ROWS;
    w->chunk.out = w->chunk.row_sum + MAX_DECODE_ROWS;
    w->k = take(&scratch, a->head_dim * TILE_KEYS);
    w->v = take(&scratch, a->value_dim);
    w->q = take_q(w, &scratch);
    w->rest = scratch + -(uintptr_t)scratch % sizeof(double);
}

/* Sets the total to the caller's total over earlier keys, or to the state before any key if the
 * caller gives none. */
static void begin_total(const struct careful *w)
{
    const struct attention *const a = w->a;
    const size_t bytes = (size_t)a->value_dim * sizeof(double);
    *w->total.row_max = -INFINITY;
    *w->total.row_sum = 0.0;
    memset(w->total.out, 0, bytes);
    if (!a->before.out)
        return;
    const struct total row = total_row(a, a->before, w->place);
    *w->total.row_max = *row.row_max;
    *w->total.row_sum = *row.row_sum;
    memcpy(w->total.out, row.out, bytes);
}

/* --- A chunk in binary64 ---------------------------------------------------------------------- */

/* Sets row[lane] to the address of row first + lane, for packing. Spare lanes repeat the last
 * row. */
static void point_to_rows(const struct rows *rows, int first, int count, int vector,
                          const float **row)
{
    for (int lane = 0; lane < vector; lane++) {
        const int i = first + lane < count ? first + lane : count - 1;
        row[lane] = (const float *)(const void *)(rows->first + i * rows->stride);
    }
}

/* Computes the scores s of the keys in x->seen, and counts these keys. Lanes are keys, and the
 * query is passed to the tile as its only key row. */
static void score(const struct careful *w, int64_t block, struct careful_weights *x, float *s)
{
    const struct attention *const a = w->a;
    const struct rows q = {(const char *)w->q, 0, a->head_dim};
    const int vector = w->kernels->vector;
    _Alignas(ALIGNMENT) float lanes[MAX_VECTOR];
    x->keys = 0;
    for (int key = 0; key < KEY_BLOCK; key += TILE_KEYS) {
        const struct key_set seen = intersection_of(x->seen, key_set_of(key, key + TILE_KEYS));
        if (is_empty(seen))
            continue;
        const struct rows k =
            attnkit_rows(a, w->kernels, &a->k, w->item->batch, w->item->kv_head, block, seen, w->k);
        const int count = count_of(seen);
        for (int first = 0; first < count; first += vector) {
            const int keys = count - first < vector ? count - first : vector;
            const float *rows[MAX_VECTOR];
            point_to_rows(&k, first, count, vector, rows);
            w->kernels->pack_q(rows, vector, a->head_dim, w->k_t);
            w->kernels->scores(w->k_t, vector, &q, 1, lanes, NULL);
            memcpy(s + x->keys, lanes, (size_t)keys * sizeof *s);
            x->keys += keys;
        }
    }
}

/* Computes the weights of the keys x->seen of a block: steps 2 to 6 of ../README.md, and dropout.
 * Updates *row_max. */
static void weigh(const struct careful *w, int64_t block, struct careful_weights *x, float *row_max)
{
    const struct attention *const a = w->a;
    float t[KEY_BLOCK], line[KEY_BLOCK];
    score(w, block, x, t);
    if (x->biased) {
        attnkit_bias_line(a, w->kernels, w->place, block, x->seen, true, line);
        attnkit_compact_line(w->kernels, x->seen, line);
    }
    w->kernels->adjust(&a->extras.adjust, x->biased ? line : NULL, (size_t)x->keys, t);
    for (int i = 0; i < x->keys; i++) {
        const float ceiling = (float)ceil((double)t[i]);
        *row_max = ceiling > *row_max ? ceiling : *row_max;
    }
    for (int i = 0; i < x->keys; i++)
        t[i] -= *row_max == -INFINITY ? 0.0f : *row_max;
    w->kernels->exp2(t, x->p, (size_t)x->keys);
    memcpy(x->weight, x->p, (size_t)x->keys * sizeof *x->p);
    if (!a->extras.drops)
        return;
    attnkit_keep_line(a, w->kernels, w->place, block, line);
    attnkit_compact_line(w->kernels, x->seen, line);
    w->kernels->multiply(line, (size_t)x->keys, x->weight);
}

static const float *v_row(const struct careful *w, int64_t block, int key)
{
    return (const float *)(const void *)attnkit_rows(w->a, w->kernels, &w->a->v, w->item->batch,
                                                     w->item->kv_head, block,
                                                     key_set_of(key, key + 1), w->v)
        .first;
}

/* Adds a block to P and W of step 9. P is in w->exact, W is *sum. */
static void add_block(const struct careful *w, int64_t block, float *row_max, double *sum)
{
    const float before = *row_max;
    struct careful_weights x;
    struct seen seen;
    attnkit_see(w->a, w->kernels, &w->place, block, &seen);
    if (is_empty(seen.keys))
        return;
    x.seen = seen.keys;
    x.biased = seen.biased;
    weigh(w, block, &x, row_max);
    double rescale = factor_of(before, *row_max);
    *sum *= rescale;
    for (int key = 0, i = 0; i < x.keys; key++) {
        if (!has_key(x.seen, key))
            continue;
        *sum += (double)x.p[i];
        w->kernels->fold_row(w->exact, v_row(w, block, key), rescale, (double)x.weight[i],
                             w->a->value_dim);
        rescale = 1.0; /* only the first key rescales P; P * rescale and weight * v are exact, so
                        * their sum is rounded once */
        i++;
    }
}

/* Sets w->exact to P / W of all columns of V, for the chunk that begins at key `first`. */
static void take_mean(const struct careful *w, int64_t first)
{
    float row_max = -INFINITY;
    double sum = 0.0;
    memset(w->exact, 0, (size_t)w->a->value_dim * sizeof *w->exact);
    for (int64_t block = first; block < first + CHUNK_KEYS; block += KEY_BLOCK)
        add_block(w, block, &row_max, &sum);
    for (int64_t c = 0; c < w->a->value_dim; c++)
        w->exact[c] /= sum;
}

/* --- The row ---------------------------------------------------------------------------------- */

/* Sets w->exact to o of a chunk. Elements that are not finite become (P / W) times the chunk's sum
 * of weights, *w->chunk.row_sum. With integers, or if this sum is NaN, these elements stay as they
 * are. */
static void settle(const struct careful *w, int64_t first)
{
    const double sum = (double)*w->chunk.row_sum;
    const bool stays = isnan(sum) || has_integers(w->a);
    bool finite = true;
    for (int64_t c = 0; c < w->a->value_dim; c++)
        finite &= fabsf(w->chunk.out[c]) <= FLT_MAX;
    if (!finite && !stays)
        take_mean(w, first);
    for (int64_t c = 0; c < w->a->value_dim; c++)
        if (stays || fabsf(w->chunk.out[c]) <= FLT_MAX)
            w->exact[c] = (double)w->chunk.out[c];
        else
            w->exact[c] *= sum;
}

static void add_chunk(const struct careful *w, int64_t first)
{
    attnkit_decode_row_chunk(w->a, w->kernels, w->item, first, w->chunk.row_max, w->rest);
    settle(w, first);
    const struct factors f =
        fold_sum(w->total.row_max, w->total.row_sum, *w->chunk.row_max, *w->chunk.row_sum);
    for (int64_t c = 0; c < w->a->value_dim; c++)
        w->total.out[c] = w->total.out[c] * f.total + w->exact[c] * f.state;
}

/* In columns with a finite o and an infinite quotient, replaces the quotient by FLT_MAX with the
 * sign of the quotient (step 11). Does nothing with dropout. */
static void saturate(const struct careful *w, float *out)
{
    for (int64_t c = 0; c < w->a->value_dim && !w->a->extras.drops; c++)
        if (isinf(out[c]) && fabs(w->total.out[c]) <= DBL_MAX)
            out[c] = copysignf(FLT_MAX, out[c]);
}

static void finish(const struct careful *w)
{
    const struct attention *const a = w->a;
    if (a->after.out) {
        export_line(total_row(a, a->after, w->place), w->total, 1, a->value_dim);
        return;
    }
    if (a->extras.sinks) {
        float max, sum;
        attnkit_sink(a, w->kernels, w->place.head, &max, &sum);
        fold_sink(w->total, max, sum, 1, a->value_dim);
    }
    void *const row = out_row(a, w->place);
    float *const out = a->out_type == TYPE_F32 ? row : w->chunk.out;
    if (w->kernels->quotient_row(w->total.out, divisor_of(*w->total.row_sum), a->value_dim, out)) {
        divide_not_finite(w->total.out, divisor_of(*w->total.row_sum), a->value_dim, out);
        saturate(w, out);
    }
    if (a->out_type != TYPE_F32)
        w->kernels->narrow(a->out_type, out, a->value_dim, 0, row, NULL);
}

void attnkit_careful_row(const struct attention *a, const struct kernels *kernels,
                         const struct work_item *row, char *scratch)
{
    struct careful w = {.a = a, .kernels = kernels, .item = row};
    begin(&w, scratch);
    begin_total(&w);
    const struct visible visible = visible_keys(a, row->batch, w.place.position);
    const int64_t end = visible_end(a, row->batch, w.place.position);
    for (int64_t first = 0; first < end; first += CHUNK_KEYS) {
        const struct key_range keys = visible_part(visible, first, CHUNK_KEYS);
        if (keys.first < keys.end)
            add_chunk(&w, first);
    }
    finish(&w);
}
