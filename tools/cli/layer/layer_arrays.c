/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays of `attnkit layer` other than its weights: inputs, results, and the picture of the
 * attention weights. The batch and the lengths of the call follow from the inputs.
 */
#include "tools/cli/layer/layer.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/files.h"
#include "tools/formats/heat_map.h"

/* ------------------------------------------------------------------------------------ inputs */

/* Returns whether the rows of the array have `length` elements. `weights` is the name of the tensor
 * from which this length follows. */
static bool check_length(const char *name, const struct npy *array, int64_t length,
                         const char *weights)
{
    char shape[NPY_SHAPE_TEXT];
    return array->shape[array->rank - 1] == length ||
           complain("%s is %s: its last size must be %lld, the last size of %s", name,
                    npy_shape(array, shape), (long long)length, weights);
}

/* Returns whether the context has the rank, the type and the batch of x. */
static bool check_context(const struct layer_options *options, const struct layer *layer)
{
    const struct npy *const x = &layer->x, *const context = &layer->context;
    char shape[NPY_SHAPE_TEXT], shape_x[NPY_SHAPE_TEXT];
    if (context->rank != x->rank || (x->rank == 3 && context->shape[0] != x->shape[0]))
        return complain("%s is %s and %s is %s: must have the same rank and the same batch",
                        options->x, npy_shape(x, shape_x), options->context,
                        npy_shape(context, shape));
    return context->type == x->type ||
           complain("%s is '%s' and %s is '%s': must have the same dtype", options->x,
                    npy_descr(x->type), options->context, npy_descr(context->type));
}

static bool read_inputs(const struct layer_options *options, struct layer *layer)
{
    const struct npy_form form = {1u << NPY_F32 | 1u << NPY_F16, 2, 3};
    const struct file_tensor *const t = layer->tensors;
    const struct file_tensor *const w_q = t[W_Q].data ? &t[W_Q] : &t[W_QKV];
    const struct file_tensor *const w_k = t[W_K].data ? &t[W_K] : &t[W_QKV];
    const attnkit_layer_weights *const w = &layer->weights;
    if (!npy_read(options->x, form, &layer->x) ||
        !check_length(options->x, &layer->x, w->d_model, w_q->name))
        return false;
    if (!options->context)
        return check_length(options->x, &layer->x, w->d_key, w_k->name);
    return npy_read(options->context, form, &layer->context) &&
           check_length(options->context, &layer->context, w->d_key, w_k->name) &&
           check_context(options, layer);
}

/* Sets the shape of the call and of its attention. Later, the arrays of options such as masks are
 * checked against the shape of the attention. */
static void describe_shape(const struct layer_options *options, struct layer *layer)
{
    const struct npy *const x = &layer->x, *const context = &layer->context;
    const attnkit_layer_weights *const w = &layer->weights;
    attnkit_attention_args *const a = &layer->run.args;
    a->batch = x->rank == 3 ? x->shape[0] : 1;
    a->q_heads = w->q_heads;
    a->kv_heads = w->kv_heads;
    a->q_len = x->shape[x->rank - 2];
    a->kv_len = options->context ? context->shape[context->rank - 2] : a->q_len;
    a->head_dim = w->head_dim;
    a->value_dim = w->value_dim;
    attnkit_layer_args *const args = &layer->args;
    args->size = sizeof *args;
    args->batch = a->batch;
    args->q_len = a->q_len;
    args->kv_len = options->context ? a->kv_len : 0;
    args->x = run_tensor(x);
    if (options->context)
        args->key = run_tensor(context);
}

bool layer_read_arrays(const struct layer_options *options, struct layer *layer)
{
    if (!read_inputs(options, layer))
        return false;
    describe_shape(options, layer);
    const int64_t batch = layer->args.batch;
    return !options->plot || layer->plot_batch < batch ||
           complain("--plot-batch is %lld: must be below the batch, %lld",
                    (long long)layer->plot_batch, (long long)batch);
}

/* ----------------------------------------------------------------------------------- results */

/* Makes an array [batch][heads][rows][last]. The array has no batch dimension if x has none. If
 * `heads` or `last` is negative, the array lacks this dimension. */
static bool make_result(const char *name, enum npy_type type, int64_t heads, int64_t last,
                        const struct layer *layer, struct npy *array)
{
    const int64_t all[] = {layer->args.batch, heads, layer->args.q_len, last};
    int64_t shape[NPY_MAX_RANK];
    int rank = 0;
    for (int i = layer->x.rank == 2; i < NPY_MAX_RANK; i++)
        if (i == 0 || i == 2 || (i == 1 && heads >= 0) || (i == 3 && last >= 0))
            shape[rank++] = all[i];
    return npy_make(name, type, rank, shape, array);
}

/* Allocates the attention weights if their file or their picture is wanted. */
static bool make_weights(const struct layer_options *options, struct layer *layer)
{
    struct run *const run = &layer->run;
    const attnkit_attention_args *const a = &run->args;
    if (!options->run.weights && !options->plot)
        return true;
    run->weights_out.kind = ATTNKIT_WEIGHTS_SOFTMAX;
    const char *const name = options->run.weights ? options->run.weights : options->plot;
    return make_result(name, NPY_F32, a->q_heads, a->kv_len, layer, &run->weights);
}

/* Refuses a picture that cannot be drawn, before the layer runs. */
static bool check_plot(const struct layer_options *options, const struct layer *layer)
{
    const attnkit_attention_args *const a = &layer->run.args;
    if (a->q_heads > HEAT_MAP_MAX_HEADS)
        return complain("%s: no picture has room for %lld heads: must be at most %d", options->plot,
                        (long long)a->q_heads, HEAT_MAP_MAX_HEADS);
    return (a->q_len > 0 && a->kv_len > 0) ||
           complain("%s: there are no weights to be drawn", options->plot);
}

static bool name_outputs(const struct layer_options *options, struct run *run)
{
    return run_add_output("-o", options->run.out, &run->out, run) &&
           (!options->run.lse || run_add_output("--lse", options->run.lse, &run->lse, run)) &&
           (!options->run.weights ||
            run_add_output("--attention", options->run.weights, &run->weights, run)) &&
           (!options->plot || run_add_output("--plot", options->plot, NULL, run));
}

/* Returns whether no result replaces a file in a folder of weights. files_apart cannot check this,
 * because no option names these files. */
static bool apart_from_weights(const struct layer *layer)
{
    for (int i = 0; i < layer->run.output_count; i++)
        for (const struct file_tensor *t = layer->tensors; t < layer->tensors + ROLES; t++)
            if (t->own_file && !file_apart("--weights", t->name, layer->run.outputs[i].option,
                                           layer->run.outputs[i].name))
                return false;
    return true;
}

bool layer_make_outputs(const struct layer_options *options, struct layer *layer)
{
    struct run *const run = &layer->run;
    const enum npy_type type = run->args.out.type == ATTNKIT_F16 ? NPY_F16 : NPY_F32;
    if ((options->plot && !check_plot(options, layer)) || !name_outputs(options, run) ||
        !apart_from_weights(layer) ||
        !make_result(options->run.out, type, -1, layer->weights.d_out, layer, &run->out) ||
        (options->run.lse &&
         !make_result(options->run.lse, NPY_F32, run->args.q_heads, -1, layer, &run->lse)) ||
        !make_weights(options, layer))
        return false;
    layer->args.out = (attnkit_tensor){.data = run->out.data, .type = run->args.out.type};
    run->args.lse.data = run->lse.data;
    run->weights_out.weights.data = run->weights.data;
    return true;
}

/* ----------------------------------------------------------------------------------- picture */

/* If there is --plot, draws the picture and makes it the content of the last output, which
 * name_outputs added for --plot. */
bool layer_draw(const struct layer_options *options, struct layer *layer)
{
    struct run *const run = &layer->run;
    if (!options->plot)
        return true;
    const attnkit_attention_args *const a = &run->args;
    const float *const weights = run->weights.data;
    const struct heat_map map = {.weights = weights +
                                            layer->plot_batch * a->q_heads * a->q_len * a->kv_len,
                                 .heads = a->q_heads,
                                 .rows = a->q_len,
                                 .keys = a->kv_len};
    if (!heat_map_draw(&map, &layer->picture))
        return complain("%s: no memory for a picture", options->plot);
    struct npy_output *const output = &run->outputs[run->output_count - 1];
    if (!picture_encode(options->plot, &layer->picture, &layer->plot, &output->content_bytes))
        return false;
    output->content = layer->plot;
    return true;
}
