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

/* Copies `built`, the library and the worker of a side, `copies` times to `folder`. `side` is the
 * number of the side (bench/compare/measure/sides.h), and `side_name` names the side in error
 * messages. Each copy of the library gets its own soname, and its copy of the worker asks the
 * loader for this soname. Otherwise the loader would give the first library to all workers. Returns
 * EXIT_GREEN, or prints an error and returns its exit code. */
enum exit_code copies_make(const char *folder, int side, int copies, const char *side_name,
                           char built[FILES][PATH_MAX]);

/* Sets `files` to the paths of copy number `copy` of the library and the worker of a side. On an
 * error, prints it and returns false. */
bool copies_name(const char *folder, int side, int copy, char files[FILES][PATH_MAX]);

#endif
