/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `attnkit layer`. The functions below fill a struct layer step by step from the
 * options. run_with and read_all in layer.c show the order of the steps. A function that returns
 * false has printed an error. The layer's attention is described by the struct run of `attnkit
 * run`.
 */
#ifndef ATTNKIT_TOOLS_LAYER_H
#define ATTNKIT_TOOLS_LAYER_H

#include "tools/formats/picture.h"
#include "tools/cli/run/run.h"
#include "tools/formats/weights_file.h"

struct layer_options {
    struct run_options run; /* its field `weights` is the file of --attention */
    const char *weights, *prefix, *heads, *kv_heads, *weight_type;
    const char *x, *context;
    const char *rope, *rope_base, *rope_dim;
    const char *plot, *plot_batch;
};

/* The matrices and biases of a layer. q, k and v have three matrices, or one matrix W_QKV in which
 * the three lie one after the other. The same is true of the biases. */
enum role { W_Q, W_K, W_V, W_QKV, W_O, B_Q, B_K, B_V, B_QKV, B_O, ROLES };

struct layer {
    struct run run;
    int64_t heads, kv_heads; /* kv_heads is 0 without --kv-heads */
    char *prefix;            /* the beginning of the names of the layer's tensors */
    struct file_tensor tensors[ROLES];
    attnkit_layer_weights weights;
    struct npy x, context;
    attnkit_attention_args attention;
    attnkit_rotation rotation; /* args points to it if there is --rope */
    attnkit_layer_args args;
    void *packed;
    size_t packed_bytes;
    double pack_seconds;
    int64_t plot_batch;
    struct picture picture;
    void *plot; /* the picture as the bytes of a PNG file */
};

/* Reads the options that are numbers or words (layer_words.c). Returns false on a usage error. */
bool layer_read_words(const struct layer_options *options, struct layer *layer);

/* Reads the weights, and sets the shape of the layer (layer_weights.c). The shape follows from the
 * shapes of the weights and from the numbers of heads. */
bool layer_read_weights(const struct layer_options *options, struct layer *layer);

/* These functions are in layer_arrays.c. layer_read_arrays reads the inputs and sets the shape of
 * the call. layer_make_outputs allocates the results and adds their files to the outputs.
 * layer_make_outputs is called after run_read_masks and run_read_extras, which read the options of
 * attention. layer_draw draws the picture of --plot. */
bool layer_read_arrays(const struct layer_options *options, struct layer *layer);
bool layer_make_outputs(const struct layer_options *options, struct layer *layer);
bool layer_draw(const struct layer_options *options, struct layer *layer);

/* These functions are in layer_call.c. layer_pack packs the weights and frees the tensors.
 * layer_run runs the layer --repeat times, and times each run. */
bool layer_pack(struct layer *layer);
bool layer_run(struct layer *layer);

/* Prints the layer, the arrays that were read and written, the call, and its speed
 * (layer_summary.c). */
void layer_print_summary(const struct layer_options *options, const struct layer *layer);

#endif
