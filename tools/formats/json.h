/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of a JSON text (RFC 8259), taken one after the other by one who knows what must come
 * next. The bytes may come from anywhere: nothing outside them is read. A function that returns
 * false has met something else.
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

/* A character of the structure, after white space. */
bool json_take(struct json *json, char c);

/* Nothing but white space is left. */
bool json_ends(struct json *json);

/* A string, without its escapes, as UTF-8 with a 0 after it: never longer than it is in the text
 * with its quotes. Control characters, also as escapes, are refused: the string may go into a
 * message. */
bool json_take_string(struct json *json, char *string);

/* A whole number that is not negative, as digits alone. */
bool json_take_natural(struct json *json, uint64_t *number);

#endif
