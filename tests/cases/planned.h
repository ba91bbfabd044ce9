/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of attention in tests. A plan is made without any address, and runs in a workspace of
 * exactly the bytes that the plan asks for. When the test frees a plan, the bytes of the plan must
 * be unchanged since planning.
 */
#ifndef ATTNKIT_TEST_PLANNED_H
#define ATTNKIT_TEST_PLANNED_H

#include "tests/support/groups.h"

enum { PLAN_ALIGNMENT = 16 /* bytes */ };

/* The pointers and lengths that a run takes. */
struct brought {
    attnkit_attention_data data;
    attnkit_attention_group_data groups; /* data.groups points to these groups */
};

/* Copies all pointers and lengths of a call into b. */
void plan_bring(const attnkit_attention_args *args, struct brought *b);

/* Replaces the pointers of a call and of its groups by ATTNKIT_LATER, because a plan is made
 * without addresses. A pointer that is NULL stays NULL. */
void plan_forget(attnkit_attention_args *args, struct groups *g);

/* A plan, and a copy of its bytes just after planning. */
struct plan {
    void *memory, *written;
    size_t size;
};

/* Allocates memory for a plan that is not made yet. */
struct plan plan_new(void);

/* Plans a call and returns the plan. Fails the test if the plan is refused. */
struct plan plan_call(const attnkit_attention_args *args, const char *isa, int64_t threads);

/* Frees the plan. Fails the test if its bytes have changed since planning. */
void plan_free(const struct plan *p);

/* Returns the size in bytes of the workspace that a run needs. */
size_t plan_workspace(const void *plan);

/* Runs a plan. With several threads, the tasks of parallel_for run one after the other, in reverse
 * order. Fails the test on any status but ATTNKIT_OK. */
void plan_run(const void *plan, const attnkit_attention_data *data, int64_t threads);

#endif
