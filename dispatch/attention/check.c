/* SPDX-License-Identifier: Apache-2.0
 *
 * Every argument of an attention is checked here, once, before anything is written; after it
 * nothing can fail. dispatch/common/tensor.c has what all calls share.
 */
#include "dispatch/attention/check.h"

#include <math.h>
#include <string.h>

#include "dispatch/cache/cache.h"
#include "dispatch/attention/check_masks.h"
#include "dispatch/common/versioned.h"

_Static_assert((int)TYPE_F32 == ATTNKIT_F32 && (int)TYPE_F16 == ATTNKIT_F16 &&
                   (int)TYPE_BF16 == ATTNKIT_BF16 && (int)TYPE_I8 == ATTNKIT_I8 &&
                   (int)TYPE_Q8_0 == ATTNKIT_Q8_0,
               "an attnkit_type is the enum type of the same number");
_Static_assert((int)CHUNK_KEYS == ATTNKIT_CHUNK_KEYS, "the same chunks");

static attnkit_status check_options(const attnkit_attention_args *args, char *message)
{
    const uint32_t known = ATTNKIT_CAUSAL | ATTNKIT_SCALE_GIVEN | ATTNKIT_STRIDED | ATTNKIT_TILED |
                           ATTNKIT_WINDOW | ATTNKIT_MASK_STRIDED;
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

enum {
    STATE = 3,          /* tensors of a state */
    PLAIN_TENSORS = 13, /* at most, of a call without extras */
    TENSORS = PLAIN_TENSORS + EXTRA_TENSORS,
    FLOAT = sizeof(float), /* bytes */
};

static attnkit_status check_packed(const attnkit_attention_args *args, char *message)
{
    if (args->kv_starts && args->kv_lens)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "kv_lens is given, but kv_starts, too: packed keys have no room left");
    if (args->kv_starts && args->page_table)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "kv_starts is given, but page_table, too: keys in pages are not packed");
    if (args->kv_starts && (args->flags & ATTNKIT_TILED))
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "kv_starts is given, but flags has ATTNKIT_TILED: keys in tiles are not "
                      "packed");
    return ATTNKIT_OK;
}

/* Keys that others come before, and states. */
static attnkit_status check_states(const attnkit_attention_args *args, char *message)
{
    if (args->first_key < 0 || args->first_key % ATTNKIT_CHUNK_KEYS != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "first_key is %lld: must be a multiple of ATTNKIT_CHUNK_KEYS (%d)",
                      (long long)args->first_key, ATTNKIT_CHUNK_KEYS);
    int64_t end;
    if (__builtin_add_overflow(args->first_key, args->kv_len, &end))
        return refuse(message, ATTNKIT_OVERFLOW, "first_key is %lld: + kv_len (%lld) overflows",
                      (long long)args->first_key, (long long)args->kv_len);
    const int before = !!args->before_max + !!args->before_sum + !!args->before_out;
    const int after = !!args->after_max + !!args->after_sum + !!args->after_out;
    if (before % STATE != 0 || after % STATE != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s_max, %s_sum and %s_out: some are NULL, must be all or none",
                      before % STATE ? "before" : "after", before % STATE ? "before" : "after",
                      before % STATE ? "before" : "after");
    if (after && (args->out || args->lse))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is given, but after_out, too: a call gives a result or a state",
                      args->out ? "out" : "lse");
    return ATTNKIT_OK;
}

static int64_t value_dim_of(const attnkit_attention_args *args)
{
    return args->value_dim ? args->value_dim : args->head_dim;
}

static struct pages pages_of(const attnkit_attention_args *args)
{
    return (struct pages){args->page_table, args->page_table_stride, args->page_size, args->pages};
}

static attnkit_status check_storage(const attnkit_attention_args *args, char *message)
{
    const struct stored_row rows[] = {
        {args->k_type, args->head_dim, args->k_scale_group, args->k_scales, "head_dim", "k_type",
         "k_scale_group", "k_scales"},
        {args->v_type, value_dim_of(args), args->v_scale_group, args->v_scales, "value_dim",
         "v_type", "v_scale_group", "v_scales"}};
    const struct pages pages = pages_of(args);
    attnkit_status status = attnkit_check_rounded("q_type", args->q_type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rounded("out_type", args->out_type, message);
    for (int i = 0; status == ATTNKIT_OK && i < 2; i++)
        status = attnkit_check_stored_row(&rows[i], message);
    if (status != ATTNKIT_OK)
        return status;
    status = attnkit_check_pages(&pages, args->batch, args->kv_len, "kv_len", message);
    if (status == ATTNKIT_OK && (args->flags & ATTNKIT_TILED))
        status = attnkit_check_tiled_pages(&pages, message);
    return status;
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

static double scale_of(const attnkit_attention_args *args)
{
    return args->flags & ATTNKIT_SCALE_GIVEN ? args->scale : 1.0 / sqrt((double)args->head_dim);
}

static attnkit_status set_scale(const attnkit_attention_args *args, struct attention *a,
                                char *message)
{
    if (!(args->flags & ATTNKIT_SCALE_GIVEN) && args->scale != 0.0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "scale is %g, but flags lacks ATTNKIT_SCALE_GIVEN", args->scale);
    a->scale_log2 = (float)(scale_of(args) * LOG2_E);
    if (!isfinite(a->scale_log2))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "scale is %g: must be finite in binary32",
                      args->scale);
    return ATTNKIT_OK;
}

static struct tensor query_tensor(const attnkit_attention_args *args, enum type type, int64_t dim)
{
    return query_rows(args, bytes_of(type, dim), attnkit_alignment(type));
}

static struct tensor key_tensor(const attnkit_attention_args *args, enum type type, int64_t dim)
{
    const bool paged = args->page_table;
    const int64_t batch = args->kv_starts ? 1 : args->batch;
    return (struct tensor){
        .count = {paged ? args->pages : batch, args->kv_heads,
                  paged ? args->page_size : args->kv_len},
        .row_bytes = bytes_of(type, dim),
        .alignment = attnkit_alignment(type),
        .paged = paged,
    };
}

/* K or its scales. */
static struct tensor k_tensor(const attnkit_attention_args *args, enum type type, int64_t dim)
{
    struct tensor t = key_tensor(args, type, dim);
    if (args->flags & ATTNKIT_TILED)
        attnkit_lay_in_tiles(&t);
    return t;
}

static struct tensor named(struct tensor t, const char *name, const char *strides_name,
                           const void *data, const int64_t *strides, struct strides *stride,
                           struct layout *layout)
{
    t.name = name;
    t.strides_name = strides_name;
    t.data = data;
    t.strides = strides;
    t.stride = stride;
    t.layout = layout;
    return t;
}

/* The dense tensors of a state, if there is one. Returns how many. */
static int list_state(const attnkit_attention_args *args, const char *const names[STATE],
                      const float *const data[STATE], struct problem *p, struct strides *strides,
                      struct layout *layouts, struct tensor *tensors)
{
    if (!data[0])
        return 0;
    for (int i = 0; i < STATE; i++)
        tensors[i] = named(query_tensor(args, TYPE_F32, i < STATE - 1 ? 1 : p->a.value_dim),
                           names[i], NULL, data[i], NULL, &strides[i], &layouts[i]);
    return STATE;
}

/* Outputs come first: they are compared with all that follow. */
static int list_tensors(const attnkit_attention_args *args, struct problem *p,
                        struct tensor tensors[TENSORS])
{
    static const char *const before_names[STATE] = {"before_max", "before_sum", "before_out"};
    static const char *const after_names[STATE] = {"after_max", "after_sum", "after_out"};
    const float *const before[STATE] = {args->before_max, args->before_sum, args->before_out};
    const float *const after[STATE] = {args->after_max, args->after_sum, args->after_out};
    struct attention *a = &p->a;
    int n = p->extra_tensors = 0;
    if (!args->after_out)
        tensors[n++] = named(query_tensor(args, a->out_type, a->value_dim), "out", "out_strides",
                             args->out, args->out_strides, &a->out_stride, &p->out);
    if (args->lse)
        tensors[n++] = named(query_tensor(args, TYPE_F32, 1), "lse", "lse_strides", args->lse,
                             args->lse_strides, &a->lse_stride, &p->lse);
    n += list_state(args, after_names, after, p, p->after_strides, p->after, tensors + n);
    n += attnkit_list_weights(args, p, tensors + n);
    for (int i = 0; i < n; i++)
        tensors[i].output = true;
    n += list_state(args, before_names, before, p, p->before_strides, p->before, tensors + n);
    tensors[n++] = named(query_tensor(args, a->q_type, args->head_dim), "q", "q_strides", args->q,
                         args->q_strides, &a->q_stride, &p->q);
    tensors[n++] = named(k_tensor(args, a->k.type, args->head_dim), "k", "k_strides", args->k,
                         args->k_strides, &a->k.stride, &p->k);
    tensors[n++] = named(key_tensor(args, a->v.type, a->value_dim), "v", "v_strides", args->v,
                         args->v_strides, &a->v.stride, &p->v);
    if (a->k.type == TYPE_I8)
        tensors[n++] = named(k_tensor(args, TYPE_F32, args->head_dim / a->k.scale_group),
                             "k_scales", "k_scale_strides", args->k_scales, args->k_scale_strides,
                             &a->k.scale_stride, &p->k_scales);
    if (a->v.type == TYPE_I8)
        tensors[n++] = named(key_tensor(args, TYPE_F32, a->value_dim / a->v.scale_group),
                             "v_scales", "v_scale_strides", args->v_scales, args->v_scale_strides,
                             &a->v.scale_stride, &p->v_scales);
    return n + attnkit_list_masks(args, p, tensors + n);
}

static attnkit_status set_strides(const attnkit_attention_args *args, struct problem *p,
                                  char *message)
{
    int64_t bytes;
    const int64_t widest = args->head_dim > p->a.value_dim ? args->head_dim : p->a.value_dim;
    if (__builtin_mul_overflow(widest, (int64_t)FLOAT * ROW_BLOCK * 4, &bytes))
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
        const attnkit_status status = attnkit_set_strides(&tensors[i], args->flags, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return ATTNKIT_OK;
}

static struct cache cache_of(const void *first, attnkit_type type, int64_t dim, const void *scales,
                             int64_t scale_group, bool tiled)
{
    return (struct cache){
        .first = first,
        .type = (enum type)type,
        .tiled = tiled,
        .dim = dim,
        .scales = scales,
        .scale_group = scale_group ? scale_group : dim,
    };
}

/* The shape of `args`, which is a full struct of this version. */
static attnkit_status check_full_shape(const attnkit_attention_args *args, struct problem *p,
                                       char *message)
{
    attnkit_status status = check_options(args, message);
    if (status == ATTNKIT_OK)
        status = check_dims(args, message);
    if (status == ATTNKIT_OK)
        status = check_storage(args, message);
    if (status == ATTNKIT_OK)
        status = check_packed(args, message);
    if (status == ATTNKIT_OK)
        status = check_states(args, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_masks(args, message);
    if (status != ATTNKIT_OK)
        return status;

    p->empty = args->batch == 0 || args->q_heads == 0 || args->q_len == 0;
    p->out = p->lse = p->k_scales = p->v_scales = (struct layout){0}; /* for a call without them */
    memset(p->before, 0, sizeof p->before);
    memset(p->after, 0, sizeof p->after);
    p->a = (struct attention){
        .batch = args->batch,
        .kv_heads = args->kv_heads,
        .group = args->kv_heads ? args->q_heads / args->kv_heads : 0,
        .q_len = args->q_len,
        .kv_len = args->kv_len,
        .head_dim = args->head_dim,
        .value_dim = value_dim_of(args),
        .q = args->q,
        .out = args->out,
        .lse = (char *)args->lse,
        .q_type = (enum type)args->q_type,
        .out_type = (enum type)args->out_type,
        .k = cache_of(args->k, args->k_type, args->head_dim, args->k_scales, args->k_scale_group,
                      args->flags & ATTNKIT_TILED),
        .v = cache_of(args->v, args->v_type, value_dim_of(args), args->v_scales,
                      args->v_scale_group, false),
        .pages = pages_of(args),
        .first_key = args->first_key,
        .before = {(float *)args->before_max, (float *)args->before_sum, (float *)args->before_out},
        .after = {args->after_max, args->after_sum, args->after_out},
        .causal = args->flags & ATTNKIT_CAUSAL,
        .bottom_right = args->align == ATTNKIT_ALIGN_BOTTOM_RIGHT,
        .kv_lens = args->kv_lens,
        .q_starts = args->q_starts,
        .kv_starts = args->kv_starts,
        .q_offsets = args->q_offsets,
    };
    status = set_scale(args, &p->a, message);
    if (status == ATTNKIT_OK)
        status = attnkit_set_extras(args, scale_of(args), &p->a, message);
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

/* From 0 to the total, and never back. */
static attnkit_status check_starts(const int64_t *starts, int64_t batch, int64_t total,
                                   const char *name, const char *total_name, char *message)
{
    if (!starts)
        return ATTNKIT_OK;
    if (starts[0] != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s[0] is %lld: must be 0", name,
                      (long long)starts[0]);
    for (int64_t b = 0; b < batch; b++)
        if (starts[b + 1] < starts[b])
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "%s[%lld] is %lld: must be at least the one before it (%lld)", name,
                          (long long)b + 1, (long long)starts[b + 1], (long long)starts[b]);
    if (starts[batch] != total)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s[%lld] is %lld: must be %s (%lld)", name,
                      (long long)batch, (long long)starts[batch], total_name, (long long)total);
    return ATTNKIT_OK;
}

static attnkit_status check_arrays(const attnkit_attention_args *args, char *message)
{
    for (int64_t b = 0; args->kv_lens && b < args->batch; b++)
        if (args->kv_lens[b] < 0 || args->kv_lens[b] > args->kv_len)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "kv_lens[%lld] is %lld: must be between 0 and kv_len (%lld)",
                          (long long)b, (long long)args->kv_lens[b], (long long)args->kv_len);
    const struct pages pages = pages_of(args);
    attnkit_status status =
        check_starts(args->q_starts, args->batch, args->q_len, "q_starts", "q_len", message);
    if (status == ATTNKIT_OK)
        status = check_starts(args->kv_starts, args->batch, args->kv_len, "kv_starts", "kv_len",
                              message);
    for (int64_t b = 0; b < args->batch; b++) {
        if (status != ATTNKIT_OK)
            return status;
        status = attnkit_check_page_table(&pages, b, 0,
                                          args->kv_lens ? args->kv_lens[b] : args->kv_len, message);
    }
    if (status != ATTNKIT_OK)
        return status;
    for (int64_t b = 0; args->q_offsets && b < args->batch; b++) {
        int64_t end;
        if (__builtin_sub_overflow(args->q_offsets[b], args->first_key, &end))
            return refuse(message, ATTNKIT_OVERFLOW,
                          "q_offsets[%lld] is %lld: must be at least first_key (%lld) - 2^63",
                          (long long)b, (long long)args->q_offsets[b], (long long)args->first_key);
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
    } tensors[PLAIN_TENSORS] = {{"q", &problem->q},
                                {"k", &problem->k},
                                {"v", &problem->v},
                                {"out", &problem->out},
                                {"lse", &problem->lse},
                                {"k_scales", &problem->k_scales},
                                {"v_scales", &problem->v_scales},
                                {"before_max", &problem->before[0]},
                                {"before_sum", &problem->before[1]},
                                {"before_out", &problem->before[2]},
                                {"after_max", &problem->after[0]},
                                {"after_sum", &problem->after[1]},
                                {"after_out", &problem->after[2]}};
    for (int i = 0; i < PLAIN_TENSORS; i++) {
        const attnkit_status status =
            attnkit_check_apart(workspace, size, tensors[i].name, tensors[i].layout, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return attnkit_check_masks_apart(problem, workspace, size, message);
}
