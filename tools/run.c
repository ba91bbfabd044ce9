/* SPDX-License-Identifier: Apache-2.0
 *
 * `attnkit run`: attention on arrays from .npy files, timed. From the options comes a struct run,
 * filled in this order: files, sizes, the library's arguments, the results' memory, the times.
 */
#define _POSIX_C_SOURCE 200809L
#include <attnkit.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "npy.h"
#include "parallel.h"
#include "tool.h"

enum { MAX_REPEAT = 1000000, LABEL = 8 };

struct run_options {
    const char *q, *k, *v, *out, *lse; /* names of files */
    const char *causal, *scale, *isa, *threads, *repeat, *help;
};

struct run {
    struct npy q, k, v, out, lse;
    struct npy_output outputs[2]; /* of out, and of lse if it was asked for */
    int output_count;
    attnkit_attention_args args;
    attnkit_exec exec;
    attnkit_isa_choice choice;
    int64_t offset;     /* position of query row 0, if causal */
    int64_t *q_offsets; /* the same for every batch entry, if an offset was given */
    int64_t repeat;
    double *seconds; /* of each repeat, shortest first */
};

/* -------------------------------------------------------------------------------- options */

static bool check_required(const struct run_options *options)
{
    const char *const values[] = {options->q, options->k, options->v, options->out};
    static const char *const names[] = {"--q", "--k", "--v", "-o"};
    for (int i = 0; i < 4; i++)
        if (!values[i])
            return complain("option %s is missing: see attnkit run --help", names[i]);
    return true;
}

static bool read_causal(const char *text, struct run *run)
{
    attnkit_attention_args *args = &run->args;
    if (!text)
        return true;
    args->flags |= ATTNKIT_CAUSAL;
    if (!strcmp(text, "upper-left"))
        args->align = ATTNKIT_ALIGN_UPPER_LEFT;
    else if (!strcmp(text, "bottom-right"))
        args->align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    else
        args->align = ATTNKIT_ALIGN_OFFSETS;
    return args->align != ATTNKIT_ALIGN_OFFSETS ||
           parse_integer("--causal, neither upper-left nor bottom-right,", text, INT64_MIN,
                         INT64_MAX, &run->offset);
}

/* The options that are numbers or words; false is a usage error. */
static bool read_options(const struct run_options *options, struct run *run)
{
    run->repeat = 1;
    run->exec.threads = 1;
    run->exec.isa = options->isa;
    if (!check_required(options) || !read_causal(options->causal, run))
        return false;
    if (options->threads &&
        !parse_integer("--threads", options->threads, 1, PARALLEL_MAX, &run->exec.threads))
        return false;
    if (options->repeat && !parse_integer("--repeat", options->repeat, 1, MAX_REPEAT, &run->repeat))
        return false;
    if (options->scale)
        run->args.flags |= ATTNKIT_SCALE_GIVEN;
    return !options->scale || parse_real("--scale", options->scale, &run->args.scale);
}

/* ------------------------------------------------------------------------ files and sizes */

static bool read_files(const struct run_options *options, struct run *run)
{
    return npy_read(options->q, &run->q) && npy_read(options->k, &run->k) &&
           npy_read(options->v, &run->v);
}

/* Sizes counted from the last: 0 is the row's length, 1 the rows, 2 the heads, 3 the batch. What an
 * array of lower rank does not say is 1. */
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

/* To the library a value_dim of 0 means head_dim. */
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

/* Memory for out and lse, and where they go. Their shapes are q's with another last size and
 * without it. */
static bool prepare_outputs(const struct run_options *options, struct run *run)
{
    struct npy_output *const outputs = run->outputs;
    int64_t shape[NPY_MAX_RANK];
    memcpy(shape, run->q.shape, sizeof shape);
    shape[run->q.rank - 1] = size_of(&run->v, 0);
    if (!npy_output_at(options->out, &outputs[0]) ||
        !npy_make(options->out, run->q.rank, shape, &run->out))
        return false;
    outputs[0].array = &run->out;
    run->output_count = 1;
    if (!options->lse)
        return true;
    if (!npy_output_at(options->lse, &outputs[1]) ||
        !npy_make(options->lse, run->q.rank - 1, shape, &run->lse))
        return false;
    outputs[1].array = &run->lse;
    run->output_count = 2;
    return strcmp(outputs[0].path, outputs[1].path) ||
           complain("-o and --lse name one file: %s", options->lse);
}

/* ----------------------------------------------------------------------------- the library */

static bool set_offsets(struct run *run)
{
    const int64_t batch = run->args.batch;
    if (run->args.align == ATTNKIT_ALIGN_BOTTOM_RIGHT)
        run->offset = run->args.kv_len - run->args.q_len;
    if (run->args.align != ATTNKIT_ALIGN_OFFSETS)
        return true;
    run->q_offsets = malloc((size_t)(batch ? batch : 1) * sizeof *run->q_offsets);
    if (!run->q_offsets)
        return complain("no memory for %lld offsets", (long long)batch);
    for (int64_t b = 0; b < batch; b++)
        run->q_offsets[b] = run->offset;
    run->args.q_offsets = run->q_offsets;
    return true;
}

static attnkit_type type_of(const struct npy *array)
{
    return array->element == sizeof(float) ? ATTNKIT_F32 : ATTNKIT_F16;
}

static bool describe_call(struct run *run)
{
    attnkit_attention_args *const args = &run->args;
    args->size = sizeof *args;
    args->batch = size_of(&run->q, 3);
    args->q_heads = size_of(&run->q, 2);
    args->kv_heads = size_of(&run->k, 2);
    args->q_len = size_of(&run->q, 1);
    args->kv_len = size_of(&run->k, 1);
    args->head_dim = size_of(&run->q, 0);
    args->value_dim = size_of(&run->v, 0);
    args->q = run->q.data;
    args->k = run->k.data;
    args->v = run->v.data;
    args->out = run->out.data;
    args->lse = run->lse.data;
    args->q_type = type_of(&run->q);
    args->k_type = type_of(&run->k);
    args->v_type = type_of(&run->v);
    return set_offsets(run);
}

static bool describe_execution(struct run *run)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec *const exec = &run->exec;
    exec->size = sizeof *exec;
    exec->parallel_for = exec->threads > 1 ? parallel_for : NULL;
    run->choice.size = sizeof run->choice;
    if (attnkit_isa_choose(exec->isa, &run->choice, message) != ATTNKIT_OK ||
        attnkit_attention_workspace(&run->args, exec, &exec->workspace_size, message) != ATTNKIT_OK)
        return complain("%s", message);
    exec->workspace = malloc(exec->workspace_size ? exec->workspace_size : 1);
    return exec->workspace ||
           complain("no memory for a workspace of %zu bytes", exec->workspace_size);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool call_and_time(struct run *run)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    run->seconds = malloc((size_t)run->repeat * sizeof *run->seconds);
    if (!run->seconds)
        return complain("no memory for %lld times", (long long)run->repeat);
    for (int64_t i = 0; i < run->repeat; i++) {
        const double start = now();
        if (attnkit_attention(&run->args, &run->exec, message) != ATTNKIT_OK)
            return complain("%s", message);
        run->seconds[i] = now() - start;
    }
    qsort(run->seconds, (size_t)run->repeat, sizeof *run->seconds, by_value);
    return true;
}

/* ----------------------------------------------------------------------------- the summary */

/* Pairs of a query row and a key it sees, over all query heads. */
static double visible_pairs(const attnkit_attention_args *args, int64_t offset)
{
    const double heads = (double)args->batch * (double)args->q_heads;
    const double kv_len = (double)args->kv_len;
    if (!(args->flags & ATTNKIT_CAUSAL))
        return heads * (double)args->q_len * kv_len;
    double pairs = 0.0;
    for (int64_t i = 0; i < args->q_len; i++) {
        const double keys = (double)offset + (double)i + 1.0;
        pairs += keys < 0.0 ? 0.0 : keys < kv_len ? keys : kv_len;
    }
    return heads * pairs;
}

static void print_array(const char *label, const char *name, const struct npy *array)
{
    char shape[NPY_SHAPE_TEXT];
    printf("%-*s%s %s\n", LABEL, label, npy_shape(array, shape), name);
}

static void print_what_ran(const struct run_options *options, const struct run *run)
{
    const attnkit_isa_choice *const choice = &run->choice;
    const int64_t threads = run->exec.threads;
    printf("%-*s%s", LABEL, "ran on", choice->prefill);
    if (strcmp(choice->prefill, choice->decode))
        printf(" (many rows), %s (few rows)", choice->decode);
    printf(", %s; %lld thread%s\n", options->isa ? "as --isa says" : choice->reason,
           (long long)threads, threads == 1 ? "" : "s");
}

static void print_speed(const struct run *run)
{
    const attnkit_attention_args *const args = &run->args;
    const double best = run->seconds[0], median = run->seconds[run->repeat / 2];
    const double flops =
        2.0 * ((double)args->head_dim + (double)args->value_dim) * visible_pairs(args, run->offset);
    printf("%-*sbest %.6g ms, median %.6g ms of %lld\n", LABEL, "time", best * 1e3, median * 1e3,
           (long long)run->repeat);
    printf("%-*s%.2f GFLOP/s at best, %.4g GFLOP in all\n", LABEL, "speed",
           best > 0.0 ? flops / best * 1e-9 : 0.0, flops * 1e-9);
}

static void print_summary(const struct run_options *options, const struct run *run)
{
    print_array("q", options->q, &run->q);
    print_array("k", options->k, &run->k);
    print_array("v", options->v, &run->v);
    print_array("out", options->out, &run->out);
    if (options->lse)
        print_array("lse", options->lse, &run->lse);
    if (options->causal)
        printf("%-*s%s: query row 0 is at key %lld\n", LABEL, "causal", options->causal,
               (long long)run->offset);
    print_what_ran(options, run);
    print_speed(run);
}

/* ----------------------------------------------------------------------------- the command */

static int run_with(const struct run_options *options, struct run *run)
{
    if (!read_options(options, run))
        return EXIT_USAGE;
    if (!read_files(options, run) || !check_shapes(options, run) ||
        !prepare_outputs(options, run) || !describe_call(run) || !describe_execution(run) ||
        !call_and_time(run) || !npy_write(run->outputs, run->output_count))
        return EXIT_REFUSED;
    print_summary(options, run);
    return EXIT_OK;
}

static void release(struct run *run)
{
    npy_free(&run->q);
    npy_free(&run->k);
    npy_free(&run->v);
    npy_free(&run->out);
    npy_free(&run->lse);
    free(run->exec.workspace);
    free(run->q_offsets);
    free(run->seconds);
}

static void print_help(const struct option *options, int count)
{
    puts(
        "attnkit run: out = softmax(scale * q k^T) v, on NumPy files of float32 or float16\n"
        "\n"
        "The arrays are [rows, dim], [heads, rows, dim] or [batch, heads, rows, dim], all of one\n"
        "rank, out's too. q may have more heads than k and v, by a whole factor: then consecutive\n"
        "heads of q share one of k and v. out and lse are float32. A summary is printed when out\n"
        "is written; nothing is written if anything is wrong.\n");
    options_print_help(options, count);
}

int run_command(int argc, char **argv)
{
    static struct run_options values;
    static const struct option options[] = {
        {"--q", "FILE", "queries", &values.q},
        {"--k", "FILE", "keys", &values.k},
        {"--v", "FILE", "values; their rows may have another length than the keys'", &values.v},
        {"-o", "FILE", "the result", &values.out},
        {"--lse", "FILE", "logarithm of each row's sum of exp, shaped as out without its last size",
         &values.lse},
        {"--causal", "FORM",
         "query row i sees the keys up to its position, which is\n"
         "  upper-left     i\n"
         "  bottom-right   i + the number of keys - the number of query rows\n"
         "  OFFSET         i + OFFSET, a whole number",
         &values.causal},
        {"--scale", "X", "factor of the scores; without it 1 / sqrt(head_dim)", &values.scale},
        {"--isa", "NAME", "the instruction set; attnkit info tells which there are", &values.isa},
        {"--threads", "N", "threads, 1 .. 256; without it 1. The bits are the same for all",
         &values.threads},
        {"--repeat", "N", "run N times, for the times (starting threads is part of them)",
         &values.repeat},
        {"--help", NULL, "this text", &values.help},
    };
    const int count = sizeof options / sizeof *options;
    if (!options_parse(options, count, argc, argv))
        return EXIT_USAGE;
    if (values.help) {
        print_help(options, count);
        return EXIT_OK;
    }
    struct run *run = calloc(1, sizeof *run);
    if (!run) {
        complain("no memory");
        return EXIT_REFUSED;
    }
    const int code = run_with(&values, run);
    release(run);
    free(run);
    return code;
}
