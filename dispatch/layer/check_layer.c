/* SPDX-License-Identifier: Apache-2.0
 *
 * Every argument of a layer is checked here before anything is written. What its parts check of
 * theirs, attention and appends, is left to them: they are asked before the first of them runs.
 */
#include "dispatch/layer/check_layer.h"

#include "dispatch/cache/cache.h"
#include "dispatch/attention/check.h"
#include "dispatch/cache/check_append.h"
#include "dispatch/linear/matrix.h"
#include "dispatch/common/versioned.h"

enum { FLOAT = sizeof(float) /* bytes */ };

/* ------------------------------------------------------------------------ what is not allowed */

static attnkit_status refuse_given(const char *name, const char *why, char *message)
{
    return refuse(message, ATTNKIT_BAD_ARGUMENT, "attention->%s is given: %s", name, why);
}

static bool any_stride(const int64_t strides[3])
{
    return strides[0] || strides[1] || strides[2];
}

/* What the layer says itself. */
static attnkit_status check_own_fields(const attnkit_attention_args *a, char *message)
{
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
        {"q", a->q},
        {"out", a->out},
        {"q_type", a->q_type},
        {"out_type", a->out_type},
        {"q_strides", any_stride(a->q_strides)},
        {"out_strides", any_stride(a->out_strides)},
        {"first_key", a->first_key},
        {"before_max", a->before_max || a->before_sum || a->before_out},
        {"after_max", a->after_max || a->after_sum || a->after_out},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].given)
            return refuse_given(fields[i].name, "the layer says it, or has none", message);
    return ATTNKIT_OK;
}

/* What only a cache has. */
static attnkit_status check_cache_fields(const attnkit_attention_args *a, char *message)
{
    const struct {
        const char *name;
        bool given;
    } fields[] = {
        {"k", a->k},
        {"v", a->v},
        {"kv_len", a->kv_len},
        {"k_type", a->k_type},
        {"v_type", a->v_type},
        {"k_scales", a->k_scales},
        {"v_scales", a->v_scales},
        {"k_scale_group", a->k_scale_group},
        {"v_scale_group", a->v_scale_group},
        {"k_strides", any_stride(a->k_strides)},
        {"v_strides", any_stride(a->v_strides)},
        {"k_scale_strides", any_stride(a->k_scale_strides)},
        {"v_scale_strides", any_stride(a->v_scale_strides)},
        {"page_table", a->page_table || a->page_table_stride || a->page_size || a->pages},
        {"flags (ATTNKIT_TILED)", a->flags & ATTNKIT_TILED},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].given)
            return refuse_given(fields[i].name, "cached is NULL, there is no cache", message);
    return ATTNKIT_OK;
}

static attnkit_status check_cache_use(const struct layer_plan *plan, char *message)
{
    const attnkit_layer_args *args = &plan->args;
    const attnkit_attention_args *a = &plan->attention;
    const bool appends = !(args->flags & ATTNKIT_NO_APPEND);
    if (!args->cached && !appends)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "flags has ATTNKIT_NO_APPEND, but cached is NULL: there is no cache");
    if (!args->cached)
        return check_cache_fields(a, message);
    if (!appends && args->key)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "key is given, but flags has ATTNKIT_NO_APPEND");
    if (a->kv_lens)
        return refuse_given("kv_lens", "with a cache the lengths follow from cached", message);
    if (a->q_starts || a->kv_starts)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "attention->%s is given, but cached, too: no cache for packed sequences",
                      a->q_starts ? "q_starts" : "kv_starts");
    return ATTNKIT_OK;
}

static attnkit_status check_keys(const struct layer_plan *plan, char *message)
{
    const attnkit_layer_args *args = &plan->args;
    const struct projection_shape *p = plan->layer.projection;
    if (!args->key && args->value)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "value is given, but key is NULL");
    if (!args->key && args->kv_len)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "kv_len is %lld, but key is NULL",
                      (long long)args->kv_len);
    if (args->key && args->rope != ATTNKIT_ROPE_NONE)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "rope is %d, but key is given: keys of another sequence have no position",
                      (int)args->rope);
    if (!plan->has_keys)
        return ATTNKIT_OK;
    if (!args->key && p[K].in_dim != p[Q].in_dim)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "key is NULL: d_key (%lld) of the layer must be d_model (%lld)",
                      (long long)p[K].in_dim, (long long)p[Q].in_dim);
    if (!args->value && p[V].in_dim != p[K].in_dim)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "value is NULL: d_value (%lld) of the layer must be that of key (%lld)",
                      (long long)p[V].in_dim, (long long)p[K].in_dim);
    return ATTNKIT_OK;
}

static attnkit_status check_rope(const attnkit_layer_args *args, char *message)
{
    if ((int)args->rope < ATTNKIT_ROPE_NONE || (int)args->rope > ATTNKIT_ROPE_HALF)
        return refuse(message, ATTNKIT_UNSUPPORTED, "rope is %d: not known", (int)args->rope);
    const struct {
        const char *name;
        bool given;
    } fields[] = {
        {"positions", args->positions},        {"rope_dim", args->rope_dim != 0},
        {"rope_base", args->rope_base != 0.0}, {"rope_cos", args->rope_cos},
        {"rope_sin", args->rope_sin},          {"rope_positions", args->rope_positions != 0}};
    for (size_t i = 0; args->rope == ATTNKIT_ROPE_NONE && i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].given)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "%s is given, but rope is ATTNKIT_ROPE_NONE", fields[i].name);
    return ATTNKIT_OK;
}

static attnkit_status check_options(const attnkit_layer_args *args, char *message)
{
    const uint32_t known = ATTNKIT_STRIDED | ATTNKIT_NO_APPEND;
    const struct {
        const char *name;
        int64_t value;
    } dims[] = {{"batch", args->batch}, {"q_len", args->q_len}, {"kv_len", args->kv_len}};
    if (args->flags & ~known)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~known));
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < 0)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least 0",
                          dims[i].name, (long long)dims[i].value);
    attnkit_status status = attnkit_check_rounded("x_type", args->x_type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rounded("out_type", args->out_type, message);
    return status == ATTNKIT_OK ? check_rope(args, message) : status;
}

static attnkit_status check_mean(const struct layer_plan *plan, char *message)
{
    const attnkit_weights kind = plan->attention.weights_kind;
    if (plan->args.mean_weights && kind != ATTNKIT_WEIGHTS_NONE && kind != ATTNKIT_WEIGHTS_SOFTMAX)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "attention->weights_kind is %d: mean_weights is of ATTNKIT_WEIGHTS_SOFTMAX",
                      (int)kind);
    return ATTNKIT_OK;
}

/* -------------------------------------------------------------------------------- the attention */

static int64_t keys_of_an_entry(const struct layer_plan *plan)
{
    return plan->args.key ? plan->args.kv_len : plan->args.q_len;
}

/* Rows of x, and of what keys and values are made of. */
static attnkit_status count_rows(struct layer_plan *plan, char *message)
{
    const attnkit_layer_args *args = &plan->args;
    const bool packed_keys = args->key ? plan->attention.kv_starts : plan->attention.q_starts;
    plan->q_rows = args->q_len;
    plan->k_rows = keys_of_an_entry(plan);
    if (!plan->attention.q_starts &&
        __builtin_mul_overflow(args->batch, args->q_len, &plan->q_rows))
        return refuse(message, ATTNKIT_OVERFLOW, "batch x q_len is %lld x %lld: beyond 63 bits",
                      (long long)args->batch, (long long)args->q_len);
    if (!packed_keys && __builtin_mul_overflow(args->batch, plan->k_rows, &plan->k_rows))
        return refuse(message, ATTNKIT_OVERFLOW, "batch x kv_len is %lld x %lld: beyond 63 bits",
                      (long long)args->batch, (long long)args->kv_len);
    return ATTNKIT_OK;
}

static void set_shape(struct layer_plan *plan)
{
    const struct layer *l = &plan->layer;
    attnkit_attention_args *a = &plan->attention;
    a->batch = plan->args.batch;
    a->q_heads = l->q_heads;
    a->kv_heads = l->kv_heads;
    a->q_len = plan->args.q_len;
    a->head_dim = l->head_dim;
    a->value_dim = l->value_dim;
    if (!plan->args.key && a->q_starts && !a->kv_starts)
        a->kv_starts = a->q_starts;
    if (!plan->args.cached)
        a->kv_len = a->kv_starts ? plan->k_rows : keys_of_an_entry(plan);
}

static void copy_strides(int64_t to[3], struct strides from)
{
    to[0] = from.batch;
    to[1] = from.head;
    to[2] = from.row;
}

/* [rows of an entry][heads][dim] floats, as a linear map leaves them. */
static void set_token_major(int64_t strides[3], int64_t rows, int64_t heads, int64_t dim)
{
    strides[2] = heads * dim * FLOAT;
    strides[1] = dim * FLOAT;
    strides[0] = rows * strides[2];
}

/* The caller's tensors keep the strides they have, which are written out where they are dense;
 * those of the workspace are token-major. */
static void set_attention_strides(struct layer_plan *plan, const struct attention *dense)
{
    attnkit_attention_args *a = &plan->attention;
    if (!(a->flags & ATTNKIT_STRIDED)) {
        copy_strides(a->lse_strides, dense->lse_stride);
        copy_strides(a->weights_strides, dense->extras.weights_stride);
        copy_strides(a->k_strides, dense->k.stride);
        copy_strides(a->v_strides, dense->v.stride);
        copy_strides(a->k_scale_strides, dense->k.scale_stride);
        copy_strides(a->v_scale_strides, dense->v.scale_stride);
        copy_strides(a->mask_strides, dense->extras.bytes.stride);
        copy_strides(a->mask_bits_strides, dense->extras.bits.stride);
        copy_strides(a->bias_strides, dense->extras.bias.stride);
    }
    a->flags |= ATTNKIT_STRIDED;
    set_token_major(a->q_strides, a->q_len, a->q_heads, a->head_dim);
    set_token_major(a->out_strides, a->q_len, a->q_heads, a->value_dim);
    if (plan->args.cached)
        return;
    set_token_major(a->k_strides, a->kv_len, a->kv_heads, a->head_dim);
    set_token_major(a->v_strides, a->kv_len, a->kv_heads, a->value_dim);
}

static void set_weights(attnkit_attention_args *a, float *weights)
{
    a->weights = weights;
    a->weights_kind = ATTNKIT_WEIGHTS_SOFTMAX;
    a->weights_strides[2] = a->kv_len * FLOAT;
    a->weights_strides[1] = a->q_len * a->weights_strides[2];
    a->weights_strides[0] = a->q_heads * a->weights_strides[1];
}

/* Stand-ins for what will be in the workspace, whose size depends on what there is. */
static float SOME_WEIGHTS[1];
static const int64_t SOME_LENGTHS[1];

/* That no size of a buffer overflows: all of them together are below the sum of what is tried. */
static attnkit_status check_sizes(const struct layer_plan *plan, int64_t threads, char *message)
{
    const int64_t most = INT64_MAX / 16;
    const struct projection_shape *p = plan->layer.projection;
    const attnkit_attention_args *a = &plan->attention;
    int64_t weight_rows = 0;
    const bool too_many =
        plan->owns_weights && __builtin_mul_overflow(plan->q_rows, a->q_heads, &weight_rows);
    const struct {
        const char *name;
        int64_t rows, dim;
    } sizes[] = {{"rows of q", plan->q_rows, p[Q].out_dim},
                 {"rows of keys", plan->k_rows, p[K].out_dim},
                 {"rows of values", plan->k_rows, p[V].out_dim},
                 {"rows of results", plan->q_rows, p[O].in_dim},
                 {"rows of weights", too_many ? INT64_MAX : weight_rows, a->kv_len},
                 {"threads", threads, plan->args.batch}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t bytes;
        if (__builtin_mul_overflow(sizes[i].dim, (int64_t)FLOAT, &bytes) ||
            __builtin_mul_overflow(sizes[i].rows, bytes, &bytes) || bytes > most)
            return refuse(message, ATTNKIT_OVERFLOW, "%lld %s of %lld elements: beyond 63 bits",
                          (long long)sizes[i].rows, sizes[i].name, (long long)sizes[i].dim);
    }
    return ATTNKIT_OK;
}

static attnkit_status plan_attention(struct layer_plan *plan, int64_t threads, char *message)
{
    struct problem problem;
    plan->owns_weights = plan->args.mean_weights && !plan->attention.weights;
    set_shape(plan);
    attnkit_status status = attnkit_check_shape(&plan->attention, &problem, message);
    if (status != ATTNKIT_OK)
        return status;
    /* Without rows of x there may be keys for the cache. */
    plan->empty = problem.empty && !(plan->keeps_cache && plan->k_rows > 0);
    status = check_sizes(plan, threads, message);
    if (status != ATTNKIT_OK || plan->empty)
        return status;
    set_attention_strides(plan, &problem.a);
    if (plan->args.cached)
        plan->attention.kv_lens = SOME_LENGTHS;
    return ATTNKIT_OK;
}

/* ------------------------------------------------------------------------------ linear maps */

static const char *const ROW_AXES[3] = {"batch", "row", ""};

/* A tensor [batch][rows][dim], packed [rows][dim]. */
static void set_rows(struct matrix *m, const char *name, const char *strides_name, const void *data,
                     enum type type, const int64_t entries_and_rows[2], int64_t dim,
                     const int64_t strides[2])
{
    attnkit_set_matrix(m, name, strides_name, data, type, 1, dim, 0);
    m->tensor.is_matrix = false;
    m->tensor.axes = ROW_AXES;
    m->tensor.count[0] = entries_and_rows[0];
    m->tensor.count[1] = entries_and_rows[1];
    m->strides[0] = strides[0];
    m->strides[1] = strides[1];
    m->strides[2] = 0;
}

/* The caller's tensors, outputs first. */
enum { OUT, MEAN, X, KEY, VALUE, PACKED, OWN_TENSORS };

struct own_tensors {
    struct matrix list[OWN_TENSORS];
};

static void list_own_tensors(const struct layer_plan *plan, struct own_tensors *t)
{
    static const int64_t dense[2] = {0};
    const attnkit_layer_args *args = &plan->args;
    const struct projection_shape *p = plan->layer.projection;
    const bool packed_q = plan->attention.q_starts, packed_k = plan->attention.kv_starts;
    const int64_t rows[2] = {packed_q ? 1 : args->batch, args->q_len};
    const int64_t key_rows[2] = {!args->key ? 0 : packed_k ? 1 : args->batch, args->kv_len};
    const int64_t value_rows[2] = {args->value ? key_rows[0] : 0, args->kv_len};
    const int64_t mean_rows[2] = {args->mean_weights ? rows[0] : 0, args->q_len};
    const enum type type = (enum type)args->x_type;
    set_rows(&t->list[OUT], "out", "out_strides", args->out, (enum type)args->out_type, rows,
             p[O].out_dim, args->out_strides);
    set_rows(&t->list[MEAN], "mean_weights", "mean_weights", args->mean_weights, TYPE_F32,
             mean_rows, args->mean_weights ? plan->attention.kv_len : 0, dense);
    set_rows(&t->list[X], "x", "x_strides", args->x, type, rows, p[Q].in_dim, args->x_strides);
    set_rows(&t->list[KEY], "key", "key_strides", args->key, type, key_rows, p[K].in_dim,
             args->key_strides);
    set_rows(&t->list[VALUE], "value", "value_strides", args->value, type, value_rows, p[V].in_dim,
             args->value_strides);
    attnkit_set_matrix(&t->list[PACKED], "packed", NULL, args->packed, TYPE_F32, 1, 1, 0);
    t->list[PACKED].tensor.row_bytes = plan->layer.bytes;
    t->list[OUT].tensor.output = t->list[MEAN].tensor.output = true;
}

static attnkit_status set_own_strides(const struct layer_plan *plan, struct own_tensors *t,
                                      char *message)
{
    list_own_tensors(plan, t);
    for (int i = 0; i < OWN_TENSORS; i++) {
        const uint32_t flags = i == MEAN || i == PACKED ? 0 : plan->args.flags;
        const attnkit_status status = attnkit_set_strides(&t->list[i].tensor, flags, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return ATTNKIT_OK;
}

/* As few maps as the strides allow: one if all rows are equally far apart. */
static struct mapped map_rows(const struct layer_plan *plan, enum projection projection,
                              const struct matrix *x, const struct matrix *y, int64_t rows)
{
    const int64_t entries = x->tensor.count[0] > 0 ? x->tensor.count[0] : 0;
    struct mapped m = {.linear = {.size = sizeof m.linear, .flags = ATTNKIT_STRIDED}};
    attnkit_set_projection(&plan->layer, projection, &m.linear);
    m.x_step = x->stride.batch;
    m.y_step = y->stride.batch;
    m.linear.rows = rows;
    m.linear.x_stride = x->stride.head;
    m.linear.y_stride = y->stride.head;
    m.blocks = entries;
    if (rows == 1) {
        m.linear.rows = entries;
        m.linear.x_stride = m.x_step;
        m.linear.y_stride = m.y_step;
        m.blocks = 1;
    } else if (rows == 0 || entries <= 1 ||
               (m.x_step == rows * m.linear.x_stride && m.y_step == rows * m.linear.y_stride)) {
        m.linear.rows = rows * entries;
        m.blocks = 1;
    }
    return m;
}

/* Rows of the workspace beside those of x. */
static struct matrix workspace_rows(const struct matrix *x, int64_t dim)
{
    struct matrix m = {.stride = {.head = dim * FLOAT}};
    m.stride.batch = x->tensor.count[1] * m.stride.head;
    m.tensor.count[0] = x->tensor.count[0];
    return m;
}

static void plan_maps(struct layer_plan *plan, const struct own_tensors *t)
{
    const struct projection_shape *p = plan->layer.projection;
    const struct matrix *x = &t->list[X], *out = &t->list[OUT];
    const struct matrix *key = plan->args.key ? &t->list[KEY] : x;
    const struct matrix *value = plan->args.value ? &t->list[VALUE] : key;
    const attnkit_type type = plan->args.x_type;
    const struct matrix q = workspace_rows(x, p[Q].out_dim), k = workspace_rows(key, p[K].out_dim);
    const struct matrix v = workspace_rows(value, p[V].out_dim);
    const struct matrix result = workspace_rows(x, p[O].in_dim);
    plan->q = map_rows(plan, Q, x, &q, x->tensor.count[1]);
    plan->k = map_rows(plan, K, key, &k, key->tensor.count[1]);
    plan->v = map_rows(plan, V, value, &v, value->tensor.count[1]);
    plan->o = map_rows(plan, O, &result, out, x->tensor.count[1]);
    plan->q.linear.x_type = plan->k.linear.x_type = plan->v.linear.x_type = type;
    plan->o.linear.y_type = plan->args.out_type;
    plan->q.linear.x = x->tensor.data;
    plan->k.linear.x = key->tensor.data;
    plan->v.linear.x = value->tensor.data;
    plan->o.linear.y = plan->args.out;
}

/* ----------------------------------------------------------------------------------- appends */

/* Rows of the workspace to other rows of it, rotated: one entry of a batch after the other if they
 * are packed. */
static attnkit_append_args rotation(const struct layer_plan *plan, int64_t heads)
{
    const attnkit_layer_args *args = &plan->args;
    const int64_t *const positions = args->positions ? args->positions : args->cached;
    attnkit_append_args a = {
        .size = sizeof a,
        .flags = ATTNKIT_STRIDED,
        .rope = args->rope,
        .batch = args->batch,
        .heads = heads,
        .len = args->q_len,
        .dim = plan->layer.head_dim,
        .capacity = args->q_len,
        .positions = plan->rotates ? positions : NULL,
        .rope_dim = args->rope_dim,
        .rope_base = args->rope_base,
        .rope_cos = args->rope_cos,
        .rope_sin = args->rope_sin,
        .rope_positions = args->rope_positions,
    };
    set_token_major(a.src_strides, a.len, heads, a.dim);
    set_token_major(a.dst_strides, a.len, heads, a.dim);
    return a;
}

static void to_cache(const struct layer_plan *plan, attnkit_append_args *a)
{
    const attnkit_attention_args *cache = &plan->attention;
    a->len = keys_of_an_entry(plan);
    a->capacity = cache->kv_len;
    a->starts = plan->args.cached;
    a->page_table = cache->page_table;
    a->page_table_stride = cache->page_table_stride;
    a->page_size = cache->page_size;
    a->pages = cache->pages;
    a->src_strides[0] = a->len * a->src_strides[2];
}

static void plan_appends(struct layer_plan *plan)
{
    const attnkit_attention_args *cache = &plan->attention;
    plan->append_q = rotation(plan, plan->layer.q_heads);
    plan->append_k = rotation(plan, plan->layer.kv_heads);
    if (!plan->keeps_cache)
        return;
    attnkit_append_args *k = &plan->append_k, *v = &plan->append_v;
    to_cache(plan, k);
    k->flags |= cache->flags & ATTNKIT_TILED;
    k->dst = (void *)cache->k;
    k->dst_type = cache->k_type;
    k->dst_scales = (float *)cache->k_scales;
    k->scale_group = cache->k_scale_group;
    memcpy(k->dst_strides, cache->k_strides, sizeof k->dst_strides);
    memcpy(k->dst_scale_strides, cache->k_scale_strides, sizeof k->dst_scale_strides);
    *v = (attnkit_append_args){.size = sizeof *v, .flags = ATTNKIT_STRIDED};
    v->batch = plan->args.batch;
    v->heads = plan->layer.kv_heads;
    v->dim = plan->layer.value_dim;
    set_token_major(v->src_strides, keys_of_an_entry(plan), v->heads, v->dim);
    to_cache(plan, v);
    v->dst = (void *)cache->v;
    v->dst_type = cache->v_type;
    v->dst_scales = (float *)cache->v_scales;
    v->scale_group = cache->v_scale_group;
    memcpy(v->dst_strides, cache->v_strides, sizeof v->dst_strides);
    memcpy(v->dst_scale_strides, cache->v_scale_strides, sizeof v->dst_scale_strides);
}

/* --------------------------------------------------------------------------------- the buffers */

/* What memory has been taken, in bytes; NULL: it is only counted. */
struct taking {
    char *memory;
    int64_t taken;
};

/* So many bytes in whole cache lines, if they are wanted. */
static void *take(struct taking *from, bool wanted, int64_t bytes)
{
    const int64_t first = from->taken;
    if (!wanted)
        return NULL;
    from->taken += (bytes + MATRIX_ALIGNMENT - 1) / MATRIX_ALIGNMENT * MATRIX_ALIGNMENT;
    return from->memory ? from->memory + first : NULL;
}

static int64_t rows_bytes(int64_t rows, int64_t dim)
{
    return rows * dim * FLOAT;
}

/* Places them from `memory` on, and returns their bytes. */
static int64_t place_buffers(const struct layer_plan *plan, char *memory, int64_t threads,
                             struct buffers *b)
{
    const struct projection_shape *p = plan->layer.projection;
    const int64_t q = rows_bytes(plan->q_rows, p[Q].out_dim);
    const int64_t k = rows_bytes(plan->k_rows, p[K].out_dim);
    const int64_t result = rows_bytes(plan->q_rows, p[O].in_dim);
    const attnkit_attention_args *a = &plan->attention;
    const bool rotates_here = plan->rotates && plan->has_keys && !plan->keeps_cache;
    struct taking from = {.memory = memory};
    b->result = take(&from, true, plan->rotates && q > result ? q : result);
    b->q = take(&from, true, q);
    b->q_raw = plan->rotates ? b->result : b->q;
    b->k = take(&from, plan->has_keys, k);
    b->k_raw = rotates_here ? take(&from, true, k) : b->k;
    b->v = take(&from, plan->has_keys, rows_bytes(plan->k_rows, p[V].out_dim));
    b->weights = take(&from, plan->owns_weights,
                      plan->owns_weights ? rows_bytes(plan->q_rows * a->q_heads, a->kv_len) : 0);
    b->kv_lens =
        take(&from, plan->args.cached, threads * plan->args.batch * (int64_t)sizeof *b->kv_lens);
    return from.taken;
}

/* -------------------------------------------------------------------------------- all of it */

static attnkit_status read_args(const attnkit_layer_args *theirs, struct layer_plan *plan,
                                char *message)
{
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    *plan = (struct layer_plan){0};
    attnkit_layer_args *args = &plan->args;
    const attnkit_status status =
        read_struct(args, sizeof *args, sizeof *args, theirs, "attnkit_layer_args", message);
    if (status != ATTNKIT_OK)
        return status;
    attnkit_attention_args *a = &plan->attention;
    if (args->attention) {
        const attnkit_status read = read_struct(a, sizeof *a, sizeof *a, args->attention,
                                                "attnkit_attention_args", message);
        if (read != ATTNKIT_OK)
            return read;
    }
    a->size = sizeof *a;
    plan->has_keys = !(args->flags & ATTNKIT_NO_APPEND);
    plan->keeps_cache = args->cached && plan->has_keys;
    plan->rotates = args->rope != ATTNKIT_ROPE_NONE;
    return ATTNKIT_OK;
}

attnkit_status attnkit_plan_layer(const attnkit_layer_args *args, int64_t threads,
                                  struct layer_plan *plan, char *message)
{
    struct own_tensors tensors;
    struct buffers nowhere;
    attnkit_status status = read_args(args, plan, message);
    if (status == ATTNKIT_OK)
        status = check_options(&plan->args, message);
    if (status == ATTNKIT_OK)
        status =
            attnkit_read_layer(plan->args.packed, plan->args.packed_size, &plan->layer, message);
    if (status == ATTNKIT_OK)
        status = check_own_fields(&plan->attention, message);
    if (status == ATTNKIT_OK)
        status = check_cache_use(plan, message);
    if (status == ATTNKIT_OK)
        status = check_keys(plan, message);
    if (status == ATTNKIT_OK)
        status = check_mean(plan, message);
    if (status == ATTNKIT_OK)
        status = count_rows(plan, message);
    if (status == ATTNKIT_OK)
        status = plan_attention(plan, threads, message);
    if (status == ATTNKIT_OK)
        status = set_own_strides(plan, &tensors, message);
    if (status != ATTNKIT_OK || plan->empty)
        return status;
    if (plan->owns_weights)
        set_weights(&plan->attention, SOME_WEIGHTS);
    plan_maps(plan, &tensors);
    plan_appends(plan);
    plan->shared_bytes = place_buffers(plan, NULL, threads, &nowhere);
    return ATTNKIT_OK;
}

static int64_t new_keys(const struct layer_plan *plan)
{
    return plan->keeps_cache ? keys_of_an_entry(plan) : 0;
}

static attnkit_status check_lengths(const struct layer_plan *plan, char *message)
{
    const int64_t room = plan->attention.kv_len, more = new_keys(plan);
    for (int64_t b = 0; plan->args.cached && b < plan->args.batch; b++) {
        const int64_t cached = plan->args.cached[b];
        if (cached < 0 || cached > room || more > room - cached)
            return refuse(
                message, ATTNKIT_BAD_ARGUMENT,
                "cached[%lld] is %lld: must be at least 0, and with %lld new keys at most "
                "attention->kv_len (%lld)",
                (long long)b, (long long)cached, (long long)more, (long long)room);
    }
    return ATTNKIT_OK;
}

/* The keys of each entry, in this thread's copy. */
static void set_lengths(struct layer_plan *plan, int64_t *kv_lens)
{
    for (int64_t b = 0; b < plan->args.batch; b++)
        kv_lens[b] = plan->args.cached[b] + new_keys(plan);
    plan->attention.kv_lens = kv_lens;
}

static void bind_pointers(struct layer_plan *plan, const struct buffers *b)
{
    attnkit_attention_args *a = &plan->attention;
    plan->q.linear.y = b->q_raw;
    plan->k.linear.y = b->k_raw;
    plan->v.linear.y = b->v;
    plan->o.linear.x = b->result;
    plan->append_q.src = b->q_raw;
    plan->append_q.dst = b->q;
    plan->append_k.src = b->k_raw;
    plan->append_v.src = b->v;
    if (!plan->keeps_cache)
        plan->append_k.dst = b->k;
    a->q = b->q;
    a->out = b->result;
    if (!plan->args.cached) {
        a->k = b->k;
        a->v = b->v;
    }
    if (plan->owns_weights)
        set_weights(a, b->weights);
}

/* A table of the rotation; its size was checked with the append. */
static struct layout table_layout(const struct layer_plan *plan, const float *table)
{
    const attnkit_layer_args *args = &plan->args;
    const int64_t pairs = (args->rope_dim ? args->rope_dim : plan->layer.head_dim) / 2;
    const int64_t bytes = table ? args->rope_positions * pairs * FLOAT : 0;
    return (struct layout){.first = (uintptr_t)table, .row_bytes = bytes, .span = bytes};
}

/* Where outputs lie: those of the layer, and the cache. */
static attnkit_status check_outputs(const struct layer_plan *plan, const struct own_tensors *own,
                                    const struct problem *problem, char *message)
{
    const struct layout none = {0};
    const struct layout cos = table_layout(plan, plan->args.rope_cos);
    const struct layout sin = table_layout(plan, plan->args.rope_sin);
    const struct {
        const char *name;
        const struct layout *layout;
        bool written;
    } all[] = {{"out", &own->list[OUT].layout, true},
               {"mean_weights", &own->list[MEAN].layout, true},
               {"attention->lse", &problem->lse, true},
               /* The first of the extras, where there are weights. */
               {"attention->weights", plan->attention.weights ? problem->extras : &none, true},
               {"attention->k", &problem->k, plan->keeps_cache},
               {"attention->v", &problem->v, plan->keeps_cache},
               {"attention->k_scales", &problem->k_scales, plan->keeps_cache},
               {"attention->v_scales", &problem->v_scales, plan->keeps_cache},
               {"x", &own->list[X].layout, false},
               {"key", &own->list[KEY].layout, false},
               {"value", &own->list[VALUE].layout, false},
               {"packed", &own->list[PACKED].layout, false},
               {"rope_cos", &cos, false},
               {"rope_sin", &sin, false}};
    const int count = sizeof all / sizeof all[0];
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++)
            if ((all[i].written || all[j].written) &&
                attnkit_layouts_overlap(all[i].layout, all[j].layout))
                return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s overlaps %s", all[i].name,
                              all[j].name);
    return ATTNKIT_OK;
}

/* Masks, arrays and weights of the attention against the layer's outputs and the cache. */
static attnkit_status check_extras(const struct layer_plan *plan, const struct own_tensors *own,
                                   const struct problem *problem, char *message)
{
    const struct layout *const written[] = {&own->list[OUT].layout,
                                            &own->list[MEAN].layout,
                                            plan->keeps_cache ? &problem->k : NULL,
                                            plan->keeps_cache ? &problem->v : NULL,
                                            plan->keeps_cache ? &problem->k_scales : NULL,
                                            plan->keeps_cache ? &problem->v_scales : NULL};
    static const char *const names[] = {
        "out",          "mean_weights",        "attention->k",
        "attention->v", "attention->k_scales", "attention->v_scales"};
    for (int i = 0; i < problem->extra_tensors; i++)
        for (size_t j = 0; j < sizeof written / sizeof written[0]; j++)
            if (written[j] && attnkit_layouts_overlap(&problem->extras[i], written[j]))
                return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s overlaps attention->%s", names[j],
                              problem->extra_names[i]);
    return ATTNKIT_OK;
}

attnkit_append_args attnkit_entry_append(const struct layer_plan *plan,
                                         const attnkit_append_args *all, int64_t b)
{
    attnkit_append_args entry = *all;
    const int64_t first = plan->attention.q_starts[b];
    entry.batch = 1;
    entry.len = entry.capacity = plan->attention.q_starts[b + 1] - first;
    entry.src = (const char *)all->src + first * all->src_strides[2];
    entry.dst = (char *)all->dst + first * all->dst_strides[2];
    entry.positions = all->positions ? all->positions + b : NULL;
    return entry;
}

/* An append, and that the workspace has nothing of its tables. */
static attnkit_status check_append(const attnkit_append_args *args, const void *workspace,
                                   size_t size, char *message)
{
    struct append_problem problem = {0};
    attnkit_status status = attnkit_check_append(args, &problem, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_apart(workspace, size, "rope_cos", &problem.cos, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_apart(workspace, size, "rope_sin", &problem.sin, message);
    return status;
}

/* That of new rows to a part of the cache, which the caller knows by another name. */
static attnkit_status check_cache_append(const char *name, const attnkit_append_args *args,
                                         const void *workspace, size_t size, char *message)
{
    char why[ATTNKIT_MESSAGE_SIZE];
    const attnkit_status status = check_append(args, workspace, size, why);
    if (status == ATTNKIT_OK)
        return ATTNKIT_OK;
    return refuse(message, status, "%s as dst of an append: %.200s", name, why);
}

/* Those of packed sequences one by one: they differ in nothing but their rows. */
static attnkit_status check_appends(const struct layer_plan *plan, const void *workspace,
                                    size_t size, char *message)
{
    const bool packed = plan->attention.q_starts;
    attnkit_status status = ATTNKIT_OK;
    for (int64_t b = 0;
         status == ATTNKIT_OK && plan->rotates && b < (packed ? plan->args.batch : 1); b++) {
        const attnkit_append_args q =
            packed ? attnkit_entry_append(plan, &plan->append_q, b) : plan->append_q;
        status = check_append(&q, workspace, size, message);
    }
    if (status == ATTNKIT_OK && plan->keeps_cache)
        status = check_cache_append("attention->k", &plan->append_k, workspace, size, message);
    if (status == ATTNKIT_OK && plan->keeps_cache)
        status = check_cache_append("attention->v", &plan->append_v, workspace, size, message);
    return status;
}

static attnkit_status check_own_tensors(const struct own_tensors *own, const void *workspace,
                                        size_t size, char *message)
{
    struct tensor tensors[OWN_TENSORS];
    for (int i = 0; i < OWN_TENSORS; i++)
        tensors[i] = own->list[i].tensor;
    attnkit_status status = attnkit_check_tensors(tensors, OWN_TENSORS, message);
    for (int i = 0; status == ATTNKIT_OK && i < OWN_TENSORS; i++)
        status = attnkit_check_apart(workspace, size, tensors[i].name, tensors[i].layout, message);
    return status;
}

/* That the workspace has nothing of the caller's tensors of the attention. */
static attnkit_status check_theirs_apart(const struct layer_plan *plan, const struct buffers *b,
                                         const struct problem *problem, const void *workspace,
                                         size_t size, char *message)
{
    struct problem theirs = *problem;
    theirs.q = theirs.out = (struct layout){0};
    if (!plan->args.cached)
        theirs.k = theirs.v = (struct layout){0};
    for (int i = 0; i < theirs.extra_tensors; i++)
        if (b->weights && theirs.extras[i].first == (uintptr_t)b->weights)
            theirs.extras[i] = (struct layout){0};
    return attnkit_check_workspace(&theirs, workspace, size, message);
}

/* Where the cache lies if there is no row of x, for then the check of the attention does not say.
 * What is wrong with it is said by the check of the appends. */
static void find_cache(const struct layer_plan *plan, struct problem *problem)
{
    struct append_problem k = {0}, v = {0};
    (void)attnkit_check_append(&plan->append_k, &k, NULL);
    (void)attnkit_check_append(&plan->append_v, &v, NULL);
    problem->k = k.dst;
    problem->v = v.dst;
    problem->k_scales = k.dst_scales;
    problem->v_scales = v.dst_scales;
}

attnkit_status attnkit_bind_layer(struct layer_plan *plan, char *shared, const void *workspace,
                                  size_t workspace_size, int64_t threads, int64_t thread,
                                  struct buffers *b, char *message)
{
    struct own_tensors own;
    struct problem problem = {0};
    place_buffers(plan, shared, threads, b);
    bind_pointers(plan, b);
    attnkit_status status = set_own_strides(plan, &own, message);
    if (status == ATTNKIT_OK)
        status = check_own_tensors(&own, workspace, workspace_size, message);
    if (status == ATTNKIT_OK)
        status = check_lengths(plan, message);
    if (status != ATTNKIT_OK)
        return status;
    /* The keys that are there; those to come are checked with the appends. Nothing is written to
     * the workspace before it is known to be one. */
    plan->attention.kv_lens = plan->args.cached ? plan->args.cached : plan->attention.kv_lens;
    status = attnkit_check(&plan->attention, &problem, message);
    if (status == ATTNKIT_OK && problem.empty)
        find_cache(plan, &problem);
    /* What lies in the workspace was said to overlap q or out there, which the caller never saw. */
    if (check_theirs_apart(plan, b, &problem, workspace, workspace_size, NULL) != ATTNKIT_OK)
        status = check_theirs_apart(plan, b, &problem, workspace, workspace_size, message);
    if (status == ATTNKIT_OK)
        status = check_outputs(plan, &own, &problem, message);
    if (status == ATTNKIT_OK)
        status = check_extras(plan, &own, &problem, message);
    if (status == ATTNKIT_OK)
        status = check_appends(plan, workspace, workspace_size, message);
    if (status == ATTNKIT_OK && plan->args.cached)
        set_lengths(plan, b->kv_lens + thread * plan->args.batch);
    return status;
}
