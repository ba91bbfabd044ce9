/* SPDX-License-Identifier: Apache-2.0
 *
 * Every argument that adds to a plain attention, checked once. A call without any of them costs a
 * few comparisons here.
 */
#include "dispatch/attention/check_masks.h"

#include <math.h>

#include "dispatch/cache/cache.h"
#include "dispatch/common/message.h"

_Static_assert((int)WEIGHTS_NONE == ATTNKIT_WEIGHTS_NONE &&
                   (int)WEIGHTS_SOFTMAX == ATTNKIT_WEIGHTS_SOFTMAX &&
                   (int)WEIGHTS_BIASED == ATTNKIT_WEIGHTS_BIASED &&
                   (int)WEIGHTS_CAPPED == ATTNKIT_WEIGHTS_CAPPED &&
                   (int)WEIGHTS_SCALED == ATTNKIT_WEIGHTS_SCALED,
               "a weights_kind is the attnkit_weights of the same number");

enum { FLOAT = sizeof(float) }; /* bytes */

/* Whether nothing of a mask or of weights is touched, which may then be NULL. */
static bool has_no_scores(const attnkit_attention_args *args)
{
    return args->batch == 0 || args->q_heads == 0 || args->q_len == 0 || args->kv_len == 0;
}

static int64_t columns_of(const attnkit_attention_args *args, int64_t columns)
{
    return columns ? columns : args->kv_len;
}

/* --- Options ----------------------------------------------------------------------------- */

static attnkit_status check_window(const attnkit_attention_args *args, char *message)
{
    const struct {
        const char *name;
        int64_t value, smallest;
    } fields[] = {{"window_left", args->window_left, -1},
                  {"window_right", args->window_right, -1},
                  {"keep_first", args->keep_first, 0}};
    for (int i = 0; i < 3; i++) {
        if (!(args->flags & ATTNKIT_WINDOW) && fields[i].value != 0)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "%s is %lld, but flags lacks ATTNKIT_WINDOW", fields[i].name,
                          (long long)fields[i].value);
        if (fields[i].value < fields[i].smallest)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least %lld%s",
                          fields[i].name, (long long)fields[i].value, (long long)fields[i].smallest,
                          fields[i].smallest < 0 ? ", which is no bound" : "");
    }
    return ATTNKIT_OK;
}

static attnkit_status check_softcap(const attnkit_attention_args *args, char *message)
{
    if (args->softcap >= 0.0 && isfinite(args->softcap))
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "softcap is %g: must be positive and finite, or 0 for none", args->softcap);
}

static attnkit_status check_dropout(const attnkit_attention_args *args, char *message)
{
    if (!(args->dropout >= 0.0 && args->dropout < 1.0))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "dropout is %g: must be at least 0, below 1",
                      args->dropout);
    if (args->dropout > 0.0 && !args->dropout_seeds)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "dropout_seeds is NULL, but dropout is %g",
                      args->dropout);
    if (args->dropout == 0.0 && args->dropout_seeds)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "dropout_seeds is given, but dropout is 0");
    return ATTNKIT_OK;
}

static attnkit_status check_align(const attnkit_attention_args *args, char *message)
{
    const char *const user = args->flags & ATTNKIT_WINDOW ? "ATTNKIT_WINDOW"
                             : args->alibi_slopes         ? "alibi_slopes"
                             : args->dropout > 0.0        ? "dropout"
                                                          : NULL;
    if (!user || args->align != ATTNKIT_ALIGN_NONE)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "align is ATTNKIT_ALIGN_NONE: a call with %s must say where row 0 stands", user);
}

static attnkit_status check_sinks(const attnkit_attention_args *args, char *message)
{
    if (!args->sinks || !args->after_out)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "sinks is given, but after_out, too: a sink goes into a result");
}

/* --- Masks ------------------------------------------------------------------------------- */

static attnkit_status check_docs(const attnkit_attention_args *args, char *message)
{
    if (!args->q_docs == !args->kv_docs || has_no_scores(args))
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "%s is NULL, but %s is given: must be both or none",
                  args->q_docs ? "kv_docs" : "q_docs", args->q_docs ? "q_docs" : "kv_docs");
}

static attnkit_status check_kind(const attnkit_attention_args *args, const char *name,
                                 const void *data, const char *kind_name, attnkit_mask kind,
                                 char *message)
{
    if ((int)kind < ATTNKIT_MASK_NONE || (int)kind > ATTNKIT_MASK_IGNORE)
        return refuse(message, ATTNKIT_UNSUPPORTED, "%s is %d: not known", kind_name, (int)kind);
    if (data && kind == ATTNKIT_MASK_NONE)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is given, but %s is ATTNKIT_MASK_NONE",
                      name, kind_name);
    if (!data && kind != ATTNKIT_MASK_NONE && !has_no_scores(args))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is NULL, but %s is %d", name, kind_name,
                      (int)kind);
    return ATTNKIT_OK;
}

static attnkit_status check_columns(const attnkit_attention_args *args, const char *name,
                                    const void *data, const char *columns_name, int64_t columns,
                                    char *message)
{
    if (columns < 0 || columns > args->kv_len)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is %lld: must be between 0 and kv_len (%lld)", columns_name,
                      (long long)columns, (long long)args->kv_len);
    if (!data && columns != 0 && !has_no_scores(args))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld, but %s is NULL", columns_name,
                      (long long)columns, name);
    return ATTNKIT_OK;
}

static attnkit_status check_bias(const attnkit_attention_args *args, char *message)
{
    const attnkit_status status = attnkit_check_rounded("bias_type", args->bias_type, message);
    if (status != ATTNKIT_OK)
        return status;
    if (!args->bias && args->bias_type != ATTNKIT_F32 && !has_no_scores(args))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bias_type is %d, but bias is NULL",
                      (int)args->bias_type);
    const int64_t columns = columns_of(args, args->bias_columns);
    if (args->bias && columns > INT64_MAX / FLOAT)
        return refuse(message, ATTNKIT_OVERFLOW, "bias has %lld columns: too many",
                      (long long)columns);
    return ATTNKIT_OK;
}

static attnkit_status check_given_masks(const attnkit_attention_args *args, char *message)
{
    attnkit_status status = check_docs(args, message);
    if (status == ATTNKIT_OK)
        status = check_kind(args, "mask", args->mask, "mask_kind", args->mask_kind, message);
    if (status == ATTNKIT_OK)
        status =
            check_columns(args, "mask", args->mask, "mask_columns", args->mask_columns, message);
    if (status == ATTNKIT_OK)
        status = check_kind(args, "mask_bits", args->mask_bits, "mask_bits_kind",
                            args->mask_bits_kind, message);
    if (status == ATTNKIT_OK)
        status = check_columns(args, "mask_bits", args->mask_bits, "mask_bits_columns",
                               args->mask_bits_columns, message);
    if (status == ATTNKIT_OK)
        status =
            check_columns(args, "bias", args->bias, "bias_columns", args->bias_columns, message);
    return status == ATTNKIT_OK ? check_bias(args, message) : status;
}

/* --- Weights ----------------------------------------------------------------------------- */

static attnkit_status check_weights(const attnkit_attention_args *args, char *message)
{
    const int kind = (int)args->weights_kind;
    if (kind < ATTNKIT_WEIGHTS_NONE || kind > ATTNKIT_WEIGHTS_SCALED)
        return refuse(message, ATTNKIT_UNSUPPORTED, "weights_kind is %d: not known", kind);
    if (!args->weights && kind != ATTNKIT_WEIGHTS_NONE && !has_no_scores(args))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "weights is NULL, but weights_kind is %d",
                      kind);
    if (!args->weights)
        return ATTNKIT_OK;
    if (kind == ATTNKIT_WEIGHTS_NONE)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "weights is given, but weights_kind is ATTNKIT_WEIGHTS_NONE");
    if (args->before_out || args->after_out)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "weights is given, but %s, too: weights are those of all keys",
                      args->before_out ? "before_out" : "after_out");
    if (args->first_key != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "weights is given, but first_key is %lld: weights are those of all keys",
                      (long long)args->first_key);
    if (args->kv_len > INT64_MAX / FLOAT)
        return refuse(message, ATTNKIT_OVERFLOW, "kv_len is %lld: too large for a row of weights",
                      (long long)args->kv_len);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_masks(const attnkit_attention_args *args, char *message)
{
    attnkit_status status = check_window(args, message);
    if (status == ATTNKIT_OK)
        status = check_given_masks(args, message);
    if (status == ATTNKIT_OK)
        status = check_softcap(args, message);
    if (status == ATTNKIT_OK)
        status = check_sinks(args, message);
    if (status == ATTNKIT_OK)
        status = check_dropout(args, message);
    if (status == ATTNKIT_OK)
        status = check_weights(args, message);
    return status == ATTNKIT_OK ? check_align(args, message) : status;
}

/* --- From the arguments to the extras ---------------------------------------------------- */

static int64_t bound(int64_t keys)
{
    return keys < 0 ? INT64_MAX : keys;
}

static void set_window(const attnkit_attention_args *args, struct extras *x)
{
    if (!(args->flags & ATTNKIT_WINDOW))
        return;
    x->window = true;
    x->left = bound(args->window_left);
    x->right = bound(args->window_right);
    x->keep_first = args->keep_first;
}

static void set_masks(const attnkit_attention_args *args, struct extras *x)
{
    if (args->q_docs && args->kv_docs) {
        x->q_docs = args->q_docs;
        x->kv_docs = args->kv_docs;
    }
    if (args->mask)
        x->bytes = (struct mask){.first = args->mask,
                                 .columns = columns_of(args, args->mask_columns),
                                 .ignores = args->mask_kind == ATTNKIT_MASK_IGNORE};
    if (args->mask_bits)
        x->bits = (struct mask){.first = args->mask_bits,
                                .columns = columns_of(args, args->mask_bits_columns),
                                .ignores = args->mask_bits_kind == ATTNKIT_MASK_IGNORE};
    if (args->bias)
        x->bias = (struct mask){.first = args->bias,
                                .columns = columns_of(args, args->bias_columns),
                                .type = (enum type)args->bias_type};
    const struct mask *const masks[] = {&x->bytes, &x->bits, &x->bias};
    x->columns = INT64_MAX;
    for (int i = 0; i < 3; i++)
        if (masks[i]->first && masks[i]->columns < x->columns)
            x->columns = masks[i]->columns;
}

static attnkit_status set_softcap(const attnkit_attention_args *args, double scale,
                                  float scale_log2, struct extras *x, char *message)
{
    x->scale = (float)scale;
    x->adjust.factor = scale_log2;
    if (args->softcap == 0.0)
        return ATTNKIT_OK;
    x->cap = (float)args->softcap;
    x->adjust = (struct adjust){.capped = true,
                                .to_cap = (float)(scale / args->softcap),
                                .factor = (float)(args->softcap * LOG2_E)};
    if (!isfinite(x->adjust.factor))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "softcap is %g: * log2 e must be finite in binary32", args->softcap);
    if (!isfinite(x->adjust.to_cap))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "softcap is %g: scale (%g) / softcap must be finite in binary32",
                      args->softcap, scale);
    return ATTNKIT_OK;
}

static void set_dropout(const attnkit_attention_args *args, struct extras *x)
{
    if (!(args->dropout > 0.0))
        return;
    x->drops = true;
    x->dropped = (uint64_t)ceil(args->dropout * 0x1p32);
    x->keep_factor = (float)(1.0 / (1.0 - args->dropout));
    x->seeds = args->dropout_seeds;
}

static void set_weights(const attnkit_attention_args *args, struct extras *x)
{
    if (!args->weights)
        return;
    x->weights_kind = (enum weights_kind)args->weights_kind;
    x->weights = (char *)args->weights;
}

attnkit_status attnkit_set_extras(const attnkit_attention_args *args, double scale,
                                  struct attention *a, char *message)
{
    struct extras *x = &a->extras;
    x->slopes = args->alibi_slopes;
    x->sinks = args->sinks;
    set_window(args, x);
    set_masks(args, x);
    set_dropout(args, x);
    set_weights(args, x);
    const attnkit_status status = set_softcap(args, scale, a->scale_log2, x, message);
    x->any = x->window || x->q_docs || x->bytes.first || x->bits.first || x->bias.first ||
             x->adjust.capped || x->slopes || x->drops;
    return status;
}

/* --- Tensors ----------------------------------------------------------------------------- */

/* The next one of the call. */
static struct tensor next_tensor(struct problem *p, struct tensor t, const char *name,
                                 const void *data)
{
    const int i = p->extra_tensors++;
    p->extra_names[i] = name;
    t.name = name;
    t.data = data;
    t.layout = &p->extras[i];
    return t;
}

int attnkit_list_weights(const attnkit_attention_args *args, struct problem *p,
                         struct tensor *tensors)
{
    if (!args->weights)
        return 0;
    const struct tensor t = query_rows(args, args->kv_len * FLOAT, FLOAT);
    tensors[0] = next_tensor(p, t, "weights", args->weights);
    tensors[0].strides_name = "weights_strides";
    tensors[0].strides = args->weights_strides;
    tensors[0].stride = &p->a.extras.weights_stride;
    return 1;
}

static struct tensor mask_tensor(struct problem *p, struct tensor t, struct mask *mask,
                                 const char *name, const char *strides_name, const int64_t *strides)
{
    t = next_tensor(p, t, name, mask->first);
    t.strides_name = strides_name;
    t.strides = strides;
    t.stride = &mask->stride;
    t.is_mask = true;
    return t;
}

static int list_masks(const attnkit_attention_args *args, struct problem *p, struct tensor *tensors)
{
    struct mask *bytes = &p->a.extras.bytes, *bits = &p->a.extras.bits, *bias = &p->a.extras.bias;
    int n = 0;
    if (bytes->first)
        tensors[n++] = mask_tensor(p, query_rows(args, bytes->columns, 1), bytes, "mask",
                                   "mask_strides", args->mask_strides);
    if (bits->first)
        tensors[n++] =
            mask_tensor(p, query_rows(args, bits->columns / 8 + (bits->columns % 8 > 0), 1), bits,
                        "mask_bits", "mask_bits_strides", args->mask_bits_strides);
    if (bias->first)
        tensors[n++] = mask_tensor(
            p, query_rows(args, bytes_of(bias->type, bias->columns), attnkit_alignment(bias->type)),
            bias, "bias", "bias_strides", args->bias_strides);
    return n;
}

/* A dense array of [batch][count] elements. */
static struct tensor array_tensor(struct problem *p, const char *name, const void *data,
                                  int64_t batch, int64_t count, int64_t element)
{
    const struct tensor t = {
        .strides_name = "strides of an array",
        .count = {1, batch, count},
        .row_bytes = element,
        .alignment = element,
        .stride = &p->array_strides[p->extra_tensors],
    };
    return next_tensor(p, t, name, data);
}

static int list_arrays(const attnkit_attention_args *args, struct problem *p,
                       struct tensor *tensors)
{
    const struct extras *x = &p->a.extras;
    const int64_t q_batch = args->q_starts ? 1 : args->batch;
    const int64_t kv_batch = args->kv_starts ? 1 : args->batch;
    int n = 0;
    if (x->q_docs) {
        tensors[n++] =
            array_tensor(p, "q_docs", x->q_docs, q_batch, args->q_len, sizeof *x->q_docs);
        tensors[n++] =
            array_tensor(p, "kv_docs", x->kv_docs, kv_batch, args->kv_len, sizeof *x->kv_docs);
    }
    if (x->slopes)
        tensors[n++] = array_tensor(p, "alibi_slopes", x->slopes, 1, args->q_heads, FLOAT);
    if (x->sinks)
        tensors[n++] = array_tensor(p, "sinks", x->sinks, 1, args->q_heads, FLOAT);
    if (x->seeds)
        tensors[n++] = array_tensor(p, "dropout_seeds", x->seeds, 1, args->batch, sizeof *x->seeds);
    return n;
}

int attnkit_list_masks(const attnkit_attention_args *args, struct problem *p,
                       struct tensor *tensors)
{
    const int n = list_masks(args, p, tensors);
    return n + list_arrays(args, p, tensors + n);
}

attnkit_status attnkit_check_masks_apart(const struct problem *p, const void *workspace,
                                         size_t size, char *message)
{
    for (int i = 0; i < p->extra_tensors; i++) {
        const attnkit_status status =
            attnkit_check_apart(workspace, size, p->extra_names[i], &p->extras[i], message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return ATTNKIT_OK;
}
