/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the tokens of JSON. Most of the code is for strings, which may have escapes. If a character
 * beyond U+FFFF is escaped, it takes two escapes of the form \uXXXX.
 */
#include "tools/formats/json.h"

#include <string.h>

#include "tools/formats/utf8.h"

static void skip_spaces(struct json *json)
{
    while (json->at < json->end && memchr(" \t\n\r", *json->at, 4))
        json->at++;
}

bool json_take(struct json *json, char c)
{
    skip_spaces(json);
    if (json->at == json->end || *json->at != c)
        return false;
    json->at++;
    return true;
}

bool json_ends(struct json *json)
{
    skip_spaces(json);
    return json->at == json->end;
}

/* ----------------------------------------------------------------------------------- strings */

enum { HIGH_SURROGATE = 0xD800, LOW_SURROGATE = 0xDC00, SURROGATE_END = 0xE000 };

static bool take_hex(struct json *json, uint32_t *number)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    *number = 0;
    if (json->end - json->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        const char *const digit = memchr(digits, *json->at++, sizeof digits - 1);
        if (!digit)
            return false;
        *number = *number << 4 | (uint32_t)((digit - digits) % 16);
    }
    return true;
}

/* Takes the digits after "\u". If these digits are the first half of a surrogate pair, also takes
 * the second "\u" and its digits. */
static bool take_code(struct json *json, uint32_t *character)
{
    uint32_t low;
    if (!take_hex(json, character))
        return false;
    if (*character < HIGH_SURROGATE || *character >= SURROGATE_END)
        return true;
    if (*character >= LOW_SURROGATE || json->end - json->at < 2 || memcmp(json->at, "\\u", 2))
        return false;
    json->at += 2;
    if (!take_hex(json, &low) || low < LOW_SURROGATE || low >= SURROGATE_END)
        return false;
    *character = 0x10000 + ((*character - HIGH_SURROGATE) << 10) + (low - LOW_SURROGATE);
    return true;
}

/* Takes the rest of an escape, after the backslash. Refuses \b, \f, \n, \r and \t, which stand for
 * control characters. */
static bool take_escape(struct json *json, uint32_t *character)
{
    if (json->at == json->end)
        return false;
    const char c = *json->at++;
    if (c == 'u')
        return take_code(json, character);
    *character = (uint32_t)c;
    return memchr("\"\\/", c, 3) != NULL;
}

static bool take_plain(struct json *json, uint32_t *character)
{
    const int bytes = utf8_take(json->at, json->end, character);
    json->at += bytes;
    return bytes > 0;
}

bool json_take_string(struct json *json, char *string)
{
    if (!json_take(json, '"'))
        return false;
    while (json->at < json->end) {
        uint32_t character;
        if (*json->at == '"') {
            json->at++;
            *string = '\0';
            return true;
        }
        const bool escaped = *json->at == '\\';
        json->at += escaped;
        if (!(escaped ? take_escape(json, &character) : take_plain(json, &character)) ||
            utf8_is_control(character))
            return false;
        string = utf8_put(string, character);
    }
    return false;
}

/* ----------------------------------------------------------------------------------- numbers */

bool json_take_natural(struct json *json, uint64_t *number)
{
    skip_spaces(json);
    const char *const first = json->at;
    *number = 0;
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*json->at - '0'), number))
            return false;
    return json->at > first && (*first != '0' || json->at == first + 1);
}
