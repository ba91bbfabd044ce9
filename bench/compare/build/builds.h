/* SPDX-License-Identifier: Apache-2.0
 *
 * From what a side is given as, a library, the folder of a build, or a revision of the repository,
 * to a shared library and its worker. Revisions are exported and built.
 */
#ifndef ATTNKIT_COMPARE_BUILDS_H
#define ATTNKIT_COMPARE_BUILDS_H

#include <limits.h>
#include <stdbool.h>

#include "bench/compare/build/copies.h"

enum { LABEL = 128 };

struct builder {
    const char *repository; /* a folder in it; NULL: the current one */
    const char *setup;      /* more arguments of `meson setup`, separated by blanks, or NULL */
    const char *keep;       /* the folder of builds that are kept from job to job, or NULL */
    const char *folder;     /* of this job */
};

/* The files of a side that is given as `what`; more_setup as builder->setup, for this side. label
 * is what it is called in results. False: complained, or a signal came. */
bool builds_find(const struct builder *builder, const char *side, const char *what,
                 const char *more_setup, char files[FILES][PATH_MAX], char label[LABEL]);

#endif
