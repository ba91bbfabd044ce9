/* SPDX-License-Identifier: Apache-2.0
 *
 * Results for people: a table on the terminal.
 */
#ifndef ATTNKIT_COMPARE_TABLE_H
#define ATTNKIT_COMPARE_TABLE_H

#include "bench/compare/job.h"

/* Prints a line for a finished point, on standard output if it is a terminal, else on standard
 * error. `done` of `count` wanted points are finished. name_width is the width of the column of
 * names, in characters. */
void table_progress(const struct point *point, int done, int count, int name_width);

/* Prints the table and the verdict. */
void table_print(const struct job *job);

#endif
