/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls: check once, choose the kernels, cut the work, run a share of it.
 */
#include "attnkit.h"

#include "dispatch/attention/check.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/common/message.h"
#include "dispatch/attention/schedule.h"
#include "dispatch/attention/steal.h"

/* A call that has passed every check. */
struct call {
    const struct attention *a;
    const struct kernels *kernels;
    struct schedule schedule;
    struct steal steal;
    char *shared;  /* aligned; steal.bytes */
    char *scratch; /* after it; schedule.scratch bytes for each thread */
};

#define STRING(x) #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)

const char *attnkit_version(void)
{
    return VERSION(ATTNKIT_VERSION_MAJOR, ATTNKIT_VERSION_MINOR, ATTNKIT_VERSION_PATCH) BUILD_NOTE;
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

/* What a call comes to once it has been checked. */
struct plan {
    struct problem problem;
    attnkit_exec exec;
    struct call call;      /* not set where the problem is empty */
    size_t workspace_size; /* that it needs */
};

typedef attnkit_status (*checker)(const attnkit_attention_args *args, struct problem *problem,
                                  char *message);

static attnkit_status make_plan(checker check, const attnkit_attention_args *args,
                                const attnkit_exec *exec, struct plan *plan, char *message)
{
    struct isa_choice choice;
    attnkit_status status = check(args, &plan->problem, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &plan->exec, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(plan->exec.isa, &choice, message);
    plan->workspace_size = 0;
    if (status != ATTNKIT_OK || plan->problem.empty)
        return status;
    struct call *call = &plan->call;
    call->a = &plan->problem.a;
    call->kernels = choice.isa->kernels;
    const int64_t threads = plan->exec.threads;
    call->schedule = attnkit_schedule(call->a, call->kernels, threads);
    call->steal = attnkit_steal(call->a, call->kernels, &call->schedule, threads);
    return attnkit_workspace_bytes(call->steal.bytes, call->schedule.scratch, call->steal.threads,
                                   &plan->workspace_size, message);
}

attnkit_status attnkit_attention_workspace(const attnkit_attention_args *args,
                                           const attnkit_exec *exec, size_t *bytes, char *message)
{
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    struct plan plan;
    const fp_modes callers = fp_modes_begin();
    const attnkit_status status = make_plan(attnkit_check_shape, args, exec, &plan, message);
    fp_modes_end(callers);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = plan.workspace_size;
    return accept(message);
}

static attnkit_status take_workspace(struct plan *plan, char *message)
{
    const attnkit_status status =
        attnkit_take_workspace(&plan->exec, plan->workspace_size, &plan->call.shared, message);
    if (status != ATTNKIT_OK)
        return status;
    plan->call.scratch = plan->call.shared + plan->call.steal.bytes;
    return attnkit_check_workspace(&plan->problem, plan->exec.workspace, plan->workspace_size,
                                   message);
}

static char *scratch_of(const struct call *call, int64_t thread)
{
    return call->scratch + (size_t)thread * call->schedule.scratch;
}

/* One thread's share. Running it again gives the same result. */
static void run_share(void *arg, int64_t thread)
{
    const struct call *call = arg;
    if (thread < 0 || thread >= call->schedule.threads)
        return;
    const fp_modes callers = fp_modes_begin();
    const struct range share = attnkit_share(call->a, &call->schedule, thread);
    attnkit_run_items(call->a, call->kernels, &call->schedule, share, scratch_of(call, thread));
    fp_modes_end(callers);
}

static void run_stealing(void *arg, int64_t thread)
{
    const struct call *call = arg;
    if (thread < 0 || thread >= call->steal.threads)
        return;
    const fp_modes callers = fp_modes_begin();
    attnkit_steal_run(call->a, call->kernels, &call->schedule, &call->steal, thread, call->shared,
                      scratch_of(call, thread));
    fp_modes_end(callers);
}

/* Whether threads of the caller are to meet twice, so that they can work on each other's items. */
static bool is_worth_meeting(const struct call *call)
{
    const fp_modes callers = fp_modes_begin();
    const bool goes_round = attnkit_goes_round(call->a, &call->schedule, &call->steal);
    fp_modes_end(callers);
    return call->steal.splits && !goes_round;
}

static void begin_stealing(const struct call *call)
{
    const fp_modes callers = fp_modes_begin();
    attnkit_steal_begin(call->a, call->kernels, &call->schedule, &call->steal, call->shared);
    fp_modes_end(callers);
}

static void run_call(const attnkit_exec *exec, struct call *call)
{
    if (exec->threads == 1) {
        attnkit_run_tasks(exec, 1, run_share, call);
    } else if (exec->parallel_for) {
        begin_stealing(call);
        attnkit_run_tasks(exec, call->steal.threads, run_stealing, call);
    } else if (exec->barrier && is_worth_meeting(call)) {
        if (exec->thread == 0)
            begin_stealing(call);
        exec->barrier(exec->pool);
        run_stealing(call, exec->thread);
        exec->barrier(exec->pool);
    } else {
        run_share(call, exec->thread);
    }
}

attnkit_status attnkit_attention(const attnkit_attention_args *args, const attnkit_exec *exec,
                                 char *message)
{
    struct plan plan;
    /* The scale is arithmetic, too. The tasks set the modes again, wherever they run. */
    const fp_modes callers = fp_modes_begin();
    attnkit_status status = make_plan(attnkit_check, args, exec, &plan, message);
    if (status == ATTNKIT_OK && !plan.problem.empty)
        status = take_workspace(&plan, message);
    fp_modes_end(callers);
    if (status != ATTNKIT_OK)
        return status;
    if (!plan.problem.empty)
        run_call(&plan.exec, &plan.call);
    return accept(message);
}
