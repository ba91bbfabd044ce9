/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of a subcommand, from a table that also makes its help. Names are never abbreviated: a
 * script that works today must not become ambiguous by an option of tomorrow.
 */
#include "tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 26 };

/* The option that arg names, alone or before a '='; NULL if there is none. */
static const struct option *find(const struct option *options, int count, const char *arg)
{
    const size_t length = strcspn(arg, "=");
    for (int i = 0; i < count; i++)
        if (strlen(options[i].name) == length && !strncmp(options[i].name, arg, length))
            return &options[i];
    return NULL;
}

bool options_parse(const struct option *options, int count, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        const struct option *option = find(options, count, argv[i]);
        if (!option)
            return complain("unknown %s '%s'", argv[i][0] == '-' ? "option" : "argument", argv[i]);
        if (*option->value)
            return complain("option %s is given twice", option->name);
        const char *equals = strchr(argv[i], '=');
        if (!option->argument && equals)
            return complain("option %s takes no argument", option->name);
        if (!option->argument)
            *option->value = option->name;
        else if (equals)
            *option->value = equals + 1;
        else if (i + 1 < argc)
            *option->value = argv[++i];
        else
            return complain("option %s needs an argument: %s", option->name, option->argument);
    }
    return true;
}

void options_print_help(const struct option *options, int count)
{
    for (int i = 0; i < count; i++) {
        const char *argument = options[i].argument ? options[i].argument : "";
        const int used = printf("  %s %s", options[i].name, argument);
        if (used >= HELP_COLUMN)
            printf("\n%*s", HELP_COLUMN, "");
        else
            printf("%*s", HELP_COLUMN - used, "");
        for (const char *c = options[i].help; *c; c++)
            if (*c == '\n')
                printf("\n%*s", HELP_COLUMN, "");
            else
                putchar(*c);
        putchar('\n');
    }
}

bool parse_integer(const char *option, const char *text, int64_t min, int64_t max, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end)
        return complain("%s is '%s': must be a whole number", option, text);
    if (errno || number < min || number > max)
        return complain("%s is %s: must be %lld .. %lld", option, text, (long long)min,
                        (long long)max);
    *value = number;
    return true;
}

bool parse_real(const char *option, const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    if (end == text || *end)
        return complain("%s is '%s': must be a number", option, text);
    return true;
}
