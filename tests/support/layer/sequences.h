/* SPDX-License-Identifier: Apache-2.0
 *
 * A causal, rotated layer over several sequences, with KV caches of every type that an append can
 * write, for tests of decoding.
 */
#ifndef ATTNKIT_TEST_LAYER_SEQUENCES_H
#define ATTNKIT_TEST_LAYER_SEQUENCES_H

#include "tests/support/groups.h"
#include "tests/support/layer/weights.h"

enum {
    SEQUENCES = 3,        /* the largest number of sequences */
    CACHE_CAPACITY = 150, /* keys of a sequence */
    CACHE_PAGE = 16,      /* keys of a page */
    /* three pages more than the sequences need */
    CACHE_PAGES = SEQUENCES * (CACHE_CAPACITY / CACHE_PAGE + 1) + 3,
    ROW_BYTES = 160, /* bytes of a row of x and of out */
    ROW_FLOATS = 40,
};

/* `batch` sequences of `len` rows. The layer has 6 query heads of 32 elements and 2 KV heads. x and
 * out have explicit strides. */
struct sequences {
    struct layer layer;
    attnkit_layer_args args;
    attnkit_attention_args attention;
    struct groups groups; /* the groups of attention */
    attnkit_rotation rotation;
    int64_t batch, len;
    float *x, *out;
};

void sequences_begin(struct sequences *s, int64_t batch, int64_t len, uint64_t seed);
void sequences_end(struct sequences *s);

/* Returns the size of x in bytes, which is also the size of out. */
size_t sequences_bytes(const struct sequences *s);

/* How a cache stores keys and values. If `tiled`, K lies in tiles, and V does not. */
struct storage {
    attnkit_type type;
    bool paged, tiled;
};

enum { STORAGES = 11 };
extern const struct storage storages[STORAGES];

/* A cache that is empty at first, and a layer call whose attention uses this cache. */
struct cached_layer {
    attnkit_layer_args args; /* args.attention points to `attention` */
    attnkit_attention_args attention;
    struct groups groups;
    char *k, *v;
    float *k_scales, *v_scales;
    size_t bytes; /* bytes of k, and of v */
    int32_t table[CACHE_PAGES];
    int64_t cached[SEQUENCES]; /* number of cached keys of each sequence; args points to cached */
};

void cached_layer_begin(struct cached_layer *c, const struct sequences *s,
                        const struct storage *how);
void cached_layer_end(struct cached_layer *c);

/* Prepares the call for rows first .. first + q_len - 1 of all sequences. The call takes the keys
 * of the rows before `first` from the cache. */
void cached_layer_step(struct cached_layer *c, const struct sequences *s, int64_t first,
                       int64_t q_len);

#endif
