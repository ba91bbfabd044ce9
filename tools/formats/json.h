/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a JSON text (RFC 8259), taken in order by a caller that knows what must come next.
 * The bytes may come from anywhere: nothing outside them is read. A function returns false if
 * another token comes.
 */
#ifndef ATTNKIT_JSON_H
#define ATTNKIT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text that is left to be read. */
struct json {
    const char *at;
    const char *end;
};

/* Takes white space, then the structural character c. */
bool json_take(struct json *json, char c);

/* Returns whether nothing but white space is left. */
bool json_ends(struct json *json);

/* Takes a string and resolves its escapes, to UTF-8 with a 0 after it. The result is never longer
 * than the string with its quotes in the text. Control characters, also as escapes, are refused,
 * because the string may go into a message. */
bool json_take_string(struct json *json, char *string);

/* Takes a whole number that is not negative and has only digits. */
bool json_take_natural(struct json *json, uint64_t *number);

#endif
