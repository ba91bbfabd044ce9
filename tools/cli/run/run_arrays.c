/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays of every `attnkit run`: q, k and v from their files, and the results. The shape of the
 * call follows from q, k and v.
 */
#include "tools/cli/run/run.h"

#include <string.h>

/* ----------------------------------------------------------------------------- files and sizes */

static bool read_files(const struct run_options *options, struct run *run)
{
    const struct npy_form form = {1u << NPY_F32 | 1u << NPY_F16, 2, NPY_MAX_RANK};
    return npy_read(options->q, form, &run->q) && npy_read(options->k, form, &run->k) &&
           npy_read(options->v, form, &run->v);
}

/* Returns a size of the array, counted from the last dimension: 0 is the length of a row, 1 the
 * number of rows, 2 the number of heads, and 3 the batch. Sizes that an array of lower rank lacks
 * are 1. */
static int64_t size_of(const struct npy *array, int from_last)
{
    return from_last < array->rank ? array->shape[array->rank - 1 - from_last] : 1;
}

static bool same_rank(const char *name_a, const struct npy *a, const char *name_b,
                      const struct npy *b)
{
    if (a->rank == b->rank)
        return true;
    return complain("%s has rank %d, %s has rank %d: must be the same", name_a, a->rank, name_b,
                    b->rank);
}

static bool same_size(const char *what, int from_last, const char *name_a, const struct npy *a,
                      const char *name_b, const struct npy *b)
{
    char shape_a[NPY_SHAPE_TEXT], shape_b[NPY_SHAPE_TEXT];
    if (size_of(a, from_last) == size_of(b, from_last))
        return true;
    return complain("%s is %lld in %s %s and %lld in %s %s: must be the same", what,
                    (long long)size_of(a, from_last), name_a, npy_shape(a, shape_a),
                    (long long)size_of(b, from_last), name_b, npy_shape(b, shape_b));
}

static bool check_heads(const struct run_options *options, const struct run *run)
{
    const int64_t q_heads = size_of(&run->q, 2), kv_heads = size_of(&run->k, 2);
    if (kv_heads > 0 ? q_heads % kv_heads == 0 : q_heads == 0)
        return true;
    return complain("%s has %lld heads, %s has %lld: the first must be a multiple of the second",
                    options->q, (long long)q_heads, options->k, (long long)kv_heads);
}

/* Refuses a value_dim of 0. To the library, 0 means that value_dim is head_dim. */
static bool check_value_dim(const char *name, const struct npy *v)
{
    char shape[NPY_SHAPE_TEXT];
    return size_of(v, 0) > 0 ||
           complain("value_dim is 0 in %s %s: must be at least 1", name, npy_shape(v, shape));
}

static bool check_shapes(const struct run_options *options, const struct run *run)
{
    const char *const q = options->q, *const k = options->k, *const v = options->v;
    return same_rank(q, &run->q, k, &run->k) && same_rank(k, &run->k, v, &run->v) &&
           same_size("the batch", 3, q, &run->q, k, &run->k) &&
           same_size("the batch", 3, k, &run->k, v, &run->v) &&
           same_size("the number of KV heads", 2, k, &run->k, v, &run->v) &&
           same_size("the number of keys", 1, k, &run->k, v, &run->v) &&
           same_size("head_dim", 0, q, &run->q, k, &run->k) && check_value_dim(v, &run->v) &&
           check_heads(options, run);
}

attnkit_tensor run_tensor(const struct npy *array)
{
    return (attnkit_tensor){.data = array->data,
                            .type = array->type == NPY_F16 ? ATTNKIT_F16 : ATTNKIT_F32};
}

static void describe_shape(struct run *run)
{
    attnkit_attention_args *const args = &run->args;
    args->batch = size_of(&run->q, 3);
    args->q_heads = size_of(&run->q, 2);
    args->kv_heads = size_of(&run->k, 2);
    args->q_len = size_of(&run->q, 1);
    args->kv_len = size_of(&run->k, 1);
    args->head_dim = size_of(&run->q, 0);
    args->value_dim = size_of(&run->v, 0);
    args->q = run_tensor(&run->q);
    args->k = run_tensor(&run->k);
    args->v = run_tensor(&run->v);
}

bool run_read_arrays(const struct run_options *options, struct run *run)
{
    if (!read_files(options, run) || !check_shapes(options, run))
        return false;
    describe_shape(run);
    return true;
}

/* --------------------------------------------------------------------------------- the results */

bool run_add_output(const char *option, const char *name, const struct npy *array, struct run *run)
{
    struct npy_output *const output = &run->outputs[run->output_count];
    *output = (struct npy_output){.option = option, .array = array};
    if (!npy_output_at(name, output))
        return false;
    run->output_count++;
    return true;
}

/* Allocates a result and adds its file to the outputs. */
static bool make_output(const char *option, const char *name, enum npy_type type, int rank,
                        const int64_t *shape, struct run *run, struct npy *array)
{
    return run_add_output(option, name, array, run) && npy_make(name, type, rank, shape, array);
}

/* Allocates the results. The shape of a result is the shape of q with another last size, or without
 * the last size. */
bool run_make_outputs(const struct run_options *options, struct run *run)
{
    const int rank = run->q.rank;
    const enum npy_type type = run->args.out.type == ATTNKIT_F16 ? NPY_F16 : NPY_F32;
    int64_t shape[NPY_MAX_RANK];
    memcpy(shape, run->q.shape, sizeof shape);
    shape[rank - 1] = run->args.value_dim;
    if (!make_output("-o", options->out, type, rank, shape, run, &run->out))
        return false;
    if (options->lse &&
        !make_output("--lse", options->lse, NPY_F32, rank - 1, shape, run, &run->lse))
        return false;
    shape[rank - 1] = run->args.kv_len;
    if (options->weights &&
        !make_output("--weights", options->weights, NPY_F32, rank, shape, run, &run->weights))
        return false;
    run->args.out.data = run->out.data;
    run->args.lse.data = run->lse.data;
    run->weights_out.weights.data = run->weights.data;
    return true;
}

/* Widens a bfloat16 result to float32 for the file, because NumPy has no bfloat16. The values are
 * widened in place, from the last to the first, so that no value is overwritten before it is
 * read. */
void run_finish_outputs(struct run *run)
{
    char *const data = run->out.data;
    if (run->args.out.type != ATTNKIT_BF16)
        return;
    for (size_t i = run->out.bytes / sizeof(float); i-- > 0;) {
        uint16_t upper;
        memcpy(&upper, data + i * sizeof upper, sizeof upper);
        const uint32_t bits = (uint32_t)upper << 16;
        memcpy(data + i * sizeof bits, &bits, sizeof bits);
    }
}
