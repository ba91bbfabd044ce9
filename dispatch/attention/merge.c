/* SPDX-License-Identifier: Apache-2.0
 *
 * The public call that merges partial results of attention. The call checks every argument, divides
 * the rows into shares of about equal size, and runs the shares.
 */
#include "kernels/attention/merge.h"

#include "dispatch/cache/cache.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/common/tensor.h"
#include "dispatch/common/versioned.h"

enum {
    ELEMENT = sizeof(float), /* bytes of an element of every tensor but out */
    MOST_SHARES = 1024,      /* threads with a share; further threads have nothing to do */
};

/* A call that has passed every check. */
struct checked_merge {
    struct merge m;
    const struct kernels *kernels;
    int64_t rows, shares;
    bool done[MOST_SHARES]; /* shares that have been merged; in a merge in place, a second merge of
                             * a share would be wrong */
};

static const struct version args_version = VERSION_OF(attnkit_merge_args, lse);

static attnkit_status check_f32(const char *name, attnkit_type type, char *message)
{
    if (type == ATTNKIT_F32)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_UNSUPPORTED, "%s.type is %d: must be ATTNKIT_F32 (0)", name,
                  (int)type);
}

static attnkit_status check_types(const attnkit_merge_args *args, char *message)
{
    attnkit_status status = attnkit_check_rounded("out.type", args->out.type, message);
    if (status == ATTNKIT_OK)
        status = check_f32("lse", args->lse.type, message);
    if (status == ATTNKIT_OK)
        status = check_f32("part_out", args->part_out.type, message);
    if (status == ATTNKIT_OK)
        status = check_f32("part_lse", args->part_lse.type, message);
    if (status != ATTNKIT_OK)
        return status;
    if (args->part_out.data || args->part_lse.data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is given: must be NULL, the addresses of the parts are in %s",
                      args->part_out.data ? "part_out.data" : "part_lse.data",
                      args->part_out.data ? "part_outs" : "part_lses");
    return ATTNKIT_OK;
}

static attnkit_status check_dims(const attnkit_merge_args *args, int64_t *rows, char *message)
{
    const struct {
        const char *name;
        int64_t value, smallest;
    } dims[] = {{"parts", args->parts, 0},
                {"batch", args->batch, 0},
                {"q_heads", args->q_heads, 0},
                {"q_len", args->q_len, 0},
                {"value_dim", args->value_dim, 1}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < dims[i].smallest)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least %lld",
                          dims[i].name, (long long)dims[i].value, (long long)dims[i].smallest);
    int64_t bytes;
    if (__builtin_mul_overflow(args->value_dim, (int64_t)ELEMENT, &bytes))
        return refuse(message, ATTNKIT_OVERFLOW,
                      "value_dim is %lld: the bytes of a row exceed 63 bits",
                      (long long)args->value_dim);
    if (__builtin_mul_overflow(args->parts, (int64_t)sizeof(void *), &bytes))
        return refuse(message, ATTNKIT_OVERFLOW,
                      "parts is %lld: the bytes of part_outs exceed 63 bits",
                      (long long)args->parts);
    if (__builtin_mul_overflow(args->q_heads, args->q_len, rows) ||
        __builtin_mul_overflow(args->batch, *rows, rows))
        return refuse(message, ATTNKIT_OVERFLOW,
                      "batch x q_heads x q_len is %lld x %lld x %lld: beyond 63 bits",
                      (long long)args->batch, (long long)args->q_heads, (long long)args->q_len);
    return ATTNKIT_OK;
}

/* The tensors of a call: the outputs, then out and lse of one part at a time. */
enum { OUT, LSE, OUTPUTS, PART_OUT = OUTPUTS, PART_LSE, TENSORS };

/* Returns a tensor with the call's shape, whose rows have `dim` elements of binary32. plan_tensors
 * changes the tensor of out to the type of out. */
static struct tensor f32_rows(const attnkit_merge_args *args, const char *name, int64_t dim)
{
    return (struct tensor){
        .name = name,
        .count = {args->batch, args->q_heads, args->q_len},
        .row_bytes = dim * ELEMENT,
        .alignment = ELEMENT,
    };
}

/* Plans the tensors. An absent lse takes no bytes, and its strides are not read. */
static attnkit_status plan_tensors(const attnkit_merge_args *args, struct merge *m,
                                   struct tensor tensors[TENSORS], char *message)
{
    const attnkit_tensor *const theirs[TENSORS] = {&args->out, &args->lse, &args->part_out,
                                                   &args->part_lse};
    struct strides *const strides[TENSORS] = {&m->out_stride, &m->lse_stride, &m->part_out_stride,
                                              &m->part_lse_stride};
    tensors[OUT] = f32_rows(args, "out", args->value_dim);
    tensors[OUT].row_bytes = bytes_of(m->out_type, args->value_dim);
    tensors[OUT].alignment = (int32_t)attnkit_alignment(m->out_type);
    tensors[LSE] = f32_rows(args, "lse", 1);
    tensors[PART_OUT] = f32_rows(args, "part_out", args->value_dim);
    tensors[PART_LSE] = f32_rows(args, "part_lse", 1);
    tensors[OUT].output = tensors[LSE].output = true;
    for (int i = 0; i < TENSORS; i++) {
        struct tensor *const t = &tensors[i];
        if (i == LSE && !args->lse.data)
            continue;
        attnkit_status status =
            attnkit_check_layout(t->name, theirs[i]->layout, ATTNKIT_STRIDED, message);
        if (status == ATTNKIT_OK)
            status = attnkit_plan_tensor(t, theirs[i], message);
        if (status != ATTNKIT_OK)
            return status;
        *strides[i] = strides_of(t);
    }
    return ATTNKIT_OK;
}

/* --------------------------------------------------------------------------------- memory */

static attnkit_status bind_part(const struct merge *m, const struct tensor tensors[TENSORS],
                                int64_t part, struct memory memory[TENSORS], char *message)
{
    attnkit_status status =
        attnkit_bind(&memory[PART_OUT], &tensors[PART_OUT], m->part_outs[part], message);
    if (status == ATTNKIT_OK)
        status = attnkit_bind(&memory[PART_LSE], &tensors[PART_LSE], m->part_lses[part], message);
    if (status != ATTNKIT_OK)
        return status;
    memory[PART_OUT].in_place = m->out_type == TYPE_F32 ? &memory[OUT] : NULL;
    memory[PART_LSE].in_place = &memory[LSE];
    return attnkit_check_overlaps(memory, TENSORS, message);
}

/* Checks the memory of a part. The name of the part is only written for the message of a
 * refusal. */
static attnkit_status check_part(const struct merge *m, struct tensor tensors[TENSORS],
                                 int64_t part, struct memory memory[TENSORS], char *message)
{
    if (bind_part(m, tensors, part, memory, NULL) == ATTNKIT_OK)
        return ATTNKIT_OK;
    char out[40], lse[40];
    snprintf(out, sizeof out, "part_outs[%lld]", (long long)part);
    snprintf(lse, sizeof lse, "part_lses[%lld]", (long long)part);
    tensors[PART_OUT].name = out;
    tensors[PART_LSE].name = lse;
    return bind_part(m, tensors, part, memory, message);
}

static attnkit_status check_memory(const struct merge *m, struct tensor tensors[TENSORS],
                                   char *message)
{
    struct memory memory[TENSORS];
    attnkit_status status = attnkit_bind(&memory[OUT], &tensors[OUT], m->out, message);
    if (status == ATTNKIT_OK)
        status = attnkit_bind(&memory[LSE], &tensors[LSE], m->lse, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_overlaps(memory, OUTPUTS, message);
    if (status != ATTNKIT_OK || m->parts == 0)
        return status;
    if (!m->part_outs || !m->part_lses)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is NULL: parts is %lld",
                      m->part_outs ? "part_lses" : "part_outs", (long long)m->parts);
    for (int64_t part = 0; part < m->parts && status == ATTNKIT_OK; part++)
        status = check_part(m, tensors, part, memory, message);
    return status;
}

static attnkit_status check(const attnkit_merge_args *args, struct checked_merge *call,
                            char *message)
{
    attnkit_status status = check_types(args, message);
    if (status == ATTNKIT_OK)
        status = check_dims(args, &call->rows, message);
    if (status != ATTNKIT_OK)
        return status;
    call->m = (struct merge){
        .parts = args->parts,
        .batch = args->batch,
        .heads = args->q_heads,
        .q_len = args->q_len,
        .value_dim = args->value_dim,
        .part_outs = args->part_outs,
        .part_lses = args->part_lses,
        .out = (char *)(uintptr_t)args->out.data,
        .lse = (char *)(uintptr_t)args->lse.data,
        .out_type = (enum type)args->out.type,
    };
    struct tensor tensors[TENSORS];
    status = plan_tensors(args, &call->m, tensors, message);
    if (status != ATTNKIT_OK || call->rows == 0)
        return status;
    return check_memory(&call->m, tensors, message);
}

/* ----------------------------------------------------------------------------------- rows */

static void run_share(void *arg, int64_t share)
{
    struct checked_merge *call = arg;
    if (share < 0 || share >= call->shares || call->done[share])
        return;
    const fp_modes callers = fp_modes_begin();
    attnkit_merge_rows(&call->m, call->kernels, first_of_share(call->rows, call->shares, share),
                       first_of_share(call->rows, call->shares, share + 1));
    fp_modes_end(callers);
    call->done[share] = true;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

attnkit_status attnkit_merge(const attnkit_merge_args *args, const attnkit_exec *exec,
                             char *message)
{
    struct checked_merge call = {0};
    attnkit_merge_args copy;
    const void *read;
    attnkit_exec ours;
    struct isa_choice choice;
    if (!args)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    attnkit_status status = read_struct(&args_version, args, &copy, &read, message);
    if (status == ATTNKIT_OK)
        status = check(read, &call, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &ours, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(ours.isa, &choice, message);
    if (status != ATTNKIT_OK)
        return status;
    if (call.rows == 0)
        return accept(message);
    call.kernels = choice.kernels;
    call.shares = smaller(ours.threads, smaller(call.rows, MOST_SHARES));
    attnkit_run_tasks(&ours, call.shares, run_share, &call);
    return accept(message);
}
