/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked means absent, for each kind of mask: K and V of a key that a row does not see change no
 * bit of the row's result. A key that no row sees may lie in unmapped memory. NaN in K or V of a
 * key makes NaN in exactly the rows that see the key. The tests run on every instruction set, or on
 * the instruction set that the first argument names. The calls have few rows or many, K in rows or
 * in tiles, and caches with and without pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/call.h"
#include "tests/cases/kinds.h"
#include "tests/support/memory.h"
#include "tests/support/sample.h"

enum { KEYS = 200, DIM = 12, VALUES = 5, ROW_COUNTS = 3 };

/* Numbers of query rows of a query head. In calls of 3 or 35 rows, a KV head has two query heads,
 * and so 6 or 70 rows. 6 rows are few. 70 rows are more than a panel of any instruction set. */
static const int64_t row_counts[ROW_COUNTS] = {1, 3, 35};

/* How K and V are stored. */
static const struct storage {
    bool tiled;
    int64_t page_size; /* 0: no pages */
} storages[] = {{false, 0}, {true, 0}, {false, 5}, {true, 48}};

enum { STORAGES = sizeof storages / sizeof storages[0] };

static const uint32_t poisons[] = {0x7fc00000, 0x7fa00000, 0xffa00001, 0x7f800000, 0xff800000};

enum { POISONS = sizeof poisons / sizeof poisons[0] };

/* Makes a call. In a call of one row, each KV head has one query head and so a single row. Some
 * tiles then have no key that this row sees. */
static struct call *new_call(const struct kind *kind, int64_t rows)
{
    struct call *const c = call_new((struct shape){.batch = 2,
                                                   .kv_heads = 2,
                                                   .group = rows == 1 ? 1 : 2,
                                                   .q_len = rows,
                                                   .kv_len = KEYS,
                                                   .head_dim = DIM,
                                                   .value_dim = VALUES});
    kind->set(c);
    kinds_vary_bias(c);
    call_set_weights(c, ATTNKIT_WEIGHTS_SOFTMAX);
    return c;
}

/* Copies a call, with K and V in memory of their own. */
static struct call *copy_of(const struct call *c)
{
    struct call *const d = call_like(c);
    const size_t k_bytes = 2 * 2 * KEYS * DIM * sizeof *d->k,
                 v_bytes = 2 * 2 * KEYS * VALUES * sizeof *d->v;
    d->args.k.data = d->k = memcpy(call_memory(d, k_bytes), c->k, k_bytes);
    d->args.v.data = d->v = memcpy(call_memory(d, v_bytes), c->v, v_bytes);
    return d;
}

static void fill_row(float *row, int dim, float with)
{
    for (int i = 0; i < dim; i++)
        row[i] = with;
}

/* Fills K and V with `poison` at the keys that a row does not see. */
static void poison_unseen(struct call *c, const struct kind *kind, struct at row, uint32_t poison)
{
    for (row.j = 0; row.j < KEYS; row.j++)
        if (!kind->sees(c, row)) {
            fill_row(call_k(c, row), DIM, float_of_bits(poison));
            fill_row(call_v(c, row), VALUES, float_of_bits(poison));
        }
}

static const float *weights_row(const struct call *c, struct at at)
{
    return c->weights + ((at.b * c->args.q_heads + at.h) * c->args.q_len + at.i) * KEYS;
}

static void check_row(const struct call *clean, const struct call *c, struct at row,
                      const char *kind)
{
    const bool same = call_same_row(clean, row, c, row) &&
                      memcmp(weights_row(clean, row), weights_row(c, row), KEYS * 4) == 0;
    if (!same)
        fail_msg("%s: entry %lld head %lld row %lld of %lld%s, pages of %lld", kind,
                 (long long)row.b, (long long)row.h, (long long)row.i, (long long)c->args.q_len,
                 c->args.k.layout & ATTNKIT_TILED ? ", tiles" : "",
                 (long long)c->groups.pages.page_size);
}

static void what_a_masked_key_holds_changes_no_bit(void **state)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < ROW_COUNTS; n++) {
            const int64_t rows = row_counts[n];
            struct call *const clean = new_call(&kinds[k], rows);
            call_run(clean, *state);
            for (int run = 0; run < STORAGES * POISONS; run += is_sampled_run() ? 3 : 1) {
                const struct storage storage = storages[run / POISONS];
                struct call *const c = copy_of(clean);
                const struct at row = {
                    .b = run % 2, .h = run % clean->args.q_heads, .i = run * 7 % rows};
                poison_unseen(c, &kinds[k], row, poisons[run % POISONS]);
                call_store(c, storage.tiled, storage.page_size);
                call_run(c, *state);
                check_row(clean, c, row, kinds[k].name);
                call_free(c);
            }
            call_free(clean);
        }
}

/* --- Keys that no row sees -------------------------------------------------------------------- */

/* Returns whether any row of a KV head sees one of the `count` keys from `first` on. */
static bool any_sees(const struct call *c, const struct kind *kind, int64_t b, int64_t kv_head,
                     int64_t first, int64_t count)
{
    const int64_t group = c->args.q_heads / c->args.kv_heads;
    struct at at = {.b = b};
    for (at.h = kv_head * group; at.h < (kv_head + 1) * group; at.h++)
        for (at.i = 0; at.i < c->args.q_len; at.i++)
            for (at.j = first; at.j < first + count && at.j < c->args.kv_len; at.j++)
                if (kind->sees(c, at))
                    return true;
    return false;
}

/* Copies K or V into slots, from slot `first_slot` on. A slot holds `unit` keys of a KV head: a
 * tile of K, or a row of K or V. Unmaps the slots in which no query row of the KV head sees a key.
 * Returns the address of the first slot, and sets `strides`, in bytes. */
static char *into_slots(const struct call *c, const struct kind *kind, bool is_k, int unit,
                        int first_slot, int64_t strides[3])
{
    const attnkit_attention_args *const a = &c->args;
    const int64_t units = (a->kv_len + unit - 1) / unit, dim = is_k ? DIM : VALUES;
    const int count = (int)(a->batch * a->kv_heads * units);
    char *const slots = memory_slots(first_slot, count);
    for (int slot = 0; slot < count; slot++) {
        const int64_t row = slot / units, first = slot % units * unit;
        float *const to = (float *)(void *)(slots + (int64_t)slot * SLOT_STRIDE);
        const float *const from = (is_k ? c->k : c->v) + (row * a->kv_len + first) * dim;
        for (int64_t i = 0; i < unit && first + i < a->kv_len; i++)
            for (int64_t d = 0; d < dim; d++)
                to[unit == 1 ? d : d * unit + i] = from[i * dim + d];
        if (!any_sees(c, kind, row / a->kv_heads, row % a->kv_heads, first, unit))
            memory_hide_slots(first_slot + slot, 1);
    }
    strides[2] = SLOT_STRIDE;
    strides[1] = strides[2] * units;
    strides[0] = strides[1] * a->kv_heads;
    return slots;
}

static void check_unmapped(const struct kind *kind, int64_t rows, bool tiled, const char *isa)
{
    struct call *const clean = new_call(kind, rows), *const c = call_like(clean);
    const int unit = tiled ? ATTNKIT_TILE_KEYS : 1;
    c->args.k.layout |= tiled ? ATTNKIT_TILED : 0;
    c->args.k.data = into_slots(c, kind, true, unit, 0, c->args.k.strides);
    c->args.v.data = into_slots(c, kind, false, 1, 2 * 2 * KEYS, c->args.v.strides);
    call_run(clean, isa);
    call_run(c, isa);
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        check_row(clean, c, at, kind->name);
    call_free(c);
    call_free(clean);
}

static void keys_that_no_row_sees_may_be_unmapped(void **state)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < ROW_COUNTS; n++)
            for (int tiled = 0; tiled < 2; tiled++)
                check_unmapped(&kinds[k], row_counts[n], tiled, *state);
    memory_end();
}

/* Stores K or V as bytes with scales. In `clean` the rows are dense. In `c` each row lies in a
 * slot, and the slots of keys that no query row of the KV head sees are unmapped. */
static void set_bytes(struct call *clean, struct call *c, const struct kind *kind, bool is_k)
{
    const int dim = is_k ? DIM : VALUES, group = is_k ? 3 : 1, count = 2 * 2 * KEYS;
    signed char *const bytes = call_memory(clean, (size_t)(count * dim));
    float *const scales = call_memory(clean, (size_t)(count * dim / group) * sizeof *scales);
    for (int i = 0; i < count * dim; i++)
        bytes[i] = (signed char)(127.0f * (is_k ? clean->k : clean->v)[i] / 2.0f);
    for (int i = 0; i < count * dim / group; i++)
        scales[i] = (float)(1 + i % 7) / 300.0f;
    char *const slots = memory_slots(is_k ? 0 : count, count);
    for (int i = 0; i < count; i++) {
        const int64_t row = i / KEYS;
        memcpy(slots + (int64_t)i * SLOT_STRIDE, bytes + i * dim, (size_t)dim);
        if (!any_sees(c, kind, row / 2, row % 2, i % KEYS, 1))
            memory_hide_slots((is_k ? 0 : count) + i, 1);
    }
    struct call *const calls[2] = {clean, c};
    for (int i = 0; i < 2; i++) {
        attnkit_attention_args *const a = &calls[i]->args;
        attnkit_kv_storage *const storage = &calls[i]->groups.storage;
        attnkit_tensor *const rows = is_k ? &a->k : &a->v;
        attnkit_tensor *const row_scales = is_k ? &storage->k_scales : &storage->v_scales;
        rows->data = i == 0 ? (const void *)bytes : slots;
        rows->type = ATTNKIT_I8;
        row_scales->data = scales;
        *(is_k ? &storage->k_scale_group : &storage->v_scale_group) = group;
        rows->strides[2] = i == 0 ? dim : SLOT_STRIDE;
        row_scales->strides[2] = dim / group * 4;
        for (int64_t step = 0; step < 2; step++) {
            rows->strides[1 - step] = rows->strides[2 - step] * (step ? 2 : KEYS);
            row_scales->strides[1 - step] = row_scales->strides[2 - step] * (step ? 2 : KEYS);
        }
    }
}

/* No tile can read scales of groups of 3 elements or of 1 element, so the library first widens the
 * rows to floats. */
static void rows_of_bytes_that_no_row_sees_may_be_unmapped(void **state)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < ROW_COUNTS; n++) {
            struct call *const clean = new_call(&kinds[k], row_counts[n]);
            struct call *const c = call_like(clean);
            set_bytes(clean, c, &kinds[k], true);
            set_bytes(clean, c, &kinds[k], false);
            call_run(clean, *state);
            call_run(c, *state);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
                check_row(clean, c, at, kinds[k].name);
            call_free(c);
            call_free(clean);
        }
    memory_end();
}

/* A slot holds the keys of one page and one KV head. A slot with a key that some row of this head
 * sees is mapped as a whole. All other slots are unmapped. */
static void pages_that_no_row_sees_may_be_unmapped(void **state)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < ROW_COUNTS; n++) {
            enum { PAGE = 5, PAGES = KEYS / PAGE };
            int32_t table[2 * PAGES];
            struct call *const clean = new_call(&kinds[k], row_counts[n]);
            struct call *const c = call_like(clean);
            char *const slots = memory_slots(0, 2 * 2 * PAGES);
            c->groups.pages.block_table = table;
            c->groups.pages.block_table_stride = PAGES;
            c->groups.pages.page_size = PAGE;
            c->groups.pages.pages = 2 * PAGES;
            c->args.k.data = slots;
            c->args.v.data = slots + SLOT_BYTES / 2;
            for (int i = 0; i < 2; i++) {
                int64_t *const strides = i == 0 ? c->args.k.strides : c->args.v.strides;
                strides[2] = 4 * (i == 0 ? DIM : VALUES);
                strides[1] = SLOT_STRIDE;
                strides[0] = 2 * SLOT_STRIDE;
            }
            for (int i = 0; i < 2 * 2 * PAGES; i++) {
                const int64_t b = i / (2 * PAGES), page = i / 2 % PAGES, head = i % 2;
                const struct at at = {.b = b, .h = head * c->args.q_heads / 2, .j = page * PAGE};
                char *const slot = slots + (int64_t)i * SLOT_STRIDE;
                table[i / 2] = i / 2;
                memcpy(slot, call_k(clean, at), PAGE * DIM * sizeof(float));
                memcpy(slot + SLOT_BYTES / 2, call_v(clean, at), PAGE * VALUES * sizeof(float));
                if (!any_sees(c, &kinds[k], b, head, at.j, PAGE))
                    memory_hide_slots(i, 1);
            }
            call_run(clean, *state);
            call_run(c, *state);
            for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
                check_row(clean, c, at, kinds[k].name);
            call_free(c);
            call_free(clean);
        }
    memory_end();
}

/* Copies the bytes of a tensor to memory that ends at an unmapped page. Returns the copy, or NULL
 * if `tensor` is NULL. */
static const void *at_a_guard(struct guarded *memory, const void *tensor, int64_t bytes)
{
    *memory = memory_guarded(tensor ? (size_t)bytes : 0, 0, true);
    return tensor ? memcpy(memory->data, tensor, (size_t)bytes) : NULL;
}

static void nothing_is_read_after_the_last_row_of_a_mask(void **state)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < ROW_COUNTS; n++) {
            enum { MASKS = 6 };
            struct guarded memory[MASKS];
            struct call *const clean = new_call(&kinds[k], row_counts[n]);
            struct call *const c = call_like(clean);
            attnkit_visibility *const see = &c->groups.visibility;
            attnkit_tensor *const bias = &c->groups.scores.bias;
            see->mask.data = at_a_guard(&memory[0], see->mask.data, 2 * see->mask.strides[0]);
            see->mask_bits.data =
                at_a_guard(&memory[1], see->mask_bits.data, 2 * see->mask_bits.strides[0]);
            bias->data = at_a_guard(&memory[2], bias->data, 2 * bias->strides[0]);
            see->q_segment_ids = at_a_guard(&memory[3], see->q_segment_ids, 2 * c->args.q_len * 4);
            see->kv_segment_ids = at_a_guard(&memory[4], see->kv_segment_ids, 2 * KEYS * 4);
            see->kv_lens.data = at_a_guard(&memory[5], see->kv_lens.data, 2 * 8);
            call_run(clean, *state);
            call_run(c, *state);
            assert_true(call_same(clean, c));
            for (int i = 0; i < MASKS; i++)
                memory_unguard(&memory[i]);
            call_free(c);
            call_free(clean);
        }
}

/* --- NaN in keys that a row sees -------------------------------------------------------------- */

static void nan_in_a_k_makes_those_rows_nan_that_see_it(void **state)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < ROW_COUNTS; n++) {
            struct call *const clean = new_call(&kinds[k], row_counts[n]);
            for (int64_t key = 3; key < KEYS; key += 53) {
                struct call *const c = copy_of(clean);
                for (int64_t head = 0; head < c->args.q_heads; head++)
                    call_k(c, (struct at){.b = 1, .h = head, .j = key})[key % DIM] = NAN;
                call_run(c, *state);
                for (struct at at = {.j = key}; call_has(c, at);
                     at = call_next(c, at), at.j = key) {
                    const bool sees = at.b == 1 && kinds[k].sees(c, at);
                    bool all = isnan(*call_lse(c, at)), any = all;
                    for (int column = 0; column < VALUES; column++) {
                        all &= isnan(call_out(c, at)[column]) != 0;
                        any |= isnan(call_out(c, at)[column]) != 0;
                    }
                    assert_int_equal(all, sees);
                    assert_int_equal(any, sees);
                }
                call_free(c);
            }
            call_free(clean);
        }
}

static void nan_in_a_v_makes_its_column_nan_in_the_rows_that_see_it(void **state)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 0; n < ROW_COUNTS; n++) {
            struct call *const clean = new_call(&kinds[k], row_counts[n]);
            for (int64_t key = 3; key < KEYS; key += 53) {
                struct call *const c = copy_of(clean);
                for (int64_t head = 0; head < c->args.q_heads; head++)
                    call_v(c, (struct at){.b = 1, .h = head, .j = key})[key % VALUES] = NAN;
                call_run(c, *state);
                for (struct at at = {.j = key}; call_has(c, at);
                     at = call_next(c, at), at.j = key) {
                    const bool sees = at.b == 1 && kinds[k].sees(c, at);
                    assert_false(isnan(*call_lse(c, at)));
                    for (int column = 0; column < VALUES; column++)
                        assert_int_equal(isnan(call_out(c, at)[column]) != 0,
                                         sees && column == key % VALUES);
                }
                call_free(c);
            }
            call_free(clean);
        }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(what_a_masked_key_holds_changes_no_bit),
        cmocka_unit_test(keys_that_no_row_sees_may_be_unmapped),
        cmocka_unit_test(rows_of_bytes_that_no_row_sees_may_be_unmapped),
        cmocka_unit_test(pages_that_no_row_sees_may_be_unmapped),
        cmocka_unit_test(nothing_is_read_after_the_last_row_of_a_mask),
        cmocka_unit_test(nan_in_a_k_makes_those_rows_nan_that_see_it),
        cmocka_unit_test(nan_in_a_v_makes_its_column_nan_in_the_rows_that_see_it),
    };
    return promises_main("absent", promises, sizeof promises / sizeof promises[0], argc, argv);
}
