/* SPDX-License-Identifier: Apache-2.0
 *
 * Results for people: a line when a row is done, and a table of all rows at the end.
 */
#ifndef ATTNKIT_REPORT_H
#define ATTNKIT_REPORT_H

#include "bench/rows/rows.h"

/* Prints a line for a measured row: on standard output if standard output is a terminal, else on
 * standard error. `done` of `count` measurements are finished. name_width is the length of the
 * longest name. */
void report_progress(const struct row *row, const struct result *result, int name_width, int done,
                     int count);

/* report_header prints the header of the table. report_row prints the line of a row. */
void report_header(int name_width);
void report_row(const struct row *row, const struct result *result, int name_width);

#endif
