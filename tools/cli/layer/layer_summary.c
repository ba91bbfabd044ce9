/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary that `attnkit layer` prints after all files are written: the layer, the arrays, the
 * call, and its speed.
 */
#include "tools/cli/layer/layer.h"

#include <stdio.h>

static const char *const type_names[] = {
    [ATTNKIT_F32] = "f32", [ATTNKIT_F16] = "f16", [ATTNKIT_BF16] = "bf16", [ATTNKIT_Q8_0] = "q8_0"};

static void print_layer(const struct layer_options *options, const struct layer *layer)
{
    const attnkit_layer_weights *const w = &layer->weights;
    const char *const between = layer->prefix[0] ? " " : "";
    const bool converted = w->packed_type != w->w_type;
    char values[32] = "";
    say("%-*s%s%s%s, %s%s%s", RUN_LABEL, "layer", options->weights, between, layer->prefix,
        type_names[w->w_type], converted ? " packed as " : "",
        converted ? type_names[w->packed_type] : "");
    if (w->value_dim != w->head_dim)
        snprintf(values, sizeof values, ", values of %lld", (long long)w->value_dim);
    say("%-*s%lld of %lld, %lld KV head%s%s", RUN_LABEL, "heads", (long long)w->q_heads,
        (long long)w->head_dim, (long long)w->kv_heads, w->kv_heads == 1 ? "" : "s", values);
}

/* Returns the number of multiplications and additions of the four projections. */
static double projection_flops(const struct layer *layer)
{
    const attnkit_layer_weights *const w = &layer->weights;
    const attnkit_attention_args *const a = &layer->run.args;
    const double rows = (double)a->batch * (double)a->q_len;
    const double keys = (double)a->batch * (double)a->kv_len;
    const double q = (double)(w->q_heads * w->head_dim), k = (double)(w->kv_heads * w->head_dim);
    const double v = (double)(w->kv_heads * w->value_dim);
    const double result = (double)(w->q_heads * w->value_dim);
    return 2.0 * (rows * (q * (double)w->d_model + result * (double)w->d_out) +
                  keys * (k * (double)w->d_key + v * (double)w->d_value));
}

void layer_print_summary(const struct layer_options *options, const struct layer *layer)
{
    const struct run *const run = &layer->run;
    print_layer(options, layer);
    run_print_array("x", options->x, &layer->x, NULL);
    run_print_array("context", options->context, &layer->context, NULL);
    run_print_files(&options->run, run);
    if (options->plot)
        say("%-*s%d x %d pixels %s", RUN_LABEL, "plot", layer->picture.width, layer->picture.height,
            options->plot);
    say("%-*s%.6g ms, %zu bytes", RUN_LABEL, "pack", layer->pack_seconds * 1e3,
        layer->packed_bytes);
    run_print_speed(run, projection_flops(layer) + run_flops(run));
}
