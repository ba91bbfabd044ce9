/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a JSON text (RFC 8259), taken in order by a caller that knows what must come next.
 * The bytes may come from anywhere: nothing outside them is read. A function that returns false has
 * met something else.
 */
#ifndef ATTNKIT_JSON_H
#define ATTNKIT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is left to be read. */
struct json {
    const char *at;
    const char *end;
};

/* Takes white space and then this character of the structure. */
bool json_take(struct json *json, char c);

/* Nothing but white space is left. */
bool json_ends(struct json *json);

/* Takes a string and resolves its escapes, to UTF-8 with a 0 after it. It is never longer than in
 * the text with its quotes. Control characters, also as escapes, are refused, because the string
 * may go into a message. */
bool json_take_string(struct json *json, char *string);

/* A whole number that is not negative, as digits alone. */
bool json_take_natural(struct json *json, uint64_t *number);

#endif
