/* SPDX-License-Identifier: Apache-2.0
 *
 * Which file a name leads to: one file may have many names.
 */
#ifndef ATTNKIT_PATH_H
#define ATTNKIT_PATH_H

#include <stdbool.h>

enum { PATH_ROOM = 4096 };

/* The absolute path of a file, links followed; only its last part need not be there yet. False:
 * errno says why. */
bool path_resolve(const char *name, char path[PATH_ROOM]);

/* Returns whether two names are one file: by device and inode if it is there, also through hard
 * links, else by the path it would have. */
bool path_same_file(const char *a, const char *b);

#endif
