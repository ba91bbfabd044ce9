/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker of library.c. This worker sets up a call for every point whose name begins with
 * prefill/f32/scalar/. -DWORKER=7 makes a worker of version 7.
 */
#ifdef NO_WORKER
#define attnkit_worker none
#endif
#include "bench/worker/worker.h"

#include <stdio.h>
#include <string.h>

#include "tests/perf/compare/toy.h"

#ifndef WORKER
#define WORKER WORKER_VERSION
#endif

#ifndef NOTE
#define NOTE NULL
#endif

enum { COUNT = 1000 };

/* The arguments of a call, and the message of the library if it refuses the call. */
struct toy {
    struct toy_args args;
    const char *problem;
};

static const char *isa(int32_t index)
{
    return index == 0 ? "scalar" : NULL;
}

static void make(void *argument)
{
    struct toy *const toy = argument;
    const char *const problem = toy_call(&toy->args);
    if (problem)
        toy->problem = problem;
}

static void run(const char *point, const struct worker_memory *memory,
                const struct worker_user *user, char problem[WORKER_PROBLEM])
{
    float *const out = memory->take(memory->owner, COUNT * sizeof *out);
    struct toy_cache *const cache = memory->take(memory->owner, sizeof *cache);
    struct toy toy = {.args = {.count = COUNT, .cache = cache, .out = out}};
    problem[0] = '\0';
    if (strncmp(point, "prefill/f32/scalar/", 19)) {
        snprintf(problem, WORKER_PROBLEM, "the worker has no such point");
        return;
    }
    memset(out, 0, COUNT * sizeof *out);
    toy_set_up(cache);
    const struct worker_call call = {make, &toy, out, COUNT * sizeof *out, true, NOTE};
    user->ready(user->self, &call);
    memory->give_back(memory->owner, out);
    memory->give_back(memory->owner, cache);
    if (toy.problem)
        snprintf(problem, WORKER_PROBLEM, "%s", toy.problem);
}

const struct worker attnkit_worker = {WORKER, attnkit_version, isa, run};
