/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls: check once, choose the kernels, cut the work, run a share of it.
 */
#include "attnkit.h"

#include "check.h"
#include "fp_modes.h"
#include "isa.h"
#include "schedule.h"
#include "versioned.h"

enum {
    SCRATCH_ALIGNMENT = 64, /* bytes; a vector of any instruction set */
};

/* A call that has passed every check. */
struct call {
    struct attention a;
    const struct kernels *kernels;
    struct schedule schedule;
    char *scratch; /* aligned; schedule.scratch bytes for each thread */
};

#define STRING(x) #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)

const char *attnkit_version(void)
{
    return VERSION(ATTNKIT_VERSION_MAJOR, ATTNKIT_VERSION_MINOR, ATTNKIT_VERSION_PATCH);
}

const char *attnkit_status_string(attnkit_status status)
{
    static const char *const names[] = {
        "ATTNKIT_OK",       "ATTNKIT_BAD_ARGUMENT",  "ATTNKIT_UNSUPPORTED",
        "ATTNKIT_OVERFLOW", "ATTNKIT_BAD_WORKSPACE", "ATTNKIT_BAD_ISA",
    };
    const unsigned index = (unsigned)status;
    return index < sizeof names / sizeof names[0] ? names[index] : "unknown attnkit_status";
}

static attnkit_status read_exec(const attnkit_exec *theirs, attnkit_exec *ours, char *message)
{
    *ours = (attnkit_exec){.threads = 1};
    if (!theirs)
        return ATTNKIT_OK;
    const attnkit_status status =
        read_struct(ours, sizeof *ours, sizeof *ours, theirs, "attnkit_exec", message);
    if (status != ATTNKIT_OK)
        return status;
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

/* Bytes of workspace, with room to align whatever pointer the caller has. */
static attnkit_status workspace_bytes(const struct schedule *s, size_t *bytes, char *message)
{
    if (__builtin_mul_overflow(s->scratch, (size_t)s->threads, bytes) ||
        __builtin_add_overflow(*bytes, SCRATCH_ALIGNMENT - 1, bytes) || *bytes > INT64_MAX)
        return refuse(message, ATTNKIT_OVERFLOW, "exec.threads is %lld: %zu bytes for each",
                      (long long)s->threads, s->scratch);
    return ATTNKIT_OK;
}

attnkit_status attnkit_attention_workspace(const attnkit_attention_args *args,
                                           const attnkit_exec *exec, size_t *bytes, char *message)
{
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    struct problem problem;
    attnkit_status status = attnkit_check_shape(args, &problem, message);
    attnkit_exec ours;
    if (status == ATTNKIT_OK)
        status = read_exec(exec, &ours, message);
    struct isa_choice choice;
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(ours.isa, &choice, message);
    size_t needed = 0;
    if (status == ATTNKIT_OK && !problem.empty) {
        const struct schedule s = attnkit_schedule(&problem.a, choice.isa->kernels, ours.threads);
        status = workspace_bytes(&s, &needed, message);
    }
    if (status != ATTNKIT_OK)
        return status;
    *bytes = needed;
    return accept(message);
}

static attnkit_status take_workspace(const struct problem *problem, const attnkit_exec *exec,
                                     struct call *call, char *message)
{
    size_t needed;
    const attnkit_status status = workspace_bytes(&call->schedule, &needed, message);
    if (status != ATTNKIT_OK)
        return status;
    if (!exec->workspace)
        return refuse(message, ATTNKIT_BAD_WORKSPACE, "exec.workspace is NULL: %zu bytes needed",
                      needed);
    if (exec->workspace_size < needed)
        return refuse(message, ATTNKIT_BAD_WORKSPACE, "exec.workspace_size is %zu: %zu needed",
                      exec->workspace_size, needed);
    call->scratch =
        (char *)exec->workspace + (-(uintptr_t)exec->workspace & (SCRATCH_ALIGNMENT - 1));
    return attnkit_check_workspace(problem, exec->workspace, needed, message);
}

/* One thread's share. Running it again gives the same result. */
static void run_share(void *arg, int64_t thread)
{
    const struct call *call = arg;
    if (thread < 0 || thread >= call->schedule.threads)
        return;
    char *scratch = call->scratch + (size_t)thread * call->schedule.scratch;
    const fp_modes callers = fp_modes_begin();
    const struct share share = attnkit_share(&call->a, &call->schedule, thread);
    for (int64_t i = share.first; i < share.end; i++) {
        const struct work_item item = attnkit_work_item(&call->a, &call->schedule, i);
        if (call->schedule.decode)
            attnkit_decode(&call->a, call->kernels, item, scratch);
        else
            attnkit_prefill(&call->a, call->kernels, item, scratch);
    }
    fp_modes_end(callers);
}

attnkit_status attnkit_attention(const attnkit_attention_args *args, const attnkit_exec *exec,
                                 char *message)
{
    struct problem problem;
    attnkit_exec ours;
    struct isa_choice choice;
    attnkit_status status = attnkit_check(args, &problem, message);
    if (status == ATTNKIT_OK)
        status = read_exec(exec, &ours, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(ours.isa, &choice, message);
    if (status != ATTNKIT_OK)
        return status;
    if (problem.empty)
        return accept(message);

    struct call call = {
        .a = problem.a,
        .kernels = choice.isa->kernels,
        .schedule = attnkit_schedule(&problem.a, choice.isa->kernels, ours.threads),
    };
    status = take_workspace(&problem, &ours, &call, message);
    if (status != ATTNKIT_OK)
        return status;
    if (ours.parallel_for)
        ours.parallel_for(ours.pool, call.schedule.threads, run_share, &call);
    else
        run_share(&call, ours.thread);
    return accept(message);
}
