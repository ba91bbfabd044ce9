/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan of layer calls: the plans of its parts (linear maps, appends, attention) and the layer's
 * own tensors. A call goes from check_layer.c (which options fit each other) to plan_layer.c and
 * plan_parts.c, bind_layer.c (addresses and lengths of a run), check_layer_arrays.c (what is in
 * lengths, block tables and positions) and run_layer.c (the parts one after the other, where
 * nothing can fail).
 */
#ifndef ATTNKIT_LAYER_PLAN_H
#define ATTNKIT_LAYER_PLAN_H

#include "dispatch/attention/bind.h"
#include "dispatch/cache/append_plan.h"
#include "dispatch/layer/layer.h"
#include "dispatch/linear/linear_plan.h"

/* The structs of a call as this version knows them. */
struct layer_request {
    const attnkit_layer_args *core;
    const attnkit_rotation *rotation;
    struct request attention; /* its core is all zero where the caller has none */
    attnkit_attention_args no_attention;
    attnkit_layer_args copy;
    attnkit_rotation rotation_copy;
};

attnkit_status attnkit_read_layer_request(const attnkit_layer_args *args, struct layer_request *r,
                                          char *message);

/* That options fit each other and the packed weights. */
attnkit_status attnkit_check_layer(const struct layer_request *r, const struct layer *layer,
                                   char *message);

/* The layer's own memory, outputs first. */
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

/* What of a layer there is. Without key, key and value are x. */
struct layer_options {
    bool has_key, has_value; /* tensors of their own */
    bool projects_keys;      /* new keys and values are made */
    bool has_cache;
    bool appends;        /* to the cache */
    bool rotates;        /* q, and new keys */
    bool packed_q;       /* sequences one after the other, */
    bool packed_keys;    /* also of keys */
    bool has_kv_starts;  /* the attention says where packed keys begin: */
    bool lends_q_starts; /* where the rows of q do */
    bool owns_weights;   /* weights of all heads are in the workspace, for their mean */
    bool has_mean;
    bool has_positions; /* of the rotation, which are not those of the cache */
    bool has_tables;    /* of the rotation */
    bool narrow_cached; /* `cached` is of int32_t */
};

/* Lengths of a run, or the most of a plan. */
struct layer_lengths {
    int64_t batch, q_len;
    int64_t key_len;        /* of an entry, or of all where they are packed: new keys */
    int64_t room;           /* for keys of an entry: of the cache, else key_len */
    int64_t q_rows, k_rows; /* of all batch entries */
};

/* Whether new keys are appended to the cache, or rotated within the workspace. */
static inline bool attnkit_appends_keys(const struct layer_options *has)
{
    return has->projects_keys && (has->rotates || has->appends);
}

/* The room for keys, of which the cache has so much. */
static inline int64_t attnkit_room_for_keys(const struct layer_options *has,
                                            const struct layer_lengths *l, int64_t cache)
{
    if (has->has_cache)
        return cache;
    return has->has_kv_starts ? l->k_rows : l->key_len;
}

/* Whether there are neither outputs nor keys for the cache. */
static inline bool attnkit_layer_is_empty(const struct layer_options *has,
                                          const struct layer_lengths *l)
{
    return l->batch == 0 || (l->q_len == 0 && !(has->appends && l->key_len > 0));
}

/* Parts as they are planned, without the tensors that their own calls would have: they lie in the
 * workspace, or are those of the layer. */
struct planned_map {
    struct linear l;
    size_t scratch_size; /* bytes for each thread */
};

struct planned_append {
    struct append a;
    size_t scratch_size;
};

struct layer_plan {
    struct plan_header header;
    bool single; /* made for one call, whose memory is the planned one */
    struct layer_options has;
    struct layer_lengths most;
    int64_t threads;
    struct layer layer; /* packed is NULL */
    uint32_t own_given; /* bit t: there is tensor t */
    struct tensor own[OWN_TENSORS];
    struct planned_map maps[PROJECTIONS];
    struct planned_append append_q, append_k, append_v;
    int64_t table_positions; /* of the rotation */
    struct attention_plan attention;
    size_t part_bytes; /* of the workspace, for the part that needs most */
};

/* What the parts hand on to each other, in the workspace; NULL where there is none of it. All but
 * the last two are binary32: q_raw and k_raw before rotation. `result` is that of attention, and
 * lies where q_raw was. */
struct layer_buffers {
    float *q_raw, *q, *k_raw, *k, *v, *result, *weights;
    int64_t *kv_lens;        /* [batch] */
    struct verdict *verdict; /* of the thread that checks arrays */
};

/* What thread 0 says of arrays to the threads that do not look. */
struct verdict {
    attnkit_status status;
    char message[ATTNKIT_MESSAGE_SIZE];
};

/* Places them from `memory` on (NULL: only counts), and returns their bytes, a multiple of 64. */
int64_t attnkit_place_layer_buffers(const struct layer_plan *plan,
                                    const struct layer_lengths *lengths, char *memory,
                                    struct layer_buffers *buffers);

/* Fills all but the header. */
attnkit_status attnkit_make_layer_plan(const struct layer_request *r, const struct layer *layer,
                                       const struct kernels *kernels, int64_t threads,
                                       struct layer_plan *plan, char *message);

/* The part of it in plan_parts.c: attention, appends and linear maps. */
attnkit_status attnkit_plan_layer_parts(const struct layer_request *r,
                                        const struct kernels *kernels, struct layer_plan *plan,
                                        char *message);

/* --- A run ------------------------------------------------------------------------------------ */

/* Addresses and lengths that a run brings. */
struct layer_input {
    size_t packed_size;
    int64_t batch, q_len, kv_len;
    const void *memory[OWN_TENSORS];
    struct run_input attention; /* its kv_len is the room of the cache, else 0 */
};

struct layer_run {
    const struct layer_plan *plan;
    const struct kernels *kernels;
    bool empty; /* nothing is to be done, and nothing else is set */
    struct layer_lengths lengths;
    struct layer_buffers buffers;
    const void *memory[OWN_TENSORS];
    struct attention attention; /* without rows where x has none */
    struct append append_q, append_k, append_v;
    char *scratch; /* plan->part_bytes, aligned to a cache line */
};

/* Checks addresses and lengths, and takes the workspace, if there is anything to do. */
attnkit_status attnkit_bind_layer(const struct layer_plan *plan, const struct layer_input *input,
                                  const attnkit_exec *exec, struct layer_run *run, char *message);

/* Checks what is in the arrays, and writes run->buffers.kv_lens: by one thread. */
attnkit_status attnkit_check_layer_arrays(const struct layer_run *run, const attnkit_exec *exec,
                                          char *message);

/* Gives `a`, a copy of the run's attention, the table of its cells, in the memory that the thread
 * has for it in run->scratch. */
attnkit_status attnkit_bind_layer_cells(const struct layer_run *run, const attnkit_exec *exec,
                                        struct attention *a, char *message);

/* Runs this thread's share of all parts, or everything in a parallel-for. */
void attnkit_run_layer(const struct layer_run *run, const attnkit_exec *exec);

#endif
