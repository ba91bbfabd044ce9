/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer calls drawn from a number: calls of self-attention, rotated or not, and calls of
 * cross-attention. Some calls have masks, bias, sinks or other options. Some calls also return
 * weights or mean weights. No call has a cache. Layers with caches are in sequences.h.
 */
#ifndef ATTNKIT_TEST_LAYER_DRAWN_H
#define ATTNKIT_TEST_LAYER_DRAWN_H

#include "tests/support/groups.h"
#include "tests/support/layer/weights.h"

enum { LAYER_BATCH = 3 /* the most batch entries */ };

/* The results of a layer call. `mean` is for the mean weights. */
struct layer_results {
    float *out, *lse, *weights, *mean;
};

struct layer_call {
    struct layer layer;
    attnkit_layer_args args;
    attnkit_attention_args attention;
    struct groups groups; /* the groups of attention */
    attnkit_rotation rotation;
    int64_t keys; /* keys of a batch entry */
    int64_t kv_lens[LAYER_BATCH], positions[LAYER_BATCH];
    float *cos, *sin, *slopes, *sinks, *bias, *bias_scales;
    unsigned char *mask;
    size_t out_bytes, lse_bytes, weights_bytes, mean_bytes;
    struct layer_results results;
};

void layer_call_draw(struct layer_call *c, int number);
void layer_call_free(struct layer_call *c);

/* Fills the results with a pattern, so that a test notices a result that a call does not write. */
void layer_call_clear(const struct layer_call *c);

/* layer_results_new allocates memory for the results of a call. layer_results_copy allocates memory
 * and copies the call's results to this memory. */
struct layer_results layer_results_new(const struct layer_call *c);
struct layer_results layer_results_copy(const struct layer_call *c);
void layer_results_free(struct layer_results *r);

/* Fails the test if any bit of the call's results differs from `want`. Weights and mean weights are
 * compared only if the call asks for these. */
void layer_call_expect(const struct layer_call *c, const struct layer_results *want);

#endif
