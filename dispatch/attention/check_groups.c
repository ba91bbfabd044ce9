/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks visibility, score mods, dropout and weights of an attention call. If a call has none of
 * these options, the checks cost a few comparisons.
 */
#include <math.h>

#include "dispatch/attention/check.h"
#include "dispatch/cache/cache.h"
#include "dispatch/common/message.h"

_Static_assert((int)WEIGHTS_NONE == ATTNKIT_WEIGHTS_NONE &&
                   (int)WEIGHTS_SOFTMAX == ATTNKIT_WEIGHTS_SOFTMAX &&
                   (int)WEIGHTS_BIASED == ATTNKIT_WEIGHTS_BIASED &&
                   (int)WEIGHTS_CAPPED == ATTNKIT_WEIGHTS_CAPPED &&
                   (int)WEIGHTS_SCALED == ATTNKIT_WEIGHTS_SCALED,
               "an enum weights_kind is the attnkit_weights_kind of the same number");

enum { FLOAT = sizeof(float) }; /* bytes */

/* Returns whether the call has no scores. A call without scores does not touch masks, bias and
 * weights, so their addresses may be NULL. */
static bool has_no_scores(const struct request *r)
{
    return has_no_rows(r) || r->core->kv_len == 0;
}

/* --- Visibility -------------------------------------------------------------------------- */

static attnkit_status check_window(const struct request *r, char *message)
{
    if (!r->window)
        return ATTNKIT_OK;
    const struct {
        const char *name;
        int64_t value, smallest;
    } fields[] = {{"window.left", r->window->left, -1},
                  {"window.right", r->window->right, -1},
                  {"window.keep_first", r->window->keep_first, 0}};
    for (int i = 0; i < 3; i++)
        if (fields[i].value < fields[i].smallest)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least %lld%s",
                          fields[i].name, (long long)fields[i].value, (long long)fields[i].smallest,
                          fields[i].smallest < 0 ? "; -1 is no bound on this side" : "");
    return ATTNKIT_OK;
}

static attnkit_status check_segments(const struct request *r, char *message)
{
    const attnkit_visibility *const v = r->visibility;
    if (!v->q_segment_ids == !v->kv_segment_ids || has_no_scores(r))
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "%s is NULL, but %s is given: must be both or none",
                  v->q_segment_ids ? "kv_segment_ids" : "q_segment_ids",
                  v->q_segment_ids ? "q_segment_ids" : "kv_segment_ids");
}

/* A mask as the caller gives it. Messages use the names of its fields and of its allowed type. */
struct given_mask {
    const char *name, *type_name, *kind_name, *columns_name;
    const attnkit_tensor *tensor;
    attnkit_type type; /* the only type allowed */
    attnkit_mask_kind kind;
    int64_t columns;
};

static attnkit_status check_kind(const struct request *r, const struct given_mask *m, char *message)
{
    if (m->kind < ATTNKIT_MASK_NONE || m->kind > ATTNKIT_MASK_IGNORE)
        return refuse(message, ATTNKIT_UNSUPPORTED, "%s is %d: not known", m->kind_name,
                      (int)m->kind);
    if (m->tensor->data && m->kind == ATTNKIT_MASK_NONE)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is given, but %s is ATTNKIT_MASK_NONE",
                      m->name, m->kind_name);
    if (!m->tensor->data && m->kind != ATTNKIT_MASK_NONE && !has_no_scores(r))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is NULL, but %s is %d", m->name,
                      m->kind_name, (int)m->kind);
    if (m->tensor->data && m->tensor->type != m->type)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s.type is %d: must be %s (%d)", m->name,
                      (int)m->tensor->type, m->type_name, (int)m->type);
    return ATTNKIT_OK;
}

static attnkit_status check_columns(const struct request *r, const char *name, const void *data,
                                    const char *columns_name, int64_t columns, char *message)
{
    if (columns < 0 || columns > r->core->kv_len)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is %lld: must be between 0 and kv_len (%lld)", columns_name,
                      (long long)columns, (long long)r->core->kv_len);
    if (!data && columns != 0 && !has_no_scores(r))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld, but %s is NULL", columns_name,
                      (long long)columns, name);
    return ATTNKIT_OK;
}

static attnkit_status check_masks(const struct request *r, char *message)
{
    const attnkit_visibility *const v = r->visibility;
    if (!v->mask.data && !v->mask_kind && !v->mask_columns && !v->mask_bits.data &&
        !v->mask_bits_kind && !v->mask_bits_columns)
        return ATTNKIT_OK;
    const struct given_mask masks[] = {
        {"mask", "ATTNKIT_BOOL", "mask_kind", "mask_columns", &v->mask, ATTNKIT_BOOL, v->mask_kind,
         v->mask_columns},
        {"mask_bits", "ATTNKIT_BITS", "mask_bits_kind", "mask_bits_columns", &v->mask_bits,
         ATTNKIT_BITS, v->mask_bits_kind, v->mask_bits_columns},
    };
    for (int i = 0; i < 2; i++) {
        const struct given_mask *const m = &masks[i];
        attnkit_status status = check_kind(r, m, message);
        if (status == ATTNKIT_OK)
            status =
                check_columns(r, m->name, m->tensor->data, m->columns_name, m->columns, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return ATTNKIT_OK;
}

/* --- Score mods -------------------------------------------------------------------------- */

static attnkit_status check_bias(const struct request *r, char *message)
{
    const attnkit_score_mods *const s = r->scores;
    attnkit_status status = attnkit_check_rounded("bias.type", s->bias.type, message);
    if (status == ATTNKIT_OK)
        status = check_columns(r, "bias", s->bias.data, "bias_columns", s->bias_columns, message);
    if (status != ATTNKIT_OK)
        return status;
    if (!s->bias.data && s->bias.type != ATTNKIT_F32 && !has_no_scores(r))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bias.type is %d, but bias is NULL",
                      (int)s->bias.type);
    if (!s->bias.data && s->bias_scales && !has_no_scores(r))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bias_scales is given, but bias is NULL");
    const int64_t columns = columns_or_keys(r, s->bias_columns);
    if (s->bias.data && columns > INT64_MAX / FLOAT)
        return refuse(message, ATTNKIT_OVERFLOW, "bias has %lld columns: must be at most %lld",
                      (long long)columns, (long long)(INT64_MAX / FLOAT));
    return ATTNKIT_OK;
}

static attnkit_status check_dropout(const attnkit_score_mods *s, char *message)
{
    if (!(s->dropout >= 0.0 && s->dropout < 1.0))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "dropout is %g: must be at least 0, below 1",
                      s->dropout);
    if (s->dropout > 0.0 && !s->dropout_seeds)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "dropout_seeds is NULL, but dropout is %g",
                      s->dropout);
    if (s->dropout == 0.0 && s->dropout_seeds)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "dropout_seeds is given, but dropout is 0");
    return ATTNKIT_OK;
}

static attnkit_status check_score_mods(const struct request *r, char *message)
{
    const attnkit_score_mods *const s = r->scores;
    if (!(s->softcap >= 0.0 && isfinite(s->softcap)))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "softcap is %g: must be positive and finite, or 0 for none", s->softcap);
    if (s->sinks && r->states->state_out.out)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "sinks and state_out are both given: a state has no sinks");
    const attnkit_status status = check_bias(r, message);
    return status == ATTNKIT_OK ? check_dropout(s, message) : status;
}

static attnkit_status check_positions(const struct request *r, char *message)
{
    const char *const user = r->window                  ? "a window"
                             : r->scores->alibi_slopes  ? "alibi_slopes"
                             : r->scores->dropout > 0.0 ? "dropout"
                                                        : NULL;
    if (!user || r->core->align != ATTNKIT_ALIGN_NONE)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "align is ATTNKIT_ALIGN_NONE: a call with %s must say where row 0 stands", user);
}

/* --- Weights ----------------------------------------------------------------------------- */

static attnkit_status check_weights_kind(const struct request *r, char *message)
{
    const attnkit_weights_out *const w = r->weights;
    if (w->flags)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "weights.flags is 0x%x: bits 0x%x are not known", (unsigned)w->flags,
                      (unsigned)w->flags);
    if (w->kind < ATTNKIT_WEIGHTS_NONE || w->kind > ATTNKIT_WEIGHTS_SCALED)
        return refuse(message, ATTNKIT_UNSUPPORTED, "weights.kind is %d: not known", (int)w->kind);
    if (!w->weights.data && w->kind != ATTNKIT_WEIGHTS_NONE && !has_no_scores(r))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "weights is NULL, but weights.kind is %d",
                      (int)w->kind);
    if (w->weights.data && w->kind == ATTNKIT_WEIGHTS_NONE)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "weights is given, but weights.kind is ATTNKIT_WEIGHTS_NONE");
    return ATTNKIT_OK;
}

static attnkit_status check_weights(const struct request *r, char *message)
{
    const attnkit_states *const s = r->states;
    const attnkit_status status = check_weights_kind(r, message);
    if (status != ATTNKIT_OK || !r->weights->weights.data)
        return status;
    if (s->state_in.out || s->state_out.out)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "weights and %s are both given: weights need all keys in one call",
                      s->state_in.out ? "state_in" : "state_out");
    if (s->first_key != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "weights is given, but first_key is %lld: weights need all keys in one call",
                      (long long)s->first_key);
    if (r->core->kv_len > INT64_MAX / FLOAT)
        return refuse(message, ATTNKIT_OVERFLOW, "kv_len is %lld: too large for a row of weights",
                      (long long)r->core->kv_len);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_groups(const struct request *r, char *message)
{
    attnkit_status status = check_window(r, message);
    if (status == ATTNKIT_OK)
        status = check_segments(r, message);
    if (status == ATTNKIT_OK)
        status = check_masks(r, message);
    if (status == ATTNKIT_OK)
        status = check_score_mods(r, message);
    if (status == ATTNKIT_OK)
        status = check_weights(r, message);
    return status == ATTNKIT_OK ? check_positions(r, message) : status;
}
