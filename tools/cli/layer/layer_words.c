/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of `attnkit layer` that are numbers or words. They are read before any file, so that
 * mistakes in these options are reported early.
 */
#include "tools/cli/layer/layer.h"

static bool check_needed(const struct layer_options *options)
{
    const struct option_pair pairs[] = {
        {"--rope-base", options->rope_base, "--rope", options->rope},
        {"--rope-dim", options->rope_dim, "--rope", options->rope},
        {"--plot-batch", options->plot_batch, "--plot", options->plot},
    };
    if (!options_go_together(pairs, sizeof pairs / sizeof *pairs))
        return false;
    return !options->rope || !options->context ||
           complain("options --rope and --context do not go together: keys of another sequence "
                    "have no position");
}

static bool read_heads(const struct layer_options *options, struct layer *layer)
{
    if (!parse_integer("--heads", options->heads, 1, INT32_MAX, &layer->heads))
        return false;
    if (!options->kv_heads)
        return true;
    if (!parse_integer("--kv-heads", options->kv_heads, 1, INT32_MAX, &layer->kv_heads))
        return false;
    return layer->heads % layer->kv_heads == 0 ||
           complain("--kv-heads is %lld: must divide --heads, %lld", (long long)layer->kv_heads,
                    (long long)layer->heads);
}

/* Reads the options of the rotation. The bounds of base and dim leave out 0, which the library
 * would take for the default. */
static bool read_rope(const struct layer_options *options, struct layer *layer)
{
    static const char *const forms[] = {"interleaved", "half", NULL};
    attnkit_rotation *const rotation = &layer->rotation;
    int form;
    if (!options->rope)
        return true;
    if (!parse_word("--rope", options->rope, forms, &form))
        return false;
    attnkit_rotation_init(rotation);
    layer->args.rotation = rotation;
    rotation->kind = form + ATTNKIT_ROPE_INTERLEAVED;
    if (options->rope_dim &&
        !parse_integer("--rope-dim", options->rope_dim, 2, INT64_MAX, &rotation->dim))
        return false;
    if (!options->rope_base)
        return true;
    return parse_real("--rope-base", options->rope_base, &rotation->base) &&
           (rotation->base >= 1.0 ||
            complain("--rope-base is %s: must be at least 1", options->rope_base));
}

/* Reads --weight-type. Without this option, layer_weights.c later sets packed_type to the type that
 * the weights have in their file. */
static bool read_weight_type(const struct layer_options *options, struct layer *layer)
{
    static const char *const types[] = {"f32", "f16", "bf16", "q8_0", NULL};
    static const attnkit_type meant[] = {ATTNKIT_F32, ATTNKIT_F16, ATTNKIT_BF16, ATTNKIT_Q8_0};
    int type = 0;
    if (options->weight_type && !parse_word("--weight-type", options->weight_type, types, &type))
        return false;
    layer->weights.packed_type = meant[type];
    return true;
}

bool layer_read_words(const struct layer_options *options, struct layer *layer)
{
    return check_needed(options) && run_read_words(&options->run, &layer->run) &&
           read_heads(options, layer) && read_rope(options, layer) &&
           read_weight_type(options, layer) &&
           (!options->plot_batch ||
            parse_integer("--plot-batch", options->plot_batch, 0, INT64_MAX, &layer->plot_batch));
}
