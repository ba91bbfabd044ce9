/* SPDX-License-Identifier: Apache-2.0
 *
 * How the programs of this project complain.
 */
#include "tools/cli/tool.h"

#include <stdarg.h>
#include <stdio.h>

bool complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("attnkit: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}
