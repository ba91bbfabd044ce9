/* SPDX-License-Identifier: Apache-2.0
 *
 * The inputs of an attention run, which are lengths and addresses, and the checks of these inputs.
 * A run of a plan and a single call, which makes a plan for itself, share the checks, except that
 * the lengths of a single call are checked before its plan is made.
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

/* Checks addresses, and the lengths of a planned run, and writes lengths and addresses to `a`. `a`
 * is a copy of plan->a, or in a single call plan->a itself. */
attnkit_status attnkit_bind_attention_memory(const struct attention_plan *plan,
                                             const struct run_input *input, struct attention *a,
                                             struct bound *bound, char *message);

/* Checks the values in kv_lens, q_offsets, both cu_seqlens and the block table. The checks take
 * some time for each batch entry and for each page that holds keys. */
attnkit_status attnkit_check_attention_arrays(const struct attention *a, char *message);

/* Calls attnkit_bind_attention_memory and attnkit_check_attention_arrays, and checks that outputs
 * overlap nothing. */
attnkit_status attnkit_bind_attention(const struct attention_plan *plan,
                                      const struct run_input *input, struct attention *a,
                                      struct bound *bound, char *message);

#endif
