/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a checked request into a plan: fills in defaults, converts options into the numbers that
 * kernels use, and plans the tensors and the schedule.
 */
#include "dispatch/attention/plan.h"

#include <math.h>

#include "dispatch/attention/check.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/ints.h"
#include "dispatch/common/message.h"
#include "kernels/attention/cells.h"

static struct cache cache_of(const attnkit_tensor *t, int64_t dim, const attnkit_tensor *scales,
                             int64_t scale_group)
{
    return (struct cache){
        .first = t->data,
        .type = (enum type)t->type,
        .tiled = t->layout & ATTNKIT_TILED,
        .dim = dim,
        .scales = scales->data,
        .scale_group = scale_group ? scale_group : dim,
    };
}

static struct total total_of(attnkit_state s)
{
    return (struct total){s.max, s.sum, s.out};
}

/* --- Numbers ------------------------------------------------------------------------------ */

static double scale_of(const attnkit_attention_args *args)
{
    return args->flags & ATTNKIT_SCALE_GIVEN ? args->scale : 1.0 / sqrt((double)args->head_dim);
}

static attnkit_status set_scale(const attnkit_attention_args *args, struct attention *a,
                                char *message)
{
    a->scale_log2 = (float)(scale_of(args) * LOG2_E);
    if (isfinite(a->scale_log2))
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "scale is %g: scale * log2 e must be finite in binary32", args->scale);
}

static attnkit_status set_softcap(double softcap, double scale, float scale_log2, struct extras *x,
                                  char *message)
{
    x->scale = (float)scale;
    x->adjust.factor = scale_log2;
    if (softcap == 0.0)
        return ATTNKIT_OK;
    x->cap = (float)softcap;
    x->adjust = (struct adjust){
        .capped = true, .to_cap = (float)(scale / softcap), .factor = (float)(softcap * LOG2_E)};
    if (!isfinite(x->adjust.factor))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "softcap is %g: softcap * log2 e must be finite in binary32", softcap);
    if (!isfinite(x->adjust.to_cap))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "softcap is %g: scale (%g) / softcap must be finite in binary32", softcap,
                      scale);
    return ATTNKIT_OK;
}

static void set_dropout(const attnkit_score_mods *s, struct extras *x)
{
    if (!(s->dropout > 0.0))
        return;
    x->drops = true;
    x->dropped = (uint64_t)ceil(s->dropout * 0x1p32);
    x->keep_factor = (float)(1.0 / (1.0 - s->dropout));
    x->seeds = s->dropout_seeds;
}

/* --- Visibility ----------------------------------------------------------------------------- */

static void set_window(const attnkit_window *w, struct extras *x)
{
    if (!w)
        return;
    x->window = true;
    x->left = w->left < 0 ? INT64_MAX : w->left;
    x->right = w->right < 0 ? INT64_MAX : w->right;
    x->has_right = w->right >= 0;
    x->keep_first = w->keep_first;
}

static void set_masks(const struct request *r, struct extras *x)
{
    const attnkit_visibility *const v = r->visibility;
    const attnkit_tensor *const bias = &r->scores->bias;
    if (v->q_segment_ids && v->kv_segment_ids) {
        x->q_docs = v->q_segment_ids;
        x->kv_docs = v->kv_segment_ids;
    }
    if (v->mask.data)
        x->bytes = (struct mask){.first = v->mask.data,
                                 .columns = columns_or_keys(r, v->mask_columns),
                                 .ignores = v->mask_kind == ATTNKIT_MASK_IGNORE};
    if (v->mask_bits.data)
        x->bits = (struct mask){.first = v->mask_bits.data,
                                .columns = columns_or_keys(r, v->mask_bits_columns),
                                .ignores = v->mask_bits_kind == ATTNKIT_MASK_IGNORE};
    if (bias->data)
        x->bias = (struct mask){.first = bias->data,
                                .columns = columns_or_keys(r, r->scores->bias_columns),
                                .type = (enum type)bias->type};
    const struct mask *const masks[] = {&x->bytes, &x->bits, &x->bias};
    x->columns = INT64_MAX;
    for (int i = 0; i < 3; i++)
        if (masks[i]->first && masks[i]->columns < x->columns)
            x->columns = masks[i]->columns;
}

static attnkit_status set_extras(const struct request *r, struct attention *a, char *message)
{
    struct extras *const x = &a->extras;
    x->slopes = r->scores->alibi_slopes;
    x->bias_scales = r->scores->bias_scales;
    x->sinks = r->scores->sinks;
    set_window(r->window, x);
    set_masks(r, x);
    set_dropout(r->scores, x);
    if (r->weights->weights.data) {
        x->weights_kind = (enum weights_kind)r->weights->kind;
        x->weights = (char *)r->weights->weights.data;
    }
    const attnkit_status status =
        set_softcap(r->scores->softcap, scale_of(r->core), a->scale_log2, x, message);
    x->any = x->window || x->q_docs || x->bytes.first || x->bits.first || x->bias.first ||
             x->adjust.capped || x->slopes || x->drops;
    return status;
}

static attnkit_status set_ints(const struct request *r, struct attention *a, char *message)
{
    attnkit_status status =
        attnkit_read_ints("kv_lens", r->visibility->kv_lens, &a->kv_lens, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_ints("q_offsets", r->core->q_offsets, &a->q_offsets, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_ints("cu_seqlens_q", r->storage->cu_seqlens_q, &a->q_starts, message);
    if (status == ATTNKIT_OK)
        status =
            attnkit_read_ints("cu_seqlens_kv", r->storage->cu_seqlens_kv, &a->kv_starts, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_ints("key_index", r->storage->key_index, &a->cells.index, message);
    return status;
}

/* --- The plan --------------------------------------------------------------------------------- */

static void set_problem(const struct request *r, struct attention *a)
{
    const attnkit_attention_args *const args = r->core;
    *a = (struct attention){
        .batch = args->batch,
        .kv_heads = args->kv_heads,
        .group = args->kv_heads ? args->q_heads / args->kv_heads : 0,
        .q_len = args->q_len,
        .kv_len = args->kv_len,
        .q_room = args->q_len,
        .kv_room = args->kv_len,
        .head_dim = args->head_dim,
        .value_dim = value_dim_of(r),
        .q = args->q.data,
        .out = (char *)args->out.data,
        .lse = (char *)args->lse.data,
        .q_type = (enum type)args->q.type,
        .out_type = (enum type)args->out.type,
        .k = cache_of(&args->k, args->head_dim, &r->storage->k_scales, r->storage->k_scale_group),
        .v = cache_of(&args->v, value_dim_of(r), &r->storage->v_scales, r->storage->v_scale_group),
        .pages = pages_of(r),
        .cells = {.stride = r->storage->key_index_stride},
        .first_key = r->states->first_key,
        .before = total_of(r->states->state_in),
        .after = total_of(r->states->state_out),
        .integers = args->flags & ATTNKIT_INTEGERS,
        .grouped = args->flags & ATTNKIT_BF16_PRODUCTS,
        .short_weights = args->flags & ATTNKIT_SHORT_WEIGHTS,
        .causal = args->flags & ATTNKIT_CAUSAL,
        .bottom_right = args->align == ATTNKIT_ALIGN_BOTTOM_RIGHT,
    };
}

/* Returns the number of bytes of the workspace for work stealing and for the tables of cells of all
 * threads. */
static size_t shared_bytes(const struct attention_plan *plan)
{
    size_t bytes;
    if (__builtin_mul_overflow(plan->cell_bytes, (size_t)plan->threads, &bytes) ||
        __builtin_add_overflow(bytes, plan->steal.bytes, &bytes))
        return SIZE_MAX; /* attnkit_workspace_bytes refuses this size */
    return bytes;
}

/* Plans the shares of threads and the workspace. */
static attnkit_status set_schedule(struct attention_plan *plan, const struct kernels *kernels,
                                   char *message)
{
    plan->header.workspace_size = 0;
    plan->cell_bytes = 0;
    if (plan->empty)
        return ATTNKIT_OK;
    plan->schedule = attnkit_schedule(&plan->a, kernels, plan->threads);
    plan->steal = attnkit_steal(&plan->a, kernels, &plan->schedule, plan->threads);
    plan->cell_bytes = attnkit_cell_bytes(&plan->a);
    return attnkit_workspace_bytes(shared_bytes(plan), plan->schedule.scratch, plan->steal.threads,
                                   &plan->header.workspace_size, message);
}

attnkit_status attnkit_make_attention_plan(const struct request *r, const struct kernels *kernels,
                                           int64_t threads, struct attention_plan *plan,
                                           char *message)
{
    plan->empty = has_no_rows(r);
    plan->threads = threads;
    set_problem(r, &plan->a);
    attnkit_status status = set_ints(r, &plan->a, message);
    if (status == ATTNKIT_OK)
        status = set_scale(r->core, &plan->a, message);
    if (status == ATTNKIT_OK)
        status = set_extras(r, &plan->a, message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_attention_tensors(r, plan, message);
    return status == ATTNKIT_OK ? set_schedule(plan, kernels, message) : status;
}
