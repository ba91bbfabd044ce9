/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a checked layer call into its plan: lengths, the layer's own tensors, and the workspace.
 * plan_parts.c plans the layer's linear maps, appends and attention.
 */
#include "dispatch/common/exec.h"
#include "dispatch/common/message.h"
#include "dispatch/layer/layer_plan.h"
#include "dispatch/linear/matrix.h"

enum { FLOAT = sizeof(float) /* bytes */ };

/* --- Options and lengths ---------------------------------------------------------------------- */

static struct layer_options options_of(const struct layer_request *r)
{
    const attnkit_layer_args *const args = r->core;
    const attnkit_kv_storage *const s = r->attention.storage;
    struct layer_options has = {
        .has_key = args->key.data,
        .has_value = args->value.data,
        .projects_keys = !(args->flags & ATTNKIT_NO_APPEND),
        .has_cache = args->cached.data,
        .rotates = r->rotation->kind != ATTNKIT_ROPE_NONE,
        .packed_q = s->cu_seqlens_q.data,
        .has_mean = args->mean_weights,
        .has_positions = r->rotation->positions.data,
        .has_tables = r->rotation->cos,
        .narrow_cached = args->cached.type == ATTNKIT_INT32,
    };
    has.packed_keys = has.has_key ? s->cu_seqlens_kv.data != NULL : has.packed_q;
    has.has_kv_starts = s->cu_seqlens_kv.data || has.packed_keys;
    has.lends_q_starts = has.has_kv_starts && !s->cu_seqlens_kv.data;
    has.appends = has.has_cache && has.projects_keys;
    has.owns_weights = has.has_mean && !r->attention.weights->weights.data &&
                       r->attention.weights->kind == ATTNKIT_WEIGHTS_NONE;
    return has;
}

static attnkit_status count_rows(const char *name, bool packed, int64_t batch, int64_t rows,
                                 int64_t *all, char *message)
{
    *all = rows;
    if (packed || !__builtin_mul_overflow(batch, rows, all))
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_OVERFLOW, "batch x %s is %lld x %lld: beyond 63 bits", name,
                  (long long)batch, (long long)rows);
}

static attnkit_status set_lengths(const struct layer_request *r, struct layer_plan *plan,
                                  char *message)
{
    const attnkit_layer_args *const args = r->core;
    const struct layer_options *const has = &plan->has;
    struct layer_lengths *const l = &plan->most;
    l->batch = args->batch;
    l->q_len = args->q_len;
    l->key_len = has->has_key ? args->kv_len : args->q_len;
    attnkit_status status =
        count_rows("q_len", has->packed_q, l->batch, l->q_len, &l->q_rows, message);
    if (status == ATTNKIT_OK)
        status = count_rows("kv_len", has->packed_keys, l->batch, l->key_len, &l->k_rows, message);
    l->room = attnkit_room_for_keys(has, l, r->attention.core->kv_len);
    return status;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Checks that no size of a buffer and no stride overflows, even if the batch is 0. All buffers
 * together take at most twice the sum of the sizes below, plus some cache lines. */
static attnkit_status check_sizes(const struct layer_plan *plan, char *message)
{
    const int64_t most = INT64_MAX / 16;
    const struct projection_shape *const p = plan->layer.projection;
    const struct layer_lengths *const l = &plan->most;
    const int64_t q_rows = larger(l->q_rows, l->q_len), k_rows = larger(l->k_rows, l->key_len);
    int64_t weight_rows = 0;
    const bool too_many = plan->has.owns_weights &&
                          __builtin_mul_overflow(l->q_rows, plan->layer.q_heads, &weight_rows);
    const struct {
        const char *name;
        int64_t rows, dim;
    } sizes[] = {{"rows of q", q_rows, p[Q].out_dim},
                 {"rows of keys", k_rows, p[K].out_dim},
                 {"rows of values", k_rows, p[V].out_dim},
                 {"rows of results", q_rows, p[O].in_dim},
                 {"rows of weights", too_many ? INT64_MAX : weight_rows,
                  plan->has.owns_weights ? l->room : 0},
                 {"batch entries", l->batch, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t bytes;
        if (__builtin_mul_overflow(sizes[i].dim, (int64_t)FLOAT, &bytes) ||
            __builtin_mul_overflow(sizes[i].rows, bytes, &bytes) || bytes > most)
            return refuse(message, ATTNKIT_OVERFLOW, "%lld %s of %lld elements: beyond 63 bits",
                          (long long)sizes[i].rows, sizes[i].name, (long long)sizes[i].dim);
    }
    return ATTNKIT_OK;
}

/* --- The layer's own tensors ------------------------------------------------------------------ */

/* Notes which tensors are present, and sets the names of all tensors. */
static void list_own(struct layer_plan *plan)
{
    static const char *const names[OWN_TENSORS] = {
        [OWN_OUT] = "out",          [OWN_MEAN] = "mean_weights", [OWN_X] = "x",
        [OWN_KEY] = "key",          [OWN_VALUE] = "value",       [OWN_PACKED] = "packed",
        [OWN_COS] = "rotation.cos", [OWN_SIN] = "rotation.sin",  [OWN_POSITIONS] = "positions",
        [OWN_CACHED] = "cached",
    };
    for (int i = 0; i < OWN_TENSORS; i++)
        plan->own[i].name = names[i];
    const struct layer_options *const has = &plan->has;
    plan->own_given = 1u << OWN_OUT | 1u << OWN_X | 1u << OWN_PACKED;
    plan->own_given |= (uint32_t)has->has_mean << OWN_MEAN | (uint32_t)has->has_key << OWN_KEY |
                       (uint32_t)has->has_value << OWN_VALUE |
                       (uint32_t)has->has_tables << OWN_COS | (uint32_t)has->has_tables << OWN_SIN |
                       (uint32_t)has->has_positions << OWN_POSITIONS |
                       (uint32_t)has->has_cache << OWN_CACHED;
}

/* Plans a tensor [entries][rows][dim], with the caller's strides or dense. `entries` is 1 for
 * packed sequences, and 0 for a tensor that the caller does not give. */
static attnkit_status plan_rows(struct layer_plan *plan, enum own_tensor which,
                                const attnkit_tensor *theirs, int64_t entries, int64_t dim,
                                char *message)
{
    const bool of_keys = which == OWN_KEY || which == OWN_VALUE;
    struct tensor *const t = &plan->own[which];
    attnkit_begin_matrix(t, t->name, (enum type)theirs->type,
                         of_keys ? plan->most.key_len : plan->most.q_len, dim);
    t->count[0] = entries;
    t->output = which == OWN_OUT;
    return attnkit_plan_tensor(t, theirs, message);
}

static attnkit_status plan_inputs(const attnkit_layer_args *args, struct layer_plan *plan,
                                  char *message)
{
    const struct layer_options *const has = &plan->has;
    const struct projection_shape *const p = plan->layer.projection;
    const int64_t of_q = has->packed_q ? 1 : plan->most.batch;
    const int64_t of_keys = has->packed_keys ? 1 : plan->most.batch;
    attnkit_status status = plan_rows(plan, OWN_OUT, &args->out, of_q, p[O].out_dim, message);
    if (status == ATTNKIT_OK)
        status = plan_rows(plan, OWN_X, &args->x, of_q, p[Q].in_dim, message);
    if (status == ATTNKIT_OK)
        status =
            plan_rows(plan, OWN_KEY, &args->key, has->has_key ? of_keys : 0, p[K].in_dim, message);
    if (status == ATTNKIT_OK)
        status = plan_rows(plan, OWN_VALUE, &args->value, has->has_value ? of_keys : 0, p[V].in_dim,
                           message);
    return status;
}

/* Plans mean_weights, the packed weights and `cached`. plan_parts.c plans cos, sin and positions,
 * together with the appends that rotate. */
static attnkit_status plan_arrays(struct layer_plan *plan, char *message)
{
    const struct layer_options *const has = &plan->has;
    const struct layer_lengths *const most = &plan->most;
    const struct ints cached = {.narrow = has->narrow_cached};
    struct tensor *const own = plan->own;
    attnkit_begin_matrix(&own[OWN_MEAN], own[OWN_MEAN].name, TYPE_F32, most->q_len,
                         has->has_mean ? most->room : 0);
    own[OWN_MEAN].count[0] = has->packed_q ? 1 : most->batch;
    own[OWN_MEAN].output = true;
    attnkit_begin_matrix(&own[OWN_PACKED], own[OWN_PACKED].name, TYPE_F32, 1, 1);
    own[OWN_PACKED].row_bytes = plan->layer.bytes;
    own[OWN_PACKED].alignment = MATRIX_ALIGNMENT;
    attnkit_begin_matrix(&own[OWN_CACHED], own[OWN_CACHED].name, TYPE_F32,
                         has->has_cache ? most->batch : 0, 1);
    own[OWN_CACHED].row_bytes = own[OWN_CACHED].alignment = (int32_t)int_bytes(cached);
    attnkit_status status = attnkit_plan_dense(&own[OWN_MEAN], message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_dense(&own[OWN_PACKED], message);
    return status == ATTNKIT_OK ? attnkit_plan_dense(&own[OWN_CACHED], message) : status;
}

/* --- The plan --------------------------------------------------------------------------------- */

static attnkit_status plan_workspace(struct layer_plan *plan, char *message)
{
    struct layer_buffers nowhere;
    const int64_t shared = attnkit_place_layer_buffers(plan, &plan->most, NULL, &nowhere);
    return attnkit_workspace_bytes((size_t)shared, plan->part_bytes, 1,
                                   &plan->header.workspace_size, message);
}

attnkit_status attnkit_make_layer_plan(const struct layer_request *r, const struct layer *layer,
                                       const struct kernels *kernels, int64_t threads,
                                       struct layer_plan *plan, char *message)
{
    plan->has = options_of(r);
    plan->threads = threads;
    plan->layer = *layer;
    plan->layer.packed = NULL;
    plan->header.workspace_size = 0;
    list_own(plan);
    attnkit_status status = set_lengths(r, plan, message);
    if (status == ATTNKIT_OK)
        status = check_sizes(plan, message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_layer_parts(r, kernels, plan, message);
    if (status == ATTNKIT_OK)
        status = plan_inputs(r->core, plan, message);
    if (status == ATTNKIT_OK)
        status = plan_arrays(plan, message);
    if (status != ATTNKIT_OK || attnkit_layer_is_empty(&plan->has, &plan->most))
        return status;
    return plan_workspace(plan, message);
}
