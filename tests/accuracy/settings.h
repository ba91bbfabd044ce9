/* SPDX-License-Identifier: Apache-2.0
 *
 * The data on which accuracy is measured: one head of a few query rows, drawn from twelve
 * distributions that are hard on attention in different ways, and its K and V in other types.
 */
#ifndef ATTNKIT_TEST_SETTINGS_H
#define ATTNKIT_TEST_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "attnkit.h"

/* All numbers are drawn from the normal distribution. Members that are not 0 then change them. */
struct distribution {
    const char *name;
    float q_times;
    float (*k)(float normal);
    float (*v)(float normal);
    double (*added)(int64_t key, int64_t kv_len); /* number that is added to a score of row 0 */
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

/* Normal numbers: rows of q, and keys. */
struct draw {
    float *q, *k, *v;
};

struct draw draw_new(const struct shape *shape, int64_t rows, uint64_t seed);
void draw_free(struct draw *d);

/* Makes a setting with numbers of its own; or with the first rows and keys of a draw. */
struct setting setting_new(const struct distribution *d, const struct shape *shape, int64_t rows,
                           uint64_t seed);
struct setting setting_of(const struct distribution *d, const struct shape *shape, int64_t rows,
                          const struct draw *draw);
void setting_free(struct setting *s);

float *floats(int64_t count);

/* The types of K and V. */
struct storage {
    const char *name;
    attnkit_type type;
    int64_t group; /* elements that share a scale, or all of a shorter row; 0 for no scales */
    uint64_t seed; /* seed of the data, chosen so that E is at most 4, which not every seed gives */
};

extern const struct storage storages[STORAGES];

/* A setting with its K and V stored, and the same q, out and lse. */
struct stored {
    attnkit_attention_args args;
    attnkit_kv_storage storage; /* args point to it */
    void *k, *v;
    float *k_scales, *v_scales;
};

struct stored *stored_new(const struct storage *as, const struct setting *s);
void stored_free(struct stored *s);

#endif
