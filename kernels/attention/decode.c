/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for few query rows of a KV head, above all for a decoding step. A walk goes over the
 * keys once, block by block. Usually the walk calls the decode tile once for each block. If
 * extras.any is set, as with masks, or if a key of the block has no cell, the query rows are split
 * into runs (struct run). The walk then calls the tile once for each run that sees keys.
 * decode_together of struct kernels computes a block of several walks in one call.
 * dispatch/attention/schedule.c calls this file for whole work items. dispatch/attention/steal.c
 * calls this file for a chunk of an item's keys, and to join the states of chunks. careful.c calls
 * this file for a chunk of a row's keys. With integers, prefill.c calls this file for rows whose
 * results are not finite.
 */
#include <math.h>
#include <string.h>

#include "kernels/attention/block.h"
#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"
#include "kernels/attention/total.h"
#include "kernels/attention/weights.h"

enum {
    NEAR_BYTES = 1 << 19, /* bytes of K and V that L2 keeps */
    LINE_BYTES = 64,      /* bytes of a cache line */
};

/* The walk over the keys of one item. `chunk` and `total` point into scratch, with two exceptions.
 * In decode_chunk, `chunk` points to the caller's state. In attnkit_decode_join, `chunk` and
 * `total` point to the states and the total of struct chunk_run. */
struct walk {
    int64_t batch, kv_head;
    int rows;
    bool far;   /* K and V most likely are neither in L1 nor in L2 */
    bool large; /* K and V of this head have more bytes than L2 keeps (NEAR_BYTES) */
    const float *q[MAX_DECODE_ROWS];
    void *out[MAX_DECODE_ROWS];
    float *lse[MAX_DECODE_ROWS];
    struct place place[MAX_DECODE_ROWS];
    int64_t end[MAX_DECODE_ROWS]; /* end of the keys that a row sees; never falls from row to row */
    struct visible visible;       /* the keys that at least one row sees by its position */
    struct state chunk; /* the state of the latest chunk, over the blocks that have been computed */
    struct total total; /* the state over the chunks before the latest chunk */
    bool is_used;  /* the walk has come to keys of `chunk`; masks may have hidden all these keys */
    bool is_begun; /* `total` holds the caller's total or a chunk */
};

/* Scratch that the walks of a call share. The walks take turns. */
struct common {
    struct row_room rows;
    float *lines; /* [rows][2][KEY_BLOCK]: numbers added to scores, and factors of weights */
    float *rest;  /* rest of the scratch: used by decode_together, and by finish after the walks */
};

int64_t attnkit_decode_state(const struct attention *a, int rows)
{
    return 2 * MAX_DECODE_ROWS + rows * a->value_dim;
}

int64_t attnkit_decode_total(const struct attention *a, int rows)
{
    return MAX_DECODE_ROWS + MAX_DECODE_ROWS / 2 + rows * a->value_dim;
}

static int64_t line_floats(const struct attention *a, int rows)
{
    return a->extras.any || has_cells(a) ? 2 * rows * KEY_BLOCK : 0;
}

/* Returns the number of floats for widened or rounded queries. */
static int64_t q_floats(const struct attention *a, int rows)
{
    const int64_t widened = a->q_type == TYPE_F32 ? 0 : a->head_dim;
    return has_integers(a) ? rows * (rounded_row_floats(a->head_dim) + widened) : rows * widened;
}

/* Returns the number of bytes of scratch for the walks, without `rest` of struct common. */
static size_t walk_scratch(const struct attention *a, int rows, int items)
{
    const int64_t doubles = items * attnkit_decode_total(a, rows),
                  floats = items * (attnkit_decode_state(a, rows) + q_floats(a, rows)) +
                           line_floats(a, rows) + attnkit_row_floats(a);
    return (size_t)doubles * sizeof(double) + (size_t)floats * sizeof(float);
}

static bool is_half(enum type type)
{
    return type == TYPE_F16 || type == TYPE_BF16;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns the most query rows of a head with which decode_together of struct kernels saves time,
 * for K and V of `heads` heads. `gaps` is as in struct kernels. The result is 0 if decode_together
 * does not take these heads. */
static int together_rows(const struct attention *a, const struct kernels *kernels, int heads,
                         bool gaps)
{
    const struct cache *const k = &a->k, *const v = &a->v;
    if (heads == 1 || !kernels->together_rows || k->type != v->type || k->dim != v->dim ||
        k->tiled || has_integers(a))
        return 0;
    return kernels->together_rows(k->type, k->dim, heads, gaps);
}

/* Returns the number of bytes of scratch for decode_together, and for the alignment of this
 * scratch. A call of decode_together takes at most `rows` rows of each of at most `items` heads. */
static size_t together_scratch(const struct attention *a, const struct kernels *kernels, int rows,
                               int items)
{
    const int most = together_rows(a, kernels, items, false), taken = rows < most ? rows : most;
    if (most == 0)
        return 0;
    return LINE_BYTES + (size_t)(items * together_floats(taken, a->k.dim)) * sizeof(float);
}

size_t attnkit_decode_scratch(const struct attention *a, const struct kernels *kernels, int rows,
                              int items)
{
    const size_t after = larger(attnkit_weights_scratch(a), attnkit_careful_scratch(a));
    return walk_scratch(a, rows, items) + larger(after, together_scratch(a, kernels, rows, items));
}

size_t attnkit_decode_row_scratch(const struct attention *a)
{
    return walk_scratch(a, 1, 1);
}

static struct state state_at(float *floats)
{
    return (struct state){floats, floats + MAX_DECODE_ROWS, floats + 2 * MAX_DECODE_ROWS};
}

static struct total total_at(double *doubles)
{
    double *const maxima = doubles + MAX_DECODE_ROWS; /* room for floats */
    return (struct total){(float *)(void *)maxima, doubles, maxima + MAX_DECODE_ROWS / 2};
}

static void reset(const struct state *st, int rows, int64_t value_dim)
{
    for (int r = 0; r < MAX_DECODE_ROWS; r++)
        st->row_max[r] = -INFINITY;
    memset(st->row_sum, 0, MAX_DECODE_ROWS * sizeof(float));
    memset(st->out, 0, (size_t)(rows * value_dim) * sizeof(float));
}

/* Returns the query row as binary32, in place or in scratch. */
static const float *widened_q(const struct attention *a, const struct kernels *kernels,
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

/* Returns the query row as the tiles take it: as binary32, or rounded to integers. */
static const float *take_q(const struct attention *a, const struct kernels *kernels,
                           struct place place, float **scratch)
{
    const float *const q = widened_q(a, kernels, place, scratch);
    if (!has_integers(a))
        return q;
    float *const rounded = *scratch;
    *scratch += rounded_row_floats(a->head_dim);
    kernels->integers->round_row(q, a->head_dim, rounded);
    return rounded;
}

static struct place first_place(const struct attention *a, const struct work_item *item)
{
    return place_of_row(a, item->batch, item->kv_head, item->first_row + item->panel_rows);
}

/* Sets the total to the caller's total over earlier keys. */
static void resume(const struct attention *a, struct walk *w)
{
    for (int r = 0; r < w->rows; r++) {
        const struct total row = total_row(a, a->before, w->place[r]);
        w->total.row_max[r] = *row.row_max;
        w->total.row_sum[r] = *row.row_sum;
        memcpy(w->total.out + r * a->value_dim, row.out, (size_t)a->value_dim * sizeof(double));
    }
    w->is_begun = true;
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
    w->chunk = state_at(*scratch);
    *scratch += attnkit_decode_state(a, w->rows);
    w->is_used = w->is_begun = false;
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
    /* If earlier rows of this head have been computed, they have most likely brought the keys into
     * L2. If the head has few keys, a prefetch would come too late. */
    w->far = item->first_row + item->panel_rows == 0 && last_end(w) > FEW_KEYS;
    w->large = last_end(w) > NEAR_BYTES / key_bytes(a);
    reset(&w->chunk, w->rows, a->value_dim);
}

/* Begins all walks. Sets *left to the rest of the scratch. Returns the largest number of rows that
 * a walk has. */
static int begin_all(const struct attention *a, const struct kernels *kernels,
                     const struct work_item *items, int count, char *scratch, float **left,
                     struct walk *walks)
{
    int most = 0;
    double *totals = (double *)(void *)scratch;
    for (int i = 0; i < count; i++) {
        walks[i].total = total_at(totals);
        totals += attnkit_decode_total(a, items[i].decode_rows);
    }
    *left = (float *)totals;
    for (int i = 0; i < count; i++) {
        begin(a, kernels, items + i, left, walks + i);
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

/* Returns a range with all keys of a block or chunk that rows see by their position (visible_part).
 * The block or chunk has `count` keys from key `first` on. */
static struct key_range keys_from(const struct walk *w, int64_t first, int64_t count)
{
    struct key_range keys = visible_part(w->visible, first, count);
    keys.batch = w->batch;
    keys.kv_head = w->kv_head;
    return keys;
}

/* The chunk begins at key `first`. Returns the visible keys of its first block with visible keys,
 * or an empty range if no key of the chunk is visible. */
static struct key_range first_block(const struct walk *w, int64_t first)
{
    struct key_range keys = keys_from(w, first, CHUNK_KEYS);
    if (keys.first >= keys.end)
        return (struct key_range){0};
    return keys_from(w, keys.first / KEY_BLOCK * KEY_BLOCK, KEY_BLOCK);
}

static void run_tile(const struct attention *a, const struct kernels *kernels,
                     const struct decode_block *block, int rows)
{
    if (has_integers(a))
        kernels->integers->decode(block, rows, a->scale_log2);
    else
        kernels->decode(block, rows, a->scale_log2);
}

static void attend_block(const struct attention *a, const struct kernels *kernels,
                         const struct walk *w, int64_t key, struct key_range next,
                         struct common *common)
{
    int32_t visible[MAX_DECODE_ROWS];
    struct decode_block block = {
        .q = w->q, .visible = visible, .st = &w->chunk, .far = w->far, .large = w->large};
    const struct key_range keys = keys_from(w, key, KEY_BLOCK);
    for (int r = 0; r < w->rows; r++)
        visible[r] = visible_in_block(w->end[r], key);
    attnkit_point_to_rows(a, kernels, keys, key_set_of(0, (int)(keys.end - key)), next,
                          &common->rows, &block);
    run_tile(a, kernels, &block, w->rows);
}

/* --- Masks ------------------------------------------------------------------------------------ */

/* A block of a walk, and the keys of the block that each row sees. */
struct masked_block {
    const struct attention *a;
    const struct kernels *kernels;
    const struct walk *w;
    int64_t key; /* first key of the block */
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

/* Rows that go through a tile together. Either all of them see the same keys, or the keys that a
 * row sees are the first keys of `seen`, as in a causal call. */
struct run {
    int first, end;        /* rows first .. end - 1 */
    struct key_set seen;   /* keys that at least one of the rows sees */
    struct key_set listed; /* keys that the tile reads: `seen`; with tiled K all keys from the first
                            * tile with a seen key to the last seen key */
    bool biased;           /* `listed` has more keys than `seen`, or something but 0 may be added to
                            * scores */
    bool far;              /* no key of `seen` is in `seen` of an earlier run of the block */
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
    struct run run = {first, first + 1, seen[first].keys, {{0, 0}}, seen[first].biased, false};
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

/* The arguments of a tile for a run. */
struct run_block {
    int32_t visible[MAX_DECODE_ROWS];
    float row_max[MAX_DECODE_ROWS], row_sum[MAX_DECODE_ROWS];
    const float *bias[MAX_DECODE_ROWS], *keep[MAX_DECODE_ROWS];
};

/* Makes the lines `bias` and `keep` of a row, each only if the run needs the line. A line has a
 * number for each listed key, in the order of the keys. */
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

/* Sets up row i of the run. struct run_block has a copy of row_max and row_sum of the state,
 * because a tile may read and write both arrays for whole vectors of rows. */
static void begin_row(const struct masked_block *m, const struct run *run, int i,
                      struct run_block *b)
{
    const int row = run->first + i;
    const struct key_set own = m->seen[row].keys;
    const struct key_set up_to_last = key_set_of(0, is_empty(own) ? 0 : end_of(own));
    float *const lines = m->common->lines + 2 * i * KEY_BLOCK;
    b->visible[i] = count_of(intersection_of(run->listed, up_to_last));
    b->row_max[i] = m->w->chunk.row_max[row];
    b->row_sum[i] = m->w->chunk.row_sum[row];
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
    const struct state part = {b.row_max, b.row_sum, m->w->chunk.out + run->first * a->value_dim};
    struct decode_block block = {.q = w->q + run->first,
                                 .visible = b.visible,
                                 .st = &part,
                                 .adjust = run->biased || x->adjust.capped ? &x->adjust : NULL,
                                 .bias = run->biased ? b.bias : NULL,
                                 .keep = x->drops ? b.keep : NULL,
                                 .far = w->far && run->far,
                                 .large = w->large};
    const struct key_range keys = {w->batch, w->kv_head, m->key + from,
                                   m->key + end_of(run->listed)};
    attnkit_point_to_rows(a, m->kernels, keys, counted_from(run->seen, from), next,
                          &m->common->rows, &block);
    run_tile(a, m->kernels, &block, rows);
    memcpy(m->w->chunk.row_max + run->first, b.row_max, (size_t)rows * sizeof(float));
    memcpy(m->w->chunk.row_sum + run->first, b.row_sum, (size_t)rows * sizeof(float));
}

static void attend_masked_block(const struct attention *a, const struct kernels *kernels,
                                const struct walk *w, int64_t key, struct key_range next,
                                struct common *common)
{
    struct masked_block m = {.a = a, .kernels = kernels, .w = w, .key = key, .common = common};
    const struct key_range keys = keys_from(w, key, KEY_BLOCK);
    if (keys.first >= keys.end || has_no_cells(a, key))
        return;
    look(&m);
    struct key_set read = {{0, 0}};
    for (int r = 0; r < w->rows;) {
        struct run run = run_from(&m, r);
        run.far = is_empty(intersection_of(run.seen, read));
        if (!is_empty(run.seen))
            attend_run(&m, &run, next);
        read = union_of(read, run.seen);
        r = run.end;
    }
}

/* --- The walk --------------------------------------------------------------------------------- */

/* Attends over the block at key `first` of a walk. `next` is the block to prefetch. */
static void attend(const struct attention *a, const struct kernels *kernels, const struct walk *w,
                   int64_t first, struct key_range next, struct common *common)
{
    const struct key_range keys = keys_from(w, first, KEY_BLOCK);
    if (a->extras.any || !all_have_cells(a, first, (int)(keys.end - first)))
        attend_masked_block(a, kernels, w, first, next, common);
    else
        attend_block(a, kernels, w, first, next, common);
}

static bool has_keys(struct key_range keys)
{
    return keys.first < keys.end;
}

/* Returns the visible keys of the block that is computed after the block at key `first` of walk i.
 * The next block is the block of a later walk at the same key, or a later block of the chunk, or
 * else the first block of the next chunk. Returns an empty range if none of these blocks has
 * visible keys. */
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

/* Returns the end of the keys that any walk sees. */
static int64_t end_of_all(const struct walk *walks, int count)
{
    int64_t end = 0;
    for (int i = 0; i < count; i++)
        end = last_end(walks + i) > end ? last_end(walks + i) : end;
    return end;
}

/* Returns whether the rows of the heads of the walks lie side by side, in K and in V. If K and V
 * are in pages, returns false. If the result is true, the walks are walks of one sequence, and see
 * the same keys. */
static bool are_side_by_side(const struct attention *a, const struct walk *walks, int count)
{
    const struct cache *const k = &a->k, *const v = &a->v;
    return count > 1 && !k->tiled && !a->pages.table &&
           k->stride.head == bytes_of(k->type, k->dim) &&
           v->stride.head == bytes_of(v->type, v->dim) &&
           walks[count - 1].kv_head == walks[0].kv_head + count - 1;
}

/* Returns whether the heads of the walks can prefetch together: their rows lie side by side, and L2
 * has room for a block of all heads until the last head uses it. If each head prefetches a part of
 * the next block of all heads, memory is read in order. On a Zen 4 with AVX-512 and K and V of
 * 16-bit types, prefetching together reduces the time of decoding to 0.6 to 0.7 of the time with
 * heads that prefetch by themselves. With other types, prefetching together saves no time. If K and
 * V of a head are not `large` (struct walk), prefetching together costs time. */
static bool can_prefetch_together(const struct attention *a, const struct walk *walks, int count)
{
    return are_side_by_side(a, walks, count) && walks[0].large && is_half(a->k.type) &&
           is_half(a->v.type) && count * KEY_BLOCK * key_bytes(a) <= NEAR_BYTES;
}

/* Returns the block that walk i prefetches while walk i is at the block at key `first`. `end` is
 * the result of end_of_all. The result is empty if the walk prefetches nothing. If room->turns is
 * 1, the result is the block that is computed next, which may be a block of another walk. If
 * room->turns is larger, the result is the next block of the first head, which stands for all
 * heads. room->turn then says which part of the block walk i prefetches. */
static struct key_range next_of(const struct walk *walks, int count, int i, int64_t first,
                                int64_t end, struct row_room *room)
{
    const bool is_last = i == count - 1 && end - first <= KEY_BLOCK;
    if (!walks[i].far || is_last)
        return (struct key_range){0};
    if (room->turns == 1)
        return after_block(walks, count, i, first);
    room->turn = i;
    return after_block(walks, count, count - 1, first);
}

/* Returns whether there are bytes between the rows that `count` heads have for two tokens. */
static bool have_gaps(const struct attention *a, int count)
{
    const int64_t k = count * bytes_of(a->k.type, a->k.dim),
                  v = count * bytes_of(a->v.type, a->v.dim);
    return (a->k.stride.row != k && a->k.stride.row != -k) ||
           (a->v.stride.row != v && a->v.stride.row != -v);
}

/* Returns whether one tile can compute whole blocks of all walks (decode_together of struct
 * kernels). Returns false if K and V of all walks may be in a cache of the CPU, because
 * decode_together would then cost time. */
static bool can_go_together(const struct attention *a, const struct kernels *kernels,
                            const struct walk *walks, int count)
{
    return are_side_by_side(a, walks, count) && walks[0].far && walks[0].large &&
           count * last_end(walks) * key_bytes(a) > kernels->together_bytes && !a->extras.any &&
           !has_cells(a) && walks[0].rows <= together_rows(a, kernels, count, have_gaps(a, count));
}

/* Returns whether all rows of the walk see the whole block at key `first`. */
static bool all_see(const struct walk *w, int64_t first)
{
    const struct key_range keys = keys_from(w, first, KEY_BLOCK);
    return keys.first == first && w->end[0] >= first + KEY_BLOCK;
}

static struct side_rows side_rows_at(const struct attention *a, const struct cache *c,
                                     const struct walk *w, int64_t key)
{
    return (struct side_rows){key_row(a, c, w->batch, w->kv_head, key).data, c->stride.row};
}

/* Returns the first address from `floats` on that begins a cache line. */
static float *next_line(float *floats)
{
    const uintptr_t up = (uintptr_t)floats + LINE_BYTES - 1;
    return (float *)(up - up % LINE_BYTES);
}

/* Attends over the whole block at key `first` in all walks at once. */
static void attend_together(const struct attention *a, const struct kernels *kernels,
                            const struct walk *walks, int count, int64_t first, float *scratch)
{
    const float *const *q[MAX_WALKS];
    const struct state *st[MAX_WALKS];
    for (int i = 0; i < count; i++) {
        q[i] = walks[i].q;
        st[i] = &walks[i].chunk;
    }
    const struct key_range next = keys_from(walks, first + KEY_BLOCK, KEY_BLOCK);
    const bool more = has_keys(next);
    const struct heads_block block = {.type = a->k.type,
                                      .dim = a->k.dim,
                                      .heads = count,
                                      .rows = walks[0].rows,
                                      .q = q,
                                      .st = st,
                                      .k = side_rows_at(a, &a->k, walks, first),
                                      .v = side_rows_at(a, &a->v, walks, first),
                                      .next_k =
                                          side_rows_at(a, &a->k, walks, more ? next.first : first),
                                      .next_keys = more ? (int)(next.end - next.first) : 0,
                                      .scratch = scratch};
    kernels->decode_together(&block, a->scale_log2);
}

/* Attends over whole blocks in all walks at once, from key `first` on. Stops at key `end`, or at
 * the first block that some rows do not see as a whole. Returns the key at which it stops. The
 * function is not inlined, so that calls without it need no registers for its variables. */
static __attribute__((noinline)) int64_t
attend_blocks_together(const struct attention *a, const struct kernels *kernels, struct walk *walks,
                       int count, int64_t first, int64_t end, const struct common *common)
{
    for (; first < end && all_see(walks, first); first += KEY_BLOCK) {
        attend_together(a, kernels, walks, count, first, next_line(common->rest));
        for (int i = 0; i < count; i++)
            walks[i].is_used = true;
    }
    return first;
}

/* Walks over a chunk of the keys, block by block. The walks take turns, so that heads whose keys
 * share a page of virtual memory use the page while its address is in the TLB. */
static void attend_chunk(const struct attention *a, const struct kernels *kernels,
                         struct walk *walks, int count, int64_t first, struct common *common)
{
    const int64_t end = end_of_all(walks, count), next_chunk = first + CHUNK_KEYS;
    if (count > 1 && can_go_together(a, kernels, walks, count))
        first = attend_blocks_together(a, kernels, walks, count, first, next_chunk, common);
    if (can_prefetch_together(a, walks, count))
        common->rows.turns = count;
    for (int64_t key = first; key < end && key < next_chunk; key += KEY_BLOCK)
        for (int i = 0; i < count; i++)
            if (has_keys(keys_from(walks + i, key, KEY_BLOCK))) {
                attend(a, kernels, walks + i, key,
                       next_of(walks, count, i, key, end, &common->rows), common);
                walks[i].is_used = true;
            }
}

static void clear_total(const struct attention *a, const struct walk *w)
{
    for (int r = 0; r < w->rows; r++) {
        w->total.row_max[r] = -INFINITY;
        w->total.row_sum[r] = 0.0;
        memset(w->total.out + r * a->value_dim, 0, (size_t)a->value_dim * sizeof(double));
    }
}

/* Folds the state of the chunk into the total. If a walk has a single chunk, this chunk is folded
 * only in calls with sinks, and in calls that continue from states or return states. */
static void fold_chunk(const struct attention *a, const struct kernels *kernels, struct walk *w)
{
    if (!w->is_begun)
        clear_total(a, w);
    for (int r = 0; r < w->rows; r++) {
        const struct factors f = fold_sum(&w->total.row_max[r], &w->total.row_sum[r],
                                          w->chunk.row_max[r], w->chunk.row_sum[r]);
        kernels->fold_row(w->total.out + r * a->value_dim, w->chunk.out + r * a->value_dim, f.total,
                          f.state, a->value_dim);
    }
    w->is_begun = true;
    w->is_used = false;
}

/* --- The end ----------------------------------------------------------------------------------
 *
 * Code that few calls need is not inlined. A call of few keys then executes fewer bytes of code.
 */

static struct total line_of(const struct attention *a, const struct walk *w, int row)
{
    return (struct total){w->total.row_max + row, w->total.row_sum + row,
                          w->total.out + row * a->value_dim};
}

static __attribute__((noinline)) void
fold_sinks(const struct attention *a, const struct kernels *kernels, const struct walk *w)
{
    for (int r = 0; r < w->rows; r++) {
        float max, sum;
        attnkit_sink(a, kernels, w->place[r].head, &max, &sum);
        fold_sink(line_of(a, w, r), max, sum, 1, a->value_dim);
    }
}

/* Rounds row_sum of each row's total to binary32. Spare elements become 1. */
static void round_sums(const struct walk *w, float sums[MAX_DECODE_ROWS])
{
    for (int r = 0; r < MAX_DECODE_ROWS; r++)
        sums[r] = r < w->rows ? (float)w->total.row_sum[r] : 1.0f;
}

/* Computes quotients and lse from a total. Returns a bit for each row with a quotient that is not
 * finite. */
static __attribute__((noinline)) uint64_t finish_total(const struct attention *a,
                                                       const struct kernels *kernels,
                                                       const struct walk *w, float *const *out)
{
    float sums[MAX_DECODE_ROWS];
    uint64_t not_finite = 0;
    for (int r = 0; r < w->rows; r++) {
        const bool found = kernels->quotient_row(
            w->total.out + r * a->value_dim, divisor_of(w->total.row_sum[r]), a->value_dim, out[r]);
        not_finite |= (uint64_t)found << r;
    }
    if (a->lse) {
        round_sums(w, sums);
        const struct state st = {w->total.row_max, sums, w->chunk.out};
        kernels->decode_finish(&st, w->rows, 0, out, w->lse);
    }
    return not_finite;
}

/* Writes the results. A result that is not binary32 is first written to the state, and then
 * rounded. Returns a bit for each row whose result is not finite. */
static uint64_t finish_rows(const struct attention *a, const struct kernels *kernels,
                            const struct walk *w)
{
    const int rows = w->rows;
    float *out[MAX_DECODE_ROWS] = {NULL};
    for (int r = 0; r < rows; r++)
        out[r] = a->out_type == TYPE_F32 ? w->out[r] : w->chunk.out + r * a->value_dim;
    const uint64_t not_finite = w->is_begun ? finish_total(a, kernels, w, out)
                                            : kernels->decode_finish(&w->chunk, rows, a->value_dim,
                                                                     out, a->lse ? w->lse : NULL);
    for (int r = 0; r < rows && a->out_type != TYPE_F32; r++)
        kernels->narrow(a->out_type, out[r], a->value_dim, 0, w->out[r], NULL);
    return not_finite;
}

static __attribute__((noinline)) uint64_t export_rows(const struct attention *a,
                                                      const struct walk *w)
{
    uint64_t not_finite = 0;
    for (int r = 0; r < w->rows; r++) {
        const struct total to = total_row(a, a->after, w->place[r]);
        not_finite |= (uint64_t)export_line(to, line_of(a, w, r), 1, a->value_dim) << r;
    }
    return not_finite;
}

static __attribute__((noinline)) void write_weights(const struct attention *a,
                                                    const struct kernels *kernels,
                                                    const struct walk *w, char *scratch)
{
    float sums[MAX_DECODE_ROWS];
    if (w->is_begun)
        round_sums(w, sums);
    attnkit_write_weights(a, kernels, w->place[0], w->rows,
                          w->is_begun ? w->total.row_max : w->chunk.row_max,
                          w->is_begun ? sums : w->chunk.row_sum, scratch);
}

/* Recomputes the rows whose result is not finite, because a sum may have overflowed. A row whose
 * sum of weights is NaN is recomputed only if the call returns states. In other calls the result of
 * this row is NaN anyway. In a returned state, an element of `out` may be a number although the sum
 * is NaN, if the call continues from a state that the caller has made. */
static __attribute__((noinline)) void redo_rows(const struct attention *a,
                                                const struct kernels *kernels, const struct walk *w,
                                                uint64_t not_finite, char *scratch)
{
    for (int r = 0; r < w->rows; r++) {
        const struct place p = w->place[r];
        const struct work_item row = {
            w->batch, w->kv_head, p.position * a->group + p.head - p.group_head, 0, 1, 1};
        const double sum = w->is_begun ? w->total.row_sum[r] : (double)w->chunk.row_sum[r];
        if (not_finite >> r & 1 && (a->after.out || !isnan(sum)))
            attnkit_careful_row(a, kernels, &row, scratch);
    }
}

/* Returns whether a sum of finite products of weights and V may overflow. With integers and V of
 * TYPE_Q8_0, whose scales are binary16, no sum overflows. */
static bool may_overflow(const struct attention *a)
{
    return !has_integers(a) || a->v.type == TYPE_I8;
}

/* Computes and writes the results of a walk. `scratch` has the bytes that attnkit_write_weights and
 * attnkit_careful_row need. */
static void finish(const struct attention *a, const struct kernels *kernels, struct walk *w,
                   float *scratch)
{
    const bool needs_total = w->is_begun || a->after.out || a->extras.sinks;
    if (needs_total && (w->is_used || !w->is_begun))
        fold_chunk(a, kernels, w);
    if (a->extras.sinks && !a->after.out)
        fold_sinks(a, kernels, w);
    if (a->extras.weights)
        write_weights(a, kernels, w, (char *)scratch);
    const uint64_t not_finite = a->after.out ? export_rows(a, w) : finish_rows(a, kernels, w);
    if (not_finite && may_overflow(a))
        redo_rows(a, kernels, w, not_finite, (char *)scratch);
}

/* First, each walk with visible keys in the chunk at key `first` folds the state of its previous
 * chunk, if any, into its total, and resets the state. Then attends over the chunk in all walks. */
static void walk_chunk(const struct attention *a, const struct kernels *kernels, struct walk *walks,
                       int count, int64_t first, struct common *common)
{
    for (int i = 0; i < count; i++)
        if (walks[i].is_used && has_keys(first_block(walks + i, first))) {
            fold_chunk(a, kernels, walks + i);
            reset(&walks[i].chunk, walks[i].rows, a->value_dim);
        }
    attend_chunk(a, kernels, walks, count, first, common);
}

/* Returns the first key of the next chunk to walk over: `first`, or the beginning of a later chunk
 * if no walk sees a key from `first` up to this later chunk. */
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

/* Computes `count` whole items. `walks` is on the caller's stack. */
static void decode(const struct attention *a, const struct kernels *kernels,
                   const struct work_item *items, int count, struct walk *walks, char *scratch)
{
    float *left;
    struct common common;
    const int most_rows = begin_all(a, kernels, items, count, scratch, &left, walks);
    begin_common(a, most_rows, left, &common);
    for (int i = 0; i < count && a->before.out; i++)
        resume(a, walks + i);
    const int64_t end = end_of_all(walks, count);
    for (int64_t first = next_chunk(walks, count, 0); first < end;
         first = next_chunk(walks, count, first + CHUNK_KEYS))
        walk_chunk(a, kernels, walks, count, first, &common);
    for (int i = 0; i < count; i++)
        finish(a, kernels, walks + i, common.rest);
}

/* Decodes one item. The function is not inlined, so that a single walk does not take the stack of
 * MAX_WALKS walks.
 */
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

/* Computes the states of `count` items in a chunk. `walks` is on the caller's stack. */
static void decode_chunk(const struct attention *a, const struct kernels *kernels,
                         const struct work_item *items, int count, int64_t first, float *states,
                         int64_t step, struct walk *walks, char *scratch)
{
    float *left;
    struct common common;
    const int most_rows = begin_all(a, kernels, items, count, scratch, &left, walks);
    begin_common(a, most_rows, left, &common);
    for (int i = 0; i < count; i++) {
        walks[i].chunk = state_at(states + i * step);
        reset(&walks[i].chunk, walks[i].rows, a->value_dim);
    }
    attend_chunk(a, kernels, walks, count, first, &common);
}

void attnkit_decode_chunk(const struct attention *a, const struct kernels *kernels,
                          const struct work_item *items, int count, int64_t first, float *states,
                          int64_t step, char *scratch)
{
    struct walk walks[MAX_WALKS];
    decode_chunk(a, kernels, items, count, first, states, step, walks, scratch);
}

/* Puts only one walk on the stack, because prefill.c calls careful.c, which calls this function,
 * and prefill.c itself needs much stack. */
void attnkit_decode_row_chunk(const struct attention *a, const struct kernels *kernels,
                              const struct work_item *row, int64_t first, float *state,
                              char *scratch)
{
    struct walk walk;
    decode_chunk(a, kernels, row, 1, first, state, 0, &walk, scratch);
}

void attnkit_decode_join(const struct attention *a, const struct kernels *kernels,
                         const struct work_item *item, const struct chunk_run *run, char *scratch)
{
    float *left;
    struct walk w;
    begin_all(a, kernels, item, 1, scratch, &left, &w);
    w.total = total_at(run->total);
    w.is_begun = !run->begins;
    if (run->begins && a->before.out)
        resume(a, &w);
    for (int i = 0; i < run->count; i++) {
        if (w.is_used)
            fold_chunk(a, kernels, &w);
        w.chunk = state_at(run->states + i * run->step);
        w.is_used = true;
    }
    if (run->ends)
        finish(a, kernels, &w, left);
    else
        fold_chunk(a, kernels, &w);
}
