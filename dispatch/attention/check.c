/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks options, shape, storage and states of an attention call. check_groups.c checks visibility,
 * score mods, dropout and weights.
 */
#include "dispatch/attention/check.h"

#include "dispatch/cache/cache.h"
#include "dispatch/common/message.h"
#include "dispatch/common/tensor.h"

_Static_assert((int)TYPE_F32 == ATTNKIT_F32 && (int)TYPE_F16 == ATTNKIT_F16 &&
                   (int)TYPE_BF16 == ATTNKIT_BF16 && (int)TYPE_I8 == ATTNKIT_I8 &&
                   (int)TYPE_Q8_0 == ATTNKIT_Q8_0 && (int)TYPE_Q4_0 == ATTNKIT_Q4_0 &&
                   (int)TYPE_Q4_1 == ATTNKIT_Q4_1 && (int)TYPE_Q5_0 == ATTNKIT_Q5_0 &&
                   (int)TYPE_Q5_1 == ATTNKIT_Q5_1 && (int)TYPE_IQ4_NL == ATTNKIT_IQ4_NL &&
                   (int)TYPE_Q1_0 == ATTNKIT_Q1_0 && (int)TYPE_Q2_0 == ATTNKIT_Q2_0 &&
                   (int)TYPE_F8_E4M3 == ATTNKIT_F8_E4M3,
               "an attnkit_type is the enum type of the same number");
_Static_assert((int)CHUNK_KEYS == ATTNKIT_CHUNK_KEYS, "the same chunks");

static attnkit_status check_options(const struct request *r, char *message)
{
    const attnkit_attention_args *const args = r->core;
    const uint32_t known = ATTNKIT_CAUSAL | ATTNKIT_SCALE_GIVEN | ATTNKIT_INTEGERS |
                           ATTNKIT_BF16_PRODUCTS | ATTNKIT_SHORT_WEIGHTS;
    if (args->flags & ~known)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~known));
    if (args->align < ATTNKIT_ALIGN_NONE || args->align > ATTNKIT_ALIGN_OFFSETS)
        return refuse(message, ATTNKIT_UNSUPPORTED, "align is %d: not known", (int)args->align);
    if ((args->flags & ATTNKIT_CAUSAL) && args->align == ATTNKIT_ALIGN_NONE)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "align is ATTNKIT_ALIGN_NONE: a causal call must say where row 0 stands");
    if (args->align == ATTNKIT_ALIGN_OFFSETS && !args->q_offsets.data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "q_offsets is NULL: ATTNKIT_ALIGN_OFFSETS needs it");
    if (args->align != ATTNKIT_ALIGN_OFFSETS && args->q_offsets.data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "q_offsets is given, but align is %d and not ATTNKIT_ALIGN_OFFSETS",
                      (int)args->align);
    if (!(args->flags & ATTNKIT_SCALE_GIVEN) && args->scale != 0.0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "scale is %g, but flags lacks ATTNKIT_SCALE_GIVEN", args->scale);
    return ATTNKIT_OK;
}

static attnkit_status check_products(const struct request *r, char *message)
{
    const attnkit_attention_args *const args = r->core;
    const int64_t value_dim = value_dim_of(r);
    const int64_t widest = args->head_dim > value_dim ? args->head_dim : value_dim;
    int64_t bytes, rows;
    if (__builtin_mul_overflow(widest, (int64_t)sizeof(float) * ROW_BLOCK * 4, &bytes))
        return refuse(message, ATTNKIT_OVERFLOW, "%s is %lld: too large",
                      widest == args->head_dim ? "head_dim" : "value_dim", (long long)widest);
    if (__builtin_mul_overflow(args->q_heads, args->q_len, &rows) ||
        __builtin_mul_overflow(args->batch, rows, &rows))
        return refuse(message, ATTNKIT_OVERFLOW,
                      "batch x q_heads x q_len is %lld x %lld x %lld: beyond 63 bits",
                      (long long)args->batch, (long long)args->q_heads, (long long)args->q_len);
    return ATTNKIT_OK;
}

/* Refuses the first dimension that is too small. */
static attnkit_status refuse_dims(const attnkit_attention_args *args, char *message)
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
    return ATTNKIT_OK;
}

static attnkit_status check_dims(const struct request *r, char *message)
{
    const attnkit_attention_args *const args = r->core;
    const int64_t all = args->batch | args->q_heads | args->kv_heads | args->q_len | args->kv_len |
                        args->value_dim; /* negative if any of these numbers is negative */
    const attnkit_status status =
        all < 0 || args->head_dim < 1 ? refuse_dims(args, message) : ATTNKIT_OK;
    if (status != ATTNKIT_OK)
        return status;
    if (args->q_heads > 0 && (args->kv_heads == 0 || args->q_heads % args->kv_heads != 0))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "q_heads is %lld: must be a multiple of kv_heads (%lld)",
                      (long long)args->q_heads, (long long)args->kv_heads);
    return check_products(r, message);
}

/* Refuses the first layout that has unknown bits. */
static attnkit_status refuse_layouts(const struct request *r, char *message)
{
    const attnkit_attention_args *const args = r->core;
    const struct {
        const char *name;
        const attnkit_tensor *tensor;
        uint32_t known;
    } tensors[] = {{"q", &args->q, ATTNKIT_STRIDED},
                   {"k", &args->k, ATTNKIT_STRIDED | ATTNKIT_TILED},
                   {"v", &args->v, ATTNKIT_STRIDED},
                   {"out", &args->out, ATTNKIT_STRIDED},
                   {"lse", &args->lse, ATTNKIT_STRIDED},
                   {"k_scales", &r->storage->k_scales, ATTNKIT_STRIDED},
                   {"v_scales", &r->storage->v_scales, ATTNKIT_STRIDED},
                   {"mask", &r->visibility->mask, ATTNKIT_STRIDED},
                   {"mask_bits", &r->visibility->mask_bits, ATTNKIT_STRIDED},
                   {"bias", &r->scores->bias, ATTNKIT_STRIDED},
                   {"weights", &r->weights->weights, ATTNKIT_STRIDED}};
    attnkit_status status = ATTNKIT_OK;
    for (size_t i = 0; status == ATTNKIT_OK && i < sizeof tensors / sizeof tensors[0]; i++)
        status = attnkit_check_layout(tensors[i].name, tensors[i].tensor->layout, tensors[i].known,
                                      message);
    return status;
}

static attnkit_status check_layouts(const struct request *r, char *message)
{
    const attnkit_attention_args *const args = r->core;
    const uint32_t in_rows = args->q.layout | args->v.layout | args->out.layout | args->lse.layout |
                             r->storage->k_scales.layout | r->storage->v_scales.layout |
                             r->visibility->mask.layout | r->visibility->mask_bits.layout |
                             r->scores->bias.layout | r->weights->weights.layout;
    const uint32_t unknown =
        (in_rows & ~ATTNKIT_STRIDED) | (args->k.layout & ~(ATTNKIT_STRIDED | ATTNKIT_TILED));
    return unknown ? refuse_layouts(r, message) : ATTNKIT_OK;
}

/* Checks the type of a tensor that must be binary32. */
static attnkit_status check_f32(const char *name, const attnkit_tensor *t, char *message)
{
    if (!t->data || t->type == ATTNKIT_F32)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_UNSUPPORTED, "%s.type is %d: must be ATTNKIT_F32 (0)", name,
                  (int)t->type);
}

static attnkit_status check_types(const struct request *r, char *message)
{
    attnkit_status status = attnkit_check_rounded("q.type", r->core->q.type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rounded("out.type", r->core->out.type, message);
    if (status == ATTNKIT_OK)
        status = check_f32("lse", &r->core->lse, message);
    if (status == ATTNKIT_OK)
        status = check_f32("k_scales", &r->storage->k_scales, message);
    if (status == ATTNKIT_OK)
        status = check_f32("v_scales", &r->storage->v_scales, message);
    return status == ATTNKIT_OK ? check_f32("weights", &r->weights->weights, message) : status;
}

static attnkit_status check_storage(const struct request *r, char *message)
{
    const attnkit_attention_args *const args = r->core;
    const struct stored_row k = {.type = args->k.type,
                                 .tiled = is_tiled(r),
                                 .dim = args->head_dim,
                                 .group = r->storage->k_scale_group,
                                 .scales = r->storage->k_scales.data,
                                 .dim_name = "head_dim",
                                 .type_name = "k.type",
                                 .group_name = "k_scale_group",
                                 .scales_name = "k_scales"};
    const struct stored_row v = {.type = args->v.type,
                                 .dim = value_dim_of(r),
                                 .group = r->storage->v_scale_group,
                                 .scales = r->storage->v_scales.data,
                                 .dim_name = "value_dim",
                                 .type_name = "v.type",
                                 .group_name = "v_scale_group",
                                 .scales_name = "v_scales"};
    const struct pages pages = pages_of(r);
    attnkit_status status = attnkit_check_stored_row(&k, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_stored_row(&v, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_pages(&pages, args->batch, args->kv_len, "kv_len", message);
    if (status == ATTNKIT_OK && is_tiled(r))
        status = attnkit_check_tiled_pages(&pages, message);
    return status;
}

static attnkit_status check_packed(const struct request *r, char *message)
{
    if (!r->storage->cu_seqlens_kv.data)
        return ATTNKIT_OK;
    if (r->visibility->kv_lens.data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "kv_lens and cu_seqlens_kv are both given: packed keys have no unused rows");
    if (r->pages->block_table)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "cu_seqlens_kv and block_table are both given: keys in pages are not packed");
    if (is_tiled(r))
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "cu_seqlens_kv is given, but k.layout has ATTNKIT_TILED: keys in tiles are "
                      "not packed");
    return ATTNKIT_OK;
}

static attnkit_status check_state(const attnkit_state *state, const char *name, char *message)
{
    if (!state->max == !state->sum && !state->max == !state->out)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "%s.max, %s.sum and %s.out: some are NULL, must be all or none", name, name,
                  name);
}

/* Checks first_key and the states. */
static attnkit_status check_states(const struct request *r, char *message)
{
    const attnkit_states *const s = r->states;
    int64_t end;
    if (s->first_key < 0 || s->first_key % ATTNKIT_CHUNK_KEYS != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "first_key is %lld: must be a multiple of ATTNKIT_CHUNK_KEYS (%d)",
                      (long long)s->first_key, ATTNKIT_CHUNK_KEYS);
    if (__builtin_add_overflow(s->first_key, r->core->kv_len, &end))
        return refuse(message, ATTNKIT_OVERFLOW,
                      "first_key is %lld: first_key + kv_len (%lld) overflows",
                      (long long)s->first_key, (long long)r->core->kv_len);
    attnkit_status status = check_state(&s->state_in, "state_in", message);
    if (status == ATTNKIT_OK)
        status = check_state(&s->state_out, "state_out", message);
    if (status != ATTNKIT_OK || !s->state_out.out)
        return status;
    if (r->core->out.data || r->core->lse.data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s and state_out are both given: a call gives a result or a state",
                      r->core->out.data ? "out" : "lse");
    return ATTNKIT_OK;
}

/* Refuses options that a call with cells cannot have: pages, packed keys, tiles, first_key and
 * states. */
static attnkit_status check_what_cells_exclude(const struct request *r, char *message)
{
    const struct {
        const char *name;
        bool given;
        attnkit_status status;
    } others[] = {{"block_table", r->pages->block_table, ATTNKIT_BAD_ARGUMENT},
                  {"cu_seqlens_kv", r->storage->cu_seqlens_kv.data, ATTNKIT_BAD_ARGUMENT},
                  {"ATTNKIT_TILED in k.layout", is_tiled(r), ATTNKIT_UNSUPPORTED},
                  {"first_key", r->states->first_key != 0, ATTNKIT_UNSUPPORTED},
                  {"state_in", r->states->state_in.out, ATTNKIT_UNSUPPORTED},
                  {"state_out", r->states->state_out.out, ATTNKIT_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].given)
            return refuse(message, others[i].status,
                          "key_index and %s are both given: they do not go together",
                          others[i].name);
    return ATTNKIT_OK;
}

/* Checks the fields that describe cells. Cells hold keys in any order. */
static attnkit_status check_cells(const struct request *r, char *message)
{
    const int64_t stride = r->storage->key_index_stride, kv_len = r->core->kv_len;
    int64_t reach;
    if (!r->storage->key_index.data && stride != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "key_index_stride is %lld, but key_index is NULL", (long long)stride);
    if (!r->storage->key_index.data)
        return ATTNKIT_OK;
    if (stride != 0 && stride < kv_len)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "key_index_stride is %lld: must be 0 or at least kv_len (%lld)",
                      (long long)stride, (long long)kv_len);
    if (kv_len > INT32_MAX)
        return refuse(message, ATTNKIT_OVERFLOW,
                      "kv_len is %lld: must be below 2^31 with key_index", (long long)kv_len);
    if (__builtin_mul_overflow(stride, (int64_t)sizeof(int64_t), &reach) ||
        __builtin_mul_overflow(reach, r->core->batch, &reach))
        return refuse(message, ATTNKIT_OVERFLOW, "key_index_stride is %lld: too large",
                      (long long)stride);
    return check_what_cells_exclude(r, message);
}

/* Refuses types and groups of scales of K or V that ATTNKIT_INTEGERS does not support. `name` is k
 * or v. */
static attnkit_status check_integer_row(const char *name, attnkit_type type, int64_t group,
                                        const char *dim_name, int64_t dim, char *message)
{
    if (type != ATTNKIT_I8 && type != ATTNKIT_Q8_0)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_INTEGERS, but %s.type is %d: must be ATTNKIT_I8 (3) or "
                      "ATTNKIT_Q8_0 (4)",
                      name, (int)type);
    if (type == ATTNKIT_I8 && group % Q8_BLOCK != 0)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_INTEGERS, but %s_scale_group is %lld: must be a multiple "
                      "of %d",
                      name, (long long)group, Q8_BLOCK);
    if (type == ATTNKIT_I8 && group == 0 && dim % Q8_BLOCK != 0)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_INTEGERS and %s_scale_group is 0, but %s is %lld: must be "
                      "a multiple of %d",
                      name, dim_name, (long long)dim, Q8_BLOCK);
    return ATTNKIT_OK;
}

/* Refuses the types, groups of scales and outputs that ATTNKIT_INTEGERS does not support. */
static attnkit_status check_integers(const struct request *r, char *message)
{
    const attnkit_attention_args *const args = r->core;
    if (!(args->flags & ATTNKIT_INTEGERS))
        return ATTNKIT_OK;
    if (!HAS_INTEGERS)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_INTEGERS: this build was made without the part integers");
    attnkit_status status = check_integer_row("k", args->k.type, r->storage->k_scale_group,
                                              "head_dim", args->head_dim, message);
    if (status == ATTNKIT_OK)
        status = check_integer_row("v", args->v.type, r->storage->v_scale_group, "value_dim",
                                   value_dim_of(r), message);
    if (status != ATTNKIT_OK)
        return status;
    if (r->weights->weights.data)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_INTEGERS, but weights is given: they do not go together");
    return ATTNKIT_OK;
}

/* Refuses ATTNKIT_SHORT_WEIGHTS without ATTNKIT_BF16_PRODUCTS, and ATTNKIT_BF16_PRODUCTS together
 * with ATTNKIT_INTEGERS. */
static attnkit_status check_flags_of_products(const struct request *r, char *message)
{
    const uint32_t flags = r->core->flags;
    if ((flags & ATTNKIT_SHORT_WEIGHTS) && !(flags & ATTNKIT_BF16_PRODUCTS))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "flags has ATTNKIT_SHORT_WEIGHTS, but not ATTNKIT_BF16_PRODUCTS");
    if ((flags & ATTNKIT_BF16_PRODUCTS) && (flags & ATTNKIT_INTEGERS))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "flags has ATTNKIT_BF16_PRODUCTS and ATTNKIT_INTEGERS: they do not go "
                      "together");
    return ATTNKIT_OK;
}

/* Refuses types, layouts, outputs and options that ATTNKIT_BF16_PRODUCTS does not support. */
static attnkit_status check_bf16_products(const struct request *r, char *message)
{
    const attnkit_attention_args *const args = r->core;
    const struct {
        const char *name;
        attnkit_type type;
    } tensors[] = {{"q", args->q.type}, {"k", args->k.type}, {"v", args->v.type}};
    if (!(args->flags & ATTNKIT_BF16_PRODUCTS))
        return ATTNKIT_OK;
    if (!HAS_PRODUCTS)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_BF16_PRODUCTS: this build was made without the part "
                      "products");
    for (int i = 0; i < 3; i++)
        if (tensors[i].type != ATTNKIT_BF16)
            return refuse(message, ATTNKIT_UNSUPPORTED,
                          "flags has ATTNKIT_BF16_PRODUCTS, but %s.type is %d: must be "
                          "ATTNKIT_BF16 (2)",
                          tensors[i].name, (int)tensors[i].type);
    if (is_tiled(r))
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_BF16_PRODUCTS, but k.layout has ATTNKIT_TILED: K must "
                      "lie in rows");
    if (r->weights->weights.data)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_BF16_PRODUCTS, but weights is given: they do not go "
                      "together");
    if (r->scores->dropout > 0.0)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "flags has ATTNKIT_BF16_PRODUCTS, but dropout is %g: they do not go together",
                      r->scores->dropout);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_request(const struct request *r, char *message)
{
    attnkit_status status = check_options(r, message);
    if (status == ATTNKIT_OK)
        status = check_dims(r, message);
    if (status == ATTNKIT_OK)
        status = check_layouts(r, message);
    if (status == ATTNKIT_OK)
        status = check_types(r, message);
    if (status == ATTNKIT_OK)
        status = check_storage(r, message);
    if (status == ATTNKIT_OK)
        status = check_packed(r, message);
    if (status == ATTNKIT_OK)
        status = check_states(r, message);
    if (status == ATTNKIT_OK)
        status = check_cells(r, message);
    if (status == ATTNKIT_OK)
        status = check_flags_of_products(r, message);
    if (status == ATTNKIT_OK)
        status = check_integers(r, message);
    if (status == ATTNKIT_OK)
        status = check_bf16_products(r, message);
    return status == ATTNKIT_OK ? attnkit_check_groups(r, message) : status;
}
