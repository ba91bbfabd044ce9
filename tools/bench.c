/* SPDX-License-Identifier: Apache-2.0
 *
 * `attnkit bench`: starts attnkit-bench, a program of its own because it needs Google Benchmark,
 * which the command is to do without.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

/* The folder this command is in. */
static bool own_folder(char folder[PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length < 0)
        return complain("cannot read /proc/self/exe: %s", strerror(errno));
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    return true;
}

/* Beside the command, in a build tree, or installed. */
static bool find_program(char program[2 * PATH_MAX])
{
    static const char *const places[] = {"", "/../bench", "/../libexec"};
    char folder[PATH_MAX];
    if (!own_folder(folder))
        return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(program, 2 * PATH_MAX, "%s%s/attnkit-bench", folder, places[i]);
        if (!access(program, X_OK))
            return true;
    }
    return complain("there is no attnkit-bench beside this command: it is built where meson finds "
                    "Google Benchmark (libbenchmark-dev) and a C++ compiler");
}

int bench_command(int argc, char **argv)
{
    char program[2 * PATH_MAX];
    char **arguments = calloc((size_t)argc + 2, sizeof *arguments);
    if (!arguments)
        complain("no memory");
    if (!arguments || !find_program(program)) {
        free(arguments);
        return EXIT_REFUSED;
    }
    arguments[0] = program;
    memcpy(arguments + 1, argv, (size_t)argc * sizeof *argv);
    execv(program, arguments);
    complain("cannot start %s: %s", program, strerror(errno));
    free(arguments);
    return EXIT_REFUSED;
}
