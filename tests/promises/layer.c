/* SPDX-License-Identifier: Apache-2.0
 *
 * The layer is what its parts are: the same bits as linear maps, appends and one attention call for
 * each head, one after the other, on every instruction set and any number of threads, for any of
 * the attention's options. With a cache each step of a sequence has the bits of the whole. And
 * heads that are repeated in memory have those of heads that are shared. A case is drawn from its
 * number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "attnkit.h"
#include "tests/support/random.h"

enum {
    CASES = 60,
    MAX_ISAS = 8,
    MAX_BATCH = 3,
    MAX_THREADS = 3,
    ALIGNMENT = 64,
};

static const char *isas[MAX_ISAS]; /* that can run */
static int isa_count;

/* ---------------------------------------------------------------------------------- a layer */

static float *random_floats(int64_t count, uint64_t *random)
{
    float *x = malloc((size_t)count * sizeof *x + 1);
    for (int64_t i = 0; i < count; i++)
        x[i] = random_uniform(random);
    return x;
}

/* Unpacked, as the caller has it, and packed. */
struct layer {
    attnkit_layer_weights w;
    int64_t d_key, d_value, d_out, kv_heads, value_dim; /* without defaults */
    char *packed;
    size_t size;
};

static void draw_layer(struct layer *l, bool is_self, uint64_t *random)
{
    attnkit_layer_weights *const w = &l->w;
    *w = (attnkit_layer_weights){.size = sizeof *w};
    const int64_t heads[][2] = {{1, 0}, {4, 2}, {6, 1}, {2, 2}, {8, 2}};
    const int64_t choice = random_below(random, 5);
    w->q_heads = heads[choice][0];
    w->kv_heads = heads[choice][1];
    w->head_dim = 2 * (1 + random_below(random, 20));
    w->d_model = 1 + random_below(random, 70);
    if (random_below(random, 3) == 0) {
        w->d_model = w->q_heads * w->head_dim;
        w->head_dim = 0;
    }
    if (random_below(random, 3) == 0)
        w->value_dim = 1 + random_below(random, 40);
    if (random_below(random, 3) == 0)
        w->d_out = 1 + random_below(random, 60);
    if (!is_self && random_below(random, 2))
        w->d_key = 1 + random_below(random, 60);
    if (!is_self && random_below(random, 2))
        w->d_value = 1 + random_below(random, 60);
    const int64_t head_dim = w->head_dim ? w->head_dim : w->d_model / w->q_heads;
    l->kv_heads = w->kv_heads ? w->kv_heads : w->q_heads;
    l->value_dim = w->value_dim ? w->value_dim : head_dim;
    l->d_out = w->d_out ? w->d_out : w->d_model;
    l->d_key = w->d_key ? w->d_key : w->d_model;
    l->d_value = w->d_value ? w->d_value : l->d_key;
    w->head_dim = head_dim;
    const bool biases = random_below(random, 2);
    const int64_t q = w->q_heads * head_dim, k = l->kv_heads * head_dim;
    const int64_t v = l->kv_heads * l->value_dim;
    w->w_q = random_floats(q * w->d_model, random);
    w->w_k = random_floats(k * l->d_key, random);
    w->w_v = random_floats(v * l->d_value, random);
    w->w_o = random_floats(l->d_out * w->q_heads * l->value_dim, random);
    w->b_q = biases ? random_floats(q, random) : NULL;
    w->b_k = biases ? random_floats(k, random) : NULL;
    w->b_v = biases ? random_floats(v, random) : NULL;
    w->b_o = biases ? random_floats(l->d_out, random) : NULL;
}

static void pack_layer(struct layer *l)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    assert_int_equal(attnkit_layer_packed_size(&l->w, &l->size, message), ATTNKIT_OK);
    l->packed = aligned_alloc(ALIGNMENT, l->size);
    assert_int_equal(attnkit_layer_pack(&l->w, l->packed, l->size, NULL, message), ATTNKIT_OK);
}

static void free_layer(struct layer *l)
{
    const void *const all[] = {l->w.w_q, l->w.w_k, l->w.w_v, l->w.w_o,
                               l->w.b_q, l->w.b_k, l->w.b_v, l->w.b_o};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free((void *)(uintptr_t)all[i]);
    free(l->packed);
}

/* ------------------------------------------------------------------------ its parts, by hand */

static void *workspace(size_t bytes)
{
    return bytes ? malloc(bytes) : NULL;
}

/* y [rows][out] = x wᵀ + b, on the scalar tiles. */
static float *linear(const void *w, const void *b, const float *x, int64_t rows, int64_t in,
                     int64_t out)
{
    attnkit_pack_args p = {.size = sizeof p, .out_dim = out, .in_dim = in, .w = w};
    assert_int_equal(attnkit_packed_size(&p, &p.packed_size, NULL), ATTNKIT_OK);
    p.packed = aligned_alloc(ALIGNMENT, (p.packed_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    assert_int_equal(attnkit_pack(&p, NULL, NULL), ATTNKIT_OK);
    float *y = malloc((size_t)(rows * out) * sizeof *y + 1);
    const attnkit_linear_args args = {.size = sizeof args,
                                      .rows = rows,
                                      .in_dim = in,
                                      .out_dim = out,
                                      .x = x,
                                      .w = p.packed,
                                      .bias = b,
                                      .y = y};
    attnkit_exec exec = {.size = sizeof exec, .isa = "scalar"};
    assert_int_equal(attnkit_linear_workspace(&args, &exec, &exec.workspace_size, NULL),
                     ATTNKIT_OK);
    exec.workspace = workspace(exec.workspace_size);
    assert_int_equal(attnkit_linear(&args, &exec, NULL), ATTNKIT_OK);
    free(exec.workspace);
    free(p.packed);
    return y;
}

static void append(attnkit_append_args args)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = "scalar"};
    args.size = sizeof args;
    assert_int_equal(attnkit_append_workspace(&args, &exec, &exec.workspace_size, message),
                     ATTNKIT_OK);
    exec.workspace = workspace(exec.workspace_size);
    assert_int_equal(attnkit_append(&args, &exec, message), ATTNKIT_OK);
    free(exec.workspace);
}

/* [batch][rows][heads][dim] to [batch][heads][rows][dim], rotated if `rope` says so. */
static float *by_heads(float *tokens, int64_t batch, int64_t rows, int64_t heads, int64_t dim,
                       const attnkit_layer_args *rope)
{
    float *x = malloc((size_t)(batch * rows * heads * dim) * sizeof *x + 1);
    attnkit_append_args a = {.flags = ATTNKIT_STRIDED,
                             .batch = batch,
                             .heads = heads,
                             .len = rows,
                             .dim = dim,
                             .capacity = rows,
                             .src = tokens,
                             .dst = x};
    if (rope) {
        a.rope = rope->rope;
        a.rope_dim = rope->rope_dim;
        a.rope_base = rope->rope_base;
        a.positions = rope->positions ? rope->positions : rope->cached;
    }
    a.src_strides[2] = heads * dim * 4;
    a.src_strides[1] = dim * 4;
    a.src_strides[0] = rows * heads * dim * 4;
    a.dst_strides[2] = dim * 4;
    a.dst_strides[1] = rows * dim * 4;
    a.dst_strides[0] = heads * rows * dim * 4;
    append(a);
    free(tokens);
    return x;
}

static void attend(attnkit_attention_args args)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = "scalar"};
    assert_int_equal(attnkit_attention_workspace(&args, &exec, &exec.workspace_size, message),
                     ATTNKIT_OK);
    exec.workspace = workspace(exec.workspace_size);
    assert_int_equal(attnkit_attention(&args, &exec, message), ATTNKIT_OK);
    free(exec.workspace);
}

/* ------------------------------------------------------------------------------------ a case */

/* What a call gives. */
struct results {
    float *out, *lse, *weights, *mean;
};

struct drawn {
    struct layer layer;
    attnkit_layer_args args;
    attnkit_attention_args attention;
    int64_t keys; /* of an entry */
    int64_t kv_lens[MAX_BATCH], positions[MAX_BATCH];
    float *slopes, *sinks, *bias;
    unsigned char *mask;
    size_t out_bytes, lse_bytes, weights_bytes, mean_bytes;
    struct results results;
};

static void draw_options(struct drawn *c, uint64_t *random)
{
    attnkit_attention_args *const a = &c->attention;
    const int64_t heads = c->layer.w.q_heads, batch = c->args.batch;
    const int64_t cells = batch * heads * c->args.q_len * c->keys;
    *a = (attnkit_attention_args){.size = sizeof *a};
    if (random_below(random, 2)) {
        a->flags |= ATTNKIT_CAUSAL;
        a->align = random_below(random, 2) ? ATTNKIT_ALIGN_UPPER_LEFT : ATTNKIT_ALIGN_BOTTOM_RIGHT;
    }
    for (int64_t b = 0; b < batch; b++)
        c->kv_lens[b] = random_below(random, c->keys + 1);
    if (random_below(random, 3) == 0)
        a->kv_lens = c->kv_lens;
    c->mask = malloc((size_t)cells + 1);
    for (int64_t i = 0; i < cells; i++)
        c->mask[i] = random_below(random, 4) > 0;
    c->bias = random_floats(cells, random);
    c->slopes = random_floats(heads, random);
    c->sinks = random_floats(heads, random);
    if (random_below(random, 3) == 0) {
        a->mask = c->mask;
        a->mask_kind = ATTNKIT_MASK_ATTEND;
    }
    if (random_below(random, 3) == 0)
        a->bias = c->bias;
    if (a->align != ATTNKIT_ALIGN_NONE && random_below(random, 3) == 0)
        a->alibi_slopes = c->slopes;
    if (random_below(random, 3) == 0)
        a->sinks = c->sinks;
    if (random_below(random, 3) == 0)
        a->softcap = 3.0;
}

static void draw_outputs(struct drawn *c, uint64_t *random)
{
    const int64_t rows = c->args.batch * c->args.q_len, heads = c->layer.w.q_heads;
    c->out_bytes = (size_t)(rows * c->layer.d_out) * sizeof(float);
    c->lse_bytes = (size_t)(rows * heads) * sizeof(float);
    c->weights_bytes = (size_t)(rows * heads * c->keys) * sizeof(float);
    c->mean_bytes = (size_t)(rows * c->keys) * sizeof(float);
    c->results = (struct results){malloc(c->out_bytes + 1), malloc(c->lse_bytes + 1),
                                  malloc(c->weights_bytes + 1), malloc(c->mean_bytes + 1)};
    c->args.out = c->results.out;
    c->attention.lse = c->results.lse;
    if (random_below(random, 2)) {
        c->attention.weights = c->results.weights;
        c->attention.weights_kind = ATTNKIT_WEIGHTS_SOFTMAX;
    }
    if (random_below(random, 2))
        c->args.mean_weights = c->results.mean;
}

static void draw_case(struct drawn *c, int number)
{
    uint64_t random = (uint64_t)number + 1;
    const bool is_self = number % 3 > 0;
    *c = (struct drawn){0};
    draw_layer(&c->layer, is_self, &random);
    pack_layer(&c->layer);
    attnkit_layer_args *const a = &c->args;
    *a = (attnkit_layer_args){.size = sizeof *a,
                              .packed = c->layer.packed,
                              .packed_size = c->layer.size,
                              .attention = &c->attention};
    a->batch = 1 + random_below(&random, MAX_BATCH);
    a->q_len = 1 + random_below(&random, number % 5 ? 20 : 200);
    c->keys = is_self ? a->q_len : random_below(&random, 150);
    a->x = random_floats(a->batch * a->q_len * c->layer.w.d_model, &random);
    if (!is_self) {
        a->kv_len = c->keys;
        a->key = random_floats(a->batch * c->keys * c->layer.d_key, &random);
        if (c->layer.d_value != c->layer.d_key || random_below(&random, 2))
            a->value = random_floats(a->batch * c->keys * c->layer.d_value, &random);
    } else if (random_below(&random, 2)) {
        a->rope = random_below(&random, 2) ? ATTNKIT_ROPE_HALF : ATTNKIT_ROPE_INTERLEAVED;
        for (int64_t b = 0; b < a->batch; b++)
            c->positions[b] = random_below(&random, 1000);
        a->positions = random_below(&random, 2) ? c->positions : NULL;
    }
    draw_options(c, &random);
    draw_outputs(c, &random);
}

static void free_results(struct results *r)
{
    free(r->out);
    free(r->lse);
    free(r->weights);
    free(r->mean);
}

static void free_case(struct drawn *c)
{
    free_layer(&c->layer);
    free((void *)(uintptr_t)c->args.x);
    free((void *)(uintptr_t)c->args.key);
    free((void *)(uintptr_t)c->args.value);
    free(c->slopes);
    free(c->sinks);
    free(c->bias);
    free(c->mask);
    free_results(&c->results);
}

/* One attention call for head h of entry b, with tensors that begin with them. */
static void attend_head(const struct drawn *c, int64_t b, int64_t h, const float *q, const float *k,
                        const float *v, const struct results *want, float *result)
{
    const int64_t rows = c->args.q_len, heads = c->layer.w.q_heads, dv = c->layer.value_dim;
    const int64_t line = b * heads + h, cells = line * rows * c->keys;
    attnkit_attention_args a = c->attention;
    a.batch = a.q_heads = a.kv_heads = 1;
    a.q_len = rows;
    a.kv_len = c->keys;
    a.head_dim = c->layer.w.head_dim;
    a.value_dim = dv;
    a.q = q;
    a.k = k;
    a.v = v;
    float *const out = malloc((size_t)(rows * dv) * sizeof *out);
    a.out = out;
    a.lse = want->lse + line * rows;
    a.weights = want->weights + cells;
    a.weights_kind = ATTNKIT_WEIGHTS_SOFTMAX;
    a.kv_lens = a.kv_lens ? a.kv_lens + b : NULL;
    a.mask = a.mask ? (const char *)a.mask + cells : NULL;
    a.bias = a.bias ? (const float *)a.bias + cells : NULL;
    a.alibi_slopes = a.alibi_slopes ? a.alibi_slopes + h : NULL;
    a.sinks = a.sinks ? a.sinks + h : NULL;
    attend(a);
    for (int64_t i = 0; i < rows; i++)
        memcpy(result + ((b * rows + i) * heads + h) * dv, out + i * dv, (size_t)dv * sizeof *out);
    free(out);
}

static void average(const struct drawn *c, struct results *want)
{
    const int64_t heads = c->layer.w.q_heads, plane = c->args.q_len * c->keys;
    for (int64_t b = 0; b < c->args.batch; b++)
        for (int64_t i = 0; i < plane; i++) {
            float sum = 0.0f;
            for (int64_t h = 0; h < heads; h++)
                sum += want->weights[(b * heads + h) * plane + i];
            want->mean[b * plane + i] = sum / (float)heads;
        }
}

/* The layer by hand, a head at a time. */
static struct results by_hand(const struct drawn *c)
{
    const attnkit_layer_args *const a = &c->args;
    const attnkit_layer_weights *const w = &c->layer.w;
    const int64_t batch = a->batch, rows = a->q_len, heads = w->q_heads, kv = c->layer.kv_heads;
    const int64_t dv = c->layer.value_dim, group = heads / kv;
    const float *const key = a->key ? a->key : a->x, *const value = a->value ? a->value : key;
    float *const q =
        by_heads(linear(w->w_q, w->b_q, a->x, batch * rows, w->d_model, heads * w->head_dim), batch,
                 rows, heads, w->head_dim, a);
    float *const k =
        by_heads(linear(w->w_k, w->b_k, key, batch * c->keys, c->layer.d_key, kv * w->head_dim),
                 batch, c->keys, kv, w->head_dim, a);
    float *const v =
        by_heads(linear(w->w_v, w->b_v, value, batch * c->keys, c->layer.d_value, kv * dv), batch,
                 c->keys, kv, dv, NULL);
    struct results want = {NULL, malloc(c->lse_bytes + 1), malloc(c->weights_bytes + 1),
                           malloc(c->mean_bytes + 1)};
    float *const result = malloc((size_t)(batch * rows * heads * dv) * sizeof *result);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            attend_head(c, b, h, q + (b * heads + h) * rows * w->head_dim,
                        k + (b * kv + h / group) * c->keys * w->head_dim,
                        v + (b * kv + h / group) * c->keys * dv, &want, result);
    want.out = linear(w->w_o, w->b_o, result, batch * rows, heads * dv, c->layer.d_out);
    average(c, &want);
    free(q);
    free(k);
    free(v);
    free(result);
    return want;
}

/* ------------------------------------------------------------------------------------ running */

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    for (int64_t i = n - 1; i >= 0; i--)
        task(arg, i);
    if (n > 1)
        task(arg, n / 2); /* again */
}

static void run(const attnkit_layer_args *args, const char *isa, int64_t threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    exec.parallel_for = threads > 1 ? backwards : NULL;
    if (attnkit_layer_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    exec.workspace = workspace(exec.workspace_size);
    if (attnkit_layer(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    free(exec.workspace);
}

static void clear(const struct drawn *c)
{
    memset(c->results.out, 0xa5, c->out_bytes);
    memset(c->results.lse, 0xa5, c->lse_bytes);
    memset(c->results.weights, 0xa5, c->weights_bytes);
    memset(c->results.mean, 0xa5, c->mean_bytes);
}

static void expect_results(const struct drawn *c, const struct results *want)
{
    assert_memory_equal(c->results.out, want->out, c->out_bytes);
    assert_memory_equal(c->results.lse, want->lse, c->lse_bytes);
    if (c->attention.weights && c->weights_bytes)
        assert_memory_equal(c->results.weights, want->weights, c->weights_bytes);
    if (c->args.mean_weights && c->mean_bytes)
        assert_memory_equal(c->results.mean, want->mean, c->mean_bytes);
}

static void the_layer_is_its_parts_head_by_head(void **state)
{
    (void)state;
    for (int number = 0; number < CASES; number++) {
        struct drawn c;
        draw_case(&c, number);
        struct results want = by_hand(&c);
        for (int i = 0; i < isa_count; i++)
            for (int64_t threads = 1; threads <= MAX_THREADS; threads += 2) {
                clear(&c);
                run(&c.args, isas[i], threads);
                expect_results(&c, &want);
            }
        free_results(&want);
        free_case(&c);
    }
}

/* ------------------------------------------------------------------------------------- caches */

/* A layer for sequences: 6 heads that share 2, rotated. */
struct sequences {
    struct layer layer;
    attnkit_layer_args args;
    attnkit_attention_args attention;
    int64_t batch, len;
    float *x, *out;
};

enum { CAPACITY = 150, PAGE = 16, PAGES = MAX_BATCH * (CAPACITY / PAGE + 1) + 3 };

static void begin_sequences(struct sequences *s, int64_t batch, int64_t len, uint64_t seed)
{
    uint64_t random = seed;
    *s = (struct sequences){.batch = batch, .len = len};
    attnkit_layer_weights *const w = &s->layer.w;
    *w = (attnkit_layer_weights){
        .size = sizeof *w, .d_model = 40, .q_heads = 6, .kv_heads = 2, .head_dim = 32};
    w->w_q = random_floats(6 * 32 * 40, &random);
    w->w_k = random_floats(2 * 32 * 40, &random);
    w->w_v = random_floats(2 * 32 * 40, &random);
    w->w_o = random_floats(40 * 6 * 32, &random);
    pack_layer(&s->layer);
    s->x = random_floats(batch * len * 40, &random);
    s->out = malloc((size_t)(batch * len * 40) * sizeof *s->out);
    s->attention = (attnkit_attention_args){
        .size = sizeof s->attention, .flags = ATTNKIT_CAUSAL, .align = ATTNKIT_ALIGN_BOTTOM_RIGHT};
    s->args = (attnkit_layer_args){.size = sizeof s->args,
                                   .flags = ATTNKIT_STRIDED,
                                   .packed = s->layer.packed,
                                   .packed_size = s->layer.size,
                                   .batch = batch,
                                   .q_len = len,
                                   .x = s->x,
                                   .out = s->out,
                                   .x_strides = {len * 160, 160},
                                   .out_strides = {len * 160, 160},
                                   .rope = ATTNKIT_ROPE_HALF,
                                   .attention = &s->attention};
}

static void end_sequences(struct sequences *s)
{
    free_layer(&s->layer);
    free(s->x);
    free(s->out);
}

/* A cache of any type and layout. */
struct cache {
    char *k, *v;
    float *k_scales, *v_scales;
    size_t bytes;
    int32_t table[PAGES];
};

struct storage {
    attnkit_type type;
    bool paged, tiled;
};

static const struct storage storages[] = {
    {ATTNKIT_F32, false, false}, {ATTNKIT_F32, true, false},  {ATTNKIT_F32, false, true},
    {ATTNKIT_F16, true, true},   {ATTNKIT_BF16, false, true}, {ATTNKIT_I8, true, false},
    {ATTNKIT_I8, false, true},   {ATTNKIT_Q8_0, true, true},  {ATTNKIT_Q8_0, false, false},
};

static void begin_cache(struct cache *c, const struct storage *how, attnkit_attention_args *a)
{
    const size_t rows = PAGES * PAGE * 2;
    c->bytes = rows * 32 * sizeof(float);
    c->k = calloc(1, c->bytes);
    c->v = calloc(1, c->bytes);
    c->k_scales = calloc(rows, sizeof(float));
    c->v_scales = calloc(rows, sizeof(float));
    for (int i = 0; i < PAGES; i++)
        c->table[i] = (int32_t)((i * 7 + 3) % PAGES);
    a->k = c->k;
    a->v = c->v;
    a->k_type = a->v_type = how->type;
    a->kv_len = CAPACITY;
    a->flags |= how->tiled ? ATTNKIT_TILED : 0;
    if (how->type == ATTNKIT_I8) {
        a->k_scales = c->k_scales;
        a->v_scales = c->v_scales;
    }
    if (how->paged) {
        a->page_table = c->table;
        a->page_table_stride = CAPACITY / PAGE + 1;
        a->page_size = PAGE;
        a->pages = PAGES;
    }
}

static void end_cache(struct cache *c)
{
    free(c->k);
    free(c->v);
    free(c->k_scales);
    free(c->v_scales);
}

/* All rows, in steps of some lengths, into a cache that is empty at first. */
static void decode_all(struct sequences *s, const struct storage *how, const int *steps,
                       const char *isa, int64_t threads)
{
    struct cache cache;
    int64_t cached[MAX_BATCH] = {0};
    attnkit_attention_args with_cache = s->attention;
    attnkit_layer_args a = s->args;
    begin_cache(&cache, how, &with_cache);
    a.attention = &with_cache;
    a.cached = cached;
    for (int64_t first = 0, step = 0; first < s->len; first += a.q_len, step++) {
        a.q_len = steps[step % 4] < s->len - first ? steps[step % 4] : s->len - first;
        a.x = s->x + first * 40;
        a.out = s->out + first * 40;
        run(&a, isa, threads);
        for (int64_t b = 0; b < s->batch; b++)
            cached[b] += a.q_len;
    }
    end_cache(&cache);
}

static void decode_has_the_bits_of_prefill_in_every_cache(void **state)
{
    (void)state;
    static const int ones[] = {1, 1, 1, 1}, chunks[] = {37, 1, 20, 3}, whole[] = {140, 1, 1, 1};
    struct sequences s;
    begin_sequences(&s, 2, 140, 7);
    const size_t bytes = (size_t)(s.batch * s.len * 40) * sizeof(float);
    float *const want = malloc(bytes);
    run(&s.args, "scalar", 1); /* without a cache */
    memcpy(want, s.out, bytes);
    for (size_t how = 0; how < sizeof storages / sizeof storages[0]; how++) {
        if (storages[how].type != ATTNKIT_F32) {
            decode_all(&s, &storages[how], whole, "scalar", 1);
            memcpy(want, s.out, bytes);
        }
        for (int i = 0; i < isa_count; i++) {
            memset(s.out, 0xa5, bytes);
            decode_all(&s, &storages[how], i % 2 ? ones : chunks, isas[i], 1 + i);
            assert_memory_equal(s.out, want, bytes);
        }
    }
    free(want);
    end_sequences(&s);
}

/* Entries of a batch may have caches of different lengths. */
static void entries_have_their_own_lengths(void **state)
{
    (void)state;
    struct sequences s;
    begin_sequences(&s, 3, 60, 9);
    float *const want = malloc((size_t)(3 * 60 * 40) * sizeof *want);
    run(&s.args, NULL, 1);
    memcpy(want, s.out, (size_t)(3 * 60 * 40) * sizeof *want);
    struct cache cache;
    int64_t cached[MAX_BATCH] = {0};
    const int64_t prompts[] = {50, 1, 33};
    attnkit_attention_args with_cache = s.attention;
    begin_cache(&cache, &storages[1], &with_cache);
    const int32_t *const table = with_cache.page_table;
    attnkit_layer_args a = s.args;
    a.attention = &with_cache;
    a.cached = cached;
    for (int b = 0; b < 3; b++) {
        a.batch = 1;
        a.q_len = prompts[b];
        a.x = s.x + b * 60 * 40;
        a.out = s.out + b * 60 * 40;
        with_cache.page_table = table + b * with_cache.page_table_stride;
        run(&a, NULL, 1);
    }
    float x[3 * 40], out[3 * 40];
    with_cache.page_table = table;
    for (int b = 0; b < 3; b++) {
        cached[b] = prompts[b];
        memcpy(x + b * 40, s.x + (b * 60 + prompts[b]) * 40, 160);
    }
    a.flags = 0;
    memset(a.x_strides, 0, sizeof a.x_strides);
    memset(a.out_strides, 0, sizeof a.out_strides);
    a.batch = 3;
    a.q_len = 1;
    a.x = x;
    a.out = out;
    run(&a, NULL, 2);
    for (int b = 0; b < 3; b++)
        assert_memory_equal(out + b * 40, want + (b * 60 + prompts[b]) * 40, 160);
    free(want);
    end_cache(&cache);
    end_sequences(&s);
}

/* Keys of an encoder, projected once, then attended over as often as wanted. */
static void a_cache_can_be_left_as_it_is(void **state)
{
    (void)state;
    struct sequences s;
    begin_sequences(&s, 2, 60, 11);
    uint64_t random = 5;
    float *const key = random_floats(2 * 90 * 40, &random);
    attnkit_layer_args a = s.args;
    attnkit_attention_args none = {.size = sizeof none};
    a.rope = ATTNKIT_ROPE_NONE;
    a.key = key;
    a.kv_len = 90;
    a.key_strides[0] = 90 * 160;
    a.key_strides[1] = 160;
    a.attention = &none;
    run(&a, NULL, 1);
    float *const want = malloc((size_t)(2 * 60 * 40) * sizeof *want);
    memcpy(want, s.out, (size_t)(2 * 60 * 40) * sizeof *want);

    struct cache cache;
    int64_t cached[2] = {0};
    begin_cache(&cache, &storages[2], &none);
    a.cached = cached;
    memset(s.out, 0, (size_t)(2 * 60 * 40) * sizeof *want);
    run(&a, NULL, 1); /* appends them */
    assert_memory_equal(s.out, want, (size_t)(2 * 60 * 40) * sizeof *want);
    char *const before = malloc(cache.bytes);
    memcpy(before, cache.k, cache.bytes);
    cached[0] = cached[1] = 90;
    a.key = NULL;
    a.kv_len = 0;
    a.flags |= ATTNKIT_NO_APPEND;
    for (int64_t i = 0; i < 60; i += 20) {
        a.q_len = 20;
        a.x = s.x + i * 40;
        a.out = s.out + i * 40;
        memset(s.out + i * 40, 0, 160);
        run(&a, NULL, 2);
    }
    assert_memory_equal(s.out, want, (size_t)(2 * 60 * 40) * sizeof *want);
    assert_memory_equal(cache.k, before, cache.bytes);
    free(before);
    free(want);
    free(key);
    end_cache(&cache);
    end_sequences(&s);
}

/* -------------------------------------------------------------------- heads, rows and threads */

/* The rows of each KV head's weights, once for each query head of its group. */
static float *repeat_heads(const float *w, int64_t kv_heads, int64_t group, int64_t floats)
{
    float *const all = malloc((size_t)(kv_heads * group * floats) * sizeof *all);
    for (int64_t h = 0; h < kv_heads * group; h++)
        memcpy(all + h * floats, w + h / group * floats, (size_t)floats * sizeof *all);
    return all;
}

static void shared_heads_have_the_bits_of_repeated_ones(void **state)
{
    (void)state;
    struct sequences s;
    begin_sequences(&s, 2, 50, 13);
    const size_t bytes = (size_t)(2 * 50 * 40) * sizeof(float);
    float *const want = malloc(bytes);
    run(&s.args, NULL, 1);
    memcpy(want, s.out, bytes);
    struct layer repeated = {.w = s.layer.w};
    repeated.w.kv_heads = 0; /* as many as query heads */
    repeated.w.w_k = repeat_heads(s.layer.w.w_k, 2, 3, 32 * 40);
    repeated.w.w_v = repeat_heads(s.layer.w.w_v, 2, 3, 32 * 40);
    pack_layer(&repeated);
    attnkit_layer_args a = s.args;
    a.packed = repeated.packed;
    a.packed_size = repeated.size;
    for (int i = 0; i < isa_count; i++) {
        memset(s.out, 0, bytes);
        run(&a, isas[i], 1);
        assert_memory_equal(s.out, want, bytes);
    }
    free((void *)(uintptr_t)repeated.w.w_k);
    free((void *)(uintptr_t)repeated.w.w_v);
    free(repeated.packed);
    free(want);
    end_sequences(&s);
}

/* The same in one attention call: a group as a dimension whose stride is 0, and in memory. */
static void a_stride_of_0_over_the_group_has_the_bits_of_repeated_heads(void **state)
{
    (void)state;
    enum { GROUP = 4, KV = 2, L = 70, D = 24 };
    uint64_t random = 17;
    float *const q = random_floats(KV * GROUP * L * D, &random);
    float *const k = random_floats(KV * L * D, &random), *const v =
                                                             random_floats(KV * L * D, &random);
    float *const all_k = repeat_heads(k, KV, GROUP, L * D);
    float *const all_v = repeat_heads(v, KV, GROUP, L * D);
    float *const out[3] = {malloc(KV * GROUP * L * D * 4), malloc(KV * GROUP * L * D * 4),
                           malloc(KV * GROUP * L * D * 4)};
    const attnkit_attention_args shared = {.size = sizeof shared,
                                           .batch = 1,
                                           .q_heads = KV * GROUP,
                                           .kv_heads = KV,
                                           .q_len = L,
                                           .kv_len = L,
                                           .head_dim = D,
                                           .q = q,
                                           .k = k,
                                           .v = v,
                                           .out = out[0]};
    attend(shared);
    attnkit_attention_args repeated = shared;
    repeated.kv_heads = KV * GROUP;
    repeated.k = all_k;
    repeated.v = all_v;
    repeated.out = out[1];
    attend(repeated);
    /* A KV head for each entry, a group for its heads. */
    attnkit_attention_args broadcast = {.size = sizeof broadcast,
                                        .flags = ATTNKIT_STRIDED,
                                        .batch = KV,
                                        .q_heads = GROUP,
                                        .kv_heads = GROUP,
                                        .q_len = L,
                                        .kv_len = L,
                                        .head_dim = D,
                                        .q = q,
                                        .k = k,
                                        .v = v,
                                        .out = out[2],
                                        .q_strides = {GROUP * L * D * 4, L * D * 4, D * 4},
                                        .k_strides = {L * D * 4, 0, D * 4},
                                        .v_strides = {L * D * 4, 0, D * 4},
                                        .out_strides = {GROUP * L * D * 4, L * D * 4, D * 4}};
    attend(broadcast);
    assert_memory_equal(out[1], out[0], KV * GROUP * L * D * 4);
    assert_memory_equal(out[2], out[0], KV * GROUP * L * D * 4);
    for (int i = 0; i < 3; i++)
        free(out[i]);
    free(q);
    free(k);
    free(v);
    free(all_k);
    free(all_v);
}

static void packed_sequences_have_the_bits_of_lone_ones(void **state)
{
    (void)state;
    static const int64_t starts[] = {0, 17, 17, 60};
    struct sequences s;
    begin_sequences(&s, 1, 60, 19);
    const size_t bytes = (size_t)(60 * 40) * sizeof(float);
    float *const want = malloc(bytes);
    s.attention.align = ATTNKIT_ALIGN_UPPER_LEFT;
    attnkit_layer_args a = s.args;
    for (int b = 0; b < 3; b++) {
        a.q_len = starts[b + 1] - starts[b];
        a.x = s.x + starts[b] * 40;
        a.out = want + starts[b] * 40;
        run(&a, NULL, 1);
    }
    attnkit_layer_args all = s.args;
    all.batch = 3;
    s.attention.q_starts = starts;
    for (int64_t threads = 1; threads <= MAX_THREADS; threads++) {
        memset(s.out, 0, bytes);
        run(&all, NULL, threads);
        assert_memory_equal(s.out, want, bytes);
    }
    free(want);
    end_sequences(&s);
}

/* Rows apart in any way, an entry at a time if they have to be. */
static void strides_change_no_bit(void **state)
{
    (void)state;
    struct sequences s;
    begin_sequences(&s, 3, 8, 21);
    const size_t bytes = (size_t)(3 * 8 * 40) * sizeof(float);
    float *const want = malloc(bytes);
    run(&s.args, NULL, 1);
    memcpy(want, s.out, bytes);
    enum { ROW = 51, ENTRY = 8 * ROW + 9 };
    float *const x = calloc(3 * ENTRY, sizeof *x), *const out = calloc(3 * ENTRY, sizeof *out);
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 8; i++)
            memcpy(x + b * ENTRY + i * ROW, s.x + (b * 8 + i) * 40, 160);
    attnkit_layer_args a = s.args;
    a.x = x;
    a.out = out;
    a.x_strides[0] = a.out_strides[0] = ENTRY * 4;
    a.x_strides[1] = a.out_strides[1] = ROW * 4;
    for (int64_t threads = 1; threads <= MAX_THREADS; threads++) {
        memset(out, 0, (size_t)3 * ENTRY * sizeof *out);
        run(&a, NULL, threads);
        for (int b = 0; b < 3; b++)
            for (int i = 0; i < 8; i++) {
                assert_memory_equal(out + b * ENTRY + i * ROW, want + (b * 8 + i) * 40, 160);
                for (int gap = 40; gap < ROW; gap++)
                    assert_true(out[b * ENTRY + i * ROW + gap] == 0.0f);
            }
    }
    free(x);
    free(out);
    free(want);
    end_sequences(&s);
}

/* One matrix of Q, K and V as PyTorch has it, and one bias. */
static void joined_weights_are_packed_as_lone_ones(void **state)
{
    (void)state;
    uint64_t random = 23;
    enum { M = 24, H = 4, D = 6 };
    float *const w = random_floats(3 * H * D * M, &random), *const b =
                                                                random_floats(3 * H * D, &random);
    float *const o = random_floats(M * H * D, &random);
    struct layer joined = {
        .w = {
            .size = sizeof joined.w, .d_model = M, .q_heads = H, .w_qkv = w, .b_qkv = b, .w_o = o}};
    struct layer lone = {.w = {.size = sizeof lone.w,
                               .d_model = M,
                               .q_heads = H,
                               .w_q = w,
                               .w_k = w + H * D * M,
                               .w_v = w + 2 * H * D * M,
                               .b_q = b,
                               .b_k = b + H * D,
                               .b_v = b + 2 * H * D,
                               .w_o = o}};
    pack_layer(&joined);
    pack_layer(&lone);
    assert_int_equal(joined.size, lone.size);
    assert_memory_equal(joined.packed, lone.packed, lone.size);
    free(joined.packed);
    free(lone.packed);
    free(w);
    free(b);
    free(o);
}

/* Threads of the caller, which meet at a barrier. */
struct team {
    pthread_barrier_t barrier;
    attnkit_exec exec;
    const attnkit_layer_args *args;
};

struct member {
    struct team *team;
    int64_t thread;
    attnkit_status status;
};

static void wait_for_all(void *pool)
{
    pthread_barrier_wait(&((struct team *)pool)->barrier);
}

static void *join_in(void *arg)
{
    struct member *const m = arg;
    attnkit_exec exec = m->team->exec;
    exec.thread = m->thread;
    m->status = attnkit_layer(m->team->args, &exec, NULL);
    return NULL;
}

static void run_team(const attnkit_layer_args *args, int64_t threads)
{
    struct team team = {.args = args};
    struct member members[MAX_THREADS];
    pthread_t handles[MAX_THREADS];
    team.exec = (attnkit_exec){
        .size = sizeof team.exec, .threads = threads, .barrier = wait_for_all, .pool = &team};
    assert_int_equal(attnkit_layer_workspace(args, &team.exec, &team.exec.workspace_size, NULL),
                     ATTNKIT_OK);
    team.exec.workspace = malloc(team.exec.workspace_size);
    pthread_barrier_init(&team.barrier, NULL, (unsigned)threads);
    for (int64_t i = 0; i < threads; i++) {
        members[i] = (struct member){.team = &team, .thread = i};
        assert_int_equal(pthread_create(&handles[i], NULL, join_in, &members[i]), 0);
    }
    for (int64_t i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        assert_int_equal(members[i].status, ATTNKIT_OK);
    }
    pthread_barrier_destroy(&team.barrier);
    free(team.exec.workspace);
}

static void threads_of_the_caller_meet_after_each_part(void **state)
{
    (void)state;
    for (int number = 0; number < 12; number++) {
        struct drawn c;
        draw_case(&c, number);
        run(&c.args, NULL, 1);
        struct results want = {malloc(c.out_bytes + 1), malloc(c.lse_bytes + 1),
                               malloc(c.weights_bytes + 1), malloc(c.mean_bytes + 1)};
        memcpy(want.out, c.results.out, c.out_bytes);
        memcpy(want.lse, c.results.lse, c.lse_bytes);
        memcpy(want.weights, c.results.weights, c.weights_bytes);
        memcpy(want.mean, c.results.mean, c.mean_bytes);
        for (int64_t threads = 2; threads <= MAX_THREADS; threads++) {
            clear(&c);
            run_team(&c.args, threads);
            expect_results(&c, &want);
        }
        free_results(&want);
        free_case(&c);
    }
}

/* ------------------------------------------------------------------------------------------- */

static int list_isas(void **state)
{
    (void)state;
    for (int32_t i = 0; i < attnkit_isa_count(); i++) {
        attnkit_isa_info info = {.size = sizeof info};
        if (attnkit_isa_get(i, &info, NULL) == ATTNKIT_OK && info.can_run)
            isas[isa_count++] = info.name;
    }
    return isa_count == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layer_is_its_parts_head_by_head),
        cmocka_unit_test(decode_has_the_bits_of_prefill_in_every_cache),
        cmocka_unit_test(entries_have_their_own_lengths),
        cmocka_unit_test(a_cache_can_be_left_as_it_is),
        cmocka_unit_test(shared_heads_have_the_bits_of_repeated_ones),
        cmocka_unit_test(a_stride_of_0_over_the_group_has_the_bits_of_repeated_heads),
        cmocka_unit_test(packed_sequences_have_the_bits_of_lone_ones),
        cmocka_unit_test(strides_change_no_bit),
        cmocka_unit_test(joined_weights_are_packed_as_lone_ones),
        cmocka_unit_test(threads_of_the_caller_meet_after_each_part),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, list_isas, NULL);
}
