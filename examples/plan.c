/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding with plans. Shapes, types and options are checked once, before the first token. Then
 * each layer of each step runs the same two plans on its own memory, with the current length of the
 * cache. One plan appends a row to K or to V. The other plan attends over the cache. main checks
 * that the results have the bits of attnkit_attention.
 */
#include <attnkit.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, STEPS = 40, CONTEXT = 64 }; /* CONTEXT: tokens that a cache has room for */
enum { Q_HEADS = 8, KV_HEADS = 2, DIM = 64 };

/* Keys and values of a layer, [KV_HEADS][CONTEXT][DIM]. */
struct cache {
    float k[KV_HEADS * CONTEXT * DIM], v[KV_HEADS * CONTEXT * DIM];
};

static struct cache caches[LAYERS];

static void expect_ok(attnkit_status status, const char *message)
{
    if (status == ATTNKIT_OK)
        return;
    fprintf(stderr, "%s: %s\n", attnkit_status_string(status), message);
    exit(1);
}

static void *allocate(size_t bytes)
{
    void *const memory = malloc(bytes ? bytes : 1);
    if (!memory)
        exit(1);
    return memory;
}

/* --------------------------------------------------------------------------------- plans */

/* The arguments that are fixed for all layers and steps. Lengths are upper bounds for the lengths
 * of the runs. ATTNKIT_LATER stands for a pointer that each run brings. */
static const attnkit_append_args append_args = {
    .size = sizeof append_args,
    .batch = 1,
    .heads = KV_HEADS,
    .len = 1,
    .dim = DIM,
    .capacity = CONTEXT,
    .src = {.data = ATTNKIT_LATER},
    .dst = {.data = ATTNKIT_LATER},
    .starts = {.data = ATTNKIT_LATER, .type = ATTNKIT_INT32},
};

static const attnkit_attention_args attention_args = {
    .size = sizeof attention_args,
    .batch = 1,
    .q_heads = Q_HEADS,
    .kv_heads = KV_HEADS,
    .q_len = 1,
    .kv_len = CONTEXT,
    .head_dim = DIM,
    .q = {.data = ATTNKIT_LATER},
    .k = {.data = ATTNKIT_LATER},
    .v = {.data = ATTNKIT_LATER},
    .out = {.data = ATTNKIT_LATER},
};

struct plans {
    void *append, *attention;
    attnkit_exec exec; /* its workspace is large enough for a run of either plan */
};

static void make_plans(struct plans *plans)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    const size_t append_size = attnkit_append_plan_size();
    const size_t attention_size = attnkit_attention_plan_size();
    size_t append_bytes, attention_bytes;
    plans->append = allocate(append_size);
    plans->attention = allocate(attention_size);
    expect_ok(attnkit_append_plan(&append_args, NULL, plans->append, append_size, message),
              message);
    expect_ok(
        attnkit_attention_plan(&attention_args, NULL, plans->attention, attention_size, message),
        message);
    expect_ok(attnkit_append_plan_workspace(plans->append, &append_bytes, message), message);
    expect_ok(attnkit_attention_plan_workspace(plans->attention, &attention_bytes, message),
              message);
    const size_t bytes = append_bytes > attention_bytes ? append_bytes : attention_bytes;
    plans->exec = (attnkit_exec){
        .size = sizeof plans->exec, .workspace = allocate(bytes), .workspace_size = bytes};
}

static void free_plans(struct plans *plans)
{
    free(plans->append);
    free(plans->attention);
    free(plans->exec.workspace);
}

/* ---------------------------------------------------------------------------------- runs */

/* Appends src [KV_HEADS][DIM] to dst, K or V of a cache, as row `at` of each head. */
static void append(const struct plans *plans, int32_t at, const float *src, float *dst)
{
    const attnkit_append_data data = {
        .size = sizeof data, .batch = 1, .len = 1, .src = src, .dst = dst, .starts = &at};
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_ok(attnkit_append_run(plans->append, &data, &plans->exec, message), message);
}

/* Attends with a query row of each head over the first `keys` keys. */
static void attend(const struct plans *plans, const struct cache *cache, int64_t keys,
                   const float *q, float *out)
{
    const attnkit_attention_data data = {.size = sizeof data,
                                         .batch = 1,
                                         .q_len = 1,
                                         .kv_len = keys,
                                         .q = q,
                                         .k = cache->k,
                                         .v = cache->v,
                                         .out = out};
    char message[ATTNKIT_MESSAGE_SIZE];
    expect_ok(attnkit_attention_run(plans->attention, &data, &plans->exec, message), message);
}

/* ----------------------------------------------------------------------------- the check */

/* Attends without a plan. kv_len is the capacity of the cache, and kv_lens has the number of its
 * keys. */
static void attend_without_plan(const struct cache *cache, int32_t keys, const float *q, float *out)
{
    const attnkit_visibility visibility = {.size = sizeof visibility,
                                           .kv_lens = {.data = &keys, .type = ATTNKIT_INT32}};
    attnkit_attention_args args = attention_args;
    attnkit_exec exec = {.size = sizeof exec};
    char message[ATTNKIT_MESSAGE_SIZE];
    args.q.data = q;
    args.k.data = cache->k;
    args.v.data = cache->v;
    args.out.data = out;
    args.visibility = &visibility;
    expect_ok(attnkit_attention_workspace(&args, &exec, &exec.workspace_size, message), message);
    exec.workspace = allocate(exec.workspace_size);
    expect_ok(attnkit_attention(&args, &exec, message), message);
    free(exec.workspace);
}

/* Draws numbers that stand for the projections of a model. */
static void draw(float *x, size_t count)
{
    static unsigned seed = 1;
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
}

int main(void)
{
    float q[Q_HEADS * DIM], k[KV_HEADS * DIM], v[KV_HEADS * DIM];
    float out[Q_HEADS * DIM], wanted[Q_HEADS * DIM];
    bool ok = true;
    struct plans plans;
    make_plans(&plans);
    for (int32_t step = 0; step < STEPS; step++)
        for (int layer = 0; layer < LAYERS; layer++) {
            struct cache *const cache = &caches[layer];
            draw(q, Q_HEADS * DIM);
            draw(k, KV_HEADS * DIM);
            draw(v, KV_HEADS * DIM);
            append(&plans, step, k, cache->k);
            append(&plans, step, v, cache->v);
            attend(&plans, cache, step + 1, q, out);
            attend_without_plan(cache, step + 1, q, wanted);
            ok = ok && !memcmp(out, wanted, sizeof out);
        }
    free_plans(&plans);
    printf("%d runs of two plans: %s bits as without plans\n", 3 * STEPS * LAYERS,
           ok ? "the same" : "OTHER");
    return ok ? 0 : 1;
}
