/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs other programs and sends their output to a file.
 */
#ifndef ATTNKIT_COMPARE_COMMANDS_H
#define ATTNKIT_COMPARE_COMMANDS_H

#include <stdbool.h>
#include <stdio.h>

/* Runs a program, appends its standard output and standard error to the file `log`, and waits for
 * the end of the program. `words` are the name of the program and its arguments, and then NULL. If
 * a signal such as Ctrl-C arrives meanwhile (bench/compare/interrupt.h), sends SIGTERM to the
 * program and to the processes that it has started. Returns false after such a signal, or if the
 * program failed or could not start. */
bool command_run(const char *const *words, const char *log);

/* Prints the last lines of a log, at most about 4000 bytes, indented. */
void command_show_log(const char *log, FILE *stream);

#endif
