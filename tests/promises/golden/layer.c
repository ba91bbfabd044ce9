/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden cases of layers, in self- and cross-attention, with packed weights of each type. In other
 * cases, sequences grow in a cache. The cache has one of five types, tiles or rows, and pages or
 * none. The hash of a case covers the packed weights and the results of its calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/scalar/scalar.h"
#include "tests/promises/golden/hash.h"
#include "tests/promises/golden/kind.h"
#include "tests/support/layer/run.h"

static const uint64_t SEED = 16, CACHE_SEED = 17;

enum {
    STORAGES = 10, /* five types, each with K in rows or in tiles */
    STEPS = 4,
    CAPACITY = 48, /* rows of a cache */
    PAGE = 16,
    BATCH = 2,
    PIECES = 24,
    ALIGNMENT = 64,
};

static const int64_t step_rows[STEPS] = {21, 1, 1, 5};

struct layer_case {
    uint64_t seed;
    attnkit_layer_weights w; /* dims and types only; all pointers are NULL */
    attnkit_type x, out;
    attnkit_rope rope;
    bool is_self, has_biases, by_angles, is_causal, has_sinks, has_weights, has_mean;
    bool is_cached, tiled, paged;
    attnkit_type cache;
    int64_t batch, q_len, kv_len;
    double softcap;
};

/* Draws the numbers of heads and all dims. A matrix in blocks of 32 elements gets rows of whole
 * blocks. */
static void draw_dims(struct layer_case *c, uint64_t *random)
{
    static const int64_t heads[][2] = {{1, 1}, {4, 2}, {6, 1}, {2, 2}, {8, 2}};
    const int64_t choice = random_below(random, 5);
    attnkit_layer_weights *const w = &c->w;
    const bool in_blocks = w->w_type == ATTNKIT_Q8_0 || w->packed_type == ATTNKIT_Q8_0;
    const int64_t unit = in_blocks ? 32 : 1, most = in_blocks ? 3 : 70;
    w->q_heads = heads[choice][0];
    w->kv_heads = heads[choice][1];
    w->head_dim = 2 * (1 + random_below(random, 20));
    w->value_dim = in_blocks || c->is_cached ? 32 : 1 + random_below(random, 40);
    w->head_dim = c->is_cached ? 32 : w->head_dim;
    w->d_model = unit * (1 + random_below(random, most));
    w->d_key = c->is_self ? w->d_model : unit * (1 + random_below(random, most));
    w->d_value = c->is_self ? w->d_model : unit * (1 + random_below(random, most));
    w->d_out = 1 + random_below(random, 70);
}

static void draw_types(struct layer_case *c, uint64_t *random)
{
    static const attnkit_type types[] = {ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_Q8_0};
    c->w.w_type = types[random_below(random, 4)];
    c->w.packed_type = c->w.w_type == ATTNKIT_Q8_0 ? ATTNKIT_Q8_0 : types[random_below(random, 4)];
    c->w.bias_type = types[random_below(random, 3)];
    c->x = types[random_below(random, 3)];
    c->out = types[random_below(random, 3)];
}

static struct layer_case draw_layer(const struct golden_kind *kind, int number)
{
    static const attnkit_type caches[] = {ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_I8,
                                          ATTNKIT_Q8_0};
    struct layer_case c = {.is_cached = strcmp(kind->name, "layer-cache") == 0};
    uint64_t random = golden_random(c.is_cached ? CACHE_SEED : SEED, number);
    c.seed = random_bits(&random);
    c.w.size = sizeof c.w;
    c.is_self = c.is_cached || number % 3;
    draw_types(&c, &random);
    draw_dims(&c, &random);
    c.has_biases = golden_one_in(&random, 2);
    c.batch = 1 + random_below(&random, BATCH);
    c.q_len = 1 + random_below(&random, number % 5 ? 12 : 80);
    c.kv_len = c.is_self ? 0 : random_below(&random, 60);
    c.rope = c.is_self ? (attnkit_rope)random_below(&random, 3) : ATTNKIT_ROPE_NONE;
    c.by_angles = golden_one_in(&random, 2);
    c.is_causal = golden_one_in(&random, 2);
    c.has_sinks = golden_one_in(&random, 3);
    c.has_weights = golden_one_in(&random, 3);
    c.has_mean = golden_one_in(&random, 3);
    c.softcap = golden_one_in(&random, 3) ? 5.0 : 0.0;
    c.paged = golden_one_in(&random, 2);
    if (c.is_cached) {
        c.cache = caches[number % STORAGES / 2];
        c.tiled = number % 2;
    }
    return c;
}

/* --- Memory ----------------------------------------------------------------------------------- */

struct layer_memory {
    attnkit_layer_args args;
    attnkit_attention_args attention;
    attnkit_rotation rotation;
    struct groups groups; /* the groups to which attention points */
    char *packed;
    size_t packed_size;
    float *lse, *weights, *mean;
    char *out;
    int64_t keys; /* columns of `weights` and of `mean` */
    int64_t cached[BATCH];
    int32_t table[BATCH * CAPACITY / PAGE];
    float sinks[8];
    uint64_t random;
    int pieces;
    void *piece[PIECES];
};

static void *take(struct layer_memory *m, int64_t bytes)
{
    const size_t whole = ((size_t)bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    assert_true(m->pieces < PIECES);
    m->piece[m->pieces] = aligned_alloc(ALIGNMENT, whole);
    memset(m->piece[m->pieces], 0, whole);
    return m->piece[m->pieces++];
}

/* Allocates rows of random numbers from [-factor, factor), in a type. */
static void *take_rows(struct layer_memory *m, attnkit_type type, int64_t rows, int64_t dim,
                       float factor)
{
    const int64_t bytes = bytes_of((enum type)type, dim);
    char *const to = take(m, rows * bytes);
    float *const x = malloc((size_t)dim * sizeof *x);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < dim; i++)
            x[i] = factor * random_uniform(&m->random);
        attnkit_scalar_narrow((enum type)type, x, dim, dim, to + row * bytes, NULL);
    }
    free(x);
    return to;
}

static void pack(struct layer_memory *m, const struct layer_case *c, const char *isa)
{
    attnkit_layer_weights w = c->w;
    char message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    const int64_t q = w.q_heads * w.head_dim, k = w.kv_heads * w.head_dim;
    const int64_t v = w.kv_heads * w.value_dim, result = w.q_heads * w.value_dim;
    w.w_q = take_rows(m, w.w_type, q, w.d_model, 0.3f);
    w.w_k = take_rows(m, w.w_type, k, w.d_key, 0.3f);
    w.w_v = take_rows(m, w.w_type, v, w.d_value, 0.3f);
    w.w_o = take_rows(m, w.w_type, w.d_out, result, 0.3f);
    if (c->has_biases) {
        w.b_q = take_rows(m, w.bias_type, 1, q, 1.0f);
        w.b_k = take_rows(m, w.bias_type, 1, k, 1.0f);
        w.b_v = take_rows(m, w.bias_type, 1, v, 1.0f);
        w.b_o = take_rows(m, w.bias_type, 1, w.d_out, 1.0f);
    }
    if (attnkit_layer_packed_size(&w, &m->packed_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    m->packed = take(m, (int64_t)m->packed_size);
    if (attnkit_layer_pack(&w, m->packed, m->packed_size, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
}

static void make_rotation(struct layer_memory *m, const struct layer_case *c)
{
    attnkit_rotation *const r = &m->rotation;
    attnkit_rotation_init(r);
    if (c->rope == ATTNKIT_ROPE_NONE)
        return;
    r->kind = c->rope;
    if (!c->by_angles) {
        r->table_positions = 80 + CAPACITY;
        r->cos = take_rows(m, ATTNKIT_F32, r->table_positions, c->w.head_dim / 2, 1.0f);
        r->sin = take_rows(m, ATTNKIT_F32, r->table_positions, c->w.head_dim / 2, 1.0f);
    }
    m->args.rotation = r;
}

static void make_cache(struct layer_memory *m, const struct layer_case *c)
{
    attnkit_attention_args *const a = &m->attention;
    const int64_t rows = c->batch * c->w.kv_heads * CAPACITY;
    m->args.cached.data = m->cached;
    a->kv_len = CAPACITY;
    a->k.type = a->v.type = c->cache;
    a->k.layout = c->tiled ? ATTNKIT_TILED : 0;
    a->k.data = take(m, rows * bytes_of((enum type)c->cache, c->w.head_dim));
    a->v.data = take(m, rows * bytes_of((enum type)c->cache, c->w.value_dim));
    if (c->cache == ATTNKIT_I8) {
        m->groups.storage.k_scales.data = take(m, rows * (int64_t)sizeof(float));
        m->groups.storage.v_scales.data = take(m, rows * (int64_t)sizeof(float));
    }
    if (!c->paged)
        return;
    attnkit_pages *const p = &m->groups.pages;
    p->block_table = m->table;
    p->page_size = PAGE;
    p->block_table_stride = CAPACITY / PAGE;
    p->pages = c->batch * CAPACITY / PAGE;
    for (int64_t i = 0; i < p->pages; i++)
        m->table[i] = (int32_t)(p->pages - 1 - i);
}

static void make_options(struct layer_memory *m, const struct layer_case *c)
{
    attnkit_attention_args *const a = &m->attention;
    attnkit_attention_args_init(a);
    groups_init(&m->groups);
    groups_hang(a, &m->groups);
    m->args.attention = a;
    if (c->is_causal) {
        a->flags |= ATTNKIT_CAUSAL;
        a->align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    }
    for (int h = 0; h < 8; h++)
        m->sinks[h] = random_uniform(&m->random);
    m->groups.scores.sinks = c->has_sinks ? m->sinks : NULL;
    m->groups.scores.softcap = c->softcap;
}

/* Allocates memory for the results of q_len rows of each entry. */
static void make_results(struct layer_memory *m, const struct layer_case *c, int64_t q_len)
{
    const int64_t rows = c->batch * q_len, lines = rows * c->w.q_heads;
    const int64_t element = (int64_t)sizeof(float);
    m->keys = c->is_cached ? CAPACITY : c->is_self ? q_len : c->kv_len;
    m->out = take(m, rows * c->w.d_out * element);
    m->lse = take(m, lines * element);
    m->weights = take(m, lines * m->keys * element);
    m->mean = take(m, rows * m->keys * element);
    m->args.out = (attnkit_tensor){.data = m->out, .type = c->out};
    m->attention.lse.data = m->lse;
    if (c->has_weights) {
        m->groups.weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
        m->groups.weights.weights.data = m->weights;
    }
    m->args.mean_weights = c->has_mean ? m->mean : NULL;
}

static struct layer_memory *new_memory(const struct layer_case *c, const char *isa)
{
    struct layer_memory *const m = calloc(1, sizeof *m);
    attnkit_layer_args *const a = &m->args;
    m->random = c->seed;
    pack(m, c, isa);
    attnkit_layer_args_init(a);
    a->packed = m->packed;
    a->packed_size = m->packed_size;
    a->batch = c->batch;
    make_options(m, c);
    make_rotation(m, c);
    if (c->is_cached)
        make_cache(m, c);
    make_results(m, c, c->is_cached ? step_rows[0] : c->q_len);
    return m;
}

static void free_memory(struct layer_memory *m)
{
    for (int i = 0; i < m->pieces; i++)
        free(m->piece[i]);
    free(m);
}

/* --- Hashes ----------------------------------------------------------------------------------- */

/* Runs a call with q_len newly drawn rows of x in each entry. Returns `hash` continued over the
 * call's results. */
static uint64_t hash_call(uint64_t hash, struct layer_memory *m, const struct layer_case *c,
                          int64_t q_len, const char *isa)
{
    const size_t rows = (size_t)(c->batch * q_len), lines = rows * (size_t)c->w.q_heads;
    attnkit_layer_args *const a = &m->args;
    a->q_len = q_len;
    a->x = (attnkit_tensor){.data = take_rows(m, c->x, (int64_t)rows, c->w.d_model, 1.0f),
                            .type = c->x};
    layer_call_run(a, (struct layer_way){.isa = isa, .threads = 1});
    hash = hash_elements(hash, c->out, m->out, rows * (size_t)c->w.d_out);
    hash = hash_floats(hash, m->lse, lines);
    if (c->has_weights)
        hash = hash_floats(hash, m->weights, lines * (size_t)m->keys);
    if (c->has_mean)
        hash = hash_floats(hash, m->mean, rows * (size_t)m->keys);
    return hash;
}

static void set_cross(struct layer_memory *m, const struct layer_case *c)
{
    const int64_t rows = c->batch * c->kv_len;
    m->args.kv_len = c->kv_len;
    m->args.key =
        (attnkit_tensor){.data = take_rows(m, c->x, rows, c->w.d_key, 1.0f), .type = c->x};
    m->args.value =
        (attnkit_tensor){.data = take_rows(m, c->x, rows, c->w.d_value, 1.0f), .type = c->x};
}

static uint64_t hash_of(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)way;
    const struct layer_case c = draw_layer(kind, number);
    const char *const run_by = isa ? isa : "scalar";
    struct layer_memory *const m = new_memory(&c, run_by);
    uint64_t hash = hash_bytes(HASH_BEGIN, m->packed, m->packed_size);
    if (!c.is_self)
        set_cross(m, &c);
    if (!c.is_cached)
        hash = hash_call(hash, m, &c, c.q_len, run_by);
    for (int step = 0; step < STEPS && c.is_cached; step++) {
        hash = hash_call(hash, m, &c, step_rows[step], run_by);
        for (int64_t b = 0; b < c.batch; b++)
            m->cached[b] += step_rows[step];
    }
    free_memory(m);
    return hash;
}

static void print(const struct golden_kind *kind, int number)
{
    const struct layer_case c = draw_layer(kind, number);
    const attnkit_layer_weights *const w = &c.w;
    printf("# H%d/%d D%d/%d, %d %d %d to %d, types w %d packed %d bias %d x %d out %d\n",
           (int)w->q_heads, (int)w->kv_heads, (int)w->head_dim, (int)w->value_dim, (int)w->d_model,
           (int)w->d_key, (int)w->d_value, (int)w->d_out, w->w_type, w->packed_type,
           c.has_biases ? w->bias_type : -1, c.x, c.out);
    printf("# B%d, %d x %d, rotation %d%s%s%s%s%s, softcap %g, cache %d%s%s\n", (int)c.batch,
           (int)c.q_len, (int)c.kv_len, c.rope, c.by_angles ? " by angles" : "",
           c.is_causal ? ", causal" : "", c.has_sinks ? ", sinks" : "",
           c.has_weights ? ", weights" : "", c.has_mean ? ", mean" : "", c.softcap,
           c.is_cached ? c.cache : -1, c.tiled ? " tiled" : "", c.paged ? " paged" : "");
}

static const struct golden_kind kinds[] = {
    {"layer", 200, 1, hash_of, print, NULL},
    {"layer-cache", 90, 1, hash_of, print, NULL},
};

const struct golden_kinds golden_layer = {kinds, sizeof kinds / sizeof kinds[0]};
