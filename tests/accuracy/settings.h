/* SPDX-License-Identifier: Apache-2.0
 *
 * The data that accuracy is measured on: one head of a few query rows, drawn from twelve
 * distributions that are hard on attention in different ways, and its K and V as other types.
 */
#ifndef ATTNKIT_TEST_SETTINGS_H
#define ATTNKIT_TEST_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "attnkit.h"

/* Everything is drawn from the normal distribution and then changed, where a member is not 0. */
struct distribution {
    const char *name;
    float q_times;
    float (*k)(float normal);
    float (*v)(float normal);
    double (*added)(int64_t key, int64_t kv_len); /* to the scores of row 0 */
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

/* Of a draw of its own, or of the first rows and keys of another one. */
struct setting setting_new(const struct distribution *d, const struct shape *shape, int64_t rows,
                           uint64_t seed);
struct setting setting_of(const struct distribution *d, const struct shape *shape, int64_t rows,
                          const struct draw *draw);
void setting_free(struct setting *s);

float *floats(int64_t count);

/* What K and V are stored as. */
struct storage {
    const char *name;
    attnkit_type type;
    int64_t group; /* elements that share a scale, or all of a shorter row; 0 for no scales */
    uint64_t seed; /* of the data; one at which E is at most 4, which not every seed is */
};

extern const struct storage storages[STORAGES];

/* A setting with its K and V stored, and the same q, out and lse. */
struct stored {
    attnkit_attention_args args;
    attnkit_kv_storage storage; /* that args point to */
    void *k, *v;
    float *k_scales, *v_scales;
};

struct stored *stored_new(const struct storage *as, const struct setting *s);
void stored_free(struct stored *s);

#endif
