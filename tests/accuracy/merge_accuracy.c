/* SPDX-License-Identifier: Apache-2.0
 *
 * The error of attnkit_merge must be inside the bound that include/attnkit/merge.h states and this
 * comment derives. The parts are random, or attnkit_attention has computed the parts. Merges with a
 * deliberate fault must be outside the bound. Only the instruction set that the library chooses is
 * tested, because tests/promises/merge.c tests that all instruction sets have the same bits.
 *
 * The steps "Merging", "Chunks" and "Result" of kernels/README.md define t, M, l and o. A hat marks
 * a computed value. A rounding to binary32 has a relative error of at most u = 2^-24, a rounding to
 * binary64 of at most 2^-53. There are n parts, none of them absent, with |lse_i| < 2^23. A is as
 * in merge.h.
 *
 * Weights. t^ is off by at most 2^-52 |t|. The difference t - M_i is within [-1, 0], and its
 * rounding to binary32 adds at most u / 2. exp2 is off by 1 ulp of a result in [1/2, 1], at most 2
 * u. So l^_i = l_i (1 + a_i) with |a_i| <= 2 u + ln 2 (u / 2 + 2^-52 |t_i|) < 2.38 u. The error a_i
 * is the same in l and in o. So each part counts 1 + a_i times as much as it should, in the sum and
 * in o. This changes the result by less than 2 * 2.38 u A.
 *
 * Roundings. out_i l^_i and its product with a power of 2 are exact in binary64. In binary64, each
 * of n folds has one rounding in l and one in o, and the quotient has one. The rounding of the
 * result to binary32 adds u. Together with the change by the weights, this is at most
 * (5.76 + (2 n + 1) 2^-29) u A. The factor 6 of the bound also covers products of errors for
 * n <= 1000.
 *
 * Losses. The power of 2 by which a part is multiplied is 0 if M exceeds M_i by at least 101. l_i
 * <= 1, and the part with the largest M_i has l_i >= 1/2. So a weight loses at most 2^-100 of the
 * sum, and all losses change the result by at most n 2^-99 max |out_i|. A subnormal result loses
 * 2^-150, beside which the losses of binary64 are negligible. The losses by subnormal numbers
 * together are at most 2^-149.
 *
 * Logarithm. l^ is off by 2.38 u, by (n - 1) 2^-53, and by u from the rounding to binary32. log l
 * is off by 1 ulp, which is 2 u max(0.7, ln n). Two fused multiply-adds add M ln 2. The inner
 * multiply-add rounds a number below max(0.7, ln n) + 2^-24 |M|. The outer multiply-add rounds the
 * result, by at most u |lse|. M (LN2_HI + LN2_LO) is off by 2^-49 |M|, and |M| < 2^24. The sum of
 * these errors is less than u |lse| + (3 ln n + 7) u.
 *
 * Errors of the parts. If no lse_i is off by more than d, each exp(lse_i) and their sum are off by
 * a factor in [e^-d, e^d]. Then w_i is off by a factor in [e^-2d, e^2d], and the result is off by
 * at most (e^2d - 1) A.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnkit.h"
#include "tests/oracle/oracle.h"
#include "tests/support/random.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

enum { MAX_PARTS = 1000 };

typedef long double real;

static const real U = 0x1p-24L;

/* --- The true merge --------------------------------------------------------------------------- */

/* The parts of one row. */
struct row {
    int64_t parts, dim;
    const float *out, *lse; /* [parts][dim], [parts] */
};

/* Returns the LSE of all parts together, given the LSE of each part. At least one part must not be
 * absent. Sets `weights` to the weights of the parts. */
static real merged_lse(const real *lse, int64_t parts, real *weights)
{
    real top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < parts; i++)
        top = fmaxl(top, lse[i]);
    for (int64_t i = 0; i < parts; i++)
        sum += weights[i] = lse[i] == -INFINITY ? 0 : expl(lse[i] - top);
    for (int64_t i = 0; i < parts; i++)
        weights[i] /= sum;
    return top + logl(sum);
}

/* The true merge of given parts in one column, and the error bound of a computed merge. */
struct truth {
    real value, magnitude, bound; /* magnitude: A */
};

static struct truth true_column(const struct row *row, const real *weights, int64_t column)
{
    struct truth t = {0, 0, 0};
    real largest = 0;
    for (int64_t i = 0; i < row->parts; i++) {
        const real x = weights[i] == 0 ? 0 : row->out[i * row->dim + column];
        t.value += weights[i] * x;
        t.magnitude += weights[i] * fabsl(x);
        largest = fmaxl(largest, fabsl(x));
    }
    t.bound = 6 * U * t.magnitude + row->parts * 0x1p-99L * largest + 0x1p-149L;
    return t;
}

static real true_lse(const struct row *row, real *weights)
{
    real lse[MAX_PARTS];
    for (int64_t i = 0; i < row->parts; i++)
        lse[i] = row->lse[i];
    return merged_lse(lse, row->parts, weights);
}

static real lse_bound(const struct row *row, real lse)
{
    return U * fabsl(lse) + (3 * logl(row->parts) + 7) * U;
}

/* The worst |error| / bound of all comparisons. */
struct worst {
    double out, lse;
};

static double ratio(real error, real bound)
{
    const real r = error == 0 ? 0 : fabsl(error) / bound;
    return isfinite(r) ? (double)r : INFINITY;
}

static struct worst judge(const struct row *row, const float *out, float lse)
{
    real weights[MAX_PARTS];
    const real expected = true_lse(row, weights);
    struct worst w = {0, ratio(lse - expected, lse_bound(row, expected))};
    for (int64_t c = 0; c < row->dim; c++) {
        const struct truth t = true_column(row, weights, c);
        w.out = fmax(w.out, ratio(out[c] - t.value, t.bound));
    }
    return w;
}

static struct worst worst_of(struct worst a, struct worst b)
{
    return (struct worst){fmax(a.out, b.out), fmax(a.lse, b.lse)};
}

/* --- Random parts ----------------------------------------------------------------------------- */

/* With random numbers r in [-1, 1): lse = centre + spread * r, out = (offset + r) * magnitude. */
static const struct distribution {
    const char *name;
    float centre, spread, offset, magnitude;
} distributions[] = {
    {"plain", 0.0f, 4.0f, 0.0f, 1.0f},          {"one sign", 0.0f, 0.5f, 10.0f, 1.0f},
    {"equal lse", 0.3f, 0.0f, 0.0f, 1.0f},      {"apart", 0.0f, 120.0f, 0.0f, 1.0f},
    {"lse at 1000", 1000.0f, 1.0f, 3.0f, 1.0f}, {"lse at -1e4", -1e4f, 20.0f, 3.0f, 1.0f},
    {"lse at 88", 88.0f, 1e-3f, 3.0f, 1.0f},    {"lse at 5e6", 5e6f, 3.0f, 3.0f, 1.0f},
    {"lse near 0", 0.0f, 1e-30f, 1.0f, 1.0f},   {"large out", 0.0f, 4.0f, 0.0f, 1e35f},
    {"tiny out", 0.0f, 4.0f, 0.0f, 1e-38f},     {"subnormal out", 0.0f, 60.0f, 0.0f, 1e-43f},
};

enum { DISTRIBUTIONS = COUNT(distributions), DIM = 24 };

/* Dense rows of parts: out is [parts][rows][columns], lse is [parts][rows]. The users of the struct
 * know the number of columns. */
struct parts {
    int64_t count, rows;
    float *out, *lse;
};

static struct parts draw_parts(const struct distribution *d, int64_t count, int64_t rows,
                               uint64_t seed)
{
    struct parts p = {count, rows, malloc((size_t)(count * rows * DIM) * sizeof(float)),
                      malloc((size_t)(count * rows) * sizeof(float))};
    for (int64_t i = 0; i < count * rows; i++)
        p.lse[i] = d->centre + d->spread * random_uniform(&seed);
    for (int64_t i = 0; i < count * rows * DIM; i++)
        p.out[i] = (d->offset + random_uniform(&seed)) * d->magnitude;
    return p;
}

static void free_parts(struct parts *p)
{
    free(p->out);
    free(p->lse);
}

/* Merges the parts into dense out and lse. */
static void merge(const struct parts *p, int64_t dim, float *out, float *lse)
{
    const float *outs[MAX_PARTS], *lses[MAX_PARTS];
    for (int64_t i = 0; i < p->count; i++) {
        outs[i] = p->out + i * p->rows * dim;
        lses[i] = p->lse + i * p->rows;
    }
    const attnkit_merge_args args = {
        .size = sizeof args,
        .parts = p->count,
        .batch = 1,
        .q_heads = 1,
        .q_len = p->rows,
        .value_dim = dim,
        .part_outs = outs,
        .part_lses = lses,
        .out = {.data = out},
        .lse = {.data = lse},
    };
    char message[ATTNKIT_MESSAGE_SIZE];
    if (attnkit_merge(&args, NULL, message) != ATTNKIT_OK)
        fail_msg("%s", message);
}

/* Returns the parts of row r, copied to `out` and `lse` without gaps. */
static struct row gather(const struct parts *p, int64_t dim, int64_t r, float *out, float *lse)
{
    for (int64_t i = 0; i < p->count; i++) {
        memcpy(out + i * dim, p->out + (i * p->rows + r) * dim, (size_t)dim * sizeof *out);
        lse[i] = p->lse[i * p->rows + r];
    }
    return (struct row){p->count, dim, out, lse};
}

static struct worst judge_parts(const struct parts *p)
{
    float *out = malloc((size_t)(p->rows * DIM) * sizeof *out);
    float *lse = malloc((size_t)p->rows * sizeof *lse);
    static float row_out[MAX_PARTS * DIM], row_lse[MAX_PARTS];
    struct worst w = {0, 0};
    merge(p, DIM, out, lse);
    for (int64_t r = 0; r < p->rows; r++) {
        const struct row row = gather(p, DIM, r, row_out, row_lse);
        w = worst_of(w, judge(&row, out + r * DIM, lse[r]));
    }
    free(out);
    free(lse);
    return w;
}

static void random_parts_are_inside_the_bound(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 3, 7, 40, MAX_PARTS};
    struct worst all = {0, 0};
    for (int d = 0; d < DISTRIBUTIONS; d++) {
        struct worst w = {0, 0};
        for (size_t i = 0; i < COUNT(counts); i++) {
            struct parts p = draw_parts(&distributions[d], counts[i], counts[i] > 40 ? 3 : 100, i);
            w = worst_of(w, judge_parts(&p));
            free_parts(&p);
        }
        printf("# %-14s error / bound %.3f, of LSE %.3f\n", distributions[d].name, w.out, w.lse);
        assert_true(w.out <= 1.0 && w.lse <= 1.0);
        all = worst_of(all, w);
    }
    /* The largest errors must reach a tenth of the bound, because a bound that is ten times too
     * wide would not reveal mistakes. */
    assert_true(all.out > 0.1 && all.lse > 0.1);
}

static void absent_parts_do_not_count(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct parts p = draw_parts(&distributions[0], 7, 50, seed);
        uint64_t random = seed;
        for (int64_t i = 0; i < 6 * p.rows; i++) /* all parts but the last part */
            if (random_below(&random, 2))
                p.lse[i] = -INFINITY;
        const struct worst w = judge_parts(&p);
        assert_true(w.out <= 1.0 && w.lse <= 1.0);
        free_parts(&p);
    }
}

static void one_part_is_returned_exactly(void **state)
{
    (void)state;
    for (int d = 0; d < DISTRIBUTIONS; d++) {
        enum { ROWS = 200 };
        struct parts p = draw_parts(&distributions[d], 1, ROWS, 1);
        float out[ROWS * DIM], lse[ROWS];
        merge(&p, DIM, out, lse);
        for (int i = 0; i < ROWS * DIM; i++)
            assert_true(out[i] == p.out[i]);
        free_parts(&p);
    }
}

/* --- Parts that attention has computed -------------------------------------------------------- */

enum {
    BATCH = 2,
    Q_HEADS = 4,
    KV_HEADS = 2,
    Q_LEN = 3,
    KV_LEN = 1100,
    HEAD_DIM = 32,
    VALUE_DIM = 20,
    ROWS = BATCH * Q_HEADS * Q_LEN,
    KV_ROWS = BATCH * KV_HEADS * KV_LEN,
    MOST_RANGES = 7,
    NONE = -1,
};

static float q[ROWS * HEAD_DIM], k[KV_ROWS * HEAD_DIM], v[KV_ROWS * VALUE_DIM];

static void fill(float *x, int count, float magnitude, uint64_t seed)
{
    for (int i = 0; i < count; i++)
        x[i] = random_uniform(&seed) * magnitude;
}

/* Returns a tensor over some rows of a dense tensor that has `rows` rows in each head. `data` is
 * the first of the chosen rows of the first head. */
static attnkit_tensor strided(const float *data, int64_t heads, int64_t rows, int64_t dim)
{
    const int64_t row = dim * (int64_t)sizeof(float);
    return (attnkit_tensor){
        .data = data, .strides = {heads * rows * row, rows * row, row}, .layout = ATTNKIT_STRIDED};
}

/* Makes the arguments of attention over the keys first .. end - 1. */
static attnkit_attention_args range_args(int64_t first, int64_t end, float *out, float *lse)
{
    attnkit_attention_args args = {
        .size = sizeof args,
        .batch = BATCH,
        .q_heads = Q_HEADS,
        .kv_heads = KV_HEADS,
        .q_len = Q_LEN,
        .kv_len = end - first,
        .head_dim = HEAD_DIM,
        .value_dim = VALUE_DIM,
        .q = {.data = q},
        .k = strided(k + first * HEAD_DIM, KV_HEADS, KV_LEN, HEAD_DIM),
        .v = strided(v + first * VALUE_DIM, KV_HEADS, KV_LEN, VALUE_DIM),
        .out = {.data = out},
        .lse = {.data = lse},
    };
    return args;
}

static void attend(const attnkit_attention_args *args)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec};
    if (attnkit_attention_workspace(args, &exec, &exec.workspace_size, message) == ATTNKIT_OK)
        exec.workspace = malloc(exec.workspace_size + 1);
    if (attnkit_attention(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    free(exec.workspace);
}

/* Draws the limits of the ranges of keys, in ascending order from 0 to KV_LEN. If `empty` is not
 * NONE, range `empty` has no keys. */
static void draw_cuts(uint64_t *random, int64_t ranges, int64_t empty,
                      int64_t cuts[MOST_RANGES + 1])
{
    cuts[0] = 0;
    cuts[ranges] = KV_LEN;
    for (int64_t i = 1; i < ranges; i++) {
        const int64_t left = KV_LEN - cuts[i - 1];
        const int64_t keys = random_below(random, left / (random_below(random, 3) + 1) + 1);
        cuts[i] = cuts[i - 1] + (i - 1 == empty ? 0 : keys);
    }
    if (empty == ranges - 1)
        cuts[ranges - 1] = KV_LEN;
}

/* The oracle's results of a row, over all keys and over the keys of each range. */
struct oracle {
    struct oracle_row whole, ranges[MOST_RANGES];
    struct oracle_element whole_out[VALUE_DIM], out[MOST_RANGES][VALUE_DIM];
};

/* Returns the worst |error| / bound of a merged row. The bounds include the errors of the parts. An
 * absent part has an LSE of -infinity and no error. */
static struct worst judge_against_oracle(const struct oracle *o, const struct row *row,
                                         const float *out, float lse)
{
    real weights[MOST_RANGES], given_weights[MOST_RANGES], lses[MOST_RANGES], d = 0;
    for (int64_t i = 0; i < row->parts; i++) {
        lses[i] = o->ranges[i].lse;
        d = fmaxl(d, o->ranges[i].lse_bound);
    }
    merged_lse(lses, row->parts, weights);
    const real given_lse = true_lse(row, given_weights);
    struct worst w = {0, ratio(lse - o->whole.lse, lse_bound(row, given_lse) + d)};
    for (int64_t c = 0; c < row->dim; c++) {
        real bound = true_column(row, given_weights, c).bound;
        bound += expm1l(2 * d) * true_column(row, weights, c).magnitude;
        for (int64_t i = 0; i < row->parts; i++)
            bound += weights[i] * o->out[i][c].bound;
        w.out = fmax(w.out, ratio(out[c] - o->whole_out[c].value, bound));
    }
    return w;
}

/* The parts that attention has computed, their merge, and the attention over all keys. */
struct results {
    int64_t cuts[MOST_RANGES + 1];
    float part_out[MOST_RANGES * ROWS * VALUE_DIM], part_lse[MOST_RANGES * ROWS];
    float out[ROWS * VALUE_DIM], lse[ROWS], whole_out[ROWS * VALUE_DIM], whole_lse[ROWS];
};

static struct parts attend_ranges(struct results *r, int64_t ranges)
{
    for (int64_t i = 0; i < ranges; i++) {
        const attnkit_attention_args args = range_args(
            r->cuts[i], r->cuts[i + 1], r->part_out + i * ROWS * VALUE_DIM, r->part_lse + i * ROWS);
        attend(&args);
    }
    return (struct parts){ranges, ROWS, r->part_out, r->part_lse};
}

static struct oracle ask_oracle(const struct results *r, int64_t ranges, int64_t row)
{
    struct oracle o;
    const int64_t b = row / Q_LEN / Q_HEADS, h = row / Q_LEN % Q_HEADS, i = row % Q_LEN;
    attnkit_attention_args args = range_args(0, KV_LEN, NULL, NULL);
    o.whole = oracle_row(&args, b, h, i, o.whole_out, NULL);
    for (int64_t range = 0; range < ranges; range++) {
        args = range_args(r->cuts[range], r->cuts[range + 1], NULL, NULL);
        o.ranges[range] = oracle_row(&args, b, h, i, o.out[range], NULL);
    }
    return o;
}

/* Checks that the merged row, and the same row of the attention over all keys, are near the true
 * row, and therefore near each other. */
static void expect_near_whole(const struct results *r, const struct oracle *o, int64_t row,
                              const struct worst *merged)
{
    assert_true(merged->out <= 1.0 && merged->lse <= 1.0);
    for (int64_t c = 0; c < VALUE_DIM; c++) {
        const double error = fabs(r->whole_out[row * VALUE_DIM + c] - o->whole_out[c].value);
        assert_true(error <= o->whole_out[c].bound);
    }
    assert_true(fabs(r->whole_lse[row] - o->whole.lse) <= o->whole.lse_bound);
}

static struct worst judge_ranges(int64_t ranges, int64_t empty)
{
    static struct results r;
    struct worst w = {0, 0};
    uint64_t random = (uint64_t)ranges;
    draw_cuts(&random, ranges, empty, r.cuts);
    const struct parts p = attend_ranges(&r, ranges);
    merge(&p, VALUE_DIM, r.out, r.lse);
    const attnkit_attention_args whole = range_args(0, KV_LEN, r.whole_out, r.whole_lse);
    attend(&whole);
    for (int64_t row = 0; row < ROWS; row++) {
        float out[MOST_RANGES * VALUE_DIM], lse[MOST_RANGES];
        const struct row given = gather(&p, VALUE_DIM, row, out, lse);
        const struct oracle o = ask_oracle(&r, ranges, row);
        const struct worst of_row =
            judge_against_oracle(&o, &given, r.out + row * VALUE_DIM, r.lse[row]);
        expect_near_whole(&r, &o, row, &of_row);
        w = worst_of(w, of_row);
    }
    return w;
}

/* With the smallest magnitude of q, no key has much of the weight. With the largest magnitude, one
 * key has nearly all the weight, and the LSE is large. Each number of ranges is tested twice: with
 * random ranges, and with one range that is surely empty. With the smallest magnitude of q the
 * first range is empty, with the next magnitude the middle range, with the largest the last
 * range. */
static void ranges_of_keys_merge_to_attention_over_all(void **state)
{
    (void)state;
    static const float magnitudes[] = {1.0f, 30.0f, 3000.0f};
    fill(k, KV_ROWS * HEAD_DIM, 1.0f, 2);
    fill(v, KV_ROWS * VALUE_DIM, 1.0f, 3);
    for (size_t m = 0; m < COUNT(magnitudes); m++) {
        struct worst w = {0, 0};
        fill(q, ROWS * HEAD_DIM, magnitudes[m], 1);
        for (int64_t ranges = 2; ranges <= MOST_RANGES; ranges++) {
            const int64_t empty = (int64_t)m * (ranges - 1) / 2; /* first, middle or last */
            w = worst_of(w, judge_ranges(ranges, NONE));
            w = worst_of(w, judge_ranges(ranges, empty));
        }
        printf("# q up to %-5g error / bound %.3f, of LSE %.3f\n", magnitudes[m], w.out, w.lse);
    }
}

/* --- Wrong merges, which the bound must refuse ------------------------------------------------ */

enum mutant { SOUND, PART_LOST, EXPONENT_IN_BINARY32, WEIGHTS_IN_BF16, EQUAL_WEIGHTS, MUTANTS };

static real rounded_to_bf16(real x)
{
    int exponent;
    const real significand = frexpl(x, &exponent);
    return ldexpl(rintl(ldexpl(significand, 8)), exponent - 8);
}

static real mutant_weight(enum mutant mutant, float lse, real top)
{
    const real log2_e = 1.442695040888963407359924681001892137L;
    const real weight = expl(lse - top);
    switch (mutant) {
    case EXPONENT_IN_BINARY32:
        return exp2l((float)(lse * log2_e) - top * log2_e);
    case WEIGHTS_IN_BF16:
        return rounded_to_bf16(weight);
    case EQUAL_WEIGHTS:
        return 1;
    default:
        return weight;
    }
}

static void mutant_row(enum mutant mutant, const struct row *row, float *out)
{
    const int64_t parts = row->parts - (mutant == PART_LOST);
    real weights[MAX_PARTS], sum = 0;
    for (int64_t i = 0; i < parts; i++)
        sum += weights[i] = mutant_weight(mutant, row->lse[i], row->lse[0]);
    for (int64_t c = 0; c < row->dim; c++) {
        real o = 0;
        for (int64_t i = 0; i < parts; i++)
            o += weights[i] * row->out[i * row->dim + c];
        out[c] = (float)(o / sum);
    }
}

static double judge_mutant(enum mutant mutant)
{
    float out[MAX_PARTS], lse[MAX_PARTS], mutant_out[DIM];
    double worst = 0;
    struct parts p = draw_parts(&distributions[4], 5, 100, 1);
    for (int64_t r = 0; r < p.rows; r++) {
        const struct row row = gather(&p, DIM, r, out, lse);
        mutant_row(mutant, &row, mutant_out);
        worst = fmax(worst, judge(&row, mutant_out, 0.0f).out);
    }
    free_parts(&p);
    return worst;
}

static void mutants_are_outside_the_bound(void **state)
{
    (void)state;
    static const char *const names[MUTANTS] = {"sound", "part lost", "t in binary32",
                                               "weights in bf16", "equal weights"};
    for (enum mutant mutant = 0; mutant < MUTANTS; mutant++) {
        const double worst = judge_mutant(mutant);
        printf("# %-14s error / bound %.3g\n", names[mutant], worst);
        assert_true(mutant == SOUND ? worst <= 1.0 : worst > 1.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_parts_are_inside_the_bound),
        cmocka_unit_test(absent_parts_do_not_count),
        cmocka_unit_test(one_part_is_returned_exactly),
        cmocka_unit_test(ranges_of_keys_merge_to_attention_over_all),
        cmocka_unit_test(mutants_are_outside_the_bound),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
