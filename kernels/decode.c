/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for few query rows of a KV head, a decoding step above all: one walk over the keys, a
 * fused tile per block. Called for a work item by dispatch/schedule.c, and by prefill.c for rows
 * whose result is not finite.
 */
#include <math.h>
#include <string.h>

#include "block.h"
#include "keys.h"
#include "mask.h"
#include "weights.h"

/* What goes on for one item. The state is in scratch. */
struct walk {
    int64_t batch, kv_head;
    int rows;
    bool far; /* K and V most likely are in no near cache */
    const float *q[MAX_DECODE_ROWS];
    void *out[MAX_DECODE_ROWS];
    float *lse[MAX_DECODE_ROWS];
    struct place place[MAX_DECODE_ROWS];
    int64_t end[MAX_DECODE_ROWS]; /* of the keys that a row sees; does not fall from row to row */
    struct visible visible;       /* to any row, by its index */
    struct state total;           /* over the chunks so far */
};

/* What walks that take turns share. */
struct common {
    struct state chunk; /* over the blocks of this chunk so far */
    struct row_room rows;
    float *lines; /* [rows][2][KEY_BLOCK]: what is added to scores, and factors of weights */
    float *rest;  /* of the scratch */
};

int64_t attnkit_decode_state(const struct attention *a, int rows)
{
    return 2 * MAX_DECODE_ROWS + rows * a->value_dim;
}

static int64_t line_floats(const struct attention *a, int rows)
{
    return a->extras.any ? 2 * rows * KEY_BLOCK : 0;
}

size_t attnkit_decode_scratch(const struct attention *a, int rows, int items)
{
    const int64_t state = attnkit_decode_state(a, rows),
                  q = a->q_type == TYPE_F32 ? 0 : rows * a->head_dim;
    return (size_t)(items * (state + q) + state + line_floats(a, rows) + attnkit_row_floats(a)) *
               sizeof(float) +
           attnkit_weights_scratch(a);
}

static void take_state(const struct attention *a, int rows, float **scratch, struct state *st)
{
    st->row_max = *scratch;
    st->row_sum = *scratch + MAX_DECODE_ROWS;
    st->out = *scratch + 2 * MAX_DECODE_ROWS;
    *scratch += attnkit_decode_state(a, rows);
}

static void reset(const struct state *st, int rows, int64_t value_dim)
{
    for (int r = 0; r < MAX_DECODE_ROWS; r++)
        st->row_max[r] = -INFINITY;
    memset(st->row_sum, 0, MAX_DECODE_ROWS * sizeof(float));
    memset(st->out, 0, (size_t)(rows * value_dim) * sizeof(float));
}

static void copy_row(struct state to, struct state from, int64_t value_dim)
{
    *to.row_max = *from.row_max;
    *to.row_sum = *from.row_sum;
    memcpy(to.out, from.out, (size_t)value_dim * sizeof(float));
}

/* As a state is given to the caller: a zero is +0 whichever way it came about, as in a result. */
static void export_row(struct state to, struct state from, int64_t value_dim)
{
    *to.row_max = *from.row_max + 0.0f;
    *to.row_sum = *from.row_sum;
    for (int64_t c = 0; c < value_dim; c++)
        to.out[c] = from.out[c] + 0.0f;
}

static struct state line_of(struct state st, int row, int64_t value_dim)
{
    return (struct state){st.row_max + row, st.row_sum + row, st.out + row * value_dim};
}

/* The query row as binary32, where it lies or in scratch. */
static const float *take_q(const struct attention *a, const struct kernels *kernels,
                           struct place place, float **scratch)
{
    const void *q = q_row(a, place);
    if (a->q_type == TYPE_F32)
        return q;
    float *taken = *scratch;
    *scratch += a->head_dim;
    kernels->widen(a->q_type, q, NULL, 0, a->head_dim, taken);
    return taken;
}

static struct place first_place(const struct attention *a, const struct work_item *item)
{
    return place_of_row(a, item->batch, item->kv_head, item->first_row + item->panel_rows);
}

static void resume(const struct attention *a, const struct work_item *item,
                   const struct state *total)
{
    struct place place = first_place(a, item);
    for (int r = 0; r < item->decode_rows; r++, place = next_place(a, place))
        copy_row(line_of(*total, r, a->value_dim), state_row(a, a->before, place), a->value_dim);
}

static int64_t last_end(const struct walk *w)
{
    return w->end[w->rows - 1];
}

static void begin(const struct attention *a, const struct kernels *kernels,
                  const struct work_item *item, float **scratch, struct walk *w)
{
    w->batch = item->batch;
    w->kv_head = item->kv_head;
    w->rows = item->decode_rows;
    take_state(a, w->rows, scratch, &w->total);
    struct place place = first_place(a, item);
    for (int r = 0; r < w->rows; r++, place = next_place(a, place)) {
        w->place[r] = place;
        w->end[r] = visible_end(a, item->batch, place.position);
        w->q[r] = take_q(a, kernels, place, scratch);
        if (!a->after.out)
            w->out[r] = out_row(a, place);
        w->lse[r] = a->lse ? lse_row(a, place) : NULL;
    }
    w->visible = all_visible(visible_keys(a, item->batch, w->place[0].position),
                             visible_keys(a, item->batch, w->place[w->rows - 1].position));
    /* Any rows before these have most likely brought the keys nearer, and few keys come sooner than
     * they can be asked for. */
    w->far = item->first_row + item->panel_rows == 0 && last_end(w) > FEW_KEYS;
    reset(&w->total, w->rows, a->value_dim);
    if (a->before.out)
        resume(a, item, &w->total);
}

static void begin_common(const struct attention *a, int rows, float *scratch, struct common *common)
{
    take_state(a, rows, &scratch, &common->chunk);
    common->lines = scratch;
    scratch += line_floats(a, rows);
    attnkit_begin_rows(a, scratch, &common->rows);
    common->rest = scratch + attnkit_row_floats(a);
}

/* The first chunk needs no state of its own, as in prefill.c. */
static bool needs_fold(const struct attention *a, int64_t first)
{
    return first > 0 || a->before.out;
}

/* The keys of a block or chunk that begins at key `first` and has `count`, up to the last that a
 * row may see, from the first one on. */
static struct key_range keys_from(const struct walk *w, int64_t first, int64_t count)
{
    struct key_range keys = visible_part(w->visible, first, count);
    keys.batch = w->batch;
    keys.kv_head = w->kv_head;
    return keys;
}

/* The first block of a chunk, or none. */
static struct key_range first_block(const struct walk *w, int64_t first)
{
    struct key_range keys = keys_from(w, first, CHUNK_KEYS);
    if (keys.first >= keys.end)
        return (struct key_range){0};
    return keys_from(w, keys.first / KEY_BLOCK * KEY_BLOCK, KEY_BLOCK);
}

static void attend_block(const struct attention *a, const struct kernels *kernels,
                         const struct walk *w, int64_t key, struct key_range next,
                         const struct state *st, struct common *common)
{
    int32_t visible[MAX_DECODE_ROWS];
    struct decode_block block = {.q = w->q, .visible = visible, .st = st, .far = w->far};
    const struct key_range keys = keys_from(w, key, KEY_BLOCK);
    for (int r = 0; r < w->rows; r++)
        visible[r] = visible_in_block(w->end[r], key);
    attnkit_point_to_rows(a, kernels, keys, key_set_of(0, (int)(keys.end - key)), next,
                          &common->rows, &block);
    kernels->decode(&block, w->rows, a->scale_log2);
}

/* --- Masks ------------------------------------------------------------------------------------ */

/* Rows of a walk that go through a tile together, because each sees the first keys of those that
 * all of them see, or all see the same. */
struct run {
    int first, end;      /* rows */
    struct key_set seen; /* by any of them */
    bool biased;
};

static bool can_join(struct key_set seen, struct key_set more)
{
    if (is_empty(seen) || is_empty(more))
        return is_equal(seen, more);
    return is_equal(seen, more) ||
           (is_in_a_row(seen) && is_in_a_row(more) && first_of(seen) == first_of(more));
}

static struct run run_from(const struct walk *w, const struct seen *seen, int first)
{
    struct run run = {first, first + 1, seen[first].keys, seen[first].biased};
    for (; run.end < w->rows && can_join(run.seen, seen[run.end].keys); run.end++) {
        run.seen = union_of(run.seen, seen[run.end].keys);
        run.biased |= seen[run.end].biased;
    }
    return run;
}

/* What every row of a walk sees of a block. */
static void look(const struct attention *a, const struct kernels *kernels, const struct walk *w,
                 int64_t block, struct seen *seen)
{
    const bool differ = attnkit_heads_differ(a);
    for (int r = 0; r < w->rows; r++)
        if (r > 0 && !differ && w->place[r].position == w->place[r - 1].position)
            seen[r] = seen[r - 1];
        else
            attnkit_see(a, kernels, &w->place[r], block, &seen[r]);
}

/* What a tile works with for a run. Lines are in the order of its keys. */
struct run_block {
    int32_t visible[MAX_DECODE_ROWS];
    float row_max[MAX_DECODE_ROWS], row_sum[MAX_DECODE_ROWS];
    const float *bias[MAX_DECODE_ROWS], *keep[MAX_DECODE_ROWS];
};

/* The lines of a row for keys that begin at `from`, without those between that nobody sees, but
 * for tiles, which are whole. */
static void make_lines(const struct attention *a, const struct kernels *kernels,
                       const struct walk *w, int64_t block, int row, struct key_set seen,
                       struct key_set listed, float *bias, float *keep)
{
    if (bias) {
        attnkit_bias_line(a, kernels, w->place[row], block, seen, true, bias);
        attnkit_compact_line(listed, bias);
    }
    if (keep) {
        attnkit_keep_line(a, w->place[row], block, keep);
        attnkit_compact_line(listed, keep);
    }
}

/* The keys of a block that the tile gets for a run: those that are seen, or whole tiles. */
static struct key_set listed_keys(const struct attention *a, struct key_set seen)
{
    if (!a->k.tiled)
        return seen;
    return key_set_of(first_of(seen) / TILE_KEYS * TILE_KEYS, end_of(seen));
}

static void attend_run(const struct attention *a, const struct kernels *kernels,
                       const struct walk *w, int64_t key, const struct seen *seen,
                       const struct run *run, struct key_range next, const struct state *st,
                       struct common *common)
{
    const struct extras *const x = &a->extras;
    const int rows = run->end - run->first;
    const struct key_set listed = listed_keys(a, run->seen);
    const int from = first_of(listed);
    const bool bias = run->biased || !is_equal(listed, run->seen);
    struct run_block b = {.visible = {0}};
    for (int i = 0; i < rows; i++) {
        const int r = run->first + i;
        float *const line = common->lines + 2 * i * KEY_BLOCK;
        const struct key_set own = seen[r].keys;
        b.visible[i] =
            count_of(intersection_of(listed, key_set_of(0, is_empty(own) ? 0 : end_of(own))));
        b.row_max[i] = st->row_max[r];
        b.row_sum[i] = st->row_sum[r];
        b.bias[i] = line;
        b.keep[i] = line + KEY_BLOCK;
        make_lines(a, kernels, w, key, r, own, listed, bias ? line : NULL,
                   x->drops ? line + KEY_BLOCK : NULL);
    }
    const struct state part = {b.row_max, b.row_sum, st->out + run->first * a->value_dim};
    struct decode_block block = {.q = w->q + run->first,
                                 .visible = b.visible,
                                 .st = &part,
                                 .adjust = bias || x->adjust.capped ? &x->adjust : NULL,
                                 .bias = bias ? b.bias : NULL,
                                 .keep = x->drops ? b.keep : NULL,
                                 .far = w->far && run->first == 0};
    const struct key_range keys = {w->batch, w->kv_head, key + from, key + end_of(listed)};
    attnkit_point_to_rows(a, kernels, keys, counted_from(run->seen, from), next, &common->rows,
                          &block);
    kernels->decode(&block, rows, a->scale_log2);
    for (int i = 0; i < rows; i++) {
        st->row_max[run->first + i] = b.row_max[i];
        st->row_sum[run->first + i] = b.row_sum[i];
    }
}

static void attend_masked_block(const struct attention *a, const struct kernels *kernels,
                                const struct walk *w, int64_t key, struct key_range next,
                                const struct state *st, struct common *common)
{
    struct seen seen[MAX_DECODE_ROWS];
    const struct key_range keys = keys_from(w, key, KEY_BLOCK);
    if (keys.first >= keys.end)
        return;
    look(a, kernels, w, key, seen);
    for (int r = 0; r < w->rows;) {
        const struct run run = run_from(w, seen, r);
        if (!is_empty(run.seen))
            attend_run(a, kernels, w, key, seen, &run, next, st, common);
        r = run.end;
    }
}

/* --- The walk --------------------------------------------------------------------------------- */

/* The blocks from key `first` to the end of its chunk; `next` is what comes after them. */
static void attend_chunk(const struct attention *a, const struct kernels *kernels,
                         const struct walk *w, int64_t first, struct key_range next,
                         const struct state *st, struct common *common)
{
    const int64_t last = last_end(w);
    const int64_t chunk_end = last < first + CHUNK_KEYS ? last : first + CHUNK_KEYS;
    for (int64_t key = first; key < chunk_end; key += KEY_BLOCK) {
        const int64_t after = key + KEY_BLOCK;
        const struct key_range next_block =
            after < chunk_end ? keys_from(w, after, KEY_BLOCK) : next;
        if (a->extras.any)
            attend_masked_block(a, kernels, w, key, next_block, st, common);
        else
            attend_block(a, kernels, w, key, next_block, st, common);
    }
}

/* What is walked through after this chunk: it in the next head that has it, or the next one. */
static struct key_range after_chunk(const struct walk *walks, int count, int i, int64_t first)
{
    for (i++; i < count; i++)
        if (first < last_end(walks + i))
            return first_block(walks + i, first);
    for (i = 0; i < count; i++)
        if (first + CHUNK_KEYS < last_end(walks + i))
            return first_block(walks + i, first + CHUNK_KEYS);
    return (struct key_range){0};
}

/* A result of another type is made in the state first, and rounded from there. */
static void finish_rows(const struct attention *a, const struct kernels *kernels,
                        const struct walk *w)
{
    const int rows = w->rows;
    float *out[MAX_DECODE_ROWS] = {NULL};
    for (int r = 0; r < rows; r++)
        out[r] = a->out_type == TYPE_F32 ? w->out[r] : w->total.out + r * a->value_dim;
    kernels->decode_finish(&w->total, rows, a->value_dim, out, a->lse ? w->lse : NULL);
    for (int r = 0; r < rows && a->out_type != TYPE_F32; r++)
        kernels->narrow(a->out_type, out[r], a->value_dim, 0, w->out[r], NULL);
}

static void fold_sinks(const struct attention *a, const struct kernels *kernels,
                       const struct walk *w, const struct state *sinks)
{
    reset(sinks, w->rows, a->value_dim);
    for (int r = 0; r < w->rows; r++)
        attnkit_sink(a, kernels, w->place[r].head, sinks->row_max + r, sinks->row_sum + r);
    kernels->decode_fold(&w->total, sinks, w->rows, a->value_dim);
}

/* `spare` is a state, and `scratch` what attnkit_weights_out needs. */
static void finish(const struct attention *a, const struct kernels *kernels, const struct walk *w,
                   const struct work_item *item, const struct state *spare, float *scratch)
{
    if (!a->after.out) {
        if (a->extras.sinks)
            fold_sinks(a, kernels, w, spare);
        if (a->extras.weights)
            attnkit_weights_out(a, kernels, w->place[0], w->rows, w->total.row_max,
                                w->total.row_sum, (char *)scratch);
        finish_rows(a, kernels, w);
        return;
    }
    struct place place = first_place(a, item);
    for (int r = 0; r < item->decode_rows; r++, place = next_place(a, place))
        export_row(state_row(a, a->after, place), line_of(w->total, r, a->value_dim), a->value_dim);
}

/* A chunk of the keys of one of the walks. */
static void walk_chunk(const struct attention *a, const struct kernels *kernels,
                       const struct walk *walks, int count, int i, int64_t first,
                       struct common *common)
{
    const struct walk *const w = walks + i;
    const struct key_range next = after_chunk(walks, count, i, first);
    if (first_block(w, first).end == 0)
        return;
    if (!needs_fold(a, first)) {
        attend_chunk(a, kernels, w, first, next, &w->total, common);
        return;
    }
    reset(&common->chunk, w->rows, a->value_dim);
    attend_chunk(a, kernels, w, first, next, &common->chunk, common);
    kernels->decode_fold(&w->total, &common->chunk, w->rows, a->value_dim);
}

/* The chunk at `first`, or the next one in which a window of a walk begins. */
static int64_t next_chunk(const struct walk *walks, int count, int64_t first)
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < count; i++) {
        const struct visible v = walks[i].visible;
        const int64_t begin = v.first / CHUNK_KEYS * CHUNK_KEYS;
        const int64_t own = first < v.keep || begin < first ? first : begin;
        next = own < next ? own : next;
    }
    return next;
}

void attnkit_decode(const struct attention *a, const struct kernels *kernels,
                    const struct work_item *items, int count, char *scratch)
{
    float *left = (float *)scratch;
    struct walk walks[MAX_WALKS];
    struct common common;
    int most_rows = 0;
    int64_t end = 0;
    for (int i = 0; i < count; i++) {
        begin(a, kernels, items + i, &left, walks + i);
        most_rows = items[i].decode_rows > most_rows ? items[i].decode_rows : most_rows;
        end = last_end(walks + i) > end ? last_end(walks + i) : end;
    }
    begin_common(a, most_rows, left, &common);
    for (int64_t first = next_chunk(walks, count, 0); first < end;
         first = next_chunk(walks, count, first + CHUNK_KEYS))
        for (int i = 0; i < count; i++)
            if (first < last_end(walks + i))
                walk_chunk(a, kernels, walks, count, i, first, &common);
    for (int i = 0; i < count; i++)
        finish(a, kernels, walks + i, items + i, &common.chunk, common.rest);
}

void attnkit_decode_chunk(const struct attention *a, const struct kernels *kernels,
                          struct work_item item, int64_t first, float *state, char *scratch)
{
    float *left = (float *)scratch;
    struct walk w;
    struct common common;
    struct state chunk;
    begin(a, kernels, &item, &left, &w);
    begin_common(a, w.rows, left, &common);
    take_state(a, w.rows, &state, &chunk);
    reset(&chunk, w.rows, a->value_dim);
    attend_chunk(a, kernels, &w, first, after_chunk(&w, 1, 0, first), &chunk, &common);
}

void attnkit_decode_join(const struct attention *a, const struct kernels *kernels,
                         struct work_item item, const struct chunk_run *run, char *scratch)
{
    const size_t bytes = (size_t)attnkit_decode_state(a, item.decode_rows) * sizeof(float);
    float *left = (float *)scratch;
    struct walk w;
    struct state chunk;
    begin(a, kernels, &item, &left, &w);
    take_state(a, w.rows, &left, &chunk);
    float *const total = w.total.row_max;            /* the first of the state's floats */
    const bool begun = run->before || a->before.out; /* with other chunks than these */
    if (run->before || !begun)
        memcpy(total, run->before ? run->before : run->states, bytes);
    for (int i = begun ? 0 : 1; i < run->count; i++) {
        memcpy(chunk.row_max, run->states + i * run->step, bytes);
        kernels->decode_fold(&w.total, &chunk, w.rows, a->value_dim);
    }
    if (run->after)
        memcpy(run->after, total, bytes);
    else
        finish(a, kernels, &w, &item, &chunk, left);
}
