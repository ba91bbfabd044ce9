/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `attnkit run`. `attnkit layer` also uses most of these parts. The functions below
 * fill a struct run step by step from the options. run_with in run.c shows the order of the steps.
 * A function that returns false has printed an error.
 */
#ifndef ATTNKIT_RUN_H
#define ATTNKIT_RUN_H

#include <attnkit.h>

#include <stdbool.h>
#include <stdint.h>

#include "tools/formats/npy.h"
#include "tools/cli/tool.h"

/* The options of a mask or of a bias. */
struct mask_options {
    const char *file, *kind, *dims;
};

struct run_options {
    const char *q, *k, *v, *out, *lse, *weights; /* names of files */
    const char *weights_kind, *kv_type, *out_type;
    const char *causal, *align, *window, *keep_first, *kv_len, *q_docs, *kv_docs;
    const char *key_index, *integers, *bf16_products;
    struct mask_options mask, bits, bias;
    const char *bias_scales, *scale, *softcap, *alibi, *sinks, *dropout, *seed;
    const char *isa, *threads, *repeat, *help;
};

/* A mask or a bias of the attention. */
struct run_mask {
    const char *option; /* the option that names the file */
    const char *file;   /* NULL if there is no mask */
    const char *dims;   /* a letter of "bhqk" for each dimension of the array; NULL: the last
                         * letters of "bhqk", as many as the array has dimensions */
    struct npy array;
};

/* q, K or V after the conversion to the type of --kv-type. The pointers are NULL if the array is
 * not converted. */
struct converted {
    void *data;
    float *scales; /* a scale for each row of int8; NULL for other types */
};

enum { RUN_MAX_OUTPUTS = 4, RUN_SHARED_OPTIONS = 26, RUN_LABEL = 8 };

struct run {
    struct npy q, k, v, out, lse, weights, bias_scales, alibi, sinks;
    struct run_mask bytes, bits, bias;
    struct npy q_docs, kv_docs, key_index;
    struct converted q_converted, k_converted, v_converted;
    struct npy_output outputs[RUN_MAX_OUTPUTS];
    int output_count;
    attnkit_type kv_type; /* valid only if --kv-type is given */
    struct naturals kv_len,
        seed;           /* from the options: no number, one, or one for each batch entry */
    int64_t offset;     /* OFFSET of --causal or --align, else 0 */
    int64_t *q_offsets; /* the position of row 0 of each batch entry, or NULL */
    uint64_t *kv_lens, *seeds;
    attnkit_attention_args args;
    /* The groups of options of args, from storage to weights_out. run_read_words makes args point
     * to all of them but window. */
    attnkit_kv_storage storage;
    attnkit_visibility visibility;
    attnkit_window window; /* visibility points to it if there is --window */
    attnkit_score_mods scores;
    attnkit_weights_out weights_out;
    attnkit_exec exec;
    attnkit_isa_choice choice;
    int64_t repeat;
    double *seconds; /* the time of each repeat, shortest first */
};

/* A call of the library. */
struct run_call {
    const void *args;
    attnkit_status (*workspace)(const void *args, const attnkit_exec *exec, size_t *bytes,
                                char *message);
    attnkit_status (*run)(const void *args, const attnkit_exec *exec, char *message);
};

/* Copies the options that `attnkit run` and `attnkit layer` share, from --causal to --help, to
 * `options` (run_options.c). options_parse will set the fields of `values`. */
void run_share_options(struct run_options *values, struct option options[RUN_SHARED_OPTIONS]);

/* Reads the options that are numbers or words (run_words.c). Returns false on a usage error. */
bool run_read_words(const struct run_options *options, struct run *run);

/* These functions are in run_arrays.c. run_read_arrays reads q, k and v and sets the shape of the
 * call. run_make_outputs allocates the results and adds their files to the outputs.
 * run_finish_outputs widens a bfloat16 result to float32, for its file. */
bool run_read_arrays(const struct run_options *options, struct run *run);
bool run_make_outputs(const struct run_options *options, struct run *run);
void run_finish_outputs(struct run *run);

/* These functions are also in run_arrays.c. run_tensor describes an array of floats as a tensor of
 * the library. run_add_output adds a result and its file. */
attnkit_tensor run_tensor(const struct npy *array);
bool run_add_output(const char *option, const char *name, const struct npy *array, struct run *run);

/* Reads masks of bytes and of bits, and the bias (run_masks.c). args must have the shape
 * already. */
bool run_read_masks(struct run *run);

/* Sets the arrays that have a number for each batch entry, row, key, cell or query head
 * (run_extras.c). The numbers come from options or from files. args must have the shape already. */
bool run_read_extras(const struct run_options *options, struct run *run);

/* Returns the index of the key in a cell of a batch entry. A negative index means an empty cell.
 * May be called only with --key-index. */
int64_t run_index_at(const struct run *run, int64_t b, int64_t cell);

/* Converts K and V, and with --bf16-products also q, to the type of --kv-type (run_convert.c).
 * Without --kv-type, converts nothing. */
bool run_convert_cache(const struct run_options *options, struct run *run);

/* These functions are in run_execute.c. run_choose chooses the instruction set, and sets a
 * parallel-for if there are several threads. run_execute makes the call --repeat times, and times
 * each repeat. run_now returns the time of a clock in seconds. run_release frees what the run owns,
 * but not the struct. */
bool run_choose(struct run *run);
bool run_execute(struct run *run, const struct run_call *call);
double run_now(void);
void run_release(struct run *run);

/* These functions are in run_summary.c. run_print_files prints the lines about the files and the
 * call. run_print_speed prints the lines about the speed. run_flops returns the FLOPs of attention.
 * run_print_array prints the line about one array. */
void run_print_files(const struct run_options *options, const struct run *run);
void run_print_speed(const struct run *run, double flops);
double run_flops(const struct run *run);
void run_print_array(const char *label, const char *name, const struct npy *array,
                     const char *note);

#endif
