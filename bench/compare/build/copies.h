/* SPDX-License-Identifier: Apache-2.0
 *
 * The copies of a library and its worker that are loaded, as files in the folder of the job.
 */
#ifndef ATTNKIT_COMPARE_COPIES_H
#define ATTNKIT_COMPARE_COPIES_H

#include <limits.h>
#include <stdbool.h>

#include "bench/compare/exit_codes.h"

enum { LIBRARY, WORKER, FILES };

/* Copies the files of a side, `copies` times. The copies of a library have names of their own
 * (sonames), which the copies of the worker ask for: so each worker gets its own library, where the
 * loader would else give all of them the first one. Returns EXIT_GREEN, or complains. */
enum exit_code copies_make(const char *folder, int side, int copies, const char *side_name,
                           char built[FILES][PATH_MAX]);

/* The files of a copy. False: complained. */
bool copies_name(const char *folder, int side, int copy, char files[FILES][PATH_MAX]);

#endif
