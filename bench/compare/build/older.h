/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes workers for revisions that have no worker.
 */
#ifndef ATTNKIT_COMPARE_OLDER_H
#define ATTNKIT_COMPARE_OLDER_H

#include <stdbool.h>

/* Adds a worker to the exported source of a revision, unless the revision has a worker. `what` is
 * the revision's name. On an error, prints it and returns false. */
bool older_add_worker(const char *source, const char *what);

#endif
