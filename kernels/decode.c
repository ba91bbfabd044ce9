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

/* What goes on for one item. The state is in scratch. */
struct walk {
    int64_t batch, kv_head;
    int rows;
    bool far; /* K and V most likely are in no near cache */
    const float *q[MAX_DECODE_ROWS];
    void *out[MAX_DECODE_ROWS];
    float *lse[MAX_DECODE_ROWS];
    int64_t end[MAX_DECODE_ROWS]; /* of the keys that a row sees; does not fall from row to row */
    struct state total;           /* over the chunks so far */
};

/* What walks that take turns share. */
struct common {
    struct state chunk; /* over the blocks of this chunk so far */
    struct row_room rows;
    int32_t visible[MAX_DECODE_ROWS]; /* of the block */
};

int64_t attnkit_decode_state(const struct attention *a, int rows)
{
    return 2 * MAX_DECODE_ROWS + rows * a->value_dim;
}

size_t attnkit_decode_scratch(const struct attention *a, int rows, int items)
{
    const int64_t state = attnkit_decode_state(a, rows),
                  q = a->q_type == TYPE_F32 ? 0 : rows * a->head_dim;
    return (size_t)(items * (state + q) + state + attnkit_row_floats(a)) * sizeof(float);
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
        w->end[r] = visible_end(a, item->batch, place.position);
        w->q[r] = take_q(a, kernels, place, scratch);
        if (!a->after.out)
            w->out[r] = out_row(a, place);
        w->lse[r] = a->lse ? lse_row(a, place) : NULL;
    }
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
    common->rows.wide = attnkit_take_row_floats(a, scratch);
    common->rows.next = 0;
    common->rows.known = (struct key_range){0};
}

/* The first chunk needs no state of its own, as in prefill.c. */
static bool needs_fold(const struct attention *a, int64_t first)
{
    return first > 0 || a->before.out;
}

static struct key_range keys_from(const struct walk *w, int64_t first)
{
    return (struct key_range){w->batch, w->kv_head, first, last_end(w)};
}

/* The blocks from key `first` to the end of its chunk; `next` is what comes after them. */
static void attend_chunk(const struct attention *a, const struct kernels *kernels,
                         const struct walk *w, int64_t first, struct key_range next,
                         const struct state *st, struct common *common)
{
    const int64_t chunk_end = last_end(w) < first + CHUNK_KEYS ? last_end(w) : first + CHUNK_KEYS;
    struct decode_block block = {.q = w->q, .visible = common->visible, .st = st, .far = w->far};
    for (int64_t key = first; key < chunk_end; key += KEY_BLOCK) {
        for (int r = 0; r < w->rows; r++)
            common->visible[r] = visible_in_block(w->end[r], key);
        const int64_t after = key + KEY_BLOCK;
        attnkit_point_to_rows(a, kernels, keys_from(w, key),
                              after < chunk_end ? keys_from(w, after) : next, &common->rows,
                              &block);
        kernels->decode(&block, w->rows, a->scale_log2);
    }
}

/* What is walked through after this chunk: it in the next head that has it, or the next one. */
static struct key_range after_chunk(const struct walk *walks, int count, int i, int64_t first)
{
    for (i++; i < count; i++)
        if (first < last_end(walks + i))
            return keys_from(walks + i, first);
    for (i = 0; i < count; i++)
        if (first + CHUNK_KEYS < last_end(walks + i))
            return keys_from(walks + i, first + CHUNK_KEYS);
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

static void finish(const struct attention *a, const struct kernels *kernels, const struct walk *w,
                   const struct work_item *item)
{
    if (!a->after.out) {
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
    if (!needs_fold(a, first)) {
        attend_chunk(a, kernels, w, first, next, &w->total, common);
        return;
    }
    reset(&common->chunk, w->rows, a->value_dim);
    attend_chunk(a, kernels, w, first, next, &common->chunk, common);
    kernels->decode_fold(&w->total, &common->chunk, w->rows, a->value_dim);
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
    for (int64_t first = 0; first < end; first += CHUNK_KEYS)
        for (int i = 0; i < count; i++)
            if (first < last_end(walks + i))
                walk_chunk(a, kernels, walks, count, i, first, &common);
    for (int i = 0; i < count; i++)
        finish(a, kernels, walks + i, items + i);
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
        finish(a, kernels, &w, &item);
}
