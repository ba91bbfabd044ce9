/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the whole public call: prefill/f32/avx2/B1_H12_L1024_D64_causal/t2 is prefill of float32
 * by the AVX2 kernels on two threads; with one query row it is decode. Prefill is held against the
 * multiply-adds of its instruction set, decode against reading memory, both on the same threads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../tests/random.h"
#include "pool.h"
#include "rows.h"

/* What a workload is measured for. */
enum {
    QUICK = 1, /* --quick, too */
    SMALL = 2, /* the scalar kernels, too */
    PAIR = 4,  /* two threads, too */
};

static const struct workload {
    const char *shape;
    unsigned flags;
} workloads[] = {
    {"B8_H1_L128x256_D512", QUICK},
    {"B2_H8_L3x5_D64", QUICK | SMALL}, /* what a call costs beside arithmetic */
    {"B1_H32_8_L512_D128_causal", QUICK},
    {"B1_H32_8_L2048_D128_causal", QUICK | PAIR},
    {"B1_H8_2_L8192_D128_causal", QUICK},
    {"B1_H12_L1024_D64_causal", QUICK},
    {"B1_H12_L1024_D64", QUICK},
    {"B8_H12_L384_D64_pad", QUICK},
    {"B1_H20_L448x1500_D64", QUICK},
    {"B1_H12_L1024_D128", 0}, /* to be compared with the next ones */
    {"B1_H12_L1024_D80", 0},
    {"B1_H12_L1024_D96", 0},
    {"B1_H12_L1024_D112", 0},
    {"B1_H12_L1024_D192", 0},
    {"B1_H12_L1024_D256", 0},
    {"B1_H12_L1000_D128", 0},
    {"B1_H12_L1023_D128", 0},
    {"B1_H12_L37x91_D128", QUICK | SMALL},
    {"B1_H32_8_L1x4096_D128", 0},
    {"B1_H32_8_L1x16384_D128", PAIR},
};

/* A call and its memory. K and V may be there several times, one after the other, so that no call
 * finds in a cache what the one before has read. */
struct call {
    attnkit_attention_args args;
    attnkit_exec exec;
    float *q, *kv, *out;
    int64_t *kv_lens;
    size_t q_floats, k_floats, v_floats, out_floats;
    int64_t copies, next;
    attnkit_status status; /* of the last call */
};

/* ------------------------------------------------------------------------------- the memory */

static bool is_decode(const struct shape *shape)
{
    return shape->q_len == 1;
}

static void set_sizes(const struct shape *s, struct call *call)
{
    const size_t rows = (size_t)(s->batch * s->q_heads) * (size_t)s->q_len;
    const size_t keys = (size_t)(s->batch * s->kv_heads) * (size_t)s->kv_len;
    call->q_floats = rows * (size_t)s->head_dim;
    call->k_floats = keys * (size_t)s->head_dim;
    call->v_floats = keys * (size_t)s->value_dim;
    call->out_floats = rows * (size_t)s->value_dim;
    const size_t kv_bytes = (call->k_floats + call->v_floats) * sizeof(float);
    call->copies = is_decode(s) ? (int64_t)((level_buffer(0) - 1) / kv_bytes) + 1 : 1;
}

static double megabytes(const struct call *call)
{
    const double kv_floats = (double)(call->k_floats + call->v_floats) * (double)call->copies;
    const double floats = (double)call->q_floats + kv_floats + (double)call->out_floats;
    return (floats * sizeof(float) + (double)call->exec.workspace_size) * 1e-6;
}

/* Linux promises more than it has, and kills who takes it at its word. */
static bool fits(const struct call *call)
{
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) * 1e-6;
    return megabytes(call) < 0.75 * memory;
}

/* `count` floats from a cache line on, in [-1, 1). */
static float *draw(size_t count, uint64_t seed)
{
    const size_t line = 64, bytes = (count * sizeof(float) + line - 1) / line * line;
    float *floats = aligned_alloc(line, bytes);
    for (size_t i = 0; floats && i < count; i++)
        floats[i] = random_uniform(&seed);
    return floats;
}

static bool take_memory(const struct shape *s, struct call *call)
{
    if (!fits(call))
        return false;
    call->q = draw(call->q_floats, 1);
    call->kv = draw((call->k_floats + call->v_floats) * (size_t)call->copies, 2);
    call->out = draw(call->out_floats, 3);
    call->exec.workspace = malloc(call->exec.workspace_size ? call->exec.workspace_size : 1);
    call->kv_lens = malloc((size_t)s->batch * sizeof *call->kv_lens);
    return call->q && call->kv && call->out && call->exec.workspace && call->kv_lens;
}

static void release(struct call *call)
{
    free(call->q);
    free(call->kv);
    free(call->out);
    free(call->exec.workspace);
    free(call->kv_lens);
}

/* --------------------------------------------------------------------------------- the call */

static void describe(const struct row *row, struct pool *pool, struct call *call)
{
    const struct shape *const s = &row->shape;
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
    };
    call->exec = (attnkit_exec){
        .size = sizeof call->exec,
        .isa = row->isa->name,
        .threads = row->threads,
        .parallel_for = pool ? pool_for : NULL,
        .pool = pool,
    };
}

static void point_to_memory(const struct shape *s, struct call *call)
{
    call->args.q = call->q;
    call->args.k = call->kv;
    call->args.v = call->kv + call->k_floats;
    call->args.out = call->out;
    for (int64_t b = 0; s->padded && b < s->batch; b++)
        call->kv_lens[b] = shape_keys(s, b);
    call->args.kv_lens = s->padded ? call->kv_lens : NULL;
}

static void make_call(void *argument)
{
    struct call *const call = argument;
    const float *const k = call->kv + (size_t)call->next * (call->k_floats + call->v_floats);
    call->args.k = k;
    call->args.v = k + call->k_floats;
    call->next = (call->next + 1) % call->copies;
    call->status = attnkit_attention(&call->args, &call->exec, NULL);
}

static bool prepare(const struct row *row, struct pool *pool, struct call *call,
                    struct result *result)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    describe(row, pool, call);
    if (attnkit_attention_workspace(&call->args, &call->exec, &call->exec.workspace_size,
                                    message) != ATTNKIT_OK) {
        row_fails(result, "%s", message);
        return false;
    }
    set_sizes(&row->shape, call);
    if (!take_memory(&row->shape, call)) {
        row_fails(result, "no memory: needs %.0f MB", megabytes(call));
        return false;
    }
    point_to_memory(&row->shape, call);
    return true;
}

/* ------------------------------------------------------------------------------ measuring it */

static bool make_roof(const struct row *row, struct pool *pool, struct roof *roof)
{
    const char *const isa = row->isa->name;
    if (is_decode(&row->shape))
        return roof_read(roof, isa, pool, level_buffer(0));
    return roof_fma(roof, isa, pool);
}

static void measure_call(const struct row *row, struct pool *pool, struct patience patience,
                         struct result *result)
{
    struct roof roof = {0};
    struct call call = {0};
    if (!prepare(row, pool, &call, result)) {
        release(&call);
        return;
    }
    if (make_roof(row, pool, &roof)) {
        result->work.flops = is_decode(&row->shape) ? 0.0 : shape_flops(&row->shape);
        result->work.bytes = is_decode(&row->shape) ? shape_kv_bytes(&row->shape) : 0.0;
        const struct subject subject = {make_call, &call, result->work.flops + result->work.bytes,
                                        pool};
        measure(&subject, &roof, patience, &result->figures);
        if (call.status != ATTNKIT_OK)
            row_fails(result, "%s", attnkit_status_string(call.status));
    } else {
        row_fails(result, "no loops for the roof of %s, or no memory", row->isa->name);
    }
    roof_free(&roof);
    release(&call);
}

static void run(const struct row *row, struct patience patience, struct result *result)
{
    if (row->threads > pool_processors()) {
        row_fails(result, "needs %d processors, may use %d", row->threads, pool_processors());
        return;
    }
    struct pool *const pool = row->threads > 1 ? pool_start(row->threads) : NULL;
    if (row->threads > 1 && !pool)
        row_fails(result, "cannot start %d threads", row->threads);
    else
        measure_call(row, pool, patience, result);
    if (pool)
        pool_stop(pool);
}

/* ---------------------------------------------------------------------------------- the rows */

void add_attention_row(struct row_list *rows, const struct shape *shape, const struct isa *isa,
                       int threads, bool quick)
{
    char text[SHAPE_TEXT], suffix[16] = "";
    if (threads > 1)
        snprintf(suffix, sizeof suffix, "/t%d", threads);
    struct row *row = rows_add(rows, "%s/f32/%s/%s%s", is_decode(shape) ? "decode" : "prefill",
                               isa->name, shape_text(shape, text), suffix);
    row->shape = *shape;
    row->isa = isa;
    row->threads = threads;
    row->quick = quick;
    row->run = run;
}

static void add_workload(struct row_list *rows, const struct workload *workload,
                         const struct isa *isa)
{
    struct shape shape;
    const bool quick = workload->flags & QUICK;
    if (!shape_parse(workload->shape, &shape))
        abort();
    add_attention_row(rows, &shape, isa, 1, quick);
    if (workload->flags & PAIR)
        add_attention_row(rows, &shape, isa, 2, quick);
}

void add_attention_rows(struct row_list *rows)
{
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = count - 1; i >= 0; i--) {
        const bool scalar = !strcmp(isas[i].name, "scalar");
        if (!attnkit_isa_can_run(&isas[i]))
            continue;
        for (size_t w = 0; w < sizeof workloads / sizeof *workloads; w++)
            if (!scalar || workloads[w].flags & SMALL)
                add_workload(rows, &workloads[w], &isas[i]);
    }
}
