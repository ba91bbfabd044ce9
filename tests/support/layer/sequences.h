/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer for sequences, causal and rotated, with KV caches of any type and layout: the starting
 * point of tests of decoding.
 */
#ifndef ATTNKIT_TEST_LAYER_SEQUENCES_H
#define ATTNKIT_TEST_LAYER_SEQUENCES_H

#include "tests/support/groups.h"
#include "tests/support/layer/weights.h"

enum {
    SEQUENCES = 3, /* most sequences */
    CACHE_CAPACITY = 150,
    CACHE_PAGE = 16,
    CACHE_PAGES = SEQUENCES * (CACHE_CAPACITY / CACHE_PAGE + 1) + 3,
    ROW_BYTES = 160, /* bytes of a row of x and of out */
    ROW_FLOATS = 40,
};

/* `batch` sequences of `len` rows, with 6 query heads of 32 elements that share 2 KV heads. x and
 * out have strides. */
struct sequences {
    struct layer layer;
    attnkit_layer_args args;
    attnkit_attention_args attention;
    struct groups groups; /* of attention */
    attnkit_rotation rotation;
    int64_t batch, len;
    float *x, *out;
};

void sequences_begin(struct sequences *s, int64_t batch, int64_t len, uint64_t seed);
void sequences_end(struct sequences *s);

/* Returns the bytes of x, which are also the bytes of out. */
size_t sequences_bytes(const struct sequences *s);

struct storage {
    attnkit_type type;
    bool paged, tiled;
};

enum { STORAGES = 11 };
extern const struct storage storages[STORAGES];

/* A cache, empty at first, and the attention of some sequences with it. */
struct cached_layer {
    attnkit_layer_args args; /* its attention */
    attnkit_attention_args attention;
    struct groups groups;
    char *k, *v;
    float *k_scales, *v_scales;
    size_t bytes; /* bytes of k, and of v */
    int32_t table[CACHE_PAGES];
    int64_t cached[SEQUENCES]; /* keys so far, by sequence; args points to them */
};

void cached_layer_begin(struct cached_layer *c, const struct sequences *s,
                        const struct storage *how);
void cached_layer_end(struct cached_layer *c);

/* Makes the call of rows first .. first + q_len - 1 of all sequences. The rows before are in the
 * cache. */
void cached_layer_step(struct cached_layer *c, const struct sequences *s, int64_t first,
                       int64_t q_len);

#endif
