/* SPDX-License-Identifier: Apache-2.0
 *
 * The copies of K and V, and what is in them.
 */
#include "kv.h"

#include <stdlib.h>
#include <string.h>

#include "../tests/random.h"

/* ------------------------------------------------------------------------------- the places */

static size_t whole_lines(size_t bytes)
{
    const size_t line = 64;
    return (bytes + line - 1) / line * line;
}

static void *from_line(size_t bytes)
{
    return aligned_alloc(64, whole_lines(bytes));
}

void set_strides(int64_t heads, int64_t len, int64_t row, bool token_major, int64_t strides[3])
{
    strides[0] = heads * len * row;
    strides[1] = token_major ? row : len * row;
    strides[2] = token_major ? heads * row : row;
}

/* Makes room for K or V at the end of a copy. */
static struct kv_part place(const struct row *row, int64_t dim, bool tiled, size_t *end)
{
    const struct shape *const s = &row->shape;
    const int64_t keys = tiled ? ATTNKIT_TILE_KEYS : 1; /* of what is a row */
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
    *kv = (struct kv){.copies = 1};
    kv->k = place(row, row->shape.head_dim, row->shape.tiled, &kv->copy_bytes);
    kv->v = place(row, row->shape.value_dim, false, &kv->copy_bytes);
    if (cold && kv->copy_bytes > 0) /* a type that a row is too short for has none */
        kv->copies += (int64_t)((level_buffer(0) - 1) / kv->copy_bytes);
}

static float *scales_of(const struct row *row, char *copy, const struct kv_part *part)
{
    return type_scale_bytes(row->type) ? (float *)(void *)(copy + part->scales) : NULL;
}

void kv_point(const struct row *row, struct kv *kv, attnkit_attention_args *args)
{
    char *const copy = kv->memory + (size_t)kv->next * kv->copy_bytes;
    args->k = copy + kv->k.rows;
    args->v = copy + kv->v.rows;
    args->k_scales = scales_of(row, copy, &kv->k);
    args->v_scales = scales_of(row, copy, &kv->v);
    kv->next = (kv->next + 1) % kv->copies;
}

/* ------------------------------------------------------------------------------- the values */

float *draw(size_t count, uint64_t seed)
{
    float *floats = from_line(count * sizeof(float));
    for (size_t i = 0; floats && i < count; i++)
        floats[i] = random_uniform(&seed);
    return floats;
}

/* Of K or V before it is converted. */
static size_t source_floats(const struct shape *s, const struct kv_part *part)
{
    return (size_t)(s->batch * s->kv_heads) * (size_t)s->kv_len * (size_t)part->dim;
}

double kv_memory_bytes(const struct row *row, const struct kv *kv)
{
    const struct kv_part *const larger = kv->k.dim > kv->v.dim ? &kv->k : &kv->v;
    return (double)kv->copy_bytes * (double)kv->copies +
           (double)(source_floats(&row->shape, larger) * sizeof(float));
}

static attnkit_append_args describe(const struct row *row, const struct kv_part *part,
                                    const float *source)
{
    const struct shape *const s = &row->shape;
    attnkit_append_args args = {
        .size = sizeof args,
        .flags = ATTNKIT_STRIDED | (part->tiled ? ATTNKIT_TILED : 0),
        .batch = s->batch,
        .heads = s->kv_heads,
        .len = s->kv_len,
        .dim = part->dim,
        .capacity = s->kv_len,
        .src = source,
        .dst_type = row->type,
    };
    const int64_t source_row = part->dim * (int64_t)sizeof(float);
    set_strides(s->kv_heads, s->kv_len, source_row, false, args.src_strides);
    memcpy(args.dst_strides, part->strides, sizeof part->strides);
    memcpy(args.dst_scale_strides, part->scale_strides, sizeof part->scale_strides);
    return args;
}

static attnkit_status append_to_copies(const struct row *row, const struct kv *kv,
                                       const struct kv_part *part, const float *source,
                                       const attnkit_exec *exec, char *message)
{
    attnkit_append_args args = describe(row, part, source);
    attnkit_status status = ATTNKIT_OK;
    for (int64_t i = 0; status == ATTNKIT_OK && i < kv->copies; i++) {
        char *const copy = kv->memory + (size_t)i * kv->copy_bytes;
        args.dst = copy + part->rows;
        args.dst_scales = scales_of(row, copy, part);
        status = attnkit_append(&args, exec, message);
    }
    return status;
}

/* The largest workspace that an append of one thread needs. */
static size_t workspace_bytes(const struct kv_part *part)
{
    return (size_t)(17 * part->dim + 128);
}

static bool fill(const struct row *row, const struct kv *kv, const struct kv_part *part,
                 uint64_t seed, struct result *result)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    float *const source = draw(source_floats(&row->shape, part), seed);
    const attnkit_exec exec = {.size = sizeof exec,
                               .isa = row->isa->name,
                               .workspace = malloc(workspace_bytes(part)),
                               .workspace_size = workspace_bytes(part)};
    if (!source || !exec.workspace)
        row_fails(result, "no memory for K and V");
    else if (append_to_copies(row, kv, part, source, &exec, message) != ATTNKIT_OK)
        row_fails(result, "%s", message);
    free(source);
    free(exec.workspace);
    return !result->problem[0];
}

bool kv_make(const struct row *row, struct kv *kv, struct result *result)
{
    kv->memory = from_line(kv->copy_bytes * (size_t)kv->copies);
    if (!kv->memory)
        row_fails(result, "no memory for K and V");
    return kv->memory && fill(row, kv, &kv->k, 1, result) && fill(row, kv, &kv->v, 2, result);
}
