/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the processes that measure, and finds out why they end.
 */
#include "bench/compare/measure/process.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cli/tool.h"
#include "bench/measure/clock.h"
#include "bench/compare/interrupt.h"
#include "bench/compare/measure/arena.h"
#include "bench/compare/report/verdict.h"

enum { POLL_MILLISECONDS = 100 };

struct shared *shared_make(void)
{
    /* The ratios make the memory large, but few of its pages are ever written. */
    const size_t ratios = (size_t)MAX_POINTS * MAX_PAIRS;
    struct shared *const shared =
        mmap(NULL, sizeof *shared + ratios * sizeof(double), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED) {
        complain("no memory for the measurements");
        return NULL;
    }
    for (int i = 0; i < MAX_POINTS; i++)
        shared->points[FIRST][i].again = (double *)(shared + 1) + (size_t)i * MAX_PAIRS;
    return shared;
}

/* -------------------------------------------------------------------------- in the child process
 */

/* Ends the child process. */
__attribute__((noreturn)) static void give_up(struct shared *shared, enum exit_code code)
{
    shared->code = code;
    _exit(code);
}

__attribute__((noreturn)) static void no_memory(struct shared *shared)
{
    snprintf(shared->problem, sizeof shared->problem, "no memory for the calls");
    give_up(shared, EXIT_SYSTEM);
}

/* Pins the process to plan->core. If plan->core is -1, pins the process to the last processor that
 * it may use, because interrupts prefer the first processor. */
static void pin(const struct plan *plan, struct shared *shared)
{
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    int core = plan->core;
    if (core < 0 && !sched_getaffinity(0, sizeof allowed, &allowed))
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &allowed))
                core = i;
    CPU_SET(core, &one);
    shared->core = core;
    if (!sched_setaffinity(0, sizeof one, &one))
        return;
    snprintf(shared->problem, sizeof shared->problem, "cannot be pinned to processor %d: %s", core,
             strerror(errno));
    give_up(shared, EXIT_SYSTEM);
}

static void load(const struct plan *plan, struct shared *shared, int process)
{
    static const int orders[PROCESSES][SIDES] = {
        [FIRST] = {BASE, HEAD, BASE_AGAIN}, [SECOND] = {HEAD, BASE, BASE_AGAIN}};
    if (!sides_load(plan->folder, orders[process], &shared->busy, shared->problem))
        give_up(shared, EXIT_NOT_COMPARABLE);
    for (int side = BASE; side <= HEAD; side++)
        snprintf(shared->version[side], sizeof shared->version[side], "%s", side_version(side));
    const char *isas[MAX_ISAS];
    const int count = sides_isas(isas);
    snprintf(shared->isa, sizeof shared->isa, "%s", count > 0 ? isas[count - 1] : "");
}

static void name_points(const struct plan *plan, struct shared *shared)
{
    static char names[MAX_POINTS][POINT_NAME];
    shared->count = points_choose(&plan->choice, names, MAX_POINTS);
    if (shared->count == 0)
        give_up(shared, EXIT_BAD_COMMAND);
    for (int p = 0; p < PROCESSES; p++)
        for (int i = 0; i < shared->count; i++)
            memcpy(shared->points[p][i].name, names[i], POINT_NAME);
}

/* Returns the time limit of a point in seconds, between 0.5 s and 10 s. Each point that is still to
 * be measured has an equal share of the remaining budget. A point may take 3 shares, because most
 * points need less than one share. */
static double limit_of_point(const struct shared *shared, int process, int point)
{
    const double least = 0.5, most = 10.0, shares = 3.0;
    int left = 0;
    for (int i = point; i < shared->count; i++)
        left += shared->points[process][i].wanted;
    const double limit = shares * (shared->deadline - clock_seconds(CLOCK_MONOTONIC)) / left;
    return limit < least ? least : limit > most ? most : limit;
}

/* --------------------------------------------------------------------------- the child process */

/* The task of a child process. */
struct task {
    const struct plan *plan;
    struct shared *shared;
    int process;
    int from;    /* the first point; -1: only list the points */
    int reports; /* a pipe to which the child writes the number of each finished point */
};

__attribute__((noreturn)) static void run_task(const struct task *task)
{
    struct shared *const shared = task->shared;
    struct effort effort = task->plan->effort;
    effort.enough = task->process == SECOND ? slower_from : 0.0;
    uint64_t random = task->plan->seed + (uint64_t)task->process;
    interrupt_release();
    if (setpgid(0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL))
        give_up(shared, EXIT_SYSTEM);
    pin(task->plan, shared);
    load(task->plan, shared, task->process);
    if (task->from < 0)
        name_points(task->plan, shared);
    else if (!arena_make())
        no_memory(shared);
    for (int i = task->from; i >= 0 && i < shared->count; i++) {
        struct point *const point = &shared->points[task->process][i];
        if (!point->wanted)
            continue;
        shared->at = i;
        effort.limit = limit_of_point(shared, task->process, i);
        pairs_measure(&effort, &random, point);
        shared->at = -1;
        if (write(task->reports, &i, sizeof i) != sizeof i)
            give_up(shared, EXIT_SYSTEM);
    }
    _exit(EXIT_GREEN);
}

/* ------------------------------------------------------------------------- in the parent process
 */

/* Reads reports until the child ends, calls `tell` after each report, and returns true. If a signal
 * has come, or if no report comes for plan->patience seconds, kills the child and returns false. */
static bool follow(const struct task *task, pid_t child, int reports,
                   void (*tell)(const struct shared *shared, int process, int point))
{
    double last = clock_seconds(CLOCK_MONOTONIC);
    for (;;) {
        struct pollfd ready = {.fd = reports, .events = POLLIN};
        int point;
        const double now = clock_seconds(CLOCK_MONOTONIC);
        if (interrupted() || now - last > task->plan->patience) {
            kill(child, SIGKILL);
            return false;
        }
        if (poll(&ready, 1, POLL_MILLISECONDS) <= 0)
            continue;
        if (read(reports, &point, sizeof point) != sizeof point)
            return true;
        last = now;
        tell(task->shared, task->process, point);
    }
}

/* Waits for the end of the child, also if signals arrive meanwhile. The wait is short, because the
 * child has already ended or has been killed. */
static bool wait_for(pid_t child, int *status)
{
    pid_t ended;
    do
        ended = waitpid(child, status, 0);
    while (ended < 0 && errno == EINTR);
    return ended == child;
}

/* Describes in words how a side has failed. */
static void describe_end(const struct shared *shared, int status, bool hung, char text[POINT_NOTE])
{
    const char *const name = shared->busy == HEAD ? "HEAD" : "BASE";
    if (hung)
        snprintf(text, POINT_NOTE, "%s does not come back", name);
    else if (WIFSIGNALED(status))
        snprintf(text, POINT_NOTE, "%s crashes: %s", name, strsignal(WTERMSIG(status)));
    else
        snprintf(text, POINT_NOTE, "%s ends the process, with status %d", name,
                 WEXITSTATUS(status));
}

/* Finds out why the child ended too early. If a call of HEAD at a point was the reason, marks the
 * point as CRASHED, sets *from to the next point and returns EXIT_GREEN. Otherwise returns the exit
 * code of an error. */
static enum exit_code judge_end(const struct task *task, int status, bool hung, int *from)
{
    struct shared *const shared = task->shared;
    const int at = shared->at;
    char text[POINT_NOTE];
    if (shared->busy < 0) {
        if (shared->problem[0])
            complain("%s", shared->problem);
        else if (shared->code == EXIT_GREEN)
            complain("a measuring process ended with status %#x", (unsigned)status);
        return shared->code == EXIT_GREEN ? EXIT_SYSTEM : shared->code;
    }
    describe_end(shared, status, hung, text);
    if (at < 0) {
        complain("%s, when it is loaded", text);
        return EXIT_NOT_COMPARABLE;
    }
    struct point *const point = &shared->points[task->process][at];
    if (shared->busy != HEAD) {
        complain("%s, at %s", text, point->name);
        return EXIT_BASE_FAILED;
    }
    point->outcome = CRASHED;
    memcpy(point->note, text, sizeof text);
    *from = at + 1;
    return EXIT_GREEN;
}

/* Runs one child process to its end. The process begins with point *from. If *from is -1, the
 * process only lists the points. Sets *from to the point with which another process must go on. If
 * no point is left, *from is then at least shared->count. */
static enum exit_code run_process(struct task *task, int *from,
                                  void (*tell)(const struct shared *shared, int process, int point))
{
    struct shared *const shared = task->shared;
    int ends[2], status = 0;
    shared->at = shared->busy = -1;
    shared->code = EXIT_GREEN;
    shared->problem[0] = '\0';
    if (pipe(ends)) {
        complain("cannot make a pipe: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    task->from = *from;
    task->reports = ends[1];
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        run_task(task);
    close(ends[1]);
    const bool hung = child > 0 && !follow(task, child, ends[0], tell);
    close(ends[0]);
    if (child < 0 || !wait_for(child, &status)) {
        complain("cannot %s a process: %s", child < 0 ? "start" : "wait for", strerror(errno));
        return EXIT_SYSTEM;
    }
    *from = MAX_POINTS;
    if (interrupted() || (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_GREEN &&
                          shared->at < 0 && shared->busy < 0))
        return EXIT_GREEN;
    const enum exit_code code = judge_end(task, status, hung, from);
    if (code == EXIT_GREEN && tell)
        tell(shared, task->process, *from - 1);
    return code;
}

enum exit_code process_list(const struct plan *plan, struct shared *shared)
{
    struct task task = {.plan = plan, .shared = shared, .process = FIRST};
    int from = -1;
    return run_process(&task, &from, NULL);
}

enum exit_code process_measure(const struct plan *plan, struct shared *shared, int process,
                               void (*tell)(const struct shared *shared, int process, int point))
{
    struct task task = {.plan = plan, .shared = shared, .process = process};
    enum exit_code code = EXIT_GREEN;
    shared->deadline = clock_seconds(CLOCK_MONOTONIC) + plan->budgets[process];
    for (int from = 0; from < shared->count && code == EXIT_GREEN && !interrupted();)
        code = run_process(&task, &from, tell);
    return code;
}
