/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles the expression of the option --filter.
 */
#include "tools/cli/filter.h"

#include <stddef.h>

#include "tools/cli/tool.h"

bool filter_make(const char *expression, regex_t *filter)
{
    char message[256];
    const int error = regcomp(filter, expression ? expression : "", REG_EXTENDED | REG_NOSUB);
    if (!error)
        return true;
    regerror(error, filter, message, sizeof message);
    return complain("--filter is '%s': %s", expression, message);
}

bool filter_takes(const regex_t *filter, const char *name)
{
    return !regexec(filter, name, 0, NULL, 0);
}
