/* SPDX-License-Identifier: Apache-2.0
 *
 * K and V of a row of attention in memory, of any type and layout, filled by attnkit_append. Where
 * a call has few query rows they are there several times, one after the other, so that no call
 * finds in a cache what the one before has read.
 */
#ifndef ATTNKIT_KV_H
#define ATTNKIT_KV_H

#include "bench/rows/calls.h"

/* K or V: where it begins in a copy of both, and its strides. */
struct kv_part {
    int64_t dim;
    bool tiled;          /* what is a row of it is a tile */
    size_t rows, scales; /* bytes from the start of a copy */
    int64_t strides[3], scale_strides[3];
};

struct kv {
    struct copies copies;
    struct kv_part k, v;
    attnkit_kv_storage storage; /* hangs on the arguments of the call */
    int32_t *index;             /* of keys of cells, to be freed; or NULL */
};

/* Everything but the memory. cold: they are in no cache. */
void kv_plan(const struct row *row, bool cold, struct kv *kv);

/* Bytes that making it takes. */
double kv_memory_bytes(const struct row *row, const struct kv *kv);

/* Random values, converted. False: the row has failed. */
bool kv_make(const struct row *row, struct kv *kv, struct result *result);

/* The append that fills K or V of the first copy from rows of f32 [batch][heads][keys][dim], and
 * the workspace of such an append on one thread, in bytes. */
attnkit_append_args kv_append_args(const struct row *row, const struct kv *kv,
                                   const struct kv_part *part, const float *source);
size_t kv_append_workspace(const struct kv_part *part);

/* The arguments that say how K and V lie; ATTNKIT_LATER stands for the memory. */
void kv_describe(const struct row *row, struct kv *kv, attnkit_attention_args *args);

/* What a run of a plan brings beside K and V. */
void kv_run(const struct kv *kv, attnkit_attention_group_data *groups);

/* Has the arguments point to a copy, the next one at each call. */
void kv_point(const struct row *row, struct kv *kv, attnkit_attention_args *args);

#endif
