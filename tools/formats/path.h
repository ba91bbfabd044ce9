/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the file to which a name leads. One file may have many names.
 */
#ifndef ATTNKIT_PATH_H
#define ATTNKIT_PATH_H

#include <stdbool.h>

enum { PATH_ROOM = 4096 };

/* Sets path to the absolute path of a file, without symbolic links. The last part of the name need
 * not exist yet. If this part is a symbolic link to a file that does not exist, the link stays in
 * path. Returns false and sets errno on an error. */
bool path_resolve(const char *name, char path[PATH_ROOM]);

/* Returns whether two names lead to one file. Two existing files are compared by device and inode,
 * so that hard links to one file count as one file. If a file does not exist, the paths that
 * path_resolve finds are compared. */
bool path_same_file(const char *a, const char *b);

#endif
