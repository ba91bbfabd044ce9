/* SPDX-License-Identifier: Apache-2.0
 *
 * Every argument of an attention is checked here, once, before anything is written; after it
 * nothing can fail. tensor.c has what all calls share.
 */
#include "check.h"

#include <math.h>

#include "tensor.h"
#include "versioned.h"

_Static_assert((int)TYPE_F32 == ATTNKIT_F32 && (int)TYPE_F16 == ATTNKIT_F16 &&
                   (int)TYPE_BF16 == ATTNKIT_BF16 && (int)TYPE_I8 == ATTNKIT_I8 &&
                   (int)TYPE_Q8_0 == ATTNKIT_Q8_0,
               "an attnkit_type is the enum type of the same number");

static attnkit_status check_options(const attnkit_attention_args *args, char *message)
{
    const uint32_t known = ATTNKIT_CAUSAL | ATTNKIT_SCALE_GIVEN | ATTNKIT_STRIDED;
    if (args->flags & ~known)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~known));
    if ((int)args->align < ATTNKIT_ALIGN_NONE || (int)args->align > ATTNKIT_ALIGN_OFFSETS)
        return refuse(message, ATTNKIT_UNSUPPORTED, "align is %d: not known", (int)args->align);
    if ((args->flags & ATTNKIT_CAUSAL) && args->align == ATTNKIT_ALIGN_NONE)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "align is ATTNKIT_ALIGN_NONE: a causal call must say where row 0 stands");
    if (args->align == ATTNKIT_ALIGN_OFFSETS && !args->q_offsets)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "q_offsets is NULL: ATTNKIT_ALIGN_OFFSETS needs it");
    if (args->align != ATTNKIT_ALIGN_OFFSETS && args->q_offsets)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "q_offsets is given, but align is %d and not ATTNKIT_ALIGN_OFFSETS",
                      (int)args->align);
    return ATTNKIT_OK;
}

static attnkit_status check_types(const attnkit_attention_args *args, char *message)
{
    const struct {
        const char *name;
        attnkit_type type;
    } types[] = {{"q_type", args->q_type},
                 {"k_type", args->k_type},
                 {"v_type", args->v_type},
                 {"out_type", args->out_type}};
    for (int i = 0; i < 4; i++)
        if (types[i].type != ATTNKIT_F32)
            return refuse(message, ATTNKIT_UNSUPPORTED, "%s is %d: only ATTNKIT_F32 (0) is known",
                          types[i].name, (int)types[i].type);
    return ATTNKIT_OK;
}

static attnkit_status check_dims(const attnkit_attention_args *args, char *message)
{
    const struct {
        const char *name;
        int64_t value, smallest;
    } dims[] = {{"batch", args->batch, 0},        {"q_heads", args->q_heads, 0},
                {"kv_heads", args->kv_heads, 0},  {"q_len", args->q_len, 0},
                {"kv_len", args->kv_len, 0},      {"head_dim", args->head_dim, 1},
                {"value_dim", args->value_dim, 0}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < dims[i].smallest)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least %lld",
                          dims[i].name, (long long)dims[i].value, (long long)dims[i].smallest);
    if (args->q_heads == 0)
        return ATTNKIT_OK;
    if (args->kv_heads == 0 || args->q_heads % args->kv_heads != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "q_heads is %lld: must be a multiple of kv_heads (%lld)",
                      (long long)args->q_heads, (long long)args->kv_heads);
    return ATTNKIT_OK;
}

static attnkit_status set_scale(const attnkit_attention_args *args, struct attention *a,
                                char *message)
{
    const bool given = args->flags & ATTNKIT_SCALE_GIVEN;
    if (!given && args->scale != 0.0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "scale is %g, but flags lacks ATTNKIT_SCALE_GIVEN", args->scale);
    const double scale = given ? args->scale : 1.0 / sqrt((double)args->head_dim);
    a->scale_log2 = (float)(scale * LOG2_E);
    if (!isfinite(a->scale_log2))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "scale is %g: must be finite in binary32",
                      args->scale);
    return ATTNKIT_OK;
}

enum {
    TENSORS = 5,
    ELEMENT = sizeof(float), /* bytes; every tensor is f32 */
};

/* out and lse come first: they are compared with all that follow. */
static int list_tensors(const attnkit_attention_args *args, struct problem *p,
                        struct tensor tensors[TENSORS])
{
    struct attention *a = &p->a;
    const int64_t qk = args->head_dim * ELEMENT, v = a->value_dim * ELEMENT;
    const int64_t b = args->batch, hq = args->q_heads, hkv = args->kv_heads;
    const int64_t lq = args->q_len, lkv = args->kv_len;
    int n = 0;
    tensors[n++] =
        (struct tensor){"out",   "out_strides",     args->out,      {b, hq, lq}, v,
                        ELEMENT, args->out_strides, &a->out_stride, &p->out,     .output = true};
    if (args->lse)
        tensors[n++] = (struct tensor){"lse",   "lse_strides", args->lse,         {b, hq, lq},
                                       ELEMENT, ELEMENT,       args->lse_strides, &a->lse_stride,
                                       &p->lse, .output = true};
    tensors[n++] =
        (struct tensor){"q",     "q_strides",     args->q,      {b, hq, lq}, qk,
                        ELEMENT, args->q_strides, &a->q_stride, &p->q,       .output = false};
    tensors[n++] =
        (struct tensor){"k",     "k_strides",     args->k,      {b, hkv, lkv}, qk,
                        ELEMENT, args->k_strides, &a->k_stride, &p->k,         .output = false};
    tensors[n++] =
        (struct tensor){"v",     "v_strides",     args->v,      {b, hkv, lkv}, v,
                        ELEMENT, args->v_strides, &a->v_stride, &p->v,         .output = false};
    return n;
}

static attnkit_status set_strides(const attnkit_attention_args *args, struct problem *p,
                                  char *message)
{
    int64_t bytes;
    const int64_t widest = args->head_dim > p->a.value_dim ? args->head_dim : p->a.value_dim;
    if (__builtin_mul_overflow(widest, (int64_t)ELEMENT * ROW_BLOCK * 4, &bytes))
        return refuse(message, ATTNKIT_OVERFLOW, "head_dim is %lld and value_dim %lld",
                      (long long)args->head_dim, (long long)p->a.value_dim);
    int64_t rows;
    if (__builtin_mul_overflow(args->q_heads, args->q_len, &rows) ||
        __builtin_mul_overflow(args->batch, rows, &rows))
        return refuse(message, ATTNKIT_OVERFLOW, "batch x q_heads x q_len is %lld x %lld x %lld",
                      (long long)args->batch, (long long)args->q_heads, (long long)args->q_len);
    struct tensor tensors[TENSORS];
    const int n = list_tensors(args, p, tensors);
    for (int i = 0; i < n; i++) {
        const attnkit_status status =
            attnkit_set_strides(&tensors[i], args->flags & ATTNKIT_STRIDED, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return ATTNKIT_OK;
}

/* The shape of `args`, which is a full struct of this version. */
static attnkit_status check_full_shape(const attnkit_attention_args *args, struct problem *p,
                                       char *message)
{
    attnkit_status status = check_options(args, message);
    if (status == ATTNKIT_OK)
        status = check_types(args, message);
    if (status == ATTNKIT_OK)
        status = check_dims(args, message);
    if (status != ATTNKIT_OK)
        return status;

    p->empty = args->batch == 0 || args->q_heads == 0 || args->q_len == 0;
    p->lse = (struct layout){0}; /* for a call without it */
    p->a = (struct attention){
        .batch = args->batch,
        .kv_heads = args->kv_heads,
        .group = args->kv_heads ? args->q_heads / args->kv_heads : 0,
        .q_len = args->q_len,
        .kv_len = args->kv_len,
        .head_dim = args->head_dim,
        .value_dim = args->value_dim ? args->value_dim : args->head_dim,
        .q = args->q,
        .k = args->k,
        .v = args->v,
        .out = args->out,
        .lse = (char *)args->lse,
        .causal = args->flags & ATTNKIT_CAUSAL,
        .bottom_right = args->align == ATTNKIT_ALIGN_BOTTOM_RIGHT,
        .kv_lens = args->kv_lens,
        .q_offsets = args->q_offsets,
    };
    status = set_scale(args, &p->a, message);
    return status == ATTNKIT_OK ? set_strides(args, p, message) : status;
}

static attnkit_status read_args(const attnkit_attention_args *theirs, attnkit_attention_args *ours,
                                char *message)
{
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    return read_struct(ours, sizeof *ours, sizeof *ours, theirs, "attnkit_attention_args", message);
}

attnkit_status attnkit_check_shape(const attnkit_attention_args *args, struct problem *problem,
                                   char *message)
{
    attnkit_attention_args ours = {0};
    const attnkit_status status = read_args(args, &ours, message);
    return status == ATTNKIT_OK ? check_full_shape(&ours, problem, message) : status;
}

static attnkit_status check_arrays(const attnkit_attention_args *args, char *message)
{
    for (int64_t b = 0; args->kv_lens && b < args->batch; b++)
        if (args->kv_lens[b] < 0 || args->kv_lens[b] > args->kv_len)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "kv_lens[%lld] is %lld: must be between 0 and kv_len (%lld)",
                          (long long)b, (long long)args->kv_lens[b], (long long)args->kv_len);
    for (int64_t b = 0; args->q_offsets && b < args->batch; b++) {
        int64_t end;
        if (__builtin_add_overflow(args->q_offsets[b], args->q_len, &end))
            return refuse(message, ATTNKIT_OVERFLOW,
                          "q_offsets[%lld] is %lld: must be at most 2^63 - 1 - q_len (%lld)",
                          (long long)b, (long long)args->q_offsets[b],
                          (long long)(INT64_MAX - args->q_len));
    }
    return ATTNKIT_OK;
}

static attnkit_status check_tensors(const attnkit_attention_args *args, struct problem *p,
                                    char *message)
{
    struct tensor tensors[TENSORS];
    return attnkit_check_tensors(tensors, list_tensors(args, p, tensors), message);
}

attnkit_status attnkit_check(const attnkit_attention_args *args, struct problem *problem,
                             char *message)
{
    attnkit_attention_args ours = {0};
    attnkit_status status = read_args(args, &ours, message);
    if (status == ATTNKIT_OK)
        status = check_full_shape(&ours, problem, message);
    if (status != ATTNKIT_OK || problem->empty)
        return status;
    status = check_arrays(&ours, message);
    return status == ATTNKIT_OK ? check_tensors(&ours, problem, message) : status;
}

attnkit_status attnkit_check_workspace(const struct problem *problem, const void *workspace,
                                       size_t size, char *message)
{
    const struct {
        const char *name;
        const struct layout *layout;
    } tensors[TENSORS] = {{"q", &problem->q},
                          {"k", &problem->k},
                          {"v", &problem->v},
                          {"out", &problem->out},
                          {"lse", &problem->lse}};
    for (int i = 0; i < TENSORS; i++) {
        const attnkit_status status =
            attnkit_check_apart(workspace, size, tensors[i].name, tensors[i].layout, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return ATTNKIT_OK;
}
