/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that name files: a result replaces no input, and no other result. To be found out before
 * anything is read, as the work may take long. A function that returns false has complained.
 */
#ifndef ATTNKIT_FILES_H
#define ATTNKIT_FILES_H

#include <stdbool.h>

#include "tools/cli/tool.h"

/* Whether each result has a file of its own. The results are some of the options, by their names,
 * which end with NULL; the other options whose argument is FILE or PLACE are read. */
bool files_apart(const struct option *options, int count, const char *const *results);

/* The same of one file that an option has read and the result of another. */
bool file_apart(const char *option, const char *name, const char *result_option,
                const char *result);

#endif
