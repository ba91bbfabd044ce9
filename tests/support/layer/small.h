/* SPDX-License-Identifier: Apache-2.0
 *
 * A small valid layer call and all its memory. Tests of refusals change the call.
 */
#ifndef ATTNKIT_TEST_LAYER_SMALL_H
#define ATTNKIT_TEST_LAYER_SMALL_H

#include "tests/support/groups.h"

enum {
    BATCH = 2,
    Q_HEADS = 4,
    KV_HEADS = 2,
    D_MODEL = 32,
    HEAD_DIM = 8,
    Q_LEN = 3,
    CAPACITY = 16,
    ROOM = 8192,    /* elements of each array from w to mask */
    MARGIN = 512,   /* floats before the first element in x, key, out, lse, mean, k and v */
    PACKED = 32768, /* bytes */
    PATTERN = 0xa5,
    SMALL_WORKSPACE = 1 << 20, /* bytes; more than any of these calls needs */
};

/* A call and all its memory except the workspace. A refused call may change none of this memory. */
struct small_layer {
    attnkit_layer_weights weights;
    attnkit_layer_args args;
    attnkit_attention_args attention;
    struct groups groups; /* the groups of attention */
    attnkit_rotation rotation;
    attnkit_exec exec;
    int64_t cached[BATCH], positions[BATCH], kv_lens[BATCH];
    int32_t block_table[BATCH];
    _Alignas(64) char packed[PACKED];
    float w[4][ROOM], b[4][ROOM];
    float x[ROOM], key[ROOM], out[ROOM], lse[ROOM], all[ROOM], mean[ROOM];
    float k[ROOM], v[ROOM], scales[ROOM], table[ROOM];
    unsigned char mask[ROOM];
};

extern char small_workspace[SMALL_WORKSPACE];

/* Makes a causal, rotated layer call with a cache, lse and mean weights. The new layer call takes
 * over the memory of the layer call that was made before. */
struct small_layer *small_layer(void);

/* Makes a layer call of cross-attention in the same memory, without a cache and not rotated. */
struct small_layer *small_cross_layer(void);

#endif
