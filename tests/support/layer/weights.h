/* SPDX-License-Identifier: Apache-2.0
 *
 * Random weights of layers for tests: plain, as a caller has them, and packed.
 */
#ifndef ATTNKIT_TEST_LAYER_WEIGHTS_H
#define ATTNKIT_TEST_LAYER_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attnkit.h"

struct layer {
    attnkit_layer_weights w;                            /* binary32, in separate matrices */
    int64_t d_key, d_value, d_out, kv_heads, value_dim; /* dims of w; the default where w has 0 */
    char *packed;
    size_t size; /* bytes of `packed` */
};

/* Returns random floats, which the caller frees. */
float *layer_floats(int64_t count, uint64_t *random);

/* Draws dims, numbers of heads, weights and, in about half of the draws, biases. If `is_self`, rows
 * of keys and values have as many elements as rows of x. */
void layer_draw(struct layer *l, bool is_self, uint64_t *random);

/* Draws binary32 weights with the dims and numbers of heads of `shape` and, if `biases`, biases.
 * The packed type is the packed type of `shape`. */
void layer_draw_shape(struct layer *l, const attnkit_layer_weights *shape, bool biases,
                      uint64_t *random);

/* Draws other weights with the dims, numbers of heads and packed type of `like`. Draws biases if
 * `like` has biases. */
void layer_draw_alike(struct layer *l, const struct layer *like, uint64_t *random);

/* Packs the weights. A test may call this function only once for a layer. */
void layer_pack(struct layer *l);

/* Frees the weights, the biases and the packed weights. */
void layer_free(struct layer *l);

#endif
