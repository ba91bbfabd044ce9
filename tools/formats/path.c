/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the file of a name by asking the file system, because different names may lead to one file.
 */
#define _XOPEN_SOURCE 700
#define _FILE_OFFSET_BITS 64
#include "tools/formats/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(PATH_ROOM == PATH_MAX, "what realpath needs");

bool path_resolve(const char *name, char path[PATH_MAX])
{
    if (realpath(name, path))
        return true;
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    char folder[PATH_MAX], above[PATH_MAX] = ".";
    if (errno != ENOENT || !*base || strlen(name) >= PATH_MAX)
        return false;
    if (slash)
        snprintf(above, sizeof above, "%.*s", (int)(slash - name) + 1, name);
    if (!realpath(above, folder))
        return false;
    if (snprintf(path, PATH_MAX, "%s/%s", folder, base) < PATH_MAX)
        return true;
    errno = ENAMETOOLONG;
    return false;
}

bool path_same_file(const char *a, const char *b)
{
    char path_a[PATH_MAX], path_b[PATH_MAX];
    struct stat status_a, status_b;
    if (!stat(a, &status_a) && !stat(b, &status_b))
        return status_a.st_dev == status_b.st_dev && status_a.st_ino == status_b.st_ino;
    return path_resolve(a, path_a) && path_resolve(b, path_b) && !strcmp(path_a, path_b);
}
