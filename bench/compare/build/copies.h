/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of a library and its worker, as files in the folder of the job. Only copies are loaded.
 */
#ifndef ATTNKIT_COMPARE_COPIES_H
#define ATTNKIT_COMPARE_COPIES_H

#include <limits.h>
#include <stdbool.h>

#include "bench/compare/exit_codes.h"

enum { LIBRARY, WORKER, FILES };

/* Copies the files of a side, `copies` times. Each copy of a library gets a soname of its own, and
 * its worker asks the loader for this soname. Otherwise the loader would give the first library to
 * all workers. Returns EXIT_GREEN, or complains. */
enum exit_code copies_make(const char *folder, int side, int copies, const char *side_name,
                           char built[FILES][PATH_MAX]);

/* Sets the names of the files of a copy. Returns false if it has complained. */
bool copies_name(const char *folder, int side, int copy, char files[FILES][PATH_MAX]);

#endif
