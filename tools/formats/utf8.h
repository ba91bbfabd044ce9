/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads UTF-8 (RFC 3629) from arbitrary bytes, and writes UTF-8.
 */
#ifndef ATTNKIT_UTF8_H
#define ATTNKIT_UTF8_H

#include <stdbool.h>
#include <stdint.h>

/* Sets *character to the character at `at`. `at` is less than end. Returns the number of bytes of
 * the character, 1 .. 4, or 0 if the bytes are not UTF-8. */
int utf8_take(const char *at, const char *end, uint32_t *character);

/* Writes the 1 .. 4 bytes of the character to `string`, without a 0 after them. Returns the address
 * after the last byte. */
char *utf8_put(char *string, uint32_t character);

/* Returns whether a terminal may take the character for a command. These characters are
 * U+0000 .. U+001F and U+007F .. U+009F. */
bool utf8_is_control(uint32_t character);

#endif
