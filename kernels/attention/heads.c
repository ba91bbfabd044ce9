/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for many heads with few query rows and few keys each. Going from head to head would
 * take longer than the arithmetic. Therefore lanes are heads: the heads of a vector go through
 * scores and softmax together, and then each head computes its weighted V.
 * dispatch/attention/schedule.c calls this loop only for binary32 in rows, without pages, cells,
 * packed sequences, states, sinks, weights as a result or options that set extras.any.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"

enum {
    MAX_ROWS = MAX_LANES / 4, /* most query rows of a head: a vector has at least 4 lanes */
};

/* The data of one item. Lanes are [row][head]. Spare heads repeat the last head. */
struct heads {
    const struct attention *a;
    const struct kernels *kernels;
    int heads, vector, rows, lanes;
    int keys;   /* the most keys that a row sees, at least 1 */
    bool mixed; /* whether some rows see fewer than `keys` keys */
    int64_t batch[MAX_VECTOR], kv_head[MAX_VECTOR];
    int32_t seen[MAX_VECTOR]; /* number of keys that the last row sees; no other row sees more */
    int32_t visible[MAX_LANES];
    const float *q[MAX_LANES];
    float *out[MAX_LANES];
    const char *k[MAX_VECTOR], *v[MAX_VECTOR]; /* row of key 0 of each head */
    float *q_t;                                /* [head_dim][lanes] */
    float *k_t;                                /* [head_dim][keys of a tile][vector] */
    float *scores;                             /* [FEW_KEYS][lanes] */
    float *rescale;
    /* M and l of the rows. o is not stored, so st.out only points to the scores. Scratch for rows
     * that are recomputed follows st.row_sum. */
    struct state st;
};

size_t attnkit_heads_scratch(const struct attention *a, const struct kernels *kernels)
{
    const int64_t lines = 2 * a->head_dim + FEW_KEYS + 3;
    return (size_t)(lines * kernels->lanes) * sizeof(float) + attnkit_careful_scratch(a);
}

static float *take(char **scratch, int64_t lines, int lanes)
{
    float *taken = (float *)*scratch;
    *scratch += lines * lanes * (int64_t)sizeof(float);
    return taken;
}

/* Sets the visible keys of a head's rows, and the addresses of its rows of Q, K, V and out. */
static void begin_head(struct heads *w, int head)
{
    const struct attention *a = w->a;
    struct place place = place_of_row(a, w->batch[head], w->kv_head[head], 0);
    for (int r = 0; r < w->rows; r++, place = next_place(a, place)) {
        const int lane = r * w->vector + head;
        w->visible[lane] = (int32_t)causal_end(a, w->batch[head], place.position);
        w->q[lane] = q_row(a, place);
        w->out[lane] = out_row(a, place);
    }
    w->seen[head] = w->visible[(w->rows - 1) * w->vector + head];
    w->k[head] = w->v[head] = NULL; /* if no row sees a key, there may be no memory */
    if (w->seen[head] > 0) {
        w->k[head] = key_row(a, &a->k, w->batch[head], w->kv_head[head], 0).data;
        w->v[head] = key_row(a, &a->v, w->batch[head], w->kv_head[head], 0).data;
    }
}

/* Sets batch entry and KV head of each head, without divisions: a division would take longer than
 * the arithmetic of a head. */
static void place_heads(struct heads *w, const struct work_item *item)
{
    w->batch[0] = item->batch;
    w->kv_head[0] = item->kv_head;
    for (int head = 1; head < w->vector; head++) {
        const bool wraps = w->kv_head[head - 1] + 1 == w->a->kv_heads;
        const bool spare = head >= w->heads;
        w->batch[head] = w->batch[head - 1] + (wraps && !spare);
        w->kv_head[head] = spare ? w->kv_head[head - 1] : wraps ? 0 : w->kv_head[head - 1] + 1;
    }
}

static void begin(struct heads *w, const struct work_item *item, char *scratch)
{
    w->q_t = take(&scratch, w->a->head_dim, w->kernels->lanes);
    w->k_t = take(&scratch, w->a->head_dim, w->kernels->lanes);
    w->scores = take(&scratch, FEW_KEYS, w->kernels->lanes);
    w->rescale = take(&scratch, 1, w->kernels->lanes);
    w->st.out = w->scores;
    w->st.row_max = take(&scratch, 1, w->kernels->lanes);
    w->st.row_sum = take(&scratch, 1, w->kernels->lanes);
    place_heads(w, item);
    int fewest = INT_MAX; /* the fewest keys that the first row of a head sees */
    w->keys = 1;
    for (int head = 0; head < w->vector; head++) {
        begin_head(w, head);
        w->keys = w->seen[head] > w->keys ? w->seen[head] : w->keys;
        fewest = w->visible[head] < fewest ? w->visible[head] : fewest;
    }
    w->mixed = fewest < w->keys;
    for (int lane = 0; lane < w->lanes; lane++) {
        w->st.row_max[lane] = -INFINITY;
        w->st.row_sum[lane] = 0.0f;
    }
}

/* Sets the addresses of rows of K, from `key` on, for each head. A key that no row of the head sees
 * may have no memory, so the address of another row takes its place. */
static void key_rows(const struct heads *w, int key, int keys, const float **rows)
{
    const int64_t stride = w->a->k.stride.row;
    for (int head = 0; head < w->vector; head++) {
        const int last = w->seen[head] - 1;
        const char *const k = last < 0 ? (const char *)w->q[head] : w->k[head];
        for (int i = 0; i < keys; i++) {
            const int row = key + i < last ? key + i : last;
            rows[i * w->vector + head] = (const float *)(k + (row < 0 ? 0 : row) * stride);
        }
    }
}

/* Computes the scores in the smallest possible number of tiles, with about equal numbers of keys.
 */
static void score(const struct heads *w)
{
    const int most = w->kernels->lanes / w->vector;
    const int tiles = (w->keys + most - 1) / most;
    w->kernels->pack_q(w->q, w->lanes, w->a->head_dim, w->q_t);
    int key = 0;
    for (int tile = 0; tile < tiles; tile++) {
        const int keys = (w->keys - key + tiles - tile - 1) / (tiles - tile);
        const float *rows[MAX_LANES];
        key_rows(w, key, keys, rows);
        w->kernels->pack_q(rows, keys * w->vector, w->a->head_dim, w->k_t);
        w->kernels->head_scores(w->q_t, w->k_t, w->rows, keys, w->a->head_dim,
                                w->scores + key * w->lanes);
        key += keys;
    }
}

/* Recomputes the rows whose result is not finite, because a sum may have overflowed. A row whose
 * sum of weights is NaN stays NaN. */
static __attribute__((cold, noinline)) void redo_rows(const struct heads *w, int head,
                                                      uint64_t not_finite)
{
    for (int r = 0; r < w->rows; r++) {
        const struct work_item row = {w->batch[head], w->kv_head[head], r, 0, 1, 1};
        if (not_finite >> r & 1 && !isnan(w->st.row_sum[r * w->vector + head]))
            attnkit_careful_row(w->a, w->kernels, &row,
                                (char *)(w->st.row_sum + w->kernels->lanes));
    }
}

static void finish_head(const struct heads *w, int head)
{
    float *out[MAX_ROWS];
    for (int r = 0; r < w->rows; r++)
        out[r] = w->out[r * w->vector + head];
    const struct head_weights weights = {w->scores + head, w->st.row_sum + head, w->visible + head,
                                         w->lanes};
    const struct rows v = {w->v[head], w->a->v.stride.row, w->a->v.dim};
    const uint64_t not_finite = w->kernels->head_out(&weights, &v, w->rows, out);
    if (not_finite)
        redo_rows(w, head, not_finite);
}

static void finish_lse(const struct heads *w)
{
    float *lse[MAX_LANES], *out[MAX_LANES] = {0}, spare;
    for (int head = 0; head < w->vector; head++) {
        struct place place = place_of_row(w->a, w->batch[head], w->kv_head[head], 0);
        for (int r = 0; r < w->rows; r++, place = next_place(w->a, place))
            lse[r * w->vector + head] = head < w->heads ? lse_row(w->a, place) : &spare;
    }
    w->kernels->finish(&w->st, w->lanes, 0, w->lanes, out, lse);
}

/* Turns row_sum into the divisors of the results. */
static void make_divisors(const struct heads *w)
{
    for (int lane = 0; lane < w->lanes; lane++)
        w->st.row_sum[lane] = w->st.row_sum[lane] == 0.0f ? 1.0f : w->st.row_sum[lane];
}

void attnkit_heads(const struct attention *a, const struct kernels *kernels,
                   const struct work_item *item, char *scratch)
{
    struct heads w;
    w.a = a;
    w.kernels = kernels;
    w.heads = item->heads;
    w.vector = kernels->vector;
    w.rows = item->decode_rows;
    w.lanes = w.rows * w.vector;
    begin(&w, item, scratch);
    score(&w);
    kernels->softmax(w.scores, w.lanes, w.keys, w.mixed ? w.visible : NULL, a->scale_log2, &w.st,
                     w.rescale);
    if (a->lse)
        finish_lse(&w);
    make_divisors(&w);
    for (int head = 0; head < w.heads; head++)
        finish_head(&w, head);
}
