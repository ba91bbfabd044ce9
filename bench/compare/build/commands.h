/* SPDX-License-Identifier: Apache-2.0
 *
 * Other programs, whose output goes to a file.
 */
#ifndef ATTNKIT_COMPARE_COMMANDS_H
#define ATTNKIT_COMPARE_COMMANDS_H

#include <stdbool.h>
#include <stdio.h>

/* Runs the program with what it writes at the end of `log`, and waits. The words end with NULL.
 * False: it failed, could not be started, or a signal came, at which it is ended with all that it
 * has started. */
bool command_run(const char *const *words, const char *log);

/* The last lines of a log, indented. */
void command_show_log(const char *log, FILE *stream);

#endif
