/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/layer/drawn.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/random.h"

/* --- Drawing ---------------------------------------------------------------------------------- */

static void draw_options(struct layer_call *c, uint64_t *random)
{
    attnkit_attention_args *const a = &c->attention;
    struct groups *const g = &c->groups;
    const int64_t heads = c->layer.w.q_heads, batch = c->args.batch;
    const int64_t cells = batch * heads * c->args.q_len * c->keys;
    *a = (attnkit_attention_args){.size = sizeof *a};
    groups_init(g);
    groups_hang(a, g);
    if (random_below(random, 2)) {
        a->flags |= ATTNKIT_CAUSAL;
        a->align = random_below(random, 2) ? ATTNKIT_ALIGN_UPPER_LEFT : ATTNKIT_ALIGN_BOTTOM_RIGHT;
    }
    for (int64_t b = 0; b < batch; b++)
        c->kv_lens[b] = random_below(random, c->keys + 1);
    if (random_below(random, 3) == 0)
        g->visibility.kv_lens.data = c->kv_lens;
    c->mask = malloc((size_t)cells + 1);
    for (int64_t i = 0; i < cells; i++)
        c->mask[i] = random_below(random, 4) > 0;
    c->bias = layer_floats(cells, random);
    c->slopes = layer_floats(heads, random);
    c->sinks = layer_floats(heads, random);
    c->bias_scales = layer_floats(heads, random);
    if (random_below(random, 3) == 0) {
        g->visibility.mask = (attnkit_tensor){.data = c->mask, .type = ATTNKIT_BOOL};
        g->visibility.mask_kind = ATTNKIT_MASK_ATTEND;
    }
    if (random_below(random, 3) == 0)
        g->scores.bias.data = c->bias;
    if (g->scores.bias.data && random_below(random, 2))
        g->scores.bias_scales = c->bias_scales;
    if (a->align != ATTNKIT_ALIGN_NONE && random_below(random, 3) == 0)
        g->scores.alibi_slopes = c->slopes;
    if (random_below(random, 3) == 0)
        g->scores.sinks = c->sinks;
    if (random_below(random, 3) == 0)
        g->scores.softcap = 3.0;
}

static void draw_outputs(struct layer_call *c, uint64_t *random)
{
    const int64_t rows = c->args.batch * c->args.q_len, heads = c->layer.w.q_heads;
    c->out_bytes = (size_t)(rows * c->layer.d_out) * sizeof(float);
    c->lse_bytes = (size_t)(rows * heads) * sizeof(float);
    c->weights_bytes = (size_t)(rows * heads * c->keys) * sizeof(float);
    c->mean_bytes = (size_t)(rows * c->keys) * sizeof(float);
    c->results = layer_results_new(c);
    c->args.out.data = c->results.out;
    c->attention.lse.data = c->results.lse;
    if (random_below(random, 2)) {
        c->groups.weights.weights.data = c->results.weights;
        c->groups.weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
    }
    if (random_below(random, 2))
        c->args.mean_weights = c->results.mean;
}

/* Draws a rotation by angles, or by tables of random numbers. */
static void draw_rotation(struct layer_call *c, uint64_t *random)
{
    attnkit_rotation *const r = &c->rotation;
    attnkit_rotation_init(r);
    r->kind = random_below(random, 2) ? ATTNKIT_ROPE_HALF : ATTNKIT_ROPE_INTERLEAVED;
    for (int64_t b = 0; b < c->args.batch; b++)
        c->positions[b] = random_below(random, 1000);
    r->positions.data = random_below(random, 2) ? c->positions : NULL;
    if (random_below(random, 2)) {
        r->dim = c->layer.w.head_dim > 2 ? c->layer.w.head_dim - 2 : 2;
        r->table_positions = 1000 + c->args.q_len;
        r->cos = c->cos = layer_floats(r->table_positions * r->dim / 2, random);
        r->sin = c->sin = layer_floats(r->table_positions * r->dim / 2, random);
    }
    c->args.rotation = r;
}

void layer_call_draw(struct layer_call *c, int number)
{
    uint64_t random = (uint64_t)number + 1;
    const bool is_self = number % 3 > 0;
    *c = (struct layer_call){0};
    layer_draw(&c->layer, is_self, &random);
    layer_pack(&c->layer);
    attnkit_layer_args *const a = &c->args;
    *a = (attnkit_layer_args){.size = sizeof *a,
                              .packed = c->layer.packed,
                              .packed_size = c->layer.size,
                              .attention = &c->attention};
    a->batch = 1 + random_below(&random, LAYER_BATCH);
    a->q_len = 1 + random_below(&random, number % 5 ? 20 : 200);
    c->keys = is_self ? a->q_len : random_below(&random, 150);
    a->x.data = layer_floats(a->batch * a->q_len * c->layer.w.d_model, &random);
    if (!is_self) {
        a->kv_len = c->keys;
        a->key.data = layer_floats(a->batch * c->keys * c->layer.d_key, &random);
        if (c->layer.d_value != c->layer.d_key || random_below(&random, 2))
            a->value.data = layer_floats(a->batch * c->keys * c->layer.d_value, &random);
    } else if (random_below(&random, 2)) {
        draw_rotation(c, &random);
    }
    draw_options(c, &random);
    draw_outputs(c, &random);
}

void layer_call_free(struct layer_call *c)
{
    layer_free(&c->layer);
    free((void *)(uintptr_t)c->args.x.data);
    free((void *)(uintptr_t)c->args.key.data);
    free((void *)(uintptr_t)c->args.value.data);
    free(c->cos);
    free(c->sin);
    free(c->slopes);
    free(c->sinks);
    free(c->bias);
    free(c->bias_scales);
    free(c->mask);
    layer_results_free(&c->results);
}

/* --- Results ---------------------------------------------------------------------------------- */

void layer_call_clear(const struct layer_call *c)
{
    memset(c->results.out, 0xa5, c->out_bytes);
    memset(c->results.lse, 0xa5, c->lse_bytes);
    memset(c->results.weights, 0xa5, c->weights_bytes);
    memset(c->results.mean, 0xa5, c->mean_bytes);
}

struct layer_results layer_results_new(const struct layer_call *c)
{
    return (struct layer_results){malloc(c->out_bytes + 1), malloc(c->lse_bytes + 1),
                                  malloc(c->weights_bytes + 1), malloc(c->mean_bytes + 1)};
}

struct layer_results layer_results_copy(const struct layer_call *c)
{
    const struct layer_results copy = layer_results_new(c);
    memcpy(copy.out, c->results.out, c->out_bytes);
    memcpy(copy.lse, c->results.lse, c->lse_bytes);
    memcpy(copy.weights, c->results.weights, c->weights_bytes);
    memcpy(copy.mean, c->results.mean, c->mean_bytes);
    return copy;
}

void layer_results_free(struct layer_results *r)
{
    free(r->out);
    free(r->lse);
    free(r->weights);
    free(r->mean);
}

void layer_call_expect(const struct layer_call *c, const struct layer_results *want)
{
    assert_memory_equal(c->results.out, want->out, c->out_bytes);
    assert_memory_equal(c->results.lse, want->lse, c->lse_bytes);
    if (c->groups.weights.weights.data && c->weights_bytes)
        assert_memory_equal(c->results.weights, want->weights, c->weights_bytes);
    if (c->args.mean_weights && c->mean_bytes)
        assert_memory_equal(c->results.mean, want->mean, c->mean_bytes);
}
