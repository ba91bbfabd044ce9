/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cases/planned.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/memory.h"

void plan_bring(const attnkit_attention_args *args, struct brought *b)
{
    const struct groups g = groups_of(args);
    b->data = (attnkit_attention_data){
        .size = sizeof b->data,
        .batch = args->batch,
        .q_len = args->q_len,
        .kv_len = args->kv_len,
        .q = args->q.data,
        .k = args->k.data,
        .v = args->v.data,
        .out = (void *)(uintptr_t)args->out.data,
        .lse = (float *)(uintptr_t)args->lse.data,
        .kv_lens = g.visibility.kv_lens.data,
        .q_offsets = args->q_offsets.data,
        .cu_seqlens_q = g.storage.cu_seqlens_q.data,
        .cu_seqlens_kv = g.storage.cu_seqlens_kv.data,
        .block_table = g.pages.block_table,
        .groups = &b->groups,
    };
    b->groups = (attnkit_attention_group_data){
        .size = sizeof b->groups,
        .k_scales = g.storage.k_scales.data,
        .v_scales = g.storage.v_scales.data,
        .q_segment_ids = g.visibility.q_segment_ids,
        .kv_segment_ids = g.visibility.kv_segment_ids,
        .mask = g.visibility.mask.data,
        .mask_bits = g.visibility.mask_bits.data,
        .bias = g.scores.bias.data,
        .alibi_slopes = g.scores.alibi_slopes,
        .sinks = g.scores.sinks,
        .dropout_seeds = g.scores.dropout_seeds,
        .state_in = g.states.state_in,
        .state_out = g.states.state_out,
        .weights = (float *)(uintptr_t)g.weights.weights.data,
        .bias_scales = g.scores.bias_scales,
        .key_index = g.storage.key_index.data,
    };
}

static void *later(const void *data)
{
    return data ? ATTNKIT_LATER : NULL;
}

static attnkit_state state_later(attnkit_state s)
{
    return (attnkit_state){later(s.max), later(s.sum), later(s.out)};
}

void plan_forget(attnkit_attention_args *args, struct groups *g)
{
    attnkit_visibility *const see = &g->visibility;
    attnkit_tensor *const tensors[] = {
        &args->q,
        &args->k,
        &args->v,
        &args->out,
        &args->lse,
        &g->storage.k_scales,
        &g->storage.v_scales,
        &see->mask,
        &see->mask_bits,
        &g->scores.bias,
        &g->weights.weights,
    };
    attnkit_ints *const ints[] = {&args->q_offsets, &see->kv_lens, &g->storage.cu_seqlens_q,
                                  &g->storage.cu_seqlens_kv, &g->storage.key_index};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        tensors[i]->data = later(tensors[i]->data);
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++)
        ints[i]->data = later(ints[i]->data);
    g->pages.block_table = later(g->pages.block_table);
    see->q_segment_ids = later(see->q_segment_ids);
    see->kv_segment_ids = later(see->kv_segment_ids);
    g->scores.alibi_slopes = later(g->scores.alibi_slopes);
    g->scores.sinks = later(g->scores.sinks);
    g->scores.dropout_seeds = later(g->scores.dropout_seeds);
    g->scores.bias_scales = later(g->scores.bias_scales);
    g->states.state_in = state_later(g->states.state_in);
    g->states.state_out = state_later(g->states.state_out);
    groups_hang(args, g);
}

struct plan plan_new(void)
{
    struct plan p = {.size = attnkit_attention_plan_size()};
    const size_t room = (p.size + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
    p.memory = aligned_alloc(PLAN_ALIGNMENT, room);
    p.written = aligned_alloc(PLAN_ALIGNMENT, room);
    memset(p.memory, 0xff, p.size);
    return p;
}

struct plan plan_call(const attnkit_attention_args *args, const char *isa, int64_t threads)
{
    attnkit_attention_args shape = *args;
    struct groups groups = groups_of(args);
    struct plan p = plan_new();
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    char message[ATTNKIT_MESSAGE_SIZE];
    plan_forget(&shape, &groups);
    if (attnkit_attention_plan(&shape, &exec, p.memory, p.size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    assert_string_equal(message, "");
    memcpy(p.written, p.memory, p.size);
    return p;
}

void plan_free(const struct plan *p)
{
    assert_memory_equal(p->memory, p->written, p->size);
    free(p->memory);
    free(p->written);
}

size_t plan_workspace(const void *plan)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes;
    if (attnkit_attention_plan_workspace(plan, &bytes, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    return bytes;
}

static void backwards(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    while (n-- > 0)
        task(arg, n);
}

void plan_run(const void *plan, const attnkit_attention_data *data, int64_t threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    struct guarded workspace = memory_guarded(plan_workspace(plan), 0, true);
    const attnkit_exec exec = {.size = sizeof exec,
                               .workspace = workspace.data,
                               .workspace_size = plan_workspace(plan),
                               .threads = threads,
                               .parallel_for = threads > 1 ? backwards : NULL};
    if (attnkit_attention_run(plan, data, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    assert_string_equal(message, "");
    memory_unguard(&workspace);
}
