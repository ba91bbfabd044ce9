/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer has the same bits as its parts run one after the other: linear maps, appends, and one
 * attention call for each head of each batch entry. The bits are the same on every instruction
 * set, with any number of threads and any options of attention. With a cache, each step of a
 * sequence has the bits of the whole sequence. A layer that repeats the weights of each KV head,
 * once for each query head, has the bits of the layer whose query heads share the KV heads. A case
 * is drawn from its number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/layer/drawn.h"
#include "tests/support/layer/run.h"
#include "tests/support/layer/sequences.h"
#include "tests/support/layer/small.h"

enum {
    CASES = 60,
    MAX_ISAS = 8,
    ALIGNMENT = 64,
};

static const char *isas[MAX_ISAS]; /* the instruction sets that can run here */
static int isa_count;

static void run(const attnkit_layer_args *args, const char *isa, int64_t threads)
{
    layer_call_run(args, (struct layer_way){.isa = isa, .threads = threads});
}

/* ------------------------------------------------------------- the parts of a layer, by hand */

static void *workspace(size_t bytes)
{
    return bytes ? malloc(bytes) : NULL;
}

/* Returns y [rows][out] = x wᵀ + b, computed by the scalar tiles. The caller frees y. */
static float *linear(const void *w, const void *b, const float *x, int64_t rows, int64_t in,
                     int64_t out)
{
    attnkit_pack_args p = {.size = sizeof p, .out_dim = out, .in_dim = in, .w.data = w};
    assert_int_equal(attnkit_packed_size(&p, &p.packed_size, NULL), ATTNKIT_OK);
    p.packed = aligned_alloc(ALIGNMENT, (p.packed_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    assert_int_equal(attnkit_pack(&p, NULL, NULL), ATTNKIT_OK);
    float *y = malloc((size_t)(rows * out) * sizeof *y + 1);
    const attnkit_linear_args args = {.size = sizeof args,
                                      .rows = rows,
                                      .in_dim = in,
                                      .out_dim = out,
                                      .x.data = x,
                                      .w.data = p.packed,
                                      .y.data = y,
                                      .bias = b};
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

/* Returns the numbers of `tokens`, [batch][rows][heads][dim], as [batch][heads][rows][dim]. Rotates
 * the rows unless `rotation` is NULL. Frees `tokens`. */
static float *by_heads(float *tokens, int64_t batch, int64_t rows, int64_t heads, int64_t dim,
                       const attnkit_rotation *rotation)
{
    float *x = malloc((size_t)(batch * rows * heads * dim) * sizeof *x + 1);
    append((attnkit_append_args){
        .batch = batch,
        .heads = heads,
        .len = rows,
        .dim = dim,
        .capacity = rows,
        .src = {.data = tokens,
                .strides = {rows * heads * dim * 4, dim * 4, heads * dim * 4},
                .layout = ATTNKIT_STRIDED},
        .dst = {.data = x,
                .strides = {heads * rows * dim * 4, rows * dim * 4, dim * 4},
                .layout = ATTNKIT_STRIDED},
        .rotation = rotation,
    });
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

/* Makes one attention call for head h of entry b, with tensors that begin at this head and entry.
 * Writes lse and weights into `want`, and the rows of out into `result`. */
static void attend_head(const struct layer_call *c, int64_t b, int64_t h, const float *q,
                        const float *k, const float *v, const struct layer_results *want,
                        float *result)
{
    const int64_t rows = c->args.q_len, heads = c->layer.w.q_heads, dv = c->layer.value_dim;
    const int64_t line = b * heads + h, cells = line * rows * c->keys;
    attnkit_attention_args a = c->attention;
    struct groups g = c->groups;
    attnkit_visibility *const see = &g.visibility;
    attnkit_score_mods *const scores = &g.scores;
    groups_hang(&a, &g);
    a.batch = a.q_heads = a.kv_heads = 1;
    a.q_len = rows;
    a.kv_len = c->keys;
    a.head_dim = c->layer.w.head_dim;
    a.value_dim = dv;
    a.q.data = q;
    a.k.data = k;
    a.v.data = v;
    float *const out = malloc((size_t)(rows * dv) * sizeof *out);
    a.out.data = out;
    a.lse.data = want->lse + line * rows;
    g.weights.weights.data = want->weights + cells;
    g.weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
    see->kv_lens.data = see->kv_lens.data ? c->kv_lens + b : NULL;
    see->mask.data = see->mask.data ? c->mask + cells : NULL;
    scores->bias.data = scores->bias.data ? c->bias + cells : NULL;
    scores->bias_scales = scores->bias_scales ? scores->bias_scales + h : NULL;
    scores->alibi_slopes = scores->alibi_slopes ? scores->alibi_slopes + h : NULL;
    scores->sinks = scores->sinks ? scores->sinks + h : NULL;
    attend(a);
    for (int64_t i = 0; i < rows; i++)
        memcpy(result + ((b * rows + i) * heads + h) * dv, out + i * dv, (size_t)dv * sizeof *out);
    free(out);
}

static void average(const struct layer_call *c, struct layer_results *want)
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

/* Computes the results of a layer by calls of its parts, with one attention call for each head
 * of each batch entry. */
static struct layer_results by_hand(const struct layer_call *c)
{
    const attnkit_layer_args *const a = &c->args;
    const attnkit_layer_weights *const w = &c->layer.w;
    const int64_t batch = a->batch, rows = a->q_len, heads = w->q_heads, kv = c->layer.kv_heads;
    const int64_t dv = c->layer.value_dim, group = heads / kv;
    const float *const key = a->key.data ? a->key.data : a->x.data;
    const float *const value = a->value.data ? a->value.data : key;
    float *const q =
        by_heads(linear(w->w_q, w->b_q, a->x.data, batch * rows, w->d_model, heads * w->head_dim),
                 batch, rows, heads, w->head_dim, a->rotation);
    float *const k =
        by_heads(linear(w->w_k, w->b_k, key, batch * c->keys, c->layer.d_key, kv * w->head_dim),
                 batch, c->keys, kv, w->head_dim, a->rotation);
    float *const v =
        by_heads(linear(w->w_v, w->b_v, value, batch * c->keys, c->layer.d_value, kv * dv), batch,
                 c->keys, kv, dv, NULL);
    struct layer_results want = {NULL, malloc(c->lse_bytes + 1), malloc(c->weights_bytes + 1),
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

static void the_layer_is_its_parts_head_by_head(void **state)
{
    (void)state;
    for (int number = 0; number < CASES; number++) {
        struct layer_call c;
        layer_call_draw(&c, number);
        struct layer_results want = by_hand(&c);
        for (int i = 0; i < isa_count; i++)
            for (int64_t threads = 1; threads <= LAYER_THREADS; threads += 2) {
                layer_call_clear(&c);
                run(&c.args, isas[i], threads);
                layer_call_expect(&c, &want);
            }
        layer_results_free(&want);
        layer_call_free(&c);
    }
}

/* ------------------------------------------------------------------------------------- caches */

/* Runs all rows of the sequences, with a cache that is empty at first. The steps take their
 * numbers of rows from the four numbers of `steps`, again and again. */
static void decode_all(struct sequences *s, const struct storage *how, const int *steps,
                       const char *isa, int64_t threads)
{
    struct cached_layer cache;
    cached_layer_begin(&cache, s, how);
    for (int64_t first = 0, step = 0, len; first < s->len; first += len, step++) {
        len = steps[step % 4] < s->len - first ? steps[step % 4] : s->len - first;
        cached_layer_step(&cache, s, first, len);
        run(&cache.args, isa, threads);
    }
    cached_layer_end(&cache);
}

static void decode_has_the_bits_of_prefill_in_every_cache(void **state)
{
    (void)state;
    static const int ones[] = {1, 1, 1, 1}, chunks[] = {37, 1, 20, 3}, whole[] = {140, 1, 1, 1};
    struct sequences s;
    sequences_begin(&s, 2, 140, 7);
    const size_t bytes = sequences_bytes(&s);
    float *const want = malloc(bytes);
    run(&s.args, "scalar", 1); /* the whole sequence without a cache */
    memcpy(want, s.out, bytes);
    for (size_t how = 0; how < STORAGES; how++) {
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
    sequences_end(&s);
}

/* Entries of a batch may have caches of different lengths. */
static void entries_have_their_own_lengths(void **state)
{
    (void)state;
    struct sequences s;
    sequences_begin(&s, 3, 60, 9);
    float *const want = malloc(sequences_bytes(&s));
    run(&s.args, NULL, 1);
    memcpy(want, s.out, sequences_bytes(&s));
    struct cached_layer cache;
    const int64_t prompts[] = {50, 1, 33};
    cached_layer_begin(&cache, &s, &storages[1]);
    attnkit_pages *const pages = &cache.groups.pages;
    attnkit_layer_args *const a = &cache.args;
    for (int b = 0; b < 3; b++) {
        a->batch = 1;
        a->q_len = prompts[b];
        a->x.data = s.x + b * 60 * 40;
        a->out.data = s.out + b * 60 * 40;
        pages->block_table = cache.table + b * pages->block_table_stride;
        run(a, NULL, 1);
    }
    float x[3 * 40], out[3 * 40];
    pages->block_table = cache.table;
    for (int b = 0; b < 3; b++) {
        cache.cached[b] = prompts[b];
        memcpy(x + b * 40, s.x + (b * 60 + prompts[b]) * 40, 160);
    }
    a->batch = 3;
    a->q_len = 1;
    a->x = (attnkit_tensor){.data = x};
    a->out = (attnkit_tensor){.data = out};
    run(a, NULL, 2);
    for (int b = 0; b < 3; b++)
        assert_memory_equal(out + b * 40, want + (b * 60 + prompts[b]) * 40, 160);
    free(want);
    cached_layer_end(&cache);
    sequences_end(&s);
}

/* The keys of an encoder are projected once and then used by several calls. */
static void a_cache_can_be_left_as_it_is(void **state)
{
    (void)state;
    struct sequences s;
    sequences_begin(&s, 2, 60, 11);
    const size_t bytes = sequences_bytes(&s);
    uint64_t random = 5;
    float *const key = layer_floats(2 * 90 * 40, &random);
    s.attention.flags = 0;
    s.attention.align = ATTNKIT_ALIGN_NONE;
    s.args.rotation = NULL;
    s.args.kv_len = 90;
    s.args.key =
        (attnkit_tensor){.data = key, .strides = {90 * 160, 0, 160}, .layout = ATTNKIT_STRIDED};
    run(&s.args, NULL, 1);
    float *const want = malloc(bytes);
    memcpy(want, s.out, bytes);

    struct cached_layer cache;
    attnkit_layer_args *const a = &cache.args;
    cached_layer_begin(&cache, &s, &storages[2]);
    memset(s.out, 0, bytes);
    run(a, NULL, 1); /* appends the keys of the encoder */
    assert_memory_equal(s.out, want, bytes);
    char *const before = malloc(cache.bytes);
    memcpy(before, cache.k, cache.bytes);
    a->key.data = NULL;
    a->kv_len = 0;
    a->flags |= ATTNKIT_NO_APPEND;
    memset(s.out, 0, bytes);
    for (int64_t i = 0; i < 60; i += 20) {
        cached_layer_step(&cache, &s, i, 20);
        cache.cached[0] = cache.cached[1] = 90;
        run(a, NULL, 2);
    }
    assert_memory_equal(s.out, want, bytes);
    assert_memory_equal(cache.k, before, cache.bytes);
    free(before);
    free(want);
    free(key);
    cached_layer_end(&cache);
    sequences_end(&s);
}

/* -------------------------------------------------------------------- heads, rows and threads */

/* Repeats the `floats` numbers of each KV head, once for each query head of its group. */
static float *repeat_heads(const float *w, int64_t kv_heads, int64_t group, int64_t floats)
{
    float *const all = malloc((size_t)(kv_heads * group * floats) * sizeof *all);
    for (int64_t h = 0; h < kv_heads * group; h++)
        memcpy(all + h * floats, w + h / group * floats, (size_t)floats * sizeof *all);
    return all;
}

static void shared_heads_have_the_bits_of_repeated_heads(void **state)
{
    (void)state;
    struct sequences s;
    sequences_begin(&s, 2, 50, 13);
    const size_t bytes = (size_t)(2 * 50 * 40) * sizeof(float);
    float *const want = malloc(bytes);
    run(&s.args, NULL, 1);
    memcpy(want, s.out, bytes);
    struct layer repeated = {.w = s.layer.w};
    repeated.w.kv_heads = 0; /* 0: as many KV heads as query heads */
    repeated.w.w_k = repeat_heads(s.layer.w.w_k, 2, 3, 32 * 40);
    repeated.w.w_v = repeat_heads(s.layer.w.w_v, 2, 3, 32 * 40);
    layer_pack(&repeated);
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
    sequences_end(&s);
}

/* Compares an attention call whose query heads share KV heads with two calls that repeat the KV
 * heads: by copies in memory, and by a dimension of stride 0. */
static void a_stride_of_0_over_the_group_has_the_bits_of_repeated_heads(void **state)
{
    (void)state;
    enum { GROUP = 4, KV = 2, L = 70, D = 24 };
    uint64_t random = 17;
    float *const q = layer_floats(KV * GROUP * L * D, &random);
    float *const k = layer_floats(KV * L * D, &random), *const v =
                                                            layer_floats(KV * L * D, &random);
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
                                           .q.data = q,
                                           .k.data = k,
                                           .v.data = v,
                                           .out.data = out[0]};
    attend(shared);
    attnkit_attention_args repeated = shared;
    repeated.kv_heads = KV * GROUP;
    repeated.k.data = all_k;
    repeated.v.data = all_v;
    repeated.out.data = out[1];
    attend(repeated);
    /* The third call has a batch entry for each KV head, and a head for each query head of this
     * KV head. */
    const attnkit_tensor rows = {.strides = {GROUP * L * D * 4, L * D * 4, D * 4},
                                 .layout = ATTNKIT_STRIDED};
    const attnkit_tensor keys = {.strides = {L * D * 4, 0, D * 4}, .layout = ATTNKIT_STRIDED};
    attnkit_attention_args broadcast = {.size = sizeof broadcast,
                                        .batch = KV,
                                        .q_heads = GROUP,
                                        .kv_heads = GROUP,
                                        .q_len = L,
                                        .kv_len = L,
                                        .head_dim = D,
                                        .q = rows,
                                        .k = keys,
                                        .v = keys,
                                        .out = rows};
    broadcast.q.data = q;
    broadcast.k.data = k;
    broadcast.v.data = v;
    broadcast.out.data = out[2];
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

static void packed_sequences_have_the_bits_of_each_sequence_alone(void **state)
{
    (void)state;
    static const int64_t starts[] = {0, 17, 17, 60}, positions[] = {5, 1000, 77};
    static float means[60 * 60], want_means[60 * 60];
    struct sequences s;
    sequences_begin(&s, 1, 60, 19);
    const size_t bytes = (size_t)(60 * 40) * sizeof(float);
    float *const want = malloc(bytes);
    s.attention.align = ATTNKIT_ALIGN_UPPER_LEFT;
    s.args.mean_weights = means;
    attnkit_layer_args a = s.args;
    memset(want_means, 0,
           sizeof want_means); /* a row has weights of 0 for the keys of other sequences */
    for (int b = 0; b < 3; b++) {
        a.q_len = starts[b + 1] - starts[b];
        a.x.data = s.x + starts[b] * 40;
        a.out.data = want + starts[b] * 40;
        s.rotation.positions.data = positions + b;
        run(&a, NULL, 1);
        for (int64_t i = 0; i < a.q_len; i++)
            memcpy(want_means + (starts[b] + i) * 60, means + i * a.q_len,
                   (size_t)a.q_len * sizeof *means);
    }
    attnkit_layer_args all = s.args;
    all.batch = 3;
    s.groups.storage.cu_seqlens_q.data = starts;
    s.rotation.positions.data = positions;
    for (int64_t threads = 1; threads <= LAYER_THREADS; threads++) {
        memset(s.out, 0, bytes);
        memset(means, 0xa5, sizeof means);
        run(&all, NULL, threads);
        assert_memory_equal(s.out, want, bytes);
        assert_memory_equal(means, want_means, sizeof means);
    }
    free(want);
    sequences_end(&s);
}

/* The strides leave gaps after rows and after entries. The rows of all entries then do not form one
 * matrix, so the library runs a linear map for each entry. */
static void strides_change_no_bit(void **state)
{
    (void)state;
    struct sequences s;
    sequences_begin(&s, 3, 8, 21);
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
    a.x.data = x;
    a.out.data = out;
    a.x.strides[0] = a.out.strides[0] = ENTRY * 4;
    a.x.strides[2] = a.out.strides[2] = ROW * 4;
    for (int64_t threads = 1; threads <= LAYER_THREADS; threads++) {
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
    sequences_end(&s);
}

/* The weights of Q, K and V lie in one matrix, and their biases in one vector, as in PyTorch. */
static void joined_weights_are_packed_as_separate_matrices(void **state)
{
    (void)state;
    uint64_t random = 23;
    enum { M = 24, H = 4, D = 6 };
    float *const w = layer_floats(3 * H * D * M, &random), *const b =
                                                               layer_floats(3 * H * D, &random);
    float *const o = layer_floats(M * H * D, &random);
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
    layer_pack(&joined);
    layer_pack(&lone);
    assert_int_equal(joined.size, lone.size);
    assert_memory_equal(joined.packed, lone.packed, lone.size);
    free(joined.packed);
    free(lone.packed);
    free(w);
    free(b);
    free(o);
}

static void threads_of_the_caller_meet_after_each_part(void **state)
{
    (void)state;
    for (int number = 0; number < 12; number++) {
        struct layer_call c;
        layer_call_draw(&c, number);
        run(&c.args, NULL, 1);
        struct layer_results want = layer_results_copy(&c);
        for (int64_t threads = 2; threads <= LAYER_THREADS; threads++) {
            layer_call_clear(&c);
            layer_call_run(&c.args, (struct layer_way){.threads = threads, .own_threads = true});
            layer_call_expect(&c, &want);
        }
        layer_results_free(&want);
        layer_call_free(&c);
    }
}

/* Permutes the first `cached` rows of a head's cache of K or V. Cell (3 * i + b) % cached of entry
 * b gets the key of index i. Each of these cells gets a key, because `cached` is no multiple of 3.
 * The later cells, for new keys, keep their places. Writes the index of each cell's key to
 * `index`. */
static void shuffle_cells(float *rows, int64_t b, int64_t cached, int64_t index[CAPACITY])
{
    float old[CAPACITY * HEAD_DIM];
    memcpy(old, rows, sizeof old);
    for (int64_t i = 0; i < CAPACITY; i++) {
        const int64_t cell = i < cached ? (3 * i + b) % cached : i;
        index[cell] = i;
        memcpy(rows + cell * HEAD_DIM, old + i * HEAD_DIM, HEAD_DIM * sizeof *rows);
    }
}

/* Makes a layer whose cache has the keys in order. The numbers of cached keys are no multiples of
 * 3, as shuffle_cells needs. The layer computes no mean weights, because layer_in_cells would have
 * their columns in the order of the cells. */
static struct small_layer *layer_in_order(void)
{
    struct small_layer *const c = small_layer();
    c->cached[0] = 5;
    c->cached[1] = 7;
    c->args.mean_weights = NULL;
    return c;
}

static struct small_layer *layer_in_cells(int64_t index[BATCH][CAPACITY])
{
    struct small_layer *const c = layer_in_order();
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t h = 0; h < KV_HEADS; h++) {
            const int64_t first = MARGIN + (b * KV_HEADS + h) * CAPACITY * HEAD_DIM;
            shuffle_cells(c->k + first, b, c->cached[b], index[b]);
            shuffle_cells(c->v + first, b, c->cached[b], index[b]);
        }
    c->groups.storage.key_index.data = index;
    c->groups.storage.key_index_stride = CAPACITY;
    return c;
}

static void cells_have_the_bits_of_a_cache_in_order(void **state)
{
    (void)state;
    static float out[ROOM], lse[ROOM];
    int64_t index[BATCH][CAPACITY];
    for (int i = 0; i < isa_count; i++)
        for (int64_t threads = 1; threads <= LAYER_THREADS; threads++)
            for (int own = 0; own < 2; own++) {
                const struct layer_way way = {isas[i], threads, own};
                struct small_layer *c = layer_in_order();
                layer_call_run(&c->args, way);
                memcpy(out, c->out, sizeof out);
                memcpy(lse, c->lse, sizeof lse);
                c = layer_in_cells(index);
                layer_call_run(&c->args, way);
                assert_memory_equal(out, c->out, sizeof out);
                assert_memory_equal(lse, c->lse, sizeof lse);
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
        cmocka_unit_test(shared_heads_have_the_bits_of_repeated_heads),
        cmocka_unit_test(a_stride_of_0_over_the_group_has_the_bits_of_repeated_heads),
        cmocka_unit_test(packed_sequences_have_the_bits_of_each_sequence_alone),
        cmocka_unit_test(strides_change_no_bit),
        cmocka_unit_test(joined_weights_are_packed_as_separate_matrices),
        cmocka_unit_test(threads_of_the_caller_meet_after_each_part),
        cmocka_unit_test(cells_have_the_bits_of_a_cache_in_order),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, list_isas, NULL);
}
