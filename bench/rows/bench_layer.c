/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the benches that measure a whole layer of self-attention. The input of
 * layer/f32/avx512/B1_H32_8_L512_D128_M4096_causal is 512 tokens of 4096 elements. The layer has 32
 * query heads and 8 KV heads. layer/q8_0/avx2/B1_H32_8_L1x4096_D128_M4096 is a decoding step: one
 * row after 4095 keys in a cache. The type in the name is the type of the packed weights and of the
 * KV cache. Outputs are f32. Inputs are f32, or bf16 if the types begin with bf16_, as in
 * layer/bf16_bf16. The layer has no biases and no rotation. Before a call, the weights and the KV
 * cache are not in the CPU's caches, except with /warm.
 */
#include <math.h>
#include <stdlib.h>

#include "bench/rows/kv.h"
#include "bench/rows/masks.h"

enum { WEIGHT_TYPES = F32 | F16 | BF16 | Q8_0 };

static const struct workload workloads[] = {
    {"B1_H32_8_L512_D128_M4096_causal", F32, 1, BEST_IS_QUICK, false},
    {"B1_H32_8_L512_D128_M4096_causal", F16 | BF16 | Q8_0, 1, NEVER_QUICK, false},
    {"B1_H32_8_L512_D128_M4096_causal", F32 | Q8_0, 2, NEVER_QUICK, false},
    {"B1_H32_8_L1x4096_D128_M4096", WEIGHT_TYPES, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x4096_D128_M4096", F32 | Q8_0, 2, NEVER_QUICK, false},
    {"B1_H32_8_L1x4096_D128_M4096_tiles", F32 | Q8_0, 1, NEVER_QUICK, false},
    {"B1_H12_L384_D64_M768", F32, 1, NEVER_QUICK, false},
    {"B1_H4_2_L30_D32_M64_causal", F32, 1, NEVER_QUICK, true},
};

/* A call and its memory. */
struct layer_bench {
    const struct row *row;
    attnkit_layer_args args;
    attnkit_attention_args attention;
    attnkit_exec exec;
    struct copies weights; /* packed */
    struct kv cache;       /* for layers with a cache */
    struct masks masks;    /* a window, if any */
    void *x;               /* of type row->input */
    float *out;
    int64_t *cached;
    attnkit_status status; /* status of the last call */
};

/* ------------------------------------------------------------------------- sizes of a layer */

static int64_t rows_of(const struct shape *s)
{
    return s->batch * s->q_len;
}

/* Returns the number of elements of x, which is also the number of elements of out. */
static size_t floats_of(const struct shape *s)
{
    return (size_t)rows_of(s) * (size_t)s->d_model;
}

/* Returns how many elements a token has in q, k, v and the result of attention together. For each
 * of these elements, the weights have a row or a column of d_model elements. */
static int64_t projected(const struct shape *s)
{
    return (s->q_heads + s->kv_heads) * (s->head_dim + s->value_dim);
}

/* Returns the number of floats in the largest matrix. */
static size_t matrix_floats(const struct shape *s)
{
    const int64_t dim = s->head_dim > s->value_dim ? s->head_dim : s->value_dim;
    return (size_t)(s->q_heads * dim) * (size_t)s->d_model;
}

static double flops_of(const struct shape *s)
{
    return shape_flops(s) + 2.0 * (double)rows_of(s) * (double)projected(s) * (double)s->d_model;
}

/* ------------------------------------------------------------------------------- the memory */

static attnkit_layer_weights describe_weights(const struct row *row)
{
    const struct shape *const s = &row->shape;
    return (attnkit_layer_weights){
        .size = sizeof(attnkit_layer_weights),
        .d_model = s->d_model,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .value_dim = s->value_dim,
        .packed_type = row->type,
    };
}

/* Estimates the memory of a row of the benches in bytes. The projected rows are most of the
 * workspace, and the rest of the workspace is not counted. */
static double memory_bytes(const struct layer_bench *call)
{
    const struct shape *const s = &call->row->shape;
    const double floats =
        (double)matrix_floats(s) + (double)rows_of(s) * (double)(2 * s->d_model + projected(s));
    const double cache = shape_is_cached(s) ? kv_memory_bytes(call->row, &call->cache) : 0.0;
    return floats * sizeof(float) + copies_memory_bytes(&call->weights) + cache;
}

/* Draws a matrix. Its elements are so small that scores are moderate. */
static float *draw_matrix(const struct shape *s)
{
    const float scale = 1.0f / sqrtf((float)s->d_model);
    float *const w = draw(matrix_floats(s), 1);
    for (size_t i = 0; w && i < matrix_floats(s); i++)
        w[i] *= scale;
    return w;
}

/* Packs the weights. All matrices take their numbers from the same array. */
static bool pack(struct layer_bench *call, struct result *result)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_layer_weights weights = describe_weights(call->row);
    float *const w = draw_matrix(&call->row->shape);
    weights.w_q = weights.w_k = weights.w_v = weights.w_o = w;
    if (!w)
        row_fails(result, "no memory for the weights");
    else if (attnkit_layer_pack(&weights, call->weights.memory, call->args.packed_size, NULL,
                                message) != ATTNKIT_OK)
        row_fails(result, "%s", message);
    else
        copies_repeat(&call->weights);
    free(w);
    return !result->problem[0];
}

static bool take_memory(struct layer_bench *call, struct result *result)
{
    const struct shape *const s = &call->row->shape;
    if (memory_has(memory_bytes(call))) {
        call->x = draw_input(call->row->input, floats_of(s), 3);
        call->out = draw(floats_of(s), 4);
        call->cached = malloc((size_t)s->batch * sizeof *call->cached);
        if (call->x && call->out && call->cached && copies_take(&call->weights))
            return pack(call, result) &&
                   (!shape_is_cached(s) || kv_make(call->row, &call->cache, result));
    }
    row_fails(result, "no memory: needs %.0f MB", memory_bytes(call) * 1e-6);
    return false;
}

static void release(struct layer_bench *call)
{
    free(call->x);
    free(call->out);
    free(call->cached);
    free(call->exec.workspace);
    free(call->weights.memory);
    free(call->cache.copies.memory);
}

/* --------------------------------------------------------------------------------- the call */

static void describe_attention(const struct shape *s, struct layer_bench *call)
{
    call->attention = (attnkit_attention_args){
        .size = sizeof call->attention,
        .flags = s->causal ? ATTNKIT_CAUSAL : 0,
        .align = s->causal ? ATTNKIT_ALIGN_BOTTOM_RIGHT : ATTNKIT_ALIGN_NONE,
    };
    masks_describe(s, &call->masks, &call->attention);
}

static void describe(const struct row *row, struct pool *pool, struct layer_bench *call)
{
    const struct shape *const s = &row->shape;
    call->row = row;
    call->exec = exec_of(row, pool);
    call->args = (attnkit_layer_args){
        .size = sizeof call->args,
        .batch = s->batch,
        .q_len = s->q_len,
        .x = {.type = row->input},
        .attention = &call->attention,
    };
    describe_attention(s, call);
    if (!shape_is_cached(s))
        return;
    kv_plan(row, true, &call->cache);
    kv_describe(row, &call->cache, &call->attention);
    call->attention.kv_len = s->kv_len;
}

static void point_to_memory(struct layer_bench *call)
{
    const struct shape *const s = &call->row->shape;
    call->args.x.data = call->x;
    call->args.out.data = call->out;
    call->args.packed = copies_next(&call->weights);
    if (!shape_is_cached(s))
        return;
    kv_point(call->row, &call->cache, &call->attention);
    call->args.cached.data = call->cached;
    for (int64_t b = 0; b < s->batch; b++)
        call->cached[b] = s->kv_len - s->q_len;
}

static bool take_workspace(struct layer_bench *call, struct result *result)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t *const bytes = &call->exec.workspace_size;
    if (attnkit_layer_workspace(&call->args, &call->exec, bytes, message) != ATTNKIT_OK)
        row_fails(result, "%s", message);
    else if (!(call->exec.workspace = malloc(*bytes)))
        row_fails(result, "no memory: needs %.0f MB", (double)*bytes * 1e-6);
    return !result->problem[0];
}

static bool prepare(const struct row *row, struct pool *pool, struct layer_bench *call,
                    struct result *result)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    const attnkit_layer_weights weights = describe_weights(row);
    describe(row, pool, call);
    if (attnkit_layer_packed_size(&weights, &call->args.packed_size, message) != ATTNKIT_OK) {
        row_fails(result, "%s", message);
        return false;
    }
    call->weights = copies_plan(row, call->args.packed_size, true);
    if (!take_memory(call, result))
        return false;
    point_to_memory(call);
    return take_workspace(call, result);
}

static void make_call(void *argument)
{
    struct layer_bench *const call = argument;
    call->args.packed = copies_next(&call->weights);
    if (call->args.cached.data)
        kv_point(call->row, &call->cache, &call->attention);
    call->status = attnkit_layer(&call->args, &call->exec, NULL);
}

/* Returns the work of a layer. The layer reads the packed weights and the KV cache. The intensity
 * also counts the bytes of x and out. */
static struct work work_of_layer(const struct row *row, const struct layer_bench *call)
{
    const struct shape *const s = &row->shape;
    const double cache = shape_is_cached(s) ? shape_kv_bytes(s, row->type) : 0.0;
    const double read = (double)call->args.packed_size + cache;
    const int64_t row_bytes =
        type_row_bytes(row->input, s->d_model) + type_row_bytes(ATTNKIT_F32, s->d_model);
    const double rows_in_and_out = (double)rows_of(s) * (double)row_bytes;
    struct work work = work_of(flops_of(s), read);
    work.intensity = flops_of(s) / (read + rows_in_and_out);
    return work;
}

static void measure_layer(const struct row *row, struct pool *pool, struct patience patience,
                          struct result *result)
{
    struct layer_bench call = {0};
    if (prepare(row, pool, &call, result)) {
        result->work = work_of_layer(row, &call);
        const struct row_call out = {make_call, &call, call.out,
                                     floats_of(&row->shape) * sizeof *call.out};
        measure_calls(row, pool, patience, &out, result);
        if (call.status != ATTNKIT_OK)
            row_fails(result, "%s", attnkit_status_string(call.status));
    }
    release(&call);
}

void run_layer(const struct row *row, struct patience patience, struct result *result)
{
    on_threads(row, patience, result, measure_layer);
}

void add_layer_rows(struct row_list *rows)
{
    add_workloads(rows, workloads, sizeof workloads / sizeof *workloads);
}
