/* SPDX-License-Identifier: Apache-2.0
 *
 * The temporary folder of a job, and copies of files.
 */
#ifndef ATTNKIT_COMPARE_FOLDER_H
#define ATTNKIT_COMPARE_FOLDER_H

#include <limits.h>
#include <stdbool.h>

/* Makes a folder, and first its parents if they do not exist. If the folder exists, does nothing.
 * On an error, prints it and returns false. */
bool folder_make_all(const char *folder);

/* Makes a new folder in $XDG_CACHE_HOME/attnkit, by default in ~/.cache/attnkit. Sets `folder` to
 * the path of the new folder. On an error, prints it and returns false. */
bool folder_make(char folder[PATH_MAX]);

/* Removes a folder and its contents. On an error, prints it. */
void folder_remove(const char *folder);

/* Copies a file to a new file. On an error, for example if `to` exists, prints it and returns
 * false. */
bool file_copy(const char *from, const char *to);

/* Sets `path` to "folder/name". Prints an error and returns false if the path is too long. */
bool path_join(const char *folder, const char *name, char path[PATH_MAX]);

#endif
