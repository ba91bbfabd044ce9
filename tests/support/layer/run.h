/* SPDX-License-Identifier: Apache-2.0
 *
 * Running layers in tests: as one call or by a plan, by one thread, in a parallel-for or by threads
 * that meet at a barrier. The workspace has exactly the bytes that the library asks for.
 */
#ifndef ATTNKIT_TEST_LAYER_RUN_H
#define ATTNKIT_TEST_LAYER_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/cases/planned.h"

enum { LAYER_THREADS = 3 /* the most threads of the caller */ };

/* The threads that run a layer. 0 is one thread. Several threads run in a parallel-for of the test,
 * or, with own_threads, each thread makes the call itself. */
struct layer_way {
    const char *isa;
    int64_t threads;
    bool own_threads;
};

/* Makes one call. Fails the test on any status but ATTNKIT_OK. */
void layer_call_run(const attnkit_layer_args *args, struct layer_way way);

/* A plan, and a copy of it from when it was written. */
struct layer_planned {
    void *memory, *written;
    size_t size;
};

/* Plans a call without its addresses, except for the packed weights. Fails the test if the plan is
 * refused. */
struct layer_planned layer_plan_new(const attnkit_layer_args *args, const char *isa,
                                    int64_t threads);

/* Copies the plan to other memory. */
struct layer_planned layer_plan_copy(const struct layer_planned *p);

/* Frees the plan. Fails the test if it has changed since it was written. */
void layer_plan_free(struct layer_planned *p);

/* The pointers and lengths of a run. */
struct layer_brought {
    attnkit_layer_data data;
    struct brought attention; /* the attention of `data` */
};

void layer_bring(const attnkit_layer_args *args, struct layer_brought *b);

/* Runs a plan with its own instruction set. Fails the test on any status but ATTNKIT_OK. */
void layer_plan_run(const struct layer_planned *p, const attnkit_layer_data *data,
                    struct layer_way way);

#endif
