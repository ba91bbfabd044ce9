/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks addresses and lengths of a layer run. Each tensor is checked once, before anything is
 * written. The workspace is used only after it has been found to overlap no tensor of the caller.
 * The checks cost some nanoseconds for each tensor, and for each pair of an output and a tensor.
 */
#include <string.h>

#include "dispatch/cache/append_plan.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/message.h"
#include "dispatch/common/planned.h"
#include "dispatch/layer/layer_plan.h"

enum { FLOAT = sizeof(float), /* bytes */ MOST_MEMORY = OWN_TENSORS + SLOTS };

/* --- Lengths ---------------------------------------------------------------------------------- */

static attnkit_status check_lengths(const struct layer_plan *plan, const struct layer_input *input,
                                    char *message)
{
    const struct layer_lengths *const most = &plan->most;
    const struct {
        const char *name;
        int64_t value, planned;
    } lengths[] = {
        {"batch", input->batch, most->batch},
        {"q_len", input->q_len, most->q_len},
        {"kv_len", input->kv_len, plan->has.has_key ? most->key_len : 0},
        {"attention->kv_len", input->attention.kv_len, plan->has.has_cache ? most->room : 0},
    };
    attnkit_status status = ATTNKIT_OK;
    for (int i = 0; status == ATTNKIT_OK && i < 4; i++)
        status = attnkit_check_planned_length(lengths[i].name, lengths[i].value, lengths[i].planned,
                                              message);
    return status;
}

/* Sets the lengths of a run. Products cannot overflow, because no length exceeds its planned
 * value. */
static void set_lengths(const struct layer_plan *plan, const struct layer_input *input,
                        struct layer_lengths *l)
{
    const struct layer_options *const has = &plan->has;
    l->batch = input->batch;
    l->q_len = input->q_len;
    l->key_len = has->has_key ? input->kv_len : input->q_len;
    l->q_rows = has->packed_q ? l->q_len : l->batch * l->q_len;
    l->k_rows = has->packed_keys ? l->key_len : l->batch * l->key_len;
    l->room = attnkit_room_for_keys(has, l, input->attention.kv_len);
}

static bool has_planned_lengths(const struct layer_run *run)
{
    const struct layer_lengths *const most = &run->plan->most, *const l = &run->lengths;
    return l->batch == most->batch && l->q_len == most->q_len && l->key_len == most->key_len;
}

/* --- The layer's own tensors ------------------------------------------------------------------ */

/* Refuses tensors that were not planned. attnkit_bind and attnkit_bind_part refuse planned tensors
 * that are missing. */
static attnkit_status check_given(const struct layer_plan *plan, const struct layer_input *input,
                                  char *message)
{
    attnkit_status status = ATTNKIT_OK;
    for (int i = 0; status == ATTNKIT_OK && i < OWN_TENSORS; i++)
        if (!(plan->own_given >> i & 1))
            status = attnkit_check_absent(plan->own[i].name, input->memory[i], message);
    return status;
}

/* Sets the dimensions of a tensor to the lengths of a run. */
static void count_rows(const struct layer_run *run, enum own_tensor which, int64_t count[3])
{
    const struct layer_options *const has = &run->plan->has;
    const struct layer_lengths *const l = &run->lengths;
    for (int i = 0; i < 3; i++)
        count[i] = run->plan->own[which].count[i];
    switch (which) {
    case OWN_OUT:
    case OWN_MEAN:
    case OWN_X:
        count[0] = has->packed_q ? 1 : l->batch;
        count[2] = l->q_len;
        break;
    case OWN_KEY:
    case OWN_VALUE:
        count[0] = has->packed_keys ? 1 : l->batch;
        count[2] = l->key_len;
        break;
    case OWN_POSITIONS:
    case OWN_CACHED:
        count[2] = l->batch;
        break;
    default:
        break;
    }
}

/* Binds the planned tensors among the layer's own tensors first .. end - 1, and adds them to
 * `memory`. */
static attnkit_status bind_own(const struct layer_run *run, int first, int end,
                               struct memory *memory, int *n, char *message)
{
    const struct layer_plan *const plan = run->plan;
    const bool as_planned = has_planned_lengths(run);
    attnkit_status status = ATTNKIT_OK;
    for (int i = first; status == ATTNKIT_OK && i < end; i++) {
        struct memory *const m = &memory[*n];
        int64_t count[3];
        if (!(plan->own_given >> i & 1))
            continue;
        (*n)++;
        if (as_planned) {
            status = attnkit_bind(m, &plan->own[i], run->memory[i], message);
            continue;
        }
        count_rows(run, i, count);
        status = attnkit_bind_part(m, &plan->own[i], count, run->memory[i], message);
    }
    return status;
}

/* --- Attention -------------------------------------------------------------------------------- */

/* Returns whether the layer provides the tensor of a slot, in its workspace. */
static bool is_ours(const struct layer_options *has, enum slot slot)
{
    return slot == SLOT_Q || slot == SLOT_OUT || (slot == SLOT_WEIGHTS && has->owns_weights) ||
           (slot == SLOT_KV_LENS && has->has_cache) ||
           ((slot == SLOT_K || slot == SLOT_V) && !has->has_cache);
}

/* Refuses a tensor of attention from the caller if the layer provides this tensor itself. */
static attnkit_status check_ours(const struct layer_options *has, const struct run_input *theirs,
                                 char *message)
{
    static const struct {
        enum slot slot;
        const char *name;
    } slots[] = {{SLOT_Q, "q"},
                 {SLOT_OUT, "out"},
                 {SLOT_K, "k"},
                 {SLOT_V, "v"},
                 {SLOT_WEIGHTS, "weights"},
                 {SLOT_KV_LENS, "kv_lens"},
                 {SLOT_CU_SEQLENS_KV, "cu_seqlens_kv"}};
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        const enum slot slot = slots[i].slot;
        const bool lent = slot == SLOT_CU_SEQLENS_KV && has->lends_q_starts;
        if (theirs->memory[slot] && (is_ours(has, slot) || lent))
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "attention->%s is given: the layer sets this field itself",
                          slots[i].name);
    }
    return ATTNKIT_OK;
}

/* Fills the inputs of attention: the caller's inputs, and the tensors in the workspace. */
static void fill_input(const struct layer_run *run, const struct run_input *theirs,
                       struct run_input *input)
{
    const struct layer_options *const has = &run->plan->has;
    const struct layer_buffers *const b = &run->buffers;
    *input = *theirs;
    input->batch = run->lengths.batch;
    input->q_len = run->lengths.q_len;
    input->kv_len = run->lengths.room;
    input->memory[SLOT_Q] = b->q;
    input->memory[SLOT_OUT] = b->result;
    if (!has->has_cache) {
        input->memory[SLOT_K] = b->k;
        input->memory[SLOT_V] = b->v;
    } else {
        input->memory[SLOT_KV_LENS] = b->kv_lens;
    }
    if (has->owns_weights)
        input->memory[SLOT_WEIGHTS] = b->weights;
    if (has->lends_q_starts)
        input->memory[SLOT_CU_SEQLENS_KV] = input->memory[SLOT_CU_SEQLENS_Q];
}

/* Returns the strides of floats [batch][rows][heads][dim]. */
static struct strides token_major(int64_t rows, int64_t heads, int64_t dim)
{
    const int64_t row = heads * dim * FLOAT;
    return (struct strides){rows * row, dim * FLOAT, row};
}

/* Sets the strides of the tensors in the workspace. Their rows are dense for the lengths of this
 * run. */
static void set_workspace_strides(struct layer_run *run)
{
    const struct layer *const l = &run->plan->layer;
    const int64_t q_len = run->lengths.q_len, room = run->lengths.room;
    struct attention *const a = &run->attention;
    a->q_stride = token_major(q_len, l->q_heads, l->head_dim);
    a->out_stride = token_major(q_len, l->q_heads, l->value_dim);
    if (run->plan->has.owns_weights) {
        const int64_t row = room * FLOAT;
        a->extras.weights_stride = (struct strides){l->q_heads * q_len * row, q_len * row, row};
    }
    if (run->plan->has.has_cache)
        return;
    a->k.stride = token_major(room, l->kv_heads, l->head_dim);
    a->v.stride = token_major(room, l->kv_heads, l->value_dim);
}

/* Adds the caller's tensors of attention to `memory`: outputs if `written`, else inputs. */
static void list_theirs(const struct layer_run *run, const struct bound *bound, bool written,
                        struct memory *memory, int *n)
{
    const struct layer_plan *const plan = run->plan;
    for (int i = 0; i < bound->count; i++)
        if (!is_ours(&plan->has, plan->attention.tensors[i].slot) &&
            bound->memory[i].tensor->output == written)
            memory[(*n)++] = bound->memory[i];
}

/* --- Appends ---------------------------------------------------------------------------------- */

static void set_rotation(const struct layer_run *run, struct append *a)
{
    if (a->pairs == 0)
        return;
    a->cos = run->memory[OWN_COS];
    a->sin = run->memory[OWN_SIN];
    a->positions.data = run->memory[OWN_POSITIONS];
    if (!a->positions.data)
        a->positions.data = run->memory[OWN_CACHED];
}

static void set_lengths_of_append(const struct layer_run *run, int64_t len, struct append *a)
{
    a->batch = run->lengths.batch;
    a->len = len;
    a->src_stride = token_major(len, a->heads, a->dim);
}

static void set_appends(struct layer_run *run, const struct run_input *input)
{
    const struct layer_plan *const plan = run->plan;
    const struct layer_buffers *const b = &run->buffers;
    struct append *const q = &run->append_q, *const k = &run->append_k, *const v = &run->append_v;
    if (plan->has.rotates) {
        *q = plan->append_q.a;
        set_lengths_of_append(run, run->lengths.q_len, q);
        set_rotation(run, q);
        q->src = (const char *)b->q_raw;
        q->dst = (char *)b->q;
        q->dst_stride = q->src_stride;
    }
    if (!attnkit_appends_keys(&plan->has))
        return;
    *k = plan->append_k.a;
    set_lengths_of_append(run, run->lengths.key_len, k);
    set_rotation(run, k);
    k->src = (const char *)b->k_raw;
    k->dst = (char *)b->k;
    if (!plan->has.appends) {
        k->dst_stride = k->src_stride;
        return;
    }
    *v = plan->append_v.a;
    set_lengths_of_append(run, run->lengths.key_len, v);
    v->src = (const char *)b->v;
    k->dst = (char *)input->memory[SLOT_K];
    v->dst = (char *)input->memory[SLOT_V];
    k->scales = (char *)input->memory[SLOT_K_SCALES];
    v->scales = (char *)input->memory[SLOT_V_SCALES];
    k->starts.data = v->starts.data = run->memory[OWN_CACHED];
    k->pages.table = v->pages.table = input->memory[SLOT_BLOCK_TABLE];
}

/* --- The run ---------------------------------------------------------------------------------- */

static attnkit_status take_workspace(const struct layer_plan *plan, const attnkit_exec *exec,
                                     struct layer_run *run, char *message)
{
    char *shared;
    const attnkit_status status =
        attnkit_take_workspace(exec, plan->header.workspace_size, &shared, message);
    if (status != ATTNKIT_OK)
        return status;
    if (exec->threads > 1 && !exec->parallel_for && !exec->barrier)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "exec.barrier is NULL: a layer needs a barrier for %lld threads without "
                      "parallel_for",
                      (long long)exec->threads);
    run->scratch = shared + attnkit_place_layer_buffers(plan, &run->lengths, shared, &run->buffers);
    return ATTNKIT_OK;
}

/* Binds the layer's own tensors. Checks that outputs overlap nothing, and that the workspace
 * overlaps no tensor of the caller. */
static attnkit_status check_memory(const struct layer_run *run, const struct bound *bound,
                                   const attnkit_exec *exec, char *message)
{
    struct memory memory[MOST_MEMORY];
    int n = 0;
    attnkit_status status = bind_own(run, OWN_OUT, OWN_MEAN + 1, memory, &n, message);
    list_theirs(run, bound, true, memory, &n);
    if (status == ATTNKIT_OK)
        status = bind_own(run, OWN_X, OWN_TENSORS, memory, &n, message);
    if (status != ATTNKIT_OK)
        return status;
    list_theirs(run, bound, false, memory, &n);
    status = attnkit_check_workspace_apart(memory, n, exec->workspace,
                                           run->plan->header.workspace_size, message);
    return status == ATTNKIT_OK ? attnkit_check_overlaps(memory, n, message) : status;
}

attnkit_status attnkit_bind_layer(const struct layer_plan *plan, const struct layer_input *input,
                                  const attnkit_exec *exec, struct layer_run *run, char *message)
{
    struct run_input attention;
    struct bound bound;
    attnkit_status status = check_lengths(plan, input, message);
    if (status == ATTNKIT_OK && !plan->single)
        status = check_given(plan, input, message);
    if (status == ATTNKIT_OK && !plan->single)
        status = check_ours(&plan->has, &input->attention, message);
    if (status != ATTNKIT_OK)
        return status;
    run->plan = plan;
    memcpy(run->memory, input->memory, sizeof run->memory);
    set_lengths(plan, input, &run->lengths);
    run->empty = attnkit_layer_is_empty(&plan->has, &run->lengths);
    if (run->empty)
        return ATTNKIT_OK;
    status = take_workspace(plan, exec, run, message);
    if (status != ATTNKIT_OK)
        return status;
    fill_input(run, &input->attention, &attention);
    run->attention = plan->attention.a;
    status = attnkit_bind_attention_memory(&plan->attention, &attention, &run->attention, &bound,
                                           message);
    if (status == ATTNKIT_OK)
        status = check_memory(run, &bound, exec, message);
    if (status != ATTNKIT_OK)
        return status;
    set_workspace_strides(run);
    set_appends(run, &attention);
    return ATTNKIT_OK;
}
