/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the options of a subcommand by a table. The help of the subcommand is made from the same
 * table. Names cannot be abbreviated: otherwise a new option could make an abbreviation in an old
 * script ambiguous.
 */
#include "tools/cli/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 26, WORDS_TEXT = 128 };

/* Returns the option that arg names, alone or before a '=', or NULL if there is no such option. */
static const struct option *find(const struct option *options, int count, const char *arg)
{
    const size_t length = strcspn(arg, "=");
    for (int i = 0; i < count; i++)
        if (strlen(options[i].name) == length && !strncmp(options[i].name, arg, length))
            return &options[i];
    return NULL;
}

/* Returns the argument of an option that needs an argument. The argument is the text after the '='
 * in `word`. If `word` has no '=', the argument is `next`. `next` must not name an option, alone or
 * before a '='. On an error, prints it and returns NULL. */
static const char *argument_of(const struct option *option, const char *word, const char *next,
                               bool next_is_option)
{
    const char *const equals = strchr(word, '=');
    if (equals)
        return equals + 1;
    if (next && !next_is_option)
        return next;
    if (next)
        complain("option %s needs an argument, %s, before %s: write %s=%s if %s is the argument",
                 option->name, option->argument, next, option->name, next, next);
    else
        complain("option %s needs an argument: %s", option->name, option->argument);
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
        const bool in_word = strchr(argv[i], '=') != NULL;
        if (!option->argument && in_word)
            return complain("option %s takes no argument", option->name);
        const char *const next = i + 1 < argc ? argv[i + 1] : NULL;
        *option->value = option->argument ? argument_of(option, argv[i], next,
                                                        next && find(options, count, next))
                                          : option->name;
        if (!*option->value)
            return false;
        i += option->argument && !in_word;
    }
    return true;
}

bool options_require(const char *command, const struct option *options, int count,
                     const char *const *names)
{
    for (; *names; names++)
        if (!*find(options, count, *names)->value)
            return complain("option %s is missing: see attnkit %s --help", *names, command);
    return true;
}

bool options_go_together(const struct option_pair *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (pairs[i].value && !pairs[i].needed_value)
            return complain("option %s needs option %s", pairs[i].name, pairs[i].needed);
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

/* Joins the words as "a, b or c". */
static void spell_words(const char *const *words, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; words[i] && used < size; i++) {
        const char *between = i == 0 ? "" : words[i + 1] ? ", " : " or ";
        used += (size_t)snprintf(text + used, size - used, "%s%s", between, words[i]);
    }
}

bool parse_word(const char *option, const char *text, const char *const *words, int *index)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(text, words[i])) {
            *index = i;
            return true;
        }
    char all[WORDS_TEXT];
    spell_words(words, all, sizeof all);
    return complain("%s is '%s': must be %s", option, text, all);
}

/* Reads the number at *text and advances *text to the end of the number. */
static bool take_natural(const char *option, const char **text, uint64_t max, uint64_t *value)
{
    char *end;
    if (**text < '0' || **text > '9')
        return complain("%s: '%s' does not begin with a digit", option, *text);
    errno = 0;
    const unsigned long long number = strtoull(*text, &end, 10);
    if (errno || number > max)
        return complain("%s: %.*s is too large: must be 0 .. %llu", option, (int)(end - *text),
                        *text, (unsigned long long)max);
    *value = number;
    *text = end;
    return true;
}

bool parse_naturals(const char *option, const char *text, uint64_t max, struct naturals *list)
{
    size_t commas = 0;
    for (const char *c = text; *c; c++)
        commas += *c == ',';
    list->values = calloc(commas + 1, sizeof *list->values);
    if (!list->values)
        return complain("no memory for the numbers of %s", option);
    for (;; text++) {
        if (!take_natural(option, &text, max, &list->values[list->count++]))
            return false;
        if (!*text)
            return true;
        if (*text != ',')
            return complain("%s: '%s' after a number: must be a comma", option, text);
    }
}
