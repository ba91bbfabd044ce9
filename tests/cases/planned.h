/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of attention in tests: made without a word about where memory is, run in memory that ends
 * with what the plan says, and compared with what they were when they were written.
 */
#ifndef ATTNKIT_TEST_PLANNED_H
#define ATTNKIT_TEST_PLANNED_H

#include "tests/support/groups.h"

enum { PLAN_ALIGNMENT = 16 /* bytes */ };

/* What a run brings. */
struct brought {
    attnkit_attention_data data;
    attnkit_attention_group_data groups; /* of data */
};

/* All pointers and lengths of a call. */
void plan_bring(const attnkit_attention_args *args, struct brought *b);

/* Takes the pointers out of a call whose groups these are: a plan is made without them. */
void plan_forget(attnkit_attention_args *args, struct groups *g);

/* The memory of a plan, and what was written to it. */
struct plan {
    void *memory, *written;
    size_t size;
};

/* Memory in which nothing is planned. */
struct plan plan_new(void);

/* The plan of a call; fails the test if it is refused. */
struct plan plan_call(const attnkit_attention_args *args, const char *isa, int64_t threads);

/* Fails the test if the plan is not what it was. */
void plan_free(const struct plan *p);

/* Bytes that a run needs. */
size_t plan_workspace(const void *plan);

/* Fails the test on any status but ATTNKIT_OK. Tasks run backwards. */
void plan_run(const void *plan, const attnkit_attention_data *data, int64_t threads);

#endif
