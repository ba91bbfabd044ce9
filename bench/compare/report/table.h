/* SPDX-License-Identifier: Apache-2.0
 *
 * Results for people.
 */
#ifndef ATTNKIT_COMPARE_TABLE_H
#define ATTNKIT_COMPARE_TABLE_H

#include "bench/compare/job.h"

/* A line for a point that is done, on standard output if it is a terminal, else on standard error.
 */
void table_progress(const struct point *point, int done, int count, int name_width);

/* The table, and what it comes to. */
void table_print(const struct job *job);

#endif
