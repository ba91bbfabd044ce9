/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the subcommands that are separate programs. `attnkit bench` is attnkit-bench, which needs
 * Google Benchmark. `attnkit compare` is attnkit-compare, which loads other builds of the library.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/tool.h"

/* Sets `folder` to the folder of this command, without a slash at the end. */
static bool own_folder(char folder[PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length < 0)
        return complain("cannot read /proc/self/exe: %s", strerror(errno));
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    return true;
}

/* Looks for the program `name` in the folder of this command, in the folders of a build tree, and
 * in the libexec folder of an installation. Sets `program` to its path. If there is none, prints an
 * error and returns false. `built_where` tells the user how to get the program. */
static bool find_program(const char *name, const char *built_where, char program[2 * PATH_MAX])
{
    static const char *const places[] = {"", "/../bench", "/../bench/compare", "/../libexec"};
    char folder[PATH_MAX];
    if (!own_folder(folder))
        return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(program, 2 * PATH_MAX, "%s%s/%s", folder, places[i], name);
        if (!access(program, X_OK))
            return true;
    }
    return complain("there is no %s beside this command: it is built if %s", name, built_where);
}

/* Replaces this process by the program. Returns only if the program cannot be started, and has then
 * printed an error. */
static void become(const char *name, const char *built_where, int argc, char **argv)
{
    char program[2 * PATH_MAX];
    char **arguments = calloc((size_t)argc + 2, sizeof *arguments);
    if (!arguments) {
        complain("no memory");
        return;
    }
    if (find_program(name, built_where, program)) {
        arguments[0] = program;
        memcpy(arguments + 1, argv, (size_t)argc * sizeof *argv);
        execv(program, arguments);
        complain("cannot start %s: %s", program, strerror(errno));
    }
    free(arguments);
}

int bench_command(int argc, char **argv)
{
    become("attnkit-bench", "meson finds Google Benchmark (libbenchmark-dev) and a C++ compiler",
           argc, argv);
    return EXIT_REFUSED;
}

int compare_command(int argc, char **argv)
{
    become("attnkit-compare", "meson is not told -Dbench=disabled", argc, argv);
    return EXIT_NO_VERDICT;
}
