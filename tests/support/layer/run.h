/* SPDX-License-Identifier: Apache-2.0
 *
 * Running layers in tests: as one call or by a plan, by one thread, in a parallel-for or by threads
 * that meet at a barrier. The workspace ends with the bytes that were asked for.
 */
#ifndef ATTNKIT_TEST_LAYER_RUN_H
#define ATTNKIT_TEST_LAYER_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/cases/planned.h"

enum { LAYER_THREADS = 3 /* at most, of its own */ };

/* By whom a layer is run. 0 is one thread, in the parallel-for of the test where there are more. */
struct layer_way {
    const char *isa;
    int64_t threads;
    bool own_threads;
};

/* One call. Fails the test on any status but ATTNKIT_OK. */
void layer_call_run(const attnkit_layer_args *args, struct layer_way way);

/* The memory of a plan, and what was written to it. */
struct layer_planned {
    void *memory, *written;
    size_t size;
};

/* Plans a call, of which it says nothing about where memory is but of its packed weights. Fails the
 * test if that is refused. */
struct layer_planned layer_plan_new(const attnkit_layer_args *args, const char *isa,
                                    int64_t threads);

/* A copy of it, elsewhere. */
struct layer_planned layer_plan_copy(const struct layer_planned *p);

/* Fails the test if the plan is not what it was. */
void layer_plan_free(struct layer_planned *p);

/* What a run brings: all pointers and lengths of a call. */
struct layer_brought {
    attnkit_layer_data data;
    struct brought attention; /* of data */
};

void layer_bring(const attnkit_layer_args *args, struct layer_brought *b);

/* Runs a plan with the instruction set it has. Fails the test on any status but ATTNKIT_OK. */
void layer_plan_run(const struct layer_planned *p, const attnkit_layer_data *data,
                    struct layer_way way);

#endif
