/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run brings to a plan, and its checks: the same for a run and for a single call.
 */
#ifndef ATTNKIT_BIND_H
#define ATTNKIT_BIND_H

#include "dispatch/attention/plan.h"

struct run_input {
    int64_t batch, q_len, kv_len;
    const void *memory[SLOTS]; /* NULL: nothing in this slot */
};

/* What the request of a single call has, and what a run brings. */
void attnkit_input_of_request(const struct request *r, struct run_input *input);
void attnkit_input_of_run(const struct run_request *r, struct run_input *input);

/* Where the tensors of a run lie. */
struct bound {
    struct memory memory[SLOTS];
    int count;
};

/* Makes `a`, a copy of plan->a, the problem of this run. Checks lengths and addresses. */
attnkit_status attnkit_bind_attention_memory(const struct attention_plan *plan,
                                             const struct run_input *input, struct attention *a,
                                             struct bound *bound, char *message);

/* Checks what is in the arrays of lengths and in the block table: a step for each batch entry and
 * for each page that holds keys. */
attnkit_status attnkit_check_attention_arrays(const struct attention *a, char *message);

/* All of it, and that outputs overlap nothing. */
attnkit_status attnkit_bind_attention(const struct attention_plan *plan,
                                      const struct run_input *input, struct attention *a,
                                      struct bound *bound, char *message);

#endif
