/* SPDX-License-Identifier: Apache-2.0
 *
 * Refusing a call: a refusal is a status and a message that names the argument and its value.
 */
#ifndef ATTNKIT_MESSAGE_H
#define ATTNKIT_MESSAGE_H

#include <stdarg.h>
#include <stdio.h>

#include "attnkit.h"

/* The kind of format that vsnprintf takes, for the compiler's check of arguments. MinGW has two
 * versions of vsnprintf. To the compiler of MinGW, the name `printf` means the version of Windows,
 * which lacks %zu. The <stdio.h> of MinGW names the version in use. */
#if defined(__MINGW_PRINTF_FORMAT)
#define PRINTF_FORMAT __MINGW_PRINTF_FORMAT
#else
#define PRINTF_FORMAT printf
#endif

/* Writes the message, if the caller wants one, and returns the status. */
__attribute__((format(PRINTF_FORMAT, 3, 4))) static inline attnkit_status
refuse(char *message, attnkit_status status, const char *format, ...)
{
    if (message) {
        va_list values;
        va_start(values, format);
        vsnprintf(message, ATTNKIT_MESSAGE_SIZE, format, values);
        va_end(values);
    }
    return status;
}

static inline attnkit_status accept(char *message)
{
    if (message)
        message[0] = '\0';
    return ATTNKIT_OK;
}

#endif
