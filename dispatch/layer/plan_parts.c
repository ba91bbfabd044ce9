/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a checked layer call into the plans of its parts: attention, linear maps and appends.
 * Intermediate results lie in the workspace in binary32, token-major ([rows][heads][dim] for each
 * batch entry), as linear maps write them.
 */
#include "dispatch/attention/check.h"
#include "dispatch/common/message.h"
#include "dispatch/layer/layer_plan.h"

enum { FLOAT = sizeof(float) /* bytes */ };

/* Makes the workspace of the parts at least `bytes` large. Parts run one after the other and share
 * this workspace. */
static void make_room(struct layer_plan *plan, size_t bytes)
{
    if (bytes > plan->part_bytes)
        plan->part_bytes = bytes;
}

/* --- Attention -------------------------------------------------------------------------------- */

/* Returns a token-major tensor in the workspace. Each run sets the tensor's address. */
static attnkit_tensor token_major(int64_t rows, int64_t heads, int64_t dim)
{
    const int64_t row = heads * dim * FLOAT;
    return (attnkit_tensor){.data = ATTNKIT_LATER,
                            .strides = {rows * row, dim * FLOAT, row},
                            .layout = ATTNKIT_STRIDED};
}

/* The structs of the attention call: the caller's structs, with the fields that the layer sets. */
struct lowered {
    struct request request;
    attnkit_attention_args core;
    attnkit_kv_storage storage;
    attnkit_visibility visibility;
    attnkit_weights_out weights;
};

static void lower_core(const struct layer_plan *plan, attnkit_attention_args *core)
{
    const struct layer *const l = &plan->layer;
    const struct layer_lengths *const most = &plan->most;
    core->batch = most->batch;
    core->q_heads = l->q_heads;
    core->kv_heads = l->kv_heads;
    core->q_len = most->q_len;
    core->kv_len = most->room;
    core->head_dim = l->head_dim;
    core->value_dim = l->value_dim;
    core->q = token_major(most->q_len, l->q_heads, l->head_dim);
    core->out = token_major(most->q_len, l->q_heads, l->value_dim);
    if (plan->has.has_cache)
        return;
    core->k = token_major(most->room, l->kv_heads, l->head_dim);
    core->v = token_major(most->room, l->kv_heads, l->value_dim);
}

static void lower(const struct layer_request *r, const struct layer_plan *plan, struct lowered *to)
{
    const struct request *const theirs = &r->attention;
    to->core = *theirs->core;
    to->storage = *theirs->storage;
    to->visibility = *theirs->visibility;
    to->weights = *theirs->weights;
    lower_core(plan, &to->core);
    if (plan->has.lends_q_starts)
        to->storage.cu_seqlens_kv = to->storage.cu_seqlens_q;
    if (plan->has.has_cache)
        to->visibility.kv_lens = (attnkit_ints){.data = ATTNKIT_LATER, .type = ATTNKIT_INT64};
    if (plan->has.owns_weights) {
        to->weights.weights = (attnkit_tensor){.data = ATTNKIT_LATER};
        to->weights.kind = ATTNKIT_WEIGHTS_SOFTMAX;
    }
    struct request *const request = &to->request; /* only its pointers are set */
    request->core = &to->core;
    request->storage = &to->storage;
    request->pages = theirs->pages;
    request->visibility = &to->visibility;
    request->window = theirs->window;
    request->scores = theirs->scores;
    request->states = theirs->states;
    request->weights = &to->weights;
}

/* Renames tensors of attention to the names in the layer call. If the layer appends, makes the
 * cache an output. */
static void adopt_tensors(bool appends, struct attention_plan *plan)
{
    static const char *const names[SLOTS] = {
        [SLOT_OUT] = "out",
        [SLOT_LSE] = "attention->lse",
        [SLOT_WEIGHTS] = "attention->weights",
        [SLOT_Q] = "x",
        [SLOT_K] = "attention->k",
        [SLOT_V] = "attention->v",
        [SLOT_K_SCALES] = "attention->k_scales",
        [SLOT_V_SCALES] = "attention->v_scales",
        [SLOT_MASK] = "attention->mask",
        [SLOT_MASK_BITS] = "attention->mask_bits",
        [SLOT_BIAS] = "attention->bias",
        [SLOT_BIAS_SCALES] = "attention->bias_scales",
        [SLOT_Q_SEGMENT_IDS] = "attention->q_segment_ids",
        [SLOT_KV_SEGMENT_IDS] = "attention->kv_segment_ids",
        [SLOT_ALIBI_SLOPES] = "attention->alibi_slopes",
        [SLOT_SINKS] = "attention->sinks",
        [SLOT_DROPOUT_SEEDS] = "attention->dropout_seeds",
        [SLOT_KV_LENS] = "attention->kv_lens",
        [SLOT_Q_OFFSETS] = "attention->q_offsets",
        [SLOT_CU_SEQLENS_Q] = "attention->cu_seqlens_q",
        [SLOT_CU_SEQLENS_KV] = "attention->cu_seqlens_kv",
        [SLOT_BLOCK_TABLE] = "attention->block_table",
        [SLOT_KEY_INDEX] = "attention->key_index",
    };
    for (int i = 0; i < plan->count; i++) {
        struct planned_tensor *const t = &plan->tensors[i];
        if (names[t->slot])
            t->tensor.name = names[t->slot];
        if (appends && (t->slot == SLOT_K || t->slot == SLOT_V || t->slot == SLOT_K_SCALES ||
                        t->slot == SLOT_V_SCALES))
            t->tensor.output = true;
    }
}

static attnkit_status plan_attention(const struct layer_request *r, const struct kernels *kernels,
                                     struct layer_plan *plan, char *message)
{
    struct lowered lowered;
    lower(r, plan, &lowered);
    plan->attention.single = plan->single;
    attnkit_status status = attnkit_check_request(&lowered.request, message);
    if (status == ATTNKIT_OK)
        status = attnkit_make_attention_plan(&lowered.request, kernels, plan->threads,
                                             &plan->attention, message);
    if (status != ATTNKIT_OK)
        return status;
    adopt_tensors(plan->has.appends, &plan->attention);
    make_room(plan, plan->attention.header.workspace_size);
    return ATTNKIT_OK;
}

/* --- Linear maps ------------------------------------------------------------------------------ */

static attnkit_status plan_map(const attnkit_layer_args *layer_args, enum projection projection,
                               const struct kernels *kernels, struct layer_plan *plan,
                               char *message)
{
    const struct projection_shape *const p = &plan->layer.projection[projection];
    const bool of_keys = projection == K || projection == V, is_last = projection == O;
    const attnkit_linear_args args = {
        .size = sizeof args,
        .rows = of_keys ? plan->most.k_rows : plan->most.q_rows,
        .in_dim = p->in_dim,
        .out_dim = p->out_dim,
        .x = {.data = ATTNKIT_LATER, .type = is_last ? ATTNKIT_F32 : layer_args->x.type},
        .w = {.data = ATTNKIT_LATER, .type = (attnkit_type)plan->layer.type},
        .y = {.data = ATTNKIT_LATER, .type = is_last ? layer_args->out.type : ATTNKIT_F32},
        .bias = p->has_bias ? ATTNKIT_LATER : NULL,
    };
    struct linear_plan map;
    const attnkit_status status =
        attnkit_linear_plan_init(&args, plan->threads, kernels, &map, message);
    if (status != ATTNKIT_OK)
        return status;
    plan->maps[projection] = (struct planned_map){map.l, map.scratch_size};
    make_room(plan, map.header.workspace_size);
    return ATTNKIT_OK;
}

static attnkit_status plan_maps(const attnkit_layer_args *args, const struct kernels *kernels,
                                struct layer_plan *plan, char *message)
{
    attnkit_status status = ATTNKIT_OK;
    for (int i = Q; status == ATTNKIT_OK && i < PROJECTIONS; i++)
        if (plan->has.projects_keys || i == Q || i == O)
            status = plan_map(args, i, kernels, plan, message);
    return status;
}

/* --- Appends ---------------------------------------------------------------------------------- */

/* Returns the rotation of the call. Its positions default to `cached`. */
static attnkit_rotation rotation_of(const struct layer_request *r)
{
    attnkit_rotation rotation = *r->rotation;
    rotation.size = sizeof rotation;
    if (rotation.kind != ATTNKIT_ROPE_NONE && !rotation.positions.data)
        rotation.positions = r->core->cached;
    return rotation;
}

/* Returns the arguments of an append from rows of the workspace to other rows of the workspace. */
static attnkit_append_args within_workspace(const struct layer_plan *plan, int64_t len,
                                            int64_t heads, int64_t dim)
{
    return (attnkit_append_args){
        .size = sizeof(attnkit_append_args),
        .batch = plan->most.batch,
        .heads = heads,
        .len = len,
        .dim = dim,
        .capacity = len,
        .src = token_major(len, heads, dim),
        .dst = token_major(len, heads, dim),
    };
}

/* Makes a cache the destination of an append. */
static void to_cache(const struct layer_request *r, const attnkit_tensor *cache,
                     const attnkit_tensor *scales, int64_t scale_group, attnkit_append_args *args)
{
    args->capacity = r->attention.core->kv_len;
    args->dst = *cache;
    args->dst_scales = *scales;
    args->scale_group = scale_group;
    args->starts = r->core->cached;
}

/* Adds the arrays of the rotation to the layer's own tensors. */
static void keep_arrays(const struct append_plan *append, struct layer_plan *plan)
{
    static const struct {
        int from;
        enum own_tensor to;
    } arrays[] = {{APPEND_COS, OWN_COS}, {APPEND_SIN, OWN_SIN}, {APPEND_POSITIONS, OWN_POSITIONS}};
    for (int i = 0; i < 3; i++)
        if (plan->own_given >> arrays[i].to & 1)
            plan->own[arrays[i].to] = append->tensors[arrays[i].from];
    plan->table_positions = append->table_positions;
}

/* Plans an append to the cache with this name, or to the workspace if the name is NULL. */
static attnkit_status plan_append(const struct layer_request *r, const attnkit_append_args *args,
                                  const attnkit_rotation *rotation, const char *cache,
                                  struct layer_plan *plan, struct planned_append *planned,
                                  char *message)
{
    static const attnkit_pages no_pages;
    struct append_request request; /* only its pointers are set */
    struct append_plan append;
    char why[ATTNKIT_MESSAGE_SIZE];
    request.args = args;
    request.pages = cache ? r->attention.pages : &no_pages;
    request.rotation = rotation;
    const attnkit_status status =
        attnkit_append_plan_init(&request, plan->threads, &append, cache ? why : message);
    if (status != ATTNKIT_OK)
        return cache ? refuse(message, status, "%s as dst of an append: %.200s", cache, why)
                     : status;
    *planned = (struct planned_append){append.a, append.scratch_size};
    make_room(plan, append.header.workspace_size);
    if (append.a.pairs > 0)
        keep_arrays(&append, plan);
    return ATTNKIT_OK;
}

static attnkit_status plan_appends(const struct layer_request *r, struct layer_plan *plan,
                                   char *message)
{
    const struct layer *const l = &plan->layer;
    const attnkit_kv_storage *const storage = r->attention.storage;
    const attnkit_attention_args *const core = r->attention.core;
    const struct layer_options *const has = &plan->has;
    const attnkit_rotation rotation = rotation_of(r);
    static const attnkit_rotation none;
    attnkit_append_args q = within_workspace(plan, plan->most.q_len, l->q_heads, l->head_dim);
    attnkit_append_args k = within_workspace(plan, plan->most.key_len, l->kv_heads, l->head_dim);
    attnkit_append_args v = within_workspace(plan, plan->most.key_len, l->kv_heads, l->value_dim);
    if (has->appends) {
        to_cache(r, &core->k, &storage->k_scales, storage->k_scale_group, &k);
        to_cache(r, &core->v, &storage->v_scales, storage->v_scale_group, &v);
    }
    attnkit_status status = ATTNKIT_OK;
    if (has->rotates)
        status = plan_append(r, &q, &rotation, NULL, plan, &plan->append_q, message);
    if (status == ATTNKIT_OK && attnkit_appends_keys(has))
        status = plan_append(r, &k, &rotation, has->appends ? "attention->k" : NULL, plan,
                             &plan->append_k, message);
    if (status == ATTNKIT_OK && has->appends)
        status = plan_append(r, &v, &none, "attention->v", plan, &plan->append_v, message);
    return status;
}

/* --- All parts -------------------------------------------------------------------------------- */

attnkit_status attnkit_plan_layer_parts(const struct layer_request *r,
                                        const struct kernels *kernels, struct layer_plan *plan,
                                        char *message)
{
    plan->part_bytes = 0;
    attnkit_status status = plan_attention(r, kernels, plan, message);
    if (status == ATTNKIT_OK)
        status = plan_appends(r, plan, message);
    return status == ATTNKIT_OK ? plan_maps(r->core, kernels, plan, message) : status;
}
