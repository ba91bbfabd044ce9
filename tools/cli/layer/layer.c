/* SPDX-License-Identifier: Apache-2.0
 *
 * `attnkit layer` runs the attention layer of a model on arrays from .npy files, and times the
 * runs. The command first reads the weights from the files of the model and packs the weights.
 */
#include "tools/cli/layer/layer.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/cli/files.h"

enum { OWN_OPTIONS = 16 };

static bool read_all(const struct layer_options *options, struct layer *layer)
{
    return layer_read_weights(options, layer) && layer_read_arrays(options, layer) &&
           run_read_masks(&layer->run) && run_read_extras(&options->run, &layer->run) &&
           layer_make_outputs(options, layer);
}

static int run_with(const struct layer_options *options, struct layer *layer)
{
    struct run *const run = &layer->run;
    if (!layer_read_words(options, layer))
        return EXIT_USAGE;
    if (options->plot && !picture_can_be_written("--plot"))
        return EXIT_REFUSED;
    if (!read_all(options, layer) || !run_choose(run) || !layer_pack(layer) || !layer_run(layer))
        return EXIT_REFUSED;
    run_finish_outputs(run);
    if (!layer_draw(options, layer) || !npy_write(run->outputs, run->output_count))
        return EXIT_REFUSED;
    layer_print_summary(options, layer);
    return EXIT_OK;
}

static void release(struct layer *layer)
{
    for (int r = 0; r < ROLES; r++)
        weights_free(&layer->tensors[r]);
    npy_free(&layer->x);
    npy_free(&layer->context);
    free(layer->prefix);
    free(layer->packed);
    free(layer->picture.pixels);
    free(layer->plot);
    run_release(&layer->run);
}

static void print_help(const struct option *options, int count)
{
    puts(
        "attnkit layer: the attention layer of a model, on NumPy files of float32 or float16\n"
        "\n"
        "out = attention(rotate(x W_Q'), rotate(c W_K'), c W_V') W_O', where c is the context\n"
        "or, without --context, x. W' is W transposed. A bias is added after each matrix that has\n"
        "a bias. x, c and out are [rows, d] or [batch, rows, d]. A summary is printed when all\n"
        "results are written. If an option or an input is wrong, nothing is written.\n"
        "\n"
        "The weights are q_proj, k_proj, v_proj, and o_proj or out_proj. Each has .weight, with a "
        "row\n"
        "for each output, and may have .bias. in_proj_weight and in_proj_bias of PyTorch's\n"
        "MultiheadAttention, or qkv_proj, can take the place of q_proj, k_proj and v_proj.\n");
    options_print_help(options, count);
}

int layer_command(int argc, char **argv)
{
    static struct layer_options values;
    static const char *const required[] = {"--weights", "--heads", "--x", "-o", NULL};
    static const char *const results[] = {"-o", "--lse", "--attention", "--plot", NULL};
    struct option options[OWN_OPTIONS + RUN_SHARED_OPTIONS] = {
        {"--weights", "PLACE",
         "a safetensors file (F32, F16 or BF16), or a folder of .npy files (float32\n"
         "or float16) that have the names of their tensors: q_proj.weight.npy",
         &values.weights},
        {"--prefix", "NAME",
         "what the names begin with, such as model.layers.0.self_attn.; needed if\n"
         "there are several layers",
         &values.prefix},
        {"--heads", "N", "query heads", &values.heads},
        {"--kv-heads", "N",
         "heads of k and v; by default, the number that follows from the rows of\n"
         "k_proj, or --heads if q, k and v are one matrix",
         &values.kv_heads},
        {"--weight-type", "TYPE",
         "pack the weights as f32, f16, bf16 or q8_0; by default as in their file",
         &values.weight_type},
        {"--x", "FILE", "the input", &values.x},
        {"--context", "FILE", "the rows for keys and values; by default, the input",
         &values.context},
        {"-o", "FILE", "the result", &values.run.out},
        {"--out-type", "TYPE",
         "type of the result: f32 (the default), f16 or bf16; bf16 is written as\n"
         "float32",
         &values.run.out_type},
        {"--lse", "FILE", "logarithm of each row's sum of exp, [batch, heads, rows]",
         &values.run.lse},
        {"--attention", "FILE", "the weights of attention, [batch, heads, rows, keys]",
         &values.run.weights},
        {"--plot", "FILE",
         "the weights of attention as a PNG picture, a panel for each head: rows\n"
         "down, keys across. The brightness follows the square root of a weight:\n"
         "dark is 0, and the brightest colour is the largest weight of the head",
         &values.plot},
        {"--plot-batch", "N", "the batch entry in the picture; by default 0", &values.plot_batch},
        {"--rope", "FORM",
         "rotate q and k, row i by the angles of position i\n"
         "  interleaved   elements 2 j and 2 j + 1 of a head are a pair\n"
         "  half          elements j and j + N / 2 are a pair, with N of --rope-dim",
         &values.rope},
        {"--rope-base", "X", "base of the angles; by default 10000", &values.rope_base},
        {"--rope-dim", "N", "elements of a head that are rotated; by default all",
         &values.rope_dim},
    };
    const int count = sizeof options / sizeof *options;
    run_share_options(&values.run, options + OWN_OPTIONS);
    if (!options_parse(options, count, argc, argv))
        return EXIT_USAGE;
    if (values.run.help) {
        print_help(options, count);
        return EXIT_OK;
    }
    if (!options_require("layer", options, count, required))
        return EXIT_USAGE;
    if (!files_apart(options, count, results))
        return EXIT_REFUSED;
    struct layer *layer = calloc(1, sizeof *layer);
    if (!layer) {
        complain("no memory");
        return EXIT_REFUSED;
    }
    const int code = run_with(&values, layer);
    release(layer);
    free(layer);
    return code;
}
