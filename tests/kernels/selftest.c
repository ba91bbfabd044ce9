/* SPDX-License-Identifier: Apache-2.0
 *
 * The test harness must catch a wrong kernel. A mutant is the best kernel table of this machine,
 * with one entry that makes one small mistake. With each mutant, a call of attention or of a linear
 * map must give other bits than the reference, or end in a signal. Each case of attention has three
 * layouts: each row before an unmapped page, each row after an unmapped page, and gaps between
 * rows. A mutant runs in a child process, because an access outside a row may end in a signal. K
 * and V of keys that no row sees must be NaN. Otherwise nothing would show that a kernel reads
 * these rows of K and V.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dispatch/cpu/isa.h"
#include "tests/cases/covering.h"
#include "tests/support/linear_call.h"

enum {
    CASES = 120,
    CAUGHT = 3, /* exit status of a child that has seen a difference */
};

static const struct kernels *good;
static struct cases cases;

/* --- The mutants, one mistake each ------------------------------------------------------------ */

static void scores_one_rounding_off(const float *q_t, int lanes, const struct rows *k, int keys,
                                    float *s, const struct rows *ahead)
{
    good->scores(q_t, lanes, k, keys, s, ahead);
    s[0] = nextafterf(s[0], INFINITY);
}

static void scores_miss_last_key(const float *q_t, int lanes, const struct rows *k, int keys,
                                 float *s, const struct rows *ahead)
{
    good->scores(q_t, lanes, k, keys - 1, s, ahead);
    memset(s + (keys - 1) * lanes, 0, (size_t)lanes * sizeof *s);
}

static void weighted_v_misses_last_column(const float *p, int lanes, const float *rescale,
                                          const struct rows *v, int keys, float *o,
                                          const struct rows *ahead)
{
    const struct rows fewer = {v->first, v->stride, v->dim - 1};
    good->weighted_v(p, lanes, rescale, &fewer, keys, o, ahead);
}

static void softmax_mask_off_by_one(float *s, int lanes, int keys, const int32_t *visible,
                                    float scale_log2, const struct state *st, float *rescale)
{
    int32_t more[MAX_LANES];
    for (int lane = 0; visible && lane < lanes; lane++)
        more[lane] = visible[lane] + 1;
    good->softmax(s, lanes, keys, visible ? more : NULL, scale_log2, st, rescale);
}

static void softmax_drops_rescale(float *s, int lanes, int keys, const int32_t *visible,
                                  float scale_log2, const struct state *st, float *rescale)
{
    good->softmax(s, lanes, keys, visible, scale_log2, st, rescale);
    for (int lane = 0; lane < lanes; lane++)
        rescale[lane] = 1.0f;
}

static uint64_t finish_hides_nan(const struct state *st, int lanes, int64_t value_dim, int rows,
                                 float *const *out, float *const *lse)
{
    good->finish(st, lanes, value_dim, rows, out, lse);
    return 0;
}

static uint64_t finish_writes_past_the_row(const struct state *st, int lanes, int64_t value_dim,
                                           int rows, float *const *out, float *const *lse)
{
    const uint64_t not_finite = good->finish(st, lanes, value_dim, rows, out, lse);
    out[0][value_dim] = 0.0f;
    return not_finite;
}

static void fold_forgets_the_chunk(const struct total *total, const struct state *chunk, int lanes,
                                   int64_t value_dim)
{
    (void)total, (void)chunk, (void)lanes, (void)value_dim;
}

static void begin_total_forgets_the_last_column(const struct total *total,
                                                const struct state *chunk, int lanes,
                                                int64_t value_dim)
{
    good->begin_total(total, chunk, lanes, value_dim - 1);
    memset(total->out + (value_dim - 1) * lanes, 0, (size_t)lanes * sizeof(double));
}

static uint64_t finish_total_forgets_the_last_row(const struct total *total, const float *chunk_out,
                                                  int lanes, int64_t value_dim, int rows,
                                                  float *const *out, float *const *lse)
{
    return good->finish_total(total, chunk_out, lanes, value_dim, rows - 1, out, lse);
}

static void fold_row_forgets_a_factor(double *o, const float *chunk, double a, double b, int64_t n)
{
    (void)a;
    good->fold_row(o, chunk, 1.0, b, n);
}

static bool quotient_row_in_binary32(const double *o, double divisor, int64_t n, float *out)
{
    const bool not_finite = good->quotient_row(o, divisor, n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)o[i] / (float)divisor + 0.0f;
    return not_finite;
}

static void pack_q_reads_a_byte_after(const float *const *rows, int lanes, int64_t head_dim,
                                      float *q_t)
{
    (void)*(const volatile char *)(rows[0] + head_dim);
    good->pack_q(rows, lanes, head_dim, q_t);
}

static void pack_q_reads_a_byte_before(const float *const *rows, int lanes, int64_t head_dim,
                                       float *q_t)
{
    (void)*((const volatile char *)rows[0] - 1);
    good->pack_q(rows, lanes, head_dim, q_t);
}

static void decode_misses_a_key(const struct decode_block *block, int rows, float scale_log2)
{
    struct decode_block bad = *block;
    int32_t fewer[MAX_DECODE_ROWS];
    for (int r = 0; r < rows; r++)
        fewer[r] = bad.visible[r] > 1 ? bad.visible[r] - 1 : 1;
    bad.visible = fewer;
    good->decode(&bad, rows, scale_log2);
}

static void decode_reads_a_key_too_many(const struct decode_block *block, int rows,
                                        float scale_log2)
{
    const char *last = block->k.row[block->visible[0] - 1];
    (void)*(const volatile char *)(last + bytes_of(block->k.type, block->k.dim));
    good->decode(block, rows, scale_log2);
}

static void product_one_rounding_off(const struct product *part)
{
    good->product(part);
    part->y[0] = nextafterf(part->y[0], INFINITY);
}

static void product_misses_last_input(const struct product *part)
{
    struct product bad = *part;
    bad.dim--;
    good->product(&bad);
}

static void product_writes_past_the_row(const struct product *part)
{
    good->product(part);
    part->y[part->outs] = 0.0f;
}

static void few_product_rounds_products(const struct few_product *product)
{
    good->few_product(product);
    for (int i = 0; i < product->rows && product->type == TYPE_F32; i++) {
        float sum = 0.0f;
        for (int64_t d = 0; d < product->dim; d++)
            sum += product->x[i][d] * ((const float *)product->w)[d * TILE_KEYS];
        product->y[i][0] = product->bias ? sum + product->bias[0] : sum;
    }
}

static void few_product_reads_bias_beyond_outs(const struct few_product *product)
{
    if (product->bias)
        (void)*(const volatile float *)(product->bias + product->outs);
    good->few_product(product);
}

static void widen_matrix_swaps_outputs(enum type type, const void *tile, int64_t n, float *out)
{
    good->widen_matrix(type, tile, n, out);
    const float first = out[0];
    out[0] = out[1];
    out[1] = first;
}

/* --- Running the mutants -----------------------------------------------------------------------
 */

/* Returns whether the bits of any linear map are wrong. The maps have few rows or many, f32 weights
 * or weights that have to be widened, and rows next to unmapped pages. */
static bool any_linear_difference(struct runner runner)
{
    static const struct linear_shape linear_shapes[] = {{3, 40, 70}, {40, 300, 70}};
    for (int i = 0; i < 8; i++) {
        const struct linear_kind kind = {.packed_type = i & 1 ? ATTNKIT_BF16 : ATTNKIT_F32,
                                         .bias = true,
                                         .layout = i & 2 ? BEFORE_GUARD : AFTER_GUARD};
        struct linear_call *const c = linear_call_new(&kind, linear_shapes[i / 4], 1);
        const bool wrong = linear_call_check(c, runner) != NULL;
        linear_call_free(c);
        if (wrong)
            return true;
    }
    return false;
}

static bool any_difference(const struct kernels *kernels)
{
    const struct runner runner = {.kernels = kernels};
    if (any_linear_difference(runner))
        return true;
    for (int i = 0; i < cases.count; i++) {
        const struct test_case *c = &cases.list[i];
        struct setting s;
        setting_make(&s, c, DENSE);
        struct result expected = result_new(&s.args);
        result_from_reference(&expected, &s.args);
        const bool wrong = check_layout(c, BEFORE_GUARD, runner, &expected, 0, NULL) ||
                           check_layout(c, AFTER_GUARD, runner, &expected, 0, NULL) ||
                           check_layout(c, PADDED, runner, &expected, 0, NULL);
        result_free(&expected);
        if (wrong)
            return true;
    }
    return false;
}

/* Returns whether a child process sees a difference, or ends in a signal. The output and the core
 * dump of the child are discarded. */
static bool caught(const struct kernels *kernels)
{
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        for (int signal_number = 1; signal_number < 32; signal_number++)
            signal(signal_number, SIG_DFL);
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
            _exit(99);
        _exit(any_difference(kernels) ? CAUGHT : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status))
        assert_int_not_equal(WEXITSTATUS(status), 99);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void good_table_is_not_caught(void **state)
{
    (void)state;
    assert_false(caught(good));
}

static void every_mutant_is_caught(void **state)
{
    (void)state;
    const struct {
        const char *name;
        struct kernels change; /* the entry that the mutant replaces; all other entries are NULL */
    } mutants[] = {
        {"scores: one rounding off", {.scores = scores_one_rounding_off}},
        {"scores: last key missing", {.scores = scores_miss_last_key}},
        {"weighted V: last column missing", {.weighted_v = weighted_v_misses_last_column}},
        {"softmax: mask off by one", {.softmax = softmax_mask_off_by_one}},
        {"softmax: no rescale", {.softmax = softmax_drops_rescale}},
        {"finish: NaN of masked V not reported", {.finish = finish_hides_nan}},
        {"finish: a write past the row", {.finish = finish_writes_past_the_row}},
        {"fold: chunk forgotten", {.fold = fold_forgets_the_chunk}},
        {"total: last column forgotten", {.begin_total = begin_total_forgets_the_last_column}},
        {"total: last row forgotten", {.finish_total = finish_total_forgets_the_last_row}},
        {"fold of a row: a factor forgotten", {.fold_row = fold_row_forgets_a_factor}},
        {"quotient of a row in binary32", {.quotient_row = quotient_row_in_binary32}},
        {"pack: a byte read after the row", {.pack_q = pack_q_reads_a_byte_after}},
        {"pack: a byte read before the row", {.pack_q = pack_q_reads_a_byte_before}},
        {"decode: last key missing", {.decode = decode_misses_a_key}},
        {"decode: a key too many read", {.decode = decode_reads_a_key_too_many}},
        {"product: one rounding off", {.product = product_one_rounding_off}},
        {"product: last input missing", {.product = product_misses_last_input}},
        {"product: a write past the row", {.product = product_writes_past_the_row}},
        {"few rows: products rounded", {.few_product = few_product_rounds_products}},
        {"few rows: bias read beyond", {.few_product = few_product_reads_bias_beyond_outs}},
        {"matrix: outputs swapped", {.widen_matrix = widen_matrix_swaps_outputs}},
    };
    for (size_t i = 0; i < sizeof mutants / sizeof mutants[0]; i++) {
        const struct kernels *change = &mutants[i].change;
        struct kernels bad = *good;
        bad.pack_q = change->pack_q ? change->pack_q : bad.pack_q;
        bad.scores = change->scores ? change->scores : bad.scores;
        bad.softmax = change->softmax ? change->softmax : bad.softmax;
        bad.weighted_v = change->weighted_v ? change->weighted_v : bad.weighted_v;
        bad.begin_total = change->begin_total ? change->begin_total : bad.begin_total;
        bad.fold = change->fold ? change->fold : bad.fold;
        bad.finish = change->finish ? change->finish : bad.finish;
        bad.finish_total = change->finish_total ? change->finish_total : bad.finish_total;
        bad.fold_row = change->fold_row ? change->fold_row : bad.fold_row;
        bad.quotient_row = change->quotient_row ? change->quotient_row : bad.quotient_row;
        bad.decode = change->decode ? change->decode : bad.decode;
        bad.product = change->product ? change->product : bad.product;
        bad.few_product = change->few_product ? change->few_product : bad.few_product;
        bad.widen_matrix = change->widen_matrix ? change->widen_matrix : bad.widen_matrix;
        const bool is_caught = caught(&bad);
        printf("# %s: %s\n", mutants[i].name, is_caught ? "caught" : "NOT CAUGHT");
        assert_true(is_caught);
    }
}

/* --- Keys that no row sees -------------------------------------------------------------------- */

/* Returns the number of keys that the last row of a batch entry sees. */
static int64_t keys_of_last_row(const struct setting *s, int64_t b)
{
    const attnkit_attention_args *const a = &s->args;
    const int64_t keys = s->groups.visibility.kv_lens.data ? s->kv_lens[b] : a->kv_len;
    if (!(a->flags & ATTNKIT_CAUSAL) || a->align == ATTNKIT_ALIGN_BOTTOM_RIGHT)
        return keys;
    const int64_t offset = a->align == ATTNKIT_ALIGN_OFFSETS ? s->q_offsets[b] : 0;
    const int64_t end = offset + a->q_len;
    return end < 0 ? 0 : end < keys ? end : keys;
}

/* Returns whether the rows of a batch entry from `first` on begin with NaN in all heads. */
static bool rows_are_nan(const attnkit_tensor *t, const struct setting *s, int64_t b, int64_t first)
{
    for (int64_t h = 0; h < s->args.kv_heads; h++)
        for (int64_t i = first; i < s->args.kv_len; i++) {
            const char *const row =
                (const char *)t->data + b * t->strides[0] + h * t->strides[1] + i * t->strides[2];
            float x;
            memcpy(&x, row, sizeof x);
            if (!isnan(x))
                return false;
        }
    return true;
}

static void keys_that_no_row_sees_are_nan(void **state)
{
    (void)state;
    int64_t unseen = 0;
    for (int i = 0; i < cases.count; i++) {
        struct setting s;
        setting_make(&s, &cases.list[i], PADDED);
        for (int64_t b = 0; b < s.args.batch && s.args.q_len > 0; b++) {
            const int64_t seen = keys_of_last_row(&s, b);
            assert_true(rows_are_nan(&s.args.k, &s, b, seen));
            assert_true(rows_are_nan(&s.args.v, &s, b, seen));
            unseen += s.args.q_heads > s.args.kv_heads ? s.args.kv_len - seen : 0;
        }
    }
    assert_true(unseen > 0);
}

int main(void)
{
    struct isa_choice choice;
    if (attnkit_isa_pick(NULL, &choice, NULL) != ATTNKIT_OK)
        return 2;
    good = choice.kernels;
    const struct axes axes = all_axes();
    cases = sampled_cases(&axes, 3, CASES, 1e6);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_table_is_not_caught),
        cmocka_unit_test(every_mutant_is_caught),
        cmocka_unit_test(keys_that_no_row_sees_are_nan),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    setting_end();
    free(cases.list);
    return failed;
}
