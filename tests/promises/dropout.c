/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests which weights dropout drops, that dropout changes neither lse nor the returned weights, and
 * that a NaN in a dropped V is not lost. The tests run on every instruction set, or on the
 * instruction set that the first argument names. They compare with the Philox4x32-10 of
 * tests/support. In most tests every score is 0 and V is the unit matrix. In these tests the result
 * of a row that sees n keys is 1 / (1 - rate) / n in the column of each key that is kept, and 0 in
 * all other columns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/call.h"
#include "tests/cases/kinds.h"
#include "tests/support/philox.h"

enum { KEYS = 150, ROW_COUNTS = 3 };

/* One row and three rows, for decode, and many rows, for prefill. */
static const int64_t row_counts[ROW_COUNTS] = {1, 3, 70};

static const uint64_t seeds[] = {UINT64_C(0x0123456789abcdef), 0, UINT64_MAX};

/* --- Philox ----------------------------------------------------------------------------------- */

/* The words are published in the file kat_vectors of Random123. */
static void philox_gives_the_published_words(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         {UINT32_MAX, UINT32_MAX},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        uint32_t words[4];
        philox4x32_10(known[i].counter, known[i].key[0], known[i].key[1], words);
        assert_memory_equal(words, known[i].words, sizeof words);
    }
}

/* Returns the random word of a key. `key` is the key's index in the whole sequence. */
static uint32_t random_word(uint64_t seed, int64_t head, int64_t position, int64_t key)
{
    const uint64_t four = (uint64_t)key / 4, at = (uint64_t)position;
    const uint32_t counter[4] = {(uint32_t)four, (uint32_t)at, (uint32_t)head,
                                 (uint32_t)(four >> 32 & 0xffff) | (uint32_t)(at >> 32 & 0xffff)
                                                                       << 16};
    uint32_t words[4];
    philox4x32_10(counter, (uint32_t)seed, (uint32_t)(seed >> 32), words);
    return words[key % 4];
}

static bool is_dropped(double rate, uint32_t word)
{
    return (double)word < rate * 0x1p32;
}

/* --- The calls -------------------------------------------------------------------------------- */

static struct call *new_call(struct shape shape, double rate)
{
    shape.head_dim = 1;
    shape.value_dim = shape.kv_len;
    struct call *const c = call_new(shape);
    const attnkit_attention_args *const a = &c->args;
    memset(c->q, 0, (size_t)(a->batch * a->q_heads * a->q_len) * sizeof(float));
    for (int64_t row = 0; row < a->batch * a->kv_heads * a->kv_len; row++)
        for (int64_t column = 0; column < a->kv_len; column++)
            c->v[row * a->kv_len + column] = column == row % a->kv_len ? 1.0f : 0.0f;
    call_set_positions(c);
    c->groups.scores.dropout = rate;
    c->groups.scores.dropout_seeds = seeds;
    return c;
}

/* Checks in every row that exactly the keys whose random_word is below the rate times 2^32 are
 * dropped. Returns how many keys all rows together keep. */
static int64_t check(const struct call *c)
{
    const attnkit_attention_args *const a = &c->args;
    const attnkit_score_mods *const scores = &c->groups.scores;
    const float kept = (float)(1.0 / (1.0 - scores->dropout)) / (float)a->kv_len;
    int64_t count = 0;
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        for (int64_t j = 0; j < a->kv_len; j++) {
            const uint32_t word =
                random_word(scores->dropout_seeds[at.b], at.h, ints_at(a->q_offsets, at.b) + at.i,
                            c->groups.states.first_key + j);
            const float expected = is_dropped(scores->dropout, word) ? 0.0f : kept;
            if (call_out(c, at)[j] != expected)
                fail_msg("entry %lld head %lld row %lld key %lld: %g, not %g", (long long)at.b,
                         (long long)at.h, (long long)at.i, (long long)j, (double)call_out(c, at)[j],
                         (double)expected);
            count += expected > 0.0f;
        }
    return count;
}

static struct shape shape_of(int64_t rows)
{
    return (struct shape){.batch = 2, .kv_heads = 2, .group = 2, .q_len = rows, .kv_len = KEYS};
}

static void weights_are_dropped_by_seed_head_position_and_key(void **state)
{
    static const double rates[] = {0.5, 0.1, 0.999};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int rate = 0; rate < 3; rate++) {
            struct call *const c = new_call(shape_of(row_counts[n]), rates[rate]);
            call_run(c, *state);
            check(c);
            call_free(c);
        }
}

/* The positions begin below 0, just below 2^32 or far above 2^32. */
static void all_48_bits_of_a_position_count(void **state)
{
    static const int64_t offsets[] = {-30, (INT64_C(1) << 32) - 1, INT64_C(0x123456789abc),
                                      INT64_C(1) << 50};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int i = 0; i < 3; i++) {
            struct call *const c = new_call(shape_of(row_counts[n]), 0.3);
            c->args.q_offsets = (attnkit_ints){.data = offsets + i};
            call_run(c, *state);
            check(c);
            call_free(c);
        }
}

static void keys_count_from_the_first_of_the_sequence(void **state)
{
    static const int64_t first_keys[] = {512, INT64_C(1) << 40};
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int i = 0; i < 2; i++) {
            struct call *const c = new_call(shape_of(row_counts[n]), 0.3);
            c->groups.states.first_key = first_keys[i];
            call_run(c, *state);
            check(c);
            call_free(c);
        }
}

/* The rate times 2^32 is the word of a key plus 0.5. */
static void word_just_below_the_rate_drops_its_key(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int64_t j = 0; j < KEYS; j += 11) {
            struct call *const c = new_call(shape_of(row_counts[n]), 0.5);
            const uint32_t word = random_word(seeds[0], 0, ints_at(c->args.q_offsets, 0), j);
            c->groups.scores.dropout = ((double)word + 0.5) * 0x1p-32;
            call_run(c, *state);
            assert_true(call_out(c, (struct at){0})[j] == 0.0f);
            check(c);
            call_free(c);
        }
}

static void word_at_the_rate_keeps_its_key(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++)
        for (int64_t j = 0; j < KEYS; j += 11) {
            struct call *const c = new_call(shape_of(row_counts[n]), 0.5);
            const uint32_t word = random_word(seeds[0], 0, ints_at(c->args.q_offsets, 0), j);
            c->groups.scores.dropout = (double)word * 0x1p-32;
            call_run(c, *state);
            assert_true(call_out(c, (struct at){0})[j] > 0.0f);
            check(c);
            call_free(c);
        }
}

/* A word counts as a fraction of 2^32. One word in 2^13 is below 2^-13. Only the word 0 is below
 * 2^-60. */
static void tiny_rate_drops_hardly_any_key(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_call(shape_of(row_counts[n]), 0x1p-60);
        struct call *const d = call_like(c);
        d->groups.scores.dropout = 0.0;
        d->groups.scores.dropout_seeds = NULL;
        call_run(c, *state);
        call_run(d, *state);
        assert_true(call_same(c, d));
        check(c);
        c->groups.scores.dropout = 0x1p-13;
        call_run(c, *state);
        check(c);
        call_free(d);
        call_free(c);
    }
}

static void share_of_kept_weights_is_within_5_sigma(void **state)
{
    static const double rates[] = {0.1, 0.5, 0.9};
    for (int i = 0; i < 3; i++) {
        struct call *const c = new_call(shape_of(200), rates[i]);
        call_run(c, *state);
        const double draws = 2.0 * 4 * 200 * KEYS, p = 1.0 - rates[i];
        const double sigma = sqrt(draws * p * (1.0 - p));
        assert_true(fabs((double)check(c) - draws * p) < 5.0 * sigma);
        call_free(c);
    }
}

/* --- Dropout in calls with masks -------------------------------------------------------------- */

/* Makes a call with random scores, a causal mask, an f32 bias, and more than two chunks of keys. */
static struct call *new_masked_call(int64_t rows)
{
    struct call *const c = call_new((struct shape){.batch = 3,
                                                   .kv_heads = 2,
                                                   .group = 2,
                                                   .q_len = rows,
                                                   .kv_len = 1100,
                                                   .head_dim = 8,
                                                   .value_dim = 5});
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].name, "causal") == 0 || strcmp(kinds[i].name, "f32 bias") == 0)
            kinds[i].set(c);
    c->groups.scores.dropout = 0.25;
    c->groups.scores.dropout_seeds = seeds;
    return c;
}

static void threads_drop_the_same_weights(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_masked_call(row_counts[n]);
        struct call *const d = call_like(c);
        call_run(c, *state);
        for (d->threads = 2; d->threads < 40; d->threads += 13) {
            call_run(d, *state);
            assert_true(call_same(c, d));
        }
        call_free(d);
        call_free(c);
    }
}

static void row_alone_and_in_any_batch_drops_the_same_weights(void **state)
{
    struct call *const c = new_masked_call(40);
    call_run(c, *state);
    for (int64_t b = 0; b < 3; b++)
        for (int64_t i = 0; i < 40; i += 13) {
            struct call *const row = call_rows(c, b, i, 1);
            call_run(row, *state);
            for (struct at at = {0}; call_has(row, at); at = call_next(row, at))
                assert_true(call_same_row(row, at, c, (struct at){.b = b, .h = at.h, .i = i}));
            call_free(row);
        }
    call_free(c);
}

static void dropout_does_not_change_lse_and_weights_out(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_masked_call(row_counts[n]);
        float *const weights = call_set_weights(c, ATTNKIT_WEIGHTS_SOFTMAX);
        struct call *const d = call_like(c);
        const size_t rows = (size_t)(3 * 4 * row_counts[n]);
        d->groups.scores.dropout = 0.0;
        d->groups.scores.dropout_seeds = NULL;
        call_run(c, *state);
        call_run(d, *state);
        assert_memory_equal(weights, d->weights, rows * 1100 * sizeof *weights);
        assert_memory_equal(c->lse, d->lse, rows * sizeof *c->lse);
        assert_false(call_same(c, d));
        call_free(d);
        call_free(c);
    }
}

/* V of one key has a NaN in column 7. About nine rows in ten drop this key. These rows still see
 * the key, so their weight of 0 times the NaN makes column 7 of the result NaN. */
static void nan_in_a_dropped_v_is_not_lost(void **state)
{
    for (int n = 0; n < ROW_COUNTS; n++) {
        struct call *const c = new_call(shape_of(row_counts[n]), 0.9);
        for (int64_t row = 5; row < 2 * 2 * KEYS; row += KEYS)
            c->v[row * KEYS + 7] = NAN;
        call_run(c, *state);
        for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
            for (int64_t j = 0; j < KEYS; j++)
                assert_int_equal(isnan(call_out(c, at)[j]) != 0, j == 7);
        call_free(c);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest promises[] = {
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(weights_are_dropped_by_seed_head_position_and_key),
        cmocka_unit_test(all_48_bits_of_a_position_count),
        cmocka_unit_test(keys_count_from_the_first_of_the_sequence),
        cmocka_unit_test(word_just_below_the_rate_drops_its_key),
        cmocka_unit_test(word_at_the_rate_keeps_its_key),
        cmocka_unit_test(tiny_rate_drops_hardly_any_key),
        cmocka_unit_test(share_of_kept_weights_is_within_5_sigma),
        cmocka_unit_test(threads_drop_the_same_weights),
        cmocka_unit_test(row_alone_and_in_any_batch_drops_the_same_weights),
        cmocka_unit_test(dropout_does_not_change_lse_and_weights_out),
        cmocka_unit_test(nan_in_a_dropped_v_is_not_lost),
    };
    return promises_main("dropout", promises, sizeof promises / sizeof promises[0], argc, argv);
}
