/* SPDX-License-Identifier: Apache-2.0
 *
 * The data on which accuracy is measured: one head with a few query rows, drawn from one of twelve
 * distributions. Most of these distributions are hard for attention, each in its own way. K and V
 * can also be stored in other types.
 */
#ifndef ATTNKIT_TEST_SETTINGS_H
#define ATTNKIT_TEST_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "attnkit.h"

/* A way to make the data. All numbers are drawn from the normal distribution. Members of this
 * struct that are not 0 then change these numbers. */
struct distribution {
    const char *name;
    float q_times;
    float (*k)(float normal);
    float (*v)(float normal);
    double (*added)(int64_t key,
                    int64_t kv_len); /* the number that is added to the key's score for row 0 */
    bool equal_keys;
};

enum {
    DISTRIBUTIONS = 12,
    STORAGES = 12,
};

extern const struct distribution distributions[DISTRIBUTIONS];

struct shape {
    int64_t head_dim, value_dim, kv_len;
};

struct setting {
    attnkit_attention_args args;
    float *q, *k, *v, *out, *lse;
};

/* Normally distributed numbers for rows of q, and for K and V. */
struct draw {
    float *q, *k, *v;
};

struct draw draw_new(const struct shape *shape, int64_t rows, uint64_t seed);
void draw_free(struct draw *d);

/* setting_new draws the numbers of a setting. setting_of copies numbers from a draw of the same
 * dims: the first `rows` rows of q, and the first shape->kv_len keys. */
struct setting setting_new(const struct distribution *d, const struct shape *shape, int64_t rows,
                           uint64_t seed);
struct setting setting_of(const struct distribution *d, const struct shape *shape, int64_t rows,
                          const struct draw *draw);
void setting_free(struct setting *s);

/* Allocates memory for `count` floats. The caller frees the memory. */
float *floats(int64_t count);

/* A type of K and V. */
struct storage {
    const char *name;
    attnkit_type type;
    int64_t group; /* number of elements that share a scale; a row with fewer elements has one
                      scale; 0 without scales */
    uint64_t seed; /* first seed of the data: accuracy.c adds a number for each length; E is at most
                      4 with this seed, and larger with most others (storage_is_accurate says
                      why) */
};

extern const struct storage storages[STORAGES];

/* The args of a setting, but with K and V in the type of a storage. q, out and lse are the tensors
 * of the setting. */
struct stored {
    attnkit_attention_args args;
    attnkit_kv_storage storage; /* args points to this struct */
    void *k, *v;
    float *k_scales, *v_scales;
};

struct stored *stored_new(const struct storage *as, const struct setting *s);
void stored_free(struct stored *s);

#endif
