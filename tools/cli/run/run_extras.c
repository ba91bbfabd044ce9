/* SPDX-License-Identifier: Apache-2.0
 *
 * The options for arrays other than the inputs, masks and a bias. These arrays are numbers for each
 * batch entry, segment ids for each row and key, the key of each cell, and floats for each query
 * head. `attnkit layer` also has these options, except --key-index.
 */
#include "tools/cli/run/run.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- numbers for each batch entry */

/* The most batch entries that may have numbers. An array of numbers for MAX_ENTRIES entries takes
 * half a GiB. A file of a hundred bytes may have a huge batch and no elements. Without the bound,
 * such a file could fill the memory. */
enum { MAX_ENTRIES = 1 << 26 };

/* Returns room for a number for each batch entry. On an error, prints it and returns NULL. */
static void *make_entries(const char *option, int64_t batch)
{
    void *entries = NULL;
    if (batch <= MAX_ENTRIES)
        entries = calloc(batch ? (size_t)batch : 1, sizeof(int64_t));
    if (!entries)
        complain("no memory for %s in a batch of %lld", option, (long long)batch);
    return entries;
}

/* Makes an array that has, for each batch entry, a number from the list. If the list has only one
 * number, all entries have this number. */
static bool spread(const char *option, const struct naturals *list, int64_t batch,
                   uint64_t **entries)
{
    if (list->count != 1 && list->count != batch)
        return complain("%s has %lld numbers: must be 1, or %lld, one for each batch entry", option,
                        (long long)list->count, (long long)batch);
    *entries = make_entries(option, batch);
    if (!*entries)
        return false;
    for (int64_t b = 0; b < batch; b++)
        (*entries)[b] = list->values[list->count == 1 ? 0 : b];
    return true;
}

static bool set_offsets(struct run *run)
{
    if (run->args.align != ATTNKIT_ALIGN_OFFSETS)
        return true;
    run->q_offsets = make_entries("--causal or --align", run->args.batch);
    if (!run->q_offsets)
        return false;
    for (int64_t b = 0; b < run->args.batch; b++)
        run->q_offsets[b] = run->offset;
    run->args.q_offsets.data = run->q_offsets;
    return true;
}

static bool set_kv_lens(struct run *run)
{
    if (run->kv_len.count && !spread("--kv-len", &run->kv_len, run->args.batch, &run->kv_lens))
        return false;
    run->visibility.kv_lens.data = run->kv_lens;
    return true;
}

/* Sets the seeds. With a dropout of 0, the call gets no seeds, because no weight is dropped. */
static bool set_seeds(struct run *run)
{
    if (run->seed.count && !spread("--seed", &run->seed, run->args.batch, &run->seeds))
        return false;
    run->scores.dropout_seeds = run->scores.dropout == 0.0 ? NULL : run->seeds;
    return true;
}

/* ----------------------------------------------------------------------------- segment ids */

static bool fits_int32(const char *name, const struct npy *array)
{
    const int64_t *const numbers = array->data;
    if (array->type == NPY_I32)
        return true;
    for (size_t i = 0; i < array->bytes / sizeof *numbers; i++)
        if (numbers[i] < INT32_MIN || numbers[i] > INT32_MAX)
            return complain("%s: %lld is no number of 32 bits", name, (long long)numbers[i]);
    return true;
}

/* Returns whether the array `docs` has `len` numbers, once for all batch entries or separately for
 * each entry. `len` is the number of rows, keys or cells. */
static bool check_entry_shape(const char *name, const struct npy *docs, int64_t batch, int64_t len)
{
    char shape[NPY_SHAPE_TEXT];
    if (docs->shape[docs->rank - 1] == len && (docs->rank == 1 || docs->shape[0] == batch))
        return true;
    return complain("%s has shape %s: must be [%lld] or [%lld, %lld]", name, npy_shape(docs, shape),
                    (long long)len, (long long)batch, (long long)len);
}

/* Converts the numbers of the file to int32. If the file has the numbers once for all batch
 * entries, repeats the numbers for each entry. */
static bool spread_docs(const char *name, const struct npy *file, int64_t batch, int64_t len,
                        struct npy *docs)
{
    const int64_t shape[] = {batch, len};
    if (!npy_make(name, NPY_I32, 2, shape, docs))
        return false;
    const size_t of_file = file->bytes / npy_element(file->type);
    const int32_t *const narrow = file->data;
    const int64_t *const wide = file->data;
    int32_t *const numbers = docs->data;
    for (size_t i = 0; i < docs->bytes / sizeof *numbers; i++)
        numbers[i] = file->type == NPY_I32 ? narrow[i % of_file] : (int32_t)wide[i % of_file];
    return true;
}

static bool read_docs(const char *name, int64_t batch, int64_t len, struct npy *docs)
{
    const struct npy_form form = {1u << NPY_I32 | 1u << NPY_I64, 1, 2};
    struct npy file;
    if (!npy_read(name, form, &file))
        return false;
    const bool ok = check_entry_shape(name, &file, batch, len) && fits_int32(name, &file) &&
                    spread_docs(name, &file, batch, len, docs);
    npy_free(&file);
    return ok;
}

static bool set_docs(const struct run_options *options, struct run *run)
{
    const attnkit_attention_args *const args = &run->args;
    if (options->q_docs && (!read_docs(options->q_docs, args->batch, args->q_len, &run->q_docs) ||
                            !read_docs(options->kv_docs, args->batch, args->kv_len, &run->kv_docs)))
        return false;
    run->visibility.q_segment_ids = run->q_docs.data;
    run->visibility.kv_segment_ids = run->kv_docs.data;
    return true;
}

/* --------------------------------------------------------------------------------- cells */

static bool set_key_index(const struct run_options *options, struct run *run)
{
    const struct npy_form form = {1u << NPY_I32 | 1u << NPY_I64, 1, 2};
    const attnkit_attention_args *const args = &run->args;
    const char *const name = options->key_index;
    struct npy *const index = &run->key_index;
    if (!name)
        return true;
    if (!npy_read(name, form, index) || !check_entry_shape(name, index, args->batch, args->kv_len))
        return false;
    run->storage.key_index = (attnkit_ints){
        .data = index->data, .type = index->type == NPY_I32 ? ATTNKIT_INT32 : ATTNKIT_INT64};
    run->storage.key_index_stride = index->rank == 1 ? 0 : args->kv_len;
    return true;
}

int64_t run_index_at(const struct run *run, int64_t b, int64_t cell)
{
    const int64_t at = b * run->storage.key_index_stride + cell;
    return run->key_index.type == NPY_I32 ? ((const int32_t *)run->key_index.data)[at]
                                          : ((const int64_t *)run->key_index.data)[at];
}

/* ------------------------------------------------------------------------------- query heads */

static bool read_heads(const char *name, int64_t q_heads, struct npy *array)
{
    const struct npy_form form = {1u << NPY_F32, 1, 1};
    if (!name)
        return true;
    if (!npy_read(name, form, array))
        return false;
    return array->shape[0] == q_heads ||
           complain("%s has %lld numbers: must be %lld, one for each query head", name,
                    (long long)array->shape[0], (long long)q_heads);
}

static bool set_heads(const struct run_options *options, struct run *run)
{
    if (!read_heads(options->bias_scales, run->args.q_heads, &run->bias_scales) ||
        !read_heads(options->alibi, run->args.q_heads, &run->alibi) ||
        !read_heads(options->sinks, run->args.q_heads, &run->sinks))
        return false;
    run->scores.bias_scales = run->bias_scales.data;
    run->scores.alibi_slopes = run->alibi.data;
    run->scores.sinks = run->sinks.data;
    return true;
}

bool run_read_extras(const struct run_options *options, struct run *run)
{
    return set_offsets(run) && set_kv_lens(run) && set_seeds(run) && set_docs(options, run) &&
           set_key_index(options, run) && set_heads(options, run);
}
