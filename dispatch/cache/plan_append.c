/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the public arguments of an append into its plan: checks shapes, types, strides and the
 * rotation, and computes the size of the workspace. Planning costs some nanoseconds for each
 * tensor.
 */
#include "dispatch/cache/append_plan.h"

#include <math.h>

#include "dispatch/cache/cache.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/common/ints.h"
#include "dispatch/common/versioned.h"
#include "kernels/blocks.h"

static const struct version args_version = VERSION_OF(attnkit_append_args, rotation);
static const struct version rotation_version = VERSION_OF(attnkit_rotation, positions);

static const double DEFAULT_BASE = 10000.0;

enum {
    FLOAT = sizeof(float), /* bytes */
    /* No row in scratch and no tile in dst has more than dim * MOST_BYTES bytes. */
    MOST_BYTES = TILE_KEYS * FLOAT,
};

attnkit_status attnkit_read_rotation(const attnkit_rotation *theirs, attnkit_rotation *copy,
                                     const attnkit_rotation **rotation, char *message)
{
    static const attnkit_rotation none;
    const void *read = &none;
    attnkit_status status = ATTNKIT_OK;
    if (theirs)
        status = read_struct(&rotation_version, theirs, copy, &read, message);
    *rotation = read;
    return status;
}

attnkit_status attnkit_read_append(const attnkit_append_args *args, struct append_request *r,
                                   char *message)
{
    const void *read;
    if (!args)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    attnkit_status status = read_struct(&args_version, args, &r->args_copy, &read, message);
    if (status != ATTNKIT_OK)
        return status;
    r->args = read;
    status = attnkit_read_pages(r->args->pages, &r->pages_copy, &r->pages, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_rotation(r->args->rotation, &r->rotation_copy, &r->rotation, message);
    return status;
}

/* ------------------------------------------------------------------------------ the shape */

static attnkit_status check_dims(const struct append_request *r, char *message)
{
    const attnkit_append_args *const args = r->args;
    const struct {
        const char *name;
        int64_t value, smallest;
    } dims[] = {{"batch", args->batch, 0},
                {"heads", args->heads, 0},
                {"len", args->len, 0},
                {"dim", args->dim, 1},
                {"capacity", args->capacity, 0},
                {"rotation.table_positions", r->rotation->table_positions, 0}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < dims[i].smallest)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least %lld",
                          dims[i].name, (long long)dims[i].value, (long long)dims[i].smallest);
    int64_t most;
    if (__builtin_mul_overflow(args->dim, (int64_t)MOST_BYTES, &most))
        return refuse(message, ATTNKIT_OVERFLOW, "dim is %lld: too large", (long long)args->dim);
    if (__builtin_mul_overflow(args->batch, args->len, &most))
        return refuse(message, ATTNKIT_OVERFLOW, "batch x len is %lld x %lld: beyond 63 bits",
                      (long long)args->batch, (long long)args->len);
    return ATTNKIT_OK;
}

static attnkit_status check_layouts(const attnkit_append_args *args, char *message)
{
    attnkit_status status = attnkit_check_layout("src", args->src.layout, ATTNKIT_STRIDED, message);
    if (status == ATTNKIT_OK)
        status =
            attnkit_check_layout("dst", args->dst.layout, ATTNKIT_STRIDED | ATTNKIT_TILED, message);
    if (status == ATTNKIT_OK)
        status =
            attnkit_check_layout("dst_scales", args->dst_scales.layout, ATTNKIT_STRIDED, message);
    return status;
}

static struct pages pages_of(const attnkit_pages *pages)
{
    return (struct pages){pages->block_table, pages->block_table_stride, pages->page_size,
                          pages->pages};
}

static attnkit_status check_storage(const struct append_request *r, char *message)
{
    const attnkit_append_args *const args = r->args;
    const struct stored_row row = {.type = args->dst.type,
                                   .tiled = args->dst.layout & ATTNKIT_TILED,
                                   .dim = args->dim,
                                   .group = args->scale_group,
                                   .scales = args->dst_scales.data,
                                   .dim_name = "dim",
                                   .type_name = "dst.type",
                                   .group_name = "scale_group",
                                   .scales_name = "dst_scales"};
    const struct pages pages = pages_of(r->pages);
    attnkit_status status = attnkit_check_rounded("src.type", args->src.type, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_stored_row(&row, message);
    if (status == ATTNKIT_OK && !can_be_written((enum type)args->dst.type))
        status = refuse(message, ATTNKIT_UNSUPPORTED, "dst.type is %d: an append cannot write %s",
                        (int)args->dst.type, attnkit_type_name(args->dst.type));
    if (status == ATTNKIT_OK && args->dst_scales.type != ATTNKIT_F32)
        status =
            refuse(message, ATTNKIT_UNSUPPORTED, "dst_scales.type is %d: must be ATTNKIT_F32 (0)",
                   (int)args->dst_scales.type);
    if (status == ATTNKIT_OK)
        status = attnkit_check_pages(&pages, args->batch, args->capacity, "capacity", message);
    if (status == ATTNKIT_OK && (args->dst.layout & ATTNKIT_TILED))
        status = attnkit_check_tiled_pages(&pages, message);
    return status;
}

/* --------------------------------------------------------------------------- the rotation */

static attnkit_status check_no_rotation(const attnkit_rotation *rotation, char *message)
{
    const struct {
        const char *name;
        bool given;
    } fields[] = {{"positions", rotation->positions.data},
                  {"rotation.dim", rotation->dim != 0},
                  {"rotation.base", rotation->base != 0.0},
                  {"rotation.cos", rotation->cos},
                  {"rotation.sin", rotation->sin},
                  {"rotation.table_positions", rotation->table_positions != 0}};
    for (int i = 0; i < 6; i++)
        if (fields[i].given)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "%s is given, but rotation.kind is ATTNKIT_ROPE_NONE", fields[i].name);
    return ATTNKIT_OK;
}

static attnkit_status check_tables(const attnkit_rotation *rotation, char *message)
{
    if (!rotation->cos || !rotation->sin)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is NULL: give both tables or none",
                      rotation->cos ? "rotation.sin" : "rotation.cos");
    if (rotation->base != 0.0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "rotation.base is %g: must be 0 with tables",
                      rotation->base);
    return ATTNKIT_OK;
}

static attnkit_status check_base(const attnkit_rotation *rotation, char *message)
{
    if (rotation->table_positions != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "rotation.table_positions is %lld: must be 0 without tables",
                      (long long)rotation->table_positions);
    const bool usable = rotation->base >= 1.0 && isfinite(rotation->base);
    if (!usable && rotation->base != 0.0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "rotation.base is %g: must be finite, at least 1", rotation->base);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_rotation(const attnkit_rotation *rotation, int64_t dim, char *message)
{
    if (rotation->kind < ATTNKIT_ROPE_NONE || rotation->kind > ATTNKIT_ROPE_HALF)
        return refuse(message, ATTNKIT_UNSUPPORTED, "rotation.kind is %d: not known",
                      (int)rotation->kind);
    if (rotation->flags)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "rotation.flags is 0x%x: bits 0x%x are not known", (unsigned)rotation->flags,
                      (unsigned)rotation->flags);
    if (rotation->kind == ATTNKIT_ROPE_NONE)
        return check_no_rotation(rotation, message);
    const int64_t turned = rotation->dim ? rotation->dim : dim;
    if (turned < 0 || turned > dim || turned % 2 != 0)
        return refuse(
            message, ATTNKIT_BAD_ARGUMENT,
            "rotation.dim is %lld: must be even, at least 0 and at most dim (%lld); 0 means dim",
            (long long)rotation->dim, (long long)dim);
    return rotation->cos || rotation->sin ? check_tables(rotation, message)
                                          : check_base(rotation, message);
}

static void set_rotation(const attnkit_rotation *rotation, struct append *a)
{
    if (rotation->kind == ATTNKIT_ROPE_NONE)
        return;
    a->pairs = (rotation->dim ? rotation->dim : a->dim) / 2;
    a->interleaved = rotation->kind == ATTNKIT_ROPE_INTERLEAVED;
    a->cos = rotation->cos;
    a->sin = rotation->sin;
    a->base = rotation->base == 0.0 ? DEFAULT_BASE : rotation->base;
}

/* Checks the rotation and adds it to the plan. Sets the caller's floating-point modes aside,
 * because the check compares the base with other numbers: in some modes a subnormal base would
 * count as 0, or a NaN would raise a trap. */
static attnkit_status plan_rotation(const attnkit_rotation *rotation, struct append *a,
                                    char *message)
{
    const fp_modes callers = fp_modes_begin();
    const attnkit_status status = attnkit_check_rotation(rotation, a->dim, message);
    if (status == ATTNKIT_OK)
        set_rotation(rotation, a);
    fp_modes_end(callers);
    return status;
}

/* ---------------------------------------------------------------------------- the tensors */

static struct tensor *add(struct append_plan *plan, int slot, const char *name, int64_t row_bytes,
                          int64_t alignment)
{
    struct tensor *const t = &plan->tensors[slot];
    plan->given |= 1u << slot;
    *t = (struct tensor){
        .name = name,
        .count = {1, 1, 1},
        .row_bytes = row_bytes,
        .alignment = (int32_t)alignment,
    };
    return t;
}

/* Plans dst or dst_scales. Both have the same dimensions, but rows of different sizes. */
static attnkit_status plan_output(const attnkit_tensor *theirs, const struct append_plan *plan,
                                  struct tensor *t, char *message)
{
    const struct append *const a = &plan->a;
    t->output = true;
    t->paged = plan->given >> APPEND_BLOCK_TABLE & 1;
    t->count[0] = t->paged ? a->pages.count : a->batch;
    t->count[1] = a->heads;
    t->count[2] = t->paged ? a->pages.size : plan->capacity;
    if (a->tiled)
        attnkit_lay_in_tiles(t);
    return attnkit_plan_tensor(t, theirs, message);
}

static attnkit_status plan_rows(const attnkit_append_args *args, struct append_plan *plan,
                                char *message)
{
    struct append *const a = &plan->a;
    struct tensor *t =
        add(plan, APPEND_DST, "dst", bytes_of(a->dst_type, a->dim), attnkit_alignment(a->dst_type));
    attnkit_status status = plan_output(&args->dst, plan, t, message);
    a->dst_stride = strides_of(t);
    if (status == ATTNKIT_OK && a->dst_type == TYPE_I8) {
        t = add(plan, APPEND_SCALES, "dst_scales", a->dim / a->group * FLOAT, FLOAT);
        status = plan_output(&args->dst_scales, plan, t, message);
        a->scale_stride = strides_of(t);
    }
    if (status != ATTNKIT_OK)
        return status;
    t = add(plan, APPEND_SRC, "src", bytes_of(a->src_type, a->dim), attnkit_alignment(a->src_type));
    t->count[0] = a->batch;
    t->count[1] = a->heads;
    t->count[2] = a->len;
    status = attnkit_plan_tensor(t, &args->src, message);
    a->src_stride = strides_of(t);
    return status;
}

static attnkit_status plan_table(struct append_plan *plan, int slot, const char *name,
                                 char *message)
{
    struct tensor *const t = add(plan, slot, name, plan->a.pairs * FLOAT, FLOAT);
    t->count[2] = plan->table_positions;
    return attnkit_plan_dense(t, message);
}

/* Checks the type of an array with an integer for each batch entry. If the caller gives the array,
 * plans the array. */
static attnkit_status plan_ints(struct append_plan *plan, int slot, const char *name,
                                attnkit_ints theirs, struct ints *ints, char *message)
{
    attnkit_status status = attnkit_read_ints(name, theirs, ints, message);
    if (status != ATTNKIT_OK || !theirs.data)
        return status;
    struct tensor *const t = add(plan, slot, name, int_bytes(*ints), int_bytes(*ints));
    t->count[2] = plan->a.batch;
    return attnkit_plan_dense(t, message);
}

/* Plans the block table, which has a row of page numbers for each batch entry. attnkit_check_pages
 * has checked the size of the table. */
static void plan_block_table(struct append_plan *plan)
{
    const struct pages *const pages = &plan->a.pages;
    const int64_t each = plan->capacity / pages->size + (plan->capacity % pages->size > 0);
    struct tensor *const t = add(plan, APPEND_BLOCK_TABLE, "block_table",
                                 each * (int64_t)sizeof(int32_t), sizeof(int32_t));
    t->count[2] = plan->a.batch;
    if (t->count[2] > 1)
        t->stride[2] = pages->stride * (int64_t)sizeof(int32_t);
    if (t->count[2] > 0 && t->row_bytes > 0)
        t->span = (t->count[2] - 1) * t->stride[2] + t->row_bytes;
}

static attnkit_status plan_arrays(const struct append_request *r, struct append_plan *plan,
                                  char *message)
{
    struct append *const a = &plan->a;
    attnkit_status status =
        plan_ints(plan, APPEND_STARTS, "starts", r->args->starts, &a->starts, message);
    if (status == ATTNKIT_OK)
        status = plan_ints(plan, APPEND_LENS, "lens", r->args->lens, &a->lens, message);
    if (status == ATTNKIT_OK)
        status = plan_ints(plan, APPEND_POSITIONS, "positions", r->rotation->positions,
                           &a->positions, message);
    if (status == ATTNKIT_OK && r->rotation->cos)
        status = plan_table(plan, APPEND_COS, "rotation.cos", message);
    if (status == ATTNKIT_OK && r->rotation->cos)
        status = plan_table(plan, APPEND_SIN, "rotation.sin", message);
    return status;
}

/* ------------------------------------------------------------------------------- the plan */

static attnkit_status plan_shape(const struct append_request *r, struct append_plan *plan,
                                 char *message)
{
    const attnkit_append_args *const args = r->args;
    attnkit_status status = check_dims(r, message);
    if (status == ATTNKIT_OK)
        status = check_layouts(args, message);
    if (status == ATTNKIT_OK)
        status = check_storage(r, message);
    if (status != ATTNKIT_OK)
        return status;
    plan->a = (struct append){
        .batch = args->batch,
        .heads = args->heads,
        .len = args->len,
        .dim = args->dim,
        .src_type = (enum type)args->src.type,
        .dst_type = (enum type)args->dst.type,
        .group = args->scale_group ? args->scale_group : args->dim,
        .tiled = args->dst.layout & ATTNKIT_TILED,
        .pages = pages_of(r->pages),
    };
    plan->capacity = args->capacity;
    plan->table_positions = r->rotation->table_positions;
    plan->empty = args->batch == 0 || args->heads == 0 || args->len == 0;
    plan->given = 0;
    return plan_rotation(r->rotation, &plan->a, message);
}

static attnkit_status plan_workspace(struct append_plan *plan, char *message)
{
    const size_t line = 64; /* bytes */
    const int64_t rows = plan->a.batch * plan->a.len;
    plan->scratch_size = (attnkit_append_scratch(&plan->a) + line - 1) / line * line;
    plan->header.workspace_size = 0;
    if (plan->empty)
        return ATTNKIT_OK;
    return attnkit_workspace_bytes(0, plan->scratch_size,
                                   plan->threads < rows ? plan->threads : rows,
                                   &plan->header.workspace_size, message);
}

/* Clears the addresses given at planning, because each run has its own addresses. */
static void forget_addresses(struct append *a)
{
    a->cos = a->sin = NULL;
    a->pages.table = NULL;
    a->starts.data = a->lens.data = a->positions.data = NULL;
}

attnkit_status attnkit_append_plan_init(const struct append_request *r, int64_t threads,
                                        struct append_plan *plan, char *message)
{
    attnkit_status status = plan_shape(r, plan, message);
    if (status != ATTNKIT_OK)
        return status;
    plan->threads = threads;
    if (plan->a.pages.table)
        plan_block_table(plan);
    status = plan_rows(r->args, plan, message);
    if (status == ATTNKIT_OK)
        status = plan_arrays(r, plan, message);
    if (status == ATTNKIT_OK)
        status = plan_workspace(plan, message);
    forget_addresses(&plan->a);
    return status;
}
