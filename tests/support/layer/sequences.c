/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/layer/sequences.h"

#include <stdlib.h>

void sequences_begin(struct sequences *s, int64_t batch, int64_t len, uint64_t seed)
{
    const attnkit_layer_weights shape = {
        .d_model = ROW_FLOATS, .q_heads = 6, .kv_heads = 2, .head_dim = 32};
    uint64_t random = seed;
    *s = (struct sequences){.batch = batch, .len = len};
    layer_draw_shape(&s->layer, &shape, false, &random);
    layer_pack(&s->layer);
    s->x = layer_floats(batch * len * ROW_FLOATS, &random);
    s->out = malloc(sequences_bytes(s));
    s->attention = (attnkit_attention_args){
        .size = sizeof s->attention, .flags = ATTNKIT_CAUSAL, .align = ATTNKIT_ALIGN_BOTTOM_RIGHT};
    groups_init(&s->groups);
    groups_hang(&s->attention, &s->groups);
    attnkit_rotation_init(&s->rotation);
    s->rotation.kind = ATTNKIT_ROPE_HALF;
    const attnkit_tensor rows = {.strides = {len * ROW_BYTES, 0, ROW_BYTES},
                                 .layout = ATTNKIT_STRIDED};
    s->args = (attnkit_layer_args){.size = sizeof s->args,
                                   .packed = s->layer.packed,
                                   .packed_size = s->layer.size,
                                   .batch = batch,
                                   .q_len = len,
                                   .x = rows,
                                   .out = rows,
                                   .rotation = &s->rotation,
                                   .attention = &s->attention};
    s->args.x.data = s->x;
    s->args.out.data = s->out;
}

void sequences_end(struct sequences *s)
{
    layer_free(&s->layer);
    free(s->x);
    free(s->out);
}

size_t sequences_bytes(const struct sequences *s)
{
    return (size_t)(s->batch * s->len * ROW_BYTES);
}

const struct storage storages[STORAGES] = {
    {ATTNKIT_F32, false, false}, {ATTNKIT_F32, true, false},   {ATTNKIT_F32, false, true},
    {ATTNKIT_F16, true, true},   {ATTNKIT_BF16, false, true},  {ATTNKIT_I8, true, false},
    {ATTNKIT_I8, false, true},   {ATTNKIT_Q8_0, true, true},   {ATTNKIT_Q8_0, false, false},
    {ATTNKIT_Q4_0, true, false}, {ATTNKIT_Q5_0, false, false},
};

void cached_layer_begin(struct cached_layer *c, const struct sequences *s,
                        const struct storage *how)
{
    const size_t rows = CACHE_PAGES * CACHE_PAGE * 2;
    *c = (struct cached_layer){.args = s->args, .attention = s->attention, .groups = s->groups};
    attnkit_attention_args *const a = &c->attention;
    groups_hang(a, &c->groups);
    c->args.attention = a;
    c->args.cached.data = c->cached;
    c->bytes = rows * 32 * sizeof(float);
    c->k = calloc(1, c->bytes);
    c->v = calloc(1, c->bytes);
    c->k_scales = calloc(rows, sizeof(float));
    c->v_scales = calloc(rows, sizeof(float));
    for (int i = 0; i < CACHE_PAGES; i++)
        c->table[i] = (int32_t)((i * 7 + 3) % CACHE_PAGES);
    a->k =
        (attnkit_tensor){.data = c->k, .type = how->type, .layout = how->tiled ? ATTNKIT_TILED : 0};
    a->v = (attnkit_tensor){.data = c->v, .type = how->type};
    a->kv_len = CACHE_CAPACITY;
    if (how->type == ATTNKIT_I8) {
        c->groups.storage.k_scales.data = c->k_scales;
        c->groups.storage.v_scales.data = c->v_scales;
    }
    if (how->paged) {
        attnkit_pages *const pages = &c->groups.pages;
        pages->block_table = c->table;
        pages->block_table_stride = CACHE_CAPACITY / CACHE_PAGE + 1;
        pages->page_size = CACHE_PAGE;
        pages->pages = CACHE_PAGES;
    }
}

void cached_layer_end(struct cached_layer *c)
{
    free(c->k);
    free(c->v);
    free(c->k_scales);
    free(c->v_scales);
}

void cached_layer_step(struct cached_layer *c, const struct sequences *s, int64_t first,
                       int64_t q_len)
{
    c->args.q_len = q_len;
    c->args.x.data = s->x + first * ROW_FLOATS;
    c->args.out.data = s->out + first * ROW_FLOATS;
    for (int64_t b = 0; b < s->batch; b++)
        c->cached[b] = first;
}
