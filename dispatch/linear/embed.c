/* SPDX-License-Identifier: Apache-2.0
 *
 * The public call of token embeddings. A call checks every id before it writes a row. Then threads
 * share out the rows of the result. Each of these rows is a copied or converted row of the table,
 * or a row of zeros for the padding id.
 */
#include <math.h>

#include "dispatch/cache/cache.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/common/ints.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/linear/matrix.h"
#include "dispatch/common/versioned.h"

enum {
    PIECE = 256, /* elements that are converted at once, a multiple of Q8_BLOCK */
};

static const struct version args_version = VERSION_OF(attnkit_embed_args, padding_id);

/* The tensors of a call, outputs first. */
enum { OUT, TABLE, IDS, TENSORS };

/* A checked call. */
struct embedding {
    int64_t count, vocab, dim;
    enum type table_type, out_type;
    bool has_padding;
    int64_t padding_id;
    struct ints ids;
    const char *table;
    char *out;
    ptrdiff_t table_stride, out_stride;
    struct tensor tensors[TENSORS];
    const struct kernels *kernels;
    int64_t shares;
};

static bool is_padding(const struct embedding *e, int64_t id)
{
    return e->has_padding && id == e->padding_id;
}

/* -------------------------------------------------------------------------------- checks */

static attnkit_status check_options(const attnkit_embed_args *args, char *message)
{
    const uint32_t known = ATTNKIT_PADDING_GIVEN;
    if (args->flags & ~known)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~known));
    if (args->reserved)
        return refuse(message, ATTNKIT_UNSUPPORTED, "reserved is 0x%x: must be 0",
                      (unsigned)args->reserved);
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
        attnkit_check_matrix_type("table.type", args->table.type, "dim", args->dim, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rounded("out.type", args->out.type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_matrix_size("vocab", args->vocab, "dim", args->dim, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_matrix_size("count", args->count, "dim", args->dim, message);
    return status;
}

static attnkit_status plan_tensors(const attnkit_embed_args *args, struct embedding *e,
                                   char *message)
{
    struct tensor *const out = &e->tensors[OUT], *const table = &e->tensors[TABLE];
    struct tensor *const ids = &e->tensors[IDS];
    attnkit_begin_matrix(out, "out", e->out_type, e->count, e->dim);
    attnkit_begin_matrix(table, "table", e->table_type, e->vocab, e->dim);
    attnkit_begin_matrix(ids, "ids", TYPE_F32, e->count, 1);
    out->output = true;
    ids->row_bytes = int_bytes(e->ids);
    ids->alignment = (int32_t)ids->row_bytes;
    attnkit_status status = attnkit_plan_matrix(out, &args->out, message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_matrix(table, &args->table, message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_dense(ids, message);
    e->out_stride = out->stride[2];
    e->table_stride = table->stride[2];
    return status;
}

static attnkit_status check_shape(const attnkit_embed_args *args, struct embedding *e,
                                  char *message)
{
    struct ints ids;
    attnkit_status status = check_options(args, message);
    if (status == ATTNKIT_OK)
        status = check_dims(args, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_ints("ids", args->ids, &ids, message);
    if (status != ATTNKIT_OK)
        return status;
    e->count = args->count;
    e->vocab = args->vocab;
    e->dim = args->dim;
    e->table_type = (enum type)args->table.type;
    e->out_type = (enum type)args->out.type;
    e->has_padding = args->flags & ATTNKIT_PADDING_GIVEN;
    e->padding_id = args->padding_id;
    e->ids = ids;
    e->table = args->table.data;
    e->out = (char *)(uintptr_t)args->out.data;
    return plan_tensors(args, e, message);
}

static attnkit_status check_ids(const struct embedding *e, char *message)
{
    for (int64_t i = 0; i < e->count; i++) {
        const int64_t id = int_at(e->ids, i);
        if ((id < 0 || id >= e->vocab) && !is_padding(e, id))
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "ids[%lld] is %lld: must be at least 0 and below vocab (%lld)%s",
                          (long long)i, (long long)id, (long long)e->vocab,
                          e->has_padding ? ", or padding_id" : "");
    }
    return ATTNKIT_OK;
}

static attnkit_status check_memory(const struct embedding *e, char *message)
{
    const void *const data[TENSORS] = {[OUT] = e->out, [TABLE] = e->table, [IDS] = e->ids.data};
    struct memory memory[TENSORS];
    attnkit_status status = ATTNKIT_OK;
    for (int i = 0; status == ATTNKIT_OK && i < TENSORS; i++)
        status = attnkit_bind(&memory[i], &e->tensors[i], data[i], message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_overlaps(memory, TENSORS, message);
    return status == ATTNKIT_OK ? check_ids(e, message) : status;
}

/* ---------------------------------------------------------------------------------- rows */

/* Turns every NaN into 0x7fc00000. Elements of TYPE_Q8_0 are products of an integer and a scale, so
 * a NaN among them is computed, and its bits could depend on the instruction set. */
static void settle_products(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = isnan(x[i]) ? NAN : x[i];
}

static void look_up(const struct embedding *e, int64_t id, char *out)
{
    const char *const row = e->table + id * e->table_stride;
    const enum type from = e->table_type, to = e->out_type;
    float x[PIECE];
    if (from == to) {
        memcpy(out, row, (size_t)bytes_of(from, e->dim));
        return;
    }
    for (int64_t d = 0; d < e->dim; d += PIECE) {
        const int64_t n = e->dim - d < PIECE ? e->dim - d : PIECE;
        e->kernels->widen(from, row + bytes_of(from, d), NULL, 0, n, x);
        if (from == TYPE_Q8_0)
            settle_products(x, n);
        e->kernels->narrow(to, x, n, 0, out + bytes_of(to, d), NULL);
    }
}

static void run_share(void *arg, int64_t share)
{
    const struct embedding *e = arg;
    if (share < 0 || share >= e->shares)
        return;
    const fp_modes callers = fp_modes_begin();
    const int64_t end = first_of_share(e->count, e->shares, share + 1);
    for (int64_t i = first_of_share(e->count, e->shares, share); i < end; i++) {
        char *const out = e->out + i * e->out_stride;
        const int64_t id = int_at(e->ids, i);
        if (is_padding(e, id))
            memset(out, 0, (size_t)bytes_of(e->out_type, e->dim));
        else
            look_up(e, id, out);
    }
    fp_modes_end(callers);
}

attnkit_status attnkit_embed(const attnkit_embed_args *args, const attnkit_exec *exec,
                             char *message)
{
    struct embedding e;
    attnkit_embed_args copy;
    const void *read;
    attnkit_exec ours;
    struct isa_choice choice;
    if (!args)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    attnkit_status status = read_struct(&args_version, args, &copy, &read, message);
    if (status == ATTNKIT_OK)
        status = check_shape(read, &e, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &ours, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(ours.isa, &choice, message);
    if (status == ATTNKIT_OK && e.count > 0)
        status = check_memory(&e, message);
    if (status != ATTNKIT_OK)
        return status;
    if (e.count == 0)
        return accept(message);
    e.kernels = choice.kernels;
    e.shares = ours.threads < e.count ? ours.threads : e.count;
    attnkit_run_tasks(&ours, e.shares, run_share, &e);
    return accept(message);
}
