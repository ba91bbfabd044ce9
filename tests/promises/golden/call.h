/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention calls for golden cases, each made from a description. The same description always makes
 * the same numbers in the same places. Every tensor has random numbers of its own, so that a new
 * tensor does not change the numbers of other tensors.
 */
#ifndef ATTNKIT_TEST_GOLDEN_CALL_H
#define ATTNKIT_TEST_GOLDEN_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/groups.h"
#include "tests/support/memory.h"

enum golden_numbers {
    USUAL,
    PEAKED,  /* few keys have nearly all the weight */
    SMALL,   /* subnormal in binary16 */
    SPECIAL, /* a few numbers are NaN, infinities, zeros of both signs, +-6e4 or 1e-7 */
};

/* The description of a call. If an option has a `has_` field, this field says whether the call has
 * the option. The call lacks any other option whose field is 0. */
struct golden_attention {
    uint64_t seed; /* seed of all numbers */
    enum golden_numbers numbers;
    attnkit_type q, k, v, out;
    int64_t batch, kv_heads, group, q_len, kv_len, head_dim, value_dim;
    int64_t k_group, v_group; /* number of elements that share a scale; 0: a whole row */

    bool tokens; /* K and V are [batch][key][head] */
    bool tiled;
    bool packed_q, packed_kv;
    int64_t page_size;
    bool cells; /* keys lie in cells in any order, and some cells may be empty */

    bool is_causal;
    attnkit_align align;
    bool has_lens;
    bool has_window;
    int64_t left, right, keep_first;
    bool has_segments;
    attnkit_mask_kind bytes, bits;
    bool has_bias;
    attnkit_type bias;
    bool short_columns;  /* with more than 4 keys, masks and bias have 4 columns fewer than keys */
    bool shared_columns; /* a mask or bias has one row for all entries, heads and query rows */

    bool has_scale;
    double scale, softcap, dropout;
    bool has_slopes, has_sinks, has_bias_scales;
    attnkit_weights_kind weights;
    bool integers; /* K and V are multiplied as integers */
    int parts;     /* number of bf16 for a weight with ATTNKIT_BF16_PRODUCTS: 1 or 2; else 0 */
};

enum { GOLDEN_PIECES = 24, GOLDEN_BATCH = 3 };

struct golden_call {
    struct golden_attention what;
    attnkit_attention_args args;
    struct groups groups; /* the groups to which args points */
    char *out;            /* the outputs of args */
    float *lse, *weights;
    int64_t rows; /* number of query rows of all heads and entries */
    int pieces;
    struct guarded piece[GOLDEN_PIECES];
};

/* Makes a call. Every tensor ends at an unmapped page. */
struct golden_call *golden_call_new(const struct golden_attention *what);
void golden_call_free(struct golden_call *c);

/* Allocates memory that ends at an unmapped page and is freed with the call. */
void *golden_take(struct golden_call *c, int64_t bytes);

/* The tensors and other parts of a call. Each has random numbers of its own. */
enum golden_tensor {
    GOLDEN_Q,
    GOLDEN_K,
    GOLDEN_V,
    GOLDEN_K_SCALES,
    GOLDEN_V_SCALES,
    GOLDEN_LENS,
    GOLDEN_OFFSETS,
    GOLDEN_Q_STARTS,
    GOLDEN_KV_STARTS,
    GOLDEN_Q_SEGMENTS,
    GOLDEN_KV_SEGMENTS,
    GOLDEN_BYTES,
    GOLDEN_BITS,
    GOLDEN_BIAS,
    GOLDEN_SLOPES,
    GOLDEN_SINKS,
    GOLDEN_SEEDS,
    GOLDEN_BIAS_SCALES,
    GOLDEN_CELLS,
};

/* Returns the seed of the random numbers of a tensor. */
uint64_t golden_stream(const struct golden_attention *what, enum golden_tensor tensor);

/* Draws a number as `numbers` says. */
float golden_number(enum golden_numbers numbers, uint64_t *random);

/* Puts K and V with their scales, pages and lengths into a call. The code of this function is in
 * stored.c. */
void golden_store(struct golden_call *c);

/* Runs any call on an instruction set. Fails the test on any status but ATTNKIT_OK. */
void golden_attend(const attnkit_attention_args *args, const char *isa);

/* Runs the call on an instruction set, or by the reference if isa is NULL. Returns the hash of out,
 * lse and weights. */
uint64_t golden_call_hash(const struct golden_call *c, const char *isa);

/* Prints the whole description on one line, as a TAP comment. */
void golden_attention_print(const struct golden_attention *what);

#endif
