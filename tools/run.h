/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of `attnkit run`. A struct run is filled step by step from the options, in the order
 * of the functions below; a function that returns false has complained.
 */
#ifndef ATTNKIT_RUN_H
#define ATTNKIT_RUN_H

#include <attnkit.h>

#include <stdbool.h>
#include <stdint.h>

#include "npy.h"
#include "tool.h"

/* The options of a mask. */
struct mask_options {
    const char *file, *kind, *dims;
};

struct run_options {
    const char *q, *k, *v, *out, *lse, *weights; /* names of files */
    const char *weights_kind, *kv_type, *out_type;
    const char *causal, *align, *window, *keep_first, *kv_len, *q_docs, *kv_docs;
    struct mask_options mask, bits, bias;
    const char *scale, *softcap, *alibi, *sinks, *dropout, *seed;
    const char *isa, *threads, *repeat, *help;
};

/* A mask of the attention. */
struct run_mask {
    const char *option; /* that names the file */
    const char *file;   /* NULL: there is none */
    const char *dims;   /* a letter of "bhqk" for each dimension; NULL: the last ones of these */
    struct npy array;
};

/* K or V in the type that attention reads; NULL where that is the file's. */
struct converted {
    void *data;
    float *scales; /* of int8 */
};

enum { RUN_MAX_OUTPUTS = 3 };

struct run {
    struct npy q, k, v, out, lse, weights, alibi, sinks;
    struct run_mask bytes, bits, bias;
    struct npy q_docs, kv_docs;
    struct converted k_converted, v_converted;
    struct npy_output outputs[RUN_MAX_OUTPUTS];
    int output_count;
    attnkit_type kv_type;         /* read only if the option is there */
    struct naturals kv_len, seed; /* as the options say: one number, or one for each batch entry */
    int64_t offset;               /* the same of --causal and --align, if they say a number */
    int64_t *q_offsets;           /* these for each batch entry, or NULL */
    uint64_t *kv_lens, *seeds;
    attnkit_attention_args args;
    attnkit_exec exec;
    attnkit_isa_choice choice;
    int64_t repeat;
    double *seconds; /* of each repeat, shortest first */
};

/* run_words.c: the options that are numbers or words. False is a usage error. */
bool run_read_words(const struct run_options *options, struct run *run);

/* run_arrays.c: q, k and v and the shape of the call, memory for the results, and the results as
 * the files get them. */
bool run_read_arrays(const struct run_options *options, struct run *run);
bool run_make_outputs(const struct run_options *options, struct run *run);
void run_finish_outputs(struct run *run);

/* run_masks.c: masks in bytes, bits and numbers. */
bool run_read_masks(struct run *run);

/* run_extras.c: what there is for each batch entry, row, key or head. */
bool run_read_extras(const struct run_options *options, struct run *run);

/* run_convert.c: K and V in another type. */
bool run_convert_cache(const struct run_options *options, struct run *run);

/* run_summary.c: what was read, written and how fast. */
void run_print_summary(const struct run_options *options, const struct run *run);

#endif
