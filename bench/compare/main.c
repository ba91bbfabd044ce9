/* SPDX-License-Identifier: Apache-2.0
 *
 * The program attnkit-compare, which `attnkit compare` starts. It finds out whether HEAD, a build
 * of the library, is slower than another build, BASE, or gives other results. The program is not
 * linked with the library.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "bench/measure/clock.h"
#include "bench/report/output.h"
#include "bench/compare/build/copies.h"
#include "bench/compare/build/folder.h"
#include "bench/compare/interrupt.h"
#include "bench/compare/report/results.h"
#include "bench/compare/report/table.h"

enum { MAX_CORE = 1023, CONTROLS = 12 };

static const struct effort full_effort = {.min_pairs = 400, .max_pairs = 2000};
static const struct effort quick_effort = {.min_pairs = 300, .max_pairs = 1000};
static const double full_budgets[] = {[FIRST] = 110.0, [SECOND] = 60.0};
static const double quick_budgets[] = {[FIRST] = 32.0, [SECOND] = 22.0};
static const double default_patience = 120.0;

struct compare_options {
    const char *quick, *isa, *filter, *pairs, *any_bits, *core, *seed, *json, *list;
    const char *repository, *head_setup, *keep, *patience, *help;
};

/* The state of a job. */
struct setting {
    const struct compare_options *options;
    const char *given[2]; /* BASE and HEAD */
    char folder[PATH_MAX];
    struct plan plan;
    struct job job;
};

/* ------------------------------------------------------------------------------ the libraries */

/* Finds the library and the worker of a side. */
static bool find_library(struct setting *setting, int side, char files[FILES][PATH_MAX])
{
    static const char *const names[] = {"BASE", "HEAD"};
    const struct compare_options *const options = setting->options;
    const struct builder builder = {options->repository, options->keep, setting->folder};
    return builds_find(&builder, names[side], setting->given[side],
                       side == HEAD ? options->head_setup : NULL, files, setting->job.labels[side]);
}

static enum exit_code find_libraries(struct setting *setting)
{
    char files[2][FILES][PATH_MAX];
    const char *const keep = setting->options->keep;
    enum exit_code code = EXIT_GREEN;
    if (keep && !folder_make_all(keep))
        return EXIT_SYSTEM;
    if (!find_library(setting, BASE, files[BASE]) || !find_library(setting, HEAD, files[HEAD]))
        return EXIT_NOT_BUILT;
    for (int side = 0; side < SIDES && code == EXIT_GREEN; side++)
        code = copies_make(setting->folder, side, COPIES, side == HEAD ? "HEAD" : "BASE",
                           files[side == HEAD]);
    return code;
}

/* ------------------------------------------------------------------------------ the measuring */

/* Marks all points as wanted. Also asks for comparisons of BASE with itself: at 12 to 17 evenly
 * spread points, or at all points if there are at most 23. */
static void want_all(struct shared *shared)
{
    const int stride = shared->count > CONTROLS ? shared->count / CONTROLS : 1;
    for (int i = 0; i < shared->count; i++) {
        shared->points[FIRST][i].wanted = true;
        shared->points[FIRST][i].with_aa = i % stride == stride / 2;
    }
}

/* Marks as wanted the points that the first process found slower or unclear. Returns their
 * number. */
static int want_suspects(struct shared *shared)
{
    int count = 0;
    for (int i = 0; i < shared->count; i++) {
        struct point *const second = &shared->points[SECOND][i];
        second->wanted = point_is_suspect(&shared->points[FIRST][i]);
        count += second->wanted;
    }
    return count;
}

static void tell(const struct shared *shared, int process, int point)
{
    int done = 0, count = 0, width = 0;
    for (int i = 0; i < shared->count; i++) {
        const struct point *const one = &shared->points[process][i];
        const int length = (int)strlen(one->name);
        done += one->wanted && i <= point;
        count += one->wanted;
        width = length > width ? length : width;
    }
    table_progress(&shared->points[process][point], done, count, width);
}

static enum exit_code measure_all(const struct plan *plan, struct shared *shared)
{
    want_all(shared);
    const enum exit_code code = process_measure(plan, shared, FIRST, tell);
    const int suspects = want_suspects(shared);
    if (code != EXIT_GREEN || suspects == 0 || interrupted())
        return code;
    fprintf(stderr,
            "%d of %d points are slower or unclear: they are measured again, with the libraries "
            "loaded in the other order\n",
            suspects, shared->count);
    return process_measure(plan, shared, SECOND, tell);
}

/* -------------------------------------------------------------------------------- the verdict */

static struct control control_of(const struct shared *shared, uint64_t seed)
{
    static double ratios[MAX_RATIOS];
    struct control control = {.points = 0};
    int count = 0;
    for (int i = 0; i < shared->count; i++) {
        const struct point *const point = &shared->points[FIRST][i];
        control.points += point->aa.pairs > 0;
        for (int k = 0; k < point->aa.pairs && count < MAX_RATIOS; k++)
            ratios[count++] = point->again[k];
    }
    if (count > 0)
        control.pooled = estimate_ratio(ratios, count, &seed);
    return control;
}

static void judge(struct job *job)
{
    const struct shared *const shared = job->shared;
    for (int i = 0; i < shared->count; i++)
        job->points[i] = (struct judged){&shared->points[FIRST][i], &shared->points[SECOND][i]};
    job->control = control_of(shared, job->plan->seed);
    job->verdict = job_verdict(job->points, shared->count, &job->control);
}

static bool has_comparable(const struct shared *shared)
{
    for (int i = 0; i < shared->count; i++) {
        const enum outcome outcome = shared->points[FIRST][i].outcome;
        if (outcome != ONLY_IN_HEAD && outcome != IN_NEITHER)
            return true;
    }
    return complain("there is no point whose call BASE can make");
}

static enum exit_code report(const struct job *job, const char *json)
{
    static const enum exit_code codes[] = {
        [GREEN] = EXIT_GREEN, [RED] = EXIT_RED, [INCONCLUSIVE] = EXIT_INCONCLUSIVE};
    table_print(job);
    if (!has_comparable(job->shared))
        return EXIT_NOT_COMPARABLE;
    return !json || results_write(job, json) ? codes[job->verdict] : EXIT_SYSTEM;
}

/* ------------------------------------------------------------------------------------ the job */

static void list_points(const struct shared *shared)
{
    for (int i = 0; i < shared->count; i++)
        puts(shared->points[FIRST][i].name);
}

static enum exit_code compare(struct setting *setting, const char *json)
{
    struct job *const job = &setting->job;
    struct shared *const shared = shared_make();
    if (!shared)
        return EXIT_SYSTEM;
    enum exit_code code = find_libraries(setting);
    if (code == EXIT_GREEN)
        code = process_list(&setting->plan, shared);
    if (code != EXIT_GREEN || interrupted())
        return code;
    if (setting->options->list) {
        list_points(shared);
        return code;
    }
    const double start = clock_seconds(CLOCK_MONOTONIC);
    code = measure_all(&setting->plan, shared);
    if (code != EXIT_GREEN || interrupted())
        return code;
    job->plan = &setting->plan;
    job->shared = shared;
    job->seconds = clock_seconds(CLOCK_MONOTONIC) - start;
    judge(job);
    return report(job, json);
}

/* Runs a job in a temporary folder. */
static enum exit_code run(struct setting *setting)
{
    const char *json = setting->options->json;
    if (json && !(json = output_begin(json)))
        return EXIT_SYSTEM;
    interrupt_catch();
    enum exit_code code = EXIT_SYSTEM;
    setting->plan.folder = setting->folder;
    if (folder_make(setting->folder)) {
        code = compare(setting, json);
        folder_remove(setting->folder);
    }
    if (json)
        output_abandon();
    interrupt_die();
    return code;
}

/* -------------------------------------------------------------------------------- the options */

static bool plan_job(const struct compare_options *options, struct plan *plan)
{
    int64_t pairs, core = -1, seed = clock_nanoseconds(CLOCK_REALTIME) & INT32_MAX;
    double patience = default_patience;
    plan->effort = options->quick ? quick_effort : full_effort;
    if (options->pairs && !parse_integer("--pairs", options->pairs, 20, MAX_PAIRS, &pairs))
        return false;
    memcpy(plan->budgets, options->quick ? quick_budgets : full_budgets, sizeof plan->budgets);
    if (options->pairs)
        plan->effort.min_pairs = plan->effort.max_pairs = (int)pairs;
    if (options->core && !parse_integer("--core", options->core, 0, MAX_CORE, &core))
        return false;
    if (options->seed && !parse_integer("--seed", options->seed, 0, INT64_MAX, &seed))
        return false;
    if (options->patience && !parse_real("--patience", options->patience, &patience))
        return false;
    if (!(patience > 0.0)) /* NaN is refused, too */
        return complain("--patience is %s: must be more than 0 seconds", options->patience);
    plan->effort.any_bits = options->any_bits != NULL;
    plan->choice = (struct choice){options->isa, options->quick != NULL, options->filter};
    plan->core = (int)core;
    plan->seed = (uint64_t)seed;
    plan->patience = patience;
    return true;
}

static void print_help(const struct option *options, int count)
{
    puts("attnkit compare BASE HEAD: whether HEAD is slower than BASE, or gives other results\n"
         "\n"
         "Each of BASE and HEAD is the folder of a build, a revision of the git repository, or a\n"
         "shared library. Its worker, attnkit-worker.so, lies beside the library, or in\n"
         "bench/worker/ of its build. This command builds revisions. It loads both libraries into\n"
         "one process. The workers of both sides make the same calls, and a random number decides\n"
         "which side is first. A point is a call. A point is red if HEAD crashes, hangs or\n"
         "refuses the call, if the results have different bits, or if HEAD is slower. HEAD is\n"
         "slower if the median of the ratios of the times is above 1.01, and a sign test gives\n"
         "p < 0.001. A second process, which loads the libraries in another order, must confirm\n"
         "this with p < 0.01. For some points BASE is also measured against itself. The median of\n"
         "these ratios must be within 0.995 to 1.005, and its 95 % interval within 0.99 to 1.01.\n"
         "If not, the machine is too noisy to tell.\n"
         "\n"
         "Exit codes: 0 green, 1 red, 2 inconclusive; 64 the arguments are invalid or choose no\n"
         "point, 65 a side cannot be found, built or copied, 66 a side cannot be loaded, or BASE\n"
         "can make the call of no point, 67 BASE crashes, hangs or ends the process, 68 a file,\n"
         "memory, a process or a processor is not available.\n");
    options_print_help(options, count);
}

static enum exit_code main_compare(int argc, char **argv)
{
    static struct compare_options values;
    static const struct option options[] = {
        {"--quick", NULL, "under a minute: the main points, fewer pairs", &values.quick},
        {"--isa", "NAME",
         "only points of this instruction set; default: all points of the best\n"
         "instruction set, some points of AVX2, and small points of plain C",
         &values.isa},
        {"--filter", "REGEX", "only points whose name matches (extended, as grep -E)",
         &values.filter},
        {"--list", NULL, "list the names of the points and measure nothing", &values.list},
        {"--json", "FILE", "also write the results to a JSON file", &values.json},
        {"--pairs", "N",
         "measure N pairs of timings for each point, or fewer if the time limit of the\n"
         "point is reached",
         &values.pairs},
        {"--allow-different-bits", NULL,
         "results may differ by up to 1e-4 of the largest element, for a change that\n"
         "changes results on purpose",
         &values.any_bits},
        {"--core", "N", "the processor to measure on; default: the last processor", &values.core},
        {"--seed", "N", "seed of the random order", &values.seed},
        {"--patience", "SECONDS",
         "time after which an unfinished point counts as hung; default: 120", &values.patience},
        {"--repository", "DIR", "the repository of the revisions; default: the current folder",
         &values.repository},
        {"--head-setup", "ARGS", "more arguments of meson setup for HEAD, separated by blanks",
         &values.head_setup},
        {"--keep", "DIR", "a folder that keeps libraries and workers of revisions for later runs",
         &values.keep},
        {"--help", NULL, "this text", &values.help},
    };
    const int count = sizeof options / sizeof *options;
    static struct setting setting = {.options = &values};
    int sides = 0;
    while (sides < 2 && argc > 1 && argv[1][0] != '-') {
        setting.given[sides++] = argv[1];
        argc--, argv++;
    }
    if (sides == 0 && argc == 2 && !strcmp(argv[1], "--help")) {
        print_help(options, count);
        return EXIT_GREEN;
    }
    if (sides < 2) {
        complain("%s is missing: BASE and HEAD must stand before all options; "
                 "see attnkit compare --help",
                 sides ? "HEAD" : "BASE");
        return EXIT_BAD_COMMAND;
    }
    if (!options_parse(options, count, argc - 1, argv + 1))
        return EXIT_BAD_COMMAND;
    return plan_job(&values, &setting.plan) ? run(&setting) : EXIT_BAD_COMMAND;
}

int main(int argc, char **argv)
{
    const enum exit_code code = main_compare(argc, argv);
    if (!ferror(stdout) && !fflush(stdout))
        return code;
    complain("cannot write standard output: %s", strerror(errno));
    return EXIT_SYSTEM;
}
