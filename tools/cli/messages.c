/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints lines for the programs of this project: error messages and results. A line may quote the
 * name of a file or a tensor, which another person chose. Therefore this file escapes characters
 * that a terminal takes for commands, characters that separate lines, and characters that change
 * the direction of text. Bytes that are not UTF-8 are also escaped.
 */
#include "tools/cli/tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/formats/utf8.h"

enum {
    TEXT = 16384, /* bytes of a message, room for three of the longest paths; a longer message is
                     cut */
    ESCAPE = 4,   /* characters of an escaped byte: a backslash, x and two digits */
};

/* Returns whether the character separates lines, or changes the direction of text. */
static bool is_layout(uint32_t character)
{
    return character == 0x061C || character == 0x200E || character == 0x200F ||
           (character >= 0x2028 && character <= 0x202E) ||
           (character >= 0x2066 && character <= 0x2069);
}

/* Copies the text to `escaped`. Each byte of a character that is not readable, and each byte that
 * is not UTF-8, becomes \x and two hexadecimal digits. `escaped` needs room for ESCAPE times the
 * bytes of the text, and a 0. */
static void escape(const char *text, char *escaped)
{
    const char *const end = text + strlen(text);
    while (text < end) {
        uint32_t character;
        const int bytes = utf8_take(text, end, &character);
        const bool readable = bytes && !utf8_is_control(character) && !is_layout(character);
        for (int i = 0; i < (bytes ? bytes : 1); i++, text++)
            escaped += sprintf(escaped, readable ? "%c" : "\\x%02x", (unsigned char)*text);
    }
    *escaped = '\0';
}

static void print_line(FILE *file, const char *before, const char *format, va_list arguments)
{
    char text[TEXT], escaped[ESCAPE * TEXT];
    const bool whole = vsnprintf(text, sizeof text, format, arguments) < TEXT;
    escape(text, escaped);
    fprintf(file, "%s%s%s\n", before, escaped, whole ? "" : "...");
}

bool complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line(stderr, "attnkit: ", format, arguments);
    va_end(arguments);
    return false;
}

void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line(stdout, "", format, arguments);
    va_end(arguments);
}
