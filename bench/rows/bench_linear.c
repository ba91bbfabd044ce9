/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the benches that measure linear maps. linear/q8_0/avx2/R1_I4096_O4096/t2 is one row times
 * a packed Q8_0 matrix of 4096 inputs and 4096 outputs, by the AVX2 kernels, on two threads.
 * Outputs are f32, and there is no bias. Inputs are f32, or bf16 if the types begin with bf16_, as
 * in linear/bf16_bf16. With _integers in the name, the inputs are rounded to integers, and integers
 * are multiplied. Without /warm in the name, the matrix is in no cache before a call. In a language
 * model, the matrix is in no cache either, because the matrices of other layers are read between
 * two calls.
 */
#include <stdlib.h>

#include "bench/rows/calls.h"

enum { PACKED_TYPES = F32 | F16 | BF16 | Q8_0 };

static const struct workload workloads[] = {
    {"R512_I4096_O4096", F32, 1, BEST_IS_QUICK, false},
    {"R512_I4096_O4096", F16 | BF16 | Q8_0, 1, NEVER_QUICK, false},
    {"R512_I4096_O4096", BF16_BF16, 1, NEVER_QUICK, false},
    {"R512_I4096_O4096_integers", Q8_0, 1, NEVER_QUICK, false},
    {"R512_I4096_O4096", PACKED_TYPES, 2, NEVER_QUICK, false},
    {"R32_I4096_O4096", PACKED_TYPES, 1, NEVER_QUICK, false},
    {"R8_I4096_O4096", PACKED_TYPES, 1, NEVER_QUICK, false},
    {"R1_I4096_O4096", F32, 1, BEST_IS_QUICK, false},
    {"R1_I4096_O4096", F16 | BF16 | Q8_0, 1, NEVER_QUICK, false},
    {"R1_I4096_O4096_integers", Q8_0, 1, NEVER_QUICK, false},
    {"R1_I4096_O4096", PACKED_TYPES, 2, NEVER_QUICK, false},
    {"R384_I768_O768", F32, 1, NEVER_QUICK, false},
    {"R37_I256_O203", F32, 1, NEVER_QUICK, true},
};

/* A call and its memory. */
struct linear_bench {
    attnkit_linear_args args;
    attnkit_exec exec;
    struct copies matrices;
    size_t packed_size; /* bytes of a matrix */
    void *x;
    float *y;
    attnkit_status status; /* status of the last call */
};

/* ------------------------------------------------------------------------------- the memory */

static size_t floats_of(int64_t rows, int64_t dim)
{
    return (size_t)rows * (size_t)dim;
}

/* Returns the total number of floats in the unpacked matrix, x and y. */
static double floats_needed(const struct linear_shape *s)
{
    return (double)s->in_dim * (double)s->out_dim +
           (double)s->rows * (double)(s->in_dim + s->out_dim);
}

static attnkit_pack_args describe_packing(const struct row *row)
{
    return (attnkit_pack_args){
        .size = sizeof(attnkit_pack_args),
        .out_dim = row->linear.out_dim,
        .in_dim = row->linear.in_dim,
        .packed_type = row->type,
    };
}

static bool pack(const struct row *row, struct linear_bench *call, struct result *result)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_pack_args args = describe_packing(row);
    float *const w = draw(floats_of(row->linear.out_dim, row->linear.in_dim), 1);
    args.w.data = w;
    args.packed = call->matrices.memory;
    args.packed_size = call->packed_size;
    if (!w)
        row_fails(result, "no memory for the matrix");
    else if (attnkit_pack(&args, NULL, message) != ATTNKIT_OK)
        row_fails(result, "%s", message);
    else
        copies_repeat(&call->matrices);
    free(w);
    return !result->problem[0];
}

static bool take_memory(const struct row *row, struct linear_bench *call, struct result *result)
{
    const struct linear_shape *const s = &row->linear;
    const double bytes = floats_needed(s) * sizeof(float) + copies_memory_bytes(&call->matrices) +
                         (double)call->exec.workspace_size;
    if (memory_has(bytes)) {
        call->x = draw_input(row->input, floats_of(s->rows, s->in_dim), 2);
        call->y = draw(floats_of(s->rows, s->out_dim), 3);
        call->exec.workspace = malloc(call->exec.workspace_size);
        if (call->x && call->y && call->exec.workspace && copies_take(&call->matrices))
            return pack(row, call, result);
    }
    row_fails(result, "no memory: needs %.0f MB", bytes * 1e-6);
    return false;
}

static void release(struct linear_bench *call)
{
    free(call->x);
    free(call->y);
    free(call->exec.workspace);
    free(call->matrices.memory);
}

/* --------------------------------------------------------------------------------- the call */

static attnkit_status ask_sizes(const struct row *row, struct linear_bench *call, char *message)
{
    const attnkit_pack_args packing = describe_packing(row);
    attnkit_status status = attnkit_packed_size(&packing, &call->packed_size, message);
    if (status == ATTNKIT_OK)
        status =
            attnkit_linear_workspace(&call->args, &call->exec, &call->exec.workspace_size, message);
    call->matrices = copies_plan(row, call->packed_size, true);
    return status;
}

static bool prepare(const struct row *row, struct pool *pool, struct linear_bench *call,
                    struct result *result)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    call->exec = exec_of(row, pool);
    call->args = (attnkit_linear_args){
        .size = sizeof call->args,
        .rows = row->linear.rows,
        .in_dim = row->linear.in_dim,
        .out_dim = row->linear.out_dim,
        .x = {.type = row->input},
        .w = {.type = row->type},
        .flags = row->linear.integers ? ATTNKIT_INTEGERS : 0,
    };
    if (ask_sizes(row, call, message) != ATTNKIT_OK) {
        row_fails(result, "%s", message);
        return false;
    }
    if (!take_memory(row, call, result))
        return false;
    call->args.x.data = call->x;
    call->args.y.data = call->y;
    return true;
}

static void make_call(void *argument)
{
    struct linear_bench *const call = argument;
    call->args.w.data = copies_next(&call->matrices);
    call->status = attnkit_linear(&call->args, &call->exec, NULL);
}

static double flops_of(const struct linear_shape *shape)
{
    return 2.0 * (double)shape->rows * (double)shape->in_dim * (double)shape->out_dim;
}

/* Returns the total bytes of the packed matrix, x and y. */
static double bytes_moved(const struct row *row, const struct linear_bench *call)
{
    const struct linear_shape *const s = &row->linear;
    const int64_t x_row = type_row_bytes(row->input, s->in_dim);
    const int64_t y_row = s->out_dim * (int64_t)sizeof(float);
    return (double)call->packed_size + (double)s->rows * (double)(x_row + y_row);
}

static void measure_linear(const struct row *row, struct pool *pool, struct patience patience,
                           struct result *result)
{
    struct linear_bench call = {0};
    if (prepare(row, pool, &call, result)) {
        result->work = work_of(flops_of(&row->linear), (double)call.packed_size);
        result->work.intensity = flops_of(&row->linear) / bytes_moved(row, &call);
        const struct linear_shape *const s = &row->linear;
        const struct row_call out = {make_call, &call, call.y,
                                     floats_of(s->rows, s->out_dim) * sizeof *call.y};
        measure_calls(row, pool, patience, &out, result);
        if (call.status != ATTNKIT_OK)
            row_fails(result, "%s", attnkit_status_string(call.status));
    }
    release(&call);
}

void run_linear(const struct row *row, struct patience patience, struct result *result)
{
    on_threads(row, patience, result, measure_linear);
}

void add_linear_rows(struct row_list *rows)
{
    add_workloads(rows, workloads, sizeof workloads / sizeof *workloads);
}
