/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans the tensors of an attention call: their shapes, strides and bytes. Only tensors that the
 * call has are listed, outputs first.
 */
#include "dispatch/attention/check.h"
#include "dispatch/attention/plan.h"
#include "dispatch/cache/cache.h"

enum { FLOAT = sizeof(float), DOUBLE = sizeof(double) }; /* bytes */

/* Adds a tensor to the plan. The caller of this function sets count, row_bytes and alignment. */
static struct tensor *add(struct attention_plan *plan, enum slot slot, enum lengths_of lengths,
                          const char *name)
{
    struct planned_tensor *const t = &plan->tensors[plan->count++];
    t->slot = slot;
    t->lengths = lengths;
    t->tensor.name = name;
    t->tensor.output = t->tensor.paged = t->tensor.tiled = false;
    plan->slots |= 1u << slot;
    return &t->tensor;
}

static void set_count(struct tensor *t, int64_t batch, int64_t heads, int64_t rows)
{
    t->count[0] = batch;
    t->count[1] = heads;
    t->count[2] = rows;
}

static void set_row(struct tensor *t, int64_t bytes, int64_t alignment)
{
    t->row_bytes = bytes;
    t->alignment = (int32_t)alignment;
}

/* Adds a tensor with a row for each query row. The caller sets row_bytes and alignment. */
static struct tensor *add_query_rows(const struct request *r, struct attention_plan *plan,
                                     enum slot slot, const char *name)
{
    const attnkit_attention_args *const args = r->core;
    struct tensor *const t = add(plan, slot, OF_QUERIES, name);
    set_count(t, plan->a.q_starts.data ? 1 : args->batch, args->q_heads, args->q_len);
    return t;
}

/* Adds a tensor with a row for each key: K, V or their scales. The caller sets row_bytes and
 * alignment. */
static struct tensor *add_key_rows(const struct request *r, struct attention_plan *plan,
                                   enum slot slot, const char *name)
{
    const attnkit_attention_args *const args = r->core;
    const struct pages *const pages = &plan->a.pages;
    struct tensor *const t = add(plan, slot, pages->table ? OF_NOTHING : OF_KEYS, name);
    t->paged = pages->table;
    if (t->paged)
        set_count(t, pages->count, args->kv_heads, pages->size);
    else
        set_count(t, plan->a.kv_starts.data ? 1 : args->batch, args->kv_heads, args->kv_len);
    return t;
}

/* --- Outputs and rows of the core ------------------------------------------------------------- */

static attnkit_status plan_out(const struct request *r, struct attention_plan *plan, char *message)
{
    struct attention *const a = &plan->a;
    if (a->after.out)
        return ATTNKIT_OK;
    struct tensor *const t = add_query_rows(r, plan, SLOT_OUT, "out");
    set_row(t, bytes_of(a->out_type, a->value_dim), attnkit_alignment(a->out_type));
    t->output = true;
    const attnkit_status status = attnkit_plan_tensor(t, &r->core->out, message);
    a->out_stride = strides_of(t);
    return status;
}

static attnkit_status plan_lse(const struct request *r, struct attention_plan *plan, char *message)
{
    if (!r->core->lse.data)
        return ATTNKIT_OK;
    struct tensor *const t = add_query_rows(r, plan, SLOT_LSE, "lse");
    set_row(t, FLOAT, FLOAT);
    t->output = true;
    const attnkit_status status = attnkit_plan_tensor(t, &r->core->lse, message);
    plan->a.lse_stride = strides_of(t);
    return status;
}

static attnkit_status plan_weights(const struct request *r, struct attention_plan *plan,
                                   char *message)
{
    if (!r->weights->weights.data)
        return ATTNKIT_OK;
    struct tensor *const t = add_query_rows(r, plan, SLOT_WEIGHTS, "weights");
    set_row(t, r->core->kv_len * FLOAT, FLOAT);
    t->output = true;
    const attnkit_status status = attnkit_plan_tensor(t, &r->weights->weights, message);
    plan->a.extras.weights_stride = strides_of(t);
    return status;
}

static attnkit_status plan_q(const struct request *r, struct attention_plan *plan, char *message)
{
    struct attention *const a = &plan->a;
    struct tensor *const t = add_query_rows(r, plan, SLOT_Q, "q");
    set_row(t, bytes_of(a->q_type, a->head_dim), attnkit_alignment(a->q_type));
    const attnkit_status status = attnkit_plan_tensor(t, &r->core->q, message);
    a->q_stride = strides_of(t);
    return status;
}

static attnkit_status plan_k(const struct request *r, struct attention_plan *plan, char *message)
{
    struct cache *const k = &plan->a.k;
    struct tensor *t = add_key_rows(r, plan, SLOT_K, "k");
    set_row(t, bytes_of(k->type, k->dim), attnkit_alignment(k->type));
    if (k->tiled)
        attnkit_lay_in_tiles(t);
    attnkit_status status = attnkit_plan_tensor(t, &r->core->k, message);
    k->stride = strides_of(t);
    if (status != ATTNKIT_OK || !has_scales(k->type))
        return status;
    t = add_key_rows(r, plan, SLOT_K_SCALES, "k_scales");
    set_row(t, k->dim / k->scale_group * FLOAT, FLOAT);
    if (k->tiled)
        attnkit_lay_in_tiles(t);
    status = attnkit_plan_tensor(t, &r->storage->k_scales, message);
    k->scale_stride = strides_of(t);
    return status;
}

static attnkit_status plan_v(const struct request *r, struct attention_plan *plan, char *message)
{
    struct cache *const v = &plan->a.v;
    struct tensor *t = add_key_rows(r, plan, SLOT_V, "v");
    set_row(t, bytes_of(v->type, v->dim), attnkit_alignment(v->type));
    attnkit_status status = attnkit_plan_tensor(t, &r->core->v, message);
    v->stride = strides_of(t);
    if (status != ATTNKIT_OK || !has_scales(v->type))
        return status;
    t = add_key_rows(r, plan, SLOT_V_SCALES, "v_scales");
    set_row(t, v->dim / v->scale_group * FLOAT, FLOAT);
    status = attnkit_plan_tensor(t, &r->storage->v_scales, message);
    v->scale_stride = strides_of(t);
    return status;
}

/* --- States --------------------------------------------------------------------------------- */

/* Plans the three dense tensors of a state in slots first, first + 1 and first + 2. */
static attnkit_status plan_state(const struct request *r, struct attention_plan *plan,
                                 enum slot first, const char *const names[3], char *message)
{
    attnkit_status status = ATTNKIT_OK;
    for (int i = 0; status == ATTNKIT_OK && i < 3; i++) {
        struct tensor *const t = add_query_rows(r, plan, first + i, names[i]);
        if (i == 0)
            set_row(t, FLOAT, FLOAT);
        else
            set_row(t, (i == 1 ? 1 : plan->a.value_dim) * DOUBLE, DOUBLE);
        t->output = first == SLOT_STATE_OUT_MAX;
        status = attnkit_plan_dense(t, message);
    }
    return status;
}

static attnkit_status plan_state_out(const struct request *r, struct attention_plan *plan,
                                     char *message)
{
    static const char *const names[3] = {"state_out.max", "state_out.sum", "state_out.out"};
    if (!plan->a.after.out)
        return ATTNKIT_OK;
    return plan_state(r, plan, SLOT_STATE_OUT_MAX, names, message);
}

static attnkit_status plan_state_in(const struct request *r, struct attention_plan *plan,
                                    char *message)
{
    static const char *const names[3] = {"state_in.max", "state_in.sum", "state_in.out"};
    if (!plan->a.before.out)
        return ATTNKIT_OK;
    return plan_state(r, plan, SLOT_STATE_IN_MAX, names, message);
}

/* --- Masks ---------------------------------------------------------------------------------- */

/* Plans a mask or a bias that the caller has given. */
static attnkit_status plan_mask(const struct request *r, struct attention_plan *plan,
                                enum slot slot, const char *name, const attnkit_tensor *theirs,
                                struct mask *mask, int64_t row_bytes, char *message)
{
    struct tensor *const t = add_query_rows(r, plan, slot, name);
    set_row(t, row_bytes, slot == SLOT_BIAS ? attnkit_alignment(mask->type) : 1);
    const attnkit_status status = attnkit_plan_tensor(t, theirs, message);
    mask->stride = strides_of(t);
    return status;
}

static attnkit_status plan_masks(const struct request *r, struct attention_plan *plan,
                                 char *message)
{
    const attnkit_visibility *const v = r->visibility;
    struct extras *const x = &plan->a.extras;
    attnkit_status status = ATTNKIT_OK;
    if (x->bytes.first)
        status =
            plan_mask(r, plan, SLOT_MASK, "mask", &v->mask, &x->bytes, x->bytes.columns, message);
    if (status == ATTNKIT_OK && x->bits.first)
        status = plan_mask(r, plan, SLOT_MASK_BITS, "mask_bits", &v->mask_bits, &x->bits,
                           divide_up(x->bits.columns, 8), message);
    if (status == ATTNKIT_OK && x->bias.first)
        status = plan_mask(r, plan, SLOT_BIAS, "bias", &r->scores->bias, &x->bias,
                           bytes_of(x->bias.type, x->bias.columns), message);
    return status;
}

/* --- Arrays ----------------------------------------------------------------------------------- */

static attnkit_status plan_array(struct attention_plan *plan, enum slot slot,
                                 enum lengths_of lengths, const char *name, const int64_t count[2],
                                 int64_t element, char *message)
{
    struct tensor *const t = add(plan, slot, lengths, name);
    set_count(t, count[0], 1, count[1]);
    set_row(t, element, element);
    return attnkit_plan_dense(t, message);
}

static attnkit_status plan_ids(const struct request *r, struct attention_plan *plan, char *message)
{
    const struct attention *const a = &plan->a;
    const int64_t q[2] = {a->q_starts.data ? 1 : a->batch, r->core->q_len};
    const int64_t kv[2] = {a->kv_starts.data ? 1 : a->batch, r->core->kv_len};
    if (!a->extras.q_docs)
        return ATTNKIT_OK;
    const attnkit_status status = plan_array(plan, SLOT_Q_SEGMENT_IDS, OF_QUERIES, "q_segment_ids",
                                             q, sizeof(int32_t), message);
    if (status != ATTNKIT_OK)
        return status;
    return plan_array(plan, SLOT_KV_SEGMENT_IDS, OF_KEYS, "kv_segment_ids", kv, sizeof(int32_t),
                      message);
}

static attnkit_status plan_head_arrays(const struct request *r, struct attention_plan *plan,
                                       char *message)
{
    const struct extras *const x = &plan->a.extras;
    const int64_t heads[2] = {1, r->core->q_heads}, batch[2] = {1, r->core->batch};
    attnkit_status status = ATTNKIT_OK;
    if (x->slopes)
        status =
            plan_array(plan, SLOT_ALIBI_SLOPES, OF_NOTHING, "alibi_slopes", heads, FLOAT, message);
    if (status == ATTNKIT_OK && x->bias_scales)
        status =
            plan_array(plan, SLOT_BIAS_SCALES, OF_NOTHING, "bias_scales", heads, FLOAT, message);
    if (status == ATTNKIT_OK && x->sinks)
        status = plan_array(plan, SLOT_SINKS, OF_NOTHING, "sinks", heads, FLOAT, message);
    if (status == ATTNKIT_OK && x->seeds)
        status = plan_array(plan, SLOT_DROPOUT_SEEDS, OF_BATCH, "dropout_seeds", batch,
                            sizeof(uint64_t), message);
    return status;
}

static attnkit_status plan_ints(struct attention_plan *plan, char *message)
{
    const struct attention *const a = &plan->a;
    const struct {
        const char *name;
        enum slot slot;
        const struct ints *ints;
        int64_t more;
    } arrays[] = {{"kv_lens", SLOT_KV_LENS, &a->kv_lens, 0},
                  {"q_offsets", SLOT_Q_OFFSETS, &a->q_offsets, 0},
                  {"cu_seqlens_q", SLOT_CU_SEQLENS_Q, &a->q_starts, 1},
                  {"cu_seqlens_kv", SLOT_CU_SEQLENS_KV, &a->kv_starts, 1}};
    attnkit_status status = ATTNKIT_OK;
    for (int i = 0; status == ATTNKIT_OK && i < 4; i++) {
        const int64_t count[2] = {1, a->batch + arrays[i].more};
        if (arrays[i].ints->data)
            status = plan_array(plan, arrays[i].slot, arrays[i].more ? OF_BATCH_ENDS : OF_BATCH,
                                arrays[i].name, count, int_bytes(*arrays[i].ints), message);
    }
    return status;
}

/* Plans the block table: for each batch entry the pages that kv_len keys need. */
static attnkit_status plan_block_table(struct attention_plan *plan, char *message)
{
    const struct attention *const a = &plan->a;
    if (!a->pages.table)
        return ATTNKIT_OK;
    const attnkit_tensor rows = {
        .strides = {0, a->pages.stride * (int64_t)sizeof(int32_t), sizeof(int32_t)},
        .layout = ATTNKIT_STRIDED};
    struct tensor *const t = add(plan, SLOT_BLOCK_TABLE, OF_BLOCK_TABLE, "block_table");
    set_count(t, 1, a->batch, divide_up(a->kv_len, a->pages.size));
    set_row(t, sizeof(int32_t), sizeof(int32_t));
    return attnkit_plan_tensor(t, &rows, message);
}

/* Plans key_index: for each cell of each batch entry the index of its key. */
static attnkit_status plan_key_index(struct attention_plan *plan, char *message)
{
    const struct attention *const a = &plan->a;
    if (!a->cells.index.data)
        return ATTNKIT_OK;
    const int64_t bytes = int_bytes(a->cells.index);
    const attnkit_tensor rows = {.strides = {0, a->cells.stride * bytes, bytes},
                                 .layout = ATTNKIT_STRIDED};
    struct tensor *const t = add(plan, SLOT_KEY_INDEX, OF_CELLS, "key_index");
    set_count(t, 1, a->batch, a->kv_len);
    set_row(t, bytes, bytes);
    return attnkit_plan_tensor(t, &rows, message);
}

attnkit_status attnkit_plan_attention_tensors(const struct request *r, struct attention_plan *plan,
                                              char *message)
{
    typedef attnkit_status (*planner)(const struct request *, struct attention_plan *, char *);
    static const planner planners[] = {plan_out,      plan_lse, plan_state_out, plan_weights,
                                       plan_state_in, plan_q,   plan_k,         plan_v};
    static const planner of_groups[] = {plan_masks, plan_ids, plan_head_arrays};
    plan->count = 0;
    plan->slots = 0;
    attnkit_status status = ATTNKIT_OK;
    for (size_t i = 0; status == ATTNKIT_OK && i < sizeof planners / sizeof planners[0]; i++)
        status = planners[i](r, plan, message);
    for (size_t i = 0; status == ATTNKIT_OK && i < sizeof of_groups / sizeof of_groups[0]; i++)
        status = of_groups[i](r, plan, message);
    if (status == ATTNKIT_OK)
        status = plan_ints(plan, message);
    if (status == ATTNKIT_OK)
        status = plan_block_table(plan, message);
    return status == ATTNKIT_OK ? plan_key_index(plan, message) : status;
}
