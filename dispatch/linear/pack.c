/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls that pack a matrix. All arguments are checked first. Then threads share out the
 * tiles of the matrix evenly.
 */
#include "dispatch/linear/pack.h"

#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/common/versioned.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/linear/matrix.h"

static const struct version args_version = VERSION_OF(attnkit_pack_args, packed_size);

/* --------------------------------------------------------------------------------- checks */

static attnkit_status check_shape(const attnkit_pack_args *args, size_t *bytes, char *message)
{
    if (args->flags)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)args->flags);
    if (args->out_dim < 1 || args->in_dim < 1)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least 1",
                      args->out_dim < 1 ? "out_dim" : "in_dim",
                      (long long)(args->out_dim < 1 ? args->out_dim : args->in_dim));
    attnkit_status status =
        attnkit_check_matrix_type("w.type", args->w.type, "in_dim", args->in_dim, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_matrix_type("packed_type", args->packed_type, "in_dim", args->in_dim,
                                           message);
    if (status == ATTNKIT_OK)
        status =
            attnkit_check_matrix_size("out_dim", args->out_dim, "in_dim", args->in_dim, message);
    if (status != ATTNKIT_OK)
        return status;
    if (args->w.type == ATTNKIT_Q8_0 && args->packed_type != ATTNKIT_Q8_0)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "packed_type is %d: must be ATTNKIT_Q8_0 (4), as w.type is",
                      (int)args->packed_type);
    *bytes = (size_t)(matrix_tiles(args->out_dim) *
                      matrix_tile_bytes((enum type)args->packed_type, args->in_dim));
    return ATTNKIT_OK;
}

/* Sets *args to the caller's arguments as this version of the library knows them: to `theirs`, or
 * to `copy` if theirs->size differs from the size in this version. Checks that the shape can be
 * packed. Sets *bytes to the packed size. */
static attnkit_status read_args(const attnkit_pack_args *theirs, attnkit_pack_args *copy,
                                const attnkit_pack_args **args, size_t *bytes, char *message)
{
    const void *read;
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    const attnkit_status status = read_struct(&args_version, theirs, copy, &read, message);
    if (status != ATTNKIT_OK)
        return status;
    *args = read;
    return check_shape(*args, bytes, message);
}

static attnkit_status bind(const attnkit_pack_args *args, size_t bytes, struct packing *p,
                           char *message)
{
    struct tensor w, packed;
    attnkit_begin_matrix(&w, "w", (enum type)args->w.type, args->out_dim, args->in_dim);
    attnkit_begin_matrix(&packed, "packed", TYPE_F32, 1, 1);
    packed.row_bytes = (int64_t)bytes;
    packed.alignment = MATRIX_ALIGNMENT;
    packed.output = true;
    struct memory memory[2];
    attnkit_status status = attnkit_plan_matrix(&w, &args->w, message);
    if (status == ATTNKIT_OK)
        status = attnkit_plan_dense(&packed, message);
    if (status == ATTNKIT_OK)
        status = attnkit_bind(&memory[0], &packed, args->packed, message);
    if (status == ATTNKIT_OK)
        status = attnkit_bind(&memory[1], &w, args->w.data, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_overlaps(memory, 2, message);
    if (status != ATTNKIT_OK)
        return status;
    if (args->packed_size < bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "packed_size is %zu: %zu needed",
                      args->packed_size, bytes);
    *p = (struct packing){
        .out_dim = args->out_dim,
        .in_dim = args->in_dim,
        .type = (enum type)args->w.type,
        .packed_type = (enum type)args->packed_type,
        .w = args->w.data,
        .stride = w.stride[2],
        .packed = args->packed,
    };
    return ATTNKIT_OK;
}

/* ---------------------------------------------------------------------------------- tiles */

/* The work that threads share. */
struct pack_work {
    const struct packing *p;
    const struct kernels *kernels;
    int64_t tiles, shares;
};

static void pack_share(void *arg, int64_t share)
{
    const struct pack_work *work = arg;
    if (share < 0 || share >= work->shares)
        return;
    const fp_modes callers = fp_modes_begin();
    attnkit_pack_tiles(work->p, work->kernels, first_of_share(work->tiles, work->shares, share),
                       first_of_share(work->tiles, work->shares, share + 1));
    fp_modes_end(callers);
}

void attnkit_pack_execute(const struct packing *p, const struct kernels *kernels,
                          const attnkit_exec *exec)
{
    const int64_t tiles = matrix_tiles(p->out_dim);
    struct pack_work work = {
        .p = p,
        .kernels = kernels,
        .tiles = tiles,
        .shares = exec->threads < tiles ? exec->threads : tiles,
    };
    attnkit_run_tasks(exec, work.shares, pack_share, &work);
}

/* --------------------------------------------------------------------------- public calls */

attnkit_status attnkit_packed_size(const attnkit_pack_args *args, size_t *bytes, char *message)
{
    attnkit_pack_args copy;
    const attnkit_pack_args *ours = NULL;
    size_t needed = 0;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    const attnkit_status status = read_args(args, &copy, &ours, &needed, message);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = needed;
    return accept(message);
}

attnkit_status attnkit_pack(const attnkit_pack_args *args, const attnkit_exec *exec, char *message)
{
    attnkit_pack_args copy;
    const attnkit_pack_args *ours = NULL;
    size_t bytes = 0;
    struct packing p;
    attnkit_exec ours_exec;
    struct isa_choice choice;
    attnkit_status status = read_args(args, &copy, &ours, &bytes, message);
    if (status == ATTNKIT_OK)
        status = bind(ours, bytes, &p, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &ours_exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(ours_exec.isa, &choice, message);
    if (status != ATTNKIT_OK)
        return status;
    attnkit_pack_execute(&p, choice.kernels, &ours_exec);
    return accept(message);
}
