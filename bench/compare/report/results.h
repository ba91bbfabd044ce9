/* SPDX-License-Identifier: Apache-2.0
 *
 * Results for programs: a JSON file.
 */
#ifndef ATTNKIT_COMPARE_RESULTS_H
#define ATTNKIT_COMPARE_RESULTS_H

#include "bench/compare/job.h"

/* Writes the results to a file that output_begin has given. False: complained. */
bool results_write(const struct job *job, const char *name);

#endif
