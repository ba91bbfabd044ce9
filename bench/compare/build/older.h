/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers of revisions that have no worker of their own.
 */
#ifndef ATTNKIT_COMPARE_OLDER_H
#define ATTNKIT_COMPARE_OLDER_H

#include <stdbool.h>

/* Adds a worker to the exported source of a revision, unless it has one. `what` is the revision's
 * name. Returns false if it has complained. */
bool older_add_worker(const char *source, const char *what);

#endif
