/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan of layer calls: the plans of the layer's parts (linear maps, appends, attention) and the
 * layer's own tensors. A single call goes through five steps, and a run of a plan through the last
 * three steps. check_layer.c checks that options fit each other. plan_layer.c and plan_parts.c make
 * the plan. bind_layer.c checks addresses and lengths of a run. check_layer_arrays.c checks values
 * in lengths, block tables, positions and cells. run_layer.c runs the parts one after the other and
 * cannot fail.
 */
#ifndef ATTNKIT_LAYER_PLAN_H
#define ATTNKIT_LAYER_PLAN_H

#include "dispatch/attention/bind.h"
#include "dispatch/cache/append_plan.h"
#include "dispatch/layer/layer.h"
#include "dispatch/linear/linear_plan.h"

/* The structs of a call as this version of the library knows them. */
struct layer_request {
    const attnkit_layer_args *core;
    const attnkit_rotation *rotation;
    struct request attention; /* its core points to no_attention if the caller gives no attention */
    attnkit_attention_args no_attention; /* asks for no option */
    attnkit_layer_args copy;
    attnkit_rotation rotation_copy;
};

attnkit_status attnkit_read_layer_request(const attnkit_layer_args *args, struct layer_request *r,
                                          char *message);

/* Checks that options fit each other and the packed weights. */
attnkit_status attnkit_check_layer(const struct layer_request *r, const struct layer *layer,
                                   char *message);

/* The layer's own tensors and arrays, outputs first. */
enum own_tensor {
    OWN_OUT,
    OWN_MEAN,
    OWN_X,
    OWN_KEY,
    OWN_VALUE,
    OWN_PACKED,
    OWN_COS,
    OWN_SIN,
    OWN_POSITIONS,
    OWN_CACHED,
    OWN_TENSORS
};

/* The options that a layer has. x takes the place of a missing `key`. `key` or x takes the place of
 * a missing `value`. */
struct layer_options {
    bool has_key, has_value; /* the caller gives key; the caller gives value */
    bool projects_keys;      /* the layer makes new keys and values */
    bool has_cache;
    bool appends;        /* new keys go to the cache */
    bool rotates;        /* q and new keys are rotated */
    bool packed_q;       /* cu_seqlens_q is given */
    bool packed_keys;    /* new keys are packed sequences */
    bool has_kv_starts;  /* attention gets cu_seqlens_kv */
    bool lends_q_starts; /* cu_seqlens_q serve as cu_seqlens_kv */
    bool owns_weights;   /* the workspace has weights of all heads, for mean_weights */
    bool has_mean;
    bool has_positions; /* rotation has positions */
    bool has_tables;    /* rotation has cos and sin */
    bool narrow_cached; /* `cached` has integers of 32 bits */
};

/* Lengths of a run, or the upper bounds of a plan. */
struct layer_lengths {
    int64_t batch, q_len;
    int64_t key_len; /* new keys of an entry, or of all entries if keys are packed */
    /* The most keys that an entry can have. With a cache, `room` is kv_len of attention. Without a
     * cache, `room` is k_rows if attention gets cu_seqlens_kv, else key_len. */
    int64_t room;
    int64_t q_rows, k_rows; /* rows of all batch entries */
};

/* Returns whether new keys go through an append. The append writes to the cache. Without a cache it
 * only rotates, from some rows of the workspace to other rows. */
static inline bool attnkit_appends_keys(const struct layer_options *has)
{
    return has->projects_keys && (has->rotates || has->appends);
}

/* Returns the number of keys for which an entry has room. `cache` is the caller's kv_len of
 * attention. */
static inline int64_t attnkit_room_for_keys(const struct layer_options *has,
                                            const struct layer_lengths *l, int64_t cache)
{
    if (has->has_cache)
        return cache;
    return has->has_kv_starts ? l->k_rows : l->key_len;
}

/* Returns whether there are no rows of outputs and no new keys for the cache. */
static inline bool attnkit_layer_is_empty(const struct layer_options *has,
                                          const struct layer_lengths *l)
{
    return l->batch == 0 || (l->q_len == 0 && !(has->appends && l->key_len > 0));
}

/* A planned linear map. Unlike struct linear_plan, it has no array of tensors: x, w and y lie in
 * the workspace or are tensors of the layer. */
struct planned_map {
    struct linear l;
    size_t scratch_size; /* bytes for each thread */
};

struct planned_append {
    struct append a;
    size_t scratch_size; /* bytes for each thread */
};

struct layer_plan {
    struct plan_header header;
    bool single; /* the plan of a single call: its run has the planned memory and lengths */
    struct layer_options has;
    struct layer_lengths most;
    int64_t threads;
    struct layer layer; /* packed is NULL */
    uint32_t own_given; /* bit t: tensor t is present */
    struct tensor own[OWN_TENSORS];
    struct planned_map maps[PROJECTIONS];
    struct planned_append append_q, append_k, append_v;
    int64_t table_positions; /* rows of the tables of cos and sin */
    struct attention_plan attention;
    size_t part_bytes; /* workspace of the part that needs the most; all parts share it */
};

/* Intermediate results in the workspace. A pointer is NULL if the layer does not have this result.
 * q_raw and k_raw are q and k before rotation. q_raw is the same memory as q if the layer does not
 * rotate. k_raw is the same memory as k unless the layer rotates new keys without a cache: a cache
 * takes the rotated keys itself. `result` is the output of attention. If the layer rotates,
 * `result` takes the memory of q_raw. */
struct layer_buffers {
    float *q_raw, *q, *k_raw, *k, *v, *result, *weights;
    int64_t *kv_lens;        /* [batch] */
    struct verdict *verdict; /* written by the thread that checks arrays */
};

/* The result of thread 0's check of the arrays, for all other threads. */
struct verdict {
    attnkit_status status;
    char message[ATTNKIT_MESSAGE_SIZE];
};

/* Places the buffers from `memory` on, or only counts their bytes if `memory` is NULL. Returns the
 * number of bytes, a multiple of 64. */
int64_t attnkit_place_layer_buffers(const struct layer_plan *plan,
                                    const struct layer_lengths *lengths, char *memory,
                                    struct layer_buffers *buffers);

/* Fills the plan, except plan->single, which is already set. Of the header, only sets
 * workspace_size. */
attnkit_status attnkit_make_layer_plan(const struct layer_request *r, const struct layer *layer,
                                       const struct kernels *kernels, int64_t threads,
                                       struct layer_plan *plan, char *message);

/* Plans attention, appends and linear maps. The function is in plan_parts.c. */
attnkit_status attnkit_plan_layer_parts(const struct layer_request *r,
                                        const struct kernels *kernels, struct layer_plan *plan,
                                        char *message);

/* --- A run ------------------------------------------------------------------------------------ */

/* Addresses and lengths of a run. */
struct layer_input {
    size_t packed_size;
    int64_t batch, q_len, kv_len;
    const void *memory[OWN_TENSORS];
    struct run_input attention; /* its kv_len is kv_len of the cache, or 0 without a cache */
};

struct layer_run {
    const struct layer_plan *plan;
    const struct kernels *kernels;
    bool empty; /* nothing to do; then buffers, attention, appends and scratch are not set */
    struct layer_lengths lengths;
    struct layer_buffers buffers;
    const void *memory[OWN_TENSORS];
    struct attention attention; /* has no rows if x has no rows */
    struct append append_q, append_k, append_v;
    char *scratch; /* plan->part_bytes bytes, aligned to a cache line */
};

/* Checks lengths, and refuses tensors that were not planned. If there is anything to do, also takes
 * the workspace and checks addresses. */
attnkit_status attnkit_bind_layer(const struct layer_plan *plan, const struct layer_input *input,
                                  const attnkit_exec *exec, struct layer_run *run, char *message);

/* Checks the values in the arrays. If the layer has a cache, also writes run->buffers.kv_lens. Only
 * one thread of a run may call the function. */
attnkit_status attnkit_check_layer_arrays(const struct layer_run *run, const attnkit_exec *exec,
                                          char *message);

/* Makes a table of cells in this thread's part of run->scratch, and points `a` to the table. `a` is
 * a copy of run->attention. */
attnkit_status attnkit_bind_layer_cells(const struct layer_run *run, const attnkit_exec *exec,
                                        struct attention *a, char *message);

/* Runs this thread's share of all parts or, with a parallel-for, all shares. */
void attnkit_run_layer(const struct layer_run *run, const attnkit_exec *exec);

#endif
