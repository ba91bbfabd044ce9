/* SPDX-License-Identifier: Apache-2.0
 *
 * The inputs of an attention run, which are lengths and addresses, and the checks of these inputs.
 * A run of the caller's plan and a single call share the checks. Only a run of the caller's plan is
 * compared with its plan: no length may be larger than planned, and no unplanned memory may be
 * given. The plan of a single call is made from the lengths and the memory of this call.
 */
#ifndef ATTNKIT_BIND_H
#define ATTNKIT_BIND_H

#include "dispatch/attention/plan.h"

struct run_input {
    int64_t batch, q_len, kv_len;
    const void *memory[SLOTS]; /* NULL: nothing in this slot */
};

/* Sets the input from the structs of a single call, or from the structs of a planned run. */
void attnkit_input_of_request(const struct request *r, struct run_input *input);
void attnkit_input_of_run(const struct run_request *r, struct run_input *input);

/* The memory of the tensors of a run. */
struct bound {
    struct memory memory[SLOTS];
    int count;
};

/* Checks addresses, and the lengths of a run of the caller's plan. Writes lengths and addresses to
 * `a`, and the memory of the tensors to *bound. `a` is plan->a itself or a copy of plan->a. */
attnkit_status attnkit_bind_attention_memory(const struct attention_plan *plan,
                                             const struct run_input *input, struct attention *a,
                                             struct bound *bound, char *message);

/* Checks the values in kv_lens, q_offsets, both cu_seqlens and the block table. The checks take
 * some time for each batch entry and for each page that holds keys. */
attnkit_status attnkit_check_attention_arrays(const struct attention *a, char *message);

/* Calls attnkit_bind_attention_memory and attnkit_check_attention_arrays. Also checks that outputs
 * overlap no other tensor or array. */
attnkit_status attnkit_bind_attention(const struct attention_plan *plan,
                                      const struct run_input *input, struct attention *a,
                                      struct bound *bound, char *message);

#endif
