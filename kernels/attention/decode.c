/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for few query rows of a KV head, a decoding step above all: one walk over the keys, a
 * fused tile per block. Called for a work item by dispatch/attention/schedule.c, and by prefill.c
 * for rows whose result is not finite.
 */
#include <math.h>
#include <string.h>

#include "kernels/attention/block.h"
#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"
#include "kernels/attention/weights.h"

enum { NEAR_BYTES = 1 << 19 }; /* what a near cache keeps of a head */

/* What goes on for one item. The state is in scratch. */
struct walk {
    int64_t batch, kv_head;
    int rows;
    bool far;   /* K and V most likely are in no near cache */
    bool large; /* nor would be if this head had been worked on before */
    const float *q[MAX_DECODE_ROWS];
    void *out[MAX_DECODE_ROWS];
    float *lse[MAX_DECODE_ROWS];
    struct place place[MAX_DECODE_ROWS];
    int64_t end[MAX_DECODE_ROWS]; /* of the keys that a row sees; does not fall from row to row */
    struct visible visible;       /* to any row, by its index */
    struct state total;           /* over the chunks so far */
    struct state chunk;           /* over the blocks of this chunk so far */
};

/* What walks that take turns share. */
struct common {
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
    return (size_t)(items * (2 * state + q) + line_floats(a, rows) + attnkit_row_floats(a)) *
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

/* Of K and V of a head. */
static int64_t key_bytes(const struct attention *a)
{
    return bytes_of(a->k.type, a->k.dim) + bytes_of(a->v.type, a->v.dim);
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
    take_state(a, w->rows, scratch, &w->chunk);
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
    w->large = last_end(w) > NEAR_BYTES / key_bytes(a);
    reset(&w->total, w->rows, a->value_dim);
    if (a->before.out)
        resume(a, item, &w->total);
}

/* Returns the most rows of a walk. */
static int begin_all(const struct attention *a, const struct kernels *kernels,
                     const struct work_item *items, int count, float **scratch, struct walk *walks)
{
    int most = 0;
    for (int i = 0; i < count; i++) {
        begin(a, kernels, items + i, scratch, walks + i);
        most = walks[i].rows > most ? walks[i].rows : most;
    }
    return most;
}

static void begin_common(const struct attention *a, int rows, float *scratch, struct common *common)
{
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
    struct decode_block block = {
        .q = w->q, .visible = visible, .st = st, .far = w->far, .large = w->large};
    const struct key_range keys = keys_from(w, key, KEY_BLOCK);
    for (int r = 0; r < w->rows; r++)
        visible[r] = visible_in_block(w->end[r], key);
    attnkit_point_to_rows(a, kernels, keys, key_set_of(0, (int)(keys.end - key)), next,
                          &common->rows, &block);
    kernels->decode(&block, w->rows, a->scale_log2);
}

/* --- Masks ------------------------------------------------------------------------------------ */

/* A block of a walk, and what its rows see of it. */
struct masked_block {
    const struct attention *a;
    const struct kernels *kernels;
    const struct walk *w;
    int64_t key; /* the first */
    const struct state *st;
    struct common *common;
    struct seen seen[MAX_DECODE_ROWS];
};

static void look(struct masked_block *m)
{
    const bool differ = attnkit_heads_differ(m->a);
    const struct place *const place = m->w->place;
    for (int r = 0; r < m->w->rows; r++)
        if (r > 0 && !differ && place[r].position == place[r - 1].position)
            m->seen[r] = m->seen[r - 1];
        else
            attnkit_see(m->a, m->kernels, &place[r], m->key, &m->seen[r]);
}

/* Rows that go through a tile together, because each sees the first keys of those that all of them
 * see, or all see the same. */
struct run {
    int first, end;        /* rows */
    struct key_set seen;   /* by any of them */
    struct key_set listed; /* what the tile gets: keys that are seen, or whole tiles of them */
    bool biased;           /* not all that is listed is seen, or scores are added to */
};

static bool can_join(struct key_set seen, struct key_set more)
{
    if (is_empty(seen) || is_empty(more))
        return is_equal(seen, more);
    return is_equal(seen, more) ||
           (is_in_a_row(seen) && is_in_a_row(more) && first_of(seen) == first_of(more));
}

static struct run run_from(const struct masked_block *m, int first)
{
    const struct seen *const seen = m->seen;
    struct run run = {first, first + 1, seen[first].keys, {{0, 0}}, seen[first].biased};
    for (; run.end < m->w->rows && can_join(run.seen, seen[run.end].keys); run.end++) {
        run.seen = union_of(run.seen, seen[run.end].keys);
        run.biased |= seen[run.end].biased;
    }
    run.listed = run.seen;
    if (m->a->k.tiled && !is_empty(run.seen))
        run.listed = key_set_of(first_of(run.seen) / TILE_KEYS * TILE_KEYS, end_of(run.seen));
    run.biased |= !is_equal(run.listed, run.seen);
    return run;
}

/* What a tile works with for a run. */
struct run_block {
    int32_t visible[MAX_DECODE_ROWS];
    float row_max[MAX_DECODE_ROWS], row_sum[MAX_DECODE_ROWS];
    const float *bias[MAX_DECODE_ROWS], *keep[MAX_DECODE_ROWS];
};

/* The lines of a row, in the order of the keys that are listed. */
static void make_lines(const struct masked_block *m, const struct run *run, int row, float *bias,
                       float *keep)
{
    if (run->biased) {
        attnkit_bias_line(m->a, m->kernels, m->w->place[row], m->key, m->seen[row].keys, true,
                          bias);
        attnkit_compact_line(m->kernels, run->listed, bias);
    }
    if (m->a->extras.drops) {
        attnkit_keep_line(m->a, m->kernels, m->w->place[row], m->key, keep);
        attnkit_compact_line(m->kernels, run->listed, keep);
    }
}

/* Row i of the run. A state of its own, because a tile takes those of whole vectors of rows. */
static void begin_row(const struct masked_block *m, const struct run *run, int i,
                      struct run_block *b)
{
    const int row = run->first + i;
    const struct key_set own = m->seen[row].keys;
    const struct key_set up_to_last = key_set_of(0, is_empty(own) ? 0 : end_of(own));
    float *const lines = m->common->lines + 2 * i * KEY_BLOCK;
    b->visible[i] = count_of(intersection_of(run->listed, up_to_last));
    b->row_max[i] = m->st->row_max[row];
    b->row_sum[i] = m->st->row_sum[row];
    b->bias[i] = lines;
    b->keep[i] = lines + KEY_BLOCK;
    make_lines(m, run, row, lines, lines + KEY_BLOCK);
}

static void attend_run(const struct masked_block *m, const struct run *run, struct key_range next)
{
    const struct attention *const a = m->a;
    const struct extras *const x = &a->extras;
    const struct walk *const w = m->w;
    const int rows = run->end - run->first, from = first_of(run->listed);
    struct run_block b = {.visible = {0}};
    for (int i = 0; i < rows; i++)
        begin_row(m, run, i, &b);
    const struct state part = {b.row_max, b.row_sum, m->st->out + run->first * a->value_dim};
    struct decode_block block = {.q = w->q + run->first,
                                 .visible = b.visible,
                                 .st = &part,
                                 .adjust = run->biased || x->adjust.capped ? &x->adjust : NULL,
                                 .bias = run->biased ? b.bias : NULL,
                                 .keep = x->drops ? b.keep : NULL,
                                 .far = w->far && run->first == 0,
                                 .large = w->large};
    const struct key_range keys = {w->batch, w->kv_head, m->key + from,
                                   m->key + end_of(run->listed)};
    attnkit_point_to_rows(a, m->kernels, keys, counted_from(run->seen, from), next,
                          &m->common->rows, &block);
    m->kernels->decode(&block, rows, a->scale_log2);
    memcpy(m->st->row_max + run->first, b.row_max, (size_t)rows * sizeof(float));
    memcpy(m->st->row_sum + run->first, b.row_sum, (size_t)rows * sizeof(float));
}

static void attend_masked_block(const struct attention *a, const struct kernels *kernels,
                                const struct walk *w, int64_t key, struct key_range next,
                                const struct state *st, struct common *common)
{
    struct masked_block m = {
        .a = a, .kernels = kernels, .w = w, .key = key, .st = st, .common = common};
    const struct key_range keys = keys_from(w, key, KEY_BLOCK);
    if (keys.first >= keys.end)
        return;
    look(&m);
    for (int r = 0; r < w->rows;) {
        const struct run run = run_from(&m, r);
        if (!is_empty(run.seen))
            attend_run(&m, &run, next);
        r = run.end;
    }
}

/* --- The walk --------------------------------------------------------------------------------- */

/* The block at key `first` of a walk; `next` is what comes after it in any walk. */
static void attend(const struct attention *a, const struct kernels *kernels, const struct walk *w,
                   int64_t first, struct key_range next, const struct state *st,
                   struct common *common)
{
    if (a->extras.any)
        attend_masked_block(a, kernels, w, first, next, st, common);
    else
        attend_block(a, kernels, w, first, next, st, common);
}

static bool has_keys(struct key_range keys)
{
    return keys.first < keys.end;
}

/* What is walked through after the block at `first` in walk i: it in the next head that has it, or
 * the next one, or else the first of the next chunk. */
static struct key_range after_block(const struct walk *walks, int count, int i, int64_t first)
{
    const int64_t chunk_end = (first / CHUNK_KEYS + 1) * CHUNK_KEYS;
    for (i++; first < chunk_end; first += KEY_BLOCK, i = 0)
        for (; i < count; i++) {
            const struct key_range keys = keys_from(walks + i, first, KEY_BLOCK);
            if (has_keys(keys))
                return keys;
        }
    for (i = 0; i < count; i++)
        if (has_keys(first_block(walks + i, chunk_end)))
            return first_block(walks + i, chunk_end);
    return (struct key_range){0};
}

/* A chunk of the keys, block by block in turns, so that what heads share of a page of memory is
 * near when they come to it. states[i] is that of walk i. */
static void attend_chunk(const struct attention *a, const struct kernels *kernels,
                         const struct walk *walks, int count, int64_t first,
                         const struct state *const *states, struct common *common)
{
    for (int64_t key = first; key < first + CHUNK_KEYS; key += KEY_BLOCK)
        for (int i = 0; i < count; i++)
            if (has_keys(keys_from(walks + i, key, KEY_BLOCK)))
                attend(a, kernels, walks + i, key, after_block(walks, count, i, key), states[i],
                       common);
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

/* As states are given to the caller: a zero is +0 whichever way it came about, as in the result of
 * one with a sum of 1. */
static void export_rows(const struct attention *a, const struct kernels *kernels,
                        const struct walk *w)
{
    float ones[MAX_DECODE_ROWS], *out[MAX_DECODE_ROWS];
    for (int r = 0; r < w->rows; r++) {
        const struct state to = state_row(a, a->after, w->place[r]);
        *to.row_max = w->total.row_max[r] + 0.0f;
        *to.row_sum = w->total.row_sum[r];
        ones[r] = 1.0f;
        out[r] = to.out;
    }
    const struct state st = {w->total.row_max, ones, w->total.out};
    kernels->decode_finish(&st, w->rows, a->value_dim, out, NULL);
}

/* `spare` is a state, and `scratch` what attnkit_write_weights needs. */
static void finish(const struct attention *a, const struct kernels *kernels, const struct walk *w,
                   const struct state *spare, float *scratch)
{
    if (a->after.out) {
        export_rows(a, kernels, w);
        return;
    }
    if (a->extras.sinks)
        fold_sinks(a, kernels, w, spare);
    if (a->extras.weights)
        attnkit_write_weights(a, kernels, w->place[0], w->rows, w->total.row_max, w->total.row_sum,
                              (char *)scratch);
    finish_rows(a, kernels, w);
}

/* A chunk of the keys of all walks. */
static void walk_chunk(const struct attention *a, const struct kernels *kernels,
                       const struct walk *walks, int count, int64_t first, struct common *common)
{
    const struct state *states[MAX_WALKS];
    const bool fold = needs_fold(a, first);
    for (int i = 0; i < count; i++) {
        states[i] = fold ? &walks[i].chunk : &walks[i].total;
        if (fold && has_keys(first_block(walks + i, first)))
            reset(states[i], walks[i].rows, a->value_dim);
    }
    attend_chunk(a, kernels, walks, count, first, states, common);
    for (int i = 0; fold && i < count; i++)
        if (has_keys(first_block(walks + i, first)))
            kernels->decode_fold(&walks[i].total, &walks[i].chunk, walks[i].rows, a->value_dim);
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

/* The whole of `count` items, with room for their walks. */
static void decode(const struct attention *a, const struct kernels *kernels,
                   const struct work_item *items, int count, struct walk *walks, char *scratch)
{
    float *left = (float *)scratch;
    struct common common;
    int64_t end = 0;
    const int most_rows = begin_all(a, kernels, items, count, &left, walks);
    begin_common(a, most_rows, left, &common);
    for (int i = 0; i < count; i++)
        end = last_end(walks + i) > end ? last_end(walks + i) : end;
    for (int64_t first = next_chunk(walks, count, 0); first < end;
         first = next_chunk(walks, count, first + CHUNK_KEYS))
        walk_chunk(a, kernels, walks, count, first, &common);
    for (int i = 0; i < count; i++)
        finish(a, kernels, walks + i, &walks[i].chunk, common.rest);
}

/* Not inlined, so that one walk does not take the stack of several: prefill.c, which needs much
 * itself, decodes one item. */
static __attribute__((noinline)) void decode_one(const struct attention *a,
                                                 const struct kernels *kernels,
                                                 const struct work_item *item, char *scratch)
{
    struct walk walk;
    decode(a, kernels, item, 1, &walk, scratch);
}

static __attribute__((noinline)) void decode_several(const struct attention *a,
                                                     const struct kernels *kernels,
                                                     const struct work_item *items, int count,
                                                     char *scratch)
{
    struct walk walks[MAX_WALKS];
    decode(a, kernels, items, count, walks, scratch);
}

void attnkit_decode(const struct attention *a, const struct kernels *kernels,
                    const struct work_item *items, int count, char *scratch)
{
    if (count == 1)
        decode_one(a, kernels, items, scratch);
    else
        decode_several(a, kernels, items, count, scratch);
}

void attnkit_decode_chunk(const struct attention *a, const struct kernels *kernels,
                          const struct work_item *items, int count, int64_t first, float *states,
                          int64_t step, char *scratch)
{
    float *left = (float *)scratch;
    struct walk walks[MAX_WALKS];
    struct common common;
    struct state chunk[MAX_WALKS];
    const struct state *chunks[MAX_WALKS];
    const int most_rows = begin_all(a, kernels, items, count, &left, walks);
    begin_common(a, most_rows, left, &common);
    for (int i = 0; i < count; i++) {
        float *room = states + i * step;
        take_state(a, walks[i].rows, &room, &chunk[i]);
        reset(&chunk[i], walks[i].rows, a->value_dim);
        chunks[i] = &chunk[i];
    }
    attend_chunk(a, kernels, walks, count, first, chunks, &common);
}

void attnkit_decode_join(const struct attention *a, const struct kernels *kernels,
                         const struct work_item *item, const struct chunk_run *run, char *scratch)
{
    const size_t bytes = (size_t)attnkit_decode_state(a, item->decode_rows) * sizeof(float);
    float *left = (float *)scratch;
    struct walk w;
    begin(a, kernels, item, &left, &w);
    float *const total = w.total.row_max;            /* the first of the state's floats */
    const bool begun = run->before || a->before.out; /* with other chunks than these */
    if (run->before || !begun)
        memcpy(total, run->before ? run->before : run->states, bytes);
    for (int i = begun ? 0 : 1; i < run->count; i++) {
        memcpy(w.chunk.row_max, run->states + i * run->step, bytes);
        kernels->decode_fold(&w.total, &w.chunk, w.rows, a->value_dim);
    }
    if (run->after)
        memcpy(run->after, total, bytes);
    else
        finish(a, kernels, &w, &w.chunk, left);
}
