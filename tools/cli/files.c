/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the files that options name. A result must have a file of its own.
 */
#include "tools/cli/files.h"

#include <string.h>

#include "tools/formats/path.h"

static bool is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name))
        names++;
    return *names != NULL;
}

static bool has_file(const struct option *option)
{
    return *option->value && option->argument &&
           (!strcmp(option->argument, "FILE") || !strcmp(option->argument, "PLACE"));
}

bool file_apart(const char *option, const char *name, const char *result_option, const char *result)
{
    return !path_same_file(name, result) ||
           complain("%s and %s name one file, %s: a result must have its own file", option,
                    result_option, result);
}

bool files_apart(const struct option *options, int count, const char *const *results)
{
    for (const struct option *a = options; a < options + count; a++)
        for (const struct option *b = a + 1; has_file(a) && b < options + count; b++) {
            const bool a_result = is_among(a->name, results);
            if (has_file(b) && (a_result || is_among(b->name, results)) &&
                !file_apart(a->name, *a->value, b->name, *b->value))
                return false;
        }
    return true;
}
