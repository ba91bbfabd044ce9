/* SPDX-License-Identifier: Apache-2.0
 *
 * Results for programs: a JSON file.
 */
#ifndef ATTNKIT_COMPARE_RESULTS_H
#define ATTNKIT_COMPARE_RESULTS_H

#include "bench/compare/job.h"

/* Writes the results to `name`, the temporary name that output_begin has returned, and completes
 * the output file. On an error, prints it and returns false. */
bool results_write(const struct job *job, const char *name);

#endif
