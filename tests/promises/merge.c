/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit_merge has the bits of the canonical order (kernels/README.md). The bits are the same on
 * every instruction set, in any layout, in place or not, and with any number of threads. The tests
 * also check the results of special parts. tests/api/merge_api.c tests which calls are refused, and
 * tests/accuracy/merge_accuracy.c tests the error of results.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "kernels/scalar/scalar.h"
#include "attnkit.h"
#include "tests/cases/case.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

enum {
    PATTERN = 0xa5,
    MAX_PARTS = 40,
    MAX_ISAS = 8,
};

/* --- The stated order, row by row --------------------------------------------------------------
 */

/* A state of one row. o has as many elements as the row. */
struct row_state {
    float max;
    double sum, *o;
};

/* Computes the state of a part by step 14, "Merging", of kernels/README.md. */
static void model_part(struct row_state *s, const float *out, float lse, int64_t dim)
{
    const double t = (double)lse * 0x1.71547652b82fep+0;
    float exponent;
    s->max = (float)ceil(t);
    if (isnan(s->max) || s->max == INFINITY) {
        s->max = 0.0f;
        exponent = NAN;
    } else if (s->max == -INFINITY) {
        exponent = -INFINITY;
    } else {
        exponent = fabs(t) >= 0x1p24 ? 0.0f : (float)(t - s->max);
    }
    s->sum = (double)scalar_exp2(exponent);
    for (int64_t c = 0; c < dim; c++)
        s->o[c] = s->max == -INFINITY ? 0.0 : (double)out[c] * s->sum;
}

/* Folds a part's state into the total by step 9, "Chunks". */
static void model_fold(struct row_state *total, const struct row_state *part, int64_t dim)
{
    const float max = part->max > total->max ? part->max : total->max;
    const double a = (double)scalar_exp2(total->max - finite_max(max));
    const double b = (double)scalar_exp2(part->max - finite_max(max));
    total->max = max;
    total->sum = fma(total->sum, a, part->sum * b);
    for (int64_t c = 0; c < dim; c++)
        total->o[c] = fma(total->o[c], a, part->o[c] * b);
}

/* The parts of one row: out is [parts][dim]. */
struct row {
    int64_t parts, dim;
    const float *out, *lse;
};

/* Merges a whole row, and computes its result by step 11, "Result". */
static void model_row(const struct row *row, float *out, float *lse)
{
    struct row_state total = {-INFINITY, 0.0, calloc((size_t)row->dim, sizeof(double))};
    struct row_state part = {0.0f, 0.0, calloc((size_t)row->dim, sizeof(double))};
    for (int64_t i = 0; i < row->parts; i++) {
        model_part(&part, row->out + i * row->dim, row->lse[i], row->dim);
        model_fold(&total, &part, row->dim);
    }
    for (int64_t c = 0; c < row->dim; c++)
        out[c] = plain_nan((float)(total.o[c] / (total.sum == 0.0 ? 1.0 : total.sum)) + 0.0f);
    *lse = scalar_lse(total.max, (float)total.sum);
    free(total.o);
    free(part.o);
}

/* --- Data --------------------------------------------------------------------------------------
 */

enum data {
    USUAL,   /* lse within [-8, 8), out in [-1, 1) */
    APART,   /* lse so far from each other that factors may underflow */
    LARGE,   /* lse near 1e4, or between -2e4 and 2e4 */
    EXTREME, /* lse from the list below */
    TINY,    /* subnormal out */
    WIDE,    /* values of out have very different magnitudes */
    SPECIAL, /* NaN and infinities in out and lse */
    ABSENT,  /* about half of the parts are absent */
    DATA,
};

static const float extreme_lses[] = {
    0.0f,       -0.0f,           1e-45f,     -1e-45f,          0.6931472f, 1.0f,   -1.0f,
    88.0f,      -88.0f,          89.0f,      -104.0f,          1e4f,       -1e4f,  8388607.0f,
    -8388608.f, 11629079.0f,     -1.2e7f,    1.5e7f,           1e20f,      -1e20f, 2.3e38f,
    -2.3e38f,   2.358e38f,       -2.358e38f, 2.36e38f,         -2.36e38f,  3e38f,  -3e38f,
    -INFINITY,  3.402823466e38f, INFINITY,   -3.402823466e38f,
};

static float pick(uint64_t *random, const float *values, size_t count)
{
    return values[random_below(random, (int64_t)count)];
}

static float draw_lse(uint64_t *random, enum data data)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, 0.0f, 1.0f, -3.0f, 2.0f, 0.5f};
    const float x = random_uniform(random);
    switch (data) {
    case APART:
        return 110.0f * x;
    case LARGE:
        return x < 0.0f ? 1e4f + 8.0f * x : 2e4f * random_uniform(random);
    case EXTREME:
        return pick(random, extreme_lses, COUNT(extreme_lses));
    case SPECIAL:
        return pick(random, specials, COUNT(specials));
    case ABSENT:
        return x < 0.0f ? -INFINITY : 8.0f * x;
    default:
        return 8.0f * x;
    }
}

static float draw_out(uint64_t *random, enum data data)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, 3.4e38f};
    const float x = random_uniform(random);
    if (data == TINY)
        return 1e-42f * x;
    if (data == WIDE)
        return ldexpf(x, (int)random_below(random, 240) - 120);
    if (data == SPECIAL && random_below(random, 8) == 0)
        return pick(random, specials, COUNT(specials));
    return x;
}

/* Fills in one row's parts. The values of an absent part are NaN. */
static void draw_row(uint64_t *random, enum data data, int64_t parts, int64_t dim, float *out,
                     float *lse)
{
    for (int64_t i = 0; i < parts; i++) {
        lse[i] = draw_lse(random, data);
        for (int64_t c = 0; c < dim; c++)
            out[i * dim + c] = lse[i] == -INFINITY ? NAN : draw_out(random, data);
    }
}

/* --- Layouts -----------------------------------------------------------------------------------
 */

/* A tensor of a call in memory: rows of `dim` floats. Strides are in bytes. */
struct tensor {
    char *first;
    int64_t strides[3], count[3], dim;
};

enum { ARENA_BYTES = 8 << 20 };

/* The memory of a call. The call may change only the rows of its outputs. */
struct memory {
    char *arenas[4]; /* out, lse, outs of the parts, lses of the parts */
    size_t used[4];
    int slots; /* slots 0 to slots - 1 are in use */
};

static int64_t span(const struct tensor *t)
{
    int64_t bytes = t->dim * (int64_t)sizeof(float);
    for (int i = 0; i < 3; i++)
        bytes += (t->count[i] - 1) * llabs(t->strides[i]);
    return bytes;
}

static void nest(int64_t strides[3], const int order[3], const int64_t count[3], int64_t row,
                 int64_t gap)
{
    for (int i = 0; i < 3; i++) {
        strides[order[i]] = row + gap * (i + 1);
        row = strides[order[i]] * count[order[i]];
    }
}

/* Sets the strides of a tensor in a layout. Guarded rows have a slot each. */
static void set_strides(struct tensor *t, enum layout_kind layout, bool input)
{
    static const int rows_first[3] = {2, 1, 0}, heads_first[3] = {1, 2, 0};
    const bool guarded = layout == BEFORE_GUARD || layout == AFTER_GUARD;
    const int64_t row = guarded ? SLOT_STRIDE : t->dim * (int64_t)sizeof(float);
    const int64_t gap = layout == PADDED || layout == REVERSED ? 8 : 0;
    nest(t->strides, layout == TOKEN_MAJOR ? heads_first : rows_first, t->count, row, gap);
    for (int i = 0; i < 3; i++) {
        if (layout == REVERSED)
            t->strides[i] = -t->strides[i];
        if (layout == BROADCAST && input && i != 2)
            t->strides[i] = 0;
    }
}

/* Finds room in slots or in an arena for a tensor. The tensor's strides are already set. */
static void place_tensor(struct memory *m, int arena, enum layout_kind layout, struct tensor *t)
{
    const int64_t bytes = t->dim * (int64_t)sizeof(float);
    if (layout == BEFORE_GUARD || layout == AFTER_GUARD) {
        const int rows = (int)(t->count[0] * t->count[1] * t->count[2]);
        t->first = memory_slots(m->slots, rows) + (layout == BEFORE_GUARD ? SLOT_BYTES - bytes : 0);
        for (int i = 0; i < rows; i++)
            memset(memory_slots(m->slots + i, 1), PATTERN, SLOT_BYTES);
        m->slots += rows;
        return;
    }
    t->first = m->arenas[arena] + m->used[arena] + (layout == PADDED ? 4 : 0);
    for (int i = 0; i < 3; i++)
        if (t->strides[i] < 0)
            t->first -= (t->count[i] - 1) * t->strides[i];
    const size_t bytes_with_gap = (size_t)span(t) + 64;
    assert_true(m->used[arena] + bytes_with_gap <= ARENA_BYTES);
    memset(m->arenas[arena] + m->used[arena], PATTERN, bytes_with_gap);
    m->used[arena] += bytes_with_gap;
}

static void begin_memory(struct memory *m)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; i < 4; i++)
        m->arenas[i] = memory_arena(i, ARENA_BYTES);
}

/* Returns a copy of the memory in use. The caller frees the copy. */
static char *copy_memory(const struct memory *m, size_t *size)
{
    *size = (size_t)m->slots * SLOT_BYTES;
    for (int i = 0; i < 4; i++)
        *size += m->used[i];
    char *image = malloc(*size + 1), *at = image;
    for (int i = 0; i < 4; at += m->used[i++])
        memcpy(at, m->arenas[i], m->used[i]);
    for (int i = 0; i < m->slots; i++, at += SLOT_BYTES)
        memcpy(at, memory_slots(i, 1), SLOT_BYTES);
    return image;
}

static float *row_at(const struct tensor *t, int64_t row)
{
    const int64_t i = row % t->count[2], h = row / t->count[2] % t->count[1];
    const int64_t b = row / t->count[2] / t->count[1];
    return (float *)(t->first + b * t->strides[0] + h * t->strides[1] + i * t->strides[2]);
}

/* --- A merge -----------------------------------------------------------------------------------
 */

enum in_place {
    NOT_IN_PLACE,
    OUT_IN_PLACE, /* bit 0: out is in place; bit 1: lse is in place */
    LSE_IN_PLACE,
    BOTH_IN_PLACE,
    IN_PLACE_KINDS,
};

struct shape {
    int64_t parts, batch, heads, q_len, dim;
    enum layout_kind layout;
    enum data data;
    enum in_place in_place;
    bool with_lse;
};

/* A call in memory, its expected result, and the memory before the call. */
struct trial {
    struct shape shape;
    attnkit_merge_args args;
    struct memory memory;
    struct tensor out, lse, part_outs[MAX_PARTS], part_lses[MAX_PARTS];
    const float *outs[MAX_PARTS], *lses[MAX_PARTS];
    int64_t rows;
    float *expected_out, *expected_lse; /* dense */
    float *old_out, *old_lse;           /* the rows of the outputs before the call, dense */
    char *image;                        /* a copy of the memory in use, before the call */
};

static struct tensor shaped(const struct shape *shape, int64_t dim, bool input)
{
    struct tensor t = {.count = {shape->batch, shape->heads, shape->q_len}, .dim = dim};
    set_strides(&t, shape->layout, input);
    return t;
}

static void place_all(struct trial *s, uint64_t *random)
{
    const struct shape *shape = &s->shape;
    begin_memory(&s->memory);
    s->out = shaped(shape, shape->dim, false);
    s->lse = shaped(shape, 1, false);
    place_tensor(&s->memory, 0, shape->layout, &s->out);
    place_tensor(&s->memory, 1, shape->layout, &s->lse);
    for (int64_t i = 0; i < shape->parts; i++) {
        s->part_outs[i] = shaped(shape, shape->dim, true);
        s->part_lses[i] = shaped(shape, 1, true);
        place_tensor(&s->memory, 2, shape->layout, &s->part_outs[i]);
        place_tensor(&s->memory, 3, shape->layout, &s->part_lses[i]);
        s->outs[i] = (const float *)s->part_outs[i].first;
        s->lses[i] = (const float *)s->part_lses[i].first;
    }
    if (shape->in_place & OUT_IN_PLACE)
        s->out = s->part_outs[random_below(random, shape->parts)];
    if (shape->in_place & LSE_IN_PLACE)
        s->lse = s->part_lses[random_below(random, shape->parts)];
}

static void set_strided(attnkit_tensor *to, const struct tensor *t)
{
    to->layout = ATTNKIT_STRIDED;
    memcpy(to->strides, t->strides, sizeof to->strides);
}

static void set_args(struct trial *s)
{
    const struct shape *shape = &s->shape;
    s->args = (attnkit_merge_args){
        .size = sizeof s->args,
        .parts = shape->parts,
        .batch = shape->batch,
        .q_heads = shape->heads,
        .q_len = shape->q_len,
        .value_dim = shape->dim,
        .part_outs = shape->parts > 0 ? s->outs : NULL,
        .part_lses = shape->parts > 0 ? s->lses : NULL,
        .out = {.data = s->out.first},
        .lse = {.data = shape->with_lse ? s->lse.first : NULL},
    };
    if (shape->layout == DENSE)
        return;
    set_strided(&s->args.out, &s->out);
    set_strided(&s->args.lse, &s->lse);
    set_strided(&s->args.part_out, &s->part_outs[0]);
    set_strided(&s->args.part_lse, &s->part_lses[0]);
}

static void fill_parts(struct trial *s, uint64_t *random)
{
    const int64_t parts = s->shape.parts, dim = s->shape.dim;
    float *out = malloc((size_t)(parts * dim + 1) * sizeof *out), lse[MAX_PARTS];
    for (int64_t r = 0; r < s->rows; r++) {
        draw_row(random, s->shape.data, parts, dim, out, lse);
        for (int64_t i = 0; i < parts; i++) {
            memcpy(row_at(&s->part_outs[i], r), out + i * dim, (size_t)dim * sizeof *out);
            *row_at(&s->part_lses[i], r) = lse[i];
        }
    }
    free(out);
}

/* Computes the expected result from the parts in memory. With strides of 0, several rows of a part
 * lie at the same address. */
static void ask_model(struct trial *s)
{
    const int64_t parts = s->shape.parts, dim = s->shape.dim;
    float *out = malloc((size_t)(parts * dim + 1) * sizeof *out), lse[MAX_PARTS];
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t i = 0; i < parts; i++) {
            memcpy(out + i * dim, row_at(&s->part_outs[i], r), (size_t)dim * sizeof *out);
            lse[i] = *row_at(&s->part_lses[i], r);
        }
        const struct row row = {parts, dim, out, lse};
        model_row(&row, s->expected_out + r * dim, s->expected_lse + r);
    }
    free(out);
}

static void copy_rows(const struct tensor *t, int64_t rows, float *dense)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(dense + r * t->dim, row_at(t, r), (size_t)t->dim * sizeof *dense);
}

static void put_rows(const struct tensor *t, int64_t rows, const float *dense)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(row_at(t, r), dense + r * t->dim, (size_t)t->dim * sizeof *dense);
}

static struct trial *trial_new(const struct shape *shape, uint64_t seed)
{
    struct trial *s = calloc(1, sizeof *s);
    s->shape = *shape;
    s->rows = shape->batch * shape->heads * shape->q_len;
    place_all(s, &seed);
    fill_parts(s, &seed);
    set_args(s);
    const size_t floats = (size_t)(s->rows * shape->dim);
    s->expected_out = malloc(floats * sizeof(float));
    s->expected_lse = malloc((size_t)s->rows * sizeof(float));
    s->old_out = malloc(floats * sizeof(float));
    s->old_lse = malloc((size_t)s->rows * sizeof(float));
    ask_model(s);
    copy_rows(&s->out, s->rows, s->old_out);
    copy_rows(&s->lse, s->rows, s->old_lse);
    size_t size;
    s->image = copy_memory(&s->memory, &size);
    return s;
}

static void trial_free(struct trial *s)
{
    free(s->expected_out);
    free(s->expected_lse);
    free(s->old_out);
    free(s->old_lse);
    free(s->image);
    free(s);
}

/* Returns whether the outputs are right. Puts the old rows back. */
static bool take_result(struct trial *s)
{
    const size_t floats = (size_t)(s->rows * s->shape.dim);
    float *got = malloc(floats * sizeof *got);
    copy_rows(&s->out, s->rows, got);
    bool right = same_bits(got, s->expected_out, floats);
    copy_rows(&s->lse, s->rows, got);
    right &= same_bits(got, s->args.lse.data ? s->expected_lse : s->old_lse, (size_t)s->rows);
    free(got);
    put_rows(&s->out, s->rows, s->old_out);
    put_rows(&s->lse, s->rows, s->old_lse);
    return right;
}

/* Returns whether nothing but the outputs was written. The caller calls take_result first, which
 * puts the old rows of the outputs back. */
static bool is_all_as_before(const struct trial *s)
{
    size_t size;
    char *image = copy_memory(&s->memory, &size);
    const bool same = memcmp(image, s->image, size) == 0;
    free(image);
    return same;
}

/* --- Ways to run a call ----------------------------------------------------------------------- */

typedef void task_function(void *arg, int64_t i);

static void in_reverse(void *pool, int64_t n, task_function *task, void *arg)
{
    (void)pool;
    for (int64_t i = n - 1; i >= 0; i--)
        task(arg, i);
}

/* Runs every task several times. Also calls `task` with numbers for which there is no task. A share
 * that runs again must change nothing, even in place. */
static void twice_and_beyond(void *pool, int64_t n, task_function *task, void *arg)
{
    (void)pool;
    task(arg, -1);
    task(arg, n);
    task(arg, INT64_MAX);
    task(arg, INT64_MIN);
    for (int64_t i = 0; i < 2 * n; i++)
        task(arg, i / 2);
    in_reverse(NULL, n, task, arg);
}

struct pool_task {
    pthread_t pthread;
    task_function *task;
    void *arg;
    int64_t i;
};

static void *run_pool_task(void *arg)
{
    struct pool_task *t = arg;
    t->task(t->arg, t->i);
    return NULL;
}

enum { MOST_THREADS = 5 };

static void on_threads(void *pool, int64_t n, task_function *task, void *arg)
{
    struct pool_task tasks[MOST_THREADS];
    (void)pool;
    for (int64_t i = 0; i < n; i++) {
        tasks[i] = (struct pool_task){.task = task, .arg = arg, .i = i};
        assert_int_equal(pthread_create(&tasks[i].pthread, NULL, run_pool_task, &tasks[i]), 0);
    }
    for (int64_t i = 0; i < n; i++)
        pthread_join(tasks[i].pthread, NULL);
}

static void expect_ok(const attnkit_merge_args *args, const attnkit_exec *exec)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = attnkit_merge(args, exec, message);
    if (status != ATTNKIT_OK || message[0] != '\0')
        fail_msg("%s: %s", attnkit_status_string(status), message);
}

enum { OWN_THREADS, WAYS = 4 };

static void run(const attnkit_merge_args *args, const char *isa, int64_t threads, int way)
{
    static void (*const ways[WAYS])(void *, int64_t, task_function *,
                                    void *) = {NULL, in_reverse, twice_and_beyond, on_threads};
    attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .threads = threads, .parallel_for = ways[way]};
    if (way != OWN_THREADS)
        expect_ok(args, &exec);
    else
        for (exec.thread = 0; exec.thread < threads; exec.thread++)
            expect_ok(args, &exec);
}

/* --- The same bits -----------------------------------------------------------------------------
 */

static const int64_t most_parts[] = {0, 1, 2, 3, 5, 8, 17, MAX_PARTS};

/* Dims around multiples of the vector widths, and of the number of columns in a tile. */
static const int64_t dims[] = {1,  2,  3,   4,   5,   7,   8,   9,   15,   16,   17,   31,  32,
                               33, 64, 100, 128, 129, 192, 200, 256, 1000, 2048, 2049, 4100};

static int64_t drawn_from(uint64_t *random, const int64_t *values, size_t count)
{
    return values[random_below(random, (int64_t)count)];
}

static struct shape draw_shape(uint64_t *random)
{
    struct shape s = {
        .parts = drawn_from(random, most_parts, COUNT(most_parts)),
        .batch = 1 + random_below(random, 3),
        .heads = 1 + random_below(random, 3),
        .q_len = 1 + random_below(random, 9),
        .dim = drawn_from(random, dims, COUNT(dims)),
        .layout = (enum layout_kind)random_below(random, LAYOUT_KINDS),
        .data = (enum data)random_below(random, DATA),
        .in_place = (enum in_place)random_below(random, IN_PLACE_KINDS),
        .with_lse = random_below(random, 8) > 0,
    };
    if (s.layout == BEFORE_GUARD || s.layout == AFTER_GUARD) {
        s.parts %= 7;
        s.dim = s.dim > SLOT_BYTES / 4 ? SLOT_BYTES / 4 : s.dim;
    }
    if (s.dim > 256) {
        s.batch = 1;
        s.heads = 1 + s.heads % 2;
        s.q_len = 1 + s.q_len % 3;
    }
    if (s.parts == 0 || s.layout == BROADCAST) /* no part to replace, or a part whose rows repeat */
        s.in_place = NOT_IN_PLACE;
    return s;
}

static void fail_with(const char *what, const char *isa, const struct shape *s, uint64_t seed)
{
    fail_msg("%s: %s, seed %llu, parts %d, rows %d x %d x %d, value_dim %d, layout %d, data %d, "
             "in place %d",
             what, isa, (unsigned long long)seed, (int)s->parts, (int)s->batch, (int)s->heads,
             (int)s->q_len, (int)s->dim, (int)s->layout, (int)s->data, (int)s->in_place);
}

/* The shape, the data, the layout, which outputs are in place, the number of threads and the way to
 * run a call are drawn at random. In guarded layouts, each row has an unmapped page right after it
 * (BEFORE_GUARD) or right before it (AFTER_GUARD), in which any access faults. */
static void bits_are_those_of_the_stated_order(void **state)
{
    enum { ROUNDS = 1000 };
    const char *isa = *state;
    int64_t values = 0;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        uint64_t random = seed;
        const struct shape shape = draw_shape(&random);
        struct trial *s = trial_new(&shape, seed);
        run(&s->args, isa, 1 + random_below(&random, MOST_THREADS),
            (int)random_below(&random, WAYS));
        if (!take_result(s))
            fail_with("wrong bits", isa, &shape, seed);
        if (!is_all_as_before(s))
            fail_with("other memory has changed", isa, &shape, seed);
        values += s->rows * shape.dim;
        trial_free(s);
    }
    printf("# %s: %lld values\n", isa, (long long)values);
}

static const struct shape plain_shape = {
    .parts = 3, .batch = 2, .heads = 3, .q_len = 7, .dim = 20, .with_lse = true};

static void every_number_of_threads_gives_the_bits_of_one_thread(void **state)
{
    const char *isa = *state;
    for (enum in_place in_place = 0; in_place < IN_PLACE_KINDS; in_place++) {
        struct shape shape = plain_shape;
        shape.in_place = in_place;
        struct trial *s = trial_new(&shape, 1);
        for (int64_t threads = 1; threads <= MOST_THREADS; threads++)
            for (int way = 0; way < WAYS; way++) {
                run(&s->args, isa, threads, way);
                assert_true(take_result(s));
                assert_true(is_all_as_before(s));
            }
        trial_free(s);
    }
}

/* The calls have 3000 threads. The call with 1 row has one share. The call with 5000 rows has the
 * largest number of shares, which is below 3000. */
static void threads_without_a_share_do_nothing(void **state)
{
    const char *isa = *state;
    for (int64_t rows = 1; rows <= 5000; rows += 4999) {
        const struct shape shape = {
            .parts = 2, .batch = 1, .heads = 1, .q_len = rows, .dim = 1, .with_lse = true};
        struct trial *s = trial_new(&shape, 1);
        run(&s->args, isa, 3000, OWN_THREADS);
        assert_true(take_result(s));
        trial_free(s);
    }
}

static void without_exec_one_thread_does_all_work(void **state)
{
    (void)state;
    struct trial *s = trial_new(&plain_shape, 1);
    expect_ok(&s->args, NULL);
    assert_true(take_result(s));
    assert_int_equal(attnkit_merge(&s->args, NULL, NULL), ATTNKIT_OK);
    assert_true(take_result(s));
    trial_free(s);
}

/* --- Special parts, in the words of include/attnkit/merge.h -------------------------------------
 */

enum { DIM = 5 };

struct small_result {
    float out[DIM], lse;
};

/* Merges one row from the parts out[i] and lse[i]. */
static struct small_result merge_row(int64_t parts, float out[][DIM], float *lse)
{
    const float *outs[MAX_PARTS], *lses[MAX_PARTS];
    struct small_result r;
    for (int64_t i = 0; i < parts; i++) {
        outs[i] = out[i];
        lses[i] = &lse[i];
    }
    const attnkit_merge_args args = {
        .size = sizeof args,
        .parts = parts,
        .batch = 1,
        .q_heads = 1,
        .q_len = 1,
        .value_dim = DIM,
        .part_outs = outs,
        .part_lses = lses,
        .out = {.data = r.out},
        .lse = {.data = &r.lse},
    };
    expect_ok(&args, NULL);
    return r;
}

static void expect_zeros(const struct small_result *r)
{
    for (int c = 0; c < DIM; c++)
        assert_true(r->out[c] == 0.0f && !signbit(r->out[c]));
    assert_true(r->lse == -INFINITY);
}

static void expect_nan_row(const struct small_result *r)
{
    for (int c = 0; c < DIM; c++)
        assert_true(isnan(r->out[c]));
    assert_true(isnan(r->lse));
}

static void no_parts_and_absent_parts_alone_give_zeros(void **state)
{
    (void)state;
    float out[3][DIM] = {{NAN, INFINITY, 1.0f}, {-0.0f, -1.0f}, {NAN, NAN, NAN, NAN, NAN}};
    float lse[3] = {-INFINITY, -INFINITY, -INFINITY};
    for (int64_t parts = 0; parts <= 3; parts++) {
        const struct small_result r = merge_row(parts, out, lse);
        expect_zeros(&r);
    }
}

static void an_absent_part_changes_no_bit(void **state)
{
    (void)state;
    float present[2][DIM] = {{1.0f, -2.0f, 3.0f, 1e-40f, -0.0f}, {0.1f, 0.2f, 0.3f, 0.4f, -0.0f}};
    float present_lse[2] = {-700.25f, -700.5f};
    const struct small_result expected = merge_row(2, present, present_lse);
    for (int place = 0; place < 3; place++) {
        float out[3][DIM], lse[3];
        for (int i = 0, from = 0; i < 3; i++) {
            const bool absent = i == place;
            lse[i] = absent ? -INFINITY : present_lse[from];
            for (int c = 0; c < DIM; c++)
                out[i][c] = absent ? (c % 2 ? NAN : INFINITY) : present[from][c];
            from += !absent;
        }
        const struct small_result got = merge_row(3, out, lse);
        assert_memory_equal(&got, &expected, sizeof got);
    }
}

/* One of the parts has an lse of NaN or +infinity, or an lse whose product with log2 e is above the
 * range of binary32. */
static void an_lse_of_nan_or_infinity_makes_the_row_nan(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, 2.36e38f, 3e38f, 3.4028235e38f};
    static const float others[] = {0.0f, -1e4f, 1e4f, 2.3e38f, -2.3e38f, -INFINITY};
    for (size_t i = 0; i < COUNT(bad); i++)
        for (size_t j = 0; j < COUNT(others); j++)
            for (int place = 0; place < 3; place++) {
                float out[3][DIM] = {{1.0f}, {2.0f}, {3.0f}};
                float lse[3] = {others[j], others[j], others[j]};
                lse[place] = bad[i];
                const struct small_result r = merge_row(3, out, lse);
                expect_nan_row(&r);
            }
}

static void a_nan_in_out_makes_its_column_nan(void **state)
{
    (void)state;
    for (int place = 0; place < 2; place++) {
        float out[2][DIM] = {{1.0f, 2.0f, 3.0f, 4.0f, 5.0f}, {1.0f, 2.0f, 3.0f, 4.0f, 5.0f}};
        float lse[2] = {0.0f, 0.0f};
        out[place][2] = NAN;
        lse[place] = -1000.0f; /* the weight of this part is 0 */
        const struct small_result r = merge_row(2, out, lse);
        for (int c = 0; c < DIM; c++)
            assert_true(c == 2 ? isnan(r.out[c]) : r.out[c] == (float)(c + 1));
        assert_true(r.lse == 0.0f);
    }
}

/* Finite values may have any magnitude. The sums of the products of weights and values do not
 * overflow. */
static void finite_parts_give_a_finite_row(void **state)
{
    (void)state;
    enum { PARTS = 30 };
    float out[PARTS][DIM], lse[PARTS];
    for (int i = 0; i < PARTS; i++) {
        const float row[DIM] = {FLT_MAX, -FLT_MAX, i % 2 ? FLT_MAX : -FLT_MAX, FLT_TRUE_MIN, 1.0f};
        memcpy(out[i], row, sizeof row);
        lse[i] = 0.3f;
    }
    for (int parts = 2; parts <= PARTS; parts += 2) {
        const struct small_result r = merge_row(parts, out, lse);
        const float expected[DIM] = {FLT_MAX, -FLT_MAX, 0.0f, FLT_TRUE_MIN, 1.0f};
        assert_memory_equal(r.out, expected, sizeof expected);
    }
}

/* The part with the larger lse has all the weight. Parts with equal lse have equal weights. */
static void extreme_lses_are_weighed(void **state)
{
    (void)state;
    static const float large[] = {200.0f, 1e4f, 8388607.0f, 8388608.0f, 1.2e7f, 1e20f, 2.35e38f};
    for (size_t i = 0; i < COUNT(large); i++) {
        float out[2][DIM] = {{1.0f, 1.0f, 1.0f, 1.0f, 1.0f}, {3.0f, 3.0f, 3.0f, 3.0f, 3.0f}};
        float apart[2] = {-large[i], large[i]}, high[2] = {large[i], large[i]};
        float low[2] = {-large[i], -large[i]};
        struct small_result r = merge_row(2, out, apart);
        assert_true(r.out[0] == 3.0f && fabsf(r.lse - large[i]) <= 2e-7f * large[i]);
        r = merge_row(2, out, high);
        assert_true(r.out[0] == 2.0f && fabsf(r.lse - large[i]) <= 0.7f + 2e-7f * large[i]);
        r = merge_row(2, out, low);
        assert_true(r.out[0] == 2.0f && fabsf(r.lse + large[i]) <= 0.7f + 2e-7f * large[i]);
    }
    /* A part whose lse times log2 e is below the range of binary32 counts as absent. */
    float out[2][DIM] = {{1.0f, NAN}, {2.0f, NAN}}, beyond[2] = {-2.36e38f, -3e38f};
    const struct small_result r = merge_row(2, out, beyond);
    expect_zeros(&r);
}

/* --- Results of 16 bits ---------------------------------------------------------------------- */

/* Some rows are so wide that they take several tiles of columns. */
static void results_of_16_bits_are_those_of_32_rounded_once(void **state)
{
    enum { PARTS = 3, ROWS = 5, MARGIN = 4 };
    const char *isa = *state;
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    static const int64_t widths[] = {1, 7, 33, 2500};
    uint64_t random = 1;
    for (size_t w = 0; w < COUNT(widths); w++)
        for (attnkit_type type = ATTNKIT_F16; type <= ATTNKIT_BF16; type++) {
            const size_t count = (size_t)(ROWS * widths[w]);
            float *part_outs[PARTS], lses[PARTS][ROWS], *lse_rows[PARTS];
            for (int i = 0; i < PARTS; i++) {
                part_outs[i] = malloc(count * sizeof(float));
                lse_rows[i] = lses[i];
                for (size_t j = 0; j < count; j++)
                    part_outs[i][j] = 100.0f * random_uniform(&random);
                for (int r = 0; r < ROWS; r++)
                    lses[i][r] = 5.0f * random_uniform(&random);
            }
            float *whole = malloc(count * sizeof *whole);
            uint16_t *rounded = malloc((count + MARGIN) * sizeof *rounded);
            uint16_t *expected = malloc((count + MARGIN) * sizeof *expected);
            memset(rounded, 0xa5, (count + MARGIN) * sizeof *rounded);
            memset(expected, 0xa5, (count + MARGIN) * sizeof *expected);
            attnkit_merge_args args = {.size = sizeof args,
                                       .parts = PARTS,
                                       .batch = 1,
                                       .q_heads = 1,
                                       .q_len = ROWS,
                                       .value_dim = widths[w],
                                       .part_outs = (const float *const *)part_outs,
                                       .part_lses = (const float *const *)lse_rows,
                                       .out = {.data = whole}};
            expect_ok(&args, &exec);
            args.out = (attnkit_tensor){.data = rounded, .type = type};
            expect_ok(&args, &exec);
            attnkit_scalar_narrow((enum type)type, whole, (int64_t)count, 0, expected, NULL);
            assert_memory_equal(rounded, expected, (count + MARGIN) * sizeof *expected);
            for (int i = 0; i < PARTS; i++)
                free(part_outs[i]);
            free(whole);
            free(rounded);
            free(expected);
        }
}

/* --- All tests ---------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    CMUnitTestFunction function;
} isa_tests[] = {
    {"bits are those of the stated order", bits_are_those_of_the_stated_order},
    {"any number of threads", every_number_of_threads_gives_the_bits_of_one_thread},
    {"threads without a share", threads_without_a_share_do_nothing},
    {"results of 16 bits", results_of_16_bits_are_those_of_32_rounded_once},
};

static const struct CMUnitTest plain_tests[] = {
    cmocka_unit_test(without_exec_one_thread_does_all_work),
    cmocka_unit_test(no_parts_and_absent_parts_alone_give_zeros),
    cmocka_unit_test(an_absent_part_changes_no_bit),
    cmocka_unit_test(an_lse_of_nan_or_infinity_makes_the_row_nan),
    cmocka_unit_test(a_nan_in_out_makes_its_column_nan),
    cmocka_unit_test(finite_parts_give_a_finite_row),
    cmocka_unit_test(extreme_lses_are_weighed),
};

int main(void)
{
    static struct CMUnitTest tests[COUNT(plain_tests) + MAX_ISAS * COUNT(isa_tests)];
    static char names[MAX_ISAS][COUNT(isa_tests)][80];
    size_t count = COUNT(plain_tests);
    memcpy(tests, plain_tests, sizeof plain_tests);
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++)
        for (size_t j = 0; attnkit_isa_can_run(&isas[i]) && j < COUNT(isa_tests); j++) {
            snprintf(names[i][j], sizeof names[i][j], "%s: %s", isas[i].name, isa_tests[j].name);
            tests[count++] = (struct CMUnitTest){names[i][j], isa_tests[j].function, NULL, NULL,
                                                 (void *)(uintptr_t)isas[i].name};
        }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("merge", tests, count, NULL, NULL);
    memory_end();
    return failed;
}
