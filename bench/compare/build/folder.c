/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes and removes folders, and copies files.
 */
#include "bench/compare/build/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/tool.h"

enum { OPEN_FOLDERS = 16 };

bool path_join(const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX)
        return true;
    return complain("%s/%s: the name is too long", folder, name);
}

bool folder_make_all(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", folder);
    for (char *c = path + 1; *c; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(path, 0777);
            *c = '/';
        }
    if (!mkdir(path, 0777) || errno == EEXIST)
        return true;
    return complain("cannot make the folder %s: %s", path, strerror(errno));
}

/* Sets `folder` to the path of attnkit's folder in the user's cache folder. */
static bool find_caches(char folder[PATH_MAX])
{
    const char *const caches = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    if (caches && caches[0] == '/')
        return path_join(caches, "attnkit", folder);
    if (home && home[0] == '/')
        return path_join(home, ".cache/attnkit", folder);
    return complain("neither XDG_CACHE_HOME nor HOME names a folder");
}

bool folder_make(char folder[PATH_MAX])
{
    char caches[PATH_MAX];
    if (!find_caches(caches) || !folder_make_all(caches) ||
        !path_join(caches, "compare.XXXXXX", folder))
        return false;
    return mkdtemp(folder) || complain("cannot make a folder in %s: %s", caches, strerror(errno));
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status, (void)kind, (void)where;
    return remove(path);
}

void folder_remove(const char *folder)
{
    if (nftw(folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS))
        complain("cannot remove %s: %s", folder, strerror(errno));
}

static bool copy_bytes(int from, int to)
{
    ssize_t sent;
    do
        sent = sendfile(to, from, NULL, (size_t)1 << 30);
    while (sent > 0 || (sent < 0 && errno == EINTR));
    return sent == 0;
}

bool file_copy(const char *from, const char *to)
{
    const int in = open(from, O_RDONLY | O_CLOEXEC);
    const int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const bool ok = out >= 0 && copy_bytes(in, out);
    const int error = errno;
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out))
        return complain("cannot write %s: %s", to, strerror(errno));
    return ok || complain("cannot copy %s to %s: %s", from, to, strerror(error));
}
