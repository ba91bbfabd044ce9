/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that run layers in tests: as one call or by a plan, on one thread, in a parallel-for,
 * or on threads that meet at a barrier. The workspace has exactly the bytes that the library asks
 * for.
 */
#ifndef ATTNKIT_TEST_LAYER_RUN_H
#define ATTNKIT_TEST_LAYER_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/cases/planned.h"

enum { LAYER_THREADS = 3 /* the largest number of the caller's threads */ };

/* The instruction set and the threads that run a layer. With own_threads, the test starts 1 to
 * LAYER_THREADS threads, and each thread makes the call or runs the plan. Without own_threads, 0
 * threads mean 1 thread, and several threads are only imitated: a parallel-for of the test runs the
 * tasks backwards, one after the other. If there are several tasks, the parallel-for then runs a
 * task a second time. */
struct layer_way {
    const char *isa;
    int64_t threads;
    bool own_threads;
};

/* Runs one layer call. Fails the test on any status but ATTNKIT_OK. */
void layer_call_run(const attnkit_layer_args *args, struct layer_way way);

/* A plan, and a copy of its bytes just after planning. */
struct layer_planned {
    void *memory, *written;
    size_t size;
};

/* Plans a call. The plan gets no address but the address of the packed weights. Fails the test if
 * the plan is refused. */
struct layer_planned layer_plan_new(const attnkit_layer_args *args, const char *isa,
                                    int64_t threads);

/* Copies the plan to other memory. */
struct layer_planned layer_plan_copy(const struct layer_planned *p);

/* Frees the plan. Fails the test if the plan has changed since planning. */
void layer_plan_free(struct layer_planned *p);

/* The pointers and lengths that a run takes. */
struct layer_brought {
    attnkit_layer_data data;
    struct brought attention; /* the attention data that `data` points to */
};

/* Copies all pointers and lengths of a call into b. */
void layer_bring(const attnkit_layer_args *args, struct layer_brought *b);

/* Runs a plan. The instruction set is the plan's, so the function ignores way.isa. Fails the test
 * on any status but ATTNKIT_OK. */
void layer_plan_run(const struct layer_planned *p, const attnkit_layer_data *data,
                    struct layer_way way);

#endif
