/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder for what a job needs until it ends.
 */
#ifndef ATTNKIT_COMPARE_FOLDER_H
#define ATTNKIT_COMPARE_FOLDER_H

#include <limits.h>
#include <stdbool.h>

/* Makes a folder and those above it, where they are missing. False: complained. */
bool folder_make_all(const char *folder);

/* Makes a new one where caches of this user are. False: complained. */
bool folder_make(char folder[PATH_MAX]);

/* Removes it with all there is in it. */
void folder_remove(const char *folder);

/* Copies a file. False: complained. */
bool file_copy(const char *from, const char *to);

/* "folder/name". False: complained, it is too long. */
bool path_join(const char *folder, const char *name, char path[PATH_MAX]);

#endif
