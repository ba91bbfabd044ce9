/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the shared library and the worker of a side. The user gives a library, the folder of a
 * build, or a revision of the repository. A revision is exported and built.
 */
#ifndef ATTNKIT_COMPARE_BUILDS_H
#define ATTNKIT_COMPARE_BUILDS_H

#include <limits.h>
#include <stdbool.h>

#include "bench/compare/build/copies.h"

enum { LABEL = 128 };

struct builder {
    const char *repository; /* a folder within the repository; NULL: the current folder */
    const char *keep;       /* an existing folder that keeps libraries and workers for later jobs;
                             * NULL: no files are kept */
    const char *folder;     /* the temporary folder of the job */
};

/* Sets `files` to the paths of the library and the worker of the side that the user has given as
 * `what`. Sets `label` to the name of the side in results. `side` is "BASE" or "HEAD", for
 * messages. `setup` has further arguments of `meson setup`, separated by spaces, or is NULL. On an
 * error, prints it and returns false. If a signal ends the build, returns false, too. */
bool builds_find(const struct builder *builder, const char *side, const char *what,
                 const char *setup, char files[FILES][PATH_MAX], char label[LABEL]);

#endif
