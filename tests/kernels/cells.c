/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache whose cells hold keys in any order gives the bits of a dense cache in which each key lies
 * at its index. The tests have every kind of mask, and K and V of F32, F16, BF16, I8 and Q8_0. Some
 * keys have no cell, cells without a key may lie in unmapped memory, and several sequences may
 * share a cache. The tests run on every instruction set, or on the instruction set that the first
 * argument names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cases/kinds.h"
#include "kernels/kernels.h"
#include "tests/support/call.h"
#include "tests/support/memory.h"
#include "tests/support/sample.h"

enum {
    KEYS = 1300, /* keys of the dense cache: three chunks */
    CELLS = 700,
    FIRST = KEYS - CELLS, /* the first key of the ring */
    DIM = 32,
    VALUES = 32,
    HEADS = 4,
    KV_HEADS = 2,
    BATCH = 2,
    ROW_COUNTS = 3,
    CASES = 2 * KINDS, /* each kind, then each kind with a V whose sums overflow */
    KIND_CAUSAL = 0,   /* indices of kinds in `kinds` */
    KIND_WINDOW = 1,
    KIND_LENGTHS = 3,
};

/* Numbers of query rows of a query head. A KV head has two query heads, so a KV head has 2, 6 or 70
 * rows. No instruction set has a panel of 70 or more rows. */
static const int64_t row_counts[ROW_COUNTS] = {1, 3, 35};

static int case_step(void)
{
    return is_sampled_run() ? 4 : 1;
}

/* Returns whether this run leaves out the call with number n. A sampled run makes only the calls
 * whose number is a multiple of 3. */
static bool is_left_out(int n)
{
    return is_sampled_run() && n % 3 != 0;
}

/* --- Orders ------------------------------------------------------------------------------------
 *
 * Each function returns the index of the key in a cell of batch entry b, or -1 if the cell is
 * empty.
 */

/* The cells are a ring of the last CELLS keys: the key of index i lies in cell i % CELLS. */
static int64_t ring(int64_t b, int64_t cell)
{
    (void)b;
    return cell >= FIRST % CELLS ? FIRST / CELLS * CELLS + cell
                                 : (FIRST / CELLS + 1) * CELLS + cell;
}

/* The ring is not full yet, so the cells are in the order of the keys. Batch entry 1 has fewer
 * keys. */
static int64_t filling(int64_t b, int64_t cell)
{
    return cell < CELLS - 100 - 3 * b ? FIRST + cell : -1;
}

static int64_t backwards(int64_t b, int64_t cell)
{
    return FIRST - 5 * b + CELLS - 1 - cell;
}

/* The keys lie in the cells in a shuffled order. A tenth of the cells are empty. */
static int64_t shuffled(int64_t b, int64_t cell)
{
    const int64_t place = (cell * 293 + 17 * b) % CELLS; /* the prime 293 does not divide CELLS */
    return place % 10 == 3 ? -1 : FIRST - 7 * b + place;
}

/* A batch entry has runs of 50 cells. Between the keys of two runs, some keys have no cell. The
 * cells between the runs belong to other sequences. */
static int64_t one_of_several(int64_t b, int64_t cell)
{
    return cell / 50 % 3 == b ? FIRST - 31 * b + cell + cell / 150 : -1;
}

/* There are two runs of keys, with an empty chunk between them. */
static int64_t two_runs(int64_t b, int64_t cell)
{
    if (cell >= 200 + 10 * b)
        return -1;
    return cell < 100 ? 20 + cell : KEYS - 10 - cell;
}

static int64_t nothing(int64_t b, int64_t cell)
{
    return b == 0 ? -1 : ring(b, cell);
}

static const struct order {
    const char *name;
    int64_t (*index)(int64_t b, int64_t cell);
} orders[] = {{"ring", ring},
              {"filling", filling},
              {"backwards", backwards},
              {"shuffled", shuffled},
              {"one of several", one_of_several},
              {"two runs", two_runs},
              {"nothing", nothing}};

enum { ORDERS = sizeof orders / sizeof orders[0] };

/* --- The dense cache ---------------------------------------------------------------------------
 */

/* Makes the dense call of case k of CASES, with `rows` query rows of each query head. */
static struct call *new_call(int k, int64_t rows)
{
    static const float slopes[HEADS] = {0.01f, -0.02f, 0.05f, 0.001f};
    static const float sinks[HEADS] = {1, -2, 0.5f, 3};
    static const uint64_t seeds[BATCH] = {1, UINT64_C(0xfedcba9876543210)};
    struct call *const c = call_new((struct shape){.batch = BATCH,
                                                   .kv_heads = KV_HEADS,
                                                   .group = HEADS / KV_HEADS,
                                                   .q_len = rows,
                                                   .kv_len = KEYS,
                                                   .head_dim = DIM,
                                                   .value_dim = VALUES});
    const struct kind *const kind = &kinds[k % KINDS];
    for (int64_t i = 0; i < BATCH * KV_HEADS * KEYS * VALUES && k >= KINDS; i += 2)
        c->v[i] *= FLT_MAX;
    kind->set(c);
    if (kind->field == BYTES) { /* these calls also have ALiBi, sinks, softcap and dropout */
        call_set_positions(c);
        c->groups.scores.alibi_slopes = slopes;
        c->groups.scores.sinks = sinks;
        c->groups.scores.softcap = 2.0;
        c->groups.scores.dropout = 0.1;
        c->groups.scores.dropout_seeds = seeds;
    }
    kinds_vary_bias(c);
    return c;
}

/* The cell of each key of each batch entry, or -1. */
struct cells {
    int64_t of_key[BATCH][KEYS];
};

static void find_cells(const struct order *order, struct cells *cells)
{
    for (int64_t b = 0; b < BATCH; b++) {
        for (int64_t j = 0; j < KEYS; j++)
            cells->of_key[b][j] = -1;
        for (int64_t cell = 0; cell < CELLS; cell++)
            if (order->index(b, cell) >= 0)
                cells->of_key[b][order->index(b, cell)] = cell;
    }
}

/* Returns a writable pointer to a row of a tensor. */
static char *row_of(const attnkit_tensor *t, int64_t b, int64_t h, int64_t i)
{
    return (char *)(uintptr_t)t->data + b * t->strides[0] + h * t->strides[1] + i * t->strides[2];
}

/* Adds a mask that hides the keys without a cell. The mask is in a field that the kind does not
 * use. */
static void mask_absent(struct call *c, const struct kind *kind, const struct cells *cells)
{
    attnkit_visibility *const v = &c->groups.visibility;
    const bool in_bytes = kind->field != BYTES;
    attnkit_tensor *const mask = in_bytes ? &v->mask : &v->mask_bits;
    mask->type = in_bytes ? ATTNKIT_BOOL : ATTNKIT_BITS;
    *(in_bytes ? &v->mask_kind : &v->mask_bits_kind) = ATTNKIT_MASK_IGNORE;
    mask->layout = ATTNKIT_STRIDED;
    memset(mask->strides, 0, sizeof mask->strides);
    mask->strides[0] = KEYS;
    mask->data = call_memory(c, BATCH * KEYS);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t j = 0; j < KEYS; j++)
            if (cells->of_key[b][j] < 0)
                row_of(mask, b, 0, 0)[in_bytes ? j : j / 8] |= (char)(in_bytes ? 1 : 1 << j % 8);
}

/* --- The cache of cells ------------------------------------------------------------------------
 */

/* Copies the row of each key to the row of its cell. Rows of empty cells are NaN, or have scales of
 * NaN. */
static void move_rows(struct call *c, attnkit_tensor *t, int64_t row_bytes,
                      const struct cells *cells)
{
    const attnkit_tensor from = *t;
    char *const rows = call_memory(c, (size_t)(BATCH * KV_HEADS * CELLS * row_bytes));
    memset(rows, 0xff, (size_t)(BATCH * KV_HEADS * CELLS * row_bytes));
    t->data = rows;
    t->strides[2] = row_bytes;
    t->strides[1] = CELLS * row_bytes;
    t->strides[0] = KV_HEADS * t->strides[1];
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t h = 0; h < KV_HEADS; h++)
            for (int64_t j = 0; j < KEYS; j++)
                if (cells->of_key[b][j] >= 0)
                    memcpy(row_of(t, b, h, cells->of_key[b][j]), row_of(&from, b, h, j),
                           (size_t)row_bytes);
}

/* Copies the column of each key in a mask or bias to the column of its cell. A column has `bits`
 * bits in each row. */
static void move_columns(struct call *c, attnkit_tensor *t, int64_t *columns, int bits,
                         const struct cells *cells)
{
    const attnkit_attention_args *const a = &c->args;
    const attnkit_tensor from = *t;
    const int64_t row_bytes = (CELLS * bits + 7) / 8, bytes = bits / 8;
    t->strides[2] = row_bytes;
    t->strides[1] = row_bytes * a->q_len;
    t->strides[0] = t->strides[1] * HEADS;
    t->data = call_memory(c, (size_t)(t->strides[0] * BATCH));
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        for (at.j = 0; at.j < *columns; at.j++) {
            const int64_t cell = cells->of_key[at.b][at.j];
            const char *const old = row_of(&from, at.b, at.h, at.i);
            char *const new = row_of(t, at.b, at.h, at.i);
            if (cell >= 0 && bits == 1)
                new[cell / 8] |= (char)((old[at.j / 8] >> at.j % 8 & 1) << cell % 8);
            else if (cell >= 0)
                memcpy(new + cell *bytes, old + at.j * bytes, (size_t)bytes);
        }
    *columns = CELLS;
}

static void move_masks(struct call *c, const struct cells *cells)
{
    attnkit_visibility *const v = &c->groups.visibility;
    attnkit_score_mods *const s = &c->groups.scores;
    if (v->mask.data)
        move_columns(c, &v->mask, &v->mask_columns, 8, cells);
    if (v->mask_bits.data)
        move_columns(c, &v->mask_bits, &v->mask_bits_columns, 1, cells);
    if (s->bias.data)
        move_columns(c, &s->bias, &s->bias_columns, s->bias.type == ATTNKIT_F32 ? 32 : 16, cells);
    if (!v->kv_segment_ids)
        return;
    int32_t *const ids = call_memory(c, sizeof *ids * BATCH * CELLS);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t j = 0; j < KEYS; j++)
            if (cells->of_key[b][j] >= 0)
                ids[b * CELLS + cells->of_key[b][j]] = v->kv_segment_ids[b * KEYS + j];
    v->kv_segment_ids = ids;
}

/* Empties the cells of keys that a length hides, or that lie beyond the columns of a mask or
 * bias. */
static void forget_unseen(const struct call *c, struct cells *cells)
{
    const attnkit_visibility *const v = &c->groups.visibility;
    const int64_t columns[] = {v->mask_columns, v->mask_bits_columns,
                               c->groups.scores.bias_columns};
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t j = 0; j < KEYS; j++) {
            if (v->kv_lens.data && j >= ints_at(v->kv_lens, b))
                cells->of_key[b][j] = -1;
            for (int i = 0; i < 3; i++)
                if (columns[i] > 0 && j >= columns[i])
                    cells->of_key[b][j] = -1;
        }
}

static void set_index(struct call *c, const struct cells *cells)
{
    int64_t *const index = call_memory(c, sizeof *index * BATCH * CELLS);
    for (int64_t i = 0; i < BATCH * CELLS; i++)
        index[i] = -1;
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t j = 0; j < KEYS; j++)
            if (cells->of_key[b][j] >= 0)
                index[b * CELLS + cells->of_key[b][j]] = j;
    c->groups.storage.key_index = (attnkit_ints){.data = index};
    c->groups.storage.key_index_stride = CELLS;
}

static int64_t row_bytes_of(attnkit_type type, int64_t dim)
{
    return bytes_of((enum type)type, dim);
}

/* Returns a copy of the call `dense` with its keys in cells. forget_unseen empties some of `cells`.
 */
static struct call *in_cells(const struct call *dense, struct cells *cells)
{
    struct call *const c = call_like(dense);
    attnkit_kv_storage *const s = &c->groups.storage;
    forget_unseen(c, cells);
    move_rows(c, &c->args.k, row_bytes_of(c->args.k.type, DIM), cells);
    move_rows(c, &c->args.v, row_bytes_of(c->args.v.type, VALUES), cells);
    if (s->k_scales.data)
        move_rows(c, &s->k_scales, 4 * DIM / s->k_scale_group, cells);
    if (s->v_scales.data)
        move_rows(c, &s->v_scales, 4 * VALUES / s->v_scale_group, cells);
    move_masks(c, cells);
    set_index(c, cells);
    c->groups.visibility.kv_lens.data = NULL;
    c->args.kv_len = CELLS;
    return c;
}

static void demand_same(const struct call *c, const struct call *d, const struct order *order,
                        const char *what)
{
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        if (!call_same_row(c, at, d, at))
            fail_msg("%s, %s: entry %lld head %lld row %lld of %lld, %d threads", order->name, what,
                     (long long)at.b, (long long)at.h, (long long)at.i, (long long)c->args.q_len,
                     d->threads);
}

static void order_of_cells_changes_no_bit(void **state)
{
    static struct cells cells;
    for (int k = 0; k < CASES; k += case_step())
        for (int n = 0; n < ROW_COUNTS; n++)
            for (int o = k % 2; o < ORDERS; o += is_sampled_run() ? 4 : 2) {
                if (is_left_out(k / case_step() + n + o / 2))
                    continue;
                struct call *const dense = new_call(k, row_counts[n]);
                find_cells(&orders[o], &cells);
                struct call *const c = in_cells(dense, &cells);
                mask_absent(dense, &kinds[k % KINDS], &cells);
                call_run(dense, *state);
                for (c->threads = 1; c->threads <= 3; c->threads += 2) {
                    call_run(c, *state);
                    demand_same(dense, c, &orders[o], kinds[k % KINDS].name);
                }
                call_free(c);
                call_free(dense);
            }
}

/* --- Types -------------------------------------------------------------------------------------
 */

/* Converts K or V to rows of another type. */
static void convert(struct call *c, attnkit_tensor *t, attnkit_tensor *scales, attnkit_type type,
                    int64_t dim, int64_t *group)
{
    char workspace[1 << 16], message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_exec exec = {
        .size = sizeof exec, .workspace = workspace, .workspace_size = sizeof workspace};
    const int64_t rows = BATCH * KV_HEADS * KEYS, bytes = row_bytes_of(type, dim);
    void *const to = call_memory(c, (size_t)(rows * bytes));
    attnkit_tensor numbers = {.data = NULL};
    if (type == ATTNKIT_I8) {
        *group = 16;
        numbers.data = call_memory(c, (size_t)(rows * dim / *group) * sizeof(float));
    }
    const attnkit_append_args append = {.size = sizeof append,
                                        .batch = BATCH,
                                        .heads = KV_HEADS,
                                        .len = KEYS,
                                        .dim = dim,
                                        .capacity = KEYS,
                                        .scale_group = *group,
                                        .src = {.data = t->data},
                                        .dst = {.data = to, .type = type},
                                        .dst_scales = numbers};
    if (attnkit_append(&append, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    *t = (attnkit_tensor){.data = to,
                          .type = type,
                          .layout = ATTNKIT_STRIDED,
                          .strides = {KV_HEADS * KEYS * bytes, KEYS * bytes, bytes}};
    if (!numbers.data)
        return;
    const int64_t scale_bytes = 4 * dim / *group;
    *scales = (attnkit_tensor){
        .data = numbers.data,
        .layout = ATTNKIT_STRIDED,
        .strides = {KV_HEADS * KEYS * scale_bytes, KEYS * scale_bytes, scale_bytes}};
}

static void order_of_cells_changes_no_bit_of_any_type(void **state)
{
    static const attnkit_type types[] = {ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_I8, ATTNKIT_Q8_0};
    static struct cells cells;
    for (int i = 0; i < 4 * ROW_COUNTS; i++)
        for (int o = 0; o < ORDERS; o++) {
            if (is_left_out(i + o))
                continue;
            struct call *const dense = new_call(i % KINDS, row_counts[i % ROW_COUNTS]);
            attnkit_kv_storage *const s = &dense->groups.storage;
            convert(dense, &dense->args.k, &s->k_scales, types[i / 3], DIM, &s->k_scale_group);
            convert(dense, &dense->args.v, &s->v_scales, types[(i / 3 + o) % 4], VALUES,
                    &s->v_scale_group);
            find_cells(&orders[o], &cells);
            struct call *const c = in_cells(dense, &cells);
            mask_absent(dense, &kinds[i % KINDS], &cells);
            call_run(dense, *state);
            call_run(c, *state);
            demand_same(dense, c, &orders[o], "types");
            call_free(c);
            call_free(dense);
        }
}

/* --- Weights -----------------------------------------------------------------------------------
 */

/* Compares weights. The column of a cell must equal the column of its key. The column of an empty
 * cell must have the value of a key beyond kv_lens. */
static void check_weights(const struct call *dense, const struct call *c, struct at at,
                          const struct order *order)
{
    const bool softmax = c->groups.weights.kind == ATTNKIT_WEIGHTS_SOFTMAX;
    const int64_t row = (at.b * HEADS + at.h) * c->args.q_len + at.i;
    for (int64_t cell = 0; cell < CELLS; cell++) {
        const int64_t key = ints_at(c->groups.storage.key_index, at.b * CELLS + cell);
        const float none = softmax ? 0.0f : float_of_bits(0xff800000);
        const float *const expected = key < 0 ? &none : dense->weights + row * KEYS + key;
        if (memcmp(expected, c->weights + row * CELLS + cell, sizeof none) != 0)
            fail_msg("%s, kind %d: entry %lld head %lld row %lld cell %lld", order->name,
                     (int)c->groups.weights.kind, (long long)at.b, (long long)at.h, (long long)at.i,
                     (long long)cell);
    }
}

static void weights_are_by_cell(void **state)
{
    static struct cells cells;
    for (int i = 0; i < 4 * ORDERS; i++)
        for (int n = 0; n < ROW_COUNTS; n++) {
            if (is_left_out(i + n))
                continue;
            const struct order *const order = &orders[i / 4];
            const int kind = i * 5 % KINDS;
            struct call *const dense = new_call(kind, row_counts[n]);
            find_cells(order, &cells);
            struct call *const c = in_cells(dense, &cells);
            mask_absent(dense, &kinds[kind], &cells);
            call_set_weights(dense, (attnkit_weights_kind)(1 + i % 4));
            call_set_weights(c, (attnkit_weights_kind)(1 + i % 4));
            call_run(dense, *state);
            call_run(c, *state);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
                check_weights(dense, c, at, order);
            call_free(c);
            call_free(dense);
        }
}

/* --- Several sequences in one cache ------------------------------------------------------------
 */

/* Sequence b of the dense cache has lens[b] keys. Both sequences of the call share one cache of
 * cells. In this cache, their keys alternate with cells of a third sequence, which no call reads.
 */
static const int64_t lens[BATCH] = {300, 190};

static struct call *in_one_cache(const struct call *dense)
{
    enum { ROOM = 3 * 300 };
    struct call *const c = call_like(dense);
    const attnkit_tensor from[2] = {dense->args.k, dense->args.v};
    attnkit_tensor *const to[2] = {&c->args.k, &c->args.v};
    const int64_t row_bytes[2] = {4 * DIM, 4 * VALUES};
    int32_t *const index = call_memory(c, BATCH * ROOM * sizeof *index);
    for (int t = 0; t < 2; t++) {
        char *const rows = call_memory(c, (size_t)(KV_HEADS * ROOM * row_bytes[t]));
        memset(rows, 0xff, (size_t)(KV_HEADS * ROOM * row_bytes[t]));
        to[t]->data = rows;
        to[t]->strides[0] = 0;
        to[t]->strides[1] = ROOM * row_bytes[t];
        for (int64_t b = 0; b < BATCH; b++)
            for (int64_t h = 0; h < KV_HEADS; h++)
                for (int64_t j = 0; j < lens[b]; j++)
                    memcpy(row_of(to[t], 0, h, 3 * j + b), row_of(&from[t], b, h, j),
                           (size_t)row_bytes[t]);
    }
    for (int64_t i = 0; i < BATCH * ROOM; i++) {
        const int64_t b = i / ROOM, cell = i % ROOM;
        index[i] = cell % 3 == b && cell / 3 < lens[b] ? (int32_t)(cell / 3) : -1;
    }
    c->groups.storage.key_index = (attnkit_ints){.data = index, .type = ATTNKIT_INT32};
    c->groups.storage.key_index_stride = c->args.kv_len = ROOM;
    return c;
}

static struct call *new_sequences(int64_t rows)
{
    struct call *const c = new_call(KIND_CAUSAL, rows);
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT; /* the rows are the last rows of their sequence */
    c->args.q_offsets.data = NULL;
    return c;
}

static void sequences_in_one_cache_have_the_bits_of_separate_caches(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const dense = new_sequences(row_counts[n]);
        struct call *const c = in_one_cache(dense);
        dense->groups.visibility.kv_lens = (attnkit_ints){.data = lens};
        call_run(dense, *state);
        for (c->threads = 1; c->threads <= 4; c->threads++) {
            call_run(c, *state);
            demand_same(dense, c, &orders[4], "one cache");
        }
        call_free(c);
        call_free(dense);
    }
}

/* The query rows of all sequences are packed in one tensor [heads][rows]. */
static void packed_rows_find_their_sequence_in_one_cache(void **state)
{
    enum { ROWS = 40 };
    static const int64_t starts[BATCH + 1] = {0, 33, ROWS};
    struct call *const dense = new_sequences(ROWS);
    struct call *const c = in_one_cache(dense);
    attnkit_kv_storage *const storage[2] = {&dense->groups.storage, &c->groups.storage};
    dense->groups.visibility.kv_lens = (attnkit_ints){.data = lens};
    for (int i = 0; i < 2; i++)
        storage[i]->cu_seqlens_q.data = starts;
    call_run(dense, *state);
    call_run(c, *state);
    assert_memory_equal(dense->out, c->out, HEADS * ROWS * VALUES * sizeof(float));
    assert_memory_equal(dense->lse, c->lse, HEADS * ROWS * sizeof(float));
    call_free(c);
    call_free(dense);
}

/* --- Indices far from zero -------------------------------------------------------------------- */

/* The call `moved` is `c`, but a multiple of the chunk length is added to all indices and
 * positions. */
static void far_indices_have_the_bits_of_near_indices(void **state)
{
    static const int64_t far[] = {512, INT64_C(1) << 40, INT64_C(1) << 62};
    static struct cells cells;
    for (int i = 0; i < 3 * ROW_COUNTS; i++) {
        struct call *const dense =
            new_call(i % 2 ? KIND_WINDOW : KIND_CAUSAL, row_counts[i % ROW_COUNTS]);
        static const float slopes[HEADS] = {0.01f, -0.02f, 0.05f, 0.001f};
        dense->groups.scores.alibi_slopes = slopes;
        find_cells(&orders[i % 4], &cells);
        struct call *const c = in_cells(dense, &cells), *const moved = call_like(c);
        int64_t *const index = call_memory(moved, BATCH * CELLS * sizeof *index);
        int64_t *const offsets = call_memory(moved, BATCH * sizeof *offsets);
        for (int64_t j = 0; j < BATCH * CELLS; j++) {
            index[j] = ints_at(c->groups.storage.key_index, j);
            index[j] += index[j] < 0 ? 0 : far[i / ROW_COUNTS];
        }
        for (int64_t b = 0; b < BATCH; b++)
            offsets[b] = ints_at(c->args.q_offsets, b) + far[i / ROW_COUNTS];
        moved->groups.storage.key_index.data = index;
        moved->args.q_offsets.data = offsets;
        call_run(c, *state);
        call_run(moved, *state);
        demand_same(c, moved, &orders[i % 4], "far");
        call_free(moved);
        call_free(c);
        call_free(dense);
    }
}

/* --- Empty cells -------------------------------------------------------------------------------
 */

/* Copies the rows of K or V into slots, and unmaps the slots of empty cells. */
static void into_slots(attnkit_tensor *t, int64_t row_bytes, attnkit_ints index, int first_slot)
{
    const attnkit_tensor from = *t;
    const int rows = BATCH * KV_HEADS * CELLS;
    char *const slots = memory_slots(first_slot, rows) + SLOT_BYTES - row_bytes;
    t->data = slots;
    t->strides[2] = SLOT_STRIDE;
    t->strides[1] = (int64_t)CELLS * SLOT_STRIDE;
    t->strides[0] = KV_HEADS * t->strides[1];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t b = i / (KV_HEADS * CELLS), h = i / CELLS % KV_HEADS, cell = i % CELLS;
        memcpy(row_of(t, b, h, cell), row_of(&from, b, h, cell), (size_t)row_bytes);
        if (ints_at(index, b * CELLS + cell) < 0)
            memory_hide_slots(first_slot + (int)i, 1);
    }
}

static void empty_cells_need_no_memory(void **state)
{
    static struct cells cells;
    for (int o = 1; o < ORDERS; o++)
        for (int n = 0; n < ROW_COUNTS; n++) {
            struct call *const dense = new_call(o % 2 ? KIND_CAUSAL : KIND_LENGTHS, row_counts[n]);
            find_cells(&orders[o], &cells);
            struct call *const c = in_cells(dense, &cells), *const slots = call_like(c);
            const attnkit_ints index = c->groups.storage.key_index;
            into_slots(&slots->args.k, 4 * DIM, index, 0);
            into_slots(&slots->args.v, 4 * VALUES, index, BATCH * KV_HEADS * CELLS);
            call_run(c, *state);
            call_run(slots, *state);
            demand_same(c, slots, &orders[o], "slots");
            call_free(slots);
            call_free(c);
            call_free(dense);
        }
    memory_end();
}

/* --- Threads and plans -------------------------------------------------------------------------
 */

/* Makes the calls of all threads one after the other, without a barrier, as a caller with threads
 * of its own may do. */
static void run_by_own_threads(struct call *c, const char *isa, int64_t threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    memset(c->out, 0x5a, (size_t)(BATCH * HEADS * c->args.q_len * VALUES) * sizeof(float));
    assert_int_equal(attnkit_attention_workspace(&c->args, &exec, &exec.workspace_size, message),
                     ATTNKIT_OK);
    exec.workspace = malloc(exec.workspace_size);
    for (exec.thread = 0; exec.thread < threads; exec.thread++)
        assert_int_equal(attnkit_attention(&c->args, &exec, message), ATTNKIT_OK);
    free(exec.workspace);
}

struct task {
    void (*run)(void *arg, int64_t i);
    void *arg;
    int64_t i;
};

static void *run_task(void *arg)
{
    const struct task *const task = arg;
    task->run(task->arg, task->i);
    return NULL;
}

/* A parallel-for that runs each task on its own thread, all at once. */
static void at_once(void *pool, int64_t n, void (*run)(void *arg, int64_t i), void *arg)
{
    enum { MOST = 8 };
    pthread_t threads[MOST];
    struct task tasks[MOST];
    (void)pool;
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++) {
        tasks[i] = (struct task){run, arg, i};
        assert_int_equal(pthread_create(&threads[i], NULL, run_task, &tasks[i]), 0);
    }
    for (int64_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

/* Each thread lists the keys of its batch entries in its own memory, so threads that run at once do
 * not disturb each other. */
static void threads_at_once_change_no_bit(void **state)
{
    static struct cells cells;
    char message[ATTNKIT_MESSAGE_SIZE];
    for (int i = 0; i < ORDERS * ROW_COUNTS; i++) {
        const struct order *const order = &orders[i / ROW_COUNTS];
        struct call *const dense = new_call(KIND_CAUSAL, row_counts[i % ROW_COUNTS]);
        find_cells(order, &cells);
        struct call *const c = in_cells(dense, &cells), *const again = call_like(c);
        attnkit_exec exec = {.size = sizeof exec, .isa = *state, .parallel_for = at_once};
        call_run(c, *state);
        for (exec.threads = 2; exec.threads <= 8; exec.threads += 3) {
            attnkit_attention_workspace(&again->args, &exec, &exec.workspace_size, NULL);
            exec.workspace = malloc(exec.workspace_size);
            if (attnkit_attention(&again->args, &exec, message) != ATTNKIT_OK)
                fail_msg("%s", message);
            demand_same(c, again, order, "threads at once");
            free(exec.workspace);
        }
        call_free(again);
        call_free(c);
        call_free(dense);
    }
}

/* Runs the call by a plan that was made for more batch entries, cells and threads than the call
 * has. */
static void run_by_plan(struct call *c, const char *isa)
{
    static _Alignas(16) char plan[1 << 14];
    char message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_attention_args *const a = &c->args;
    attnkit_attention_args larger = *a;
    attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = 3};
    const attnkit_attention_group_data groups = {.size = sizeof groups,
                                                 .key_index = c->groups.storage.key_index.data};
    const attnkit_attention_data data = {.size = sizeof data,
                                         .batch = a->batch,
                                         .q_len = a->q_len,
                                         .kv_len = a->kv_len,
                                         .q = a->q.data,
                                         .k = a->k.data,
                                         .v = a->v.data,
                                         .out = c->out,
                                         .lse = c->lse,
                                         .q_offsets = a->q_offsets.data,
                                         .groups = &groups};
    larger.batch++;
    larger.kv_len = CELLS;
    if (attnkit_attention_plan(&larger, &exec, plan, sizeof plan, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    attnkit_attention_plan_workspace(plan, &exec.workspace_size, NULL);
    exec.workspace = malloc(exec.workspace_size);
    exec.threads = 2;
    for (exec.thread = 0; exec.thread < 2; exec.thread++)
        if (attnkit_attention_run(plan, &data, &exec, message) != ATTNKIT_OK)
            fail_msg("%s", message);
    free(exec.workspace);
}

static void threads_and_plans_change_no_bit(void **state)
{
    static struct cells cells;
    for (int o = 0; o < ORDERS; o++)
        for (int n = 0; n < ROW_COUNTS; n++) {
            if (is_left_out(o + n))
                continue;
            struct call *const dense = new_call(KIND_CAUSAL, row_counts[n]);
            find_cells(&orders[o], &cells);
            struct call *const c = in_cells(dense, &cells);
            c->args.kv_len -= 30;
            struct call *const again = call_like(c);
            call_run(c, *state);
            for (int64_t threads = 2; threads < 12; threads += 3) {
                run_by_own_threads(again, *state, threads);
                demand_same(c, again, &orders[o], "own threads");
            }
            run_by_plan(again, *state);
            demand_same(c, again, &orders[o], "plan");
            call_free(again);
            call_free(c);
            call_free(dense);
        }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(order_of_cells_changes_no_bit),
        cmocka_unit_test(order_of_cells_changes_no_bit_of_any_type),
        cmocka_unit_test(weights_are_by_cell),
        cmocka_unit_test(sequences_in_one_cache_have_the_bits_of_separate_caches),
        cmocka_unit_test(packed_rows_find_their_sequence_in_one_cache),
        cmocka_unit_test(far_indices_have_the_bits_of_near_indices),
        cmocka_unit_test(empty_cells_need_no_memory),
        cmocka_unit_test(threads_and_plans_change_no_bit),
        cmocka_unit_test(threads_at_once_change_no_bit),
    };
    return promises_main("cells", promises, sizeof promises / sizeof promises[0], argc, argv);
}
