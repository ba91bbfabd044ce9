/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/accuracy/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/blocks.h"
#include "tests/support/formats.h"
#include "tests/support/random.h"

/* --- The distributions ----------------------------------------------------------------------- */

static float k_plus_100(float normal)
{
    return normal + 100.0f;
}

static float k_1e_20(float normal)
{
    return normal * 1e-20f;
}

static float v_sign_1e4(float normal)
{
    return normal < 0.0f ? -1e4f : 1e4f;
}

static float v_subnormal(float normal)
{
    return normal * 1e-40f;
}

static float v_plus_1000(float normal)
{
    return normal + 1000.0f;
}

/* In row 0, one key has all the weight. */
static double middle_1000(int64_t key, int64_t kv_len)
{
    return key == kv_len / 2 ? 1000.0 : 0.0;
}

/* In row 0, the first key has far more weight than any other key, as in trained models. */
static double first_12(int64_t key, int64_t kv_len)
{
    (void)kv_len;
    return key == 0 ? 12.0 : 0.0;
}

/* The scores of row 0 rise by some 30 from the first key to the last, so that the maximum grows
 * again and again. */
static double rising_30(int64_t key, int64_t kv_len)
{
    return 30.0 * (double)key / (double)kv_len;
}

const struct distribution distributions[DISTRIBUTIONS] = {
    {.name = "normal"},
    {.name = "logits x8", .q_times = 8.0f},
    {.name = "logits x64", .q_times = 64.0f},
    {.name = "one huge logit", .added = middle_1000},
    {.name = "equal logits", .equal_keys = true},
    {.name = "K + 100", .k = k_plus_100},
    {.name = "V = +-1e4", .v = v_sign_1e4},
    {.name = "V subnormal", .v = v_subnormal},
    {.name = "K 1e-20", .k = k_1e_20},
    {.name = "V + 1000", .v = v_plus_1000},
    {.name = "sink", .added = first_12},
    {.name = "rising maximum", .added = rising_30},
};

/* --- Settings -------------------------------------------------------------------------------- */

float *floats(int64_t count)
{
    float *f = malloc((size_t)count * sizeof *f);
    assert_non_null(f);
    return f;
}

static float *normals(int64_t count, uint64_t *random)
{
    float *f = floats(count);
    for (int64_t i = 0; i < count; i++)
        f[i] = random_normal(random);
    return f;
}

struct draw draw_new(const struct shape *shape, int64_t rows, uint64_t seed)
{
    uint64_t random = seed;
    struct draw d;
    d.q = normals(rows * shape->head_dim, &random);
    d.k = normals(shape->kv_len * shape->head_dim, &random);
    d.v = normals(shape->kv_len * shape->value_dim, &random);
    return d;
}

void draw_free(struct draw *d)
{
    free(d->q);
    free(d->k);
    free(d->v);
}

static float *copy_of(const float *f, int64_t count)
{
    return memcpy(floats(count), f, (size_t)count * sizeof *f);
}

static void change(float *f, int64_t count, float (*to)(float normal))
{
    for (int64_t i = 0; to && i < count; i++)
        f[i] = to(f[i]);
}

/* Adds a multiple of the first query row to every key. The key's score for row 0 then grows by the
 * number that the distribution adds. */
static void add_to_scores(const struct distribution *d, const struct shape *shape, const float *q,
                          float *k)
{
    const int64_t dim = shape->head_dim;
    double square = 0.0;
    for (int64_t i = 0; i < dim; i++)
        square += (double)q[i] * q[i];
    for (int64_t j = 0; j < shape->kv_len; j++)
        for (int64_t i = 0; i < dim; i++)
            k[j * dim + i] +=
                (float)(d->added(j, shape->kv_len) * sqrt((double)dim) / square * q[i]);
}

/* Makes a setting from the given numbers. The setting then owns the numbers. */
static struct setting make_setting(const struct distribution *d, const struct shape *shape,
                                   int64_t rows, struct draw own)
{
    const int64_t dim = shape->head_dim, keys = shape->kv_len;
    struct setting s = {
        .q = own.q,
        .k = own.k,
        .v = own.v,
        .out = floats(rows * shape->value_dim),
        .lse = floats(rows),
    };
    for (int64_t i = 0; d->q_times != 0.0f && i < rows * dim; i++)
        s.q[i] *= d->q_times;
    for (int64_t j = 1; d->equal_keys && j < keys; j++)
        memcpy(s.k + j * dim, s.k, (size_t)dim * sizeof *s.k);
    change(s.k, keys * dim, d->k);
    change(s.v, keys * shape->value_dim, d->v);
    if (d->added)
        add_to_scores(d, shape, s.q, s.k);
    s.args = (attnkit_attention_args){
        .size = sizeof s.args,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = rows,
        .kv_len = keys,
        .head_dim = dim,
        .value_dim = shape->value_dim,
        .q = {.data = s.q},
        .k = {.data = s.k},
        .v = {.data = s.v},
        .out = {.data = s.out},
        .lse = {.data = s.lse},
    };
    return s;
}

struct setting setting_new(const struct distribution *d, const struct shape *shape, int64_t rows,
                           uint64_t seed)
{
    return make_setting(d, shape, rows, draw_new(shape, rows, seed));
}

struct setting setting_of(const struct distribution *d, const struct shape *shape, int64_t rows,
                          const struct draw *draw)
{
    const struct draw own = {.q = copy_of(draw->q, rows * shape->head_dim),
                             .k = copy_of(draw->k, shape->kv_len * shape->head_dim),
                             .v = copy_of(draw->v, shape->kv_len * shape->value_dim)};
    return make_setting(d, shape, rows, own);
}

void setting_free(struct setting *s)
{
    free(s->q);
    free(s->k);
    free(s->v);
    free(s->out);
    free(s->lse);
}

/* --- K and V of other types ------------------------------------------------------------------- */

const struct storage storages[STORAGES] = {
    {"f16", ATTNKIT_F16, 0, 20261421},       {"bf16", ATTNKIT_BF16, 0, 20261421},
    {"i8", ATTNKIT_I8, 32, 20261421},        {"q8_0", ATTNKIT_Q8_0, 0, 20261421},
    {"q4_0", ATTNKIT_Q4_0, 0, 20261441},     {"q4_1", ATTNKIT_Q4_1, 0, 20261421},
    {"q5_0", ATTNKIT_Q5_0, 0, 20261441},     {"q5_1", ATTNKIT_Q5_1, 0, 20261431},
    {"iq4_nl", ATTNKIT_IQ4_NL, 0, 20261431}, {"q1_0", ATTNKIT_Q1_0, 0, 20261421},
    {"q2_0", ATTNKIT_Q2_0, 0, 20261421},     {"f8_e4m3", ATTNKIT_F8_E4M3, 32, 20261421},
};

static void *store(const struct storage *as, int64_t group, const float *rows, int64_t count,
                   int64_t dim, float *scales)
{
    const enum type type = (enum type)as->type;
    const int64_t row_bytes = bytes_of(type, dim), groups = group ? dim / group : 0;
    char *const stored = malloc((size_t)(count * row_bytes));
    assert_non_null(stored);
    for (int64_t i = 0; i < count; i++)
        store_row(type, rows + i * dim, dim, group, stored + i * row_bytes,
                  scales ? scales + i * groups : NULL);
    return stored;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct stored *stored_new(const struct storage *as, const struct setting *s)
{
    const int64_t keys = s->args.kv_len, k_dim = s->args.head_dim, v_dim = s->args.value_dim;
    const int64_t k_group = smaller(as->group, k_dim), v_group = smaller(as->group, v_dim);
    struct stored *const r = malloc(sizeof *r);
    assert_non_null(r);
    *r = (struct stored){.args = s->args,
                         .k_scales = as->group ? floats(keys * (k_dim / k_group)) : NULL,
                         .v_scales = as->group ? floats(keys * (v_dim / v_group)) : NULL};
    r->k = store(as, k_group, s->k, keys, k_dim, r->k_scales);
    r->v = store(as, v_group, s->v, keys, v_dim, r->v_scales);
    r->storage = (attnkit_kv_storage){.size = sizeof r->storage,
                                      .k_scales = {.data = r->k_scales},
                                      .v_scales = {.data = r->v_scales},
                                      .k_scale_group = k_group,
                                      .v_scale_group = v_group};
    r->args.k.data = r->k;
    r->args.v.data = r->v;
    r->args.k.type = r->args.v.type = as->type;
    r->args.storage = &r->storage;
    return r;
}

void stored_free(struct stored *s)
{
    free(s->k);
    free(s->v);
    free(s->k_scales);
    free(s->v_scales);
    free(s);
}
