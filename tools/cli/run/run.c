/* SPDX-License-Identifier: Apache-2.0
 *
 * `attnkit run` computes attention on arrays from .npy files, and times the runs. A struct run is
 * filled in this order: words and numbers of the options, arrays from files, memory for the
 * results, converted arrays (--kv-type), the chosen instruction set, and the times.
 */
#include "tools/cli/run/run.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/cli/files.h"

enum { OWN_OPTIONS = 12 };

static attnkit_status workspace(const void *args, const attnkit_exec *exec, size_t *bytes,
                                char *message)
{
    return attnkit_attention_workspace(args, exec, bytes, message);
}

static attnkit_status attention(const void *args, const attnkit_exec *exec, char *message)
{
    return attnkit_attention(args, exec, message);
}

static bool read_all(const struct run_options *options, struct run *run)
{
    return run_read_arrays(options, run) && run_read_masks(run) && run_read_extras(options, run) &&
           run_make_outputs(options, run) && run_convert_cache(options, run);
}

static int run_with(const struct run_options *options, struct run *run)
{
    if (!run_read_words(options, run))
        return EXIT_USAGE;
    const struct run_call call = {&run->args, workspace, attention};
    if (!read_all(options, run) || !run_choose(run) || !run_execute(run, &call))
        return EXIT_REFUSED;
    run_finish_outputs(run);
    if (!npy_write(run->outputs, run->output_count))
        return EXIT_REFUSED;
    run_print_files(options, run);
    run_print_speed(run, run_flops(run));
    return EXIT_OK;
}

static void print_help(const struct option *options, int count)
{
    puts(
        "attnkit run: out = softmax(scale * q k^T) v, on NumPy files of float32 or float16\n"
        "\n"
        "q, k, v and the result are [rows, dim], [heads, rows, dim] or [batch, heads, rows, dim].\n"
        "All have the same rank. The heads of q may be a multiple of the heads of k and v: then\n"
        "consecutive heads of q share a head of k and v. A summary is printed when all results\n"
        "are written. If an option or an input is wrong, nothing is written.\n"
        "\n"
        "Masks are [batch, heads, rows, keys], or have only the last one, two or three of these\n"
        "dimensions. A size of 1 repeats, as in NumPy, except the last size of --mask-bits.\n"
        "--mask-dims, --mask-bits-dims and --bias-dims name other dimensions: a mask bk is\n"
        "[batch, keys], bqk is [batch, rows, keys]. If a mask has fewer keys than k, the keys\n"
        "after its end are masked. But a mask of a single key is repeated for all keys, except\n"
        "with --mask-bits. The options can be combined: a row sees a key if every option lets it\n"
        "see the key.\n");
    options_print_help(options, count);
}

int run_command(int argc, char **argv)
{
    static struct run_options values;
    static const char *const required[] = {"--q", "--k", "--v", "-o", NULL};
    static const char *const results[] = {"-o", "--lse", "--weights", NULL};
    struct option options[OWN_OPTIONS + RUN_SHARED_OPTIONS] = {
        {"--q", "FILE", "queries", &values.q},
        {"--k", "FILE", "keys", &values.k},
        {"--v", "FILE", "values; their rows may have another length than the rows of k", &values.v},
        {"-o", "FILE", "the result", &values.out},
        {"--lse", "FILE", "logarithm of each row's sum of exp, shaped as out without its last size",
         &values.lse},
        {"--weights", "FILE",
         "for each row and key a weight or a score, shaped as out with the\n"
         "number of keys for its last size",
         &values.weights},
        {"--weights-kind", "KIND",
         "the kind of --weights; each kind is computed from the kind above it:\n"
         "  scaled    scale * q k^T\n"
         "  capped    after --softcap\n"
         "  biased    after --bias and --alibi; -inf where the key is masked\n"
         "  softmax   after the softmax, before --dropout; the default",
         &values.weights_kind},
        {"--out-type", "TYPE",
         "type of the result: f32 (the default), f16 or bf16; bf16 is written as\n"
         "float32",
         &values.out_type},
        {"--kv-type", "TYPE",
         "convert k and v before attention: f32, f16, bf16, q8_0, q4_0, q5_0, or i8\n"
         "with a scale for each row",
         &values.kv_type},
        {"--integers", NULL,
         "with --kv-type i8 or q8_0: round q and the weights to integers of 16 bits,\n"
         "and multiply integers. This changes the bits of the result. Not with\n"
         "--weights",
         &values.integers},
        {"--bf16-products", "PARTS",
         "with --kv-type bf16: round q to bf16, and each weight to the sum of 1\n"
         "or 2 bf16, and multiply bf16 in groups of 32 products. This changes the\n"
         "bits of the result. Not with --weights or --dropout",
         &values.bf16_products},
        {"--key-index", "FILE",
         "the rows of k and v are the cells of a cache, whose keys lie in any order.\n"
         "The file has the index of each cell's key, or -1 for an empty cell: int32\n"
         "or int64, [keys] or [batch, keys]. Positions, --window and --alibi refer\n"
         "to these indices. Masks, --kv-docs, --weights and --kv-len refer to cells",
         &values.key_index},
    };
    const int count = sizeof options / sizeof *options;
    run_share_options(&values, options + OWN_OPTIONS);
    if (!options_parse(options, count, argc, argv))
        return EXIT_USAGE;
    if (values.help) {
        print_help(options, count);
        return EXIT_OK;
    }
    if (!options_require("run", options, count, required))
        return EXIT_USAGE;
    if (!files_apart(options, count, results))
        return EXIT_REFUSED;
    struct run *run = calloc(1, sizeof *run);
    if (!run) {
        complain("no memory");
        return EXIT_REFUSED;
    }
    const int code = run_with(&values, run);
    run_release(run);
    free(run);
    return code;
}
