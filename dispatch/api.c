/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls: check once, choose the kernels, cut the work, run a share of it.
 */
#include "attnkit.h"

#include "check.h"
#include "exec.h"
#include "fp_modes.h"
#include "isa.h"
#include "message.h"
#include "schedule.h"
#include "split.h"

/* A call that has passed every check. */
struct call {
    const struct attention *a;
    const struct kernels *kernels;
    struct schedule schedule;
    struct split split;
    int64_t wave;  /* of a split call */
    char *shared;  /* aligned; split.bytes */
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
    call->split = attnkit_split(call->a, call->kernels, &call->schedule, threads);
    if (call->split.is_useful)
        call->schedule.threads = call->split.threads;
    return attnkit_workspace_bytes(call->split.bytes, call->schedule.scratch,
                                   call->schedule.threads, &plan->workspace_size, message);
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
    plan->call.scratch = plan->call.shared + plan->call.split.bytes;
    if (status != ATTNKIT_OK)
        return status;
    return attnkit_check_workspace(&plan->problem, plan->exec.workspace, plan->workspace_size,
                                   message);
}

/* Whether threads share out keys. That costs turns: not where whole items go round well. */
static bool decide_split(const attnkit_exec *exec, struct call *call)
{
    const double even_enough = 1.25;
    if (!call->split.is_useful || (!exec->parallel_for && !exec->barrier))
        return false;
    if (attnkit_imbalance(call->a, &call->schedule) < even_enough)
        return false;
    attnkit_count_units(call->a, &call->schedule, &call->split);
    return call->split.units > call->schedule.items;
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
    const struct share share = attnkit_share(call->a, &call->schedule, thread);
    attnkit_run_items(call->a, call->kernels, &call->schedule, share, scratch_of(call, thread));
    fp_modes_end(callers);
}

static void attend_wave(void *arg, int64_t thread)
{
    const struct call *call = arg;
    if (thread < 0 || thread >= call->schedule.threads)
        return;
    const fp_modes callers = fp_modes_begin();
    attnkit_split_attend(call->a, call->kernels, &call->schedule, &call->split, call->wave, thread,
                         call->shared, scratch_of(call, thread));
    fp_modes_end(callers);
}

static void join_wave(void *arg, int64_t thread)
{
    const struct call *call = arg;
    if (thread < 0 || thread >= call->schedule.threads)
        return;
    const fp_modes callers = fp_modes_begin();
    attnkit_split_join(call->a, call->kernels, &call->schedule, &call->split, call->wave, thread,
                       call->shared, scratch_of(call, thread));
    fp_modes_end(callers);
}

static void run_waves(const attnkit_exec *exec, struct call *call)
{
    for (call->wave = 0; call->wave < call->split.waves; call->wave++) {
        attnkit_run_phase(exec, call->schedule.threads, attend_wave, call);
        attnkit_run_phase(exec, call->schedule.threads, join_wave, call);
    }
}

attnkit_status attnkit_attention(const attnkit_attention_args *args, const attnkit_exec *exec,
                                 char *message)
{
    struct plan plan;
    bool is_split = false;
    /* The scale is arithmetic, too, and so are shares. The tasks set the modes again, wherever they
     * run. */
    const fp_modes callers = fp_modes_begin();
    attnkit_status status = make_plan(attnkit_check, args, exec, &plan, message);
    if (status == ATTNKIT_OK && !plan.problem.empty)
        status = take_workspace(&plan, message);
    if (status == ATTNKIT_OK && !plan.problem.empty)
        is_split = decide_split(&plan.exec, &plan.call);
    fp_modes_end(callers);
    if (status != ATTNKIT_OK)
        return status;
    if (plan.problem.empty)
        return accept(message);
    if (is_split)
        run_waves(&plan.exec, &plan.call);
    else
        attnkit_run_tasks(&plan.exec, plan.call.schedule.threads, run_share, &plan.call);
    return accept(message);
}
