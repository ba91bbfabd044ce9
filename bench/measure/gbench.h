/* SPDX-License-Identifier: Apache-2.0
 *
 * The small part of Google Benchmark that the benches need, for C. A benchmark is a function that
 * measures a time itself, and reports it as the time of its only iteration:
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

/* Registers a benchmark. Its name appears unchanged in the results. */
void gbench_register(const char *name, void (*bench)(struct gbench_state *state, void *arg),
                     void *arg);

/* Adds a line to the "context" of the results. */
void gbench_context(const char *key, const char *value);

/* Runs each registered benchmark `repetitions` times. If json is not NULL, writes Google
 * Benchmark's JSON to the file of this name, which must be writable. argv0 is the name of the
 * program. */
void gbench_run(char *argv0, int repetitions, const char *json);

/* For use within a benchmark: */

bool gbench_keep_running(struct gbench_state *state);
void gbench_set_iteration_time(struct gbench_state *state, double seconds, double cpu_seconds);
void gbench_counter(struct gbench_state *state, const char *name, double value);
/* Reports `amount` divided by the seconds of the iteration. */
void gbench_rate(struct gbench_state *state, const char *name, double amount);
void gbench_label(struct gbench_state *state, const char *text);
void gbench_skip(struct gbench_state *state, const char *message); /* before gbench_keep_running */

#ifdef __cplusplus
}
#endif

#endif
