/* SPDX-License-Identifier: Apache-2.0
 *
 * The public call of token embeddings: every id is checked before a row is written, then threads
 * share out the rows, which are copied, converted, or zeros.
 */
#include "dispatch/cache/cache.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/linear/matrix.h"
#include "dispatch/common/versioned.h"

enum {
    PIECE = 256, /* elements that are converted at once, a multiple of Q8_BLOCK */
};

/* What a call comes to once it has been checked. */
struct plan {
    int64_t count, vocab, dim;
    enum type table_type, out_type;
    bool ids_64, has_padding;
    int64_t padding_id;
    struct matrix ids, table, out;
    attnkit_exec exec;
    const struct kernels *kernels;
    int64_t shares;
};

static int64_t id_at(const struct plan *plan, int64_t i)
{
    const void *const ids = plan->ids.tensor.data;
    return plan->ids_64 ? ((const int64_t *)ids)[i] : ((const int32_t *)ids)[i];
}

static bool is_padding(const struct plan *plan, int64_t id)
{
    return plan->has_padding && id == plan->padding_id;
}

/* -------------------------------------------------------------------------------- checks */

static attnkit_status check_options(const attnkit_embed_args *args, char *message)
{
    const uint32_t known = ATTNKIT_STRIDED | ATTNKIT_PADDING_GIVEN | ATTNKIT_IDS_64;
    if (args->flags & ~known)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~known));
    if (!(args->flags & ATTNKIT_PADDING_GIVEN) && args->padding_id != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "padding_id is %lld, but flags lacks ATTNKIT_PADDING_GIVEN",
                      (long long)args->padding_id);
    return ATTNKIT_OK;
}

static attnkit_status check_dims(const attnkit_embed_args *args, char *message)
{
    const struct {
        const char *name;
        int64_t value, smallest;
    } dims[] = {{"count", args->count, 0}, {"vocab", args->vocab, 0}, {"dim", args->dim, 1}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < dims[i].smallest)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least %lld",
                          dims[i].name, (long long)dims[i].value, (long long)dims[i].smallest);
    attnkit_status status =
        attnkit_check_matrix_type("table_type", args->table_type, "dim", args->dim, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rounded("out_type", args->out_type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_matrix_size("vocab", args->vocab, "dim", args->dim, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_matrix_size("count", args->count, "dim", args->dim, message);
    return status;
}

static attnkit_status set_tensors(const attnkit_embed_args *args, struct plan *plan, char *message)
{
    attnkit_set_matrix(&plan->out, "out", "out_stride", args->out, plan->out_type, plan->count,
                       plan->dim, args->out_stride);
    attnkit_set_matrix(&plan->table, "table", "table_stride", args->table, plan->table_type,
                       plan->vocab, plan->dim, args->table_stride);
    attnkit_set_matrix(&plan->ids, "ids", "ids", args->ids, TYPE_F32, plan->count, 1, 0);
    plan->ids.tensor.row_bytes = plan->ids_64 ? sizeof(int64_t) : sizeof(int32_t);
    plan->ids.tensor.alignment = plan->ids.tensor.row_bytes;
    plan->out.tensor.output = true;
    attnkit_status status = attnkit_set_strides(&plan->out.tensor, args->flags, message);
    if (status == ATTNKIT_OK)
        status = attnkit_set_strides(&plan->table.tensor, args->flags, message);
    if (status == ATTNKIT_OK)
        status = attnkit_set_strides(&plan->ids.tensor, 0, message);
    return status;
}

static attnkit_status check_shape(const attnkit_embed_args *theirs, struct plan *plan,
                                  char *message)
{
    attnkit_embed_args args = {0};
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    attnkit_status status =
        read_struct(&args, sizeof args, sizeof args, theirs, "attnkit_embed_args", message);
    if (status == ATTNKIT_OK)
        status = check_options(&args, message);
    if (status == ATTNKIT_OK)
        status = check_dims(&args, message);
    if (status != ATTNKIT_OK)
        return status;
    *plan = (struct plan){
        .count = args.count,
        .vocab = args.vocab,
        .dim = args.dim,
        .table_type = (enum type)args.table_type,
        .out_type = (enum type)args.out_type,
        .ids_64 = args.flags & ATTNKIT_IDS_64,
        .has_padding = args.flags & ATTNKIT_PADDING_GIVEN,
        .padding_id = args.padding_id,
    };
    return set_tensors(&args, plan, message);
}

static attnkit_status check_ids(const struct plan *plan, char *message)
{
    for (int64_t i = 0; i < plan->count; i++) {
        const int64_t id = id_at(plan, i);
        if ((id < 0 || id >= plan->vocab) && !is_padding(plan, id))
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "ids[%lld] is %lld: must be at least 0 and below vocab (%lld)",
                          (long long)i, (long long)id, (long long)plan->vocab);
    }
    return ATTNKIT_OK;
}

static attnkit_status check_memory(const struct plan *plan, char *message)
{
    const struct tensor tensors[] = {plan->out.tensor, plan->table.tensor, plan->ids.tensor};
    const attnkit_status status = attnkit_check_tensors(tensors, 3, message);
    return status == ATTNKIT_OK ? check_ids(plan, message) : status;
}

/* ---------------------------------------------------------------------------------- rows */

static void look_up(const struct plan *plan, int64_t id, char *out)
{
    const char *const row = (const char *)plan->table.tensor.data + id * plan->table.stride.row;
    const enum type from = plan->table_type, to = plan->out_type;
    float x[PIECE];
    if (from == to) {
        memcpy(out, row, (size_t)bytes_of(from, plan->dim));
        return;
    }
    for (int64_t d = 0; d < plan->dim; d += PIECE) {
        const int64_t n = plan->dim - d < PIECE ? plan->dim - d : PIECE;
        plan->kernels->widen(from, row + bytes_of(from, d), NULL, 0, n, x);
        plan->kernels->narrow(to, x, n, 0, out + bytes_of(to, d), NULL);
    }
}

static void run_share(void *arg, int64_t share)
{
    const struct plan *plan = arg;
    if (share < 0 || share >= plan->shares)
        return;
    const fp_modes callers = fp_modes_begin();
    const int64_t end = first_of_share(plan->count, plan->shares, share + 1);
    for (int64_t i = first_of_share(plan->count, plan->shares, share); i < end; i++) {
        char *const out = (char *)plan->out.tensor.data + i * plan->out.stride.row;
        const int64_t id = id_at(plan, i);
        if (is_padding(plan, id))
            memset(out, 0, (size_t)bytes_of(plan->out_type, plan->dim));
        else
            look_up(plan, id, out);
    }
    fp_modes_end(callers);
}

attnkit_status attnkit_embed(const attnkit_embed_args *args, const attnkit_exec *exec,
                             char *message)
{
    struct plan plan;
    struct isa_choice choice;
    attnkit_status status = check_shape(args, &plan, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &plan.exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(plan.exec.isa, &choice, message);
    if (status == ATTNKIT_OK && plan.count > 0)
        status = check_memory(&plan, message);
    if (status != ATTNKIT_OK)
        return status;
    if (plan.count == 0)
        return accept(message);
    plan.kernels = choice.isa->kernels;
    plan.shares = plan.exec.threads < plan.count ? plan.exec.threads : plan.count;
    attnkit_run_tasks(&plan.exec, plan.shares, run_share, &plan);
    return accept(message);
}
