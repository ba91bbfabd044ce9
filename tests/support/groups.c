/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/groups.h"

void groups_init(struct groups *g)
{
    attnkit_kv_storage_init(&g->storage);
    attnkit_pages_init(&g->pages);
    attnkit_visibility_init(&g->visibility);
    attnkit_window_init(&g->window);
    attnkit_score_mods_init(&g->scores);
    attnkit_states_init(&g->states);
    attnkit_weights_out_init(&g->weights);
}

void groups_hang(attnkit_attention_args *args, struct groups *g)
{
    g->storage.pages = &g->pages;
    if (g->visibility.window)
        g->visibility.window = &g->window;
    args->storage = &g->storage;
    args->visibility = &g->visibility;
    args->scores = &g->scores;
    args->states = &g->states;
    args->weights = &g->weights;
}

void groups_set_window(attnkit_attention_args *args, struct groups *g, int64_t left, int64_t right,
                       int64_t keep_first)
{
    g->window.left = left;
    g->window.right = right;
    g->window.keep_first = keep_first;
    g->visibility.window = &g->window;
    groups_hang(args, g);
}

struct groups groups_of(const attnkit_attention_args *args)
{
    struct groups g;
    groups_init(&g);
    if (args->storage)
        g.storage = *args->storage;
    if (g.storage.pages)
        g.pages = *g.storage.pages;
    if (args->visibility)
        g.visibility = *args->visibility;
    if (g.visibility.window)
        g.window = *g.visibility.window;
    if (args->scores)
        g.scores = *args->scores;
    if (args->states)
        g.states = *args->states;
    if (args->weights)
        g.weights = *args->weights;
    return g;
}

int64_t ints_at(attnkit_ints ints, int64_t i)
{
    if (ints.type == ATTNKIT_INT32)
        return ((const int32_t *)ints.data)[i];
    return ((const int64_t *)ints.data)[i];
}

void groups_set_strided(attnkit_attention_args *args, struct groups *g)
{
    attnkit_tensor *const tensors[] = {
        &args->q,
        &args->k,
        &args->v,
        &args->out,
        &args->lse,
        &g->storage.k_scales,
        &g->storage.v_scales,
        &g->visibility.mask,
        &g->visibility.mask_bits,
        &g->scores.bias,
        &g->weights.weights,
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        tensors[i]->layout |= ATTNKIT_STRIDED;
}
