/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the options that name files. A result must not replace an input or another result.
 * files_apart is called before any file is read, so that a mistake is reported before long work. A
 * function that returns false has printed an error.
 */
#ifndef ATTNKIT_FILES_H
#define ATTNKIT_FILES_H

#include <stdbool.h>

#include "tools/cli/tool.h"

/* Returns whether each result has a file of its own. `results` names the options that write a file,
 * and ends with NULL. All other options whose argument is FILE or PLACE name inputs. */
bool files_apart(const struct option *options, int count, const char *const *results);

/* Returns whether `name` and `result` are different files. `option` gives the file `name`, and
 * `result_option` gives the file `result`. */
bool file_apart(const char *option, const char *name, const char *result_option,
                const char *result);

#endif
