/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes names for files in a folder of results. The process id distinguishes runs that begin in the
 * same second.
 */
#include "bench/report/history.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli/tool.h"
#include "bench/report/commit.h"

static bool make_folder(const char *folder)
{
    struct stat status;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return complain("cannot make the folder %s: %s", folder, strerror(errno));
    if (stat(folder, &status) || !S_ISDIR(status.st_mode))
        return complain("--history is '%s': must be a folder", folder);
    return true;
}

const char *history_name(const char *folder)
{
    static char name[PATH_MAX];
    char date[32];
    const time_t now = time(NULL);
    struct tm parts;
    if (!make_folder(folder))
        return NULL;
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &parts));
    if (snprintf(name, sizeof name, "%s/%s-%s-%ld.json", folder, date, bench_commit,
                 (long)getpid()) < (int)sizeof name)
        return name;
    complain("--history is '%s': %s", folder, strerror(ENAMETOOLONG));
    return NULL;
}
