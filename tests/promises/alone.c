/* SPDX-License-Identifier: Apache-2.0
 *
 * A row's result has the same bits as in a call of this row alone, with every kind of mask. Nothing
 * else in the call may change these bits: no other row, no thread, no cut of the keys into parts,
 * no choice of pages. Some tests have left padding, a ring cache or a speculative tree. The tests
 * run on every instruction set, or on the instruction set that the first argument names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/call.h"
#include "tests/cases/kinds.h"
#include "tests/support/sample.h"

enum {
    KEYS = 700, /* more than a chunk */
    DIM = 12,
    VALUES = 5,
    HEADS = 4,
    KV_HEADS = 2,
    ROW_COUNTS = 3,
    CASES = 2 * KINDS, /* each kind, then each kind with a V whose sums overflow */
};

/* Numbers of query rows of a query head. A KV head has two query heads, so it has 2, 6 or 70 rows.
 * 70 rows are more than a panel of any instruction set. */
static const int64_t row_counts[ROW_COUNTS] = {1, 3, 35};

/* Returns the step from case to case. A sampled run takes every fourth case: some kinds, and other
 * kinds with sums that overflow. */
static int case_step(void)
{
    return is_sampled_run() ? 4 : 1;
}

static const char *name_of(int k)
{
    return kinds[k % KINDS].name;
}

static struct call *new_call(int k, int64_t batch, int64_t rows)
{
    static const float slopes[HEADS] = {0.01f, -0.02f, 0.05f, 0.001f};
    static const float sinks[HEADS] = {1, -2, 0.5f, 3};
    static const float bias_scales[HEADS] = {0.7f, 1, -0.3f, 2};
    struct call *const c = call_new((struct shape){.batch = batch,
                                                   .kv_heads = KV_HEADS,
                                                   .group = HEADS / KV_HEADS,
                                                   .q_len = rows,
                                                   .kv_len = KEYS,
                                                   .head_dim = DIM,
                                                   .value_dim = VALUES});
    const struct kind *const kind = &kinds[k % KINDS];
    for (int64_t i = 0; i < batch * KV_HEADS * KEYS * VALUES && k >= KINDS; i += 2)
        c->v[i] *= FLT_MAX;
    kind->set(c);
    if (kind->field == BYTES) { /* masks of bytes also have ALiBi, sinks and softcap */
        call_set_positions(c);
        c->groups.scores.alibi_slopes = slopes;
        c->groups.scores.sinks = sinks;
        c->groups.scores.softcap = 2.0;
    }
    kinds_vary_bias(c);
    if (kind->field == BIAS && k % 2)
        c->groups.scores.bias_scales = bias_scales;
    return c;
}

/* Checks that row i of entry j of c has the bits of row first + i of entry b + j of d, for all i
 * and j. */
static void check_rows(const struct call *c, const struct call *d, int64_t b, int64_t first,
                       const char *kind)
{
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        if (!call_same_row(c, at, d, (struct at){b + at.b, at.h, first + at.i, 0}))
            fail_msg("%s: entry %lld head %lld row %lld", kind, (long long)(b + at.b),
                     (long long)at.h, (long long)(first + at.i));
}

static void row_alone_has_the_bits_that_it_has_among_many_rows(void **state)
{
    for (int k = 0; k < CASES; k += case_step()) {
        struct call *const c = new_call(k, 2, 35);
        call_set_weights(c, ATTNKIT_WEIGHTS_SOFTMAX);
        call_run(c, *state);
        for (int64_t i = 0; i < 35; i += 3) {
            const int64_t b = i % 2, count = i % 4 == 0 ? 1 : 2;
            struct call *const row = call_rows(c, b, i, count);
            call_run(row, *state);
            check_rows(row, c, b, i, name_of(k));
            for (int64_t h = 0; h < HEADS; h++)
                assert_memory_equal(row->weights + h * count * KEYS,
                                    c->weights + ((b * HEADS + h) * 35 + i) * KEYS,
                                    (size_t)(count * KEYS) * sizeof(float));
            call_free(row);
        }
        call_free(c);
    }
}

static void threads_change_no_bit(void **state)
{
    for (int k = 0; k < CASES; k += case_step())
        for (int n = 0; n < ROW_COUNTS; n++) {
            struct call *const c = new_call(k, 1, row_counts[n]);
            struct call *const split = call_like(c);
            call_run(c, *state);
            for (split->threads = 2; split->threads <= 8; split->threads += 3) {
                call_run(split, *state);
                check_rows(split, c, 0, 0, name_of(k));
            }
            call_free(split);
            call_free(c);
        }
}

static void storage_changes_no_bit(void **state)
{
    for (int k = 0; k < CASES; k += case_step())
        for (int n = 0; n < ROW_COUNTS; n++) {
            struct call *const c = new_call(k, 2, row_counts[n]);
            call_run(c, *state);
            for (int how = 1; how < 4; how++) {
                struct call *const stored = call_like(c);
                call_store(stored, how & 1, how & 2 ? 16 * how - 16 : 0);
                call_run(stored, *state);
                check_rows(stored, c, 0, 0, name_of(k));
                call_free(stored);
            }
            call_free(c);
        }
}

/* --- Parts of the keys ------------------------------------------------------------------------ */

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static const void *moved(const void *data, int64_t bytes)
{
    return data ? (const char *)data + bytes : NULL;
}

/* Makes a call over the keys `first` to `end` - 1 of c. c has a single batch entry. The masks of
 * the new call have columns for these keys only. */
static struct call *part_of(const struct call *c, int64_t first, int64_t end)
{
    struct call *const part = call_like(c);
    attnkit_attention_args *const a = &part->args;
    attnkit_visibility *const see = &part->groups.visibility;
    attnkit_score_mods *const scores = &part->groups.scores;
    const int64_t keys = a->kv_len = end - first;
    part->groups.states.first_key = first;
    a->k.data = moved(a->k.data, first * a->k.strides[2]);
    a->v.data = moved(a->v.data, first * a->v.strides[2]);
    see->mask.data = moved(see->mask.data, first);
    see->mask_bits.data = moved(see->mask_bits.data, first / 8);
    scores->bias.data =
        moved(scores->bias.data, first * (scores->bias.type == ATTNKIT_F32 ? 4 : 2));
    see->kv_segment_ids = moved(see->kv_segment_ids, first * 4);
    see->mask_columns = clamp(see->mask_columns - first, 0, keys);
    see->mask_bits_columns = clamp(see->mask_bits_columns - first, 0, keys);
    scores->bias_columns = clamp(scores->bias_columns - first, 0, keys);
    if (see->kv_lens.data) {
        int64_t *const len = call_memory(part, sizeof *len);
        *len = clamp(ints_at(see->kv_lens, 0) - first, 0, keys);
        see->kv_lens = (attnkit_ints){.data = len};
    }
    return part;
}

static void parts_of_the_keys_make_the_whole(void **state)
{
    for (int k = 0; k < CASES; k += case_step())
        for (int n = 0; n < ROW_COUNTS; n++) {
            struct call *const c = new_call(k, 1, row_counts[n]);
            struct call *const head = part_of(c, 0, 512), *const tail = part_of(c, 512, KEYS);
            const size_t rows = (size_t)(HEADS * row_counts[n]) * sizeof(float);
            float *const max = call_memory(c, rows);
            double *const sum = call_memory(c, 2 * rows), *const out =
                                                              call_memory(c, 2 * rows * VALUES);
            head->args.out.data = NULL;
            head->args.lse.data = NULL;
            head->groups.scores.sinks = NULL;
            head->groups.states.state_out.max = max;
            head->groups.states.state_out.sum = sum;
            head->groups.states.state_out.out = out;
            tail->groups.states.state_in.max = max;
            tail->groups.states.state_in.sum = sum;
            tail->groups.states.state_in.out = out;
            call_run(c, *state);
            call_run(head, *state);
            call_run(tail, *state);
            check_rows(tail, c, 0, 0, name_of(k));
            call_free(tail);
            call_free(head);
            call_free(c);
        }
}

/* --- Pages of one key ------------------------------------------------------------------------- */

/* Makes buffers for K and V of the call, with `room` rows for each entry and KV head. Fills the
 * buffers with NaN. A page holds one row of each KV head of an entry. */
static void set_buffers(struct call *c, int64_t room, int32_t *table)
{
    attnkit_attention_args *const a = &c->args;
    const int64_t dims[2] = {DIM, VALUES};
    attnkit_tensor *const tensors[2] = {&a->k, &a->v};
    for (int i = 0; i < 2; i++) {
        const size_t bytes = (size_t)(a->batch * KV_HEADS * room * dims[i]) * sizeof(float);
        void *const buffer = call_memory(c, bytes);
        memset(buffer, 0xff, bytes);
        tensors[i]->data = buffer;
        tensors[i]->strides[2] = tensors[i]->strides[0] = dims[i] * 4;
        tensors[i]->strides[1] = room * dims[i] * 4;
    }
    c->groups.pages.page_size = 1;
    c->groups.pages.block_table = table;
    c->groups.pages.block_table_stride = KEYS;
    c->groups.pages.pages = (a->batch - 1) * KV_HEADS * room + room;
}

/* Returns the number of the page that holds a given row of entry b's buffer. */
static int32_t page_of(int64_t b, int64_t room, int64_t row)
{
    return (int32_t)(b * KV_HEADS * room + row);
}

/* Returns a writable pointer to a KV head's row in a page. */
static char *row_of_page(const attnkit_tensor *t, int32_t page, int64_t head)
{
    return (char *)(uintptr_t)t->data + page * t->strides[0] + head * t->strides[1];
}

/* Copies a key's rows of K and V from the call `from` into a page. */
static void put_key(struct call *c, int32_t page, const struct call *from, struct at at)
{
    const attnkit_attention_args *const a = &c->args;
    for (int64_t head = 0; head < KV_HEADS; head++) {
        at.h = head * (HEADS / KV_HEADS);
        memcpy(row_of_page(&a->k, page, head), call_k(from, at), DIM * sizeof(float));
        memcpy(row_of_page(&a->v, page, head), call_v(from, at), VALUES * sizeof(float));
    }
}

/* Key j of entry b lies in row 5 + 19 b + j of the entry's buffer. The rows before key 0 are
 * padding. */
static void left_padded_sequence_has_the_bits_of_the_sequence_alone(void **state)
{
    enum { BATCH = 3, ROOM = KEYS + 50 };
    static int32_t table[BATCH * KEYS];
    for (int k = 0; k < CASES; k += case_step())
        for (int n = 0; n < ROW_COUNTS; n++) {
            struct call *const c = new_call(k, BATCH, row_counts[n]);
            struct call *const padded = call_like(c);
            set_buffers(padded, ROOM, table);
            for (struct at at = {0}; at.b < BATCH; at.b++)
                for (at.j = 0; at.j < KEYS; at.j++) {
                    table[at.b * KEYS + at.j] = page_of(at.b, ROOM, 5 + 19 * at.b + at.j);
                    put_key(padded, table[at.b * KEYS + at.j], c, at);
                }
            call_run(padded, *state);
            for (int64_t b = 0; b < BATCH; b++) {
                struct call *const lone = call_rows(c, b, 0, row_counts[n]);
                call_run(lone, *state);
                check_rows(lone, padded, b, 0, name_of(k));
                call_free(lone);
            }
            call_free(padded);
            call_free(c);
        }
}

/* Makes the call of case `kind`, but with a window of 22 keys. */
static struct call *new_windowed_call(int kind, int64_t rows)
{
    struct call *const c = new_call(kind, 1, rows);
    call_set_positions(c);
    groups_set_window(&c->args, &c->groups, 20, 1, 0);
    return c;
}

/* Key j lies in row j % ROOM, so that entries of the block table for old keys point to rows of
 * newer keys. In every second call these entries point to a row of NaN. */
static void rolling_cache_has_the_bits_of_a_full_cache(void **state)
{
    enum { ROOM = 64 };
    static int32_t table[KEYS];
    for (int k = 0; k < CASES; k += case_step())
        for (int n = 0; n < ROW_COUNTS; n++)
            for (int evicted_is_nan = 0; evicted_is_nan < 2; evicted_is_nan++) {
                struct call *const c = new_windowed_call(k, row_counts[n]);
                struct call *const rolling = call_like(c);
                set_buffers(rolling, ROOM + 1, table);
                for (struct at at = {0}; at.j < KEYS; at.j++) {
                    const bool evicted = at.j < KEYS - ROOM;
                    table[at.j] = evicted && evicted_is_nan ? ROOM : (int32_t)(at.j % ROOM);
                    if (!evicted)
                        put_key(rolling, table[at.j], c, at);
                }
                call_run(c, *state);
                call_run(rolling, *state);
                check_rows(rolling, c, 0, 0, name_of(k));
                call_free(rolling);
                call_free(c);
            }
}

/* --- Trees ------------------------------------------------------------------------------------ */

enum { NODES = 8 };

/* The parent of each draft, or -1 if the draft directly follows the prefix. */
static const int parents[NODES] = {-1, 0, 0, 1, 1, 2, 5, -1};

/* Lists in `path` the drafts on the path from the prefix to a node. The node is the last of them.
 * Returns how many drafts the path has. */
static int path_to(int node, int *path)
{
    int reversed[NODES], count = 0;
    for (; node >= 0; node = parents[node])
        reversed[count++] = node;
    for (int i = 0; i < count; i++)
        path[i] = reversed[count - 1 - i];
    return count;
}

/* Makes one call of all drafts. A draft sees the prefix, itself and its ancestors. */
static struct call *new_tree(int64_t prefix)
{
    struct call *const c = call_new((struct shape){.kv_heads = KV_HEADS,
                                                   .group = HEADS / KV_HEADS,
                                                   .q_len = NODES,
                                                   .kv_len = prefix + NODES,
                                                   .head_dim = DIM,
                                                   .value_dim = VALUES});
    const int64_t row_bytes = (prefix + NODES + 7) / 8;
    unsigned char *const bits = call_memory(c, (size_t)(NODES * row_bytes));
    for (int node = 0; node < NODES; node++) {
        unsigned char *const row = bits + node * row_bytes;
        for (int64_t j = 0; j < prefix; j++)
            row[j / 8] |= (unsigned char)(1 << j % 8);
        for (int on = node; on >= 0; on = parents[on])
            row[(prefix + on) / 8] |= (unsigned char)(1 << (prefix + on) % 8);
    }
    c->groups.visibility.mask_bits.data = bits;
    c->groups.visibility.mask_bits.type = ATTNKIT_BITS;
    c->groups.visibility.mask_bits_kind = ATTNKIT_MASK_ATTEND;
    c->groups.visibility.mask_bits.strides[2] = row_bytes;
    return c;
}

/* Makes a causal call over the prefix and the drafts of one path, as a plain sequence. */
static struct call *new_branch(const struct call *tree, int64_t prefix, const int *path, int count)
{
    struct call *const c = call_new((struct shape){.kv_heads = KV_HEADS,
                                                   .group = HEADS / KV_HEADS,
                                                   .q_len = count,
                                                   .kv_len = prefix + count,
                                                   .head_dim = DIM,
                                                   .value_dim = VALUES});
    for (struct at at = {0}; at.h < HEADS; at.h++)
        for (at.j = 0; at.j < prefix + count; at.j++) {
            struct at from = at;
            if (at.j >= prefix) {
                at.i = at.j - prefix;
                from.i = path[at.i];
                from.j = prefix + from.i;
                memcpy(call_q(c, at), call_q(tree, from), DIM * sizeof(float));
            }
            memcpy(call_k(c, at), call_k(tree, from), DIM * sizeof(float));
            memcpy(call_v(c, at), call_v(tree, from), VALUES * sizeof(float));
        }
    c->args.flags |= ATTNKIT_CAUSAL;
    c->args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    return c;
}

/* The drafts lie in one block of 128 keys: if they crossed its edge, a tree and a branch would cut
 * their sums at different keys. */
static void draft_of_a_tree_has_the_bits_of_its_branch(void **state)
{
    static const int64_t prefixes[] = {0, 5, 100, 130, 600};
    for (int n = 0; n < 5; n++) {
        struct call *const tree = new_tree(prefixes[n]);
        call_run(tree, *state);
        for (int node = 0; node < NODES; node++) {
            int path[NODES];
            const int count = path_to(node, path);
            struct call *const branch = new_branch(tree, prefixes[n], path, count);
            call_run(branch, *state);
            for (struct at at = {0}; call_has(branch, at); at = call_next(branch, at))
                assert_true(
                    call_same_row(branch, at, tree, (struct at){.h = at.h, .i = path[at.i]}));
            call_free(branch);
        }
        call_free(tree);
    }
}

/* The calls are decoding steps with different windows. The windows begin at all keys of the first
 * tile of the last block, and at a few keys before and after this tile. The library prefetches the
 * last block while it works on the first keys, which keep_first adds to every window. */
static void window_that_begins_inside_a_tile_changes_no_bit(void **state)
{
    enum { LEN = 256, FIRST_LEFT = 110, LAST_LEFT = 130 };
    static const int64_t last = LEN - 1;
    for (int64_t left = FIRST_LEFT; left < LAST_LEFT; left++) {
        struct call *const rows =
            call_new((struct shape){.kv_len = LEN, .head_dim = DIM, .value_dim = VALUES});
        rows->args.flags |= ATTNKIT_CAUSAL;
        rows->args.align = ATTNKIT_ALIGN_OFFSETS;
        rows->args.q_offsets = (attnkit_ints){.data = &last};
        groups_set_window(&rows->args, &rows->groups, left, 0, 4);
        for (int64_t page = 0; page <= LEN; page += LEN) {
            struct call *const tiles = call_like(rows);
            call_store(tiles, true, page);
            call_run(rows, *state);
            call_run(tiles, *state);
            if (!call_same(rows, tiles))
                fail_msg("left %lld, pages of %lld", (long long)left, (long long)page);
            call_free(tiles);
        }
        call_free(rows);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(row_alone_has_the_bits_that_it_has_among_many_rows),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(storage_changes_no_bit),
        cmocka_unit_test(parts_of_the_keys_make_the_whole),
        cmocka_unit_test(left_padded_sequence_has_the_bits_of_the_sequence_alone),
        cmocka_unit_test(rolling_cache_has_the_bits_of_a_full_cache),
        cmocka_unit_test(draft_of_a_tree_has_the_bits_of_its_branch),
        cmocka_unit_test(window_that_begins_inside_a_tile_changes_no_bit),
    };
    return promises_main("alone", promises, sizeof promises / sizeof promises[0], argc, argv);
}
