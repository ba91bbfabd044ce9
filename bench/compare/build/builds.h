/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the shared library and the worker of a side. The user gives a library, the folder of a
 * build, or a revision of the repository, which is exported and built.
 */
#ifndef ATTNKIT_COMPARE_BUILDS_H
#define ATTNKIT_COMPARE_BUILDS_H

#include <limits.h>
#include <stdbool.h>

#include "bench/compare/build/copies.h"

enum { LABEL = 128 };

struct builder {
    const char *repository; /* a folder within the repository; NULL: the current folder */
    const char *keep;       /* a folder that keeps builds for later runs of attnkit compare; NULL:
                             * keep none */
    const char *folder;     /* the folder of this run */
};

/* Finds the files of a side that the user has given as `what`. `setup` has further arguments of
 * `meson setup`, separated by spaces, or is NULL. Sets `label` to the name of the side in results.
 * On an error, prints it and returns false. If a signal ends the building, returns false, too. */
bool builds_find(const struct builder *builder, const char *side, const char *what,
                 const char *setup, char files[FILES][PATH_MAX], char label[LABEL]);

#endif
