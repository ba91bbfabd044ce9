/* SPDX-License-Identifier: Apache-2.0
 *
 * The command `attnkit` computes attention and attention layers on NumPy files, and prints the
 * instruction sets. `attnkit bench` and `attnkit compare` are separate programs.
 */
#include <attnkit.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/tool.h"

static const char usage[] =
    "attnkit: attention for CPUs\n"
    "\n"
    "  attnkit run --q FILE --k FILE --v FILE -o FILE [options]\n"
    "                      attention on NumPy files; see attnkit run --help\n"
    "  attnkit layer --weights PLACE --heads N --x FILE -o FILE [options]\n"
    "                      the attention layer of a model on NumPy files; see attnkit layer "
    "--help\n"
    "  attnkit info        the instruction sets and units: which of them can run here, and which\n"
    "                      are chosen\n"
    "  attnkit bench       the speed of attention on this machine; see attnkit bench --help\n"
    "  attnkit compare BASE HEAD\n"
    "                      whether one build is slower than another; see attnkit compare --help\n"
    "  attnkit --help      this text\n"
    "  attnkit --version   the library's version\n"
    "\n"
    "Exit codes: 0 success, 1 a file or a call was refused, 2 the command was not understood.\n"
    "attnkit compare has exit codes of its own.\n"
    "The environment variable ATTNKIT_ISA names the instruction set to be used.\n";

/* Prints the text of --help or --version, which take no further argument. */
static int print_text(int argc, char **argv)
{
    if (argc > 2) {
        complain("unknown argument '%s' after %s: see attnkit --help", argv[2], argv[1]);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version"))
        fputs(usage, stdout);
    else
        say("attnkit %s", attnkit_version());
    return EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "run"))
        return run_command(argc - 2, argv + 2);
    if (!strcmp(argv[1], "layer"))
        return layer_command(argc - 2, argv + 2);
    if (!strcmp(argv[1], "info"))
        return info_command(argc - 2, argv + 2);
    if (!strcmp(argv[1], "bench"))
        return bench_command(argc - 2, argv + 2);
    if (!strcmp(argv[1], "compare"))
        return compare_command(argc - 2, argv + 2);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "--version"))
        return print_text(argc, argv);
    complain("unknown %s '%s': see attnkit --help", argv[1][0] == '-' ? "option" : "command",
             argv[1]);
    return EXIT_USAGE;
}

/* Runs the command, then flushes standard output. A full disk may be noticed only here, because
 * output may still be in the buffer of stdio. */
int main(int argc, char **argv)
{
    attnkit_enable("avx512+amx", NULL); /* if the unit cannot be used, `attnkit info` says why */
    const int code = dispatch(argc, argv);
    if (!ferror(stdout) && !fflush(stdout))
        return code;
    complain("cannot write standard output: %s", strerror(errno));
    return code == EXIT_OK ? EXIT_REFUSED : code;
}
