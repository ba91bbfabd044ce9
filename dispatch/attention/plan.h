/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan of attention calls: the checked problem without addresses, its tensors, and the schedule.
 * It is written once, into the caller's memory or on the stack of a single call, and no run changes
 * it.
 */
#ifndef ATTNKIT_ATTENTION_PLAN_H
#define ATTNKIT_ATTENTION_PLAN_H

#include "dispatch/attention/request.h"
#include "dispatch/attention/schedule.h"
#include "dispatch/attention/steal.h"
#include "dispatch/common/plan.h"
#include "dispatch/common/tensor.h"

/* All memory that a call may have, outputs first. */
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

/* Which counts of a tensor follow from the lengths of a run. */
enum lengths_of {
    OF_NOTHING,     /* heads, pages */
    OF_QUERIES,     /* batch entries and query rows; rows alone if they are packed */
    OF_KEYS,        /* the same of keys, or of tiles of keys */
    OF_BATCH,       /* batch entries are its rows */
    OF_BATCH_ENDS,  /* and one more */
    OF_BLOCK_TABLE, /* batch entries are its heads, pages of kv_len its rows */
    OF_CELLS,       /* batch entries are its heads, kv_len its rows */
};

struct planned_tensor {
    struct tensor tensor;
    enum slot slot;
    enum lengths_of lengths;
};

struct attention_plan {
    struct plan_header header;
    /* Where a run brings an address there is the one of the planning, which is only known not to be
     * NULL. */
    struct attention a;
    bool empty;  /* there are no outputs */
    bool single; /* made for one call, whose memory is the planned one */
    int64_t threads;
    struct schedule schedule;
    struct steal steal;
    size_t cell_bytes; /* of the table of cells of each thread, or 0 */
    int count;         /* of tensors */
    uint32_t slots;    /* bit s: there is a tensor in slot s */
    struct planned_tensor tensors[SLOTS];
};

/* The plan of a request that has passed attnkit_check_request. The header is the caller's. */
attnkit_status attnkit_make_attention_plan(const struct request *r, const struct kernels *kernels,
                                           int64_t threads, struct attention_plan *plan,
                                           char *message);

/* The part of it in plan_tensors.c: lists the tensors and sets the strides of plan->a. */
attnkit_status attnkit_plan_attention_tensors(const struct request *r, struct attention_plan *plan,
                                              char *message);

#endif
