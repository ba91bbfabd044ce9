/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the units that multiply pairs of bf16, even a unit that is too slow on this CPU to be
 * chosen. The words into which a unit packs rows and matrices are compared with the definition of a
 * pair. Whole calls are compared with the scalar reference. The elements that the calls multiply
 * lie on both sides of the limit of keep_bits_as_pairs. The tests count how often a call multiplied
 * pairs. Before the library uses a unit, it tries the unit with the pair probes of
 * dispatch/cpu/probe.h. The tests check that these probes tell wrong sums from right sums.
 *
 *   pairs [UNIT]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "dispatch/cpu/probe.h"
#include "tests/cases/case.h"
#include "tests/support/linear_call.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/units/models.h"

enum {
    LONGEST_ROW = 150,
    PATTERN_WORD = 0x5a5a5a5a,
    LEAST_SUM = 142, /* the least sum of two exponent fields that keep_bits_as_pairs accepts */
    MAX_UNITS = 8,
};

static const struct kernels *tested; /* the kernels with the unit that is tested */

/* --- Words -------------------------------------------------------------------------------------
 */

static uint32_t word_of(uint16_t high, uint16_t low)
{
    return (uint32_t)high << 16 | low;
}

static uint32_t lower_magnitude(uint32_t least, uint16_t x)
{
    const uint32_t magnitude = x & 0x7fff;
    return magnitude > 0 && magnitude < least ? magnitude : least;
}

/* Draws any bf16 or, half of the time, one of ten special values: zeros, the smallest and largest
 * subnormal numbers, the smallest normal number, infinity and NaNs. */
static uint16_t draw_any(uint64_t *random)
{
    static const uint16_t few[] = {0,    0x8000, 1,      0x8001, 0x7f,
                                   0x80, 0x8080, 0x7f80, 0x7fc1, 0xffff};
    const uint64_t bits = random_bits(random);
    return bits & 1 << 20 ? few[bits % 10] : (uint16_t)bits;
}

static void check_row(int64_t n, bool zeros, uint64_t *random)
{
    struct guarded row = memory_guarded((size_t)n * sizeof(uint16_t), 0, true);
    uint16_t x[LONGEST_ROW + 1] = {0};
    uint32_t words[LONGEST_ROW], least = NO_MAGNITUDE;
    for (int64_t i = 0; i < n; i++) {
        x[i] = zeros ? (uint16_t)(random_bits(random) << 15) : draw_any(random);
        least = lower_magnitude(least, x[i]);
    }
    memcpy(row.data, x, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < LONGEST_ROW; i++)
        words[i] = PATTERN_WORD;
    assert_int_equal(tested->pairs->pair(row.data, n, words), least);
    for (int64_t i = 0; i < words_of_pairs(n); i++)
        assert_int_equal(words[i], word_of(x[2 * i], x[2 * i + 1]));
    for (int64_t i = words_of_pairs(n); i < LONGEST_ROW; i++)
        assert_int_equal(words[i], PATTERN_WORD);
    memory_unguard(&row);
}

static void rows_become_words(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int64_t n = 1; n <= LONGEST_ROW; n++)
        for (int i = 0; i < 4; i++)
            check_row(n, i == 0, &random);
}

static void check_matrix(int64_t n, uint64_t *random)
{
    struct guarded tile = memory_guarded((size_t)(n * TILE_KEYS) * sizeof(uint16_t), 0, true);
    static uint16_t x[LONGEST_ROW + 1][TILE_KEYS];
    static uint32_t words[LONGEST_ROW][TILE_KEYS];
    uint32_t least = NO_MAGNITUDE;
    memset(x, 0, sizeof x);
    for (int64_t d = 0; d < n; d++)
        for (int o = 0; o < TILE_KEYS; o++) {
            x[d][o] = draw_any(random);
            least = lower_magnitude(least, x[d][o]);
        }
    memcpy(tile.data, x, (size_t)(n * TILE_KEYS) * sizeof(uint16_t));
    assert_int_equal(tested->pairs->pair_matrix(tile.data, n, words[0]), least);
    for (int64_t i = 0; i < words_of_pairs(n); i++)
        for (int o = 0; o < TILE_KEYS; o++)
            assert_int_equal(words[i][o], word_of(x[2 * i][o], x[2 * i + 1][o]));
    memory_unguard(&tile);
}

static void tiles_of_a_matrix_become_words(void **state)
{
    (void)state;
    uint64_t random = 2;
    for (int64_t n = 1; n <= LONGEST_ROW; n++)
        check_matrix(n, &random);
}

static void words_are_split_into_elements(void **state)
{
    (void)state;
    enum { LANES = 5, MOST = 9 };
    uint64_t random = 3;
    for (int n = 1; n <= MOST; n++) {
        uint32_t words[MOST + 1][LANES], split[MOST + 1][LANES];
        float x[MOST + 1][LANES];
        for (int i = 0; i <= MOST; i++)
            for (int lane = 0; lane < LANES; lane++)
                words[i][lane] = (uint32_t)random_bits(&random);
        memcpy(x, words, sizeof words);
        split_pairs(x[0], n, LANES);
        memcpy(split, x, sizeof split);
        for (int lane = 0; lane < LANES; lane++) {
            for (int d = 0; d < n; d++)
                assert_int_equal(split[d][lane], d % 2 ? words[d / 2][lane] << 16
                                                       : words[d / 2][lane] & 0xffff0000);
            assert_int_equal(split[n][lane], words[n][lane]);
        }
    }
}

/* --- Probes ------------------------------------------------------------------------------------
 */

static void probes_have_the_sums_of_the_model(void **state)
{
    (void)state;
    for (int i = 0; i < PAIR_PROBES; i++) {
        const struct pair_probe *const p = &attnkit_pair_probes[i];
        /* model_vdpbf16ps multiplies the high halves of the words first. The high half of a word
         * holds the first element of a pair. */
        assert_int_equal(model_vdpbf16ps(p->before, p->x, p->w), p->after);
    }
}

static void a_wrong_sum(float *sum, const float *x, const float *w)
{
    tested->pairs->add(sum, x, w);
    sum[MAX_VECTOR - 1] += 1.0f;
}

/* Multiplies the low halves first. */
static void in_the_wrong_order(float *sum, const float *x, const float *w)
{
    uint32_t swapped_x[MAX_VECTOR], swapped_w[MAX_VECTOR];
    memcpy(swapped_x, x, sizeof swapped_x);
    memcpy(swapped_w, w, sizeof swapped_w);
    for (int i = 0; i < MAX_VECTOR; i++) {
        swapped_x[i] = swapped_x[i] << 16 | swapped_x[i] >> 16;
        swapped_w[i] = swapped_w[i] << 16 | swapped_w[i] >> 16;
    }
    tested->pairs->add(sum, (const float *)(const void *)swapped_x,
                       (const float *)(const void *)swapped_w);
}

/* Adds both products to the sum with a single rounding to binary32. */
static void with_one_rounding(float *sum, const float *x, const float *w)
{
    for (int i = 0; i < MAX_VECTOR; i++) {
        uint32_t a, b;
        memcpy(&a, &x[i], sizeof a);
        memcpy(&b, &w[i], sizeof b);
        const uint32_t halves[4] = {a & 0xffff0000, a << 16, b & 0xffff0000, b << 16};
        float f[4];
        memcpy(f, halves, sizeof f);
        sum[i] =
            (float)((double)sum[i] + ((double)f[0] * (double)f[2] + (double)f[1] * (double)f[3]));
    }
}

/* Rounds each product before it is added. This changes the sum only if the product overflows or
 * underflows in binary32. */
static void not_fused(float *sum, const float *x, const float *w)
{
    for (int i = 0; i < MAX_VECTOR; i++) {
        uint32_t a, b;
        memcpy(&a, &x[i], sizeof a);
        memcpy(&b, &w[i], sizeof b);
        const uint32_t halves[4] = {a & 0xffff0000, b & 0xffff0000, a << 16, b << 16};
        float f[4];
        memcpy(f, halves, sizeof f);
        for (int j = 0; j < 4; j += 2) {
            const float product = f[j] * f[j + 1];
            sum[i] += product;
        }
    }
}

static void twice(float *sum, const float *x, const float *w)
{
    tested->pairs->add_one(sum, x, w);
    tested->pairs->add_one(sum, x, w);
}

static void probes_tell_right_from_wrong(void **state)
{
    (void)state;
    void (*const wrong[])(float *, const float *, const float *) = {a_wrong_sum, in_the_wrong_order,
                                                                    with_one_rounding, not_fused};
    struct pair_kernels pairs = *tested->pairs;
    assert_true(attnkit_pairs_keep_bits(&pairs));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pairs.add = wrong[i];
        assert_false(attnkit_pairs_keep_bits(&pairs));
    }
    pairs = *tested->pairs;
    pairs.add_one = twice;
    assert_false(attnkit_pairs_keep_bits(&pairs));
}

/* --- Counting ----------------------------------------------------------------------------------
 */

/* A copy of the tested kernels. Its `scores` and `product` count their calls: in_pairs counts the
 * calls of tiles for pairs, and as_elements counts the calls of tiles for single elements.
 * tiles_made counts the tiles of a matrix that have become words. */
static struct kernels counting;
static struct pair_kernels counting_pairs;
static int in_pairs, as_elements, tiles_made;

static void count_scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                         const struct rows *ahead)
{
    as_elements++;
    tested->scores(q_t, lanes, k, keys, s, ahead);
}

static void count_pair_scores(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                              const struct rows *ahead)
{
    in_pairs++;
    tested->pairs->scores(q_t, lanes, k, keys, s, ahead);
}

static void count_product(const struct product *part)
{
    as_elements++;
    tested->product(part);
}

static void count_pair_product(const struct product *part)
{
    in_pairs++;
    tested->pairs->product(part);
}

static uint32_t count_pair_matrix(const void *tile, int64_t n, uint32_t *words)
{
    tiles_made++;
    return tested->pairs->pair_matrix(tile, n, words);
}

static void begin_counting(void)
{
    counting = *tested;
    counting_pairs = *tested->pairs;
    counting.scores = count_scores;
    counting.product = count_product;
    counting_pairs.scores = count_pair_scores;
    counting_pairs.product = count_pair_product;
    counting_pairs.pair_matrix = count_pair_matrix;
    counting.pairs = &counting_pairs;
    in_pairs = as_elements = tiles_made = 0;
}

/* --- Numbers near the limit --------------------------------------------------------------------
 */

/* Draws a bf16 whose exponent field is `least` or up to 12 more, or now and then a zero. */
static uint16_t draw_from(uint64_t *random, int least)
{
    const uint64_t bits = random_bits(random);
    const uint16_t sign = (uint16_t)(bits >> 63 << 15);
    if (bits % 16 == 0)
        return sign;
    return (uint16_t)(sign | (least + (int)(bits >> 8 & 0xfff) % 13) << 7 | (bits >> 40 & 0x7f));
}

/* The smallest exponent fields in the two factors of a product, apart from zeros. If `has_small`,
 * one element of the second factor, at a drawn place, is an exception and is smaller. If first +
 * second is LEAST_SUM and second is more than 1, the exponent field of this element is second - 1.
 * Otherwise this element is subnormal. */
struct fields {
    int first, second;
    bool has_small;
};

static const struct fields drawn_fields[] = {{71, 71, false},  {71, 71, true},    {1, 141, false},
                                             {1, 141, true},   {141, 1, false},   {141, 1, true},
                                             {100, 60, false}, {100, 60, true},   {71, 70, false},
                                             {60, 60, false},  {230, 230, false}, {127, 127, true}};

/* Fills n numbers. One of them, at a drawn place, is the smallest number whose exponent field is
 * `least`. No number other than 0 has a smaller exponent field. So the smallest exponent fields of
 * two factors that are filled like this sum up to exactly first + second of struct fields. */
static void fill(uint16_t *x, int64_t n, int least, uint64_t *random)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = draw_from(random, least);
    x[random_below(random, n)] = (uint16_t)(least << 7);
}

static uint16_t small_number(struct fields f)
{
    return f.first + f.second == LEAST_SUM && f.second > 1 ? (uint16_t)((f.second - 1) << 7 | 0x7f)
                                                           : 1;
}

static bool is_in_range(struct fields f)
{
    return f.first + f.second >= LEAST_SUM;
}

/* --- Linear maps -------------------------------------------------------------------------------
 */

static void fill_tensor(const struct tensor *t, int64_t n, int least, uint64_t *random)
{
    for (int64_t i = 0; i < t->count[2]; i++)
        fill((uint16_t *)(void *)tensor_row(t, 0, 0, i), n, least, random);
}

/* Returns 1 if the call multiplies pairs, otherwise 0. */
static int check_linear(struct linear_shape shape, struct fields f, bool y_is_bf16, uint64_t seed)
{
    const struct linear_kind kind = {.x_type = ATTNKIT_BF16,
                                     .w_type = ATTNKIT_BF16,
                                     .packed_type = ATTNKIT_BF16,
                                     .y_type = y_is_bf16 ? ATTNKIT_BF16 : ATTNKIT_F32,
                                     .bias = seed % 2,
                                     .layout = seed % 3 ? DENSE : PADDED};
    struct linear_call *const c = linear_call_new(&kind, shape, seed);
    fill_tensor(&c->x, shape.in_dim, f.first, &seed);
    fill_tensor(&c->w, shape.in_dim, f.second, &seed);
    if (f.has_small) {
        uint16_t *const row =
            (uint16_t *)(void *)tensor_row(&c->w, 0, 0, random_below(&seed, shape.out_dim));
        row[random_below(&seed, shape.in_dim)] = small_number(f);
    }
    begin_counting();
    const char *const wrong =
        linear_call_check(c, (struct runner){.kernels = &counting, .threads = 1});
    if (wrong)
        fail_msg("rows %d in_dim %d out_dim %d, fields %d and %d, small %d: %s", (int)shape.rows,
                 (int)shape.in_dim, (int)shape.out_dim, f.first, f.second, f.has_small, wrong);
    linear_call_free(c);
    if (is_in_range(f) && !f.has_small)
        assert_int_equal(as_elements, 0);
    if (!is_in_range(f))
        assert_int_equal(in_pairs, 0);
    if (f.has_small)
        assert_true(as_elements > 0);
    return in_pairs > 0;
}

static void linear_maps_have_the_bits_of_the_reference(void **state)
{
    (void)state;
    static const struct linear_shape shapes[] = {
        {17, 1, 1},   {24, 2, 16},   {33, 3, 47},    {18, 31, 48},   {257, 64, 49}, {20, 65, 100},
        {19, 511, 5}, {25, 512, 33}, {17, 513, 112}, {40, 1025, 50}, {23, 1100, 97}};
    int with_pairs = 0, cases = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t f = 0; f < sizeof drawn_fields / sizeof *drawn_fields; f++, cases++)
            with_pairs += check_linear(shapes[s], drawn_fields[f], cases % 2, (uint64_t)cases + 7);
    printf("# %s: linear maps: %d cases, %d with pairs\n", tested->name, cases, with_pairs);
    assert_in_range(with_pairs, cases / 3, cases - 1);
}

/* One of three cuts has a number that is too small for pairs. Sums over this cut may be subnormal,
 * so neither this cut nor a later cut takes pairs. */
static void pairs_end_with_the_first_cut_out_of_range(void **state)
{
    (void)state;
    enum { CUT = 512, ROWS = 17, CUTS = 3 };
    const struct linear_kind kind = {
        .x_type = ATTNKIT_BF16, .w_type = ATTNKIT_BF16, .packed_type = ATTNKIT_BF16};
    for (int bad = 0; bad < CUTS; bad++) {
        uint64_t seed = 5;
        struct linear_call *const c =
            linear_call_new(&kind, (struct linear_shape){ROWS, CUTS * CUT, 16}, seed);
        fill_tensor(&c->x, CUTS * CUT, 71, &seed);
        fill_tensor(&c->w, CUTS * CUT, 71, &seed);
        ((uint16_t *)(void *)tensor_row(&c->w, 0, 0, 3))[bad * CUT + 7] = 1;
        begin_counting();
        assert_null(linear_call_check(c, (struct runner){.kernels = &counting, .threads = 1}));
        linear_call_free(c);
        assert_int_equal(in_pairs, bad);
        assert_true(as_elements > 0);
    }
}

/* If a block of rows of x has a number out of range, only tiles of the first panel of the matrix
 * become words in vain. Each product then takes all rows of the block, as without a unit. */
static void a_block_out_of_range_costs_little(void **state)
{
    (void)state;
    enum { CUT = 512, ROWS = 33, CUTS = 3, PANELS = 4, PANEL_TILES = 3 };
    const struct linear_kind kind = {
        .x_type = ATTNKIT_BF16, .w_type = ATTNKIT_BF16, .packed_type = ATTNKIT_BF16};
    const struct linear_shape shape = {ROWS, CUTS * CUT, PANELS * PANEL_TILES * TILE_KEYS};
    uint64_t seed = 6;
    struct linear_call *const c = linear_call_new(&kind, shape, seed);
    fill_tensor(&c->x, shape.in_dim, 120, &seed);
    fill_tensor(&c->w, shape.in_dim, 120, &seed);
    ((uint16_t *)(void *)tensor_row(&c->x, 0, 0, 20))[700] = 1;
    begin_counting();
    assert_null(linear_call_check(c, (struct runner){.kernels = &counting, .threads = 1}));
    linear_call_free(c);
    assert_int_equal(in_pairs, 0);
    assert_int_equal(tiles_made, PANEL_TILES);
    assert_int_equal(as_elements, PANELS * CUTS);
}

/* --- Attention ---------------------------------------------------------------------------------
 */

struct attention_shape {
    int64_t heads, q_len, kv_len, head_dim;
    bool causal;
};

/* Returns whether the call multiplies pairs. */
static bool check_attention(struct attention_shape s, struct fields f, uint64_t seed)
{
    enum { VALUE_DIM = 24, KV_HEADS = 2 };
    const size_t rows_q = (size_t)(s.heads * s.q_len), rows_k = (size_t)(KV_HEADS * s.kv_len);
    uint16_t *const q = malloc(rows_q * (size_t)s.head_dim * sizeof *q);
    uint16_t *const k = malloc(rows_k * (size_t)s.head_dim * sizeof *k);
    uint16_t *const v = malloc(rows_k * VALUE_DIM * sizeof *v);
    float *const out = malloc(rows_q * VALUE_DIM * sizeof *out);
    fill(q, (int64_t)rows_q * s.head_dim, f.first, &seed);
    fill(k, (int64_t)rows_k * s.head_dim, f.second, &seed);
    fill(v, (int64_t)rows_k * VALUE_DIM, 120, &seed);
    if (f.has_small)
        k[random_below(&seed, (int64_t)rows_k * s.head_dim)] = small_number(f);
    const attnkit_attention_args args = {.size = sizeof args,
                                         .flags = s.causal ? ATTNKIT_CAUSAL : 0,
                                         .align = s.causal ? ATTNKIT_ALIGN_BOTTOM_RIGHT : 0,
                                         .batch = 1,
                                         .q_heads = s.heads,
                                         .kv_heads = KV_HEADS,
                                         .q_len = s.q_len,
                                         .kv_len = s.kv_len,
                                         .head_dim = s.head_dim,
                                         .value_dim = VALUE_DIM,
                                         .q = {.data = q, .type = ATTNKIT_BF16},
                                         .k = {.data = k, .type = ATTNKIT_BF16},
                                         .v = {.data = v, .type = ATTNKIT_BF16},
                                         .out = {.data = out}};
    struct result expected = result_new(&args);
    result_from_reference(&expected, &args);
    begin_counting();
    run_attention(&args, (struct runner){.kernels = &counting, .threads = 1});
    if (!same_bits(out, expected.out, rows_q * VALUE_DIM))
        fail_msg("heads %d q_len %d kv_len %d head_dim %d, fields %d and %d, small %d: out differs",
                 (int)s.heads, (int)s.q_len, (int)s.kv_len, (int)s.head_dim, f.first, f.second,
                 f.has_small);
    result_free(&expected);
    free(q);
    free(k);
    free(v);
    free(out);
    if (is_in_range(f) && !f.has_small)
        assert_int_equal(as_elements, 0);
    if (!is_in_range(f))
        assert_int_equal(in_pairs, 0);
    return in_pairs > 0;
}

static void prefill_has_the_bits_of_the_reference(void **state)
{
    (void)state;
    static const struct attention_shape shapes[] = {
        {2, 33, 40, 1, false},   {4, 70, 300, 2, true},   {2, 64, 128, 3, false},
        {4, 48, 600, 31, true},  {2, 130, 129, 64, true}, {8, 40, 513, 65, false},
        {2, 67, 700, 128, true}, {6, 21, 257, 80, false}};
    int with_pairs = 0, cases = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t f = 0; f < sizeof drawn_fields / sizeof *drawn_fields; f++, cases++)
            with_pairs += check_attention(shapes[s], drawn_fields[f], (uint64_t)cases + 11);
    printf("# %s: prefill: %d cases, %d with pairs\n", tested->name, cases, with_pairs);
    assert_in_range(with_pairs, cases / 3, cases - 1);
}

/* -----------------------------------------------------------------------------------------------
 */

static int choose(void **state)
{
    const struct unit *const unit = *state;
    tested = unit->kernels;
    return 0;
}

static size_t add_tests(struct CMUnitTest *tests, const struct unit *unit)
{
    static const struct CMUnitTest all[] = {
        cmocka_unit_test_setup(probes_have_the_sums_of_the_model, choose),
        cmocka_unit_test_setup(probes_tell_right_from_wrong, choose),
        cmocka_unit_test_setup(rows_become_words, choose),
        cmocka_unit_test_setup(tiles_of_a_matrix_become_words, choose),
        cmocka_unit_test_setup(words_are_split_into_elements, choose),
        cmocka_unit_test_setup(linear_maps_have_the_bits_of_the_reference, choose),
        cmocka_unit_test_setup(pairs_end_with_the_first_cut_out_of_range, choose),
        cmocka_unit_test_setup(a_block_out_of_range_costs_little, choose),
        cmocka_unit_test_setup(prefill_has_the_bits_of_the_reference, choose),
    };
    const size_t count = sizeof all / sizeof *all;
    for (size_t i = 0; i < count; i++) {
        tests[i] = all[i];
        tests[i].initial_state = (void *)(uintptr_t)unit;
    }
    return count;
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[MAX_UNITS * 9];
    const struct unit *units;
    const int unit_count = attnkit_units(&units);
    size_t count = 0;
    for (int i = 0; i < unit_count; i++)
        if (attnkit_unit_can_run(&units[i]) && units[i].kernels->pairs &&
            (argc < 2 || strcmp(argv[1], units[i].name) == 0))
            count += add_tests(tests + count, &units[i]);
    if (count == 0) {
        puts(argc < 2 ? "1..0 # SKIP no unit for pairs of bf16 can run here"
                      : "1..0 # SKIP the named unit has no pairs of bf16, or cannot run here");
        return 0;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("pairs", tests, count, NULL, NULL);
    memory_end();
    return failed;
}
