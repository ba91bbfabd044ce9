/* SPDX-License-Identifier: Apache-2.0
 *
 * Google Benchmark for C: the little of it that the benches need. A benchmark is a function that
 * measures by its own means and reports one time for each iteration, of which it makes one:
 *
 *     static void bench(struct gbench_state *state, void *arg)
 *     {
 *         while (gbench_keep_running(state))
 *             gbench_set_iteration_time(state, seconds, cpu_seconds);
 *         gbench_rate(state, "GFLOPS", gflops);
 *     }
 */
#ifndef ATTNKIT_GBENCH_H
#define ATTNKIT_GBENCH_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gbench_state;

/* The name appears in the results as it is. */
void gbench_register(const char *name, void (*bench)(struct gbench_state *state, void *arg),
                     void *arg);

/* A line of the results' "context". */
void gbench_context(const char *key, const char *value);

/* Runs what was registered, `repetitions` times, and writes Google Benchmark's JSON to a file that
 * can be written, if json is not NULL. argv[0] is the program. */
void gbench_run(char *argv0, int repetitions, const char *json);

/* Within a benchmark: */

bool gbench_keep_running(struct gbench_state *state);
void gbench_set_iteration_time(struct gbench_state *state, double seconds, double cpu_seconds);
void gbench_counter(struct gbench_state *state, const char *name, double value);
void gbench_rate(struct gbench_state *state, const char *name, double amount); /* per second */
void gbench_label(struct gbench_state *state, const char *text);
void gbench_skip(struct gbench_state *state, const char *message); /* before keep_running */

#ifdef __cplusplus
}
#endif

#endif
