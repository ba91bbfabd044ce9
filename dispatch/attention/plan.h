/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan of attention calls: struct attention, the tensors, and the schedule. A plan in the
 * caller's memory is written once, and no run changes the plan. A single call makes its own plan on
 * its stack, and sets the addresses of this plan again when it binds them.
 */
#ifndef ATTNKIT_ATTENTION_PLAN_H
#define ATTNKIT_ATTENTION_PLAN_H

#include "dispatch/attention/request.h"
#include "dispatch/attention/schedule.h"
#include "dispatch/attention/steal.h"
#include "dispatch/common/plan.h"
#include "dispatch/common/tensor.h"

/* The tensors and arrays that a call may have, outputs first. */
enum slot {
    SLOT_OUT,
    SLOT_LSE,
    SLOT_STATE_OUT_MAX,
    SLOT_STATE_OUT_SUM,
    SLOT_STATE_OUT_OUT,
    SLOT_WEIGHTS,
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_K_SCALES,
    SLOT_V_SCALES,
    SLOT_STATE_IN_MAX,
    SLOT_STATE_IN_SUM,
    SLOT_STATE_IN_OUT,
    SLOT_MASK,
    SLOT_MASK_BITS,
    SLOT_BIAS,
    SLOT_BIAS_SCALES,
    SLOT_Q_SEGMENT_IDS,
    SLOT_KV_SEGMENT_IDS,
    SLOT_ALIBI_SLOPES,
    SLOT_SINKS,
    SLOT_DROPOUT_SEEDS,
    SLOT_KV_LENS,
    SLOT_Q_OFFSETS,
    SLOT_CU_SEQLENS_Q,
    SLOT_CU_SEQLENS_KV,
    SLOT_BLOCK_TABLE,
    SLOT_KEY_INDEX,
    SLOTS
};

/* Says which of count[0], count[1] and count[2] of a tensor follow from the lengths of a run. */
enum lengths_of {
    OF_NOTHING,     /* none: the tensor has a number for each head, or is K, V or their scales in
                     * pages */
    OF_QUERIES,     /* [0] = batch, [2] = q_len; only [2] if queries are packed */
    OF_KEYS,        /* [0] = batch, [2] = kv_len, or tiles of kv_len keys; only [2] if keys are
                     * packed */
    OF_BATCH,       /* [2] = batch */
    OF_BATCH_ENDS,  /* [2] = batch + 1 */
    OF_BLOCK_TABLE, /* [1] = batch, [2] = pages of kv_len keys */
    OF_CELLS,       /* [1] = batch, [2] = kv_len */
};

struct planned_tensor {
    struct tensor tensor;
    enum slot slot;
    enum lengths_of lengths;
};

struct attention_plan {
    struct plan_header header;
    /* The checked call as the loops see it, with the addresses given at planning. A run of the
     * caller's plan copies `a`, and sets the addresses in its copy. The run only uses which of the
     * planned addresses are NULL. */
    struct attention a;
    bool empty;  /* the outputs have no rows */
    bool single; /* the plan of a single call, run once, with the planned lengths and memory */
    int64_t threads;
    struct schedule schedule;
    struct steal steal;
    size_t cell_bytes; /* bytes of each thread's table of cells; 0 without cells */
    int count;         /* tensors in use */
    uint32_t slots;    /* bit s: slot s has a tensor */
    struct planned_tensor tensors[SLOTS];
};

/* Makes the plan of a request that has passed attnkit_check_request. Sets header.workspace_size.
 * The caller sets the other fields of the header, and `single`. */
attnkit_status attnkit_make_attention_plan(const struct request *r, const struct kernels *kernels,
                                           int64_t threads, struct attention_plan *plan,
                                           char *message);

/* Lists the tensors and sets the strides of plan->a. The function is in plan_tensors.c. */
attnkit_status attnkit_plan_attention_tensors(const struct request *r, struct attention_plan *plan,
                                              char *message);

#endif
