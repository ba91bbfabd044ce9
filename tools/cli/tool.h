/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the parts of the command `attnkit` share: exit codes, error messages, and the
 * parsing of options. Results go to standard output, error messages to standard error.
 */
#ifndef ATTNKIT_TOOL_H
#define ATTNKIT_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_OK = 0, EXIT_REFUSED = 1, EXIT_USAGE = 2 };

/* The exit code of `attnkit compare` if the program attnkit-compare is missing, or if a file,
 * memory, a process or a processor is not available. The exit codes 0 to 2 of `attnkit compare` are
 * verdicts, and 64 to 67 are other errors. */
enum { EXIT_NO_VERDICT = 68 };

/* Run the subcommands. Each function takes the arguments after the name of the subcommand, and
 * returns an exit code. */
int run_command(int argc, char **argv);
int layer_command(int argc, char **argv);
int info_command(int argc, char **argv);
int bench_command(int argc, char **argv);
int compare_command(int argc, char **argv);

/* Prints "attnkit: ..." and a newline on standard error. Returns false, so that callers can write
 * `return complain(...)`. */
__attribute__((format(printf, 1, 2))) bool complain(const char *format, ...);

/* Prints a line on standard output. say and complain escape each byte of an unreadable character,
 * and each byte that is not UTF-8, for example as "\x1b". */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* An option of a subcommand. */
struct option {
    const char *name;     /* "--threads" */
    const char *argument; /* the name of the argument in the help, such as "N"; NULL if the option
                           * takes no argument */
    const char *help;     /* one or more lines, which options_print_help aligns */
    const char **value;   /* options_parse sets *value to the argument, or to `name` if the option
                           * takes no argument. The caller initializes *value to NULL, which then
                           * means that the option is not given */
};

/* Reads `--name argument` and `--name=argument` into the values. On an error, prints it and returns
 * false. */
bool options_parse(const struct option *options, int count, int argc, char **argv);

/* Returns whether each of the named options was given. If not, prints an error. `names` ends with
 * NULL. */
bool options_require(const char *command, const struct option *options, int count,
                     const char *const *names);

/* An option `name`, the option `needed` that it needs, and the arguments of the two options. */
struct option_pair {
    const char *name, *value, *needed, *needed_value;
};

/* Returns whether each given option has the option that it needs. If not, prints an error. */
bool options_go_together(const struct option_pair *pairs, size_t count);

/* Prints the help of each option, in one or more aligned lines. */
void options_print_help(const struct option *options, int count);

/* parse_integer parses text as a whole number of min .. max, parse_real as any number. On an error,
 * both functions print the error with the name of the option and return false. */
bool parse_integer(const char *option, const char *text, int64_t min, int64_t max, int64_t *value);
bool parse_real(const char *option, const char *text, double *value);

/* Sets *index to the index of the text among the words, which end with NULL. On an error, prints it
 * and returns false. */
bool parse_word(const char *option, const char *text, const char *const *words, int *index);

/* Whole numbers that are not negative. */
struct naturals {
    uint64_t *values;
    int64_t count;
};

/* Reads numbers of 0 .. max, separated by commas, into a list that is all zero before. On an error,
 * prints it and returns false. The caller frees list->values, also after an error. */
bool parse_naturals(const char *option, const char *text, uint64_t max, struct naturals *list);

enum { CPUINFO_LINE = 4096 };

/* Copies the text after the colon in a line of Linux's /proc/cpuinfo to `value`. The line is the
 * first line that begins with `key` and has such a text. If there is no such line, sets `value` to
 * "". */
void cpuinfo(const char *key, char value[CPUINFO_LINE]);

/* Returns the name and version of the compiler that made the calling program, such as "gcc
 * 12.2.0". */
const char *tool_compiler(void);

#endif
