/* SPDX-License-Identifier: Apache-2.0
 *
 * From the public arguments of a layer to those of the calls that it is made of.
 */
#ifndef ATTNKIT_CHECK_LAYER_H
#define ATTNKIT_CHECK_LAYER_H

#include "attnkit.h"
#include "dispatch/layer/layer.h"

/* A linear map whose rows are `blocks` blocks of linear.rows each, some bytes apart. */
struct mapped {
    attnkit_linear_args linear;
    int64_t blocks;
    int64_t x_step, y_step;
};

/* What the calls hand on to each other, in the workspace; NULL where there is none of it. All but
 * the last are binary32: q_raw and k_raw before rotation. `result` is that of attention, and lies
 * where q_raw was. */
struct buffers {
    float *q_raw, *q, *k_raw, *k, *v, *result, *weights;
    int64_t *kv_lens; /* a copy for each thread */
};

/* A checked layer call. Its parts in their order; those of K and V, and the appends, may be
 * missing. */
struct layer_plan {
    struct layer layer;
    attnkit_layer_args args;
    attnkit_attention_args attention;
    struct mapped q, k, v, o;
    bool has_keys;     /* K and V are projected */
    bool rotates;      /* q, and keys */
    bool owns_weights; /* those of all heads are in the workspace */
    bool keeps_cache;  /* keys and values are appended to a cache */
    bool empty;
    int64_t q_rows, k_rows; /* of all batch entries */
    attnkit_append_args append_q, append_k, append_v;
    int64_t shared_bytes; /* of `buffers`, for so many threads */
};

/* Everything but the memory, with buffers of no address. */
attnkit_status attnkit_plan_layer(const attnkit_layer_args *args, int64_t threads,
                                  struct layer_plan *plan, char *message);

/* Places the buffers and checks the rest: pointers, overlaps, arrays. The plan then has all that
 * the calls need but attnkit_exec. `shared` is shared_bytes, aligned to 64, in a workspace of so
 * many bytes; `thread` is that of the caller, of so many threads. */
attnkit_status attnkit_bind_layer(struct layer_plan *plan, char *shared, const void *workspace,
                                  size_t workspace_size, int64_t threads, int64_t thread,
                                  struct buffers *buffers, char *message);

/* Entry b's part of an append of packed sequences. */
attnkit_append_args attnkit_entry_append(const struct layer_plan *plan,
                                         const attnkit_append_args *all, int64_t b);

#endif
