/* SPDX-License-Identifier: Apache-2.0
 *
 * `attnkit run`: attention on arrays from .npy files, timed. From the options comes a struct run,
 * filled in this order: words and numbers, the library's arguments from files, the results' memory,
 * the times.
 */
#define _POSIX_C_SOURCE 200809L
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parallel.h"

/* ----------------------------------------------------------------------------- the library */

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

/* ----------------------------------------------------------------------------- the command */

static bool read_all(const struct run_options *options, struct run *run)
{
    return run_read_arrays(options, run) && run_read_masks(run) && run_read_extras(options, run) &&
           run_make_outputs(options, run) && run_convert_cache(options, run);
}

static int run_with(const struct run_options *options, struct run *run)
{
    if (!run_read_words(options, run))
        return EXIT_USAGE;
    if (!read_all(options, run) || !describe_execution(run) || !call_and_time(run))
        return EXIT_REFUSED;
    run_finish_outputs(run);
    if (!npy_write(run->outputs, run->output_count))
        return EXIT_REFUSED;
    run_print_summary(options, run);
    return EXIT_OK;
}

static void release(struct run *run)
{
    struct npy *const arrays[] = {
        &run->q,           &run->k,          &run->v,         &run->out,    &run->lse,
        &run->weights,     &run->alibi,      &run->sinks,     &run->q_docs, &run->kv_docs,
        &run->bytes.array, &run->bits.array, &run->bias.array};
    void *const others[] = {run->k_converted.data,
                            run->k_converted.scales,
                            run->v_converted.data,
                            run->v_converted.scales,
                            run->kv_len.values,
                            run->seed.values,
                            run->q_offsets,
                            run->kv_lens,
                            run->seeds,
                            run->exec.workspace,
                            run->seconds};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        npy_free(arrays[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        free(others[i]);
}

static void print_help(const struct option *options, int count)
{
    puts(
        "attnkit run: out = softmax(scale * q k^T) v, on NumPy files of float32 or float16\n"
        "\n"
        "The arrays are [rows, dim], [heads, rows, dim] or [batch, heads, rows, dim], all of one\n"
        "rank, out's too. q may have more heads than k and v, by a whole factor: then consecutive\n"
        "heads of q share one of k and v. A summary is printed when all results are written;\n"
        "nothing is written if anything is wrong.\n"
        "\n"
        "Masks are [batch, heads, rows, keys], or the last dimensions of that, and a size of 1\n"
        "repeats, as in NumPy. --mask-dims, --mask-bits-dims and --bias-dims name other ones: a\n"
        "mask bk is [batch, keys], bqk is [batch, rows, keys]. Where a mask has fewer keys than\n"
        "there are, the rest is masked, but a single one repeats. All of the options go together:\n"
        "a row sees a key if each of them lets it.\n");
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
        {"--weights", "FILE",
         "for each row and key a weight or a score, shaped as out with the\n"
         "number of keys for its last size",
         &values.weights},
        {"--weights-kind", "KIND",
         "which, in the order in which they are computed from each other:\n"
         "  scaled    scale * q k^T\n"
         "  capped    after --softcap\n"
         "  biased    after --bias and --alibi; -inf where the key is masked\n"
         "  softmax   after the softmax, before --dropout; the default",
         &values.weights_kind},
        {"--out-type", "TYPE", "of out: f32 (the default), f16, or bf16, written as float32",
         &values.out_type},
        {"--kv-type", "TYPE",
         "convert k and v before attention: f32, f16, bf16, q8_0, or i8 with a scale\n"
         "for each row",
         &values.kv_type},
        {"--causal", "FORM",
         "query row i sees the keys up to its position, which is\n"
         "  upper-left     i\n"
         "  bottom-right   i + the number of keys - the number of query rows\n"
         "  OFFSET         i + OFFSET, a whole number",
         &values.causal},
        {"--align", "FORM", "the position as --causal has it; later keys are seen, too",
         &values.align},
        {"--window", "LEFT,RIGHT",
         "see the keys from position - LEFT to position + RIGHT; -1 is no bound", &values.window},
        {"--keep-first", "N", "have the first N keys in every window", &values.keep_first},
        {"--kv-len", "N[,N...]",
         "see the first N keys: one N, or one for each batch entry; bottom-right\n"
         "counts these keys",
         &values.kv_len},
        {"--q-docs", "FILE",
         "numbers of documents, int32 or int64, [rows of q] or [batch, rows of q]: a\n"
         "row sees the keys with the same number in --kv-docs",
         &values.q_docs},
        {"--kv-docs", "FILE", "[keys] or [batch, keys]", &values.kv_docs},
        {"--mask", "FILE", "a mask: bool or uint8, or what --bias takes", &values.mask.file},
        {"--mask-kind", "KIND",
         "needed with --mask\n"
         "  attend   true, or any byte but 0: the row sees the key\n"
         "  ignore   true: it does not\n"
         "  add      the same as --bias",
         &values.mask.kind},
        {"--mask-dims", "LETTERS", "dimensions of the mask, of b h q k, k the last",
         &values.mask.dims},
        {"--mask-bits", "FILE",
         "a mask of uint8, where key j is bit j % 8 of byte j / 8 of a row (in NumPy\n"
         "np.packbits(mask, axis=-1, bitorder=\"little\"))",
         &values.bits.file},
        {"--mask-bits-kind", "KIND", "attend or ignore; needed with --mask-bits",
         &values.bits.kind},
        {"--mask-bits-dims", "LETTERS", "as --mask-dims", &values.bits.dims},
        {"--bias", "FILE", "float32 or float16, added to the scores; -inf masks the key",
         &values.bias.file},
        {"--bias-dims", "LETTERS", "as --mask-dims", &values.bias.dims},
        {"--scale", "X", "factor of the scores; without it 1 / sqrt(head_dim)", &values.scale},
        {"--softcap", "X", "scores become X * tanh(score / X)", &values.softcap},
        {"--alibi", "FILE",
         "slopes, float32 [heads of q]: slope * (key - position) is added to a score",
         &values.alibi},
        {"--sinks", "FILE",
         "float32 [heads of q]: one more score in each sum of exp, without a value", &values.sinks},
        {"--dropout", "P", "multiply weights by 0 with this probability, else by 1 / (1 - P)",
         &values.dropout},
        {"--seed", "N[,N...]", "of --dropout, 0 .. 2^64 - 1: one, or one for each batch entry",
         &values.seed},
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
