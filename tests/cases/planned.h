/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of attention in tests. They are made without any address, and run in a workspace of exactly
 * the bytes that the plan asks for. At the end, a plan must have the bytes that it had when it was
 * written.
 */
#ifndef ATTNKIT_TEST_PLANNED_H
#define ATTNKIT_TEST_PLANNED_H

#include "tests/support/groups.h"

enum { PLAN_ALIGNMENT = 16 /* bytes */ };

/* The pointers and lengths of a run. */
struct brought {
    attnkit_attention_data data;
    attnkit_attention_group_data groups; /* the groups of data */
};

/* Takes all pointers and lengths of a call. */
void plan_bring(const attnkit_attention_args *args, struct brought *b);

/* Sets the pointers of a call and its groups to NULL, because a plan is made without them. */
void plan_forget(attnkit_attention_args *args, struct groups *g);

/* A plan, and a copy of it from when it was written. */
struct plan {
    void *memory, *written;
    size_t size;
};

/* Allocates memory for a plan that is not made yet. */
struct plan plan_new(void);

/* Returns the plan of a call; fails the test if it is refused. */
struct plan plan_call(const attnkit_attention_args *args, const char *isa, int64_t threads);

/* Frees the plan. Fails the test if it has changed since it was written. */
void plan_free(const struct plan *p);

/* Returns the bytes that a run needs. */
size_t plan_workspace(const void *plan);

/* Fails the test on any status but ATTNKIT_OK. Tasks run backwards. */
void plan_run(const void *plan, const attnkit_attention_data *data, int64_t threads);

#endif
