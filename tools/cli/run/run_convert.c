/* SPDX-License-Identifier: Apache-2.0
 *
 * The option --kv-type. attnkit_append converts K and V to the type in which a cache would have
 * them. With --bf16-products, attnkit_append converts q in the same way. The conversion is not
 * timed.
 */
#include "tools/cli/run/run.h"

#include <stdlib.h>

/* Returns the bytes of a row, or 0 for a type that attnkit_append will refuse. For a type in blocks
 * of 32 elements, the number of bytes is right only if dim is a multiple of 32. */
static size_t row_bytes(attnkit_type type, size_t dim)
{
    switch (type) {
    case ATTNKIT_F32:
        return 4 * dim;
    case ATTNKIT_F16:
    case ATTNKIT_BF16:
        return 2 * dim;
    case ATTNKIT_I8:
        return dim;
    case ATTNKIT_Q8_0:
        return dim / 32 * 34;
    case ATTNKIT_Q4_0:
        return dim / 32 * 18;
    case ATTNKIT_Q5_0:
        return dim / 32 * 22;
    }
    return 0;
}

/* Makes room for the rows of the file, and for a scale of each row if the type is int8. The room is
 * too small for a type in blocks if dim is not a multiple of 32. attnkit_append refuses such a
 * call. */
static bool make_room(const char *name, const struct npy *file, attnkit_type type,
                      struct converted *to)
{
    const size_t dim = (size_t)file->shape[file->rank - 1];
    const size_t rows = dim ? file->bytes / npy_element(file->type) / dim : 0;
    const size_t bytes = row_bytes(type, dim);
    to->data = calloc(rows ? rows : 1, bytes ? bytes : 1);
    if (type == ATTNKIT_I8)
        to->scales = calloc(rows ? rows : 1, sizeof *to->scales);
    return (to->data && (type != ATTNKIT_I8 || to->scales)) ||
           complain("no memory to convert %s", name);
}

static bool append(const char *name, const attnkit_append_args *args, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    if (attnkit_append_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        return complain("cannot convert %s: %s", name, message);
    exec.workspace = malloc(exec.workspace_size ? exec.workspace_size : 1);
    if (!exec.workspace)
        return complain("no memory for a workspace of %zu bytes", exec.workspace_size);
    const bool ok = attnkit_append(args, &exec, message) == ATTNKIT_OK;
    free(exec.workspace);
    return ok || complain("cannot convert %s: %s", name, message);
}

/* Converts all rows of the file to run->kv_type, unless they have this type already. Each batch
 * entry has `heads` heads of `len` rows. *cache describes the file's rows on entry, and the
 * converted rows on return. */
static bool convert(const char *name, const struct npy *file, const struct run *run, int64_t heads,
                    int64_t len, attnkit_tensor *cache, struct converted *to)
{
    if (cache->type == run->kv_type)
        return true;
    if (!make_room(name, file, run->kv_type, to))
        return false;
    const attnkit_append_args all = {.size = sizeof all,
                                     .batch = run->args.batch,
                                     .heads = heads,
                                     .len = len,
                                     .dim = file->shape[file->rank - 1],
                                     .capacity = len,
                                     .src = *cache,
                                     .dst = {.data = to->data, .type = run->kv_type},
                                     .dst_scales = {.data = to->scales}};
    *cache = all.dst;
    return append(name, &all, run->exec.isa);
}

bool run_convert_cache(const struct run_options *options, struct run *run)
{
    attnkit_attention_args *const args = &run->args;
    struct converted *const k = &run->k_converted, *const v = &run->v_converted;
    if (!options->kv_type)
        return true;
    if (!convert(options->k, &run->k, run, args->kv_heads, args->kv_len, &args->k, k) ||
        !convert(options->v, &run->v, run, args->kv_heads, args->kv_len, &args->v, v))
        return false;
    if (options->bf16_products &&
        !convert(options->q, &run->q, run, args->q_heads, args->q_len, &args->q, &run->q_converted))
        return false;
    run->storage.k_scales.data = k->scales;
    run->storage.v_scales.data = v->scales;
    return true;
}
