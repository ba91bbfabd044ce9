/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates the copies of K and V, and fills them.
 */
#include "bench/rows/kv.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/blocks.h"

/* ------------------------------------------------------------------------------- the places */

/* Sets the dense strides of {batch, head, row}, in bytes. */
static void set_strides(int64_t heads, int64_t len, int64_t row, bool token_major,
                        int64_t strides[3])
{
    strides[0] = heads * len * row;
    strides[1] = token_major ? row : len * row;
    strides[2] = token_major ? heads * row : row;
}

/* Makes room for K or V and its scales at *end in a copy, and moves *end behind this room. */
static struct kv_part place(const struct row *row, int64_t dim, bool tiled, size_t *end)
{
    const struct shape *const s = &row->shape;
    const int64_t keys = tiled ? ATTNKIT_TILE_KEYS : 1; /* number of keys in a row of the tensor */
    const int64_t len = (s->kv_len + keys - 1) / keys;
    const int64_t bytes = keys * type_row_bytes(row->type, dim);
    const int64_t scale_bytes = keys * type_scale_bytes(row->type);
    const size_t rows = (size_t)(s->batch * s->kv_heads) * (size_t)len;
    struct kv_part part = {.dim = dim, .tiled = tiled, .rows = *end};
    part.scales = part.rows + whole_lines(rows * (size_t)bytes);
    *end = part.scales + whole_lines(rows * (size_t)scale_bytes);
    set_strides(s->kv_heads, len, bytes, s->token_major, part.strides);
    set_strides(s->kv_heads, len, scale_bytes, s->token_major, part.scale_strides);
    return part;
}

void kv_plan(const struct row *row, bool cold, struct kv *kv)
{
    size_t bytes = 0; /* stays 0 if K and V have rows shorter than a block of the type */
    kv->k = place(row, row->shape.head_dim, row->shape.tiled, &bytes);
    kv->v = place(row, row->shape.value_dim, false, &bytes);
    kv->copies = copies_plan(row, bytes, cold);
}

static float *scales_of(const struct row *row, char *copy, const struct kv_part *part)
{
    return type_scale_bytes(row->type) ? (float *)(void *)(copy + part->scales) : NULL;
}

/* Returns the tensor of K or V, which is head-major or token-major. */
static attnkit_tensor rows_tensor(const struct row *row, const struct kv_part *part,
                                  const void *data)
{
    attnkit_tensor tensor = {
        .data = data, .type = row->type, .layout = part->tiled ? ATTNKIT_TILED : 0};
    if (!row->shape.token_major)
        return tensor;
    tensor.layout |= ATTNKIT_STRIDED;
    memcpy(tensor.strides, part->strides, sizeof part->strides);
    return tensor;
}

static attnkit_tensor scales_tensor(const struct row *row, const struct kv_part *part,
                                    const void *data)
{
    attnkit_tensor tensor = {.data = data};
    if (!data || !row->shape.token_major)
        return tensor;
    tensor.layout = ATTNKIT_STRIDED;
    memcpy(tensor.strides, part->scale_strides, sizeof part->scale_strides);
    return tensor;
}

void kv_describe(const struct row *row, struct kv *kv, attnkit_attention_args *args)
{
    const void *const scales = type_scale_bytes(row->type) ? ATTNKIT_LATER : NULL;
    attnkit_kv_storage_init(&kv->storage);
    kv->storage.k_scales = scales_tensor(row, &kv->k, scales);
    kv->storage.v_scales = scales_tensor(row, &kv->v, scales);
    if (row->shape.extra == RING)
        kv->storage.key_index = (attnkit_ints){.data = ATTNKIT_LATER, .type = ATTNKIT_INT32};
    args->k = rows_tensor(row, &kv->k, ATTNKIT_LATER);
    args->v = rows_tensor(row, &kv->v, ATTNKIT_LATER);
    args->storage = &kv->storage;
}

void kv_point(const struct row *row, struct kv *kv, attnkit_attention_args *args)
{
    char *const copy = copies_next(&kv->copies);
    args->k.data = copy + kv->k.rows;
    args->v.data = copy + kv->v.rows;
    kv->storage.k_scales.data = scales_of(row, copy, &kv->k);
    kv->storage.v_scales.data = scales_of(row, copy, &kv->v);
    kv->storage.key_index.data = kv->index;
}

void kv_run(const struct kv *kv, attnkit_attention_group_data *groups)
{
    groups->k_scales = kv->storage.k_scales.data;
    groups->v_scales = kv->storage.v_scales.data;
    groups->key_index = kv->index;
}

/* ------------------------------------------------------------------------------- the values */

/* Returns the number of floats in K or V before conversion. */
static size_t source_floats(const struct shape *s, const struct kv_part *part)
{
    return (size_t)(s->batch * s->kv_heads) * (size_t)s->kv_len * (size_t)part->dim;
}

double kv_memory_bytes(const struct row *row, const struct kv *kv)
{
    const struct kv_part *const larger = kv->k.dim > kv->v.dim ? &kv->k : &kv->v;
    return copies_memory_bytes(&kv->copies) +
           (double)(source_floats(&row->shape, larger) * sizeof(float));
}

attnkit_append_args kv_append_args(const struct row *row, const struct kv *kv,
                                   const struct kv_part *part, const float *source)
{
    const struct shape *const s = &row->shape;
    char *const copy = kv->copies.memory;
    return (attnkit_append_args){
        .size = sizeof(attnkit_append_args),
        .batch = s->batch,
        .heads = s->kv_heads,
        .len = s->kv_len,
        .dim = part->dim,
        .capacity = s->kv_len,
        .src = {.data = source},
        .dst = rows_tensor(row, part, copy + part->rows),
        .dst_scales = scales_tensor(row, part, scales_of(row, copy, part)),
    };
}

/* Returns the largest workspace, in bytes, that an append needs on one thread. attnkit/cache.h
 * promises this bound. */
size_t kv_append_workspace(const struct kv_part *part)
{
    return (size_t)(17 * part->dim + 128);
}

/* Sets the scale of a block, and its minimum if it has one, to 2^-6. */
static void put_halves(enum type type, char *block)
{
    static const uint16_t halves[] = {0x2400, 0x2400};
    memcpy(block, halves, has_minimum(type) ? sizeof halves : sizeof halves[0]);
}

/* Fills K or V of a type that attnkit_append cannot write, from the random floats of `source`.
 * Blocks get random integers. F8_E4M3 gets random elements whose magnitudes are below 64. */
static void fill_unwritten(const struct row *row, const struct kv *kv, const struct kv_part *part,
                           const float *source)
{
    const enum type type = (enum type)row->type;
    const int64_t count = (int64_t)source_floats(&row->shape, part), block = block_elements(type);
    char *const rows = kv->copies.memory + part->rows;
    float *const scales = scales_of(row, kv->copies.memory, part);
    for (int64_t i = 0; i < bytes_of(type, count); i++)
        rows[i] = (char)((int)(source[i] * 128.0f) & (type == TYPE_F8_E4M3 ? 0xe7 : 0xff));
    for (int64_t i = 0; i < count && block > 1; i += block)
        put_halves(type, rows + bytes_of(type, i));
    for (int64_t i = 0; scales && i < count / part->dim; i++)
        scales[i] = 0.0625f;
}

static bool fill(const struct row *row, const struct kv *kv, const struct kv_part *part,
                 uint64_t seed, struct result *result)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    float *const source = draw(source_floats(&row->shape, part), seed);
    const attnkit_exec exec = {.size = sizeof exec,
                               .isa = row->isa->name,
                               .workspace = malloc(kv_append_workspace(part)),
                               .workspace_size = kv_append_workspace(part)};
    const attnkit_append_args args = kv_append_args(row, kv, part, source);
    const enum type type = (enum type)row->type;
    if (!source || !exec.workspace)
        row_fails(result, "no memory for K and V");
    else if (!can_be_written(type))
        fill_unwritten(row, kv, part, source);
    else if (attnkit_append(&args, &exec, message) != ATTNKIT_OK)
        row_fails(result, "%s", message);
    free(source);
    free(exec.workspace);
    return !result->problem[0];
}

/* Makes the key indices of a ring, which are the same for all batch entries. Other shapes have no
 * key indices. Returns false if there is no memory. */
static bool make_index(const struct shape *s, struct kv *kv)
{
    const int64_t cells = s->kv_len, first = cells / 3;
    if (s->extra != RING)
        return true;
    kv->index = malloc((size_t)cells * sizeof *kv->index);
    for (int64_t cell = 0; kv->index && cell < cells; cell++)
        kv->index[cell] = (int32_t)(cell < first ? cells + cell : cell);
    return kv->index;
}

bool kv_make(const struct row *row, struct kv *kv, struct result *result)
{
    if (!copies_take(&kv->copies) || !make_index(&row->shape, kv))
        row_fails(result, "no memory for K and V");
    else if (fill(row, kv, &kv->k, 1, result) && fill(row, kv, &kv->v, 2, result))
        copies_repeat(&kv->copies);
    return !result->problem[0];
}
