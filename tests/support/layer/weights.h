/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of layers for tests: drawn at random, as a caller has them, and packed.
 */
#ifndef ATTNKIT_TEST_LAYER_WEIGHTS_H
#define ATTNKIT_TEST_LAYER_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attnkit.h"

struct layer {
    attnkit_layer_weights w;                            /* binary32, each matrix on its own */
    int64_t d_key, d_value, d_out, kv_heads, value_dim; /* without defaults */
    char *packed;
    size_t size;
};

/* Returns random floats, which the caller frees. */
float *layer_floats(int64_t count, uint64_t *random);

/* Draws any dims and heads. For self-attention, keys and values are as wide as x. */
void layer_draw(struct layer *l, bool is_self, uint64_t *random);

/* Draws weights of these dims, heads and types. */
void layer_draw_shape(struct layer *l, const attnkit_layer_weights *shape, bool biases,
                      uint64_t *random);

/* Draws other weights of the same shape and types. */
void layer_draw_alike(struct layer *l, const struct layer *like, uint64_t *random);

/* Packs the weights. Call it once. */
void layer_pack(struct layer *l);

/* Frees the weights, packed or not. */
void layer_free(struct layer *l);

#endif
