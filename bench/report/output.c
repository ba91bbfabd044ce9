/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the results file.
 */
#include "bench/report/output.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/tool.h"

static const char *target;
static char final[PATH_MAX], temporary[PATH_MAX];

static bool cannot_write(void)
{
    return complain("cannot write %s: %s", target, strerror(errno));
}

static void remove_and_end(int signal_number)
{
    unlink(temporary);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* Makes signals that end the program remove the unfinished file first. Signals that were ignored at
 * the start, as by nohup, stay ignored. */
static void remove_when_interrupted(void)
{
    static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXFSZ, SIGABRT};
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (signal(ending[i], remove_and_end) == SIG_IGN)
            signal(ending[i], SIG_IGN);
}

/* Sets `final` to the name of the file that output_end replaces. Symbolic links are followed, so
 * that the file is replaced and not the link. But a link to a missing file is itself replaced.
 * Returns false and sets errno if the file cannot be replaced. */
static bool resolve(const char *name)
{
    struct stat status;
    if (stat(name, &status)) {
        if (strlen(name) < PATH_MAX)
            strcpy(final, name);
        else
            errno = ENAMETOOLONG;
        return strlen(name) < PATH_MAX;
    }
    /* Only regular files are replaced: a device or a pipe must not become a file. */
    if (!S_ISREG(status.st_mode)) {
        errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
        return false;
    }
    return realpath(name, final);
}

const char *output_begin(const char *name)
{
    target = name;
    if (!resolve(name)) {
        cannot_write();
        return NULL;
    }
    if (snprintf(temporary, sizeof temporary, "%s.%ld.partial", final, (long)getpid()) >=
        (int)sizeof temporary) {
        errno = ENAMETOOLONG;
        cannot_write();
        return NULL;
    }
    remove_when_interrupted();
    FILE *file = fopen(temporary, "w");
    if (!file || fclose(file)) {
        cannot_write();
        return NULL;
    }
    return temporary;
}

/* Returns whether the file is complete, which means that it ends with this text. On a full disk,
 * the file is cut off. */
static bool ends_with(const char *ending)
{
    char text[16];
    const size_t length = strlen(ending);
    FILE *file = fopen(temporary, "r");
    const bool is_whole = file && !fseek(file, -(long)length, SEEK_END) &&
                          fread(text, 1, length, file) == length && !memcmp(text, ending, length);
    if (file)
        fclose(file);
    return is_whole;
}

void output_abandon(void)
{
    unlink(temporary);
}

bool output_end(const char *ending)
{
    bool ok = ends_with(ending);
    if (!ok)
        complain("cannot write %s: it is not complete", target);
    else
        ok = !rename(temporary, final) || cannot_write();
    if (!ok)
        unlink(temporary);
    return ok;
}
