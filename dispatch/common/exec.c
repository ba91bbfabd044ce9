/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the caller's threads and workspace, and runs tasks on the threads.
 */
#include "dispatch/common/exec.h"

#include "dispatch/common/versioned.h"

enum {
    SCRATCH_ALIGNMENT = 64, /* bytes; the widest vector of all instruction sets */
};

static const struct version exec_version = VERSION_OF(attnkit_exec, barrier);

attnkit_status attnkit_read_exec(const attnkit_exec *theirs, attnkit_exec *ours, char *message)
{
    const void *read;
    if (!theirs) {
        *ours = (attnkit_exec){.size = sizeof *ours, .threads = 1};
        return ATTNKIT_OK;
    }
    const attnkit_status status = read_struct(&exec_version, theirs, ours, &read, message);
    if (status != ATTNKIT_OK)
        return status;
    if (read != ours)
        *ours = *(const attnkit_exec *)read;
    ours->size = sizeof *ours;
    if (ours->threads == 0)
        ours->threads = 1;
    if (ours->threads < 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "exec.threads is %lld: must be at least 1",
                      (long long)ours->threads);
    if (ours->thread < 0 || ours->thread >= ours->threads)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "exec.thread is %lld: must be between 0 and threads - 1 (%lld)",
                      (long long)ours->thread, (long long)ours->threads - 1);
    if (ours->parallel_for && ours->thread != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "exec.thread is %lld: must be 0 with parallel_for", (long long)ours->thread);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_planned_threads(const attnkit_exec *exec, int64_t planned,
                                             char *message)
{
    if (exec->threads <= planned)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "exec.threads is %lld: the plan is for at most %lld", (long long)exec->threads,
                  (long long)planned);
}

attnkit_status attnkit_workspace_bytes(size_t shared, size_t scratch, int64_t threads,
                                       size_t *bytes, char *message)
{
    if (__builtin_mul_overflow(scratch, (size_t)threads, bytes) ||
        __builtin_add_overflow(*bytes, shared, bytes) ||
        __builtin_add_overflow(*bytes, SCRATCH_ALIGNMENT - 1, bytes) || *bytes > INT64_MAX)
        return refuse(
            message, ATTNKIT_OVERFLOW,
            "workspace is %zu bytes for each of %lld threads and %zu bytes for all: beyond "
            "63 bits",
            scratch, (long long)threads, shared);
    return ATTNKIT_OK;
}

attnkit_status attnkit_take_workspace(const attnkit_exec *exec, size_t bytes, char **scratch,
                                      char *message)
{
    if (!exec->workspace)
        return refuse(message, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL: %zu bytes needed",
                      bytes);
    if (exec->workspace_size < bytes)
        return refuse(message, ATTNKIT_BAD_WORKSPACE, "exec.workspace_size is %zu: %zu needed",
                      exec->workspace_size, bytes);
    *scratch = (char *)exec->workspace + (-(uintptr_t)exec->workspace & (SCRATCH_ALIGNMENT - 1));
    return ATTNKIT_OK;
}

void attnkit_run_tasks(const attnkit_exec *exec, int64_t threads,
                       void (*task)(void *arg, int64_t i), void *arg)
{
    if (exec->parallel_for)
        exec->parallel_for(exec->pool, threads, task, arg);
    else
        task(arg, exec->thread);
}
