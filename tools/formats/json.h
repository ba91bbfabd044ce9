/* SPDX-License-Identifier: Apache-2.0
 *
 * A reader of the tokens of a JSON text (RFC 8259). The caller knows which token must come next,
 * and takes one token after the other. The bytes need not be trusted. Only bytes of the text are
 * read. A function that takes a token returns false if the token is malformed, refused or of
 * another kind.
 */
#ifndef ATTNKIT_JSON_H
#define ATTNKIT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rest of the text, which has not been read yet. */
struct json {
    const char *at;
    const char *end;
};

/* Takes white space, then the structural character c. */
bool json_take(struct json *json, char c);

/* Returns whether nothing but white space is left. */
bool json_ends(struct json *json);

/* Takes a string, and writes it to `string` as UTF-8 without escapes, with a 0 at its end. The
 * result is never longer than the string with its quotes in the text. Control characters and
 * escapes of control characters are refused, because the string may go into a message. */
bool json_take_string(struct json *json, char *string);

/* Takes a whole number that is not negative and has only digits. */
bool json_take_natural(struct json *json, uint64_t *number);

#endif
