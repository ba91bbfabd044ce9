/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the benches that measure the whole public call of attention.
 * prefill/f32/avx2/B1_H12_L1024_D64_causal/t2 is prefill with K and V in f32, by the AVX2 kernels,
 * on two threads. The first word of a name is the family. `decode` has one query row. `few` has
 * several query rows, and at least 32 times as many keys. All other calls are `prefill`. Q is f32,
 * or bf16 if the types begin with bf16_, as in prefill/bf16_bf16. The result is always f32. After
 * the shape, /planned means a run of a plan, which is made once before the measurement. In `decode`
 * and `few`, K and V are in no cache of the CPU before a call, except with /warm. The roof of
 * `decode` without /warm is the speed of reading memory. All other rows have the speed of the
 * instruction set's multiply-adds as their roof. Roofs are measured on the row's threads.
 */
#include <stdlib.h>

#include "bench/rows/kv.h"
#include "bench/rows/masks.h"

enum { ALL_TYPES = F32 | F16 | BF16 | I8 | Q8_0 };

static const struct workload workloads[] = {
    {"B8_H1_L128x256_D512", F32, 1, QUICK, false},
    {"B2_H8_L3x5_D64", F32, 1, QUICK, true}, /* the overhead of a call */
    {"B2_H8_L3x5_D64/planned", F32, 1, QUICK, true},
    {"B1_H1_L1x16_D64/warm", F32, 1, QUICK, true},
    {"B1_H1_L1x16_D64/planned/warm", F32, 1, QUICK, true},
    {"B1_H32_8_L512_D128_causal", F32, 1, QUICK, false},
    {"B1_H32_8_L2048_D128_causal", F32, 1, QUICK, false},
    {"B1_H32_8_L2048_D128_causal", F32, 2, QUICK, false},
    {"B1_H32_8_L2048_D128_causal", F16 | BF16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L2048_D128_causal_token", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L2048_D128_causal", BF16_BF16, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D64", BF16_BF16, 1, NEVER_QUICK, false},
    {"B1_H8_2_L8192_D128_causal", F32, 1, QUICK, false},
    {"B1_H12_L1024_D64_causal", F32, 1, QUICK, false},
    {"B1_H12_L1024_D64", F32, 1, QUICK, false},
    {"B8_H12_L384_D64_pad", F32, 1, QUICK, false},
    {"B1_H20_L448x1500_D64", F32, 1, QUICK, false},
    {"B1_H12_L1024_D128", F32, 1, NEVER_QUICK, false}, /* to compare the next 7 workloads with */
    {"B1_H12_L1024_D80", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D96", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D112", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D192", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D256", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1000_D128", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1023_D128", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L37x91_D128", F32, 1, QUICK, true},
    {"B1_H32_8_L5x4096_D128_causal", F32 | F16, 1, NEVER_QUICK, false}, /* 20 rows of a head */
    {"B1_H32_8_L8x4096_D128_causal", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L32x4096_D128_causal", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H8_2_L512x16384_D64_causal_token", F16, 1, NEVER_QUICK, false},
    {"B1_H8_2_L512x16384_D64_causal_token", F16, 2, NEVER_QUICK, false},
    {"B1_H32_8_L1x4096_D128", ALL_TYPES, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x4096_D128", ALL_TYPES, 2, NEVER_QUICK, false},
    {"B1_H32_8_L1x4096_D128_token", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128", ALL_TYPES, 1, BEST_IS_QUICK, false},
    {"B1_H32_8_L1x16384_D128", F32 | F16 | Q8_0, 2, BEST_IS_QUICK, false},
    {"B1_H32_8_L1x16384_D128", BF16 | I8, 2, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_token", F32 | BF16 | Q8_0, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_token", F16, 1, BEST_IS_QUICK, false},
    {"B1_H32_8_L1x16384_D128_token", F16, 2, BEST_IS_QUICK, false},
    {"B1_H8_2_L8192_D128_causal_window1024", F32, 1, BEST_IS_QUICK, false},
    /* From here to L1x16384_D128_half: the cost of masks, windows, score mods and weights. */
    {"B1_H12_L1024_D64_alltrue", F32, 1, BEST_IS_QUICK, false},
    {"B1_H12_L1024_D64_dense", F32, 1, BEST_IS_QUICK, false},
    {"B1_H12_L1024_D64_half", F32, 1, NEVER_QUICK, false},
    {"B8_H12_L384_D64_padmask", F32, 1, BEST_IS_QUICK, false},
    {"B1_H12_L1024_D64_bias", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D64_scaledbias", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D64_causal_alibi", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D64_causal_softcap", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D64_causal_sinks", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D64_causal_dropout", F32, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D64_causal_weights", F32, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_window1024", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_alltrue", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_half", F32 | F16, 1, NEVER_QUICK, false},
    /* From here to L16x4096_D128_cells: the cost of masks of trees and of cells. */
    {"B1_H32_8_L2x4096_D128", F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L2x4096_D128_tree", F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L2x4096_D128_cells", F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L4x4096_D128", F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L4x4096_D128_tree", F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L4x4096_D128_cells", F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L16x4096_D128", F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L16x4096_D128_tree", F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L16x4096_D128_cells", F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x4096_D128_ring", F32 | F16, 1, NEVER_QUICK, false}, /* K and V in the cells of a
                                                                       * ring */
    {"B1_H32_8_L1x16384_D128_ring", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_token_ring", F16, 1, NEVER_QUICK, false},
    {"B1_H12_L1024_D64_causal_ring", F32, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_alibi", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_softcap", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L2048_D128_causal_products", BF16_BF16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L2048_D128_causal_shortproducts", BF16_BF16, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x4096_D128_integers", Q8_0, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_integers", Q8_0, 1, BEST_IS_QUICK, false},
    {"B1_H32_8_L1x16384_D128_integers", I8, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_tiles_integers", I8 | Q8_0, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_token_integers", Q8_0, 1, NEVER_QUICK, false},
    {"B1_H32_8_L2048_D128_causal_integers", Q8_0, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x4096_D128_tiles", ALL_TYPES, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_tiles", ALL_TYPES, 1, NEVER_QUICK, false},
    {"B1_H32_8_L1x16384_D128_tiles", ALL_TYPES, 2, NEVER_QUICK, false},
};

/* A call and its memory. */
struct attention_bench {
    const struct row *row;
    attnkit_attention_args args;
    attnkit_exec exec;
    struct kv kv;
    struct masks masks;
    void *q;
    float *out;
    void *plan; /* only for planned rows; data and groups are for its runs */
    attnkit_attention_data data;
    attnkit_attention_group_data groups;
    attnkit_status status; /* status of the last call */
};

/* --------------------------------------------------------------------------------- families */

static bool is_decode(const struct shape *shape)
{
    return shape->q_len == 1;
}

/* Returns whether a call belongs to the family `few`: a piece of a prompt, or a few drafts, at the
 * end of a long cache. */
static bool is_few(const struct shape *shape)
{
    return !is_decode(shape) && shape->q_len <= shape->kv_len / 32;
}

const char *attention_family(const struct shape *shape)
{
    return is_decode(shape) ? "decode" : is_few(shape) ? "few" : "prefill";
}

/* ------------------------------------------------------------------------------- the memory */

static size_t rows_of(const struct shape *s)
{
    return (size_t)(s->batch * s->q_heads) * (size_t)s->q_len;
}

static size_t out_bytes(const struct shape *s)
{
    return rows_of(s) * (size_t)s->value_dim * sizeof(float);
}

static double memory_bytes(const struct attention_bench *call)
{
    const struct shape *const s = &call->row->shape;
    const double floats = (double)rows_of(s) * (double)(s->head_dim + s->value_dim);
    return floats * sizeof(float) + kv_memory_bytes(call->row, &call->kv) + masks_memory_bytes(s) +
           (double)call->exec.workspace_size;
}

static bool take_memory(struct attention_bench *call, struct result *result)
{
    const struct shape *const s = &call->row->shape;
    if (memory_has(memory_bytes(call))) {
        call->q = draw_input(call->row->input, rows_of(s) * (size_t)s->head_dim, 3);
        call->out = draw(rows_of(s) * (size_t)s->value_dim, 4);
        call->exec.workspace = malloc(call->exec.workspace_size ? call->exec.workspace_size : 1);
        const bool has_masks = masks_make(s, &call->masks);
        if (call->q && call->out && call->exec.workspace && has_masks)
            return kv_make(call->row, &call->kv, result);
    }
    row_fails(result, "no memory: needs %.0f MB", memory_bytes(call) * 1e-6);
    return false;
}

static void release(struct attention_bench *call)
{
    free(call->q);
    free(call->out);
    free(call->kv.copies.memory);
    free(call->kv.index);
    free(call->exec.workspace);
    free(call->plan);
    masks_free(&call->masks);
}

/* --------------------------------------------------------------------------------- the call */

static void describe(const struct row *row, struct pool *pool, struct attention_bench *call)
{
    const struct shape *const s = &row->shape;
    call->row = row;
    call->args = (attnkit_attention_args){
        .size = sizeof call->args,
        .flags = s->causal ? ATTNKIT_CAUSAL : 0,
        .align = s->causal ? ATTNKIT_ALIGN_BOTTOM_RIGHT : ATTNKIT_ALIGN_NONE,
        .batch = s->batch,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .q_len = s->q_len,
        .kv_len = s->kv_len,
        .head_dim = s->head_dim,
        .value_dim = s->value_dim,
        .q = {.data = ATTNKIT_LATER, .type = row->input},
        .out = {.data = ATTNKIT_LATER},
    };
    call->exec = exec_of(row, pool);
    masks_describe(s, &call->masks, &call->args);
    kv_plan(row, is_decode(s) || is_few(s), &call->kv);
    kv_describe(row, &call->kv, &call->args);
}

static attnkit_status make_plan(struct attention_bench *call, char *message)
{
    const size_t size = attnkit_attention_plan_size();
    size_t *const bytes = &call->exec.workspace_size;
    call->plan = aligned_alloc(64, whole_lines(size));
    const attnkit_status status =
        attnkit_attention_plan(&call->args, &call->exec, call->plan, size, message);
    return status != ATTNKIT_OK ? status
                                : attnkit_attention_plan_workspace(call->plan, bytes, message);
}

static attnkit_status ask_workspace(struct attention_bench *call, char *message)
{
    if (call->row->planned)
        return make_plan(call, message);
    return attnkit_attention_workspace(&call->args, &call->exec, &call->exec.workspace_size,
                                       message);
}

static void point_to_memory(struct attention_bench *call)
{
    const struct shape *const s = &call->row->shape;
    call->args.q.data = call->q;
    call->args.out.data = call->out;
    call->groups.size = sizeof call->groups;
    call->data = (attnkit_attention_data){
        .size = sizeof call->data,
        .batch = s->batch,
        .q_len = s->q_len,
        .kv_len = s->kv_len,
        .q = call->q,
        .out = call->out,
        .groups = &call->groups,
    };
    masks_run(&call->masks, &call->data, &call->groups);
}

static void make_call(void *argument)
{
    struct attention_bench *const call = argument;
    kv_point(call->row, &call->kv, &call->args);
    call->status = attnkit_attention(&call->args, &call->exec, NULL);
}

static void run_plan(void *argument)
{
    struct attention_bench *const call = argument;
    kv_point(call->row, &call->kv, &call->args);
    call->data.k = call->args.k.data;
    call->data.v = call->args.v.data;
    kv_run(&call->kv, &call->groups);
    call->status = attnkit_attention_run(call->plan, &call->data, &call->exec, NULL);
}

static bool prepare(const struct row *row, struct pool *pool, struct attention_bench *call,
                    struct result *result)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    describe(row, pool, call);
    if (ask_workspace(call, message) != ATTNKIT_OK) {
        row_fails(result, "%s", message);
        return false;
    }
    if (!take_memory(call, result))
        return false;
    point_to_memory(call);
    return true;
}

/* ------------------------------------------------------------------------------ measuring it */

/* Returns the FLOPs for each byte of Q, K, V, their scales and the result. The bytes of masks and
 * other options are not counted. */
static double intensity_of(const struct row *row)
{
    const struct shape *const s = &row->shape;
    const int64_t q_row = type_row_bytes(row->input, s->head_dim);
    const int64_t out_row = s->value_dim * (int64_t)sizeof(float);
    const double rows_in_and_out = (double)rows_of(s) * (double)(q_row + out_row);
    return shape_flops(s) / (rows_in_and_out + shape_kv_bytes(s, row->type));
}

/* Returns the work of a row. The work of decode is the bytes of K and V, unless K and V may be in a
 * cache. All other work is counted in FLOPs. */
static struct work work_of_row(const struct row *row)
{
    const struct shape *const s = &row->shape;
    const bool reads = is_decode(s) && !row->warm;
    return (struct work){.flops = reads ? 0.0 : shape_flops(s),
                         .bytes = reads ? shape_kv_bytes(s, row->type) : 0.0,
                         .intensity = intensity_of(row)};
}

static void measure_attention(const struct row *row, struct pool *pool, struct patience patience,
                              struct result *result)
{
    struct attention_bench call = {0};
    if (prepare(row, pool, &call, result)) {
        result->work = work_of_row(row);
        const struct row_call out = {row->planned ? run_plan : make_call, &call, call.out,
                                     out_bytes(&row->shape)};
        measure_calls(row, pool, patience, &out, result);
        if (call.status != ATTNKIT_OK)
            row_fails(result, "%s", attnkit_status_string(call.status));
    }
    release(&call);
}

void run_attention(const struct row *row, struct patience patience, struct result *result)
{
    on_threads(row, patience, result, measure_attention);
}

void add_attention_rows(struct row_list *rows)
{
    add_workloads(rows, workloads, sizeof workloads / sizeof *workloads);
}
