/* SPDX-License-Identifier: Apache-2.0
 *
 * The program attnkit-bench, which `attnkit bench` starts. It chooses rows, runs them through
 * Google Benchmark, and prints a table.
 */
#include <attnkit.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "bench/report/context.h"
#include "bench/measure/gbench.h"
#include "bench/report/history.h"
#include "bench/report/output.h"
#include "bench/report/report.h"
#include "bench/rows/rows.h"

enum { MAX_THREADS = 256, MAX_REPEAT = 1000 };

static const struct patience quick_patience = {.seconds = 0.5, .limit = 3.0};
static const struct patience full_patience = {.seconds = 1.5, .limit = 15.0};

struct bench_options {
    const char *filter, *quick, *json, *history, *shape, *type, *isa, *threads, *repeat, *list,
        *help;
};

/* The rows and options that the user has asked for. */
struct plan {
    struct row_list rows;
    struct patience patience;
    int64_t repeat;
    int name_width;
    const struct isa *isa; /* of --isa, else the set that the library chooses */
    const char *json;      /* temporary name of the results' file, or NULL */
};

/* A row as Google Benchmark runs it, with the results of its repetitions. */
struct job {
    const struct plan *plan;
    const struct row *row;
    struct result *results;
    int done;
};

/* --------------------------------------------------------------------------------- the rows */

static bool pick_isa(const struct bench_options *options, struct plan *plan)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    struct isa_choice choice;
    const struct isa *isas;
    if (options->isa && strchr(options->isa, '+'))
        return complain(
            "--isa is '%s': must be an instruction set without a unit; its rows run with "
            "the units that `attnkit info` lists as used",
            options->isa);
    if (attnkit_isa_pick(options->isa, &choice, message) != ATTNKIT_OK)
        return complain("%s", message);
    attnkit_isas(&isas);
    plan->isa = &isas[choice.isa];
    return true;
}

static bool add_given_shape(const struct bench_options *options, struct plan *plan)
{
    struct row row = {.isa = plan->isa, .quick = QUICK};
    int64_t threads = 1;
    if (options->type && !types_parse(options->type, &row.type, &row.input))
        return complain(
            "--type is '%s': must be f32, f16, bf16, i8, q8_0, q4_0, q4_1, q5_0, q5_1, "
            "iq4_nl, q1_0, q2_0 or f8_e4m3, and bf16_ may stand before it, as in bf16_f16",
            options->type);
    if (options->threads && !parse_integer("--threads", options->threads, 1, MAX_THREADS, &threads))
        return false;
    row.threads = (int)threads;
    return add_call_row(&plan->rows, options->shape, &row) ||
           complain("--shape is '%s': must look like B1_H32_8_L2048_D128_causal or "
                    "R512_I4096_O4096; see attnkit bench --help",
                    options->shape);
}

static bool is_quick(const struct row *row, const struct isa *best)
{
    if (row->isa == best)
        return row->quick != NEVER_QUICK;
    return row->quick == QUICK &&
           (!strcmp(row->isa->name, "avx2") || !strcmp(row->isa->name, "scalar"));
}

static bool is_wanted(const struct bench_options *options, const struct plan *plan,
                      const struct row *row)
{
    return (!options->quick || is_quick(row, plan->isa)) &&
           (!options->isa || row->isa == plan->isa);
}

static bool has_row(const struct row_list *rows, const char *name)
{
    for (int i = 0; i < rows->count; i++)
        if (!strcmp(rows->list[i].name, name))
            return true;
    return false;
}

/* Adds the missing roofs, because a history has all roofs, no matter which rows the user asks
 * for. */
static bool add_missing_roofs(struct row_list *rows)
{
    struct row_list roofs = {0};
    add_roof_rows(&roofs);
    for (int i = 0; i < roofs.count; i++)
        if (!has_row(rows, roofs.list[i].name))
            *rows_add(rows, "%s", roofs.list[i].name) = roofs.list[i];
    const bool complete = !roofs.out_of_memory && !rows->out_of_memory;
    free(roofs.list);
    return complete || complain("no memory");
}

static bool keep_wanted(const struct bench_options *options, struct plan *plan)
{
    int kept = 0;
    for (int i = 0; i < plan->rows.count; i++)
        if (is_wanted(options, plan, &plan->rows.list[i]))
            plan->rows.list[kept++] = plan->rows.list[i];
    plan->rows.count = kept;
    return rows_filter(&plan->rows, options->filter) &&
           (!options->history || add_missing_roofs(&plan->rows));
}

static int longest_name(const struct row_list *rows)
{
    int longest = 0;
    for (int i = 0; i < rows->count; i++) {
        const int length = (int)strlen(rows->list[i].name);
        longest = length > longest ? length : longest;
    }
    return longest;
}

static bool choose_rows(const struct bench_options *options, struct plan *plan)
{
    if (options->json && options->history)
        return complain("--json and --history both say where the results go: give one");
    if (options->threads && !options->shape)
        return complain("option --threads needs --shape");
    if (options->type && !options->shape)
        return complain("option --type needs --shape");
    if (options->shape && !add_given_shape(options, plan))
        return false;
    if (!options->shape || options->history)
        add_roof_rows(&plan->rows);
    if (!options->shape) {
        add_attention_rows(&plan->rows);
        add_linear_rows(&plan->rows);
        add_layer_rows(&plan->rows);
        add_tile_rows(&plan->rows);
    }
    if (plan->rows.out_of_memory)
        return complain("no memory");
    if (!keep_wanted(options, plan))
        return false;
    plan->name_width = longest_name(&plan->rows);
    return true;
}

/* ---------------------------------------------------------------------------------- the jobs */

static void report_figures(struct gbench_state *state, const struct result *result)
{
    const struct figures *const figures = &result->figures;
    const struct work work = result->work;
    const double roof = figures->roof_speed * 1e-9;
    if (work.flops > 0.0) {
        gbench_rate(state, "GFLOPS", work.flops * 1e-9);
        gbench_counter(state, "roof_GFLOPS", roof);
    } else if (work.bytes > 0.0) {
        gbench_rate(state, "GBps", work.bytes * 1e-9);
        gbench_counter(state, "roof_GBps", roof);
    }
    if (work.flops + work.bytes > 0.0)
        gbench_counter(state, "roof_pct", figures->roof_pct);
    if (work.intensity > 0.0)
        gbench_counter(state, "FLOP_per_byte", work.intensity);
    if (work.elements > 0.0)
        gbench_counter(state, "ns_per_element", figures->seconds * 1e9 / work.elements);
    gbench_counter(state, "rounds", figures->rounds);
}

static void run_job(struct gbench_state *state, void *argument)
{
    static int done;
    struct job *const job = argument;
    const struct plan *const plan = job->plan;
    struct result *const result = &job->results[job->done++];
    job->row->run(job->row, plan->patience, result);
    if (result->problem[0])
        gbench_skip(state, result->problem);
    while (gbench_keep_running(state))
        gbench_set_iteration_time(state, result->figures.seconds, result->figures.cpu_seconds);
    if (!result->problem[0])
        report_figures(state, result);
    report_progress(job->row, result, plan->name_width, ++done,
                    plan->rows.count * (int)plan->repeat);
}

static int by_seconds(const void *a, const void *b)
{
    const double x = ((const struct result *)a)->figures.seconds;
    const double y = ((const struct result *)b)->figures.seconds;
    return (x > y) - (x < y);
}

/* Prints the table. A repeated row appears once, with the repetition of median time. */
static void print_table(const struct plan *plan, struct job *jobs)
{
    report_header(plan->name_width);
    for (int i = 0; i < plan->rows.count; i++) {
        qsort(jobs[i].results, (size_t)jobs[i].done, sizeof *jobs[i].results, by_seconds);
        report_row(jobs[i].row, &jobs[i].results[(jobs[i].done - 1) / 2], plan->name_width);
    }
}

static void run_jobs(const struct plan *plan, struct job *jobs, struct result *results,
                     char *program)
{
    describe_context();
    for (int i = 0; i < plan->rows.count; i++) {
        jobs[i] = (struct job){plan, &plan->rows.list[i], results + i * plan->repeat, 0};
        gbench_register(jobs[i].row->name, run_job, &jobs[i]);
    }
    gbench_run(program, (int)plan->repeat, plan->json);
    print_table(plan, jobs);
}

/* Runs the rows. If a row cannot be measured, this is an error only for the row of --shape. */
static int run_plan(const struct bench_options *options, const struct plan *plan, char *program)
{
    const size_t count = (size_t)plan->rows.count;
    struct job *const jobs = calloc(count, sizeof *jobs);
    struct result *const results = calloc(count * (size_t)plan->repeat, sizeof *results);
    bool ok = jobs && results;
    if (ok)
        run_jobs(plan, jobs, results, program);
    else
        complain("no memory");
    ok = ok && !(options->shape && results[0].problem[0]);
    if (plan->json)
        ok = output_end("]\n}\n") && ok;
    free(jobs);
    free(results);
    return ok ? EXIT_OK : EXIT_REFUSED;
}

/* ------------------------------------------------------------------------------- the program */

static void print_help(const struct option *options, int count)
{
    puts("attnkit bench: the speed of attention, linear maps and layers, in percent of what this "
         "machine can do\n"
         "\n"
         "A row is a call, a tile or a roof. prefill/f32/avx2/B1_H12_L1024_D64_causal/t2 is\n"
         "prefill with K and V in f32 on two threads. The first word of a name is the kind of the\n"
         "call: `decode` has one query row, `few` has several query rows for many keys, `linear`\n"
         "is a linear map, `layer` is a layer of self-attention. The speed of a row's calls is\n"
         "printed in percent of the roof, which is measured just before and after the calls. The\n"
         "roof is the number of fused multiply-adds that the row's instruction set can do in a\n"
         "second on the threads of the row. For decode, and for few rows of a linear map or\n"
         "layer, the roof is the number of bytes of memory that these threads can read in a\n"
         "second.\n"
         "R512_I4096_O1024 is a linear map of 512 rows, 4096 inputs and 1024 outputs. A shape of\n"
         "attention or of a layer is written\n"
         "\n"
         "  B1         batch entries\n"
         "  H32_8      query heads, KV heads; H12 if equal\n"
         "  L448x1500  query rows, keys; L2048 if equal\n"
         "  D64x128    head dim, value dim; D64 if equal\n"
         "  _M4096     a layer: rows of 4096 elements in and out; if there are more keys than\n"
         "             rows, the first keys are in a cache\n"
         "  _causal    a row sees the keys up to its own; the last row sees all keys\n"
         "  _pad       not for a layer: batch entry b has (16 - b % 8) / 16 of the keys\n"
         "  _token     K and V are [batch][keys][heads][dim], not [batch][heads][keys][dim]\n"
         "  _tiles     K is in tiles of 16 keys, V is not\n"
         "  _window512 a row sees the 512 keys up to its own\n"
         "  and, not for a layer, one of _alltrue (a bool mask, all true), _dense (a bool mask,\n"
         "  causal), _padmask (a bool mask, padding), _half (a causal bias in f16), _tree (rows\n"
         "  of a tree of drafts), _cells (rows of several sequences in one cache), _bias,\n"
         "  _scaledbias, _ring (the cache is a ring), _alibi, _softcap, _sinks, _dropout,\n"
         "  _weights, _integers (i8 or q8_0 as integers), _products (bf16 is multiplied in\n"
         "  groups of products), _shortproducts (also with short weights)\n"
         "\n"
         "A linear map with a matrix in q8_0 can have _integers, too: the inputs are rounded to\n"
         "integers.\n"
         "\n"
         "After a shape, /planned is a run of a plan (attention only), and /warm means that the\n"
         "data a call reads may be in a cache. With /warm, the roof of decode is the\n"
         "number of multiply-adds.\n");
    options_print_help(options, count);
}

static void list_rows(const struct plan *plan)
{
    for (int i = 0; i < plan->rows.count; i++)
        puts(plan->rows.list[i].name);
}

/* Begins the results file, if --json gives its name or --history gives its folder. On an error,
 * prints it and returns false. */
static bool begin_file(const struct bench_options *options, struct plan *plan)
{
    const char *const name = options->history ? history_name(options->history) : options->json;
    if (!options->history && !options->json)
        return true;
    plan->json = name ? output_begin(name) : NULL;
    return plan->json;
}

static int bench(const struct bench_options *options, char *program)
{
    struct plan plan = {.repeat = 1};
    plan.patience = options->quick ? quick_patience : full_patience;
    if (options->repeat && !parse_integer("--repeat", options->repeat, 1, MAX_REPEAT, &plan.repeat))
        return EXIT_USAGE;
    if (!pick_isa(options, &plan) || !choose_rows(options, &plan))
        return EXIT_USAGE;
    int code = EXIT_OK;
    if (options->list)
        list_rows(&plan);
    else if (!begin_file(options, &plan))
        code = EXIT_REFUSED;
    else
        code = run_plan(options, &plan, program);
    free(plan.rows.list);
    return code;
}

int main(int argc, char **argv)
{
    static struct bench_options values;
    static const struct option options[] = {
        {"--filter", "REGEX", "only rows whose name matches (extended, as grep -E)",
         &values.filter},
        {"--quick", NULL,
         "under 60 s: the main workloads on the best instruction set, some of them\n"
         "also on AVX2, small workloads also in plain C; the roofs",
         &values.quick},
        {"--json", "FILE", "the results as Google Benchmark writes them, for its compare.py",
         &values.json},
        {"--history", "DIR",
         "the results and the machine's roofs in a new file in this folder;\n"
         "tools/report.py makes a page of these files",
         &values.history},
        {"--shape", "SHAPE", "measure this shape instead of the table of rows", &values.shape},
        {"--type", "TYPE",
         "type of K and V, or of matrices, of --shape: f32 (default), f16, bf16, i8,\n"
         "q8_0; for K and V in rows also q4_0, q4_1, q5_0, q5_1, iq4_nl, q1_0, q2_0,\n"
         "f8_e4m3. With bf16_ before the type, as in bf16_bf16, q or the input rows of a\n"
         "linear map or layer are bf16, not f32",
         &values.type},
        {"--isa", "NAME", "only this instruction set; default with --shape: the best", &values.isa},
        {"--threads", "N", "number of threads of --shape; default: 1", &values.threads},
        {"--repeat", "N", "measure every row N times; the table has the medians", &values.repeat},
        {"--list", NULL, "list the names of the rows and do nothing else", &values.list},
        {"--help", NULL, "this text", &values.help},
    };
    const int count = sizeof options / sizeof *options;
    if (!options_parse(options, count, argc - 1, argv + 1))
        return EXIT_USAGE;
    if (values.help)
        print_help(options, count);
    const int code = values.help ? EXIT_OK : bench(&values, argv[0]);
    if (!ferror(stdout) && !fflush(stdout))
        return code;
    complain("cannot write standard output: %s", strerror(errno));
    return code == EXIT_OK ? EXIT_REFUSED : code;
}
