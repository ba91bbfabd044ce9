/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of a library and its worker in the folder of the job. attnkit-compare loads only copies.
 */
#ifndef ATTNKIT_COMPARE_COPIES_H
#define ATTNKIT_COMPARE_COPIES_H

#include <limits.h>
#include <stdbool.h>

#include "bench/compare/exit_codes.h"

enum { LIBRARY, WORKER, FILES };

/* Makes `copies` copies of the files of a side. Each copy of a library gets its own soname, and its
 * worker asks the loader for this soname. Otherwise the loader would give the first library to all
 * workers. Returns EXIT_GREEN, or prints an error and returns its exit code. */
enum exit_code copies_make(const char *folder, int side, int copies, const char *side_name,
                           char built[FILES][PATH_MAX]);

/* Sets the names of the files of a copy. On an error, prints it and returns false. */
bool copies_name(const char *folder, int side, int copy, char files[FILES][PATH_MAX]);

#endif
