/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for many query rows of one KV head. The outer loop is over blocks of keys, the inner
 * loop over panels of query rows. So K and V of a block usually stay in L1 or L2 until all panels
 * of an item have used them. dispatch/attention/schedule.c calls attnkit_prefill for the panel rows
 * of an item. With groups of products, attend_alone in this file calls attnkit_prefill for a row
 * that is computed again. dispatch/attention/steal.c calls attnkit_prefill_chunk for a chunk of an
 * item's keys, and attnkit_prefill_join to join the states of chunks. kernels/README.md defines M,
 * l, o and t.
 */
#include <math.h>
#include <string.h>

#include "kernels/attention/block.h"
#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"
#include "kernels/attention/total.h"
#include "kernels/attention/weights.h"

enum {
    MAX_PANELS = ROW_BLOCK / 4, /* a full panel has at least 4 lanes */
};

/* Query rows that go through the tiles together. The pointers point into scratch. In
 * attnkit_prefill_chunk, `chunk` points to the caller's state. In attnkit_prefill_join, `chunk` and
 * `total` point to the states and the total of struct chunk_run. */
struct panel {
    int64_t first_row;
    int rows;           /* rows of the item; spare lanes repeat the last row */
    int lanes;          /* rows, rounded up to whole vectors */
    struct place first; /* place of the first row */
    int64_t full; /* number of keys that the first row sees without masks; no later row sees fewer
                   * keys */
    int64_t end;  /* end of the keys that the last row sees */
    float *q_t;   /* [head_dim][lanes] */
    struct state chunk; /* the state of the latest chunk, over the blocks that have been computed */
    struct total total; /* the total over the chunks before the latest chunk */
    struct seen *seen;  /* with masks: the keys of the block that each row sees */
    int sight;          /* bit of struct sights for the first block of keys; -1: none */
    bool is_begun;      /* the total holds the caller's total or a chunk */
    bool is_sunk;       /* M and l of the total hold the sinks, but o is still in `chunk` */
    bool is_fresh;      /* `chunk` is empty, or the total has all blocks of `chunk` */
};

/* A bit for each row of an item. The bit is set if decode tiles compute the row's result again. */
struct again {
    uint64_t rows[ROW_BLOCK / 64];
};

/* The data of one item. */
struct prefill {
    const struct attention *a;
    const struct kernels *kernels;
    int64_t batch, kv_head;
    struct sights *sights;  /* NULL: not used */
    int rows;               /* rows of the item that go through panels */
    float *scores;          /* [KEY_BLOCK][lanes] of a panel */
    float *rescale;         /* [lanes] */
    float *parts;           /* with groups of products: room for the words of struct weight_parts,
                             * 2 times [KEY_BLOCK][lanes]; with integers: scratch of weighted_v,
                             * [KEY_BLOCK / 2][lanes] */
    float *largest;         /* with groups of products: the largest t of each lane in a block, and
                             * later its largest weight */
    float *lines, *plane;   /* with masks: [lanes][KEY_BLOCK] and [KEY_BLOCK][lanes] */
    struct visible visible; /* the keys that at least one row sees by its position */
    char *careful_scratch;  /* for rows that are recomputed; the same memory as `wide` */
    struct wide wide;
    bool paired;         /* q_t of all panels has words of pairs of bf16 */
    uint32_t q_least;    /* with `paired`: the least magnitude of q */
    struct again *again; /* with integers: the rows whose results are not finite */
    int panels;
    struct panel panel[MAX_PANELS];
};

static int panels_for(int64_t rows, int lanes)
{
    return (int)((rows + lanes - 1) / lanes);
}

static int whole_vectors(int rows, int vector)
{
    return (rows + vector - 1) / vector * vector;
}

/* state_floats returns how many floats a lane of a state takes. total_floats returns how many
 * floats a lane of a total takes: one for M, two for l, and two for each element of o, because l
 * and o are binary64. */
static int64_t state_floats(const struct attention *a)
{
    return a->value_dim + 2;
}

static int64_t total_floats(const struct attention *a)
{
    return 2 * (a->value_dim + 1) + 1;
}

/* Returns the number of floats that a row of q takes in a panel. */
static int64_t q_floats(const struct attention *a)
{
    return has_integers(a) ? rounded_row_floats(a->head_dim) : wide_dim(a);
}

/* Returns the number of floats of scratch for each lane: its query, state and total. */
static int64_t panel_floats(const struct attention *a)
{
    return q_floats(a) + state_floats(a) + total_floats(a);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns the number of floats of scratch that masks take. */
static int64_t mask_floats(const struct attention *a, int lanes)
{
    const int64_t seen = ROW_BLOCK * sizeof(struct seen) / sizeof(float);
    return a->extras.any || has_cells(a) ? 2 * KEY_BLOCK * lanes + seen : 0;
}

int attnkit_most_panel_rows(const struct attention *a, const struct kernels *kernels)
{
    const int64_t most_floats = 144 << 10; /* a little more than half of an L2 of 1 MiB */
    const int64_t floats = wide_dim(a) + state_floats(a) + total_floats(a);
    const int rows = floats > most_floats / ROW_BLOCK ? ROW_BLOCK / 2 : ROW_BLOCK;
    return rows / kernels->lanes * kernels->lanes;
}

/* Returns how many floats of scratch `parts` of struct prefill takes, and with groups of products
 * also `largest`. The number is 0 in a call with neither integers nor groups of products. */
static int64_t part_floats(const struct attention *a, int lanes)
{
    if (has_integers(a))
        return KEY_BLOCK / 2 * lanes;
    return is_grouped(a) ? (2 * KEY_BLOCK + 1) * lanes : 0;
}

/* Returns the bytes of scratch for an item of `rows` rows, without the bytes at
 * `careful_scratch`. */
static size_t item_scratch(const struct attention *a, const struct kernels *kernels, int rows)
{
    const int lanes = kernels->lanes;
    const int64_t floats = (KEY_BLOCK + 1) * lanes + part_floats(a, lanes) + mask_floats(a, lanes) +
                           panel_floats(a) * whole_vectors(rows, kernels->vector);
    return (size_t)floats * sizeof(float);
}

size_t attnkit_prefill_scratch(const struct attention *a, const struct kernels *kernels)
{
    const int64_t all_rows = a->q_len * a->group, most = attnkit_most_panel_rows(a, kernels);
    const int rows = (int)(all_rows < most ? all_rows : most);
    const size_t wide =
        (size_t)attnkit_wide_floats(a, kernels) * sizeof(float) + attnkit_weights_scratch(a);
    if (has_integers(a))
        return larger(item_scratch(a, kernels, rows) + wide,
                      attnkit_decode_scratch(a, kernels, 1, 1));
    const size_t again =
        is_grouped(a) ? item_scratch(a, kernels, 1) + wide : attnkit_careful_scratch(a);
    return item_scratch(a, kernels, rows) + larger(again, wide);
}

/* Takes `lanes` times `lines` floats from the scratch. These floats are aligned to a vector,
 * because `lanes` fills whole vectors. */
static float *take(char **scratch, int64_t lines, int lanes)
{
    float *taken = (float *)*scratch;
    *scratch += lines * lanes * (int64_t)sizeof(float);
    return taken;
}

static struct state take_state(char **scratch, int64_t value_dim, int lanes)
{
    struct state st;
    st.out = take(scratch, value_dim, lanes);
    st.row_max = take(scratch, 1, lanes);
    st.row_sum = take(scratch, 1, lanes);
    return st;
}

static struct total take_total(char **scratch, int64_t value_dim, int lanes)
{
    struct total total;
    total.out = (double *)(void *)take(scratch, 2 * value_dim, lanes);
    total.row_sum = (double *)(void *)take(scratch, 2, lanes);
    total.row_max = take(scratch, 1, lanes);
    return total;
}

/* Resets a state to the state before any key. Does not write o, because the first block does not
 * read it. */
static void reset(const struct state *st, int lanes)
{
    for (int lane = 0; lane < lanes; lane++)
        st->row_max[lane] = -INFINITY;
    memset(st->row_sum, 0, (size_t)lanes * sizeof(float));
}

/* Sets o to 0 in a state to which no block has been added. */
static void clear_out(const struct state *st, int lanes, int64_t value_dim)
{
    memset(st->out, 0, (size_t)(value_dim * lanes) * sizeof(float));
}

/* Returns the place of the lane after `lane`. */
static struct place next_lane(const struct prefill *w, const struct panel *p, int lane,
                              struct place place)
{
    return lane + 1 < p->rows ? next_place(w->a, place) : place;
}

/* Prefetches a row of q or out. These rows are far apart, and the hardware prefetcher does not
 * foresee them. The function is always inlined, because gcc drops calls of a function that does
 * nothing but prefetch. */
static inline __attribute__((always_inline)) void prefetch_row(const void *row, int64_t bytes,
                                                               const int write)
{
    enum { LINE = 64 }; /* bytes */
    for (int64_t at = 0; at < bytes; at += LINE) {
        if (write)
            __builtin_prefetch((const char *)row + at, 1);
        else
            __builtin_prefetch((const char *)row + at, 0);
    }
}

/* Returns the number of words or elements of a row of q in a panel. */
static int64_t q_steps(const struct prefill *w)
{
    if (is_grouped(w->a))
        return wide_dim(w->a) / w->kernels->grouped->elements;
    return w->paired ? words_of_pairs(w->a->head_dim) : w->a->head_dim;
}

/* Rounds a row of q to integers, into `rounded`. The scratch for K has room for the rounded rows of
 * a panel and, after these, for a widened row. */
static const float *round_q(const struct prefill *w, const void *row, float *rounded)
{
    const int64_t n = w->a->head_dim;
    float *const widened = w->wide.k + MAX_LANES * wide_dim(w->a);
    const float *q = row;
    if (w->a->q_type != TYPE_F32) {
        w->kernels->widen(w->a->q_type, row, NULL, 0, n, widened);
        q = widened;
    }
    w->kernels->integers->round_row(q, n, rounded);
    return rounded;
}

/* Returns a row of q. With groups of products, the result is words of struct grouped_kernels in
 * `wide`. If w->paired, the result is words of pairs in `wide`, and w->q_least becomes the smaller
 * of w->q_least and the least magnitude of the row. Otherwise the result is binary32, in place or
 * in `wide`. */
static const float *find_q(struct prefill *w, const void *row, float *wide)
{
    const int64_t n = w->a->head_dim;
    if (w->a->q_type == TYPE_F32)
        return row;
    if (is_grouped(w->a)) {
        w->kernels->grouped->pack_row(row, n, wide);
    } else if (w->paired) {
        const uint32_t least = w->kernels->pairs->pair(row, n, (uint32_t *)(void *)wide);
        w->q_least = least < w->q_least ? least : w->q_least;
    } else {
        w->kernels->widen(w->a->q_type, row, NULL, 0, n, wide);
    }
    return wide;
}

/* Sets `rows` to the rows of q of a panel. `integers` is a constant, so that the loop without
 * integers is short. */
static inline __attribute__((always_inline)) void
find_rows(struct prefill *w, const struct panel *p, const float **rows, const bool integers)
{
    struct place place = p->first;
    for (int lane = 0; lane < p->lanes; lane++) {
        float *const wide = w->wide.k + lane * wide_dim(w->a);
        const void *const row = q_row(w->a, place);
        rows[lane] = integers ? round_q(w, row, wide) : find_q(w, row, wide);
        place = next_lane(w, p, lane, place);
    }
}

static void pack_panel(struct prefill *w, const struct panel *p)
{
    const float *rows[MAX_LANES];
    if (has_integers(w->a)) {
        find_rows(w, p, rows, true);
        w->kernels->integers->panel->pack_q(rows, p->lanes, w->a->head_dim, p->q_t);
    } else {
        find_rows(w, p, rows, false);
        w->kernels->pack_q(rows, p->lanes, q_steps(w), p->q_t);
    }
}

/* Turns q of all panels from words into binary32, and ends the use of pairs. */
static void split_panels(struct prefill *w)
{
    for (int i = 0; i < w->panels; i++)
        split_pairs(w->panel[i].q_t, w->a->head_dim, w->panel[i].lanes);
    w->paired = false;
}

/* Sets the total of a panel to the caller's totals over earlier keys. */
static void resume_panel(const struct prefill *w, struct panel *p)
{
    struct place place = p->first;
    for (int lane = 0; lane < p->lanes; lane++) {
        const struct total row = total_row(w->a, w->a->before, place);
        p->total.row_max[lane] = *row.row_max;
        p->total.row_sum[lane] = *row.row_sum;
        for (int64_t c = 0; c < w->a->value_dim; c++)
            p->total.out[c * p->lanes + lane] = row.out[c];
        place = next_lane(w, p, lane, place);
    }
    p->is_begun = true;
}

/* Returns the bit of struct sights for the first block of keys and the panel whose first row is
 * first_row. Returns -1 if there is none. */
static int first_sight(const struct prefill *w, int64_t first_row)
{
    if (!HAS_SIGHTS || !w->sights)
        return -1;
    const int64_t blocks = w->a->kv_len / KEY_BLOCK + 1, number = first_row / w->kernels->lanes;
    return blocks <= SIGHTS && number < SIGHTS / blocks ? (int)(number * blocks) : -1;
}

static void begin_panel(struct prefill *w, struct panel *p, int64_t first_row, int rows,
                        char **scratch)
{
    const int lanes = whole_vectors(rows, w->kernels->vector);
    p->first_row = first_row;
    p->first = place_of_row(w->a, w->batch, w->kv_head, first_row);
    p->rows = rows;
    p->lanes = lanes;
    p->full = visible_end(w->a, w->batch, first_row / w->a->group);
    p->end = visible_end(w->a, w->batch, (first_row + rows - 1) / w->a->group);
    p->q_t = take(scratch, q_floats(w->a), lanes);
    p->chunk = take_state(scratch, w->a->value_dim, lanes);
    p->total = take_total(scratch, w->a->value_dim, lanes);
    p->is_begun = false;
    p->is_sunk = false;
    p->is_fresh = true;
    p->sight = first_sight(w, first_row);
    pack_panel(w, p);
}

/* Divides the scratch. Returns the scratch of the panels. The panels come first, because they begin
 * with q. q is written when a panel begins, and later only by split_panels. The scratch of another
 * thread may lie before this scratch, and ends with rows of V. The hardware prefetcher reads some
 * cache lines beyond these rows. If this thread often wrote to these cache lines, both threads
 * would wait for them: with the scores in first place, prefill on two threads was up to a fifth
 * slower (Zen 4). */
static char *divide_scratch(struct prefill *w, int panel_rows, char *scratch, struct seen **seen)
{
    const int lanes = w->kernels->lanes, rows = whole_vectors(panel_rows, w->kernels->vector);
    char *const panels = scratch;
    scratch += panel_floats(w->a) * rows * (int64_t)sizeof(float);
    w->scores = take(&scratch, KEY_BLOCK, lanes);
    w->rescale = take(&scratch, 1, lanes);
    w->parts = (float *)(void *)scratch;
    w->largest = w->parts + 2 * KEY_BLOCK * lanes; /* only with groups of products */
    scratch += part_floats(w->a, lanes) * (int64_t)sizeof(float);
    *seen = NULL;
    if (w->a->extras.any || has_cells(w->a)) {
        w->lines = take(&scratch, KEY_BLOCK, lanes);
        w->plane = take(&scratch, KEY_BLOCK, lanes);
        *seen = (struct seen *)take(&scratch, ROW_BLOCK, sizeof **seen / sizeof(float));
    }
    w->careful_scratch = scratch;
    w->wide = attnkit_take_wide(w->a, w->kernels, (float *)w->careful_scratch);
    return panels;
}

static void begin(struct prefill *w, const struct work_item *item, char *scratch)
{
    const int lanes = w->kernels->lanes;
    struct seen *seen;
    scratch = divide_scratch(w, item->panel_rows, scratch, &seen);
    w->panels = panels_for(item->panel_rows, lanes);
    w->paired = has_pairs(w->a, w->kernels);
    w->q_least = NO_MAGNITUDE;
    const struct place first = place_of_row(w->a, item->batch, item->kv_head, item->first_row);
    struct place place = first;
    for (int r = 0; r < item->panel_rows; r++, place = next_place(w->a, place))
        prefetch_row(q_row(w->a, place), bytes_of(w->a->q_type, w->a->head_dim), 0);
    for (int i = 0; i < w->panels; i++) {
        const int rows_left = item->panel_rows - i * lanes;
        w->panel[i].seen = seen ? seen + i * lanes : NULL;
        begin_panel(w, &w->panel[i], item->first_row + i * lanes,
                    rows_left < lanes ? rows_left : lanes, &scratch);
    }
    const int64_t last = (item->first_row + item->panel_rows - 1) / w->a->group;
    w->visible = all_visible(visible_keys(w->a, item->batch, first.position),
                             visible_keys(w->a, item->batch, last));
}

/* Folds the state of the chunk into the total. Rows with a single chunk usually are finished
 * without a total. */
static void fold_chunk(const struct prefill *w, struct panel *p)
{
    if (p->is_begun)
        w->kernels->fold(&p->total, &p->chunk, p->lanes, w->a->value_dim);
    else
        w->kernels->begin_total(&p->total, &p->chunk, p->lanes, w->a->value_dim);
    p->is_begun = true;
    p->is_fresh = true;
}

/* The rows that a panel prefetches: V of the block, and K of the next block. Only the first panel
 * that sees a block prefetches.
 */
struct rows_ahead {
    const struct rows *v, *k; /* NULL: no prefetch */
};

/* Computes scores. With groups of products, also scales the scores if `scaling` is not NULL. */
static void score(const struct prefill *w, const struct panel *p, const struct rows *k, int keys,
                  const struct scaling *scaling, struct rows_ahead ahead)
{
    const struct rows *const v = keys == KEY_BLOCK ? ahead.v : NULL;
    if (has_integers(w->a))
        w->kernels->integers->panel->scores(p->q_t, p->lanes, (const float *)(const void *)k->first,
                                            keys, k->dim, w->scores);
    else if (is_grouped(w->a))
        w->kernels->grouped->scores(p->q_t, p->lanes, p->rows, k, keys, scaling, w->scores);
    else if (w->paired)
        w->kernels->pairs->scores(p->q_t, p->lanes, k, keys, w->scores, v);
    else
        w->kernels->scores(p->q_t, p->lanes, k, keys, w->scores, v);
}

/* Turns scores, or the t that `adjust` has made of them, into weights. With groups of products, the
 * scores have been scaled, and the weights are split into parts. */
static void softmax(const struct prefill *w, const struct panel *p, int keys,
                    const struct scaling *scaling)
{
    const struct weight_parts to = {w->largest, w->parts};
    if (is_grouped(w->a))
        w->kernels->grouped->softmax(w->scores, p->lanes, keys, scaling->maxima, &p->chunk,
                                     w->a->short_weights, w->rescale, &to);
    else
        w->kernels->softmax(w->scores, p->lanes, keys, scaling->visible, scaling->scale_log2,
                            &p->chunk, w->rescale);
}

static struct rows rows_from(struct rows rows, int first)
{
    rows.first += first * rows.stride;
    return rows;
}

/* Adds the weighted V of `keys` keys of a block to o of the chunk. `first` is the index in v of the
 * first of these keys. */
static void add_v(const struct prefill *w, struct panel *p, const struct rows *v, int first,
                  int keys, struct rows_ahead ahead)
{
    const float *const rescale = p->is_fresh ? NULL : w->rescale;
    if (has_integers(w->a)) {
        const float *const words = (const float *)(const void *)v->first;
        w->kernels->integers->panel->weighted_v(w->scores, p->lanes, rescale, words, v->dim, first,
                                                keys, p->chunk.out, w->parts);
    } else if (is_grouped(w->a)) {
        const struct rows part = rows_from(*v, first / w->kernels->grouped->elements);
        w->kernels->grouped->weighted_v(w->parts, p->lanes, p->rows, w->largest, rescale, &part,
                                        keys, w->a->short_weights, p->chunk.out);
    } else {
        const struct rows part = rows_from(*v, first);
        w->kernels->weighted_v(w->scores, p->lanes, rescale, &part, keys, p->chunk.out, ahead.k);
    }
    p->is_fresh = false;
}

/* --- Without masks -----------------------------------------------------------------------------
 */

/* Attends over one block of keys for one panel. */
static void attend_block(const struct prefill *w, struct panel *p, int64_t first,
                         const struct block *block, struct rows_ahead ahead)
{
    const int keys = visible_in_block(p->end, first);
    int32_t visible[MAX_LANES];
    const bool mixed = visible_in_block(p->full, first) < keys;
    struct place place = p->first;
    for (int lane = 0; mixed && lane < p->lanes; lane++) {
        visible[lane] = visible_in_block(visible_end(w->a, w->batch, place.position), first);
        place = next_lane(w, p, lane, place);
    }

    const struct scaling scaling = {w->a->scale_log2, mixed ? visible : NULL, w->largest};
    score(w, p, &block->k, keys, &scaling, ahead);
    softmax(w, p, keys, &scaling);
    add_v(w, p, &block->v, 0, keys, ahead);
}

/* --- With masks --------------------------------------------------------------------------------
 */

static bool has_bit(const uint64_t *words, int bit)
{
    return words[bit / 64] >> bit % 64 & 1;
}

/* Returns whether each row of a panel sees all keys of a block, and the bias of these keys is 0. */
static bool sees_all(const struct panel *p, struct key_set whole)
{
    for (int lane = 0; lane < p->rows; lane++)
        if (p->seen[lane].biased || !is_equal(p->seen[lane].keys, whole))
            return false;
    return true;
}

/* A block of keys that panels look at, and what holds for all rows of the call. */
struct looked_at {
    int64_t first;       /* its first key */
    struct key_set keys; /* all its keys */
    bool rows_differ;    /* rows may see different keys */
    bool heads_differ;   /* rows of a position may see different keys */
};

/* Finds for each row of a panel which keys of a block the row sees. `last` is the row before the
 * panel's first row, or NULL. Returns the keys that at least one row sees. */
static struct key_set look_at_rows(const struct prefill *w, const struct panel *p,
                                   const struct looked_at *block, const struct seen *last)
{
    struct place place = p->first;
    struct key_set any = {{0, 0}};
    for (int lane = 0; lane < p->rows; lane++, place = next_place(w->a, place)) {
        struct seen *const seen = &p->seen[lane];
        const bool is_same =
            !block->rows_differ || (!block->heads_differ && place.head != place.group_head);
        if (last && is_same) {
            *seen = *last;
            any = lane == 0 ? seen->keys : any;
        } else {
            attnkit_see(w->a, w->kernels, &place, block->first, seen);
            any = union_of(any, just_stored(seen->keys.word));
        }
        last = seen;
    }
    return any;
}

/* Does the work of look_at_rows. Takes the answer from struct sights if the answer is there.
 * Otherwise looks at masks, and stores the answer if the rows see no key or all keys. */
static struct key_set look_at_panel(const struct prefill *w, const struct panel *p,
                                    const struct looked_at *block, const struct seen *last)
{
    struct sights *const s = w->sights;
    if (!HAS_SIGHTS || p->sight < 0)
        return look_at_rows(w, p, block, last);
    const int bit = p->sight + (int)(block->first / KEY_BLOCK);
    if (has_bit(s->none, bit) || has_bit(s->all, bit)) {
        const struct key_set keys = has_bit(s->all, bit) ? block->keys : key_set_of(0, 0);
        for (int lane = 0; lane < p->rows; lane++)
            p->seen[lane] = (struct seen){.keys = keys, .biased = false};
        return keys;
    }
    const struct key_set any = look_at_rows(w, p, block, last);
    if (is_empty(any))
        s->none[bit / 64] |= UINT64_C(1) << bit % 64;
    else if (sees_all(p, block->keys))
        s->all[bit / 64] |= UINT64_C(1) << bit % 64;
    return any;
}

/* Finds for each row of the item which keys of a block the row sees. Returns the keys that at least
 * one row sees. */
static struct key_set look(const struct prefill *w, int64_t first)
{
    if (has_no_cells(w->a, first))
        return key_set_of(0, 0);
    const int keys = visible_in_block(sequence_keys(w->a, w->batch), first);
    const struct looked_at block = {first, key_set_of(0, keys), attnkit_rows_differ(w->a),
                                    attnkit_heads_differ(w->a)};
    const struct seen *last = NULL;
    struct key_set any = {{0, 0}};
    for (int i = 0; i < w->panels; i++) {
        const struct panel *const p = &w->panel[i];
        any = union_of(any, look_at_panel(w, p, &block, last));
        last = &p->seen[p->rows - 1];
    }
    return any;
}

/* The keys of a block that a panel sees. */
struct view {
    struct key_set keys; /* keys with rows in struct block: see view_of */
    int first, count;    /* first: number of rows in struct block before the first of `keys`; count:
                            number of `keys` */
    bool full;           /* every row sees all of `keys` */
    bool biased;
};

/* A key is seen if at least one row of the panel sees it. Returns the keys in `there` from the
 * first seen key to the last seen key. If `grouped`, the keys begin where the group of products of
 * the first seen key begins. */
static struct view view_of(const struct panel *p, struct key_set there, bool grouped)
{
    struct view view = {.biased = false};
    struct key_set any = {{0, 0}}, all = there;
    for (int lane = 0; lane < p->rows; lane++) {
        any = union_of(any, p->seen[lane].keys);
        all = intersection_of(all, p->seen[lane].keys);
        view.biased |= p->seen[lane].biased;
    }
    if (is_empty(any))
        return view;
    const int first = grouped ? first_of(any) / GROUP_PRODUCTS * GROUP_PRODUCTS : first_of(any);
    view.keys = intersection_of(there, key_set_of(first, end_of(any)));
    view.first = count_of(intersection_of(there, key_set_of(0, first)));
    view.count = count_of(view.keys);
    view.full = is_equal(view.keys, all);
    return view;
}

/* Sets visible[lane] to the number of keys that the row of the lane sees. Returns whether every row
 * sees the first visible[lane] keys of the view and no other keys. If not, some elements of
 * `visible` may not be set. */
static bool see_first_keys(const struct panel *p, const struct view *view, int32_t *visible)
{
    for (int lane = 0; lane < p->lanes; lane++) {
        const struct key_set own = p->seen[lane < p->rows ? lane : p->rows - 1].keys;
        visible[lane] = count_of(own);
        if (!is_empty(own) &&
            count_of(intersection_of(view->keys, key_set_of(0, end_of(own)))) != visible[lane])
            return false;
    }
    return true;
}

/* Makes a plane [keys of the view][lanes]. The plane has the numbers that are added to scores, or
 * with `keep` the factors of weights. A line that is the same for all heads at a position is made
 * once for these heads. */
static void make_plane(const struct prefill *w, const struct panel *p, const struct view *view,
                       int64_t block, bool keep)
{
    const struct attention *a = w->a;
    const bool share = !keep && !attnkit_bias_lines_differ(a);
    const float *lines[MAX_LANES];
    struct place place = p->first;
    for (int lane = 0; lane < p->lanes; lane++, place = next_place(a, place)) {
        float *const line = w->lines + lane * KEY_BLOCK;
        lines[lane] = lane > 0 ? lines[lane - 1] : NULL;
        if (lane >= p->rows || (lane > 0 && share && place.head != place.group_head))
            continue;
        if (keep)
            attnkit_keep_line(a, w->kernels, place, block, line);
        else
            attnkit_bias_line(a, w->kernels, place, block, p->seen[lane].keys, true, line);
        attnkit_compact_line(w->kernels, view->keys, line);
        lines[lane] = line;
    }
    w->kernels->pack_q(lines, p->lanes, view->count, w->plane);
}

/* Turns scores into weights. Steps that this block does not need are left out. */
static void weigh(const struct prefill *w, const struct panel *p, const struct view *view,
                  int64_t block)
{
    const struct kernels *kernels = w->kernels;
    const struct adjust *how = &w->a->extras.adjust;
    const size_t scores = (size_t)view->count * (size_t)p->lanes;
    int32_t counts[MAX_LANES];
    struct scaling scaling = {w->a->scale_log2, NULL, w->largest};
    const bool bias = view->biased || (!view->full && !see_first_keys(p, view, counts));
    if (!bias && !view->full)
        scaling.visible = counts;
    if (bias)
        make_plane(w, p, view, block, false);
    if (bias || how->capped) {
        kernels->adjust(how, bias ? w->plane : NULL, scores, w->scores);
        scaling.scale_log2 = 1.0f;
    }
    if (is_grouped(w->a))
        kernels->grouped->scale(w->scores, p->lanes, view->count, &scaling);
    softmax(w, p, view->count, &scaling);
    if (!w->a->extras.drops)
        return;
    make_plane(w, p, view, block, true);
    kernels->multiply(w->plane, scores, w->scores);
}

/* Attends over one block of keys for one panel. `block` has a row for each key in `there`. */
static void attend_masked_block(const struct prefill *w, struct panel *p, int64_t first,
                                const struct block *block, struct key_set there,
                                struct rows_ahead ahead)
{
    const struct view view = view_of(p, there, is_grouped(w->a));
    if (view.count == 0)
        return;
    const struct rows k = rows_from(block->k, view.first);
    score(w, p, &k, view.count, NULL, ahead);
    weigh(w, p, &view, first);
    add_v(w, p, &block->v, view.first, view.count, ahead);
}

/* --- The walk over the keys --------------------------------------------------------------------
 */

/* Returns the first panel that sees keys from key `first` on. There must be such a panel. Panels
 * are in the order of growing `end`, so only leading panels are skipped. */
static struct panel *first_to_see(struct prefill *w, int64_t first)
{
    struct panel *panel = w->panel;
    while (panel->end <= first)
        panel++;
    return panel;
}

static int64_t last_end(const struct prefill *w)
{
    return w->panel[w->panels - 1].end;
}

/* Returns whether the block needs the code for masks: extras.any is set, or a key of the block has
 * no cell. */
static bool is_masked(const struct prefill *w, int64_t first)
{
    if (!has_cells(w->a))
        return w->a->extras.any;
    return w->a->extras.any || !all_have_cells(w->a, first, visible_in_block(last_end(w), first));
}

/* Returns the keys of a block that at least one row sees. */
static struct key_set keys_of_block(const struct prefill *w, int64_t first, bool masked)
{
    const struct key_range keys = visible_part(w->visible, first, KEY_BLOCK);
    if (keys.first >= keys.end)
        return key_set_of(0, 0);
    if (masked)
        return look(w, first);
    return key_set_of(0, visible_in_block(last_end(w), first));
}

/* Returns whether there is a block after the block at key `first`, with rows that most likely are
 * one stride apart in memory. */
static bool has_next_block(const struct prefill *w, int64_t first)
{
    const int64_t next = first + KEY_BLOCK;
    return next < last_end(w) && !w->a->pages.table && are_in_order(w->a, next, 1);
}

/* Returns K and V of the keys. If multiplying q and K in pairs could give other bits than the
 * chain, turns q of all panels into binary32, for this block and all later blocks. */
static struct block find_block(struct prefill *w, int64_t first, struct key_set keys)
{
    struct block block = {.in_place = false};
    uint32_t least;
    if (has_integers(w->a))
        return attnkit_integer_block(w->a, w->kernels, w->batch, w->kv_head, first, keys, w->wide);
    if (is_grouped(w->a))
        return attnkit_grouped_block(w->a, w->kernels, w->batch, w->kv_head, first, keys, w->wide);
    if (w->panels > 1 && attnkit_gains_by_copies(w->a, w->kernels))
        return attnkit_block_copy(w->a, w->kernels, w->batch, w->kv_head, first, keys, w->wide);
    if (!w->paired)
        return attnkit_block(w->a, w->kernels, w->batch, w->kv_head, first, keys, w->wide);
    block.k =
        attnkit_pairs_of_k(w->a, w->kernels, w->batch, w->kv_head, first, keys, w->wide.k, &least);
    if (!keep_bits_as_pairs(w->q_least, least)) {
        split_panels(w);
        return find_block(w, first, keys);
    }
    block.v =
        attnkit_rows(w->a, w->kernels, &w->a->v, w->batch, w->kv_head, first, keys, w->wide.v);
    return block;
}

/* begin_groups must be called before calls of the tiles for groups of products, end_groups after
 * these calls. */
static void begin_groups(const struct prefill *w)
{
    if (is_grouped(w->a) && w->kernels->grouped->begin)
        w->kernels->grouped->begin();
}

static void end_groups(const struct prefill *w)
{
    if (is_grouped(w->a) && w->kernels->grouped->end)
        w->kernels->grouped->end();
}

/* Attends over the blocks from key `first` to the end of its chunk. The states must have been
 * reset. */
static void attend_blocks(struct prefill *w, int64_t first)
{
    const struct panel *last = &w->panel[w->panels - 1];
    const int64_t end = last->end < first + CHUNK_KEYS ? last->end : first + CHUNK_KEYS;
    begin_groups(w);
    for (int64_t key = first; key < end; key += KEY_BLOCK) {
        const bool masked = is_masked(w, key);
        struct key_set keys = keys_of_block(w, key, masked);
        if (is_empty(keys))
            continue;
        const struct block block = find_block(w, key, keys);
        if (is_grouped(w->a)) /* `block` also has the keys that no row sees, as zeros */
            keys = key_set_of(0, end_of(keys));
        struct rows next = block.k;
        struct rows_ahead ahead = {NULL, NULL};
        if (block.in_place)
            ahead.v = &block.v;
        if (block.in_place && has_next_block(w, key)) {
            next.first = key_row(w->a, &w->a->k, w->batch, w->kv_head, key + KEY_BLOCK).data;
            ahead.k = &next;
        }
        for (struct panel *p = first_to_see(w, key); p <= last; p++) {
            if (masked)
                attend_masked_block(w, p, key, &block, keys, ahead);
            else
                attend_block(w, p, key, &block, ahead);
            ahead = (struct rows_ahead){NULL, NULL};
        }
    }
    end_groups(w);
}

/* Attends over the chunk that begins at key `first`. Does nothing if no row sees a key of this
 * chunk by its position. Each panel that sees keys from key `first` on first folds the state of its
 * previous chunk into its total, and resets the state. */
static void attend_chunk(struct prefill *w, int64_t first)
{
    struct panel *const last = &w->panel[w->panels - 1], *const seeing = first_to_see(w, first);
    const struct key_range keys = visible_part(w->visible, first, CHUNK_KEYS);
    if (keys.first >= keys.end)
        return;
    for (struct panel *p = seeing; p <= last; p++) {
        if (!p->is_fresh)
            fold_chunk(w, p);
        reset(&p->chunk, p->lanes);
    }
    attend_blocks(w, first);
}

static double sum_of(const struct panel *p, int lane)
{
    return p->is_begun || p->is_sunk ? p->total.row_sum[lane] : (double)p->chunk.row_sum[lane];
}

/* With groups of products, recomputes a row by itself, as an item of one row. Its panel reads no
 * key that the row does not see. The function is not inlined, because struct prefill is large. */
static __attribute__((noinline)) void attend_alone(const struct prefill *w, int64_t row)
{
    const struct work_item item = {w->batch, w->kv_head, row, 1, 0, 1};
    attnkit_prefill(w->a, w->kernels, &item, NULL, w->careful_scratch);
}

/* Divides again and writes the result, for an item of one row. finish_total may have given a wrong
 * quotient if o of the total is infinite, or if inverse_of(l) is NaN. */
static void divide_again(const struct prefill *w, const struct panel *p)
{
    const struct attention *const a = w->a;
    float *const out = w->wide.v;
    double *const o = (double *)(void *)(out + 2 * a->value_dim);
    for (int64_t c = 0; c < a->value_dim; c++)
        o[c] = p->is_sunk ? (double)p->chunk.out[c * p->lanes] : p->total.out[c * p->lanes];
    w->kernels->quotient_row(o, divisor_of(sum_of(p, 0)), a->value_dim, out);
    divide_not_finite(o, divisor_of(sum_of(p, 0)), a->value_dim, out);
    w->kernels->narrow(a->out_type, out, a->value_dim, 0, out_row(a, p->first), NULL);
}

static void redo_row(const struct prefill *w, const struct panel *p, int64_t row)
{
    const struct work_item item = {w->batch, w->kv_head, row, 0, 1, 1};
    const int64_t number = row - w->panel[0].first_row;
    if (has_integers(w->a))
        w->again->rows[number / 64] |= UINT64_C(1) << number % 64;
    else if (!is_grouped(w->a))
        attnkit_careful_row(w->a, w->kernels, &item, w->careful_scratch);
    else if (w->rows > 1)
        attend_alone(w, row);
    else if (!w->a->after.out && (p->is_begun || p->is_sunk))
        divide_again(w, p);
}

/* Recomputes the rows whose result is not finite. With integers, only marks these rows for
 * compute_again. With groups of products and an item of one row, at most divides again. A result
 * that is not finite may be wrong for two reasons. A sum may have overflowed. A lane that does not
 * see a key may have multiplied V of this key by 0, which gives NaN if V is NaN or infinite. If the
 * sum of a row's weights is NaN, the result is NaN, too, and the row is not recomputed. But if the
 * call returns states, rows whose sum is NaN are recomputed, too: the call may continue from states
 * that the caller has made, and in these states o may be a number although the sum is NaN. */
static void redo_rows(const struct prefill *w, const struct panel *p, uint64_t not_finite)
{
    for (int lane = 0; lane < p->rows; lane++)
        if (not_finite >> lane & 1 && (w->a->after.out || !isnan(sum_of(p, lane))))
            redo_row(w, p, p->first_row + lane);
}

/* The addresses of a panel's results. */
struct outputs {
    void *rows[MAX_LANES];
    float *out[MAX_LANES], *lse[MAX_LANES]; /* out: the results as binary32 */
};

static void find_outputs(const struct prefill *w, const struct panel *p, struct outputs *o)
{
    const struct attention *a = w->a;
    struct place place = p->first;
    for (int lane = 0; lane < p->rows; lane++, place = next_place(a, place)) {
        o->rows[lane] = out_row(a, place);
        o->out[lane] = o->rows[lane];
        if (a->out_type != TYPE_F32)
            o->out[lane] = w->wide.v + lane * a->value_dim;
        if (a->lse)
            o->lse[lane] = lse_row(a, place);
    }
}

/* Writes the results. If the output is not binary32, the results are first written to scratch as
 * binary32, and then rounded. Returns a bit for each row whose result is not finite. */
static uint64_t finish_rows(const struct prefill *w, const struct panel *p)
{
    const struct attention *a = w->a;
    struct outputs o;
    find_outputs(w, p, &o);
    float *const *const lse = a->lse ? o.lse : NULL;
    const uint64_t not_finite =
        p->is_begun || p->is_sunk
            ? w->kernels->finish_total(&p->total, p->is_sunk ? p->chunk.out : NULL, p->lanes,
                                       a->value_dim, p->rows, o.out, lse)
            : w->kernels->finish(&p->chunk, p->lanes, a->value_dim, p->rows, o.out, lse);
    for (int lane = 0; lane < p->rows && a->out_type != TYPE_F32; lane++)
        w->kernels->narrow(a->out_type, o.out[lane], a->value_dim, 0, o.rows[lane], NULL);
    return not_finite;
}

/* Returns the addresses of the numbers of a lane in the total. */
static struct total line_of(const struct panel *p, int lane)
{
    return (struct total){p->total.row_max + lane, p->total.row_sum + lane, p->total.out + lane};
}

static uint64_t export_rows(const struct prefill *w, const struct panel *p)
{
    const struct attention *a = w->a;
    struct place place = p->first;
    uint64_t not_finite = 0;
    for (int lane = 0; lane < p->rows; lane++, place = next_place(a, place)) {
        const struct total to = total_row(a, a->after, place);
        const bool found = export_line(to, line_of(p, lane), p->lanes, a->value_dim);
        not_finite |= (uint64_t)found << lane;
    }
    return not_finite;
}

/* The sinks of a panel's rows as states. */
struct sinks {
    float max[MAX_LANES], sum[MAX_LANES];
};

static void find_sinks(const struct prefill *w, const struct panel *p, struct sinks *s)
{
    struct place place = p->first;
    int64_t head = -1;
    for (int lane = 0; lane < p->rows; lane++, place = next_place(w->a, place)) {
        if (place.head == head) {
            s->max[lane] = s->max[lane - 1];
            s->sum[lane] = s->sum[lane - 1];
        } else {
            head = place.head;
            attnkit_sink(w->a, w->kernels, head, &s->max[lane], &s->sum[lane]);
        }
    }
}

/* Folds the sinks into M and l of a panel with one chunk, and returns true. o of the total stays in
 * the chunk. If a sink would raise M, folds nothing and returns false. */
static bool sink_sums(struct panel *p, const struct sinks *s)
{
    for (int lane = 0; lane < p->rows; lane++)
        if (s->max[lane] > p->chunk.row_max[lane])
            return false;
    for (int lane = 0; lane < p->lanes; lane++) {
        p->total.row_max[lane] = p->chunk.row_max[lane];
        p->total.row_sum[lane] = (double)p->chunk.row_sum[lane];
    }
    for (int lane = 0; lane < p->rows; lane++)
        fold_sum(&p->total.row_max[lane], &p->total.row_sum[lane], s->max[lane], s->sum[lane]);
    return true;
}

static void fold_sinks(const struct prefill *w, struct panel *p)
{
    struct sinks s;
    find_sinks(w, p, &s);
    p->is_sunk = !p->is_begun && sink_sums(p, &s);
    if (p->is_sunk)
        return;
    if (!p->is_begun)
        fold_chunk(w, p);
    for (int lane = 0; lane < p->rows; lane++)
        fold_sink(line_of(p, lane), s.max[lane], s.sum[lane], p->lanes, w->a->value_dim);
}

static void write_weights(const struct prefill *w, const struct panel *p)
{
    const size_t wide = (size_t)attnkit_wide_floats(w->a, w->kernels) * sizeof(float);
    float sums[MAX_LANES];
    for (int lane = 0; lane < p->rows; lane++)
        sums[lane] = (float)sum_of(p, lane);
    attnkit_write_weights(w->a, w->kernels, p->first, p->rows,
                          p->is_begun || p->is_sunk ? p->total.row_max : p->chunk.row_max, sums,
                          w->careful_scratch + wide);
}

static void finish_panel(const struct prefill *w, struct panel *p)
{
    const struct attention *a = w->a;
    if (p->is_fresh && !p->is_begun) { /* no row sees a key */
        reset(&p->chunk, p->lanes);
        clear_out(&p->chunk, p->lanes, a->value_dim);
        p->is_fresh = false;
    }
    if (!p->is_fresh && (p->is_begun || a->after.out))
        fold_chunk(w, p);
    if (a->extras.sinks && !a->after.out)
        fold_sinks(w, p);
    if (a->extras.weights)
        write_weights(w, p);
    const uint64_t not_finite = a->after.out ? export_rows(w, p) : finish_rows(w, p);
    if (not_finite)
        redo_rows(w, p, not_finite);
}

/* Returns `sights`, and first clears it if its bits are of another batch entry. Returns NULL if the
 * call cannot use it: it has one KV head, cells, or masks that differ between heads. */
static struct sights *open_sights(const struct attention *a, int64_t batch, struct sights *sights)
{
    if (!HAS_SIGHTS || !sights || !a->extras.any || a->kv_heads == 1 || has_cells(a) ||
        attnkit_heads_differ(a))
        return NULL;
    if (sights->batch != batch)
        *sights = (struct sights){.batch = batch};
    return sights;
}

static void begin_item(struct prefill *w, const struct attention *a, const struct kernels *kernels,
                       const struct work_item *item, struct sights *sights, char *scratch)
{
    w->a = a;
    w->kernels = kernels;
    w->batch = item->batch;
    w->kv_head = item->kv_head;
    w->sights = open_sights(a, item->batch, sights);
    w->rows = item->panel_rows;
    begin(w, item, scratch);
}

static void finish_item(struct prefill *w, const struct work_item *item)
{
    const struct attention *a = w->a;
    struct place place = place_of_row(a, item->batch, item->kv_head, item->first_row);
    for (int r = 0; r < item->panel_rows && !a->after.out; r++, place = next_place(a, place))
        prefetch_row(out_row(a, place), bytes_of(a->out_type, a->value_dim), 1);
    for (int i = 0; i < w->panels; i++)
        finish_panel(w, &w->panel[i]);
}

/* Computes the marked rows of an item again, in decode tiles. */
static void compute_again(const struct attention *a, const struct kernels *kernels,
                          const struct work_item *item, const struct again *again, char *scratch)
{
    for (int i = 0; i < item->panel_rows; i++) {
        const struct work_item row = {item->batch, item->kv_head, item->first_row + i, 0, 1, 1};
        if (again->rows[i / 64] >> i % 64 & 1)
            attnkit_decode(a, kernels, &row, 1, scratch);
    }
}

/* Computes the rows of an item. The function is not inlined, so that compute_again runs without
 * struct prefill on the stack. */
static __attribute__((noinline)) void prefill(const struct attention *a,
                                              const struct kernels *kernels,
                                              const struct work_item *item, struct sights *sights,
                                              struct again *again, char *scratch)
{
    struct prefill w; /* not initialized as a whole: most panels are not used */
    w.again = again;
    begin_item(&w, a, kernels, item, sights, scratch);
    for (int i = 0; i < w.panels && a->before.out; i++)
        resume_panel(&w, &w.panel[i]);
    const int64_t end = last_end(&w);
    for (int64_t first = 0; first < end; first += CHUNK_KEYS)
        attend_chunk(&w, first);
    finish_item(&w, item);
}

void attnkit_prefill(const struct attention *a, const struct kernels *kernels,
                     const struct work_item *item, struct sights *sights, char *scratch)
{
    struct again again = {{0}};
    prefill(a, kernels, item, sights, &again, scratch);
    if (has_integers(a))
        compute_again(a, kernels, item, &again, scratch);
}

/* --- Parts of an item --------------------------------------------------------------------------
 */

int64_t attnkit_prefill_state(const struct attention *a, const struct kernels *kernels, int rows)
{
    return state_floats(a) * whole_vectors(rows, kernels->vector);
}

int64_t attnkit_prefill_total(const struct attention *a, const struct kernels *kernels, int rows)
{
    return total_floats(a) * whole_vectors(rows, kernels->vector) / 2;
}

void attnkit_prefill_chunk(const struct attention *a, const struct kernels *kernels,
                           const struct work_item *item, int64_t first, float *state, char *scratch)
{
    struct prefill w;
    char *states = (char *)state;
    begin_item(&w, a, kernels, item, NULL, scratch);
    for (int i = 0; i < w.panels; i++) {
        struct panel *p = &w.panel[i];
        p->chunk = take_state(&states, a->value_dim, p->lanes);
        reset(&p->chunk, p->lanes);
    }
    if (first < last_end(&w))
        attend_blocks(&w, first);
    for (int i = 0; i < w.panels; i++)
        if (w.panel[i].is_fresh)
            clear_out(&w.panel[i].chunk, w.panel[i].lanes, a->value_dim);
}

/* Joins the states of a panel's chunks to its total. For each chunk, the states of the item's
 * panels lie one after the other. The panel's state begins `offset` bytes after the first of these
 * states. */
static void join_panel(const struct prefill *w, struct panel *p, const struct chunk_run *run,
                       int64_t offset)
{
    if (run->begins && w->a->before.out)
        resume_panel(w, p);
    p->is_begun |= !run->begins;
    for (int i = 0; i < run->count; i++) {
        const bool is_first = run->begins && i == 0;
        char *state = (char *)(run->states + i * run->step) + offset;
        if (!is_first && p->end <= (run->first_chunk + i) * CHUNK_KEYS)
            break;
        if (!p->is_fresh)
            fold_chunk(w, p);
        p->chunk = take_state(&state, w->a->value_dim, p->lanes);
        p->is_fresh = false;
    }
    if (!run->ends && !p->is_fresh)
        fold_chunk(w, p);
}

static __attribute__((noinline)) void join(const struct attention *a, const struct kernels *kernels,
                                           const struct work_item *item,
                                           const struct chunk_run *run, struct again *again,
                                           char *scratch)
{
    struct prefill w;
    w.again = again;
    char *totals = (char *)run->total;
    int64_t offset = 0;
    begin_item(&w, a, kernels, item, NULL, scratch);
    for (int i = 0; i < w.panels; i++) {
        struct panel *const p = &w.panel[i];
        p->total = take_total(&totals, a->value_dim, p->lanes);
        join_panel(&w, p, run, offset);
        offset += state_floats(a) * p->lanes * (int64_t)sizeof(float);
    }
    if (run->ends)
        finish_item(&w, item);
}

void attnkit_prefill_join(const struct attention *a, const struct kernels *kernels,
                          const struct work_item *item, const struct chunk_run *run, char *scratch)
{
    struct again again = {{0}};
    join(a, kernels, item, run, &again, scratch);
    if (has_integers(a))
        compute_again(a, kernels, item, &again, scratch);
}
