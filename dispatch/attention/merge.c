/* SPDX-License-Identifier: Apache-2.0
 *
 * The public call that merges partial results of attention: checks every argument, cuts the rows
 * into shares of equal size and runs them.
 */
#include "kernels/attention/merge.h"

#include "dispatch/cache/cache.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/common/tensor.h"
#include "dispatch/common/versioned.h"

enum {
    ELEMENT = sizeof(float), /* bytes; every tensor but out is f32 */
    MOST_SHARES = 1024,      /* threads beyond it have nothing to do */
};

/* A call that has passed every check. */
struct call {
    struct merge m;
    const struct kernels *kernels;
    int64_t rows, shares;
    bool done[MOST_SHARES]; /* a share that runs again must not merge what it has merged in place */
};

static attnkit_status check_options(const attnkit_merge_args *args, char *message)
{
    if (args->flags & ~ATTNKIT_STRIDED)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~ATTNKIT_STRIDED));
    return attnkit_check_rounded("out_type", args->out_type, message);
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
        return refuse(message, ATTNKIT_OVERFLOW, "value_dim is %lld: a row is beyond 63 bits",
                      (long long)args->value_dim);
    if (__builtin_mul_overflow(args->parts, (int64_t)sizeof(void *), &bytes))
        return refuse(message, ATTNKIT_OVERFLOW, "parts is %lld: part_outs is beyond 63 bits",
                      (long long)args->parts);
    if (__builtin_mul_overflow(args->q_heads, args->q_len, rows) ||
        __builtin_mul_overflow(args->batch, *rows, rows))
        return refuse(message, ATTNKIT_OVERFLOW, "batch x q_heads x q_len is %lld x %lld x %lld",
                      (long long)args->batch, (long long)args->q_heads, (long long)args->q_len);
    return ATTNKIT_OK;
}

/* The outputs, and one part at a time. */
enum { OUT, LSE, OUTPUTS, PART_OUT = OUTPUTS, PART_LSE, TENSORS };

struct tensors {
    struct tensor list[TENSORS];
    struct layout layouts[TENSORS];
};

/* What all four have in common; out may be of another type. */
static struct tensor f32_rows(const attnkit_merge_args *args, const char *name, const void *data,
                              int64_t dim)
{
    return (struct tensor){
        .name = name,
        .data = data,
        .count = {args->batch, args->q_heads, args->q_len},
        .row_bytes = dim * ELEMENT,
        .alignment = ELEMENT,
    };
}

static void add_strides(struct tensor *t, const char *name, const int64_t *strides,
                        struct strides *checked)
{
    t->strides_name = name;
    t->strides = strides;
    t->stride = checked;
}

/* An absent lse has no rows. The parts' data are not set. */
static void list_tensors(const attnkit_merge_args *args, struct merge *m, struct tensors *t)
{
    struct tensor *list = t->list;
    list[OUT] = f32_rows(args, "out", args->out, args->value_dim);
    list[OUT].row_bytes = bytes_of(m->out_type, args->value_dim);
    list[OUT].alignment = attnkit_alignment(m->out_type);
    list[LSE] = f32_rows(args, "lse", args->lse, 1);
    list[PART_OUT] = f32_rows(args, "part_outs", NULL, args->value_dim);
    list[PART_LSE] = f32_rows(args, "part_lses", NULL, 1);
    add_strides(&list[OUT], "out_strides", args->out_strides, &m->out_stride);
    add_strides(&list[LSE], "lse_strides", args->lse_strides, &m->lse_stride);
    add_strides(&list[PART_OUT], "part_out_strides", args->part_out_strides, &m->part_out_stride);
    add_strides(&list[PART_LSE], "part_lse_strides", args->part_lse_strides, &m->part_lse_stride);
    for (int i = 0; i < TENSORS; i++) {
        list[i].layout = &t->layouts[i];
        list[i].output = i < OUTPUTS;
        if (i >= OUTPUTS)
            list[i].in_place = &list[i - OUTPUTS];
    }
    if (m->out_type != TYPE_F32)
        list[PART_OUT].in_place = NULL;
    if (!args->lse)
        list[LSE].count[0] = 0;
}

static attnkit_status set_strides(const attnkit_merge_args *args, const struct tensors *t,
                                  char *message)
{
    for (int i = 0; i < TENSORS; i++) {
        if (i == LSE && !args->lse)
            continue;
        const attnkit_status status = attnkit_set_strides(&t->list[i], args->flags, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return ATTNKIT_OK;
}

/* Names that say which part are only written for one that is refused. */
static attnkit_status check_part(struct tensors *t, int64_t part, char *message)
{
    if (attnkit_check_tensors(t->list, TENSORS, NULL) == ATTNKIT_OK)
        return ATTNKIT_OK;
    char out[40], lse[40];
    snprintf(out, sizeof out, "part_outs[%lld]", (long long)part);
    snprintf(lse, sizeof lse, "part_lses[%lld]", (long long)part);
    t->list[PART_OUT].name = out;
    t->list[PART_LSE].name = lse;
    return attnkit_check_tensors(t->list, TENSORS, message);
}

static attnkit_status check_tensors(const attnkit_merge_args *args, struct tensors *t,
                                    char *message)
{
    attnkit_status status = attnkit_check_tensors(t->list, OUTPUTS, message);
    if (status != ATTNKIT_OK || args->parts == 0)
        return status;
    if (!args->part_outs || !args->part_lses)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is NULL: parts is %lld",
                      args->part_outs ? "part_lses" : "part_outs", (long long)args->parts);
    for (int64_t part = 0; part < args->parts && status == ATTNKIT_OK; part++) {
        t->list[PART_OUT].data = args->part_outs[part];
        t->list[PART_LSE].data = args->part_lses[part];
        status = check_part(t, part, message);
    }
    return status;
}

static attnkit_status check(const attnkit_merge_args *theirs, struct call *call, char *message)
{
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    attnkit_merge_args args = {0};
    attnkit_status status =
        read_struct(&args, sizeof args, sizeof args, theirs, "attnkit_merge_args", message);
    if (status == ATTNKIT_OK)
        status = check_options(&args, message);
    if (status == ATTNKIT_OK)
        status = check_dims(&args, &call->rows, message);
    if (status != ATTNKIT_OK)
        return status;
    call->m = (struct merge){
        .parts = args.parts,
        .batch = args.batch,
        .heads = args.q_heads,
        .q_len = args.q_len,
        .value_dim = args.value_dim,
        .part_outs = args.part_outs,
        .part_lses = args.part_lses,
        .out = args.out,
        .lse = (char *)args.lse,
        .out_type = (enum type)args.out_type,
    };
    struct tensors tensors;
    list_tensors(&args, &call->m, &tensors);
    status = set_strides(&args, &tensors, message);
    if (status != ATTNKIT_OK || call->rows == 0)
        return status;
    return check_tensors(&args, &tensors, message);
}

/* The first row of a share; the shares differ by one row at most. */
static int64_t first_row(const struct call *call, int64_t share)
{
    const int64_t longer = call->rows % call->shares;
    return call->rows / call->shares * share + (share < longer ? share : longer);
}

static void run_share(void *arg, int64_t share)
{
    struct call *call = arg;
    if (share < 0 || share >= call->shares || call->done[share])
        return;
    const fp_modes callers = fp_modes_begin();
    attnkit_merge_rows(&call->m, call->kernels, first_row(call, share), first_row(call, share + 1));
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
    struct call call = {0};
    attnkit_exec ours;
    struct isa_choice choice;
    attnkit_status status = check(args, &call, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &ours, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(ours.isa, &choice, message);
    if (status != ATTNKIT_OK)
        return status;
    if (call.rows == 0)
        return accept(message);
    call.kernels = choice.isa->kernels;
    call.shares = smaller(ours.threads, smaller(call.rows, MOST_SHARES));
    attnkit_run_tasks(&ours, call.shares, run_share, &call);
    return accept(message);
}
