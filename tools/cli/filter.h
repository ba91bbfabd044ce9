/* SPDX-License-Identifier: Apache-2.0
 *
 * The option --filter, whose argument is an extended regular expression for names.
 */
#ifndef ATTNKIT_FILTER_H
#define ATTNKIT_FILTER_H

#include <regex.h>
#include <stdbool.h>

/* Compiles the expression. NULL stands for an expression that matches all names. The caller frees
 * a compiled filter with regfree(). If `expression` cannot be compiled, prints an error and returns
 * false, and there is nothing to free. */
bool filter_make(const char *expression, regex_t *filter);

/* Returns whether the expression matches the name or a part of the name. */
bool filter_takes(const regex_t *filter, const char *name);

#endif
