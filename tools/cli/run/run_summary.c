/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary that `attnkit run` prints after all files are written: the arrays, the call, and its
 * speed.
 */
#include "tools/cli/run/run.h"

#include <string.h>

enum { LABEL = RUN_LABEL };

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double keys_of(const struct run *run, int64_t b)
{
    return run->kv_lens ? (double)run->kv_lens[b] : (double)run->args.kv_len;
}

/* Returns 1 more than the largest key index in the cells of a batch entry, or 0 if all these cells
 * are empty. With --kv-len, only the first cells of the entry count. */
static double end_of_cells(const struct run *run, int64_t b)
{
    int64_t largest = -1;
    for (int64_t cell = 0; cell < (int64_t)keys_of(run, b); cell++)
        if (run_index_at(run, b, cell) > largest)
            largest = run_index_at(run, b, cell);
    return (double)largest + 1.0;
}

/* Returns the position of row 0 of the batch entry, or 0 if rows have no positions. Positions are
 * floating-point numbers, so that sums do not overflow. */
static double offset_of(const struct run *run, int64_t b)
{
    if (run->args.align == ATTNKIT_ALIGN_BOTTOM_RIGHT)
        return (run->key_index.data ? end_of_cells(run, b) : keys_of(run, b)) -
               (double)run->args.q_len;
    return run->args.align == ATTNKIT_ALIGN_OFFSETS ? (double)run->q_offsets[b] : 0.0;
}

/* Returns how many of the first `keys` keys the row at this position may see. */
static double visible_keys(const struct run *run, double position, double keys)
{
    const attnkit_window *const window = run->visibility.window;
    const bool causal = run->args.flags & ATTNKIT_CAUSAL;
    double first = 0.0, end = causal ? smaller(position + 1.0, keys) : keys;
    const double kept = larger(smaller((double)run->window.keep_first, end), 0.0);
    if (window && window->left >= 0)
        first = larger(position - (double)window->left, 0.0);
    if (window && window->right >= 0)
        end = smaller(position + (double)window->right + 1.0, end);
    const double seen = larger(end - first, 0.0);
    return seen > 0.0 && kept > first ? larger(kept, end) : kept + seen;
}

/* Returns how many of a batch entry's cells hold a key that the row at this position may see. With
 * --kv-len, only the first cells of the entry count. */
static double visible_cells(const struct run *run, int64_t b, double position)
{
    double count = 0.0;
    for (int64_t cell = 0; cell < (int64_t)keys_of(run, b); cell++) {
        const double index = (double)run_index_at(run, b, cell);
        /* The difference below is 1 if the row may see this key, else 0. */
        if (index >= 0.0)
            count += visible_keys(run, position, index + 1.0) - visible_keys(run, position, index);
    }
    return count;
}

/* Returns the number of pairs of a query row and a key that the row may see by its position, over
 * all query heads. Masks and segment ids are ignored. */
static double visible_pairs(const struct run *run)
{
    const attnkit_attention_args *const args = &run->args;
    double pairs = 0.0;
    if (args->q_heads == 0 || args->q_len == 0)
        return 0.0;
    for (int64_t b = 0; b < args->batch; b++) {
        const double first = offset_of(run, b);
        for (int64_t i = 0; i < args->q_len; i++) {
            const double position = first + (double)i;
            pairs += run->key_index.data ? visible_cells(run, b, position)
                                         : visible_keys(run, position, keys_of(run, b));
        }
    }
    return (double)args->q_heads * pairs;
}

/* Prints a line for an array unless its name is NULL; note may be NULL. */
void run_print_array(const char *label, const char *name, const struct npy *array, const char *note)
{
    char shape[NPY_SHAPE_TEXT];
    if (name)
        say("%-*s%s %s%s%s", LABEL, label, npy_shape(array, shape), name, note ? ", " : "",
            note ? note : "");
}

static void print_inputs(const struct run_options *options, const struct run *run)
{
    const bool in_groups = options->bf16_products;
    const bool is_i8 = run->kv_type == ATTNKIT_I8;
    const char *const kv_note = options->integers ? is_i8 ? "i8, as integers" : "q8_0, as integers"
                                : in_groups       ? "bf16, in groups of products"
                                                  : options->kv_type;
    run_print_array("q", options->q, &run->q, in_groups ? kv_note : NULL);
    run_print_array("k", options->k, &run->k, kv_note);
    run_print_array("v", options->v, &run->v, kv_note);
    run_print_array("mask", run->bytes.file, &run->bytes.array, options->mask.kind);
    run_print_array("bits", run->bits.file, &run->bits.array, options->bits.kind);
    run_print_array("bias", run->bias.file, &run->bias.array, NULL);
    run_print_array("scales", options->bias_scales, &run->bias_scales, "of the bias");
    run_print_array("q docs", options->q_docs, &run->q_docs, NULL);
    run_print_array("kv docs", options->kv_docs, &run->kv_docs, NULL);
    run_print_array("index", options->key_index, &run->key_index, NULL);
    run_print_array("alibi", options->alibi, &run->alibi, NULL);
    run_print_array("sinks", options->sinks, &run->sinks, NULL);
}

/* Returns whether row 0 can have another position in another batch entry. */
static bool positions_may_differ(const struct run *run)
{
    const struct npy *const index = &run->key_index;
    return run->args.align == ATTNKIT_ALIGN_BOTTOM_RIGHT &&
           (run->kv_len.count > 1 || (index->rank == 2 && index->shape[0] > 1));
}

/* Prints the position of row 0 of batch entry 0. The line names the entry if other entries may have
 * other positions. */
static void print_position(const struct run_options *options, const struct run *run)
{
    const char *const form = options->causal ? options->causal : options->align;
    if (form)
        say("%-*s%s: query row 0 is at key %.0f%s", LABEL, options->causal ? "causal" : "align",
            form, offset_of(run, 0), positions_may_differ(run) ? " in entry 0" : "");
}

static void print_what_ran(const struct run_options *options, const struct run *run)
{
    const attnkit_isa_choice *const choice = &run->choice;
    const int64_t threads = run->exec.threads;
    const bool two = strcmp(choice->prefill, choice->decode) != 0;
    say("%-*s%s%s%s%s, %s; %lld thread%s", LABEL, "ran on", choice->prefill,
        two ? " (many rows), " : "", two ? choice->decode : "", two ? " (few rows)" : "",
        options->isa ? "as --isa says" : choice->reason, (long long)threads,
        threads == 1 ? "" : "s");
}

double run_flops(const struct run *run)
{
    const attnkit_attention_args *const args = &run->args;
    return 2.0 * ((double)args->head_dim + (double)args->value_dim) * visible_pairs(run);
}

void run_print_speed(const struct run *run, double flops)
{
    const double best = run->seconds[0], median = run->seconds[run->repeat / 2];
    say("%-*sbest %.6g ms, median %.6g ms of %lld", LABEL, "time", best * 1e3, median * 1e3,
        (long long)run->repeat);
    say("%-*s%.2f GFLOP/s at best, %.4g GFLOP in all", LABEL, "speed",
        best > 0.0 ? flops / best * 1e-9 : 0.0, flops * 1e-9);
}

void run_print_files(const struct run_options *options, const struct run *run)
{
    print_inputs(options, run);
    run_print_array("out", options->out, &run->out, options->out_type);
    run_print_array("lse", options->lse, &run->lse, NULL);
    run_print_array("weights", options->weights, &run->weights,
                    options->weights_kind ? options->weights_kind : "softmax");
    print_position(options, run);
    print_what_ran(options, run);
}
