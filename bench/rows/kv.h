/* SPDX-License-Identifier: Apache-2.0
 *
 * The K and V of a row of the benches, in any type and layout. The row measures attention, a layer
 * or an append. If K and V must be in no cache, there are so many copies of K and V that no call
 * finds its copy in a cache.
 */
#ifndef ATTNKIT_KV_H
#define ATTNKIT_KV_H

#include "bench/rows/calls.h"

/* K or V: its place in a copy of K and V, and its strides. */
struct kv_part {
    int64_t dim;
    bool tiled;          /* K is stored in tiles; strides[2] leads from tile to tile */
    size_t rows, scales; /* offsets from the start of a copy, in bytes */
    int64_t strides[3], scale_strides[3];
};

struct kv {
    struct copies copies;
    struct kv_part k, v;
    attnkit_kv_storage storage; /* group of options, to which the call's arguments point */
    int32_t *index;             /* key_index of a ring, which the user frees; or NULL */
};

/* Plans the copies of K and V, and the places of K and V in a copy. Allocates nothing. `cold` means
 * that K and V must be in no cache. */
void kv_plan(const struct row *row, bool cold, struct kv *kv);

/* Returns about how much memory kv_make needs, in bytes. */
double kv_memory_bytes(const struct row *row, const struct kv *kv);

/* Allocates K and V, and fills them with random values. On an error, sets result->problem and
 * returns false. */
bool kv_make(const struct row *row, struct kv *kv, struct result *result);

/* kv_append_args returns the arguments of the append that fills K or V of the first copy from f32
 * rows [batch][heads][keys][dim]. kv_append_workspace returns the bytes of a workspace that is
 * large enough for this append on one thread. */
attnkit_append_args kv_append_args(const struct row *row, const struct kv *kv,
                                   const struct kv_part *part, const float *source);
size_t kv_append_workspace(const struct kv_part *part);

/* Sets the arguments that describe K and V. The addresses are ATTNKIT_LATER: kv_point sets them. */
void kv_describe(const struct row *row, struct kv *kv, attnkit_attention_args *args);

/* Sets the addresses of the scales of K and V and of the key indices for a run of a plan. */
void kv_run(const struct kv *kv, attnkit_attention_group_data *groups);

/* Makes the arguments point to the next copy. */
void kv_point(const struct row *row, struct kv *kv, attnkit_attention_args *args);

#endif
