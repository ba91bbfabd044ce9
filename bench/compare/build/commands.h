/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs other programs and sends their output to a file.
 */
#ifndef ATTNKIT_COMPARE_COMMANDS_H
#define ATTNKIT_COMPARE_COMMANDS_H

#include <stdbool.h>
#include <stdio.h>

/* Runs a program, appends its output to `log`, and waits for its end. `words` are the name of the
 * program and its arguments, and then NULL. After a signal such as Ctrl-C
 * (bench/compare/interrupt.h), also ends the program and all processes that it has started. Returns
 * false after such a signal, or if the program failed or could not start. */
bool command_run(const char *const *words, const char *log);

/* Prints the last lines of a log, indented. */
void command_show_log(const char *log, FILE *stream);

#endif
