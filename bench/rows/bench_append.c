/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of append for the worker of `attnkit compare`. `attnkit bench` does not measure appends.
 * The point append/f16/avx2/B1_H8_L128_D128 rotates 128 rows of K for each of 8 heads, with cosines
 * and sines from tables, and writes the rows to an f16 cache.
 */
#include <stdlib.h>

#include "bench/rows/calls.h"
#include "bench/rows/kv.h"

/* An append and its memory. */
struct append_bench {
    attnkit_append_args args;
    attnkit_exec exec;
    struct kv kv;
    attnkit_rotation rotation;
    float *source, *cosines, *sines;
    attnkit_status status; /* status of the last call */
};

static size_t out_bytes(const struct append_bench *call)
{
    return call->kv.v.rows - call->kv.k.rows; /* K and its scales */
}

static void make_call(void *argument)
{
    struct append_bench *const call = argument;
    call->status = attnkit_append(&call->args, &call->exec, NULL);
}

static bool take_memory(const struct row *row, struct append_bench *call)
{
    const struct shape *const s = &row->shape;
    const size_t pairs = (size_t)(s->kv_len * s->head_dim / 2);
    kv_plan(row, false, &call->kv);
    call->source = draw(2 * pairs * (size_t)(s->batch * s->kv_heads), 1);
    call->cosines = draw(pairs, 2);
    call->sines = draw(pairs, 3);
    call->exec = exec_of(row, NULL);
    call->exec.workspace_size = kv_append_workspace(&call->kv.k);
    call->exec.workspace = malloc(call->exec.workspace_size);
    return call->source && call->cosines && call->sines && call->exec.workspace &&
           copies_take(&call->kv.copies);
}

static void describe(const struct row *row, struct append_bench *call)
{
    call->args = kv_append_args(row, &call->kv, &call->kv.k, call->source);
    call->rotation = (attnkit_rotation){.size = sizeof call->rotation,
                                        .kind = ATTNKIT_ROPE_HALF,
                                        .cos = call->cosines,
                                        .sin = call->sines,
                                        .table_positions = row->shape.kv_len};
    call->args.rotation = &call->rotation;
}

void run_append(const struct row *row, struct patience patience, struct result *result)
{
    struct append_bench call = {0};
    if (take_memory(row, &call)) {
        describe(row, &call);
        const struct row_call out = {make_call, &call, call.kv.copies.memory, out_bytes(&call)};
        measure_calls(row, NULL, patience, &out, result);
        if (call.status != ATTNKIT_OK)
            row_fails(result, "%s", attnkit_status_string(call.status));
    } else {
        row_fails(result, "no memory");
    }
    free(call.source);
    free(call.cosines);
    free(call.sines);
    free(call.exec.workspace);
    free(call.kv.copies.memory);
}
