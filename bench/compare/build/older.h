/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers of revisions that have none.
 */
#ifndef ATTNKIT_COMPARE_OLDER_H
#define ATTNKIT_COMPARE_OLDER_H

#include <stdbool.h>

/* Adds a worker to the exported source of a revision, where it has none; what is the revision's
 * name. False: complained. */
bool older_add_worker(const char *source, const char *what);

#endif
