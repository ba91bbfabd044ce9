/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the structs of a layer call and checks that the options of the call fit each other. When
 * plan_parts.c plans attention, linear maps and appends, it checks the options of each of these
 * parts.
 */
#include "dispatch/cache/cache.h"
#include "dispatch/common/ints.h"
#include "dispatch/common/message.h"
#include "dispatch/common/versioned.h"
#include "dispatch/layer/layer_plan.h"

static const struct version args_version = VERSION_OF(attnkit_layer_args, mean_weights);

attnkit_status attnkit_read_layer_request(const attnkit_layer_args *args, struct layer_request *r,
                                          char *message)
{
    const void *read;
    if (!args)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    attnkit_status status = read_struct(&args_version, args, &r->copy, &read, message);
    if (status != ATTNKIT_OK)
        return status;
    r->core = read;
    status = attnkit_read_rotation(r->core->rotation, &r->rotation_copy, &r->rotation, message);
    if (status != ATTNKIT_OK)
        return status;
    attnkit_attention_args_init(&r->no_attention);
    return attnkit_read_request(r->core->attention ? r->core->attention : &r->no_attention,
                                &r->attention, message);
}

/* --- Fields that must be empty ---------------------------------------------------------------- */

static attnkit_status refuse_given(const char *name, const char *why, char *message)
{
    return refuse(message, ATTNKIT_BAD_ARGUMENT, "attention->%s is given%s", name, why);
}

/* Returns the text that follows the name of a tensor in a message about its first nonzero field.
 * The text is empty for `data`. Returns NULL if all fields are zero. */
static const char *part_given(const attnkit_tensor *t)
{
    if (t->data)
        return "";
    if (t->type)
        return ".type";
    if (t->layout)
        return ".layout";
    return t->strides[0] || t->strides[1] || t->strides[2] ? ".strides" : NULL;
}

struct named_tensor {
    const char *name;
    const attnkit_tensor *tensor;
};

static attnkit_status check_no_tensors(const struct named_tensor *tensors, int count,
                                       const char *why, char *message)
{
    for (int i = 0; i < count; i++) {
        const char *const part = part_given(tensors[i].tensor);
        if (part)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "attention->%s%s is given%s",
                          tensors[i].name, part, why);
    }
    return ATTNKIT_OK;
}

static bool has_state(const attnkit_state *s)
{
    return s->max || s->sum || s->out;
}

/* Refuses fields of attention that the layer sets itself or does not support. Also refuses the
 * flags ATTNKIT_INTEGERS, ATTNKIT_BF16_PRODUCTS and ATTNKIT_SHORT_WEIGHTS, which a layer does not
 * support. */
static attnkit_status check_own_fields(const struct request *r, char *message)
{
    static const char why[] = ": the layer sets this field itself, or does not support it";
    const attnkit_attention_args *const a = r->core;
    const attnkit_states *const s = r->states;
    const struct named_tensor tensors[] = {{"q", &a->q}, {"out", &a->out}};
    const struct {
        const char *name;
        bool given;
    } fields[] = {
        {"batch", a->batch},
        {"q_heads", a->q_heads},
        {"kv_heads", a->kv_heads},
        {"q_len", a->q_len},
        {"head_dim", a->head_dim},
        {"value_dim", a->value_dim},
        {"first_key", s->first_key},
        {"state_in", has_state(&s->state_in)},
        {"state_out", has_state(&s->state_out)},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].given)
            return refuse_given(fields[i].name, why, message);
    if (a->flags & ATTNKIT_INTEGERS)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "attention->flags has ATTNKIT_INTEGERS: a layer does not multiply integers");
    if (a->flags & (ATTNKIT_BF16_PRODUCTS | ATTNKIT_SHORT_WEIGHTS))
        return refuse(
            message, ATTNKIT_UNSUPPORTED,
            "attention->flags has ATTNKIT_BF16_PRODUCTS or ATTNKIT_SHORT_WEIGHTS: a layer has no "
            "products of bf16");
    return check_no_tensors(tensors, 2, why, message);
}

/* Refuses fields of attention that need a cache. */
static attnkit_status check_cache_fields(const struct request *r, char *message)
{
    static const char why[] = ", but cached is NULL: there is no cache";
    const attnkit_kv_storage *const s = r->storage;
    const attnkit_pages *const pages = r->pages;
    const struct named_tensor tensors[] = {{"k", &r->core->k},
                                           {"v", &r->core->v},
                                           {"k_scales", &s->k_scales},
                                           {"v_scales", &s->v_scales}};
    const struct {
        const char *name;
        bool given;
    } fields[] = {
        {"kv_len", r->core->kv_len},
        {"k_scale_group", s->k_scale_group},
        {"v_scale_group", s->v_scale_group},
        {"block_table",
         pages->block_table || pages->block_table_stride || pages->page_size || pages->pages},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].given)
            return refuse_given(fields[i].name, why, message);
    return check_no_tensors(tensors, 4, why, message);
}

static attnkit_status check_cache_use(const struct layer_request *r, char *message)
{
    const attnkit_layer_args *const args = r->core;
    const struct request *const a = &r->attention;
    const bool no_append = args->flags & ATTNKIT_NO_APPEND;
    if (!args->cached.data && no_append)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "flags has ATTNKIT_NO_APPEND, but cached is NULL: there is no cache");
    if (!args->cached.data)
        return check_cache_fields(a, message);
    if (no_append && args->key.data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "key is given, but flags has ATTNKIT_NO_APPEND");
    if (a->visibility->kv_lens.data)
        return refuse_given("kv_lens", ": with a cache the lengths follow from cached", message);
    if (a->storage->cu_seqlens_q.data || a->storage->cu_seqlens_kv.data)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "attention->%s and cached are both given: packed sequences cannot be cached",
                      a->storage->cu_seqlens_q.data ? "cu_seqlens_q" : "cu_seqlens_kv");
    return ATTNKIT_OK;
}

static attnkit_status check_keys(const struct layer_request *r, const struct layer *layer,
                                 char *message)
{
    const attnkit_layer_args *const args = r->core;
    const struct projection_shape *const p = layer->projection;
    if (!args->key.data && args->value.data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "value is given, but key is NULL");
    if (!args->key.data && args->kv_len)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "kv_len is %lld, but key is NULL",
                      (long long)args->kv_len);
    if (args->key.data && r->rotation->kind != ATTNKIT_ROPE_NONE)
        return refuse(
            message, ATTNKIT_UNSUPPORTED,
            "rotation.kind is %d, but key is given: keys of another sequence have no position",
            (int)r->rotation->kind);
    if (args->flags & ATTNKIT_NO_APPEND)
        return ATTNKIT_OK;
    if (!args->key.data && p[K].in_dim != p[Q].in_dim)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "key is NULL: d_key (%lld) of the layer must be d_model (%lld)",
                      (long long)p[K].in_dim, (long long)p[Q].in_dim);
    if (!args->value.data && p[V].in_dim != p[K].in_dim)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "value is NULL: d_value (%lld) of the layer must be d_key (%lld)",
                      (long long)p[V].in_dim, (long long)p[K].in_dim);
    return ATTNKIT_OK;
}

/* --- The layer's own fields ------------------------------------------------------------------- */

static attnkit_status check_types(const attnkit_layer_args *args, char *message)
{
    const struct {
        const char *name;
        const attnkit_tensor *tensor;
    } inputs[] = {{"key.type", &args->key}, {"value.type", &args->value}};
    attnkit_status status = attnkit_check_rounded("x.type", args->x.type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rounded("out.type", args->out.type, message);
    for (int i = 0; status == ATTNKIT_OK && i < 2; i++)
        if (inputs[i].tensor->data && inputs[i].tensor->type != args->x.type)
            status = refuse(message, ATTNKIT_UNSUPPORTED, "%s is %d: must be x.type (%d)",
                            inputs[i].name, (int)inputs[i].tensor->type, (int)args->x.type);
    return status;
}

static attnkit_status check_layouts(const attnkit_layer_args *args, char *message)
{
    const struct {
        const char *name;
        uint32_t layout;
    } tensors[] = {{"x", args->x.layout},
                   {"key", args->key.layout},
                   {"value", args->value.layout},
                   {"out", args->out.layout}};
    attnkit_status status = ATTNKIT_OK;
    for (int i = 0; status == ATTNKIT_OK && i < 4; i++)
        status = attnkit_check_layout(tensors[i].name, tensors[i].layout, ATTNKIT_STRIDED, message);
    return status;
}

static attnkit_status check_options(const attnkit_layer_args *args, char *message)
{
    const struct {
        const char *name;
        int64_t value;
    } dims[] = {{"batch", args->batch}, {"q_len", args->q_len}, {"kv_len", args->kv_len}};
    if (args->flags & ~ATTNKIT_NO_APPEND)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~ATTNKIT_NO_APPEND));
    if (args->reserved)
        return refuse(message, ATTNKIT_UNSUPPORTED, "reserved is 0x%x: must be 0",
                      (unsigned)args->reserved);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < 0)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least 0",
                          dims[i].name, (long long)dims[i].value);
    struct ints cached;
    attnkit_status status = attnkit_read_ints("cached", args->cached, &cached, message);
    if (status == ATTNKIT_OK)
        status = check_types(args, message);
    return status == ATTNKIT_OK ? check_layouts(args, message) : status;
}

static attnkit_status check_mean(const struct layer_request *r, char *message)
{
    const attnkit_weights_kind kind = r->attention.weights->kind;
    if (r->core->mean_weights && kind != ATTNKIT_WEIGHTS_NONE && kind != ATTNKIT_WEIGHTS_SOFTMAX)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "attention->weights.kind is %d: mean_weights needs ATTNKIT_WEIGHTS_SOFTMAX",
                      (int)kind);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_layer(const struct layer_request *r, const struct layer *layer,
                                   char *message)
{
    attnkit_status status = check_options(r->core, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rotation(r->rotation, layer->head_dim, message);
    if (status == ATTNKIT_OK)
        status = check_own_fields(&r->attention, message);
    if (status == ATTNKIT_OK)
        status = check_cache_use(r, message);
    if (status == ATTNKIT_OK)
        status = check_keys(r, layer, message);
    return status == ATTNKIT_OK ? check_mean(r, message) : status;
}
