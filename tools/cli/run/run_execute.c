/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a call of the library with the instruction set, threads and repeats of the options, and
 * times each repeat. Also frees what a struct run owns.
 */
#define _POSIX_C_SOURCE 200809L
#include "tools/cli/run/run.h"

#include <stdlib.h>
#include <time.h>

#include "tools/cli/parallel.h"

bool run_choose(struct run *run)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    run->exec.size = sizeof run->exec;
    run->exec.parallel_for = run->exec.threads > 1 ? parallel_for : NULL;
    run->choice.size = sizeof run->choice;
    return attnkit_isa_choose(run->exec.isa, &run->choice, message) == ATTNKIT_OK ||
           complain("%s", message);
}

double run_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool make_workspace(const struct run_call *call, attnkit_exec *exec)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    if (call->workspace(call->args, exec, &exec->workspace_size, message) != ATTNKIT_OK)
        return complain("%s", message);
    exec->workspace = malloc(exec->workspace_size ? exec->workspace_size : 1);
    return exec->workspace ||
           complain("no memory for a workspace of %zu bytes", exec->workspace_size);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool run_execute(struct run *run, const struct run_call *call)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    if (!make_workspace(call, &run->exec))
        return false;
    run->seconds = malloc((size_t)run->repeat * sizeof *run->seconds);
    if (!run->seconds)
        return complain("no memory for %lld times", (long long)run->repeat);
    for (int64_t i = 0; i < run->repeat; i++) {
        const double start = run_now();
        if (call->run(call->args, &run->exec, message) != ATTNKIT_OK)
            return complain("%s", message);
        run->seconds[i] = run_now() - start;
    }
    qsort(run->seconds, (size_t)run->repeat, sizeof *run->seconds, by_value);
    return true;
}

void run_release(struct run *run)
{
    struct npy *const arrays[] = {
        &run->q,       &run->k,           &run->v,           &run->out,        &run->lse,
        &run->weights, &run->bias_scales, &run->alibi,       &run->sinks,      &run->q_docs,
        &run->kv_docs, &run->key_index,   &run->bytes.array, &run->bits.array, &run->bias.array};
    void *const others[] = {run->q_converted.data,
                            run->k_converted.data,
                            run->k_converted.scales,
                            run->v_converted.data,
                            run->v_converted.scales,
                            run->kv_len.values,
                            run->seed.values,
                            run->q_offsets,
                            run->kv_lens,
                            run->seeds,
                            run->exec.workspace,
                            run->seconds};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        npy_free(arrays[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        free(others[i]);
}
