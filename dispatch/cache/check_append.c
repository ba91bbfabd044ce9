/* SPDX-License-Identifier: Apache-2.0
 *
 * Every argument of an append is checked here, once, before anything is written; after it nothing
 * can fail. Costs a step for each batch entry and for each page that is written.
 */
#include "dispatch/cache/check_append.h"

#include <math.h>

#include "kernels/cache/rope.h"
#include "dispatch/cache/cache.h"
#include "dispatch/common/tensor.h"
#include "dispatch/common/versioned.h"

static const double DEFAULT_BASE = 10000.0;

enum {
    TENSORS = 5,
    FLOAT = sizeof(float), /* bytes */
    /* For an element of a row in scratch, or of a tile in dst or its scales. */
    MOST_BYTES = TILE_KEYS * FLOAT,
};

static attnkit_status check_options(const attnkit_append_args *args, char *message)
{
    const uint32_t known = ATTNKIT_STRIDED | ATTNKIT_TILED;
    if (args->flags & ~known)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)args->flags, (unsigned)(args->flags & ~known));
    if ((int)args->rope < ATTNKIT_ROPE_NONE || (int)args->rope > ATTNKIT_ROPE_HALF)
        return refuse(message, ATTNKIT_UNSUPPORTED, "rope is %d: not known", (int)args->rope);
    return attnkit_check_rounded("src_type", args->src_type, message);
}

static attnkit_status check_dims(const attnkit_append_args *args, char *message)
{
    const struct {
        const char *name;
        int64_t value, smallest;
    } dims[] = {{"batch", args->batch, 0},       {"heads", args->heads, 0},
                {"len", args->len, 0},           {"dim", args->dim, 1},
                {"capacity", args->capacity, 0}, {"rope_positions", args->rope_positions, 0}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < dims[i].smallest)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least %lld",
                          dims[i].name, (long long)dims[i].value, (long long)dims[i].smallest);
    int64_t most;
    if (__builtin_mul_overflow(args->dim, (int64_t)MOST_BYTES, &most))
        return refuse(message, ATTNKIT_OVERFLOW, "dim is %lld: too large", (long long)args->dim);
    if (__builtin_mul_overflow(args->batch, args->len, &most))
        return refuse(message, ATTNKIT_OVERFLOW, "batch x len is %lld x %lld",
                      (long long)args->batch, (long long)args->len);
    return ATTNKIT_OK;
}

static struct pages pages_of(const attnkit_append_args *args)
{
    return (struct pages){args->page_table, args->page_table_stride, args->page_size, args->pages};
}

static attnkit_status check_storage(const attnkit_append_args *args, char *message)
{
    const struct stored_row row = {args->dst_type, args->dim,  args->scale_group, args->dst_scales,
                                   "dim",          "dst_type", "scale_group",     "dst_scales"};
    const struct pages pages = pages_of(args);
    attnkit_status status = attnkit_check_stored_row(&row, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_pages(&pages, args->batch, args->capacity, "capacity", message);
    if (status == ATTNKIT_OK && (args->flags & ATTNKIT_TILED))
        status = attnkit_check_tiled_pages(&pages, message);
    return status;
}

static attnkit_status check_no_rope(const attnkit_append_args *args, char *message)
{
    const struct {
        const char *name;
        bool given;
    } fields[] = {
        {"positions", args->positions},        {"rope_dim", args->rope_dim != 0},
        {"rope_base", args->rope_base != 0.0}, {"rope_cos", args->rope_cos},
        {"rope_sin", args->rope_sin},          {"rope_positions", args->rope_positions != 0}};
    for (int i = 0; i < 6; i++)
        if (fields[i].given)
            return refuse(message, ATTNKIT_BAD_ARGUMENT,
                          "%s is given, but rope is ATTNKIT_ROPE_NONE", fields[i].name);
    return ATTNKIT_OK;
}

static attnkit_status check_tables(const attnkit_append_args *args, char *message)
{
    if (!args->rope_cos || !args->rope_sin)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "%s is NULL: there must be both tables or none",
                      args->rope_cos ? "rope_sin" : "rope_cos");
    if (args->rope_base != 0.0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "rope_base is %g: must be 0 with tables",
                      args->rope_base);
    return ATTNKIT_OK;
}

static attnkit_status check_base(const attnkit_append_args *args, char *message)
{
    if (args->rope_positions != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "rope_positions is %lld: must be 0 without tables",
                      (long long)args->rope_positions);
    const bool usable = args->rope_base >= 1.0 && isfinite(args->rope_base);
    if (!usable && args->rope_base != 0.0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "rope_base is %g: must be finite, at least 1",
                      args->rope_base);
    if (!attnkit_rope_has_angles())
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "rope_cos is NULL: this build has no SLEEF and needs tables");
    return ATTNKIT_OK;
}

static attnkit_status check_rope(const attnkit_append_args *args, char *message)
{
    if (args->rope == ATTNKIT_ROPE_NONE)
        return check_no_rope(args, message);
    const int64_t rope_dim = args->rope_dim ? args->rope_dim : args->dim;
    if (rope_dim < 0 || rope_dim > args->dim || rope_dim % 2 != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "rope_dim is %lld: must be even and at most dim (%lld), which it is if 0",
                      (long long)args->rope_dim, (long long)args->dim);
    return args->rope_cos || args->rope_sin ? check_tables(args, message)
                                            : check_base(args, message);
}

/* dst, or with other rows its scales. */
static struct tensor output(const attnkit_append_args *args, int64_t row_bytes)
{
    const bool paged = args->page_table;
    struct tensor t = {
        .count = {paged ? args->pages : args->batch, args->heads,
                  paged ? args->page_size : args->capacity},
        .row_bytes = row_bytes,
        .output = true,
        .paged = paged,
    };
    if (args->flags & ATTNKIT_TILED)
        attnkit_lay_in_tiles(&t);
    return t;
}

static struct tensor dst_tensor(const attnkit_append_args *args, struct append_problem *p)
{
    struct tensor t = output(args, bytes_of(p->a.dst_type, p->a.dim));
    t.name = "dst";
    t.strides_name = "dst_strides";
    t.data = args->dst;
    t.alignment = attnkit_alignment(p->a.dst_type);
    t.strides = args->dst_strides;
    t.stride = &p->a.dst_stride;
    t.layout = &p->dst;
    return t;
}

static struct tensor scales_tensor(const attnkit_append_args *args, struct append_problem *p)
{
    struct tensor t = output(args, p->a.dim / p->a.group * FLOAT);
    t.name = "dst_scales";
    t.strides_name = "dst_scale_strides";
    t.data = args->dst_scales;
    t.alignment = FLOAT;
    t.strides = args->dst_scale_strides;
    t.stride = &p->a.scale_stride;
    t.layout = &p->dst_scales;
    return t;
}

static struct tensor src_tensor(const attnkit_append_args *args, struct append_problem *p)
{
    return (struct tensor){
        .name = "src",
        .strides_name = "src_strides",
        .data = args->src,
        .count = {args->batch, args->heads, args->len},
        .row_bytes = bytes_of(p->a.src_type, p->a.dim),
        .alignment = attnkit_alignment(p->a.src_type),
        .strides = args->src_strides,
        .stride = &p->a.src_stride,
        .layout = &p->src,
    };
}

static struct tensor table_tensor(const attnkit_append_args *args, struct append_problem *p,
                                  const char *name, const float *table, struct layout *layout)
{
    return (struct tensor){
        .name = name,
        .strides_name = "strides of a table",
        .data = table,
        .count = {1, 1, args->rope_positions},
        .row_bytes = p->a.pairs * FLOAT,
        .alignment = FLOAT,
        .stride = &p->table_stride,
        .layout = layout,
    };
}

/* The outputs come first. */
static int list_tensors(const attnkit_append_args *args, struct append_problem *p,
                        struct tensor tensors[TENSORS])
{
    const struct append *a = &p->a;
    int n = 0;
    tensors[n++] = dst_tensor(args, p);
    if (a->dst_type == TYPE_I8)
        tensors[n++] = scales_tensor(args, p);
    tensors[n] = src_tensor(args, p);
    if (!a->starts && !a->pages.table && a->src_type == a->dst_type)
        tensors[n].in_place = &tensors[0];
    n++;
    if (a->cos) {
        tensors[n++] = table_tensor(args, p, "rope_cos", a->cos, &p->cos);
        tensors[n++] = table_tensor(args, p, "rope_sin", a->sin, &p->sin);
    }
    return n;
}

static attnkit_status set_strides(const attnkit_append_args *args, struct append_problem *p,
                                  char *message)
{
    struct tensor tensors[TENSORS];
    const int n = list_tensors(args, p, tensors);
    for (int i = 0; i < n; i++) {
        const attnkit_status status = attnkit_set_strides(&tensors[i], args->flags, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return ATTNKIT_OK;
}

static void set_rope(const attnkit_append_args *args, struct append *a)
{
    if (args->rope == ATTNKIT_ROPE_NONE)
        return;
    a->pairs = (args->rope_dim ? args->rope_dim : args->dim) / 2;
    a->interleaved = args->rope == ATTNKIT_ROPE_INTERLEAVED;
    a->positions = args->positions;
    a->cos = args->rope_cos;
    a->sin = args->rope_sin;
    a->base = args->rope_base == 0.0 ? DEFAULT_BASE : args->rope_base;
}

/* The shape of `args`, which is a full struct of this version. */
static attnkit_status check_full_shape(const attnkit_append_args *args, struct append_problem *p,
                                       char *message)
{
    static attnkit_status (*const checks[])(const attnkit_append_args *, char *) = {
        check_options, check_dims, check_storage, check_rope};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        const attnkit_status status = checks[i](args, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    *p = (struct append_problem){
        .a = {.batch = args->batch,
              .heads = args->heads,
              .len = args->len,
              .dim = args->dim,
              .src_type = (enum type)args->src_type,
              .dst_type = (enum type)args->dst_type,
              .group = args->scale_group ? args->scale_group : args->dim,
              .src = args->src,
              .dst = args->dst,
              .scales = (char *)args->dst_scales,
              .tiled = args->flags & ATTNKIT_TILED,
              .starts = args->starts,
              .lens = args->lens,
              .pages = pages_of(args)},
        .empty = args->batch == 0 || args->heads == 0 || args->len == 0,
    };
    set_rope(args, &p->a);
    return set_strides(args, p, message);
}

static attnkit_status read_args(const attnkit_append_args *theirs, attnkit_append_args *ours,
                                char *message)
{
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    return read_struct(ours, sizeof *ours, sizeof *ours, theirs, "attnkit_append_args", message);
}

attnkit_status attnkit_check_append_shape(const attnkit_append_args *args,
                                          struct append_problem *problem, char *message)
{
    attnkit_append_args ours = {0};
    const attnkit_status status = read_args(args, &ours, message);
    return status == ATTNKIT_OK ? check_full_shape(&ours, problem, message) : status;
}

/* That entry b's rows fit into src and dst. */
static attnkit_status check_rows(const attnkit_append_args *args, const struct append *a, int64_t b,
                                 char *message)
{
    const int64_t len = append_len(a, b), start = append_start(a, b);
    if (len < 0 || len > a->len)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "lens[%lld] is %lld: must be between 0 and len (%lld)", (long long)b,
                      (long long)len, (long long)a->len);
    if (start < 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "starts[%lld] is %lld: must be at least 0",
                      (long long)b, (long long)start);
    if (start > args->capacity || len > args->capacity - start)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "capacity is %lld: batch entry %lld has %lld rows from row %lld on",
                      (long long)args->capacity, (long long)b, (long long)len, (long long)start);
    return ATTNKIT_OK;
}

/* That entry b's positions are some, and in the tables. */
static attnkit_status check_positions(const attnkit_append_args *args, const struct append *a,
                                      int64_t b, char *message)
{
    const int64_t len = append_len(a, b), position = append_position(a, b);
    int64_t end;
    if (position < 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "positions[%lld] is %lld: must be at least 0",
                      (long long)b, (long long)position);
    if (__builtin_add_overflow(position, len, &end))
        return refuse(message, ATTNKIT_OVERFLOW,
                      "positions[%lld] is %lld: must be at most 2^63 - 1 - the rows (%lld)",
                      (long long)b, (long long)position, (long long)len);
    if (a->cos && len > 0 && end > args->rope_positions)
        return refuse(
            message, ATTNKIT_BAD_ARGUMENT,
            "rope_positions is %lld: batch entry %lld has %lld rows from position %lld on",
            (long long)args->rope_positions, (long long)b, (long long)len, (long long)position);
    return ATTNKIT_OK;
}

static attnkit_status check_arrays(const attnkit_append_args *args, const struct append *a,
                                   char *message)
{
    attnkit_status status = ATTNKIT_OK;
    for (int64_t b = 0; status == ATTNKIT_OK && b < a->batch; b++) {
        status = check_rows(args, a, b, message);
        if (status == ATTNKIT_OK && a->pairs > 0)
            status = check_positions(args, a, b, message);
        const int64_t start = append_start(a, b);
        if (status == ATTNKIT_OK)
            status =
                attnkit_check_page_table(&a->pages, b, start, start + append_len(a, b), message);
    }
    return status;
}

attnkit_status attnkit_check_append(const attnkit_append_args *args, struct append_problem *problem,
                                    char *message)
{
    attnkit_append_args ours = {0};
    attnkit_status status = read_args(args, &ours, message);
    if (status == ATTNKIT_OK)
        status = check_full_shape(&ours, problem, message);
    if (status != ATTNKIT_OK || problem->empty)
        return status;
    status = check_arrays(&ours, &problem->a, message);
    if (status != ATTNKIT_OK)
        return status;
    struct tensor tensors[TENSORS];
    return attnkit_check_tensors(tensors, list_tensors(&ours, problem, tensors), message);
}

attnkit_status attnkit_check_append_workspace(const struct append_problem *problem,
                                              const void *workspace, size_t size, char *message)
{
    const struct {
        const char *name;
        const struct layout *layout;
    } tensors[TENSORS] = {{"dst", &problem->dst},
                          {"dst_scales", &problem->dst_scales},
                          {"src", &problem->src},
                          {"rope_cos", &problem->cos},
                          {"rope_sin", &problem->sin}};
    for (int i = 0; i < TENSORS; i++) {
        const attnkit_status status =
            attnkit_check_apart(workspace, size, tensors[i].name, tensors[i].layout, message);
        if (status != ATTNKIT_OK)
            return status;
    }
    return ATTNKIT_OK;
}
