/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the addresses and the lengths of an attention run, and the values in kv_lens, q_offsets,
 * both cu_seqlens and the block table. bind_cells.c checks key_index. If the lengths are the
 * planned lengths, the check of an address costs some nanoseconds. The checks write only to structs
 * on the stack of the call.
 */
#include "dispatch/attention/bind.h"

#include "dispatch/attention/check.h"
#include "dispatch/cache/cache.h"
#include "dispatch/common/message.h"
#include "dispatch/common/planned.h"

static const char *const slot_names[SLOTS] = {
    [SLOT_OUT] = "out",
    [SLOT_LSE] = "lse",
    [SLOT_STATE_OUT_MAX] = "state_out.max",
    [SLOT_STATE_OUT_SUM] = "state_out.sum",
    [SLOT_STATE_OUT_OUT] = "state_out.out",
    [SLOT_WEIGHTS] = "weights",
    [SLOT_Q] = "q",
    [SLOT_K] = "k",
    [SLOT_V] = "v",
    [SLOT_K_SCALES] = "k_scales",
    [SLOT_V_SCALES] = "v_scales",
    [SLOT_STATE_IN_MAX] = "state_in.max",
    [SLOT_STATE_IN_SUM] = "state_in.sum",
    [SLOT_STATE_IN_OUT] = "state_in.out",
    [SLOT_MASK] = "mask",
    [SLOT_MASK_BITS] = "mask_bits",
    [SLOT_BIAS] = "bias",
    [SLOT_BIAS_SCALES] = "bias_scales",
    [SLOT_Q_SEGMENT_IDS] = "q_segment_ids",
    [SLOT_KV_SEGMENT_IDS] = "kv_segment_ids",
    [SLOT_ALIBI_SLOPES] = "alibi_slopes",
    [SLOT_SINKS] = "sinks",
    [SLOT_DROPOUT_SEEDS] = "dropout_seeds",
    [SLOT_KV_LENS] = "kv_lens",
    [SLOT_Q_OFFSETS] = "q_offsets",
    [SLOT_CU_SEQLENS_Q] = "cu_seqlens_q",
    [SLOT_CU_SEQLENS_KV] = "cu_seqlens_kv",
    [SLOT_BLOCK_TABLE] = "block_table",
    [SLOT_KEY_INDEX] = "key_index",
};

/* --- The inputs of a call --------------------------------------------------------------------- */

void attnkit_input_of_request(const struct request *r, struct run_input *input)
{
    const attnkit_attention_args *const args = r->core;
    *input = (struct run_input){
        .batch = args->batch,
        .q_len = args->q_len,
        .kv_len = args->kv_len,
        .memory = {[SLOT_OUT] = args->out.data,
                   [SLOT_LSE] = args->lse.data,
                   [SLOT_STATE_OUT_MAX] = r->states->state_out.max,
                   [SLOT_STATE_OUT_SUM] = r->states->state_out.sum,
                   [SLOT_STATE_OUT_OUT] = r->states->state_out.out,
                   [SLOT_WEIGHTS] = r->weights->weights.data,
                   [SLOT_Q] = args->q.data,
                   [SLOT_K] = args->k.data,
                   [SLOT_V] = args->v.data,
                   [SLOT_K_SCALES] = r->storage->k_scales.data,
                   [SLOT_V_SCALES] = r->storage->v_scales.data,
                   [SLOT_STATE_IN_MAX] = r->states->state_in.max,
                   [SLOT_STATE_IN_SUM] = r->states->state_in.sum,
                   [SLOT_STATE_IN_OUT] = r->states->state_in.out,
                   [SLOT_MASK] = r->visibility->mask.data,
                   [SLOT_MASK_BITS] = r->visibility->mask_bits.data,
                   [SLOT_BIAS] = r->scores->bias.data,
                   [SLOT_BIAS_SCALES] = r->scores->bias_scales,
                   [SLOT_Q_SEGMENT_IDS] = r->visibility->q_segment_ids,
                   [SLOT_KV_SEGMENT_IDS] = r->visibility->kv_segment_ids,
                   [SLOT_ALIBI_SLOPES] = r->scores->alibi_slopes,
                   [SLOT_SINKS] = r->scores->sinks,
                   [SLOT_DROPOUT_SEEDS] = r->scores->dropout_seeds,
                   [SLOT_KV_LENS] = r->visibility->kv_lens.data,
                   [SLOT_Q_OFFSETS] = args->q_offsets.data,
                   [SLOT_CU_SEQLENS_Q] = r->storage->cu_seqlens_q.data,
                   [SLOT_CU_SEQLENS_KV] = r->storage->cu_seqlens_kv.data,
                   [SLOT_BLOCK_TABLE] = r->pages->block_table,
                   [SLOT_KEY_INDEX] = r->storage->key_index.data},
    };
}

void attnkit_input_of_run(const struct run_request *r, struct run_input *input)
{
    const attnkit_attention_data *const core = r->core;
    const attnkit_attention_group_data *const groups = r->groups;
    *input = (struct run_input){
        .batch = core->batch,
        .q_len = core->q_len,
        .kv_len = core->kv_len,
        .memory = {[SLOT_OUT] = core->out,
                   [SLOT_LSE] = core->lse,
                   [SLOT_STATE_OUT_MAX] = groups->state_out.max,
                   [SLOT_STATE_OUT_SUM] = groups->state_out.sum,
                   [SLOT_STATE_OUT_OUT] = groups->state_out.out,
                   [SLOT_WEIGHTS] = groups->weights,
                   [SLOT_Q] = core->q,
                   [SLOT_K] = core->k,
                   [SLOT_V] = core->v,
                   [SLOT_K_SCALES] = groups->k_scales,
                   [SLOT_V_SCALES] = groups->v_scales,
                   [SLOT_STATE_IN_MAX] = groups->state_in.max,
                   [SLOT_STATE_IN_SUM] = groups->state_in.sum,
                   [SLOT_STATE_IN_OUT] = groups->state_in.out,
                   [SLOT_MASK] = groups->mask,
                   [SLOT_MASK_BITS] = groups->mask_bits,
                   [SLOT_BIAS] = groups->bias,
                   [SLOT_BIAS_SCALES] = groups->bias_scales,
                   [SLOT_Q_SEGMENT_IDS] = groups->q_segment_ids,
                   [SLOT_KV_SEGMENT_IDS] = groups->kv_segment_ids,
                   [SLOT_ALIBI_SLOPES] = groups->alibi_slopes,
                   [SLOT_SINKS] = groups->sinks,
                   [SLOT_DROPOUT_SEEDS] = groups->dropout_seeds,
                   [SLOT_KV_LENS] = core->kv_lens,
                   [SLOT_Q_OFFSETS] = core->q_offsets,
                   [SLOT_CU_SEQLENS_Q] = core->cu_seqlens_q,
                   [SLOT_CU_SEQLENS_KV] = core->cu_seqlens_kv,
                   [SLOT_BLOCK_TABLE] = core->block_table,
                   [SLOT_KEY_INDEX] = groups->key_index},
    };
}

/* --- Lengths ---------------------------------------------------------------------------------- */

static attnkit_status check_lengths(const struct attention_plan *plan,
                                    const struct run_input *input, char *message)
{
    const struct attention *const a = &plan->a;
    attnkit_status status = attnkit_check_planned_length("batch", input->batch, a->batch, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_planned_length("q_len", input->q_len, a->q_len, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_planned_length("kv_len", input->kv_len, a->kv_len, message);
    return status;
}

static bool has_planned_lengths(const struct attention_plan *plan, const struct run_input *input)
{
    return input->batch == plan->a.batch && input->q_len == plan->a.q_len &&
           input->kv_len == plan->a.kv_len;
}

/* Sets `count` to the dimensions that a tensor has with the lengths of a run. */
static void count_rows(const struct attention_plan *plan, const struct planned_tensor *t,
                       const struct run_input *input, int64_t count[3])
{
    const struct attention *const a = &plan->a;
    for (int i = 0; i < 3; i++)
        count[i] = t->tensor.count[i];
    switch (t->lengths) {
    case OF_QUERIES:
        count[0] = a->q_starts.data ? 1 : input->batch;
        count[2] = input->q_len;
        break;
    case OF_KEYS:
        count[0] = a->kv_starts.data ? 1 : input->batch;
        count[2] = t->tensor.tiled ? divide_up(input->kv_len, TILE_KEYS) : input->kv_len;
        break;
    case OF_BATCH:
        count[2] = input->batch;
        break;
    case OF_BATCH_ENDS:
        count[2] = input->batch + 1;
        break;
    case OF_BLOCK_TABLE:
        count[1] = input->batch;
        count[2] = divide_up(input->kv_len, a->pages.size);
        break;
    case OF_CELLS:
        count[1] = input->batch;
        count[2] = input->kv_len;
        break;
    case OF_NOTHING:
        break;
    }
}

/* --- Addresses -------------------------------------------------------------------------------- */

/* Refuses memory in a slot that the plan leaves empty. */
static attnkit_status check_slots(const struct attention_plan *plan, const struct run_input *input,
                                  char *message)
{
    for (int slot = 0; slot < SLOTS; slot++)
        if (input->memory[slot] && !(plan->slots >> slot & 1))
            return attnkit_check_absent(slot_names[slot], input->memory[slot], message);
    return ATTNKIT_OK;
}

static attnkit_status bind_memory(const struct attention_plan *plan, const struct run_input *input,
                                  struct bound *bound, char *message)
{
    const bool as_planned = plan->single || has_planned_lengths(plan, input);
    attnkit_status status = ATTNKIT_OK;
    bound->count = plan->count;
    for (int i = 0; status == ATTNKIT_OK && i < plan->count; i++) {
        const struct planned_tensor *const t = &plan->tensors[i];
        const void *const data = input->memory[t->slot];
        int64_t count[3];
        if (as_planned) {
            status = attnkit_bind(&bound->memory[i], &t->tensor, data, message);
            continue;
        }
        count_rows(plan, t, input, count);
        status = attnkit_bind_part(&bound->memory[i], &t->tensor, count, data, message);
    }
    return status;
}

/* Returns whether a scale is NaN, or may become infinite when multiplied by log2 e. Uses only
 * comparisons, because the caller's rounding mode is still in force here. */
static bool any_is_huge(const float *scales, int64_t heads)
{
    bool any = false;
    for (int64_t h = 0; scales && h < heads; h++)
        any |= !(scales[h] > -0x1p127f && scales[h] < 0x1p127f);
    return any;
}

/* Sets the addresses of masks, segment ids and score mods, except for sinks. */
static void set_extras(const void *const *memory, int64_t heads, struct extras *x)
{
    x->bytes.first = memory[SLOT_MASK];
    x->bits.first = memory[SLOT_MASK_BITS];
    x->bias.first = memory[SLOT_BIAS];
    /* Planning sets q_docs only if the caller gives both arrays of segment ids. A call without rows
     * or keys may give one array alone, which is not used. */
    if (x->q_docs) {
        x->q_docs = memory[SLOT_Q_SEGMENT_IDS];
        x->kv_docs = memory[SLOT_KV_SEGMENT_IDS];
    }
    x->bias_scales = memory[SLOT_BIAS_SCALES];
    x->has_huge_scale = any_is_huge(x->bias_scales, heads);
    x->slopes = memory[SLOT_ALIBI_SLOPES];
    x->seeds = memory[SLOT_DROPOUT_SEEDS];
}

static void set_problem(const struct run_input *input, struct attention *a)
{
    const void *const *const memory = input->memory;
    a->batch = input->batch;
    a->q_len = input->q_len;
    a->kv_len = input->kv_len;
    a->q = memory[SLOT_Q];
    a->out = (char *)memory[SLOT_OUT];
    a->lse = (char *)memory[SLOT_LSE];
    a->k.first = memory[SLOT_K];
    a->v.first = memory[SLOT_V];
    a->k.scales = memory[SLOT_K_SCALES];
    a->v.scales = memory[SLOT_V_SCALES];
    a->pages.table = memory[SLOT_BLOCK_TABLE];
    a->before =
        (struct total){(float *)memory[SLOT_STATE_IN_MAX], (double *)memory[SLOT_STATE_IN_SUM],
                       (double *)memory[SLOT_STATE_IN_OUT]};
    a->after =
        (struct total){(float *)memory[SLOT_STATE_OUT_MAX], (double *)memory[SLOT_STATE_OUT_SUM],
                       (double *)memory[SLOT_STATE_OUT_OUT]};
    a->kv_lens.data = memory[SLOT_KV_LENS];
    a->q_offsets.data = memory[SLOT_Q_OFFSETS];
    a->q_starts.data = memory[SLOT_CU_SEQLENS_Q];
    a->kv_starts.data = memory[SLOT_CU_SEQLENS_KV];
    a->cells.index.data = memory[SLOT_KEY_INDEX];
    a->extras.sinks = memory[SLOT_SINKS];
    a->extras.weights = (char *)memory[SLOT_WEIGHTS];
    if (a->extras.any)
        set_extras(memory, a->kv_heads * a->group, &a->extras);
}

/* --- Arrays ----------------------------------------------------------------------------------- */

static attnkit_status check_kv_lens(const struct attention *a, char *message)
{
    for (int64_t b = 0; a->kv_lens.data && b < a->batch; b++) {
        const int64_t len = int_at(a->kv_lens, b);
        if (len < 0 || len > a->kv_len)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "kv_lens[%lld] is %lld: must be between 0 and kv_len (%lld)",
                          (long long)b, (long long)len, (long long)a->kv_len);
    }
    return ATTNKIT_OK;
}

/* Checks cu_seqlens: the numbers begin with 0, never decrease and end with the total. */
static attnkit_status check_starts(struct ints starts, int64_t batch, int64_t total,
                                   const char *name, const char *total_name, char *message)
{
    if (!starts.data)
        return ATTNKIT_OK;
    int64_t before = int_at(starts, 0);
    if (before != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s[0] is %lld: must be 0", name,
                      (long long)before);
    for (int64_t b = 1; b <= batch; b++) {
        const int64_t start = int_at(starts, b);
        if (start < before)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "%s[%lld] is %lld: must be at least the number before it (%lld)", name,
                          (long long)b, (long long)start, (long long)before);
        before = start;
    }
    if (before != total)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s[%lld] is %lld: must be %s (%lld)", name,
                      (long long)batch, (long long)before, total_name, (long long)total);
    return ATTNKIT_OK;
}

static attnkit_status check_pages(const struct attention *a, char *message)
{
    attnkit_status status = ATTNKIT_OK;
    for (int64_t b = 0; a->pages.table && status == ATTNKIT_OK && b < a->batch; b++) {
        const int64_t keys = a->kv_lens.data ? int_at(a->kv_lens, b) : a->kv_len;
        status = attnkit_check_page_table(&a->pages, b, 0, keys, message);
    }
    return status;
}

static attnkit_status check_offsets(const struct attention *a, char *message)
{
    for (int64_t b = 0; a->q_offsets.data && b < a->batch; b++) {
        const int64_t offset = int_at(a->q_offsets, b);
        int64_t end;
        if (__builtin_sub_overflow(offset, a->first_key, &end))
            return refuse(message, ATTNKIT_OVERFLOW,
                          "q_offsets[%lld] is %lld: must be at least first_key (%lld) - 2^63",
                          (long long)b, (long long)offset, (long long)a->first_key);
        if (__builtin_add_overflow(offset, a->q_len, &end))
            return refuse(message, ATTNKIT_OVERFLOW,
                          "q_offsets[%lld] is %lld: must be at most 2^63 - 1 - q_len (%lld)",
                          (long long)b, (long long)offset, (long long)(INT64_MAX - a->q_len));
    }
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_attention_arrays(const struct attention *a, char *message)
{
    attnkit_status status = check_kv_lens(a, message);
    if (status == ATTNKIT_OK)
        status = check_starts(a->q_starts, a->batch, a->q_len, "cu_seqlens_q", "q_len", message);
    if (status == ATTNKIT_OK)
        status =
            check_starts(a->kv_starts, a->batch, a->kv_len, "cu_seqlens_kv", "kv_len", message);
    if (status == ATTNKIT_OK)
        status = check_pages(a, message);
    return status == ATTNKIT_OK ? check_offsets(a, message) : status;
}

attnkit_status attnkit_bind_attention_memory(const struct attention_plan *plan,
                                             const struct run_input *input, struct attention *a,
                                             struct bound *bound, char *message)
{
    attnkit_status status = ATTNKIT_OK;
    if (!plan->single)
        status = check_lengths(plan, input, message);
    if (status == ATTNKIT_OK && !plan->single)
        status = check_slots(plan, input, message);
    if (status == ATTNKIT_OK)
        status = bind_memory(plan, input, bound, message);
    if (status == ATTNKIT_OK)
        set_problem(input, a);
    return status;
}

attnkit_status attnkit_bind_attention(const struct attention_plan *plan,
                                      const struct run_input *input, struct attention *a,
                                      struct bound *bound, char *message)
{
    attnkit_status status = attnkit_bind_attention_memory(plan, input, a, bound, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_overlaps(bound->memory, bound->count, message);
    return status == ATTNKIT_OK ? attnkit_check_attention_arrays(a, message) : status;
}
