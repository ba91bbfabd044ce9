/* SPDX-License-Identifier: Apache-2.0
 *
 * The packed weights of a multi-head attention layer: a description, the four matrices as
 * attnkit_pack writes them, and their biases as binary32. Each part begins at a multiple of 64
 * bytes.
 */
#ifndef ATTNKIT_DISPATCH_LAYER_H
#define ATTNKIT_DISPATCH_LAYER_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "attnkit.h"

enum projection { Q, K, V, O, PROJECTIONS };

struct projection_shape {
    int64_t out_dim, in_dim;
    bool has_bias;
    int64_t w, bias; /* bytes from the beginning of the packed weights */
};

struct layer {
    int64_t q_heads, kv_heads, head_dim, value_dim;
    enum type type; /* type of the packed matrices */
    struct projection_shape projection[PROJECTIONS];
    int64_t bytes;
    const char *packed;
};

/* Reads the description and checks that `size` covers all parts. */
attnkit_status attnkit_read_layer(const void *packed, size_t size, struct layer *layer,
                                  char *message);

#endif
